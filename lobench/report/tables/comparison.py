"""Tables, notes and records of a comparison, and its page in a notebook."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NotRequired, TypeAlias, TypedDict

from lobench.analysis.comparisons.gates import GateResult, Verdict
from lobench.analysis.comparisons.method_comparison import (
    UNPAIRED_NOTES,
    MethodComparison,
    MetricEffect,
    one_sided_defaults,
)
from lobench.analysis.comparisons.step_costs import CaseCosts
from lobench.analysis.comparisons.steps_to_target import CaseSteps, StepsToTarget, TimeToTarget
from lobench.analysis.comparisons.summary import improvement_note, undecided_words
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.comparison import Effect, MeanDifference, comparison_words
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.reference import label_with_hash
from lobench.analysis.store.subjects import Cell, StoredSubject, repeated_cases_note
from lobench.core.code import describe_codes
from lobench.core.json_numbers import Finite, record_from
from lobench.core.program import describe_programs
from lobench.core.result import mean_of
from lobench.core.wording import counted, counted_with_verb, groups_text, shortened_list
from lobench.drawing.axes import new_axes, plot
from lobench.drawing.html import paragraph
from lobench.drawing.html import table as html_table
from lobench.drawing.html import text as html_text
from lobench.drawing.svg import Chart, Series, all_line_styles
from lobench.report.tables.costs import CostRecord, cost_notes, cost_records, cost_tables
from lobench.report.tables.text import factor_mark, interval_cell, p_cell, p_words, ratio_cell, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ComparisonRecords",
    "case_means",
    "case_rows",
    "comparison_head",
    "comparison_html",
    "comparison_limits",
    "comparison_notes",
    "comparison_records",
    "comparison_sentence",
    "headline_rows",
    "margins_text",
    "outcome_words",
    "overall_cells",
    "plot_comparison",
    "steps_text",
    "tests_line",
    "verdict_words",
]


class ComparedSubject(TypedDict):
    label: str
    uri: str
    sha256: str
    outer_step: int | None
    generation: int | None
    run: str
    git_revisions: list[str]
    diverged: int
    exploded: int
    lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOfCase(GateResult):
    """Result of the gate on a case, with the name of the case.

    Attributes:
      case: Identity of the case.
      name: Name of the case.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase(MeanDifference):
    """Difference of the score on a case. Its bounds and its `effect` hold for all cases together."""

    values: MeanDifference | None
    p_holm: float
    effect: Annotated[Effect, "Two-sided: whether B differs at all. The gate is one-sided, with the margin."]
    ratio: Annotated[
        Interval | None,
        "Ratio of geometric mean losses, B over A, over seeds that converge. For imports whose losses lie within a "
        "factor of two, of arithmetic ones. For scores without common seeds, each loss is divided by its seed's loss "
        "at step 0.",
    ]
    margin: float
    tolerated_ratio: float
    gate: GateOfCase


class ComparedMetric(TypedDict):
    difference: Annotated[Interval, "Difference of the mean score, B - A. Above 0, B is better."]
    p_value: float
    p_converged: Annotated[float, "p-value of the difference of the mean score alone."]
    p_diverged: Annotated[float, "p-value of the difference in diverged seeds, stratified by case."]
    effect: Annotated[Effect, "Two-sided: whether B differs at all. The gate is one-sided, with the margin."]
    probability_of_improvement: Interval
    gate: GateResult
    num_pairs: int
    groups: Annotated[
        list[list[str]], "Cases in the mean, by group. Cases of one group share the randomness of their seeds."
    ]
    cases: dict[str, ComparedCase]


class StepsOfSide(TypedDict):
    num_reached: int
    num_seeds: int
    horizon: float
    mean: Interval
    median: Interval
    per_seed: Annotated[dict[str, float], "Steps by seed. null: the target was not reached."]


class TimeRecord(TypedDict):
    machine: str
    num_together: int
    unsteady: bool
    difference: MeanDifference
    a: Annotated[StepsOfSide, "Values are seconds instead of steps."]
    b: StepsOfSide


class StepsRecord(TypedDict):
    metric: str
    target: Finite
    difference: MeanDifference
    a: StepsOfSide
    b: StepsOfSide
    time: Annotated[TimeRecord | None, "Time to the target. null: no class of machines timed both."]


class TestOutcomes(TypedDict):
    broken: Annotated[list[str], "Tests that pass under A and fail under B."]
    fixed: Annotated[list[str], "Tests that fail under A and pass under B."]
    passed: Annotated[list[str], "Tests that pass on both sides."]
    failed: Annotated[list[str], "Tests that fail on both sides."]
    unknown: Annotated[list[str], "Tests without an outcome on a side, which B might fail although A does not."]


class ComparisonRecord(TypedDict):
    """`lobench compare A B [C ...]`: a record for B, C, ... against A.

    Its fields are the keys of the JSON document.
    """

    score_version: int
    a: ComparedSubject
    b: ComparedSubject
    verdict: Annotated[Verdict, "Whether B is worse than A by more than the margin, or fails a test that A passes."]
    tests: Annotated[TestOutcomes, "Names of the ordinary tests of the suites, by their outcomes."]
    primary_metric: Annotated[str, "Metric of the verdict."]
    changed_cases: list[str]
    edges: Annotated[list[str], "Searched parameters whose best value is the lowest or the highest in their range."]
    first_difference: Annotated[
        dict[str, float],
        "First evaluated step at which a loss has other bits, by case with common seeds. null: the bits are equal.",
    ]
    metrics: Annotated[dict[str, ComparedMetric], "Results by metric."]
    scale: str
    costs: NotRequired[Annotated[dict[str, CostRecord], "Costs by case. Cases without times are left out."]]
    steps_to_target: NotRequired[
        Annotated[dict[str, StepsRecord], "Steps to the target, by case. Empty without --target."]
    ]


ComparisonRecords: TypeAlias = list[ComparisonRecord]

_SIGNED_FORMAT = "+z.3f"
_SCORE_HEADER, _DIFFERENCE_HEADER = "score, + is better", "difference"  # headers of a difference of scores
_MEAN_ROW = "mean over cases"
_MAX_NAMED_TESTS = 10  # tests in a line
_DEPENDENCE_LEVEL = 0.01  # p-value of the check whether independent cases move together


def comparison_html(
    comparisons: Sequence[MethodComparison], *, scale: str, costs: Sequence[Sequence[CaseCosts]] = ()
) -> str:
    """Returns the comparison for a notebook: the metrics, the cases in the primary metric, and the costs."""
    elements = []
    for pair, cost in zip(comparisons, costs or [()] * len(comparisons), strict=True):
        title, *subtitle_lines = [*comparison_head(pair), *scale.splitlines()]
        closing_lines = [*comparison_limits(pair), *comparison_notes(pair), comparison_sentence(pair)]
        labels = (_short_label(pair.a.label), _short_label(pair.b.label))
        rows_of_tables = (headline_rows(pair), case_rows(pair, pair.primary))
        tables = [html_table(rows[0], rows[1:]) for rows in rows_of_tables if rows[1:]]
        elements += [
            f"<h4>{html_text(title)}</h4>",
            *map(paragraph, subtitle_lines),
            *tables,
            *map(paragraph, closing_lines),
        ]
        elements += [html_table(rows[0], rows[1:]) for rows in cost_tables(cost, labels)]
        elements += map(paragraph, cost_notes(cost))
    return "".join(elements)


def plot_comparison(comparisons: Sequence[MethodComparison], ax: Axes | None = None) -> Axes:
    """Draws the differences of the score by case, and their mean on top, with a colour per pair.

    Args:
      comparisons: The pairs.
      ax: Axes to draw on. None: axes of a new figure.
    Raises:
      LobenchError: matplotlib is not installed.
    """
    first_pair = comparisons[0]
    cases = {case.case for pair in comparisons for case in pair.primary.comparison.cases}
    names = [*sorted(cases, reverse=True), _MEAN_ROW]  # from the bottom to the top
    series = [line for index, pair in enumerate(comparisons) for line in _series(pair, names, index, len(comparisons))]
    chart = Chart(
        title="",
        description="",
        x_label=f"difference of the score to {first_pair.a.label} ({first_pair.primary.metric})",
        y_label="",
        series=tuple(series),
        y_names=tuple(names),
    )
    ax = ax if ax is not None else new_axes(1, width=1.6, height=0.25 + 0.09 * len(names))[0]
    plot(ax, chart)
    ax.axvline(0.0, color="0.5", linewidth=0.8)
    return ax


def _series(pair: MethodComparison, names: Sequence[str], pair_index: int, num_pairs: int) -> list[Series]:
    """Returns the points of a pair of methods, one per case, and their intervals.

    The points of several pairs on one case are shifted vertically, so that they do not overlap.
    """
    comparison = pair.primary.comparison
    intervals = {case.case: case.paired for case in comparison.cases} | {_MEAN_ROW: comparison.overall}
    style = all_line_styles()[pair_index % len(all_line_styles())]
    offset = 0.5 * (pair_index - (num_pairs - 1) / 2) / num_pairs
    interval_rows = [(row - offset, intervals[name]) for row, name in enumerate(names) if name in intervals]
    points = Series(
        label=pair.b.label,
        x=[interval.mean for _, interval in interval_rows],
        y=[row for row, _ in interval_rows],
        style=style,
        dots=True,
        line=False,
    )
    return [
        points,
        *(
            Series(label="", x=[interval.lower, interval.upper], y=[row] * 2, style=style)
            for row, interval in interval_rows
        ),
    ]


def comparison_head(comparison: MethodComparison) -> tuple[str, str]:
    """Returns a line on the compared subjects, and one on the numbers of cases and seeds."""
    a, b = (f"{side.label}{_revisions_text(side)}" for side in (comparison.a, comparison.b))
    num_cases = len(comparison.primary.comparison.cases)
    counts = f"{counted(num_cases, 'case')}, {_pairs_text(comparison)}"
    if not num_cases:
        counts = counted(sum(map(len, _names_of_tests(comparison).values())), "test")
    return f"{b} against {a}", counts


def headline_rows(comparison: MethodComparison) -> list[list[str]]:
    """Returns the table of the metrics, its header first."""
    level = 100 * (1 - comparison.primary.comparison.alpha)
    margins = margins_text(comparison.primary)
    header = ["", f"difference [{level:g}%]", "p", "effect", "P(better) [95%]", f"gate, {margins}"]
    return [
        header,
        *(_headline_row(effect, comparison.replicate) for effect in comparison.effects if effect.comparison.cases),
    ]


def comparison_limits(pair: MethodComparison) -> list[str]:
    """Returns lines on limits of the verdict: lost seeds, cases left out, seeds that are not replicates."""
    comparison = pair.primary.comparison
    lines = (
        [f"changed between the two, and not compared: {', '.join(pair.changed_cases)}"] if pair.changed_cases else []
    )
    a, b = pair.a, pair.b
    repeated_cases = (case for side in (a, b) for cell in side.cells.values() for case in cell.repeated_cases)
    names = sorted({f"{case.suite}/{case.name}" for case in repeated_cases})
    lines += filter(None, [repeated_cases_note(names)])
    if a.num_missing or b.num_missing:
        lines.append(f"without a result: {counted(a.num_missing, 'seed')} of A, {b.num_missing} of B")
    if comparison.num_undecidable:
        lines.append(f"cannot be compared, and left out of all means: {counted(comparison.num_undecidable, 'case')}")
    lost_counts = {"diverged": (a.num_diverged, b.num_diverged), "exploded": (a.num_exploded, b.num_exploded)}
    counts = [
        f"{outcome}: {{}} of A, {{}} of B".format(*counts_of_sides)
        for outcome, counts_of_sides in lost_counts.items()
        if any(counts_of_sides)
    ]
    lines += ["; ".join(counts)] if counts and not comparison_words(comparison) else []  # a verdict has them already
    if pair.has_labels:
        lines.append("the seeds are labels of a table, and the cases are taken for independent (see --seed-means)")
    if comparison.p_seeds_ratio < _DEPENDENCE_LEVEL and pair.design != "independent":
        lines.append(
            f"cases move together: the seeds' means vary {comparison.seeds_ratio:.2g} times as much as those of "
            "independent cases; --seed-means treats all cases as one group"
        )
    lines += filter(None, (describe_programs(a.programs | b.programs), describe_codes(a.codes | b.codes)))
    return [*lines, *_default_notes(pair), *pair.edited_code_notes, *pair.edge_notes]


def _default_notes(pair: MethodComparison) -> list[str]:
    """Returns a line on settings that one side binds to their defaults, and the other side does not bind."""
    if not any(map(math.isfinite, pair.first_difference_steps.values())):
        return []  # all bits are equal
    sides = {"A, and not by B": (pair.a, pair.b), "B, and not by A": (pair.b, pair.a)}
    return [
        f"{', '.join(names)}: bound to the default by {words}, which may differ: the program takes a float32"
        for words, subjects in sides.items()
        if (names := one_sided_defaults(*subjects))
    ]


def comparison_notes(comparison: MethodComparison) -> list[str]:
    """Returns the level of the bounds, the reference with its hash, groups of cases, and where curves first differ."""
    notes = []
    if len(comparison.primary.comparison.cases) > 1:
        level = f"{100 * (1 - comparison.primary.comparison.alpha):g}%"
        notes.append(f"bounds of cases hold for all of them together with {level}, as their effects do (Holm)")
    notes.append(
        "effect: whether B differs at all, two-sided; gate: whether B is worse by more than the margin, one-sided"
    )
    return [
        *notes,
        f"reference: {label_with_hash(comparison.a)}",
        *_group_notes(comparison),
        *_first_difference_notes(comparison),
    ]


def _group_notes(pair: MethodComparison) -> list[str]:
    """Returns the groups of cases, and the number of seeds that lack a case of their group."""
    notes = [groups] if (groups := groups_text(pair.groups)) else []
    if num_incomplete := pair.primary.comparison.num_incomplete:
        text = counted_with_verb(num_incomplete, "seed", suffix=" without a case of the same group")
        notes.append(f"{text} in no mean")
    return notes


def _first_difference_notes(pair: MethodComparison) -> list[str]:
    """Returns a note on the first steps at which the curves of common seeds differ, as a list of at most one text."""
    steps = {
        name: "nowhere" if math.isinf(step) else f"at step {step:,.0f}"
        for name, step in pair.first_difference_steps.items()
    }
    if not steps:
        return []
    if len({*steps.values()}) == 1:
        where_first = next(iter(steps.values()))
    else:
        where_first = ", ".join(sorted(f"{name} {step}" for name, step in steps.items()))
    return [
        "the curves of common seeds are the same to the last bit"
        if where_first == "nowhere"
        else f"curves first differ: {where_first}"
    ]


def _pairs_text(pair: MethodComparison) -> str:
    """Returns the number of pairs, and of cases without pairs."""
    effect, replicates = pair.primary, f"{pair.replicate}s"
    num_apart = sum(not case.paired.is_paired for case in effect.comparison.cases)
    if num_apart and not effect.num_pairs:
        return f"no common {replicates}"
    unpaired_note = f", and {counted(num_apart, 'case')} without common {replicates}" if num_apart else ""
    return f"{counted(effect.num_pairs, 'pair')} of {replicates}{unpaired_note}"


def margins_text(effect: MetricEffect) -> str:
    margins = sorted(set(effect.margins.values())) or [math.nan]
    return f"margin {margins[0]:g}" if len(margins) == 1 else f"margins {margins[0]:g} to {margins[-1]:g}"


def _revisions_text(subject: StoredSubject) -> str:
    revisions = ", ".join(sorted(subject.git_revisions))
    return f" (git {revisions})" if revisions else ""


def _headline_row(effect: MetricEffect, replicate: str) -> list[str]:
    comparison, gate = effect.comparison, effect.gate
    return [
        effect.metric,
        interval_cell(comparison.overall, _SIGNED_FORMAT),
        p_cell(comparison.p_value),
        verdict_words(comparison.verdict, gate.overall),
        interval_cell(effect.improvement_probability),
        _gate_words(gate.verdict, gate.overall, replicate),
    ]


def case_rows(comparison: MethodComparison, effect: MetricEffect) -> list[list[str]]:
    """Returns the table of the cases, its header first.

    The header names the statistic, and all differences have one sign.

    Differences of scores on a log scale are logarithms of ratios of geometric means. A table with such a ratio has the
    geometric means of both sides, over the seeds of the ratio. The ratio is that of these means if both sides have
    common seeds, which start alike. Imports are usually published with arithmetic means, so their tables have
    arithmetic means, no ratios, and differences with the sign of the score.
    """
    uses_arithmetic_means = comparison.a.subject.is_imported or comparison.b.subject.is_imported
    statistic = "means" if uses_arithmetic_means or not effect.has_ratios else "geometric means"
    header = [
        f"{statistic} of {effect.metric} by case",
        _short_label(comparison.a.label),
        _short_label(comparison.b.label),
    ]
    header += ["as printed, + is better", _SCORE_HEADER] if uses_arithmetic_means else [_DIFFERENCE_HEADER, "ratio"]
    rows = []
    for case_difference, gate in zip(effect.comparison.cases, effect.gate.cases, strict=True):
        paired = case_difference.paired
        difference = interval_cell(paired, _SIGNED_FORMAT) if not math.isnan(paired.lower) else paired.note
        means = case_means(comparison, effect, case_difference.case, uses_arithmetic_means=uses_arithmetic_means)
        if uses_arithmetic_means:
            differences = [interval_cell(effect.improvements.get(case_difference.case), "+z.4g"), difference]
        else:
            ratio = effect.ratios.get(case_difference.case)
            differences = [difference, ratio_cell(ratio.interval if ratio is not None else None)]
        row = [
            case_difference.case,
            *means,
            *differences,
            p_cell(case_difference.p_holm),
            verdict_words(case_difference.verdict, gate),
            _gate_words(gate.verdict, gate, comparison.cases[case_difference.case].replicate_noun),
            _margin_cell(effect, case_difference.case),
            effect.notes.get(case_difference.case, ""),
        ]
        rows.append(row)
    return [[*header, "p Holm", "effect", "gate", "margin", "note"], *sorted(rows)]


def overall_cells(effect: MetricEffect, replicate: str) -> dict[str, str]:
    """Returns the cells of the mean over the cases by header, for both possible headers of the difference."""
    difference = interval_cell(effect.comparison.overall, _SIGNED_FORMAT)
    verdict = verdict_words(effect.comparison.verdict, effect.gate.overall)
    gate = _gate_words(effect.gate.overall.verdict, effect.gate.overall, replicate)
    return {_SCORE_HEADER: difference, _DIFFERENCE_HEADER: difference, "effect": verdict, "gate": gate}


def case_means(
    comparison: MethodComparison, effect: MetricEffect, name: str, *, uses_arithmetic_means: bool
) -> list[str]:
    """Returns the means of A and of B on a case, with the numbers of seeds that are missing, diverged or exploded.

    Means are over the seeds that converge. If seeds are paired, they are over the seeds that converge on both sides.

    Args:
      comparison: The pair.
      effect: The metric.
      name: Name of the case.
      uses_arithmetic_means: Whether to use arithmetic means, as tables of imports do. Otherwise geometric means if the
        case has a ratio.
    """
    case = comparison.cases[name]
    metric = case.primary_metric if effect.metric == "primary" else effect.metric
    ratio = effect.ratios.get(name)
    cells = [subject.cells.get(case.identity) for subject in (comparison.a, comparison.b)]
    if uses_arithmetic_means or ratio is None or not ratio.is_known:
        is_paired = name in effect.values and effect.values[name].is_paired
        means = _arithmetic_means(cells, metric, is_paired=is_paired)
        digits = 6 if uses_arithmetic_means else 4
    else:
        means, digits = ratio.geometric_means, 4
    return [_mean_of_cell(cell, metric, mean, digits) for cell, mean in zip(cells, means, strict=True)]


def _arithmetic_means(cells: Sequence[Cell | None], metric: str, *, is_paired: bool) -> tuple[float, float]:
    """Returns the means over the seeds that converge; NaN without any."""
    values_of_sides = [
        {seed: value for seed, value in cell.converged_finals(metric).items() if math.isfinite(value)} if cell else {}
        for cell in cells
    ]
    common_seeds = values_of_sides[0].keys() & values_of_sides[1].keys()
    columns = [
        [values[seed] for seed in common_seeds] if is_paired and common_seeds else list(values.values())
        for values in values_of_sides
    ]
    mean_a, mean_b = (mean_of(column) if column else math.nan for column in columns)
    return mean_a, mean_b


def _margin_cell(effect: MetricEffect, case: str) -> str:
    ratio = effect.tolerated_ratios[case]
    return f"{effect.margins[case]:g}" + ("" if math.isnan(ratio) else f" ({factor_mark(ratio)})")


def _mean_of_cell(cell: Cell | None, metric: str, mean: float, digits: int) -> str:
    """Returns a mean with marks: "0.5", "0.5 (2 of 3 seeds)", "0.5 (1/6 exploded)"; "diverged" if no seed converged."""
    if cell is None:
        return "-"
    if not cell.final_values.get(metric) and cell.num_lost_by_outcome:
        return ", ".join(sorted(cell.num_lost_by_outcome))
    infinite_seeds = {seed for seed, value in cell.final_values.get(metric, {}).items() if not math.isfinite(value)}
    diverged_seeds = infinite_seeds.union(cell.diverged_at)
    counts = {"diverged": len(diverged_seeds), "exploded": len({*cell.exploded_seeds} - diverged_seeds)}
    if math.isfinite(mean):
        count_texts = [f"{count}/{cell.num_seeds} {outcome}" for outcome, count in counts.items() if count]
        text = f"{mean:.{digits}g}" + (f" ({', '.join(count_texts)})" if count_texts else "")
    else:
        text = next((outcome for outcome, count in counts.items() if count), "-")
    return f"{text}{_planned_note(cell)}"


def _planned_note(cell: Cell | None) -> str:
    """Returns how many of the planned seeds have a value: " (2 of 3 seeds)"; "" if all have."""
    if cell is None or not cell.missing_seeds:
        return ""
    return f" ({cell.num_planned - len(cell.missing_seeds)} of {counted(cell.num_planned, 'seed')})"


def _gate_words(verdict: Verdict, gate: GateResult, replicate: str) -> str:
    if verdict is Verdict.INCONCLUSIVE and gate.seeds_to_decide is not None:
        return f"{verdict} ({gate.seeds_to_decide} {replicate}s would decide)"
    if verdict is Verdict.PASS and gate.divergence:
        return f"{verdict} ({gate.divergence})"
    return str(verdict)


def verdict_words(effect: Effect, gate: GateResult) -> str:
    """Returns the verdict of one row in words that agree with the gate.

    The effect is from a two-sided test of any difference, the gate from a one-sided test of a harm beyond the margin.
    So the gate may show a harm although the two-sided test shows no difference, and a shown difference may be within
    the margin.

    Args:
      effect: Verdict on the difference.
      gate: Result of the gate on the same case, or on the mean.
    """
    if effect is Effect.UNDECIDED and gate.verdict is Verdict.REGRESSED:
        return "regressed (one-sided)"
    if effect is Effect.WORSE and gate.verdict is Verdict.PASS:
        return "worse, within the margin"
    return str(effect)


def outcome_words(effect: MetricEffect, a: str, b: str, undecided: str, suffix: str = "") -> str:
    """Returns the difference of the mean in words that contradict neither the mean's gate nor the cases' gates.

    Args:
      effect: Results on a metric.
      a, b: Names of the two sides.
      undecided: Words for an undecided difference that the gate does not contradict.
      suffix: Words after the two sides, such as " on train/loss".
    """
    comparison, gate = effect.comparison, effect.gate
    margin = f"the {margins_text(effect)} of the score"
    if comparison.verdict is Effect.UNDECIDED and gate.overall.verdict is Verdict.REGRESSED:
        overall = gate.overall
        # `p_regressed` is twice the smaller of its two parts. False for NaN.
        is_by_seeds = 2 * overall.p_diverged <= overall.p_regressed
        harm = (
            f"loses more seeds than {a}{suffix}" if is_by_seeds else f"is worse than {a}{suffix} by more than {margin}"
        )
        two_sided_note = "two-sided, no difference is shown"
        if comparison.is_capped:
            two_sided_note = f"two-sided undecided{suffix}, as planned seeds gave no result"
        return f"{b} {harm}, one-sided ({p_words(overall.p_regressed)}); {two_sided_note}"
    sentences = {
        Effect.BETTER: f"{b} is better than {a}{suffix}",
        Effect.WORSE: f"{b} is worse than {a}{suffix}",
        Effect.MIXED: f"{b} is better than {a}{suffix} in one way and worse in the other",
        Effect.UNDECIDED: undecided,
    }
    text = sentences[comparison.verdict]
    if len(gate.cases) > 1 and gate.overall.verdict is not gate.verdict and not gate.compared_nothing:
        text += " in the mean over the cases"
    if comparison.verdict is Effect.WORSE and gate.overall.verdict is Verdict.PASS:
        text += f", by less than {margin}"
    if comparison.verdict is Effect.WORSE and gate.overall.verdict is Verdict.INCONCLUSIVE:
        text += f", but perhaps by less than {margin}"
    return text


def comparison_sentence(comparison: MethodComparison) -> str:
    """Returns a sentence on each metric, and the verdict."""
    a, b = comparison.a.label, comparison.b.label
    sentences = list(filter(None, [tests_line(comparison)]))
    for effect in comparison.effects:
        if not effect.comparison.cases:
            continue
        seeds_text = improvement_note(effect.comparison, effect.improvement_probability)
        effect_text = comparison_words(effect.comparison)
        outcome_text = outcome_words(effect, a, b, undecided_words(effect.comparison, seeds_text))
        parts_text = outcome_text + (f": {effect_text}" if effect_text else "")
        sentences.append(f"{effect.metric}: {parts_text}" + (f"; {seeds_text}" if seeds_text else ""))
    verdicts = {effect.comparison.verdict for effect in comparison.effects}
    parts_text = "; ".join(sentences)
    if {Effect.BETTER, Effect.WORSE} <= verdicts:
        parts_text += ": the metrics tell different stories"
    return f"{parts_text}. Verdict ({comparison.primary.metric}): {comparison.verdict}"


def tests_line(comparison: MethodComparison) -> str:
    """Returns a line on the ordinary tests of both sides, beginning with tests that B breaks; "" without tests.

    Example: "tests: 1 passed under a.pt (A) and failed under b.pt (B): s/test_small; 3 passed on both sides".
    """
    tests = comparison.tests
    a = f"{comparison.a.label} (A)"
    b = f"{comparison.b.label} (B)"
    groups = [
        (tests.broken, f"passed under {a} and failed under {b}: {{names}}"),
        (tests.fixed, f"failed under {a} and passed under {b}: {{names}}"),
        (tests.unknown, "without an outcome on a side: {names}"),
        (tests.failed, "failed on both sides"),
        (tests.passed, "passed on both sides"),
    ]
    texts = [
        f"{len(test_names)} {template.format(names=shortened_list(test_names, _MAX_NAMED_TESTS))}"
        for test_names, template in groups
        if test_names
    ]
    return f"tests: {'; '.join(texts)}" if texts else ""


def _short_label(label: str, max_length: int = 24) -> str:
    """Returns the beginning and the end of a label, since settings of one optimizer differ at the end."""
    return (
        label
        if len(label) <= max_length
        else f"{label[: max_length // 2 - 2]}...{label[len(label) - max_length // 2 + 1 :]}"
    )


def comparison_records(
    comparisons: Sequence[MethodComparison],
    *,
    scale: str,
    steps: Sequence[Sequence[CaseSteps]] = (),
    costs: Sequence[Sequence[CaseCosts]] = (),
) -> ComparisonRecords:
    """Returns a record for every pair with all numbers."""
    records = [_record(pair, scale) for pair in comparisons]
    for record, cost in zip(records, costs, strict=False):
        record["costs"] = cost_records(cost)
    for record, steps_of_pair in zip(records, steps, strict=False):
        record["steps_to_target"] = _steps_record(steps_of_pair)
    return records


def _record(comparison: MethodComparison, scale: str) -> ComparisonRecord:
    return {
        "score_version": SCORE_VERSION,
        "a": _subject_record(comparison.a),
        "b": _subject_record(comparison.b),
        "verdict": comparison.verdict,
        "tests": record_from(TestOutcomes, comparison.tests, **_names_of_tests(comparison)),
        "primary_metric": comparison.primary.metric,
        "changed_cases": list(comparison.changed_cases),
        "edges": list(comparison.edge_notes),
        "first_difference": dict(comparison.first_difference_steps),
        "metrics": {effect.metric: _metric_record(comparison, effect) for effect in comparison.effects},
        "scale": scale,
    }


def _names_of_tests(pair: MethodComparison) -> dict[str, list[str]]:
    return {field.name: list(getattr(pair.tests, field.name)) for field in dataclasses.fields(pair.tests)}


def _metric_record(pair: MethodComparison, effect: MetricEffect) -> ComparedMetric:
    gates = {row.case: row for row in effect.gate.cases}
    comparison = effect.comparison
    return record_from(
        ComparedMetric,
        comparison,
        difference=comparison.overall,
        effect=comparison.verdict,
        probability_of_improvement=effect.improvement_probability,
        gate=dataclasses.replace(effect.gate.overall, verdict=effect.gate.verdict, case=""),
        num_pairs=effect.num_pairs,
        cases={
            row.case: ComparedCase(
                **dataclasses.asdict(row.paired) | {"note": effect.notes.get(row.case, "")},
                values=effect.values.get(row.case),
                p_holm=row.p_holm,
                effect=row.verdict,
                ratio=effect.ratios[row.case].interval if row.case in effect.ratios else None,
                margin=effect.margins[row.case],
                tolerated_ratio=effect.tolerated_ratios[row.case],
                gate=_gate_of_case(gates[row.case], pair.cases[row.case].identity),
            )
            for row in comparison.cases
        },
    )


def _gate_of_case(gate: GateResult, identity: str) -> GateOfCase:
    return GateOfCase(**{**dataclasses.asdict(gate), "case": identity, "name": gate.case})


def _subject_record(subject: StoredSubject) -> ComparedSubject:
    checkpoint = subject.checkpoint
    has_theta = subject.subject.has_theta
    return record_from(
        ComparedSubject,
        checkpoint,
        label=subject.label,
        outer_step=subject.subject.known_outer_step,
        generation=checkpoint.generation if has_theta else None,
        git_revisions=sorted(subject.git_revisions),
        diverged=subject.num_diverged,
        exploded=subject.num_exploded,
        lost=subject.num_lost,
    )


def steps_text(pair: MethodComparison, case_steps: Sequence[CaseSteps], labels: tuple[str, str] | None = None) -> str:
    """Returns a table of steps, and below it a table of seconds.

    Cells are means if all seeds of a side reached the target, else medians.

    Args:
      pair: Comparison of A and B.
      case_steps: Steps to the target on each case.
      labels: Headers of A's and of B's columns. None: the labels of A and B.
    """
    header = ["steps to the target", *(labels or (pair.a.label, pair.b.label)), "B - A", "p"]
    steps = [[*header, "note"]]
    seconds = [["seconds to the target", *header[1:]]]
    for steps_of_case in case_steps:
        name = f"{steps_of_case.case}, {steps_of_case.target.metric} {steps_of_case.target.value:g}"
        note = steps_of_case.difference.note or UNPAIRED_NOTES.get(steps_of_case.difference.method, "")
        cells = interval_cell(steps_of_case.difference, "+,.4g"), p_cell(steps_of_case.difference.p_value)
        steps.append([name, _steps_cell(steps_of_case.a), _steps_cell(steps_of_case.b), *cells, note])
        if steps_of_case.time is not None:
            seconds.append([name, *_time_cells(steps_of_case.time)])
    return "\n\n".join(text_table(table) for table in (steps, seconds) if len(table) > 1)


def _time_cells(times: TimeToTarget) -> list[str]:
    unsteady_mark = "~" if times.is_unsteady else ""
    side_cells = [unsteady_mark + _steps_cell(side) for side in (times.a, times.b)]
    difference = times.difference.note or interval_cell(times.difference, "+.3g")
    return [*side_cells, difference, p_cell(times.difference.p_value)]


def _steps_cell(steps: StepsToTarget) -> str:
    all_reached = steps.num_reached == len(steps.steps)
    interval = steps.mean if all_reached else steps.median
    text = _steps_number(interval.mean, steps.horizon)
    if not math.isnan(interval.lower):
        text += f" [{_steps_number(interval.lower, steps.horizon)}, {_steps_number(interval.upper, steps.horizon)}]"
    # A cell that begins with a word would be shortened like a name.
    return text if all_reached else f"{text} (median), {steps.num_reached} of {counted(len(steps.steps), 'seed')}"


def _steps_number(value: float, horizon: float) -> str:
    number = horizon if math.isinf(value) else value
    text = f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return f"> {text}" if math.isinf(value) else text


def _steps_record(case_steps: Sequence[CaseSteps]) -> dict[str, StepsRecord]:
    """Returns the steps to the target by case. A seed that never reached it has infinity, which is printed as null."""
    return {
        steps.case: {
            "metric": steps.target.metric,
            "target": steps.target.value,
            "difference": steps.difference,
            "a": _steps_of_side(steps.a),
            "b": _steps_of_side(steps.b),
            "time": None if steps.time is None else _time_record(steps.time),
        }
        for steps in case_steps
    }


def _time_record(times: TimeToTarget) -> TimeRecord:
    steps_of_sides = {"a": _steps_of_side(times.a), "b": _steps_of_side(times.b)}
    return record_from(
        TimeRecord, times.machine, unsteady=times.is_unsteady, difference=times.difference, **steps_of_sides
    )


def _steps_of_side(steps: StepsToTarget) -> StepsOfSide:
    per_seed = {str(seed): step for seed, step in steps.steps.items()}
    return record_from(StepsOfSide, steps, num_seeds=len(steps.steps), per_seed=per_seed)
