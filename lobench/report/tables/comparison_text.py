"""Text of `lobench compare`: the verdict of each pair, a row per case, and details on request."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lobench.analysis.comparisons.gates import GateResult, Verdict
from lobench.analysis.comparisons.method_comparison import MethodComparison, MetricEffect
from lobench.analysis.comparisons.step_costs import CaseCosts
from lobench.analysis.comparisons.steps_to_target import CaseSteps
from lobench.analysis.comparisons.summary import improvement_note
from lobench.analysis.stats.comparison import CaseEffect, Effect, comparison_words
from lobench.core.wording import counted, counted_range, one_line, shortened_list
from lobench.report.tables.comparison import (
    case_means,
    case_rows,
    comparison_head,
    comparison_limits,
    comparison_notes,
    headline_rows,
    margins_text,
    outcome_words,
    steps_text,
    tests_line,
    verdict_words,
)
from lobench.report.tables.costs import cost_notes, cost_tables
from lobench.report.tables.text import interval_cell, p_words, ratio_cell, text_table

__all__ = ["comparison_answer", "comparison_text"]

_SIGNED_FORMAT = "+z.3f"
_MOST_NOTES = 3
_MAX_LABEL = 16  # characters of labels that can head a column
_MAX_NAMED_CASES = 4  # cases named in a line
_DETAILS_HINT = "Costs, equal time, gate margins, effect sizes and notes: --details"


def comparison_text(
    comparisons: Sequence[MethodComparison],
    *,
    scale: str,
    steps: Sequence[Sequence[CaseSteps]] = (),
    costs: Sequence[Sequence[CaseCosts]] = (),
    details: bool = False,
    details_hint: str = _DETAILS_HINT,
) -> str:
    """Returns the verdict of each pair, then a table of its cases, then the description of the scores.

    Args:
      comparisons: The pairs.
      scale: Description of the score scale: what 0 and 1 stand for.
      steps: Steps to the target for each pair. Empty without a target.
      costs: Costs of steps for each pair, shown with `details`.
      details: Whether to add the metrics' tables, the costs and all notes.
      details_hint: Last line if `details` is False. It names the option that shows the details.
    """
    answers = [line for pair in comparisons for line in comparison_answer(pair)]
    sections = ["\n".join(map(one_line, answers))]
    for index, pair in enumerate(comparisons):
        title = [one_line(f"B: {pair.b.label}")] if len(comparisons) > 1 else []
        rows = answer_rows(pair)
        sections.append("\n".join([*title, *([text_table(rows)] if rows[1:] else [])]))
        lines = [
            *_table_notes(rows, pair),
            *_other_metrics(pair),
            *comparison_limits(pair),
        ]
        lines += _case_notes(pair, None if details else _MOST_NOTES)
        sections.append("\n".join(map(one_line, lines)))
        if steps:
            sections.append(steps_text(pair, steps[index], _short_labels(pair)))
        if details:
            sections += _details(pair, costs[index] if costs else ())
    if details:
        notes = [note for pair, cost in zip(comparisons, costs, strict=False) for note in cost_notes(cost)]
        sections.append("\n".join(map(one_line, dict.fromkeys(notes))))
    sections.append("\n".join([*map(one_line, scale.splitlines()), *([] if details else [details_hint])]))
    return "\n\n".join(filter(None, sections))


def comparison_answer(comparison: MethodComparison) -> list[str]:
    """Returns a line with the verdict, one on the tests, and one on the gate unless it follows from the verdict."""
    tests = tests_line(comparison)
    if not comparison.primary.comparison.cases and tests:
        return [f"{comparison.verdict}: {tests}"]
    gate = _gate_line(comparison)
    where_text = f" (worse {_where_text(comparison)})" if _is_of_cases_alone(comparison) else ""
    where_text = where_text if comparison.verdict is comparison.primary.gate.verdict else " (by the tests)"
    return [f"{comparison.verdict}{where_text}: {_sentence(comparison)}", *filter(None, (tests, gate))]


def _is_of_cases_alone(pair: MethodComparison) -> bool:
    """Returns whether cases regressed although the mean over the cases did not."""
    gate = pair.primary.gate
    return gate.verdict is Verdict.REGRESSED and gate.overall.verdict is not Verdict.REGRESSED


def _where_text(pair: MethodComparison) -> str:
    """Names the cases, and the mean, whose verdict is the gate's: "in the mean and on s/a, s/b"."""
    gate = pair.primary.gate
    mean = ["in the mean"] if len(gate.cases) > 1 and gate.overall.verdict is gate.verdict else []
    names = sorted(case.case for case in gate.cases if case.verdict is gate.verdict)
    return " and ".join([*mean, *([f"on {shortened_list(names, _MAX_NAMED_CASES)}"] if names else [])])


def _sentence(pair: MethodComparison) -> str:
    effect = pair.primary
    comparison = effect.comparison
    a = f"{pair.a.label} (A)"
    b = f"{pair.b.label} (B)"
    if math.isnan(comparison.overall.mean) and not comparison.diverged.a + comparison.diverged.b:
        return f"nothing shows how {b} compares with {a} on {effect.metric}: {_why_nothing(pair)}"
    metric_text = f" on {effect.metric}"
    undecided_text = f"no difference of {b} from {a} is shown{metric_text}"
    if comparison.is_capped:
        undecided_text = f"{b} against {a} is undecided{metric_text}, as planned seeds gave no result"
    outcome = outcome_words(effect, a, b, undecided_text, metric_text)
    clauses = [f"{outcome}: score {_numbers(effect, has_level=True)}", _cases_and_seeds(pair)]
    clauses += filter(
        None, (improvement_note(comparison, effect.improvement_probability), comparison_words(comparison))
    )
    return ", ".join(clauses[:2]) + "".join(f"; {clause}" for clause in clauses[2:])


def _numbers(effect: MetricEffect, *, has_level: bool = False) -> str:
    comparison = effect.comparison
    level = f" ({100 * (1 - comparison.alpha):g}%)" if has_level and not math.isnan(comparison.overall.lower) else ""
    return f"{interval_cell(comparison.overall, _SIGNED_FORMAT)}{level}, {p_words(comparison.p_value)}"


def _why_nothing(comparison: MethodComparison) -> str:
    case_effects = comparison.primary.comparison.cases
    cases = [comparison.cases[effect.case] for effect in case_effects]
    if all(case.evaluator and case.num_seeds == 1 and not case.has_items for case in cases):
        return "a single value of each shows no noise; evaluate with several seeds, or by items (Case.replicates)"
    notes = dict.fromkeys(effect.paired.note for effect in case_effects if effect.paired.note)
    return "; ".join(notes) or "no case can be compared"


def _cases_and_seeds(comparison: MethodComparison) -> str:
    """Returns "6 cases x 4 seeds", or without common seeds "1 case x 3 and 5 seeds, none in common"."""
    effect, noun = comparison.primary, comparison.replicate
    # A case without a mean is compared too if the counts of diverged seeds are.
    tested_cases = [case.paired for case in effect.comparison.cases if not math.isnan(case.paired.p_value)]
    cases = tested_cases or [case.paired for case in effect.comparison.cases]
    text = counted(len(cases), "case")
    if 0 < (num_in_mean := sum(not math.isnan(case.mean) for case in cases)) < len(cases):
        text += f" ({num_in_mean} in the score)"
    if cases and all(case.is_paired for case in cases):
        return f"{text} x {counted_range((case.num_seeds for case in cases), noun)}"
    counts_of_sides = [sorted({case.num_a for case in cases}), sorted({case.num_b for case in cases})]
    a, b = (f"{side[0]}" if len(side) == 1 else f"{side[0]} to {side[-1]}" for side in counts_of_sides if side)
    pairing_note = "none in common" if not any(case.is_paired for case in cases) else "not all in common"
    return f"{text} x {a} and {b} {noun}s, {pairing_note}"


def _gate_line(comparison: MethodComparison) -> str:
    """Returns the result of the gate; "" if B is better and passes."""
    effect, gate = comparison.primary, comparison.primary.gate
    if gate.compared_nothing:
        return ""
    margin = margins_text(effect)
    if gate.verdict is Verdict.REGRESSED:
        return f"gate, {margin} of the score: exceeded {_where_text(comparison)}{_divergence_note(gate.overall)}"
    if gate.verdict is Verdict.INCONCLUSIVE:
        seeds = _most_seeds([gate.overall, *gate.cases])
        seeds_text = (
            f"; about {seeds:,} {comparison.replicate}s per case would decide {gate.rules.decided_harm}"
            if seeds
            else ""
        )
        return f"gate, {margin} of the score: not decided {_where_text(comparison)}{seeds_text}"
    if effect.comparison.verdict is Effect.BETTER:
        return ""
    return f"gate, {margin} of the score: not exceeded in the mean or on any case{_divergence_note(gate.overall)}"


def _divergence_note(gate_result: GateResult) -> str:
    return f"; {gate_result.divergence}" if gate_result.diverged_a + gate_result.diverged_b else ""


def _most_seeds(gate_results: Sequence[GateResult]) -> int | None:
    """Returns the number of seeds that decides all open results; None if it is unknown for one of them."""
    needed_seeds = [
        gate_result.seeds_to_decide for gate_result in gate_results if gate_result.verdict is Verdict.INCONCLUSIVE
    ]
    known_seeds = [seeds for seeds in needed_seeds if seeds is not None]
    return max(known_seeds) if known_seeds and len(known_seeds) == len(needed_seeds) else None


def answer_rows(comparison: MethodComparison) -> list[list[str]]:
    """Returns the table of the cases, its header first. The interval and the verdict of a row have the same level.

    The interval is for B's geometric mean loss over A's, or for the difference of scores if a case has no ratio.
    """
    effect = comparison.primary
    has_several_cases = len(comparison.primary.comparison.cases) > 1
    holm_text = "Holm, " if has_several_cases else ""
    alpha = effect.comparison.alpha
    uses_arithmetic_means = comparison.a.subject.is_imported or comparison.b.subject.is_imported
    has_ratio = {
        case_difference.case: not uses_arithmetic_means and _has_ratio(effect, case_difference)
        for case_difference in effect.comparison.cases
    }
    units = {
        has_ratio[case_difference.case]
        for case_difference in effect.comparison.cases
        if not math.isnan(case_difference.paired.mean)
    }
    unit = "ratio" if units == {True} else "ratio/±score" if True in units else "score, + is better"
    level = f"{holm_text}{100 * (1 - alpha):g}%"
    header = ["case", *_short_labels(comparison), f"{unit} [{level}]", f"verdict ({holm_text}{100 * alpha:g}%)"]
    gates = {case_difference.case: case_difference for case_difference in effect.gate.cases}
    rows = []
    for case_difference in effect.comparison.cases:
        if math.isnan(case_difference.paired.lower):
            interval = case_difference.paired.note
        elif has_ratio[case_difference.case]:
            interval = ratio_cell(effect.ratios[case_difference.case].interval)
        else:
            interval = interval_cell(case_difference.paired, _SIGNED_FORMAT)
        means = case_means(comparison, effect, case_difference.case, uses_arithmetic_means=uses_arithmetic_means)
        rows.append(
            [case_difference.case, *means, interval, _case_verdict(case_difference, gates[case_difference.case])]
        )
    return [header, *sorted(rows)]


def _table_notes(rows: Sequence[Sequence[str]], pair: MethodComparison) -> list[str]:
    """Returns a line that explains the cases' table; [] if nothing in it needs it."""
    header = rows[0]
    notes = []
    if "ratio" in header[3]:
        notes.append("values with a ratio are geometric means")
    if "±" in header[3]:
        notes.append("a signed number is a difference of scores, + is better")
    if any(row[4].endswith(")") for row in rows[1:] if row[4].startswith("undecided")):
        harm = pair.primary.gate.rules.decided_harm
        notes.append(f"undecided (N): N {pair.replicate}s would decide {harm}")
    return ["; ".join(notes)] if notes else []


def _short_labels(pair: MethodComparison) -> tuple[str, str]:
    """Returns both labels if they are short, else A and B, as in the verdict."""
    a = one_line(pair.a.label)
    b = one_line(pair.b.label)
    return (a, b) if max(len(a), len(b)) <= _MAX_LABEL else ("A", "B")


def _has_ratio(effect: MetricEffect, case_effect: CaseEffect) -> bool:
    return case_effect.case in effect.ratios and effect.ratios[case_effect.case].is_known


def _case_verdict(case_effect: CaseEffect, gate: GateResult) -> str:
    if (
        case_effect.verdict is not Effect.UNDECIDED
        or gate.verdict is not Verdict.INCONCLUSIVE
        or not gate.seeds_to_decide
    ):
        return verdict_words(case_effect.verdict, gate)
    return f"undecided ({gate.seeds_to_decide:,})"


def _other_metrics(pair: MethodComparison) -> list[str]:
    """Returns a line for each metric except the primary one."""
    lines = []
    for effect in pair.effects[1:]:
        comparison = effect.comparison
        verdict_text = verdict_words(comparison.verdict, effect.gate.overall)
        clauses = [f"{effect.metric}: {verdict_text}, {_numbers(effect)}, gate {effect.gate.verdict}"]
        clauses += filter(None, [improvement_note(comparison, effect.improvement_probability)])
        if {pair.primary.comparison.verdict, comparison.verdict} == {Effect.BETTER, Effect.WORSE}:
            clauses.append("the metrics tell different stories")
        lines.append("; ".join(clauses))
    return lines


def _case_notes(comparison: MethodComparison, max_notes: int | None) -> list[str]:
    """Returns a line for each limitation of verdicts, with the cases that have it."""
    cases = dict[str, list[str]]()
    for key, text in comparison.primary.notes.items():
        cases.setdefault(text, []).append(key)
    lines = []
    for note, names in cases.items():
        where = (
            "each case"
            if len(names) == len(comparison.primary.comparison.cases) > 1
            else shortened_list(sorted(names), 3)
        )
        lines.append(f"{where}: {note}")
    num_hidden = len(lines) - max_notes if max_notes is not None else 0
    return [*lines[:max_notes], f"{num_hidden} more: --details"] if num_hidden > 1 else lines


def _details(comparison: MethodComparison, costs: Sequence[CaseCosts]) -> list[str]:
    a, b = _short_labels(comparison)
    without_notes = [[row[:-1] for row in case_rows(comparison, effect)] for effect in comparison.effects]
    return [
        "\n".join(map(one_line, comparison_head(comparison))),
        *(text_table(rows) for rows in (headline_rows(comparison), *without_notes) if rows[1:]),
        *map(text_table, cost_tables(costs, (a, b))),
        "\n".join(map(one_line, comparison_notes(comparison))),
    ]
