"""Search for the smallest set of changes that is as good as all of them, and the worth of each change.

A configuration is A with some of the knobs of B. Backward, from B, delta debugging removes halves, quarters and so on
as long as the rest is equivalent to B. Forward, from A, the knob that gains most is added first. If knobs interact, or
can replace each other, the two directions end in different sets.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from lobench.analysis.stats.comparison import holm
from lobench.analysis.stats.location import Location, locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.proportions import p_more
from lobench.analysis.stats.seed_groups import group_counts, mean_over_cases
from lobench.core.errors import LobenchError

__all__ = [
    "AblateRules",
    "ConfigurationEvaluator",
    "Interaction",
    "KnobEffect",
    "KnobSearch",
    "KnobSubset",
    "Need",
    "Worth",
    "search_changes",
]

KnobSubset: TypeAlias = frozenset[int]  # indices of knobs

_NUM_TOP_CANDIDATES = 3  # candidates of the forward search that get more seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class AblateRules:
    """Rules by which tests decide that two configurations are equivalent.

    Attributes:
      margin: Two configurations are equivalent if the mean difference of their scores lies within it on both sides.
      alpha: Chance of calling a tested configuration equivalent although it is not, for each test.
      seed_counts: Numbers of seeds per case at which an undecided test is looked at. Looks have equal shares of alpha.
    """

    margin: float = 0.05
    alpha: float = 0.05
    seed_counts: tuple[int, ...] = (4, 8, 16, 32)

    @property
    def look_level(self) -> float:
        return self.alpha / len(self.seed_counts)

    @property
    def num_table_seeds(self) -> int:
        """Number of seeds behind the table's figures of each knob."""
        return self.seed_counts[min(1, len(self.seed_counts) - 1)]


class Need(enum.StrEnum):
    """Whether B needs a setting, according to the evaluated seeds."""

    NEEDED = "needed"  # without it the smallest set differs from B: it is worse, or better if the setting does harm
    NOT_NEEDED = "not needed"  # a set without it is equivalent to B
    OPEN = "open"  # neither is shown


class ConfigurationEvaluator(Protocol):
    """Evaluator of configurations."""

    def evaluate(self, subsets: Sequence[KnobSubset], num_seeds: int) -> None:
        """Evaluates each configuration on this number of seeds per case."""

    def samples(self, a: KnobSubset, b: KnobSubset, num_seeds: int) -> Mapping[str, Samples]:
        """Returns paired scores of two configurations on this number of seeds per case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """Mean difference of scores between two configurations, with its 95% interval."""

    mean: float
    lower: float
    upper: float
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Gain of two knobs together beyond the sum of their single gains. `p_holm` is adjusted over all pairs."""

    pair: tuple[int, int]
    worth: Worth
    p_holm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobEffect:
    """Effect of one knob.

    Attributes:
      alone: Change of A with the knob.
      without: Change of B without the knob, negative for a loss.
      needed: Whether B needs the knob. The chance of calling any knob without an effect needed is at most alpha.
      harmful: Whether the knob makes B worse: A loses with it, or B gains without it (Holm over all knobs), by more
        than the margin in the mean.
    """

    alone: Worth
    without: Worth
    needed: Need
    harmful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobSearch:
    """Result of the search for the smallest set of knobs that suffices.

    Attributes:
      smallest: Set of knobs that is equivalent to B. Removing any one of them is not shown to keep it equivalent.
      effects: Effect of each knob.
      forward: Knobs that the forward search added.
      forward_is_equivalent: Whether the forward search ended in a set equivalent to B.
      whole: Worth of all knobs together.
      interactions: Interactions of the knobs in `smallest` and `forward`, by pairs.
      undecided: Configurations that the largest number of seeds showed neither different from B nor equivalent to it.
      num_configurations: Number of evaluated configurations.
      seeds: Sum of their numbers of seeds per case.
      num_tests: Number of configurations tested against B.
    """

    smallest: KnobSubset
    effects: tuple[KnobEffect, ...]
    forward: KnobSubset
    forward_is_equivalent: bool
    whole: Worth
    interactions: tuple[Interaction, ...]
    undecided: frozenset[KnobSubset]
    num_configurations: int
    seeds: int
    num_tests: int

    @property
    def harmful(self) -> KnobSubset:
        """Knobs that make B worse."""
        return KnobSubset(knob for knob, effect in enumerate(self.effects) if effect.harmful)


def search_changes(num_knobs: int, evaluator: ConfigurationEvaluator, rules: AblateRules) -> KnobSearch:
    """Searches backward from B and forward from A, and measures each knob alone.

    Raises:
      LobenchError: No seed converges with both A and B.
    """
    search = _Search(evaluator=evaluator, rules=rules, all_knobs=frozenset(range(num_knobs)))
    empty = KnobSubset()
    num_seeds = rules.num_table_seeds
    single_knobs = [KnobSubset({knob}) for knob in sorted(search.all_knobs)]
    search.ensure_evaluated([empty, search.all_knobs], num_seeds)
    if math.isnan(search.measure_worth(empty, search.all_knobs, num_seeds).mean):
        raise LobenchError("no seed converges with both A and B, so nothing can be compared")
    search.ensure_evaluated([*single_knobs, *(search.all_knobs - knob for knob in single_knobs)], num_seeds)
    worth_alone = {knob: search.measure_worth(empty, KnobSubset({knob}), num_seeds) for knob in search.all_knobs}
    worth_without = {
        knob: search.measure_worth(search.all_knobs, search.all_knobs - {knob}, num_seeds) for knob in search.all_knobs
    }
    # Sorted by size, so that knobs that matter are in the same half.
    knob_order = sorted(
        search.all_knobs, key=lambda knob: (-max(abs(worth_alone[knob].mean), abs(worth_without[knob].mean)), knob)
    )
    smallest = search.search_backward(knob_order)
    forward, is_reached = search.search_forward()
    needs = search.find_needs(smallest)
    harmful_knobs = search.find_harmful_knobs(num_seeds)
    return KnobSearch(
        smallest=smallest,
        effects=tuple(
            KnobEffect(
                alone=worth_alone[knob],
                without=worth_without[knob],
                needed=needs[knob],
                harmful=knob in harmful_knobs,
            )
            for knob in sorted(search.all_knobs)
        ),
        forward=forward,
        forward_is_equivalent=is_reached,
        whole=search.measure_worth(empty, search.all_knobs, num_seeds),
        interactions=search.measure_interactions(sorted(smallest | forward)),
        undecided=frozenset(search.undecided_subsets),
        num_configurations=len(search.seeds_by_subset),
        seeds=sum(search.seeds_by_subset.values()),
        num_tests=len(search.is_equivalent_by_subset),
    )


@dataclass(slots=True, kw_only=True)
class _Search:
    """Evaluations and decisions of a search.

    Attributes:
      evaluator: Evaluator of configurations.
      rules: Rules of the tests.
      all_knobs: All knobs, which make B.
      seeds_by_subset: Number of seeds on which each configuration was evaluated.
      is_equivalent_by_subset: Whether each tested configuration is equivalent to B.
      undecided_subsets: Configurations whose test stayed open.
      num_tested_seeds: Number of seeds at the last look of each test.
    """

    evaluator: ConfigurationEvaluator
    rules: AblateRules
    all_knobs: KnobSubset
    seeds_by_subset: dict[KnobSubset, int] = field(default_factory=dict)
    is_equivalent_by_subset: dict[KnobSubset, bool] = field(default_factory=dict)
    undecided_subsets: set[KnobSubset] = field(default_factory=set)
    num_tested_seeds: dict[KnobSubset, int] = field(default_factory=dict)

    def ensure_evaluated(self, subsets: Sequence[KnobSubset], num_seeds: int) -> None:
        missing_subsets = [
            subset for subset in dict.fromkeys(subsets) if self.seeds_by_subset.get(subset, 0) < num_seeds
        ]
        if missing_subsets:
            self.evaluator.evaluate(missing_subsets, num_seeds)
            self.seeds_by_subset.update(dict.fromkeys(missing_subsets, num_seeds))

    def measure_worth(self, a: KnobSubset, b: KnobSubset, num_seeds: int) -> Worth:
        return _worth_of(_mean_difference(self.evaluator.samples(a, b, num_seeds).values()), num_seeds)

    def is_equivalent(self, subset: KnobSubset) -> bool:
        """Tests a configuration against B. An undecided configuration counts as not equivalent."""
        if subset == self.all_knobs:
            return True
        if subset not in self.is_equivalent_by_subset:
            verdict = self._test_equivalence(subset)
            if verdict is None:
                self.undecided_subsets.add(subset)
            self.is_equivalent_by_subset[subset] = bool(verdict)
        return self.is_equivalent_by_subset[subset]

    def _test_equivalence(self, subset: KnobSubset) -> bool | None:
        margin, level = self.rules.margin, self.rules.look_level
        for num_seeds in self.rules.seed_counts:
            self.ensure_evaluated([self.all_knobs, subset], num_seeds)
            self.num_tested_seeds[subset] = num_seeds
            samples = self.evaluator.samples(self.all_knobs, subset, num_seeds)
            lost_counts = [sample.num_diverged for sample in samples.values()]
            # More diverging seeds rule out equivalence, whatever the other seeds score.
            loses_more = sum(changed_lost for _, changed_lost in lost_counts) > sum(
                base_lost for base_lost, _ in lost_counts
            )
            location = _mean_difference(samples.values())
            if location is None:
                continue
            if not loses_more and location.p_above(-margin) <= level and location.p_below(margin) <= level:
                return True
            if location.p_below(-margin) <= level or location.p_above(margin) <= level:
                return False
        return None

    def find_needs(self, smallest: KnobSubset) -> dict[int, Need]:
        """Returns for each knob whether the smallest set of knobs needs it.

        A knob is needed if the smallest set with this knob removed differs significantly from B, at the level alpha
        divided by the numbers of looks and knobs. It is not enough that equivalence to B is not shown, because that
        may be due to few seeds. Looks follow from the last one of the test for equivalence, whose level is higher.
        """
        level = self.rules.look_level / max(len(self.all_knobs), 1)
        needs = dict.fromkeys(sorted(self.all_knobs), Need.NOT_NEEDED)
        for knob in smallest:
            other_knobs = smallest - {knob}
            self.is_equivalent(other_knobs)  # a set of a single knob is not tested yet
            num_tested_seeds = self.num_tested_seeds[other_knobs]
            looks = (num_seeds for num_seeds in self.rules.seed_counts if num_seeds >= num_tested_seeds)
            is_needed = any(self._differs(other_knobs, num_seeds, level) for num_seeds in looks)
            needs[knob] = Need.NEEDED if is_needed else Need.OPEN
        return needs

    def _differs(self, subset: KnobSubset, num_seeds: int, level: float) -> bool:
        self.ensure_evaluated([self.all_knobs, subset], num_seeds)
        samples = self.evaluator.samples(self.all_knobs, subset, num_seeds)
        gap = _mean_difference(samples.values())
        return (gap is not None and gap.p_value() <= level) or _diverges_more(samples, level)

    def find_harmful_knobs(self, num_seeds: int) -> KnobSubset:
        """Returns the knobs that are shown to make B worse, and do so by more than the margin in the mean."""
        empty = KnobSubset()
        margin = self.rules.margin
        p_values = dict[int, float]()
        for knob in sorted(self.all_knobs):
            change_alone = _mean_difference(self.evaluator.samples(empty, KnobSubset({knob}), num_seeds).values())
            change_without = _mean_difference(
                self.evaluator.samples(self.all_knobs, self.all_knobs - {knob}, num_seeds).values()
            )
            p_values_of_changes = [
                change_alone.p_below(0.0) if change_alone and change_alone.estimate.mean < -margin else 1.0,
                change_without.p_above(0.0) if change_without and change_without.estimate.mean > margin else 1.0,
            ]
            p_values[knob] = min(1.0, 2 * min(p_values_of_changes))
        adjusted_p_values = holm(list(p_values.values()))
        return KnobSubset(
            knob for knob, p_value in zip(p_values, adjusted_p_values, strict=True) if p_value <= self.rules.alpha
        )

    def search_backward(self, knob_order: Sequence[int]) -> KnobSubset:
        """Returns a set that is equivalent to B, and not shown equivalent without any one of its knobs.

        Source: Zeller and Hildebrandt 2002, the minimizing delta debugging algorithm.
        """
        if self.is_equivalent(KnobSubset()):
            return KnobSubset()
        needed_knobs = list(knob_order)
        num_chunks = 2
        while len(needed_knobs) > 1:
            chunks = _chunks(needed_knobs, num_chunks)
            sufficient_chunk = next((chunk for chunk in chunks if self.is_equivalent(KnobSubset(chunk))), None)
            if sufficient_chunk is not None:
                needed_knobs, num_chunks = sufficient_chunk, 2
                continue
            complements = ([knob for knob in needed_knobs if knob not in chunk] for chunk in reversed(chunks))
            complement = next(
                (remaining for remaining in complements if self.is_equivalent(KnobSubset(remaining))), None
            )
            if complement is not None:
                needed_knobs = complement
                num_chunks = max(num_chunks - 1, 2)
            elif num_chunks < len(needed_knobs):
                num_chunks = min(2 * num_chunks, len(needed_knobs))
            else:
                break
        return KnobSubset(needed_knobs)

    def search_forward(self) -> tuple[KnobSubset, bool]:
        """Returns the set reached by adding one knob after another, and whether it is equivalent to B."""
        chosen_knobs = KnobSubset()
        first_seeds = self.rules.seed_counts[0]
        num_seeds = self.rules.num_table_seeds
        while not self.is_equivalent(chosen_knobs):
            extended_subsets = [chosen_knobs | {knob} for knob in sorted(self.all_knobs - chosen_knobs)]
            for num_round_seeds, num_kept in ((first_seeds, _NUM_TOP_CANDIDATES), (num_seeds, 1)):
                self.ensure_evaluated([chosen_knobs, *extended_subsets], num_round_seeds)
                gains = {
                    subset: self.measure_worth(chosen_knobs, subset, num_round_seeds).mean
                    for subset in extended_subsets
                }
                extended_subsets = sorted(
                    extended_subsets, key=lambda subset: -gains[subset] if not math.isnan(gains[subset]) else math.inf
                )[:num_kept]
            if not gains[extended_subsets[0]] > 0:
                return chosen_knobs, False
            chosen_knobs = extended_subsets[0]
        return chosen_knobs, True

    def measure_interactions(self, knobs: Sequence[int]) -> tuple[Interaction, ...]:
        """Returns the interaction of each pair of settings: the gain of both together minus the gains of each alone."""
        pairs = list(itertools.combinations(knobs, 2))
        num_seeds = self.rules.seed_counts[min(2, len(self.rules.seed_counts) - 1)]
        empty_subset = KnobSubset()
        self.ensure_evaluated(
            [empty_subset, *(KnobSubset({knob}) for knob in knobs), *map(KnobSubset, pairs)] if pairs else [], num_seeds
        )
        interactions = [
            self._interaction_of(
                KnobSubset({first_knob}), KnobSubset({second_knob}), KnobSubset({first_knob, second_knob}), num_seeds
            )
            for first_knob, second_knob in pairs
        ]
        p_values = holm(
            [interaction.p_value() if interaction is not None else math.nan for interaction in interactions]
        )
        return tuple(
            Interaction(pair=pair, worth=_worth_of(interaction, num_seeds), p_holm=p_value)
            for pair, interaction, p_value in zip(pairs, interactions, p_values, strict=True)
        )

    def _interaction_of(
        self, first_subset: KnobSubset, second_subset: KnobSubset, pair_subset: KnobSubset, num_seeds: int
    ) -> Location | None:
        empty = KnobSubset()
        case_samples = []
        samples_of_subsets = [
            self.evaluator.samples(empty, subset, num_seeds) for subset in (pair_subset, first_subset, second_subset)
        ]
        for case in samples_of_subsets[0]:
            gains = [
                [b - a for a, b in zip(samples_of_subset[case].a, samples_of_subset[case].b, strict=True)]
                for samples_of_subset in samples_of_subsets
                if case in samples_of_subset
            ]
            if len(gains) == len(samples_of_subsets) and len({len(values) for values in gains}) == 1:
                interaction_gains = [
                    gain_of_pair - gain_of_first - gain_of_second
                    for gain_of_pair, gain_of_first, gain_of_second in zip(*gains, strict=True)
                ]
                seeds_of_pair = samples_of_subsets[0][case].values_by_seed("a")
                finite_gains = {
                    seed: gain
                    for seed, gain in zip(seeds_of_pair, interaction_gains, strict=True)
                    if math.isfinite(gain)
                }
                samples = Samples.of_differences(list(finite_gains.values()))
                shared = samples_of_subsets[0][case].shared_trainings
                seeds_of_gains = (tuple(finite_gains), tuple(finite_gains))
                case_samples.append(replace(samples, seeds=seeds_of_gains, shared_trainings=shared))
        return _mean_difference(case_samples)


def _diverges_more(samples: Mapping[str, Samples], level: float) -> bool:
    """Returns whether the second configuration diverges on more seeds than the first, at a level."""
    counts = group_counts([sample for sample in samples.values() if sample.has_scale])
    return bool(counts) and any(counts_of_case.b for counts_of_case in counts) and p_more(counts) <= level


def _mean_difference(cases: Iterable[Samples]) -> Location | None:
    """Returns the mean over cases of b - a, computed over groups of cases; None if no case can be tested."""
    return mean_over_cases([case for case in cases if case.has_scale and locate(case).is_known]).location


def _worth_of(location: Location | None, num_seeds: int) -> Worth:
    if location is None:
        return Worth(mean=math.nan, lower=math.nan, upper=math.nan, seeds=num_seeds)
    lower, upper = location.bounds(0.025)
    return Worth(mean=location.estimate.mean, lower=lower, upper=upper, seeds=num_seeds)


def _chunks(values: Sequence[int], num_chunks: int) -> list[list[int]]:
    """Splits a list into consecutive chunks of nearly equal length."""
    size, remainder = divmod(len(values), num_chunks)
    chunk_ends = list(itertools.accumulate(size + (chunk_index < remainder) for chunk_index in range(num_chunks)))
    return [
        list(values[start:end]) for start, end in zip([0, *chunk_ends[:-1]], chunk_ends, strict=True) if end > start
    ]
