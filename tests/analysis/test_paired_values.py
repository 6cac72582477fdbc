"""What two sides are compared by: no start and no third method says anything of curves that were made elsewhere."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from shown import texts_of
from stores import case_info

from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.comparisons.paired_values import paired_values, scored_samples
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import ScoreScale
from lobench.analysis.stats.comparison import Effect, compare_cases, mean_difference
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject
from lobench.core.metric import Direction
from lobench.core.subject import Subject as Who
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.report.tables.comparison import comparison_html
from lobench.report.tables.comparison_markdown import comparison_markdown
from lobench.report.tables.comparison_text import comparison_text

SHOWN = texts_of("analysis")


def imported(finals: Sequence[float], starts: Sequence[float] = (), metric: str = "val/loss") -> Cell:
    return Cell(
        case=case_info("case", primary_metric=metric),
        final_values={metric: dict(enumerate(finals))},
        untrained_values={metric: dict(enumerate(starts))} if starts else {},
        directions={"val/score": Direction.MAX},
        draws="",
    )


def between(a: Cell, b: Cell, *others: Cell) -> tuple[float, float, str]:
    """Returns p-value, difference and note, where others are in the store."""
    scales = Scales(all_cells={"s/case": [a, b, *others]}, cases={"s/case": a.case})
    found = paired_values(a, b, None, scales)
    difference = mean_difference(found.samples)
    return difference.p_value, difference.mean, found.note


A, B = (3.281, 3.279, 3.2805, 3.2812), (3.2802, 3.2795, 3.2811, 3.28)
START = (10.82, 10.81, 10.83, 10.82)


def test_where_a_curve_starts_says_nothing_of_where_it_ends() -> None:
    expected = float(stats.ttest_ind(A, B, equal_var=False).pvalue)
    near, far, gone = ([factor * value for value in START] for factor in (1.005, 1.03, 0.5))
    p_values = [between(imported(A, START), imported(B, other))[0] for other in (START, near, far, gone, ())]
    assert p_values == pytest.approx([expected] * 5, rel=1e-9)


@pytest.mark.parametrize("b", [(2.1, 2.2, 2.0), (2.0, 2.1, 2.3, 2.2), (1.9, 2.0, 3.7, 2.1)])
def test_ratio_of_imports_within_a_factor_of_two_is_that_of_their_arithmetic_means(b: Sequence[float]) -> None:
    a = (3.5, 3.6, 3.3, 3.7)
    sides = [
        StoredSubject(
            subject=Who.of_optimizer(name), cells={"s/case": imported(own, START)}, optimizer_hashes=frozenset()
        )
        for name, own in (("a()", a), ("b()", b))
    ]
    (found,) = compare_subjects(sides)
    ratio = found.primary.ratios["s/case"].interval
    assert ratio.mean == pytest.approx(np.mean(b) / np.mean(a), rel=1e-9)
    assert (ratio.lower < 1 < ratio.upper) == (found.primary.comparison.verdict is Effect.UNDECIDED)


def test_scores_of_imports_that_end_alike_are_alike_wherever_each_begins() -> None:
    ends_alike, better = imported((3.0,) * 4, (9.0, 10.0, 11.0, 14.0)), imported((2.5,) * 4, (11.0,) * 4)
    scales = Scales(all_cells={"s/case": [ends_alike, better]}, cases={"s/case": better.case})
    first, *rest = scales.scores(ends_alike, None).values()
    assert 0 < first < 1 and rest == pytest.approx([first] * 3, rel=1e-12)


def test_what_has_no_common_step_0_says_so() -> None:
    notes = [between(imported(A, START), imported(B, other))[2] for other in (START, (5.4,) * 4, ())]
    assert notes[0] == SHOWN["final-values-in-units-of"]
    assert SHOWN["start-from-other-values"] in notes[1] and SHOWN["second-has-no-step-0"] in notes[2]
    assert SHOWN["neither-has-a-step-0"] in between(imported(A), imported(B))[2]


def test_no_third_method_moves_a_difference() -> None:
    third, other = imported((0.1, 0.2), (30.0, 40.0)), imported((50.0, math.nan), ())
    for starts in (START, ()):
        alone = between(imported(A, START), imported(B, starts))
        assert between(imported(A, START), imported(B, starts), third, other) == alone


def test_a_difference_without_a_scale_is_relative_or_of_the_values() -> None:
    b = [0.99 * value for value in A]
    assert between(imported(A), imported(b))[1] == pytest.approx(0.01, rel=0.01)
    wide = between(imported((1e-3, 2e-3, 1e-2)), imported((1e-4, 2e-4, 1e-3)))
    assert wide[1] == pytest.approx(math.log(10)) and SHOWN["as-logarithms"] in wide[2]
    assert SHOWN["relative-to-their-mean"] in between(imported(A), imported(b))[2]
    rising = between(imported((0.5, 0.6, 0.55), metric="val/score"), imported((0.7, 0.8, 0.75), metric="val/score"))
    assert rising[1] == pytest.approx(0.2)


def test_paired_values_of_losses_with_a_zero_stay_on_the_log_scale() -> None:
    a, b = (1e-6, 1.1e-6, 0.9e-6, 0.0), (1e-3, 1.1e-3, 0.9e-3, 1e-3)
    for start in ((1.0,) * 4, ()):
        (found,) = compare_subjects([subject("a", imported(a, start)), subject("b", imported(b, start))])
        assert found.primary.gate.verdict is not Verdict.PASS
        assert found.primary.comparison.overall.mean < -0.4
    assert SHOWN["as-logarithms"] in between(imported(a), imported(b))[2]
    assert between(imported((0.0,) * 4), imported((0.0,) * 4))[1] == 0


def test_paired_values_of_signed_losses_without_step_0_are_relative_to_their_size() -> None:
    a, b = (-1.0, -2.0, 1.0, 0.5), (-0.5, -1.0, 2.0, 1.5)
    p_value, difference, note = between(imported(a), imported(b))
    assert difference == pytest.approx(-0.875 / 1.1875) and SHOWN["relative-to-their-size"] in note
    for factor in (1e-6, 1e6):
        scaled = [imported([factor * value for value in side]) for side in (a, b)]
        assert between(*scaled)[:2] == pytest.approx((p_value, difference), rel=1e-4)


def test_paired_values_of_mostly_lost_seeds_name_the_reason_for_their_unit() -> None:
    lost = imported((math.nan, math.nan, 1.0), (2.3,) * 3)
    assert SHOWN["no-side-that-keeps-half"] in between(lost, lost)[2]
    high = imported((2.4, 2.5, 2.6), (2.3,) * 3)
    assert SHOWN["both-end-no-better-than"] in between(high, high)[2]


def test_false_alarms_where_starts_differ_by_3_percent_are_at_the_level() -> None:
    draw, alarms = np.random.default_rng(0), 0
    for _ in range(1000):
        a, b = draw.lognormal(1.2, 0.02, (2, 5))
        sides = (imported(a.tolist(), [10.8] * 5), imported(b.tolist(), [10.8 * 1.03] * 5))
        alarms += between(*sides)[0] <= 0.05
    assert alarms / 1000 <= 0.0625


def subject(name: str, cell: Cell) -> StoredSubject:
    return StoredSubject(
        subject=Who.of_optimizer(name), optimizer_hashes=frozenset(), cells={"s/case": cell}, custom_label=name
    )


def test_headline_case_and_gate_say_the_same_of_equal_finals() -> None:
    for start in ((10.87,) * 4, (5.4,) * 4, ()):
        (found,) = compare_subjects([subject("a", imported(A, START)), subject("b", imported(B, start))])
        (case,) = found.primary.comparison.cases
        assert found.primary.comparison.p_value == case.paired.p_value
        assert found.primary.values["s/case"].p_value == pytest.approx(case.paired.p_value, rel=1e-9)
        assert found.primary.comparison.verdict is Effect.UNDECIDED
        assert found.primary.gate.verdict is not Verdict.REGRESSED


def test_compare_subjects_bounds_of_values_are_of_the_level_of_the_rows_verdict() -> None:
    """Holm finds the second case worse, which Bonferroni leaves open."""
    shifts = {"s/one": 0.05, "s/two": 0.0125}
    sides = []
    for name, factor in (("a", 0), ("b", 1)):
        ends = {key: [x + factor * shift for x in (1.0, 1.01, 0.99, 1.005, 0.995)] for key, shift in shifts.items()}
        cases = {key: case_info(key[2:], primary_metric="val/loss") for key in ends}
        cells = {key: dataclasses.replace(imported(values), case=cases[key]) for key, values in ends.items()}
        sides.append(
            StoredSubject(subject=Who.of_optimizer(name), optimizer_hashes=frozenset(), cells=cells, custom_label=name)
        )
    (found,) = compare_subjects(sides)
    for row in found.primary.comparison.cases:
        values = found.primary.values[row.case]
        assert row.verdict is Effect.WORSE and row.paired.upper < 0 and values.lower > 0, row.case


@pytest.mark.parametrize("size", [3, 5])
def test_compare_subjects_takes_seeds_that_the_other_side_lacks(size: int) -> None:
    cells = []
    for first_seed, ends in ((0, [0.3, 0.31, 0.29]), (FIRST_REPORT_SEED, [0.1 + 0.01 * seed for seed in range(size)])):
        finals = {first_seed + seed: value for seed, value in enumerate(ends)}
        starts = {"train/loss": dict.fromkeys(finals, 10.0)}
        case = case_info("case", primary_metric="train/loss")
        cells.append(Cell(case=case, final_values={"train/loss": finals}, untrained_values=starts))
    (found,) = compare_subjects([subject("a", cells[0]), subject("b", cells[1])])
    assert found.primary.num_pairs == 0 and found.primary.comparison.verdict is Effect.BETTER
    shown = f"{SHOWN['no-common-seeds-welch']}; {SHOWN['scores-and-ratios-are-relative-to']}"
    assert found.primary.notes["s/case"].endswith(shown)


def test_rounded_losses_have_a_step_on_the_scale_of_scores() -> None:
    scale = ScoreScale.of_baseline("train/loss", untrained=2.4, tuned=[0.024, 0.024])
    a, b = dict(enumerate([0.5, 0.5, 0.5])), dict(enumerate([0.4, 0.4, 0.4]))
    found = scored_samples(a, b, dict.fromkeys(range(3), 2.4), scale)
    expected = math.sqrt((0.1**2 / 0.5**2 + 0.1**2 / 0.4**2) / 2) / math.log(100)
    assert found.step == pytest.approx(expected)
    assert 0.05 < mean_difference(found).p_value < 0.1


def test_ratio_without_common_seeds_is_of_losses_relative_to_their_starts_and_a_note_says_so() -> None:
    own, fresh = [0, 1, 2], [FIRST_REPORT_SEED + seed for seed in range(3)]
    ends, starts = np.array([0.5, 0.6, 0.55]), np.array([1.0, 1.1, 1.05])

    def scored(seeds: Sequence[int], factor: float) -> Cell:
        """Returns results whose losses and starts are `factor` times as high."""
        values = [{"train/loss": dict(zip(seeds, (factor * side).tolist(), strict=True))} for side in (ends, starts)]
        return Cell(case=case_info("case"), final_values=values[0], untrained_values=values[1], draws=LOBENCH_SEEDS)

    (found,) = compare_subjects([subject("a", scored(own, 1.0)), subject("b", scored(fresh, 3.0))])
    ratio = found.primary.ratios["s/case"]
    assert ratio.geometric_means[1] == pytest.approx(3 * ratio.geometric_means[0])
    assert ratio.interval.mean == pytest.approx(1)
    outputs = (
        comparison_text([found], scale=""),
        comparison_markdown([found], scale=""),
        comparison_html([found], scale=""),
    )
    note = SHOWN["scores-and-ratios-are-relative-to"]
    assert note in found.primary.notes["s/case"]
    assert all(note in " ".join(html.unescape(output).split()) for output in outputs)
    (paired,) = compare_subjects([subject("a", scored(own, 1.0)), subject("b", scored(own, 1.0))])
    assert note not in paired.primary.notes["s/case"]


def test_two_seeds_of_one_ratio_are_too_few() -> None:
    """A quadratic falls by one factor on every seed: what the two differ by then is a float32's rounding."""
    scale = ScoreScale.of_baseline("train/loss", untrained=2.4, tuned=[0.024, 0.024])
    a, b = (np.float32(factor) * np.array([0.5, 0.55, 0.7, 0.9], np.float32) for factor in (1.0, 0.6))
    sides = [dict(enumerate(side.astype(float).tolist())) for side in (a, b)]
    samples = scored_samples(sides[0], sides[1], dict.fromkeys(range(4), 2.4), scale)
    assert mean_difference(samples.first_seeds(2)).note == SHOWN["too-few-seeds-two-without"]
    assert 0 < mean_difference(samples).p_value < 1e-12


def test_a_diverged_seed_is_no_score() -> None:
    scale = ScoreScale.of_baseline("train/loss", untrained=2.4, tuned=[0.024, 0.024])
    found = scored_samples({0: 0.1, 1: math.nan}, {0: 0.2, 1: 0.1}, {}, scale)
    assert found.a[1] == DIVERGED and found.num_diverged == (1, 0) and len(found.converged()) == 1


def test_no_p_value_is_0_and_none_is_missed() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        n, step = int(draw.integers(2, 6)), float(draw.choice([0.01, 0.1, 1.0]))
        a, b = (np.round(draw.normal(size=n) / step) * step for _ in range(2))
        found = compare_cases({"c": Samples.of(a.tolist(), (b + draw.integers(0, 2)).tolist())})
        assert not found.p_value <= 0 and not found.cases[0].p_holm <= 0
