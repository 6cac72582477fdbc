"""Groups of cases by design: cases of one training, or with common data and initial parameters.

If a seed moves several cases alike, a test that takes the cases as independent errs; see
`lobench.analysis.stats.seed_groups`. Whether cases share a training follows from how they were made. It is not tested,
because a test has no power with few seeds. These cases form one group:

- curves of one run: a session of a script, a run of W&B, TensorBoard or MLflow, a file whose columns are the cases;
- imported curves whose seeds are declared to be the same draws (`--paired-seeds`);
- trainings by lobench with equal bindings of the task, which differ in their lengths, evaluations or metrics only;
- cases that have items of a data set in common, directly or through others: a hard question is hard in each of them.

Rows of a table whose seeds are labels are independent: "seed 3" of two Atari games is only a label.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.seed_groups import group_indices
from lobench.analysis.store.subjects import Cell
from lobench.analysis.store.trainings import trainings_of
from lobench.core.errors import UsageError

__all__ = [
    "EVERY_CASE",
    "CaseDesign",
    "case_groups",
    "design_from_options",
    "has_label_seeds",
    "regrouped",
    "shared_trainings",
]

CaseDesign: TypeAlias = Literal["by design", "independent", "seed means"]

EVERY_CASE = frozenset({"every case"})


def case_groups(
    cells: Iterable[Mapping[str, Cell]], cases: Sequence[str], design: CaseDesign = "by design"
) -> tuple[tuple[str, ...], ...]:
    """Returns the groups of cases, as identities.

    Args:
      cells: Cells of each subject, by identity of the case.
      cases: Identities, in the order of the groups.
      design: Rule by which cases are grouped.
    """
    subjects = list(cells)
    names = [
        frozenset().union(*{shared_trainings(subject[case], design) for subject in subjects if case in subject})
        for case in cases
    ]
    return tuple(tuple(cases[index] for index in indices) for indices in group_indices(names))


def shared_trainings(cell: Cell, design: CaseDesign = "by design") -> frozenset[str]:
    """Returns the names of the trainings, or of the items, that a cell comes from.

    Cells with a common name belong to one group.

    Args:
      cell: Results of a subject on a case.
      design: Rule by which cases are grouped. "independent": each case is one group; "seed means": all cases together
        are one group.
    """
    if design == "independent":
        return frozenset()
    if design == "seed means":
        return EVERY_CASE
    names = trainings_of(cell.blocks)
    if not cell.case.has_items:
        return names
    return names | _items(cell.seeds) if names else _items(cell.seeds)


@functools.lru_cache(maxsize=64)  # all checkpoints of a case have the same items
def _items(item_numbers: tuple[int, ...]) -> frozenset[str]:
    return frozenset(f"item {number}" for number in item_numbers)


def has_label_seeds(cell: Cell) -> bool:
    """Returns whether a cell's seeds are only labels of a table, which do not imply shared draws."""
    return bool(cell.curves_by_seed) and cell.draws == "" and not shared_trainings(cell)


def design_from_options(*, independent_cases: bool = False, seed_means: bool = False) -> CaseDesign:
    """Returns the design selected by two command line options.

    Raises:
      UsageError: Both options are set.
    """
    if independent_cases and seed_means:
        raise UsageError(
            "--independent-cases and --seed-means contradict each other",
            expected="one of them, or neither: then the way in which the cases were made decides",
        )
    return "independent" if independent_cases else "seed means" if seed_means else "by design"


def regrouped(samples: Samples, design: CaseDesign) -> Samples:
    """Returns samples with their groups replaced according to the design."""
    if design == "by design":
        return samples
    shared = EVERY_CASE if design == "seed means" else frozenset()
    return replace(samples, shared_trainings=shared)
