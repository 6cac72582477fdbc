"""Decisions of a race: a pure function of the evaluations that a store holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.racing import PairSums, log_threshold, losers
from lobench.analysis.store.entrants import Entrant
from lobench.analysis.store.search_history import edges_among
from lobench.analysis.store.subjects import StoredSubject, subject_of
from lobench.core.case import CaseInfo, SeedBlock, seed_blocks
from lobench.core.errors import LobenchError
from lobench.core.experiment import Race
from lobench.core.result import Outcome

__all__ = ["Ending", "RaceResult", "Standing", "decided"]

Ending: TypeAlias = Literal["one left", "within the margin", "all seeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a method stands against another one: against whom it left, or, where it is in, against the leader.

    Attributes:
      against: A place among the methods.
      gap: Its score less that of the other, with the bounds that hold at every look at once.
      diverged: Seeds on which it diverges, on any case, and the other on none; and the other way round.
    """

    against: int
    gap: Interval
    diverged: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    """A race as far as it has come.

    Attributes:
      labels: Of all methods.
      looks: Rounds whose seeds all methods have that were in.
      out_at: Of each method the look at which it left; None: it is in.
      standings: Of each method; None of the leader, and before the first look.
      leader: The best of those who are in; None before the first look.
      ending: None where another round is wanted.
      steps: Inner steps of each method until it left.
      all_steps: Those that a method has on all seeds.
      missing: What the next round still lacks.
      scale: What 0 and 1 of the scores are.
      edges: Settings of the leader that are the least or the largest of those that race, as lines.
    """

    labels: tuple[str, ...]
    looks: int
    out_at: tuple[int | None, ...]
    standings: tuple[Standing | None, ...]
    leader: int | None
    ending: Ending | None
    steps: tuple[int, ...]
    all_steps: int
    missing: tuple[str, ...]
    scale: str
    edges: tuple[str, ...] = ()

    @property
    def racing(self) -> tuple[int, ...]:
        """Places of the methods that are in."""
        return tuple(place for place, look in enumerate(self.out_at) if look is None)


def decided(
    entrants: Sequence[Entrant], rules: Race, places: Sequence[Path] = (), *, until: int | None = None
) -> RaceResult:
    """Plays a race from its first round on, with what its methods were evaluated on.

    Who was thrown out stays out, and what it was evaluated on later decides nothing. So the decisions of a round hang
    on the evaluations up to it, and neither on when these were made nor on what else the store holds.

    Args:
      places: Suites, or files of baselines, that say what 1 on the scale is; (): those that the evaluations name.
      until: Its last look; None: as far as there are evaluations.
    Raises:
      LobenchError: no case has a scale.
    """
    out_at: list[int | None] = [None] * len(entrants)
    standings: list[Standing | None] = [None] * len(entrants)
    level, looks, leader, ending, missing = log_threshold(len(entrants), rules.alpha), 0, None, None, tuple[str, ...]()
    racing, scales = list(range(len(entrants))), None
    while ending is None and looks != until:
        missing = _missing([entrants[place] for place in racing], rules, looks + 1)
        if missing:
            break
        looks += 1
        if scales is None:
            scales = _scales(entrants, rules, places)
        subjects = [_subject(entrants[place], rules, looks) for place in racing]
        pairs = _pairs(subjects, rules.block * looks, scales)
        out, beats = losers(pairs, level)
        width, first = pairs.half_width(level), _leader(subjects, scales, out)
        for place, method in enumerate(racing):
            rivals = np.flatnonzero(beats[:, place]) if out[place] else np.array([first])
            rival = int(rivals[np.argmax((pairs.mean - width)[rivals, place])])
            standings[method] = None if place == first else _standing(pairs, width, place, rival, racing)
            out_at[method] = looks if out[place] else None
        leader, racing = racing[first], [method for place, method in enumerate(racing) if not out[place]]
        ending = _ending([standings[method] for method in racing if method != leader], looks, rules)
    sizes = [sum(case.num_inner_steps for case in one.cases) * rules.block for one in entrants]
    return RaceResult(
        labels=tuple(one.label for one in entrants),
        looks=looks,
        out_at=tuple(out_at),
        standings=tuple(standings),
        leader=leader,
        ending=ending,
        steps=tuple(size * (looks if at is None else at) for size, at in zip(sizes, out_at, strict=True)),
        all_steps=max(sizes) * rules.rounds,
        missing=missing,
        scale=_described(scales) if scales is not None else "",
        edges=() if leader is None else tuple(edges_among([one.who for one in entrants], leader)),
    )


def _ending(others: Sequence[Standing | None], looks: int, rules: Race) -> Ending | None:
    if not others:
        return "one left"
    if rules.margin and all(one is not None and one.gap.upper < rules.margin for one in others):
        return "within the margin"
    return "all seeds" if looks == rules.rounds else None


def _round(case: CaseInfo, rules: Race, look: int) -> list[SeedBlock]:
    """Returns the seed blocks of a case in a round; the first round is 1."""
    start = case.first_seed + (look - 1) * rules.block
    return list(seed_blocks(rules.block, case.seed_block, start))


def _missing(entrants: Sequence[Entrant], rules: Race, look: int) -> tuple[str, ...]:
    """Returns what a round lacks; what a test skips is none of it."""
    found = []
    for one in entrants:
        given = {(row.key.case_identity, row.key.seed_block): row for row in one.rows}
        given |= {(row.key.case_identity, row.key.seed_block): row for row in one.rows if row.has_curves}
        for case in one.cases:
            for block in _round(case, rules, look):
                row = given.get((case.identity, block))
                if row is None or not (row.has_curves or row.outcome is Outcome.SKIPPED):
                    why = f": {row.outcome}" if row is not None else ""
                    found.append(f"{one.label} on {case.suite}/{case.name}, seeds {block}{why}")
    return tuple(found)


def _subject(entrant: Entrant, rules: Race, looks: int) -> StoredSubject:
    """Returns a method with what it has of the first rounds, and no more."""
    rounds = itertools.product(entrant.cases, range(1, looks + 1))
    blocks = {(case.identity, block) for case, look in rounds for block in _round(case, rules, look)}
    rows = [row for row in entrant.rows if (row.key.case_identity, row.key.seed_block) in blocks]
    return subject_of(entrant.who, rows, {case.identity for case in entrant.cases})


def _scales(entrants: Sequence[Entrant], rules: Race, places: Sequence[Path]) -> Scales:
    """Returns the scales of a race: where there is no tuned baseline, those of its first round, which later ones keep.

    Raises:
      LobenchError: no case has one.
    """
    scales = Scales.of([_subject(one, rules, 1) for one in entrants], list(places) or None)
    cases = scales.cases.values()
    if not any(scales.scale(case, case.primary_metric).is_usable for case in cases):
        raise LobenchError(
            "no case has a scale, so that there are no scores to race on",
            got=scales.describe().replace("\n", "; "),
            next_step="`lobench baseline` beside the suite makes a scale that counts for all",
        )
    return scales


def _described(scales: Scales) -> str:
    return scales.describe().replace("the best mean that is stored", "the best mean of the first round")


def _pairs(subjects: Sequence[StoredSubject], num_seeds: int, scales: Scales) -> PairSums:
    """Returns what all pairs have shown: [j, i] is how much j is better than i."""
    count = len(subjects)
    cases = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
    sides = np.full((2, count, count, len(cases), num_seeds), math.nan)
    steps = np.zeros((count, count, len(cases)))
    for j, i in itertools.combinations(range(count), 2):
        for place, (identity, case) in enumerate(cases.items()):
            a, b = (subjects[one].cells.get(identity) for one in (j, i))
            if a is None or b is None:
                continue
            samples = paired_values(a, b, None, scales).samples
            common = sorted(a.finals(case.primary_metric).keys() & b.finals(case.primary_metric).keys())
            seeds = [seed - case.first_seed for seed in common]
            sides[0, j, i, place, seeds] = sides[1, i, j, place, seeds] = samples.a
            sides[1, j, i, place, seeds] = sides[0, i, j, place, seeds] = samples.b
            steps[j, i, place] = steps[i, j, place] = math.sqrt(12 * samples.converged().floor)
    return PairSums.of(sides[0], sides[1], steps)


def _leader(subjects: Sequence[StoredSubject], scales: Scales, out: NDArray[np.bool_]) -> int:
    """Returns who of those that are left has the best mean score, in which a diverged seed has -1."""
    means = [mean_score(subject, None, scales).mean for subject in subjects]
    return int(max(np.flatnonzero(~out), key=lambda place: np.nan_to_num(means[place], nan=-math.inf)))


def _standing(pairs: PairSums, width: NDArray[np.float64], place: int, rival: int, racing: Sequence[int]) -> Standing:
    gap, half = -float(pairs.mean[rival, place]), float(width[rival, place])
    return Standing(
        against=racing[rival],
        gap=Interval(mean=gap, lower=gap - half, upper=gap + half),
        diverged=(int(pairs.lost_by_b[rival, place]), int(pairs.lost_by_a[rival, place])),
    )
