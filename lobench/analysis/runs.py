"""Which subjects are checkpoints of one run: what a line along a run may join."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.findings import Findings
from lobench.core.subject import Subject as Who

__all__ = ["Run", "runs_of"]

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The checkpoints of one run, with one optimizer's bindings and in one generation.

    Attributes:
      name: Of its folder.
      places: Of its subjects in the reading, by outer step.
      best: The one of the highest mean score among those with the most cases; None where none has a score.
    """

    name: str
    places: tuple[int, ...]
    best: int | None

    @property
    def last(self) -> int:
        return self.places[-1]


def runs_of(findings: Findings) -> list[Run]:
    """Returns the runs of a store in the order of their first checkpoints; optimizers and imports are of none.

    Two checkpoints are of one run where they lie in one folder under names that differ by their numbers alone
    (`theta_10.npz`, `theta_20.npz`, and not `celo.npz` beside `rnnprop.npz`). Of two at one outer step the later one
    counts.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, subject in enumerate(findings.reading.subjects):
        if subject.who.has_theta:
            groups.setdefault(_key(subject.who), []).append(place)
    found = []
    for (folder, *_), places in groups.items():
        generation = findings.reading.subjects[places[0]].who.generation
        lineage = f", generation {generation}" if generation else ""
        by_step = {findings.reading.subjects[place].who.outer_step: place for place in places}
        ordered = [by_step[step] for step in sorted(by_step)]
        found.append(Run(name=f"{folder}{lineage}", places=tuple(ordered), best=_best(findings, ordered)))
    return found


def _key(who: Who) -> tuple[str, ...]:
    folder, _, name = who.uri.rstrip("/").rpartition("/")
    pattern = "" if who.run else _NUMBER.sub("#", name)
    return who.run or folder, pattern, str(who.generation), who.variant.key


def _best(findings: Findings, places: Sequence[int]) -> int | None:
    if len(places) == 1:
        return None  # nothing to be the best of
    means = {place: findings.mean_score(place, "primary") for place in places}
    scored = {place: one for place, one in means.items() if not math.isnan(one.interval.mean)}
    most = max((one.num_cases for one in scored.values()), default=0)
    whole = {place: one.interval.mean for place, one in scored.items() if one.num_cases == most}
    return max(whole, key=lambda place: whole[place]) if whole else None
