"""Decisions of a race, as a pure function of the stored evaluations."""

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
from lobench.analysis.stats.racing import PairSums, eliminated_methods, log_threshold
from lobench.analysis.store.entrants import Entrant
from lobench.analysis.store.search_history import edge_notes_among
from lobench.analysis.store.subjects import StoredSubject, subject_of
from lobench.core.case import CaseInfo, SeedBlock, seed_blocks
from lobench.core.errors import LobenchError
from lobench.core.experiment import Race
from lobench.core.result import Outcome
from lobench.core.wording import level_text

__all__ = ["EndReason", "RaceResult", "Standing", "race_result"]

_STORED_MEAN = "the best mean that is stored"  # words in the description of scales
EndReason: TypeAlias = Literal["one left", "within the margin", "all seeds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Standing of a method against the method that eliminated it, or against the leader if it is still in the race.

    Attributes:
      rival: Index of the other method.
      score_gap: Its score less that of the other method, with bounds that hold at all looks at once.
      diverged_counts: Number of seeds on which it diverges, on any case, and the other on none; and the reverse.
    """

    rival: int
    score_gap: Interval
    diverged_counts: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceResult:
    """State of a race between methods after the rounds evaluated so far.

    Attributes:
      labels: Labels of all methods.
      looks: Number of rounds whose seeds all racing methods have.
      out_at: Look at which each method was eliminated. None if it is still in the race.
      standings: Standing of each method. None for the leader, and before the first look.
      leader: Index of the best racing method. None before the first look.
      ending: Reason why the race has ended. None if it goes on.
      steps: Inner steps of each method until it was eliminated.
      all_steps: Inner steps of a method on all seeds.
      missing_evaluations: Evaluations missing for the next round.
      scale: Description of 0 and 1 on the scale of the scores.
      edge_notes: Lines on settings of the leader that are the smallest or largest of those in the race.
    """

    labels: tuple[str, ...]
    looks: int
    out_at: tuple[int | None, ...]
    standings: tuple[Standing | None, ...]
    leader: int | None
    ending: EndReason | None
    steps: tuple[int, ...]
    all_steps: int
    missing_evaluations: tuple[str, ...]
    scale: str
    edge_notes: tuple[str, ...] = ()

    @property
    def racing_indices(self) -> tuple[int, ...]:
        """Indices of the methods that are still in the race."""
        return tuple(index for index, exit_look in enumerate(self.out_at) if exit_look is None)

    @property
    def leader_text(self) -> str:
        """The leader, and methods of the race whose scores are level with its own: `adam leads, level with sgd`."""
        if self.leader is None:
            return ""
        standings = ((self.labels[index], self.standings[index]) for index in self.racing_indices)
        gaps = (
            (label, standing.score_gap.mean)
            for label, standing in standings
            if standing is not None and len(set(standing.diverged_counts)) == 1
        )
        return f"{self.labels[self.leader]} leads{level_text(0.0, gaps)}"


def race_result(
    entrants: Sequence[Entrant], rules: Race, suite_paths: Sequence[Path] = (), *, last_look: int | None = None
) -> RaceResult:
    """Returns the state of a race, computed from its first round on.

    Eliminated methods stay out, and their later evaluations are ignored. So the decisions of a round depend only on the
    evaluations up to it, and neither on their order in time nor on other content of the store.

    Args:
      entrants: Methods with their evaluations.
      rules: Rules of the race.
      suite_paths: Suites or baseline files that define the score 1. (): those recorded with the evaluations.
      last_look: Last look. None: the last one for which there are evaluations.

    Raises:
      LobenchError: No case has a scale.
    """
    out_at: list[int | None] = [None] * len(entrants)
    standings: list[Standing | None] = [None] * len(entrants)
    evidence_threshold = log_threshold(len(entrants), rules.alpha)
    num_looks = 0
    leader = None
    ending = None
    missing_texts = tuple[str, ...]()
    racing_methods = list(range(len(entrants)))
    scales = None
    while ending is None and num_looks != last_look:
        missing_texts = _missing_evaluations([entrants[index] for index in racing_methods], rules, num_looks + 1)
        if missing_texts:
            break
        num_looks += 1
        if scales is None:
            scales = _race_scales(entrants, rules, suite_paths)
        subjects = [_subject_so_far(entrants[index], rules, num_looks) for index in racing_methods]
        pairs = _pair_sums(subjects, rules.block * num_looks, scales)
        is_out, beats = eliminated_methods(pairs, evidence_threshold)
        width = pairs.half_width(evidence_threshold)
        leader_index = _leader_index(subjects, scales, is_out)
        for index, method in enumerate(racing_methods):
            rivals = np.flatnonzero(beats[:, index]) if is_out[index] else np.array([leader_index])
            rival = int(rivals[np.argmax((pairs.mean - width)[rivals, index])])
            standings[method] = None if index == leader_index else _standing(pairs, width, index, rival, racing_methods)
            out_at[method] = num_looks if is_out[index] else None
        leader = racing_methods[leader_index]
        racing_methods = [method for index, method in enumerate(racing_methods) if not is_out[index]]
        ending = _end_reason([standings[method] for method in racing_methods if method != leader], num_looks, rules)
    steps_per_round = [sum(case.num_inner_steps for case in entrant.cases) * rules.block for entrant in entrants]
    return RaceResult(
        labels=tuple(entrant.label for entrant in entrants),
        looks=num_looks,
        out_at=tuple(out_at),
        standings=tuple(standings),
        leader=leader,
        ending=ending,
        steps=tuple(
            size * (num_looks if exit_look is None else exit_look)
            for size, exit_look in zip(steps_per_round, out_at, strict=True)
        ),
        all_steps=max(steps_per_round) * rules.rounds,
        missing_evaluations=missing_texts,
        scale="" if scales is None else scales.describe().replace(_STORED_MEAN, "the best mean of the first round"),
        edge_notes=() if leader is None else tuple(edge_notes_among([entrant.subject for entrant in entrants], leader)),
    )


def _end_reason(standings: Sequence[Standing | None], num_looks: int, rules: Race) -> EndReason | None:
    if not standings:
        return "one left"
    if rules.margin and all(standing is not None and standing.score_gap.upper < rules.margin for standing in standings):
        return "within the margin"
    return "all seeds" if num_looks == rules.rounds else None


def _round_blocks(case: CaseInfo, rules: Race, round_number: int) -> list[SeedBlock]:
    """Returns the seed blocks of a case in a round. The first round is 1."""
    start = case.first_seed + (round_number - 1) * rules.block
    return list(seed_blocks(rules.block, case.seed_block, start))


def _missing_evaluations(entrants: Sequence[Entrant], rules: Race, round_number: int) -> tuple[str, ...]:
    """Returns the evaluations that a round lacks. Skipped evaluations are not missing."""
    missing_pairs = []
    for entrant in entrants:
        row_of_block = {(row.key.case_identity, row.key.seed_block): row for row in entrant.rows}
        row_of_block |= {(row.key.case_identity, row.key.seed_block): row for row in entrant.rows if row.has_curves}
        for case in entrant.cases:
            for block in _round_blocks(case, rules, round_number):
                row = row_of_block.get((case.identity, block))
                if row is None or not (row.has_curves or row.outcome is Outcome.SKIPPED):
                    why = f": {row.outcome}" if row is not None else ""
                    missing_pairs.append(f"{entrant.label} on {case.suite}/{case.name}, seeds {block}{why}")
    return tuple(missing_pairs)


def _subject_so_far(entrant: Entrant, rules: Race, num_rounds: int) -> StoredSubject:
    """Returns a method with its results of the first rounds only."""
    rounds = itertools.product(entrant.cases, range(1, num_rounds + 1))
    blocks = {
        (case.identity, block) for case, round_number in rounds for block in _round_blocks(case, rules, round_number)
    }
    rows = [row for row in entrant.rows if (row.key.case_identity, row.key.seed_block) in blocks]
    return subject_of(entrant.subject, rows, {case.identity for case in entrant.cases})


def _race_scales(entrants: Sequence[Entrant], rules: Race, suite_paths: Sequence[Path]) -> Scales:
    """Returns the score scales on which a race compares its methods.

    Without a tuned baseline, the first round determines them, and they do not change later.

    Raises:
      LobenchError: No case has a scale.
    """
    scales = Scales.of([_subject_so_far(entrant, rules, 1) for entrant in entrants], list(suite_paths) or None)
    cases = scales.cases.values()
    if not any(scales.scale(case, case.primary_metric).is_usable for case in cases):
        raise LobenchError(
            "no case has a scale, so a race has no scores to compare",
            got=scales.describe().replace("\n", "; "),
            next_step="`lobench baseline SUITE` defines a scale for all methods",
        )
    return scales


def _pair_sums(subjects: Sequence[StoredSubject], num_seeds: int, scales: Scales) -> PairSums:
    """Returns the sums of all pairs: [j, i] compares j (as `a`) with i."""
    count = len(subjects)
    cases = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
    scores_of_sides = np.full((2, count, count, len(cases), num_seeds), math.nan)
    steps = np.zeros((count, count, len(cases)))
    for j, i in itertools.combinations(range(count), 2):
        for index, (identity, case) in enumerate(cases.items()):
            a, b = (subjects[subject_index].cells.get(identity) for subject_index in (j, i))
            if a is None or b is None:
                continue
            samples = paired_values(a, b, None, scales).samples
            common_seeds = sorted(a.finals(case.primary_metric).keys() & b.finals(case.primary_metric).keys())
            seeds = [seed - case.first_seed for seed in common_seeds]
            scores_of_sides[0, j, i, index, seeds] = scores_of_sides[1, i, j, index, seeds] = samples.a
            scores_of_sides[1, j, i, index, seeds] = scores_of_sides[0, i, j, index, seeds] = samples.b
            steps[j, i, index] = steps[i, j, index] = math.sqrt(12 * samples.converged().least_variance)
    return PairSums.of(scores_of_sides[0], scores_of_sides[1], steps)


def _leader_index(subjects: Sequence[StoredSubject], scales: Scales, is_out: NDArray[np.bool_]) -> int:
    """Returns the index of the remaining method with the best mean score, in which a diverged seed scores -1."""
    means = [mean_score(subject, None, scales).mean for subject in subjects]
    return int(max(np.flatnonzero(~is_out), key=lambda index: np.nan_to_num(means[index], nan=-math.inf)))


def _standing(
    pairs: PairSums, width: NDArray[np.float64], index: int, rival: int, racing_methods: Sequence[int]
) -> Standing:
    gap = -float(pairs.mean[rival, index])
    half = float(width[rival, index])
    return Standing(
        rival=racing_methods[rival],
        score_gap=Interval(mean=gap, lower=gap - half, upper=gap + half),
        diverged_counts=(int(pairs.lost_by_b[rival, index]), int(pairs.lost_by_a[rival, index])),
    )
