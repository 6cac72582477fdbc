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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.seed_groups import group_places
from lobench.analysis.store.subjects import Cell
from lobench.analysis.store.trainings import trainings_of
from lobench.core.errors import UsageError

__all__ = [
    "EVERY_CASE",
    "CaseDesign",
    "are_labels",
    "case_groups",
    "design_of",
    "redesigned",
    "shared_trainings",
]

CaseDesign: TypeAlias = Literal["by design", "independent", "seed means"]

EVERY_CASE = frozenset({"every case"})


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
    return trainings_of(curves for curves, _ in cell.sources.values())


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
