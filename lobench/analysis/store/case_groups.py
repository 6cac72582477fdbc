"""Groups of cases by design: cases that are of one training, or share its data and initial parameters.

If a seed moves several cases alike, a test that takes the cases for independent errs; see
`lobench.analysis.stats.seed_groups`. Whether cases share a training is known from how they were made, and is not
tested: at few seeds a test could not tell. These cases are one group:

- curves of one run: a session of a script, a run of W&B, TensorBoard or MLflow, a file whose columns are the cases;
- imported curves whose seeds are declared to be the same draws (`--paired-seeds`);
- own trainings with equal bindings of the task, which differ in their lengths, evaluations or metrics only.

Rows of a table whose seeds are labels are independent: "seed 3" of two Atari games is only a label.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.seed_groups import group_places
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell
from lobench.core.errors import UsageError
from lobench.core.result import Curves

__all__ = [
    "EVERY_CASE",
    "CaseDesign",
    "are_labels",
    "case_groups",
    "design_of",
    "redesigned",
    "shared_trainings",
    "training_of",
]

CaseDesign: TypeAlias = Literal["by design", "independent", "seed means"]

EVERY_CASE = frozenset({"every case"})
# Kinds of files that hold runs of a logger; stores of an older lobench name the run alone.
_LOGGERS = ("wandb-chart", "wandb-history", "wandb-run", "tensorboard", "tensorboard-csv", "mlflow", "nanogpt")
_REFERENCE = re.compile(r"[@%]([\w./-]+)")
# Fields of a case that change its data, its initial parameters, or how they are drawn. The others are lengths,
# evaluations, metrics and resources.
_OF_TRAINING = ("task", "num_tasks", "sessions", "num_lanes", "phases")


def case_groups(
    cells: Iterable[Mapping[str, Cell]], cases: Sequence[str], design: CaseDesign = "by design"
) -> tuple[tuple[str, ...], ...]:
    """Returns the groups of some cases, by their identities.

    Args:
      cells: Of each subject its cells, by the identity of the case.
      cases: Identities, in the order of the groups.
    """
    subjects = list(cells)
    names = [
        frozenset().union(*(shared_trainings(own[case], design) for own in subjects if case in own)) for case in cases
    ]
    return tuple(tuple(cases[place] for place in places) for places in group_places(names))


def shared_trainings(cell: Cell, design: CaseDesign = "by design") -> frozenset[str]:
    """Returns the names of the trainings that a cell is of; cells with a name in common are of one group.

    Args:
      design: "independent" and "seed means" take no case, or every case, for one of a group.
    """
    if design == "independent":
        return frozenset()
    if design == "seed means":
        return EVERY_CASE
    blocks = {id(curves): curves for curves, _ in cell.sources.values()}
    return frozenset().union(*(_names(curves) for curves in blocks.values()))


def are_labels(cell: Cell) -> bool:
    """Returns whether a cell's seeds are labels of a table, which say nothing of what cases share."""
    return bool(cell.sources) and cell.draws == "" and not shared_trainings(cell)


def design_of(*, independent_cases: bool = False, seed_means: bool = False) -> CaseDesign:
    """Returns the design that two options name.

    Raises:
      UsageError: both are set.
    """
    if independent_cases and seed_means:
        raise UsageError(
            "--independent-cases and --seed-means contradict each other",
            expected="one of them, or neither: then the way in which the cases were made decides",
        )
    return "independent" if independent_cases else "seed means" if seed_means else "by design"


def redesigned(samples: Samples, design: CaseDesign) -> Samples:
    """Returns samples of a case that is taken for independent, or for one of a group of all cases."""
    if design == "by design":
        return samples
    return replace(samples, shared=EVERY_CASE if design == "seed means" else frozenset())


def _names(curves: Curves) -> frozenset[str]:
    origin = curves.provenance.imported
    if not origin:
        return frozenset(filter(None, [training_of(curves.provenance.bindings)]))
    names, draws = set[str](), origin.get("draws", "")
    if draws and draws != LOBENCH_SEEDS:
        names.add(f"seeds of {draws}")
    if training := origin.get("training", ""):
        names.add(training)
    elif origin.get("kind", "") in _LOGGERS:
        names.add(f"{origin.get('file', '')}: {origin.get('run', '')}")
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def training_of(bindings: str) -> str:
    """Returns a hash of the bindings that the data and the initial parameters of a training depend on; "" of no task.

    >>> one = "a/lobench.Case.task = @T()\\na/lobench.Case.num_inner_steps = 100\\na/lobench.T.width = 8"
    >>> other = one.replace("a/", "b/").replace("100", "400")
    >>> training_of(one) == training_of(other), training_of(one) == training_of(one.replace("8", "32"))
    (True, False)

    Args:
      bindings: Lines of everything that the case and its optimizer reach, as `Provenance.bindings`.
    """
    lines = [line.partition(" = ")[::2] for line in bindings.splitlines() if " = " in line]
    scope = next((name.rpartition("lobench.Case.task")[0] for name, _ in lines if name.endswith("Case.task")), "")
    own = [(name.removeprefix(scope), value.replace(f"@{scope}", "@")) for name, value in lines]
    wanted = {f"lobench.Case.{field}" for field in _OF_TRAINING}
    kept = {(name, value) for name, value in own if name in wanted}
    kept |= {
        (name, value)
        for name, value in own
        if "Phase." in name and not name.endswith((".num_inner_steps", "optimizer"))
    }
    if not any(name == "lobench.Case.task" for name, _ in kept):
        return ""
    fresh = set(kept)
    while fresh:
        references = {match for _, value in fresh for match in _REFERENCE.findall(value)}
        fresh = {line for line in own if line not in kept and _is_of(line[0], references)}
        kept |= fresh
    return hashlib.sha256("\n".join(f"{name} = {value}" for name, value in sorted(kept)).encode()).hexdigest()[:16]


def _is_of(name: str, references: Iterable[str]) -> bool:
    """Returns whether a binding is of something that a value refers to: `lobench.T.width` of `@T`, `@s/T` or `%T`."""
    scope, _, selector = name.rpartition("/")
    owner = selector.rpartition(".")[0]
    for reference in references:
        place, _, called = reference.rpartition("/")
        if owner == "gin.macro" and scope == reference:
            return True
        if (owner == called or owner.endswith(f".{called}")) and scope in ("", place):
            return True
    return False
