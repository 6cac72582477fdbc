"""Gate measurement in an item: differences to the reference by seed, and more seeds while undecided."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lobench.analysis.comparisons.gate_looks import is_settled, look_sizes, num_usable_seeds, shift_to_margin
from lobench.analysis.comparisons.gates import GateRules
from lobench.analysis.comparisons.paired_values import scored_samples, untestable_samples
from lobench.analysis.scores.baseline_file import BaselineCase
from lobench.analysis.scores.score_scale import (
    SIGNED_LOSS_ADVICE,
    ScoreScale,
    are_uninformative,
    is_signed,
    uninformative_seeds_note,
)
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.comparison import mean_difference
from lobench.analysis.stats.paired_samples import FLOAT_STEP, Samples
from lobench.analysis.store.case_groups import EVERY_CASE
from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.errors import LobenchError, UsageError
from lobench.core.metric import Direction, UnknownDirection
from lobench.core.program import Program
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Variant
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import ItemResult
from lobench.pytest_plugin.options import option
from lobench.pytest_plugin.references import (
    FinalValues,
    GateReference,
    TrainBlock,
    candidates_of,
    reference_of,
    scale_baseline_of,
)

__all__ = ["Gate", "Measurement", "rules_of", "session_gate"]

_GATE: pytest.StashKey[Gate] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReference:
    """Reference that a measurement compared the subject with.

    Attributes:
      label: Label of the reference, with its hash.
      is_itself: Whether the reference has the content of the session's own subject.
      choices: Choices of the reference, as details of events of the store.
      evaluations: Records of the evaluations made for the reference.
    """

    label: str
    is_itself: bool
    choices: list[dict[str, Any]]
    evaluations: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Measurement of one item, as attached to its report.

    Attributes:
      name: Suite and case.
      node_id: Node id of the item.
      samples: Scores of both sides on the primary metric for each common seed used, in order; -inf if it diverged.
      test_harm: Mean of score(A) - score(B) on `test/loss`; NaN without one. It is shown, but does not affect the
        verdict.
      margin: Margin of this case.
      tolerated_ratio: Factor by which a loss may be higher within the margin; NaN on a linear scale.
      has_starts: Whether the baseline file contains the starts of its seeds.
      looks: The session's planned looks; empty without adaptive seeds.
      note: Limits of the verdict: fewer seeds than the case has, a thin scale, seeds without information.
      reference: Reference that the session's subject was compared with.
    """

    name: str
    node_id: str
    samples: Samples
    test_harm: float
    margin: float
    tolerated_ratio: float
    has_starts: bool
    looks: list[int]
    note: str
    reference: MeasuredReference

    def to_report(self) -> dict[str, Any]:
        """Returns the measurement as plain values, as pytest-xdist carries them from a worker."""
        return dataclasses.asdict(self)

    @classmethod
    def from_report(cls, values: Mapping[str, Any]) -> Measurement:
        """Returns the measurement with the values that `to_report` returned."""
        samples = Samples(**values["samples"])
        reference = MeasuredReference(**values["reference"])
        return cls(**{**values, "samples": samples, "reference": reference})


class Gate:
    """The gate of a session, in the process that trains.

    Args:
      config: Configuration of the session.
      reference: The reference.
      cases: Every case of the session, because Holm divides alpha among them, and the looks are planned for all.
    """

    def __init__(self, config: pytest.Config, reference: GateReference, cases: Sequence[CaseInfo]) -> None:
        self.reference = reference
        self._candidates = {candidate.sha256 for candidate in candidates_of(config)}
        self._reference_option = option(config, "against")
        self._margin_is_set = bool(option(config, "margin"))
        self._max_seeds = adaptive_maximum(config)
        self._num_cases = len(cases)
        self._takes_seed_means = bool(config.getoption("lobench_seed_means") or config.getini("lobench_seed_means"))
        all_look_sizes = {size for info in cases for size in self._look_sizes_of(info)} if self._max_seeds else set()
        self._look_sizes = tuple(sorted(all_look_sizes))
        self.rules = rules_of(config, self._look_sizes)

    def scale_baseline(self, spec: CaseSpec, info: CaseInfo) -> BaselineCase:
        """Returns the baseline that defines a case's scale.

        Call it before training, because it raises for a stale baseline.
        """
        return scale_baseline_of(spec, info, self._reference_option)

    def _shared_trainings(self, blocks: Sequence[tuple[SeedBlock, Curves]]) -> frozenset[str]:
        """Returns the names of the trainings that a case shares with others; see `Samples.shared`."""
        if self._takes_seed_means:
            return EVERY_CASE
        return frozenset(curves.training for _, curves in blocks) - {""}

    def _margin(self, case_margin: float | None, scale: ScoreScale | None) -> float:
        if case_margin is not None:
            return case_margin
        return self.rules.margin if self._margin_is_set or scale is None else scale.default_margin

    def measure(
        self,
        spec: CaseSpec,
        info: CaseInfo,
        margin: float | None,
        own_blocks: Sequence[tuple[SeedBlock, Curves]],
        train: TrainBlock,
        further_blocks: Iterator[tuple[SeedBlock, Curves]],
    ) -> Measurement:
        """Returns the differences to the reference, training blocks from `further_blocks` while the case is undecided.

        Args:
          spec: The case.
          info: Description of the case.
          margin: Margin of the case. None: that of the session.
          own_blocks: Curves of the case's own seed blocks.
          train: Trains the reference.
          further_blocks: Trains further seed blocks.
        """
        baseline = self.scale_baseline(spec, info)
        blocks = list(own_blocks)
        direction = blocks[0][1].direction(info.primary_metric)
        if direction is None and info.primary_metric in blocks[0][1].metrics:
            raise UnknownDirection(info.primary_metric, where=f"{info.suite}/{info.name}")
        scale = _score_scale(baseline, info.primary_metric, info, direction)
        margin = self._margin(margin, scale)
        trained_records: list[bytes] = []
        for size in self._look_sizes_of(info):
            while sum(block.size for block, _ in blocks) < size:
                blocks.append(next(further_blocks))
            reference = self.reference.final_values(spec, info, [block for block, _ in blocks], train)
            trained_records += [
                _record_bytes(reference.case or info, block, curves) for block, curves in reference.trained_blocks
            ]
            pair = _pair_values(FinalValues.of(blocks, info), reference, scale, info.primary_metric)
            num_usable = num_usable_seeds(len(pair.samples), self.rules)
            margin_samples = shift_to_margin(pair.samples.first_seeds(num_usable), margin, self.rules)
            if num_usable < size or pair.is_signed or is_settled(margin_samples, self.rules, self._num_cases):
                break
        note = _verdict_note(pair, scale, num_usable, sum(block.size for block, _ in blocks))
        missing_seeds = _missing_seeds(self.reference, reference, own_blocks, info.primary_metric)
        samples = dataclasses.replace(
            pair.samples.first_seeds(num_usable),
            shared_trainings=self._shared_trainings(blocks),
            missing_seeds=(missing_seeds, frozenset()),
        )
        return Measurement(
            name=f"{info.suite}/{info.name}",
            node_id=info.node_id,
            samples=samples,
            test_harm=_test_harm(FinalValues.of(blocks, info), reference, baseline, info),
            margin=margin,
            tolerated_ratio=scale.tolerated_ratio(margin) if scale else math.nan,
            has_starts=scale is None or scale.has_starts,
            looks=list(self._look_sizes),
            note="; ".join(filter(None, (note, _program_note(reference, blocks), _code_note(reference)))),
            reference=MeasuredReference(
                label=self.reference.case_label(spec, info),
                is_itself=self.reference.sha256 in self._candidates,
                choices=[choice.to_event() for choice in self.reference.choices],
                evaluations=trained_records,
            ),
        )

    def _look_sizes_of(self, info: CaseInfo) -> tuple[int, ...]:
        return look_sizes(info.num_seeds, info.seed_block or info.num_seeds, self._max_seeds)


def session_gate(item: pytest.Item) -> Gate:
    """Returns the session's gate, made once per process.

    Raises:
      LobenchError: The reference cannot be found; see `reference_of`.
    """
    config = item.config
    if _GATE not in config.stash:
        config.stash[_GATE] = Gate(config, reference_of(config, item.session.items), _session_cases(item.session))
    return config.stash[_GATE]


def _session_cases(session: pytest.Session) -> list[CaseInfo]:
    from lobench.pytest_plugin.items import case_info

    cases: dict[CaseInfo, None] = {}  # items that a plugin repeats are one case
    for item in session.items:
        if case_of(item) is not None:
            try:
                cases[case_info(item, Variant())] = None
            except LobenchError:
                continue  # the item's own report has the error
    return list(cases)


def adaptive_maximum(config: pytest.Config) -> int:
    """Returns the largest number of seeds of a case; 0 if no seeds are added."""
    return int(_number_option(config, "adaptive_seeds", 0, lowest=0, highest=10_000))


def rules_of(config: pytest.Config, looks: Sequence[int]) -> GateRules:
    """Returns the gate's rules, with the margin and alpha of the session's options.

    Raises:
      UsageError: A margin or alpha is not a number, or out of range.
    """
    return GateRules(
        margin=_number_option(config, "margin", GateRules().margin, lowest=0, highest=3),
        alpha=_number_option(config, "alpha", 0.05, lowest=1e-6, highest=0.5),
        looks=Looks(sizes=tuple(looks)) if len(looks) > 1 else None,
        max_diverged=_number_option(config, "max_diverged", 1.0, lowest=0, highest=1),
    )


def _number_option(config: pytest.Config, name: str, default: float, *, lowest: float, highest: float) -> float:
    text = option(config, name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not lowest <= value <= highest:
        option_name = name.replace("_", "-")
        raise UsageError(f"--lobench-{option_name}", got=text, expected=f"a number from {lowest:g} to {highest:g}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairedValues:
    """Values of two sides on their common seeds, in order.

    Attributes:
      samples: Scores; all NaN without a scale.
      is_silent_by_seed: Whether a seed cannot show a difference, because both sides are clipped alike or at the floor.
      is_signed: Whether a loss is below 0 on a log scale. Then there is no verdict.
    """

    samples: Samples
    is_silent_by_seed: list[bool]
    is_signed: bool


def _pair_values(
    candidate: FinalValues,
    reference: FinalValues,
    scale: ScoreScale | None,
    metric: str,
    *,
    scores_signed: bool = False,
) -> _PairedValues:
    """Scores both sides from the starts of the session's own run, because a reference has final values only.

    Args:
      candidate: Final values of the session's subject.
      reference: Final values of the reference.
      scale: Scale of the metric. None: the baseline lacks the metric.
      metric: Name of the metric.
      scores_signed: Whether signed losses are scored on the linear scale, instead of having no score.
    """
    new_finals = candidate.metrics.get(metric, {})
    old_finals = reference.metrics.get(metric, {})
    seeds = sorted(new_finals.keys() & old_finals.keys())
    finals_of_sides = [[values[seed] for seed in seeds] for values in (old_finals, new_finals)]
    starts = [candidate.starts.get(metric, {}).get(seed, math.nan) for seed in seeds]
    if scale is None:
        unknown_scores = (math.nan,) * len(seeds)
        return _PairedValues(
            samples=Samples(a=unknown_scores, b=unknown_scores), is_silent_by_seed=[False] * len(seeds), is_signed=False
        )
    are_signed = any(is_signed(finals, scale) for finals in finals_of_sides)
    if are_signed and scores_signed:
        scale = scale.as_linear()
    samples = scored_samples(old_finals, new_finals, candidate.starts.get(metric, {}), scale)
    samples = dataclasses.replace(samples, may_vary=samples.may_vary or _are_all_values_equal(candidate, reference))
    return _PairedValues(
        samples=untestable_samples(samples) if are_signed and not scores_signed else samples,
        is_silent_by_seed=are_uninformative(finals_of_sides[0], finals_of_sides[1], scale, starts=starts).tolist(),
        is_signed=are_signed,
    )


def _are_all_values_equal(candidate: FinalValues, reference: FinalValues) -> bool:
    """Returns whether all final values of common metrics (at least two) are equal as float32, as for one subject."""
    common_values = [
        (candidate.metrics[name], reference.metrics[name])
        for name in candidate.metrics.keys() & reference.metrics.keys()
    ]
    value_pairs = [
        (new_values[seed], old_values[seed])
        for new_values, old_values in common_values
        for seed in new_values.keys() & old_values.keys()
    ]
    return len(common_values) > 1 and all(math.isclose(*pair, rel_tol=FLOAT_STEP) for pair in value_pairs)


def _missing_seeds(
    reference: GateReference, finals: FinalValues, own_blocks: Sequence[tuple[SeedBlock, Curves]], metric: str
) -> frozenset[int]:
    """Returns the case's seeds on which the reference has no value. Empty for tuned baselines."""
    if not reference.has_own_seeds:
        return frozenset()
    return frozenset(seed for block, _ in own_blocks for seed in block.seeds) - finals.metrics.get(metric, {}).keys()


def _test_harm(candidate: FinalValues, reference: FinalValues, baseline: BaselineCase, info: CaseInfo) -> float:
    scale = _score_scale(baseline, "test/loss", info, Direction.MIN)
    return -mean_difference(_pair_values(candidate, reference, scale, "test/loss", scores_signed=True).samples).mean


def _score_scale(baseline: BaselineCase, metric: str, info: CaseInfo, direction: Direction | None) -> ScoreScale | None:
    if metric not in baseline.tuned:
        return None
    return baseline.score_scale(metric, direction, is_primary=metric == info.primary_metric)


def _program_note(reference: FinalValues, blocks: Sequence[tuple[SeedBlock, Curves]]) -> str:
    """Returns a note on a reference made by another program; "" if this session's program made it."""
    other_programs = reference.programs - {Program.of(curves.provenance).without_at_once for _, curves in blocks}
    return (
        f"the reference is of another program: {'; '.join(sorted(map(str, other_programs)))}" if other_programs else ""
    )


def _code_note(reference: FinalValues) -> str:
    """Returns a note on a reference made by other code than the user's present code; "" if this code made it."""
    return f"of the reference, {reference.other_code}" if reference.other_code else ""


def _verdict_note(pair: _PairedValues, scale: ScoreScale | None, num_usable: int, num_seeds: int) -> str:
    notes = []
    if num_usable < num_seeds:
        notes.append(f"{num_usable} of {num_seeds} seeds count: the reference has {len(pair.samples)} of them")
    if pair.is_signed:
        notes.append(SIGNED_LOSS_ADVICE)
    elif scale is None:
        notes.append("the baseline lacks the case's primary metric")
    elif not scale.is_usable:
        notes.append("the case has no scale: tuned is not better than untrained")
    if num_silent := sum(pair.is_silent_by_seed[:num_usable]):
        notes.append(uninformative_seeds_note(num_silent, num_usable))
    if scale is not None and scale.is_usable and scale.is_thin:
        notes.append("thin scale")
    return "; ".join(notes)


def _record_bytes(info: CaseInfo, block: SeedBlock, curves: Curves) -> bytes:
    payload = curves.to_payload()
    return ItemResult(case=info, seed_block=block, outcome=Outcome.PASSED, message="", payload=payload).to_bytes()
