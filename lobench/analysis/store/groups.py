"""Groups of a store's subjects: runs with ordered checkpoints, and methods without an order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.store.subjects import StoredSubject

__all__ = ["MethodGroups", "method_groups_of", "run_names", "steps_increase"]

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodGroups:
    """Subjects of a store as runs and single subjects, given by their indices in the store.

    A run contains checkpoints only, which a chart joins by a line. Optimizers without theta, imported methods and
    checkpoints of other optimizers have no outer step in it.

    Attributes:
      runs: Indices of the checkpoints of each run, in order. A run has at least two, each at a different step.
      single_indices: Indices of all other subjects, in order.
    """

    runs: tuple[tuple[int, ...], ...]
    single_indices: tuple[int, ...]

    @property
    def is_one_run(self) -> bool:
        """Whether the store contains a single run and nothing else, which leaves no methods to compare."""
        return len(self.runs) == 1 and not self.single_indices

    @property
    def has_several_methods(self) -> bool:
        """Whether there are at least two methods, where a run counts as one."""
        return len(self.runs) + len(self.single_indices) > 1

    def run_of(self, subject_index: int) -> tuple[int, ...]:
        """Returns the run that contains a subject, or ()."""
        return next((run for run in self.runs if subject_index in run), ())

    def short_table_indices(self, headline_index: int) -> list[int]:
        """Returns the indices of the first and last subject of each run, for tables too small for all checkpoints.

        Args:
          headline_index: Index of the subject in the headlines. It replaces the last one of its run, which may be
            unfinished.
        """
        indices = set(self.single_indices)
        for run in self.runs:
            indices |= {run[0], headline_index if headline_index in run else run[-1]}
        return sorted(indices)

    def chart_indices(self, headline_index: int) -> list[int]:
        """Returns the subjects of a chart: the headlines' subject, the first of its run, then every other method.

        Other runs are represented by their last checkpoint.
        """
        headline_run = self.run_of(headline_index)
        other_subjects = sorted([*self.single_indices, *(run[-1] for run in self.runs if run != headline_run)])
        return list(dict.fromkeys([headline_index, *headline_run[:1], *other_subjects]))


def method_groups_of(subjects: Sequence[StoredSubject], *, are_methods: bool = False) -> MethodGroups:
    """Divides subjects into runs and single subjects.

    Two checkpoints belong to one run if a watch recorded so. Otherwise they do if they lie in one folder and have names
    that differ only in numbers: `theta_10.npz` and `theta_20.npz`, but not `celo.npz` and `rnnprop.npz`. Their bindings
    must be equal. Of two checkpoints at one step, the later one belongs to the run.

    Args:
      subjects: Subjects of a store.
      are_methods: Whether the subjects are methods of an experiment, which are never joined.
    """
    groups: dict[object, list[int]] = {}
    for index, subject in enumerate(subjects):
        identity = subject.subject
        if identity.has_theta and not are_methods:
            folder, _, name = identity.uri.rstrip("/").rpartition("/")
            series_key = (identity.run,) if identity.run else (folder, _NUMBER.sub("#", name))
            groups.setdefault((series_key, identity.variant), []).append(index)
    divided_runs = [run_indices for group in groups.values() for run_indices in _by_optimizer(subjects, group)]
    runs = [tuple(sorted(_by_step(subjects, run_indices).values())) for run_indices in divided_runs]
    runs = [run for run in runs if len(run) > 1]
    members = {index for run in runs for index in run}
    single_subjects = tuple(index for index in range(len(subjects)) if index not in members)
    return MethodGroups(runs=tuple(runs), single_indices=single_subjects)


def _by_step(subjects: Sequence[StoredSubject], indices: Sequence[int]) -> dict[tuple[int, int], int]:
    return {(subjects[index].subject.generation, subjects[index].subject.outer_step): index for index in indices}


def _by_optimizer(subjects: Sequence[StoredSubject], indices: Sequence[int]) -> list[list[int]]:
    """Divides a run that was evaluated with several bindings: each of its checkpoints is then several subjects."""
    if len(_by_step(subjects, indices)) == len(indices):
        return [list(indices)]
    indices_by_optimizer: dict[frozenset[str], list[int]] = {}
    for index in indices:
        indices_by_optimizer.setdefault(subjects[index].optimizer_hashes, []).append(index)
    return list(indices_by_optimizer.values())


def steps_increase(subjects: Sequence[StoredSubject], runs: Sequence[Sequence[int]]) -> bool:
    """Returns whether outer steps increase along every run. In a population, they restart in a later generation."""
    steps_of_runs = ([subjects[index].subject.outer_step for index in run] for run in runs)
    return all(step < next_step for steps in steps_of_runs for step, next_step in itertools.pairwise(steps))


def run_names(subjects: Sequence[StoredSubject], runs: Sequence[Sequence[int]]) -> list[str]:
    """Names each run by its position in a population, its bindings or its folder, whichever is distinct first."""
    subjects_of_runs = [subjects[run[0]].subject for run in runs]
    folders = [subject.uri.rstrip("/").rpartition("/")[0] for subject in subjects_of_runs]
    candidates = (
        [subject.run for subject in subjects_of_runs],
        ["; ".join(subject.variant.bindings) for subject in subjects_of_runs],
        [folder.rpartition("/")[2] for folder in folders],
        folders,
    )
    distinct_names = next((names for names in candidates if len(set(names)) == len(names) and all(names)), None)
    return distinct_names or [f"run {index + 1}" for index in range(len(runs))]
