"""Rules of alarms along a run: suspicion on the usual seeds, confirmation on fresh ones; and the trend of a stall.

A gate at each of 50 checkpoints alarms falsely in 2 to 17 of 100 runs. Here a checkpoint that is worse than the best
one so far at a plain level is suspected, and no more. A suspicion is tested on fresh seeds of both sides, at a level
that falls from confirmation to confirmation so that the levels of all of them sum to the rate of false alarms of the
whole run, however long it is.
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

__all__ = [
    "KINDS",
    "Alarm",
    "AlarmRules",
    "Confirmation",
    "Evidence",
    "Kind",
    "Stall",
    "TwoStages",
    "detector_of",
    "kinds_of",
    "level_of",
]

Kind: TypeAlias = Literal["regress", "overfit", "stall"]
KINDS: tuple[Kind, ...] = ("regress", "overfit", "stall")

_SUSPICION = 0.05  # the level of the first stage; the rate of false alarms is that of the second


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRules:
    """When an alarm is raised.

    Attributes:
      rate: Chance of any false alarm of a kind over the whole run.
      margin: Harm that is tolerated, on the score.
      seeds: Fresh seeds of a case in a confirmation, of either side.
      window: Checkpoints of one look at the trend.
      least_gain: In score per 1,000 outer steps: a trend that is surely below it is a stall.
    """

    rate: float = 0.05
    margin: float = 0.05
    seeds: int = 8
    window: int = 8
    least_gain: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Fresh seeds that a rule asks for.

    Attributes:
      number: 1, 2, ... of the kind, in the run.
      reference, place: Of the two checkpoints.
      harm: On the usual seeds.
    """

    kind: Kind
    number: int
    reference: int
    place: int
    harm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What a rule found.

    Attributes:
      reference, place: Of the two checkpoints; of a stall the window's first one and its last one.
      harm: On the fresh seeds alone; of a stall the trend, score per 1,000 outer steps.
      bound: Its one-sided confidence bound at the level: the harm is above it; the trend is below it.
      p_value: NaN of a stall.
      level: That it was held against.
      cases: Identities of those that tell, the worst first.
    """

    kind: Kind
    number: int
    reference: int
    place: int
    harm: float
    bound: float
    p_value: float
    level: float
    cases: tuple[str, ...]


class Evidence(Protocol):
    """What is known of a run's checkpoints, by their places in it."""

    def __len__(self) -> int: ...

    def step(self, place: int) -> int:
        """Returns the outer step."""

    def worth(
        self, place: int, at: int, kind: Kind = "stall", number: int = 0, cases: Collection[str] | None = None
    ) -> float:
        """Returns the mean score over cases (None: all), on the scale as it was known at a checkpoint.

        Over the usual seeds, and the fresh ones that the checkpoint has of the first confirmations of a kind.
        """

    def usual(self, reference: int, place: int) -> Mapping[str, Samples]:
        """Returns both sides' scores on the usual seeds, by the identity of the case."""

    def fresh(self, asked: Confirmation) -> Mapping[str, Samples] | None:
        """Returns them on the seeds of a confirmation; None where they were not evaluated yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A test of the harm of one checkpoint against another."""

    is_found: bool
    harm: float
    bound: float
    p_value: float
    cases: tuple[str, ...]


Test: TypeAlias = Callable[[Mapping[str, Samples], float, float], Finding]  # of samples, a margin, a level


def kinds_of(asked: Sequence[str]) -> tuple[Kind, ...]:
    """Returns the kinds that options name, `regress,stall` or one by one.

    Raises:
      UsageError: one is none.
    """
    names = [part.strip() for text in asked for part in text.split(",")]
    for name in names:
        if name not in KINDS:
            raise UsageError("--alarm", got=repr(name), expected=", ".join(KINDS))
    return tuple(kind for kind in KINDS if kind in names)


def level_of(number: int, rate: float) -> float:
    """Returns the level of a confirmation; those of all numbers sum to the rate: the sum of 1 / k^2 is pi^2 / 6."""
    return rate * 6 / math.pi**2 / number**2


def regressed(samples: Mapping[str, Samples], margin: float, level: float) -> Finding:
    """Tests "the harm is at most the margin, and no more seeds diverge" by a gate: over the mean, and each case."""
    gate = gate_cases(samples, GateRules(margin=margin, alpha=level))
    overall, several = gate.overall, len(gate.cases) > 1
    smallest = min((one.p_holm for one in gate.cases if not math.isnan(one.p_holm)), default=math.nan)
    p_value = overall.p_regressed if not several else two_sided(_known(overall.p_regressed), _known(smallest))
    failing = [one for one in gate.cases if one.verdict is Verdict.REGRESSED]
    # A mean may tell where no case does by itself: then all cases that are worse are named.
    named = failing or [one for one in gate.cases if one.harm > margin]
    # Where a case tells and the mean does not, the numbers are that case's.
    worst = (
        overall
        if overall.verdict is Verdict.REGRESSED or not failing
        else max(failing, key=lambda one: _known(one.harm))
    )
    return Finding(
        is_found=gate.verdict is Verdict.REGRESSED,
        harm=worst.harm,
        bound=worst.lower,
        p_value=p_value,
        cases=tuple(one.case for one in sorted(named, key=lambda one: -_known(one.harm, -math.inf))),
    )


@dataclass(frozen=True, slots=True)
class Overfitted:
    """Tests "the harm out of distribution less that in distribution is at most the margin".

    That more seeds diverge out of distribution counts too, where no more of them do in distribution.

    Attributes:
      outside, inside: Identities of the cases.
    """

    outside: frozenset[str]
    inside: frozenset[str]

    def __call__(self, samples: Mapping[str, Samples], margin: float, level: float) -> Finding:
        parts = [{case: samples[case] for case in samples if case in side} for side in (self.outside, self.inside)]
        known = [[one for one in part.values() if one.has_scale and locate(one).is_known] for part in parts]
        lost = [group_counts([one for one in part.values() if one.has_scale]) for part in parts]
        p_diverged = math.nan
        if any(one.a + one.b for one in lost[0]) and sum(one.b for one in lost[1]) <= sum(one.a for one in lost[1]):
            p_diverged = p_more(lost[0])
        harm, bound, p_mean = math.nan, math.nan, math.nan
        tail = level if math.isnan(p_diverged) else level / 2
        # A case outside and one inside may share a training, so both means are one sum over groups of cases.
        weights = [sign / len(side) for sign, side in zip((1, -1), known, strict=True) for _ in side]
        found = contrast_location([*known[0], *known[1]], weights) if all(known) else None
        if found is not None:
            # B - A out of distribution less that in distribution: the harm is its negative.
            harm, bound = 0.0 - found.estimate.mean, 0.0 - found.bounds(tail)[1]
            p_mean = found.below(-margin)
        p_value = p_mean if math.isnan(p_diverged) else two_sided(_known(p_mean), p_diverged)
        harms = {case: -locate(one).estimate.mean for case, one in parts[0].items()}
        return Finding(
            is_found=p_value <= level,
            harm=harm,
            bound=bound,
            p_value=p_value,
            cases=tuple(sorted((case for case in harms if not harms[case] <= margin), key=lambda case: -harms[case])),
        )


def _known(value: float, otherwise: float = 1.0) -> float:
    return otherwise if math.isnan(value) else value


@dataclass(slots=True, kw_only=True)
class TwoStages:
    """The detector of one kind along a run; `go_on` takes it as far as the evidence reaches.

    The reference is the best checkpoint before, by all seeds that it has, whose theta can still be read: the fresh ones
    of a confirmation count from then on, so that one which was the best by luck is the reference no longer. After an
    alarm the kind is silent until a checkpoint is not suspected.

    Attributes:
      cases: Those whose mean says which checkpoint is the best; None: all.
      place: The next checkpoint.
      number: Confirmations so far.
      can_refer_to: Whether the checkpoint of a place can be the reference of the confirmation of a number: its theta
        can be read, or it has results on the fresh seeds already.
    """

    kind: Kind
    test: Test
    rules: AlarmRules
    cases: frozenset[str] | None = None
    place: int = 1
    number: int = 0
    is_raised: bool = False
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    can_refer_to: Callable[[int, Kind, int], bool] = lambda place, kind, number: True

    def go_on(self, evidence: Evidence) -> Confirmation | None:
        """Returns what has to be evaluated before it can go on; None at the end of the evidence."""
        while self.place < len(evidence):
            place = self.place
            worths = [evidence.worth(one, place, self.kind, self.number, self.cases) for one in range(place + 1)]
            suspected = self._suspected(evidence, worths)
            if suspected is None:
                self.is_raised = False
            elif not self.is_raised:
                samples = evidence.fresh(suspected)
                if samples is None:
                    return suspected
                self.number += 1
                self._confirm(suspected, samples)
            self.place += 1
        return None

    def _suspected(self, evidence: Evidence, worths: Sequence[float]) -> Confirmation | None:
        """Returns what the suspicion asks for; None where there is none.

        Args:
          worths: Of all checkpoints up to this one.
        """
        place = self.place
        if all(map(math.isnan, worths[:place])):
            return None
        if not worths[place] < np.nanmax(worths[:place]):
            return None  # as nearly all: no file needs a look
        reference = self._best_readable(worths)
        if reference is None or not worths[place] < worths[reference]:
            return None
        samples = evidence.usual(reference, place)
        found = self.test(samples, 0.0, _SUSPICION) if samples else None
        if found is None or not found.is_found:
            return None
        return Confirmation(kind=self.kind, number=self.number + 1, reference=reference, place=place, harm=found.harm)

    def _best_readable(self, worths: Sequence[float]) -> int | None:
        """Returns the best checkpoint before this one that can be a reference; None if there is none."""
        known = [place for place in range(self.place) if not math.isnan(worths[place])]
        known.sort(key=lambda place: -worths[place])  # of equal ones the first, as before
        return next((one for one in known if self.can_refer_to(one, self.kind, self.number + 1)), None)

    def _confirm(self, asked: Confirmation, samples: Mapping[str, Samples]) -> None:
        if not samples:
            return
        level = level_of(asked.number, self.rules.rate)
        found = self.test(samples, self.rules.margin, level)
        if found.is_found:
            self.is_raised = True
            self.alarms.append(
                Alarm(
                    kind=self.kind,
                    number=asked.number,
                    reference=asked.reference,
                    place=asked.place,
                    harm=found.harm,
                    bound=found.bound,
                    p_value=found.p_value,
                    level=level,
                    cases=found.cases,
                )
            )


@dataclass(slots=True, kw_only=True)
class Stall:
    """The trend over windows that do not overlap: the k-th is looked at with the k-th level.

    A window tells where no checkpoint in it is better than all before by the margin, and where the upper bound of its
    trend, a straight line through the checkpoints' mean scores, is below what the user names.
    """

    rules: AlarmRules
    begin: int = 0
    number: int = 0
    is_raised: bool = False
    alarms: list[Alarm] = dataclasses.field(default_factory=list)
    kind: Kind = "stall"

    def go_on(self, evidence: Evidence) -> None:
        while self.begin + self.rules.window <= len(evidence):
            self.number += 1
            self._look(evidence, range(self.begin, self.begin + self.rules.window))
            self.begin += self.rules.window

    def _look(self, evidence: Evidence, window: range) -> None:
        last = window[-1]
        worths = np.asarray([evidence.worth(place, last) for place in range(last + 1)])
        if np.isnan(worths[window.start :]).any():
            return
        steps = np.asarray([evidence.step(place) for place in window], np.float64) / 1000
        level = level_of(self.number, self.rules.rate)
        slope, upper = _trend(steps, worths[window.start :], level)
        before, best = worths[: window.start], worths[window.start :].max()
        is_no_better = not np.isnan(before).all() and best < np.nanmax(before) + self.rules.margin
        is_stalled = is_no_better and upper < self.rules.least_gain
        if is_stalled and not self.is_raised:
            self.alarms.append(
                Alarm(
                    kind="stall",
                    number=self.number,
                    reference=window.start,
                    place=last,
                    harm=slope,
                    bound=upper,
                    p_value=math.nan,
                    level=level,
                    cases=(),
                )
            )
        self.is_raised = is_stalled


def _trend(steps: np.ndarray, worths: np.ndarray, level: float) -> tuple[float, float]:
    """Returns the slope of a straight line and its upper confidence bound, by the points' distances from it."""
    centred = steps - steps.mean()
    spread = float(centred @ centred)
    if len(steps) < 3 or spread <= 0:
        return math.nan, math.inf
    slope = float(centred @ worths) / spread
    rest = worths - worths.mean() - slope * centred
    error = math.sqrt(float(rest @ rest) / (len(steps) - 2) / spread)
    return slope, slope + t_isf(level, len(steps) - 2) * error


def detector_of(
    kind: Kind, rules: AlarmRules, outside: Collection[str] = (), inside: Collection[str] = ()
) -> TwoStages | Stall:
    """Returns the detector of a kind of alarm, at the beginning of a run.

    Args:
      outside, inside: For `overfit`, the cases out of the distribution that theta is meta-trained on, and in it.
    """
    if kind == "stall":
        return Stall(rules=rules)
    if kind == "regress":
        return TwoStages(kind=kind, test=regressed, rules=rules)
    test = Overfitted(frozenset(outside), frozenset(inside))
    return TwoStages(kind=kind, test=test, rules=rules, cases=test.outside)
