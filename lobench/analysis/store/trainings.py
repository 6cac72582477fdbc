"""Names of the trainings that curves are of: curves with a name in common share a training, or its randomness.

`lobench.analysis.store.case_groups` has the rules.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable

from lobench.core.result import Curves

__all__ = ["LOBENCH_SEEDS", "training_of", "trainings_of"]

LOBENCH_SEEDS = "lobench"  # the draws of seeds that lobench trained

# Kinds of files that hold runs of a logger; stores of an older lobench name the run alone.
_LOGGERS = ("wandb-chart", "wandb-history", "wandb-run", "tensorboard", "tensorboard-csv", "mlflow", "nanogpt")
_REFERENCE = re.compile(r"[@%]([\w./-]+)")
# Fields of a case that change its data, its initial parameters, or how they are drawn. The others are lengths,
# evaluations, metrics and resources.
_OF_TRAINING = ("task", "num_tasks", "sessions", "num_lanes", "phases")


def trainings_of(curves: Iterable[Curves]) -> frozenset[str]:
    """Returns the names of the trainings that some curves are of; empty if they share none with any other curve."""
    blocks = {id(one): one for one in curves}
    return frozenset().union(*map(_names, blocks.values()))


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
