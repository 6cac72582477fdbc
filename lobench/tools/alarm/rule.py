"""Rules for alarms during a run: suspicions on the usual seeds, their confirmation on fresh seeds, and stalls.

A gate at each of 50 checkpoints gives a false alarm in 2 to 17 of 100 runs. Here a checkpoint that is worse than the
best one so far, at a plain level, is only suspected. A suspicion is tested on fresh seeds of both sides. The levels of
these tests decrease, so that they sum to the false alarm rate of the whole run, however long it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.stats.location import locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.proportions import p_more, two_sided
from lobench.analysis.stats.seed_groups import contrast_location, group_counts
from lobench.analysis.stats.t_distribution import t_isf
from lobench.core.errors import UsageError
from lobench.core.number_checks import unless_nan
from lobench.tools.alarm.alarm_rules import AlarmRules

__all__ = [
    "KINDS",
    "Alarm",
    "AlarmKind",
    "Confirmation",
    "Evidence",
    "Stall",
    "SuspectThenConfirm",
    "detector_of",
    "level_of_test",
    "parse_kinds",
]

AlarmKind: TypeAlias = Literal["regress", "overfit", "stall"]
KINDS: tuple[AlarmKind, ...] = ("regress", "overfit", "stall")

_UNLIMITED_RESOLUTION = 1e6  # harm that any number of seeds finds
_SUSPICION_LEVEL = 0.05  # level of the first stage; only the second stage determines the rate of false alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Request to compare two checkpoints on fresh seeds.

    Attributes:
      kind: Kind of the alarm.
      number: 1, 2, ...: number among the confirmations of this kind in the run.
      reference, position: Positions of the two checkpoints in the run.
      harm: Harm on the usual seeds.
    """

    kind: AlarmKind
    number: int
    reference: int
    position: int
    harm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Alarm raised by a rule.

    Attributes:
      kind: Kind of the alarm.
      number: Number of the confirmation, or of the window of a stall.
      reference, position: Positions of the two checkpoints in the run. For a stall, the first and last of the window.
      harm: Harm on the fresh seeds alone. For a stall, the trend in score per 1,000 outer steps.
      bound: One-sided confidence bound at the level: the harm is above it, the trend of a stall is below it.
      p_value: P-value of the test. NaN for a stall.
      level: Level of the test.
      cases: Identities of the cases that show the harm, the worst first.
    """

    kind: AlarmKind
    number: int
    reference: int
    position: int
    harm: float
    bound: float
    p_value: float
    level: float
    cases: tuple[str, ...]


class Evidence(Protocol):
    """Results of a run's checkpoints, by position in the run."""

    def __len__(self) -> int: ...

    def outer_step(self, index: int) -> int:
        """Returns the outer step of a checkpoint."""

    def mean_score(
        self, index: int, newest: int, kind: AlarmKind = "stall", number: int = 0, cases: Collection[str] | None = None
    ) -> float:
        """Returns the mean score of a checkpoint over cases (None: all), on the scale known at checkpoint `newest`.

        It includes the usual seeds, and the checkpoint's fresh seeds of the first `number` confirmations of a kind.
        """

    def usual_samples(self, reference: int, index: int) -> Mapping[str, Samples]:
        """Returns the scores of both sides on the usual seeds, by identity of the case."""

    def fresh_samples(self, confirmation: Confirmation) -> Mapping[str, Samples] | None:
        """Returns the scores of both sides on the seeds of a confirmation; None if they are not evaluated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Test result: the harm of one checkpoint against another."""

    is_significant: bool
    harm: float
    bound: float
    p_value: float
    cases: tuple[str, ...]


HarmTest: TypeAlias = Callable[[Mapping[str, Samples], float, float], Finding]  # arguments: samples, margin, level


def parse_kinds(options: Sequence[str]) -> tuple[AlarmKind, ...]:
    """Returns the kinds named by options, such as `regress,stall`, or one kind per option.

    Raises:
      UsageError: A kind is unknown.
    """
    names = [kind_name.strip() for text in options for kind_name in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError("--alarm", got=repr(name), expected=", ".join(KINDS))
    return tuple(kind for kind in KINDS if kind in names)


def level_of_test(number: int, rate: float) -> float:
    """Returns the significance level of the test with a number, counted from 1.

    The levels of all tests sum to the rate: the sum of 1 / k^2 is pi^2 / 6.
    """
    return rate * 6 / math.pi**2 / number**2


def regression_finding(samples: Mapping[str, Samples], margin: float, level: float) -> Finding:
    """Tests, for the mean and each case, that the harm is at most the margin and that no more seeds diverge."""
    # No output of an alarm has the number of seeds that would decide, which takes longer than the test.
    gate = gate_cases(samples, GateRules(margin=margin, alpha=level, resolution=_UNLIMITED_RESOLUTION))
    overall = gate.overall
    has_several_cases = len(gate.cases) > 1
    smallest_p = min((case.p_holm for case in gate.cases if not math.isnan(case.p_holm)), default=math.nan)
    p_value = overall.p_regressed
    if has_several_cases:
        p_value = two_sided(unless_nan(p_value, 1.0), unless_nan(smallest_p, 1.0))
    failing_cases = [case for case in gate.cases if case.verdict is Verdict.REGRESSED]
    # The mean may be significant although no single case is. Then all cases that are worse are named.
    named_cases = failing_cases or [case for case in gate.cases if case.harm > margin]
    # If a case is significant and the mean is not, the finding has the numbers of the worst significant case.
    worst_result = (
        overall
        if overall.verdict is Verdict.REGRESSED or not failing_cases
        else max(failing_cases, key=lambda case: unless_nan(case.harm, 1.0))
    )
    return Finding(
        is_significant=gate.verdict is Verdict.REGRESSED,
        harm=worst_result.harm,
        bound=worst_result.lower,
        p_value=p_value,
        cases=tuple(case.case for case in sorted(named_cases, key=lambda case: -unless_nan(case.harm, -math.inf))),
    )


@dataclass(frozen=True, slots=True)
class OverfitTest:
    """Test of the hypothesis that the harm out of distribution exceeds that in distribution by at most the margin.

    More diverging seeds out of distribution count too, if no more of them diverge in distribution.

    Attributes:
      outside, inside: Identities of the cases out of distribution and in distribution.
    """

    outside: frozenset[str]
    inside: frozenset[str]

    def __call__(self, samples: Mapping[str, Samples], margin: float, level: float) -> Finding:
        samples_of_sides = [
            {case: samples[case] for case in samples if case in case_names}
            for case_names in (self.outside, self.inside)
        ]
        located_samples = [
            [
                samples_of_case
                for samples_of_case in side_samples.values()
                if samples_of_case.has_scale and locate(samples_of_case).is_known
            ]
            for side_samples in samples_of_sides
        ]
        lost_counts = [
            group_counts([samples_of_case for samples_of_case in side_samples.values() if samples_of_case.has_scale])
            for side_samples in samples_of_sides
        ]
        p_diverged = math.nan
        if any(counts.a + counts.b for counts in lost_counts[0]) and sum(counts.b for counts in lost_counts[1]) <= sum(
            counts.a for counts in lost_counts[1]
        ):
            p_diverged = p_more(lost_counts[0])
        harm, bound, p_mean = math.nan, math.nan, math.nan
        tail_level = level if math.isnan(p_diverged) else level / 2
        # A case outside and one inside may share a training, so both means are one sum over groups of cases.
        weights = [
            sign / len(samples_of_side)
            for sign, samples_of_side in zip((1, -1), located_samples, strict=True)
            for _ in samples_of_side
        ]
        location = (
            contrast_location([*located_samples[0], *located_samples[1]], weights) if all(located_samples) else None
        )
        if location is not None:
            # The location is of B - A out of distribution minus B - A in distribution. The harm is its negative.
            harm = 0.0 - location.estimate.mean
            bound = 0.0 - location.bounds(tail_level)[1]
            p_mean = location.p_below(-margin)
        p_value = p_mean if math.isnan(p_diverged) else two_sided(unless_nan(p_mean, 1.0), p_diverged)
        harms = {case: -locate(samples_of_case).estimate.mean for case, samples_of_case in samples_of_sides[0].items()}
        return Finding(
            is_significant=p_value <= level,
            harm=harm,
            bound=bound,
            p_value=p_value,
            cases=tuple(sorted((case for case in harms if not harms[case] <= margin), key=lambda case: -harms[case])),
        )


@dataclass(slots=True, kw_only=True)
class SuspectThenConfirm:
    """Detects one kind of harm along a run. `advance` advances it to the end of the evidence.

    The reference is the best earlier checkpoint whose theta can still be read. Its mean includes the fresh seeds of
    earlier confirmations, so that a checkpoint that was best by luck does not stay the reference. After an alarm there
    are no alarms of this kind until a checkpoint is not suspected.

    Attributes:
      kind: Kind of the alarms.
      test: Test of the harm.
      rules: Rules of the alarms.
      cases: Cases whose mean decides which checkpoint is the best. None: all.
      next_position: Position of the next checkpoint.
      num_tests: Number of confirmations so far.
      is_raised: Whether the last checkpoint raised an alarm, or is still covered by one.
      alarms: Alarms so far.
      can_refer_to: Returns whether a checkpoint can be the reference of a confirmation, given its position, kind and
        num_tests: its theta can be read, or it already has results on the fresh seeds.
    """

    kind: AlarmKind
    test: HarmTest
    rules: AlarmRules
    cases: frozenset[str] | None = None
    next_position: int = 1
    num_tests: int = 0
    is_raised: bool = False
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    can_refer_to: Callable[[int, AlarmKind, int], bool] = lambda place, kind, number: True

    def advance(self, evidence: Evidence) -> Confirmation | None:
        """Returns the next confirmation to evaluate; None at the end of the evidence."""
        while self.next_position < len(evidence):
            index = self.next_position
            scores = [
                evidence.mean_score(earlier_index, index, self.kind, self.num_tests, self.cases)
                for earlier_index in range(index + 1)
            ]
            confirmation = self._find_suspicion(evidence, scores)
            if confirmation is None:
                self.is_raised = False
            elif not self.is_raised:
                samples = evidence.fresh_samples(confirmation)
                if samples is None:
                    return confirmation
                self.num_tests += 1
                self._test_on_fresh_seeds(confirmation, samples)
            self.next_position += 1
        return None

    def _find_suspicion(self, evidence: Evidence, scores: Sequence[float]) -> Confirmation | None:
        """Returns the confirmation to run for the current checkpoint; None if it is not suspected.

        Args:
          evidence: Results of the run.
          scores: Mean scores of all checkpoints up to this one.
        """
        position = self.next_position
        if all(map(math.isnan, scores[:position])):
            return None
        if not scores[position] < np.nanmax(scores[:position]):
            return None  # the usual case, decided without reading a file
        reference = self._best_reference(scores)
        if reference is None or not scores[position] < scores[reference]:
            return None
        samples = evidence.usual_samples(reference, position)
        finding = self.test(samples, 0.0, _SUSPICION_LEVEL) if samples else None
        if finding is None or not finding.is_significant:
            return None
        return Confirmation(
            kind=self.kind, number=self.num_tests + 1, reference=reference, position=position, harm=finding.harm
        )

    def _best_reference(self, scores: Sequence[float]) -> int | None:
        """Returns the best earlier checkpoint that can be a reference; None if no checkpoint can."""
        earlier_indices = [index for index in range(self.next_position) if not math.isnan(scores[index])]
        earlier_indices.sort(key=lambda index: -scores[index])  # a stable sort: of equal scores the first comes first
        return next(
            (index for index in earlier_indices if self.can_refer_to(index, self.kind, self.num_tests + 1)), None
        )

    def _test_on_fresh_seeds(self, confirmation: Confirmation, samples: Mapping[str, Samples]) -> None:
        if not samples:
            return
        level = level_of_test(confirmation.number, self.rules.rate)
        verdict = self.test(samples, self.rules.margin, level)
        if verdict.is_significant:
            self.is_raised = True
            self.alarms.append(
                Alarm(
                    kind=self.kind,
                    number=confirmation.number,
                    reference=confirmation.reference,
                    position=confirmation.position,
                    harm=verdict.harm,
                    bound=verdict.bound,
                    p_value=verdict.p_value,
                    level=level,
                    cases=verdict.cases,
                )
            )


@dataclass(slots=True, kw_only=True)
class Stall:
    """Detects stalls by the trend over windows that do not overlap. The k-th window is tested at `level_of_test(k)`.

    The trend is the slope of a straight line through the mean scores. A window raises an alarm if its best checkpoint
    does not exceed all earlier ones by the margin, and the upper bound of the trend is below `rules.least_gain`.
    """

    rules: AlarmRules
    window_start: int = 0
    num_tests: int = 0
    is_raised: bool = False
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    kind: AlarmKind = "stall"

    def advance(self, evidence: Evidence) -> None:
        while self.window_start + self.rules.window <= len(evidence):
            self.num_tests += 1
            self._check_window(evidence, range(self.window_start, self.window_start + self.rules.window))
            self.window_start += self.rules.window

    def _check_window(self, evidence: Evidence, window: range) -> None:
        last_index = window[-1]
        scores = np.asarray([evidence.mean_score(index, last_index) for index in range(last_index + 1)])
        if np.isnan(scores[window.start :]).any():
            return
        steps = np.asarray([evidence.outer_step(index) for index in window], np.float64) / 1000
        level = level_of_test(self.num_tests, self.rules.rate)
        slope, upper_bound = _trend(steps, scores[window.start :], level)
        earlier_scores = scores[: window.start]
        best_score = scores[window.start :].max()
        is_no_better = not np.isnan(earlier_scores).all() and best_score < np.nanmax(earlier_scores) + self.rules.margin
        is_stalled = is_no_better and upper_bound < self.rules.least_gain
        if is_stalled and not self.is_raised:
            self.alarms.append(
                Alarm(
                    kind="stall",
                    number=self.num_tests,
                    reference=window.start,
                    position=last_index,
                    harm=slope,
                    bound=upper_bound,
                    p_value=math.nan,
                    level=level,
                    cases=(),
                )
            )
        self.is_raised = is_stalled


def _trend(steps: np.ndarray, scores: np.ndarray, level: float) -> tuple[float, float]:
    """Returns the slope of the least-squares line and the upper bound of its t interval."""
    centred = steps - steps.mean()
    spread = float(centred @ centred)
    if len(steps) < 3 or spread <= 0:
        return math.nan, math.inf
    slope = float(centred @ scores) / spread
    residuals = scores - scores.mean() - slope * centred
    error = math.sqrt(float(residuals @ residuals) / (len(steps) - 2) / spread)
    return slope, slope + t_isf(level, len(steps) - 2) * error


def detector_of(
    kind: AlarmKind, rules: AlarmRules, outside: Collection[str] = (), inside: Collection[str] = ()
) -> SuspectThenConfirm | Stall:
    """Returns a new detector for a kind of alarm.

    Args:
      kind: Kind of the alarm.
      rules: Rules of the alarms.
      outside, inside: For `overfit`, identities of the cases outside and inside theta's meta-training distribution.
    """
    if kind == "stall":
        return Stall(rules=rules)
    if kind == "regress":
        return SuspectThenConfirm(kind=kind, test=regression_finding, rules=rules)
    test = OverfitTest(frozenset(outside), frozenset(inside))
    return SuspectThenConfirm(kind=kind, test=test, rules=rules, cases=test.outside)
