"""Groups of a store's subjects: runs with their ordered checkpoints, and methods without an order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.store.subjects import StoredSubject
from lobench.core.subject import Subject as Who

__all__ = ["MethodGroups", "are_by_step", "groups_of", "run_names"]

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodGroups:
    """The subjects of a store, by their places.

    A line joins the checkpoints of one run, and nothing else: an optimizer without theta, an imported method and a
    checkpoint of another optimizer stand at no outer step of it.

    Attributes:
      runs: Of each run its checkpoints in order, two or more, each at a step of its own.
      alone: All other subjects, in order.
    """

    runs: tuple[tuple[int, ...], ...]
    alone: tuple[int, ...]

    @property
    def is_one_run(self) -> bool:
        """Whether there is nothing but the course of one run, so that there are no methods to be set side by side."""
        return len(self.runs) == 1 and not self.alone

    @property
    def shows_methods(self) -> bool:
        """Whether there are two methods or more: a run is one."""
        return len(self.runs) + len(self.alone) > 1

    def run_of(self, place: int) -> tuple[int, ...]:
        """Returns the run that a subject is of; () where it stands alone."""
        return next((run for run in self.runs if place in run), ())

    def ends(self, shown: int) -> list[int]:
        """Returns whom a table has where it is too small for all checkpoints: of a run the first and the last.

        Args:
          shown: The place of the headlines' subject: it stands for the end of its run, whose last may be under way.
        """
        found = set(self.alone)
        for run in self.runs:
            found |= {run[0], shown if shown in run else run[-1]}
        return sorted(found)

    def beside(self, shown: int) -> list[int]:
        """Returns whom a chart has: the headlines' subject, the first of its run, then every other method.

        Of another run its last checkpoint stands for it.
        """
        own = self.run_of(shown)
        others = sorted([*self.alone, *(run[-1] for run in self.runs if run != own)])
        return list(dict.fromkeys([shown, *own[:1], *others]))


def groups_of(subjects: Sequence[StoredSubject], *, are_methods: bool = False) -> MethodGroups:
    """Tells runs from methods.

    Two checkpoints are of one run where a watch says so; else where they lie in one folder under names that differ by
    their numbers alone: `theta_10.npz` and `theta_20.npz`, and not `celo.npz` beside `rnnprop.npz`. Their bindings are
    the same. Of two at one step the later one is of the run.

    Args:
      are_methods: Whether an experiment says that each is a method.
    """
    groups: dict[object, list[int]] = {}
    for place, subject in enumerate(subjects):
        if subject.who.has_theta and not are_methods:
            groups.setdefault(_run_of(subject.who), []).append(place)
    parts = [part for group in groups.values() for part in _by_optimizer(subjects, group)]
    runs = [tuple(sorted(_by_step(subjects, part).values())) for part in parts]
    runs = [run for run in runs if len(run) > 1]
    members = {place for run in runs for place in run}
    alone = tuple(place for place in range(len(subjects)) if place not in members)
    return MethodGroups(runs=tuple(runs), alone=alone)


def _run_of(who: Who) -> tuple[object, ...]:
    folder, _, name = who.uri.rstrip("/").rpartition("/")
    return (who.run, who.variant) if who.run else (folder, _NUMBER.sub("#", name), who.variant)


def _by_step(subjects: Sequence[StoredSubject], places: Sequence[int]) -> dict[tuple[int, int], int]:
    return {(subjects[place].who.generation, subjects[place].who.outer_step): place for place in places}


def _by_optimizer(subjects: Sequence[StoredSubject], places: Sequence[int]) -> list[list[int]]:
    """Parts a run that was evaluated with two optimizers' bindings: each of its checkpoints is two subjects then."""
    if len(_by_step(subjects, places)) == len(places):
        return [list(places)]
    parts: dict[frozenset[str], list[int]] = {}
    for place in places:
        parts.setdefault(subjects[place].optimizer_hashes, []).append(place)
    return list(parts.values())


def are_by_step(subjects: Sequence[StoredSubject], runs: Sequence[Sequence[int]]) -> bool:
    """Whether outer steps rise along every run; those of a population begin again in a later generation."""
    steps = ([subjects[place].who.outer_step for place in run] for run in runs)
    return all(before < after for one in steps for before, after in itertools.pairwise(one))


def run_names(subjects: Sequence[StoredSubject], runs: Sequence[Sequence[int]]) -> list[str]:
    """Returns what to call each run: by its place in a population, its bindings or its folder, what tells it first."""
    whos = [subjects[run[0]].who for run in runs]
    folders = [who.uri.rstrip("/").rpartition("/")[0] for who in whos]
    candidates = (
        [who.run for who in whos],
        ["; ".join(who.variant.bindings) for who in whos],
        [folder.rpartition("/")[2] for folder in folders],
        folders,
    )
    found = next((names for names in candidates if len(set(names)) == len(names) and all(names)), None)
    return found or [f"run {index + 1}" for index in range(len(runs))]
