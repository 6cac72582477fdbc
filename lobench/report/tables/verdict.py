"""Verdict of a report: headline numbers, their meaning in words, caveats."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lobench.analysis.comparisons.summary import CaseFinding, Summary, improvement_note, undecided_words
from lobench.analysis.scores.mean_scores import MeanScore
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.comparison import Effect, MeanDifference, PairComparison, comparison_words
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.speedup import Speedup
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import notes_on_rows, repeated_cases_note
from lobench.core.case import common_replicate_noun
from lobench.core.metric import how_to_declare
from lobench.core.result import Outcome
from lobench.core.wording import counted, counted_with_verb, duration_text, level_text, one_line
from lobench.drawing.svg import format_number
from lobench.report.tables.text import NO_INTERVAL, interval_cell, p_cell, subjects_in_words

__all__ = [
    "MANY_LOOKS",
    "Card",
    "cards",
    "interval_text",
    "pair_card",
    "report_subtitle",
    "report_title",
    "report_warnings",
    "score_card",
    "score_text",
    "verdict_lines",
    "verdict_text",
]

_MAX_CENSORED_SHARE = 0.1
_NO_BREAK = "\N{NO-BREAK SPACE}"  # only used in pages; terminals get plain spaces
_ROLE_TEXTS = {
    "meta_train": "meta_train, in distribution",
    "meta_valid": "meta_valid, chosen by",
    "meta_test": "meta_test, out of distribution",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Number of the verdict; `kind` is "good", "bad" or ""."""

    label: str
    value: str
    note: str
    kind: str = ""


def report_title(snapshot: Snapshot) -> str:
    """Returns the title of a report: "lobench" and the names of the suites."""
    return "lobench: " + ", ".join(sorted({case.suite for case in snapshot.cases}))


def report_subtitle(snapshot: Snapshot) -> str:
    """Returns the subtitle of a report: numbers of subjects, cases and evaluations, time and store."""
    last_time = max(map(operator.attrgetter("recorded_at"), snapshot.rows))
    time_text = datetime.fromtimestamp(last_time, UTC).strftime("%Y-%m-%d %H:%M UTC")
    counts = ((len(snapshot.cases), "case"), (len(snapshot.rows), "evaluation"))
    subjects = subjects_in_words(subject.subject for subject in snapshot.subjects)
    counts_text = ", ".join([subjects, *(counted(count, name) for count, name in counts)])
    outside_text = (
        f"; {counted(snapshot.experiment.num_other_optimizers, 'optimizer')} outside this experiment: see --all"
    )
    outside_text *= snapshot.experiment.num_other_optimizers > 0
    return f"{counts_text}; last result {time_text}; store {snapshot.store}{outside_text}"


def verdict_text(summary: Summary) -> str:
    """Returns the verdict of the page as text for a terminal.

    Raises:
      StoreError: The store has no evaluations.
    """
    snapshot = summary.snapshot
    snapshot.require_rows()
    comparison = summary.headline_comparison()
    cases = summary.shown_cases(comparison)
    sections = [
        [report_title(snapshot), report_subtitle(snapshot)],
        [f"{card.label}: {card.value} ({card.note.replace(_NO_BREAK, ' ')})" for card in cards(summary, comparison)],
        verdict_lines(summary, comparison, cases),
        [f"Note: {line}" for line in report_warnings(summary, cases)],
    ]
    return "\n\n".join("\n".join(map(one_line, lines)) for lines in sections if lines)


# False alarm rates along a run at the level of one comparison; docs/statistics.md has the table.
MANY_LOOKS = "a gate of each of 50 checkpoints, each at level .05, alarms falsely in 2 to 17 of 100 runs"


def interval_text(interval: Interval | MeanDifference) -> str:
    """Formats a mean with its bounds."""
    if math.isnan(interval.mean):
        return "n/a"
    if math.isnan(interval.lower):
        return f"{interval_cell(interval)} ({NO_INTERVAL})"
    return interval_cell(interval)


def score_text(score: MeanScore) -> str:
    """Formats a mean score with its bounds, and the number of cases if some are missing."""
    num_all = score.num_cases + score.num_missing
    cases_text = f" over {score.num_cases} of {counted(num_all, 'case')}" if score.num_missing else ""
    return interval_text(score.interval) + cases_text


def cards(summary: Summary, comparison: PairComparison | None) -> list[Card]:
    """Returns the headline numbers: train and test, the change, a gate's verdict, diverged seeds."""
    headlines = _speedup_cards(summary) if summary.headline == "speedup" and summary.baseline_label else []
    headlines += [_score_card(summary, metric) for metric in summary.metrics]
    if comparison is not None:
        headlines.append(pair_card(f"Against {summary.snapshot.labels[summary.reference_index]}", comparison))
    gates = [detail for kind, detail in summary.snapshot.events if kind == "gate"]
    if gates:
        headlines.append(_gate_card(gates[-1]))
    return [*headlines, *_cost_cards(summary.snapshot), *_warning_cards(summary)]


def pair_card(label: str, comparison: PairComparison) -> Card:
    """Returns the card of a comparison of two subjects."""
    notes_text = "; ".join(dict.fromkeys(filter(None, (effect.paired.note for effect in comparison.cases))))
    p_value = p_cell(comparison.p_value)
    p_text = f"p {'' if p_value[0] == '<' else '= '}{p_value}".replace(" ", _NO_BREAK)
    difference_text = f"difference {interval_text(comparison.overall)}, two-sided{_NO_BREAK}{p_text}"
    # The mean score counts lost seeds as -1. The difference does not, so the text names them.
    if lost_seeds_text := comparison_words(comparison):
        difference_text += f"; {lost_seeds_text}"
    note = notes_text if math.isnan(comparison.p_value) else difference_text
    return Card(
        label=label,
        value=str(comparison.verdict),
        note=note,
        kind={"better": "good", "worse": "bad"}.get(str(comparison.verdict), ""),
    )


def score_card(label: str, score: MeanScore, cases_text: str) -> Card:
    """Returns the card of a mean score with its interval and its cases."""
    bounds = interval_text(score.interval).partition(" ")[2]
    if bounds:
        bounds = bounds.strip("()") + ", " if math.isnan(score.interval.lower) else f"95% {bounds}, "
    value = "n/a" if math.isnan(score.interval.mean) else f"{score.interval.mean:z.3f}"
    return Card(label=label, value=value, note=bounds + cases_text)


def _score_card(summary: Summary, metric: str) -> Card:
    score = summary.mean_score(summary.headline_index, metric)
    name = summary.metric_label(metric)
    cases_note = counted(score.num_cases, "case")
    if summary.headline_index in summary.compared and (
        cases_text := summary.common_cases_text(metric, with_names=False)
    ):
        cases_note = cases_text
    elif score.num_missing:
        cases_note += f" (without a score: {score.num_missing})"
    return score_card(f"Score on {name}, {summary.snapshot.labels[summary.headline_index]}", score, cases_note)


def _speedup_cards(summary: Summary) -> list[Card]:
    """Returns VeLO's headline, and the interquartile mean of the score."""
    label = summary.snapshot.labels[summary.headline_index]
    speedups, num_cases, num_censored = summary.speedups()
    notes = f"; bounds: {counted(num_censored, 'seed')}" if num_censored else ""
    case_indices = range(len(summary.snapshot.cases))
    num_short = sum(
        summary.case_baseline(case) is not None and not summary.has_smooth_envelope(case) for case in case_indices
    )
    if num_short:  # such an envelope lags behind the curve by the whole budget
        notes += f"; too large on {counted(num_short, 'case')}, with a budget below the envelope's smoothing"
    mean_score = summary.interquartile_mean(summary.headline_index, "primary")
    value = "n/a" if math.isnan(mean_score.mean) else f"{mean_score.mean:z.3f}"
    return [
        Card(
            label=f"Speed-up over the envelope of {summary.baseline_label}, {label}",
            value=f"{format_number(speedups.mean)}x" if num_cases else "n/a",
            note=f"{_bounds_text(speedups)}interquartile mean of {counted(num_cases, 'case')} and their seeds{notes}",
        ),
        Card(
            label=f"Interquartile mean of the score, {label}",
            value=value,
            note=f"{_bounds_text(mean_score)}{summary.metric_label('primary')}",
        ),
    ]


def _bounds_text(interval: Interval) -> str:
    return "" if math.isnan(interval.lower) else f"95% [{interval.lower:z.3f}, {interval.upper:z.3f}], "


def _gate_card(event: Mapping[str, Any]) -> Card:
    """Returns the card of the last gate recorded in this store, with its recorded verdict."""
    verdict_counts = Counter(case["verdict"] for case in event["cases"])
    counts_text = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdict_counts.items()))
    return Card(
        label=f"Gate against {event['against']}",
        value=event["verdict"],
        note=f"{counts_text}; margin {event['margin']:g}, one-sided alpha {event['alpha']:g}"
        + ("" if event.get("score_version", 1) == SCORE_VERSION else "; of an older score: not comparable"),
        kind={"PASS": "good", "REGRESSED": "bad"}.get(event["verdict"], ""),
    )


def _cost_cards(snapshot: Snapshot) -> list[Card]:
    """Returns the time of all evaluations, including trials of searches; [] if unknown."""
    curves = [curves_or_none for _, curves_or_none in snapshot.measured_rows() if curves_or_none is not None]
    train_seconds = math.fsum(curve.wall_seconds for curve in curves)
    if train_seconds == 0:
        return []
    compile_seconds = math.fsum(curve.compile_seconds for curve in curves)
    num_trials = len(snapshot.experiment.trials)
    trials_text = f"; {counted(num_trials, 'trial')} of searches included" if num_trials else ""
    is_trained = any(not case.evaluator for case in snapshot.cases)
    compile_note = f"; {duration_text(compile_seconds)} more to compile" if is_trained else ""
    note = f"{counted(len(snapshot.rows), 'evaluation')}{compile_note}{trials_text}"
    return [
        Card(
            label=f"Time of all {'trainings' if is_trained else 'evaluations'}",
            value=duration_text(train_seconds),
            note=note,
        )
    ]


def _warning_cards(summary: Summary) -> list[Card]:
    """Returns a card of diverged or exploded seeds and, if there are any, a card of evaluations that did not pass."""
    snapshot = summary.snapshot
    num_diverged = sum(subject.num_diverged for subject in snapshot.subjects)
    num_exploded = sum(subject.num_exploded for subject in snapshot.subjects)
    num_seeds = sum(subject.num_seeds for subject in snapshot.subjects)
    replicates = f"{common_replicate_noun(snapshot.cases)}s"
    kind = "bad" if num_diverged or num_exploded else "good" if num_seeds else ""
    warning_cards = [
        Card(
            label=f"Diverged or exploded {replicates}",
            value=f"{num_diverged + num_exploded:,} of {num_seeds:,}",
            note=f"{num_diverged:,} diverged, {num_exploded:,} exploded, of the {replicates} that gave curves",
            kind=kind,
        )
    ]
    outcomes = Counter(row.outcome for row in snapshot.rows)
    num_passed = outcomes.pop(Outcome.PASSED, 0)
    return (
        [*warning_cards, _outcomes_card(outcomes, len(snapshot.rows))]
        if num_passed < len(snapshot.rows)
        else warning_cards
    )


def _outcomes_card(outcomes: Mapping[Outcome, int], count: int) -> Card:
    return Card(
        label="Evaluations that did not pass",
        value=f"{sum(outcomes.values()):,} of {count:,}",
        note=", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items())),
        kind="bad",
    )


def verdict_lines(summary: Summary, comparison: PairComparison | None, cases: Sequence[CaseFinding]) -> list[str]:
    """Returns a sentence on the meaning of each headline number."""
    snapshot = summary.snapshot
    subject_label = snapshot.capitalized_labels[summary.headline_index]
    replicate = common_replicate_noun(snapshot.cases)
    limits_text = "" if replicate == "item" else "clipped to [-1, 2], "
    lines = [f"On the scale {summary.scale_label}; {limits_text}a diverged {replicate} counts as -1."]
    lines += [f"{line[:1].upper()}{line[1:]}." for line in summary.scales.best_subject_lines()]
    is_ranked = summary.mean_score(summary.headline_index, "primary").has_surviving_seed
    if snapshot.groups.has_several_methods and not summary.has_checkpoints and is_ranked:
        num_missing = snapshot.subjects[summary.headline_index].num_missing
        subjects = snapshot.subjects
        num_lacking = sum(subject.lacks_seeds(subjects) for subject in subjects)
        missing_note = f", without {counted(num_missing, 'planned seed')} that gave no result" if num_missing else ""
        num_raced = len(subjects) - len(summary.out_of_race)
        field_text = f"{num_raced} methods{' still in the race' if summary.out_of_race else ''}{missing_note}"
        if num_lacking and not snapshot.subjects[summary.headline_index].lacks_seeds(subjects):
            field_text = (
                f"the {counted(len(subjects) - num_lacking, 'method')} with all planned seeds ({num_lacking} without)"
            )
        is_alone = bool(summary.out_of_race) and num_raced == 1
        answer = "is the only method still in the race" if is_alone else f"has the highest mean score of {field_text}"
        others = {index: mean for index, mean in summary.ranked_means.items() if index != summary.headline_index}
        best_mean = summary.mean_score(summary.headline_index, "primary").mean
        answer += level_text(best_mean, ((snapshot.labels[index], mean) for index, mean in others.items()))
        lines.insert(0, f"{subject_label} {answer}.")
    for metric in summary.metrics:
        against_tuned = summary.comparison_with_tuned(metric)
        if against_tuned is None:
            continue
        position_text = {Effect.BETTER: "above", Effect.WORSE: "below"}.get(
            against_tuned.verdict, "not significantly different from"
        )
        text = (
            f"{subject_label} is {position_text} {summary.baseline_label} on {summary.metric_label(metric)}: "
            "difference on common "
        )
        text += f"seeds {interval_text(against_tuned.overall)}"
        undecided_text = counted(against_tuned.num_undecidable, "case")
        undecided_note = f"; undecided on {undecided_text}: fewer than two common seeds, or no scale"
        lines.append(text + (undecided_note if against_tuned.num_undecidable else "") + ".")
    for metric in summary.metrics:
        roles = summary.scores_by_role(metric).items()
        role_texts = [
            f"{_ROLE_TEXTS[role]} ({counted(count, 'case')}) {interval_text(mean)}" for role, (mean, count) in roles
        ]
        if role_texts:
            lines.append(
                f"{subject_label}'s score on {summary.metric_label(metric)} by the role of cases: "
                f"{'; '.join(role_texts)}."
            )
    for metric in summary.metrics:
        interquartile_mean = summary.interquartile_mean(summary.headline_index, metric)
        if not math.isnan(interquartile_mean.lower):
            lines.append(
                f"The interquartile mean over its runs on {summary.metric_label(metric)}: "
                f"{interval_text(interquartile_mean)}."
            )
    if comparison is not None:
        first_label = snapshot.labels[summary.reference_index]
        verdicts = Counter(str(effect.verdict) for effect in comparison.cases)
        lines.append(
            f"Against {first_label}, case by case (Holm, level {comparison.alpha:g}): {verdicts['better']} better, "
            f"{verdicts['worse']} worse, {verdicts['undecided']} undecided"
            + (f", {verdicts['mixed']} better in one and worse in the other" if verdicts["mixed"] else "")
            + "."
            + " The bounds of their differences hold for all cases together, too." * (len(comparison.cases) > 1)
        )
        if (count := len(snapshot.groups.run_of(summary.headline_index))) > 2:
            lines.append(f"It is one of {count} checkpoints of its run: {MANY_LOOKS}.")
        if seeds_text := improvement_note(comparison, summary.headline_improvement()):
            verdict_texts = {"better": "better on the score", "worse": "worse on the score"}
            comparison_text = verdict_texts.get(str(comparison.verdict), undecided_words(comparison, seeds_text))
            lines.append(f"Against {first_label}: {comparison_text}; {seeds_text}.")
    if summary.baseline_label:
        speedup_texts = [
            f"over {reference} {_speedup_text(speedups)}"
            for reference, speedups in _speedups(cases, summary)
            if speedups
        ]
        lines.append(
            f"{subject_label}'s speed-up over {summary.baseline_label}: {'; '.join(speedup_texts) or 'on no case'}."
        )
    return lines


def _speedups(cases: Sequence[CaseFinding], summary: Summary) -> tuple[tuple[str, list[Speedup]], ...]:
    """Returns the speed-ups over each of two references.

    On budgets shorter than the envelope's smoothing, the envelope lags by the whole budget. These cases are left out.
    """
    return (
        ("the best single setting", [case.best_single for case in cases if case.best_single is not None]),
        (
            "the envelope",
            [
                case.envelope
                for case in cases
                if case.envelope is not None and summary.has_smooth_envelope(case.case_index)
            ],
        ),
    )


def _speedup_text(speedups: Sequence[Speedup]) -> str:
    """Returns the median of speed-ups, and the numbers of censored and diverged ones.

    Censored speed-ups count with their bound.
    """
    values = [speedup.value for speedup in speedups if not math.isnan(speedup.value)]
    median_text = "none"
    if values:
        median = statistics.median(values)
        # A value censored at or below the median may be anywhere above it, so the median is a bound then.
        upper_middle = statistics.median_high(values)
        bound = ">= " if any(speedup.censored and speedup.value <= upper_middle for speedup in speedups) else ""
        median_text = f"{bound}{format_number(median)}x in the median"
    num_diverged = len(speedups) - len(values)
    censored_text = f", censored on {sum(speedup.censored for speedup in speedups)} of {counted(len(speedups), 'case')}"
    return median_text + censored_text + (f", diverged on {num_diverged}" if num_diverged else "")


def _uncounted_line(prefix: str, count: int, noun: str, suffix: str) -> str:
    """Returns a note that some results are in the table of evaluations only."""
    text = counted_with_verb(count, noun, suffix=suffix)
    return f"{prefix}{text} in no number and no chart here, and in the table of evaluations."


def report_warnings(summary: Summary, cases: Sequence[CaseFinding]) -> list[str]:
    """Returns limits of the numbers: stale or missing baselines, censored speed-ups, cases without results.

    Results of several programs, versions of the user's code, and bindings of an optimizer are limits too.
    """
    snapshot = summary.snapshot
    lines = notes_on_rows(snapshot.rows, snapshot.current)
    left_out = snapshot.left_out
    lines += [
        _uncounted_line(f"{name} was changed: ", count, "evaluation", " of it as it was before")
        for name, count in left_out.former_cases
    ]
    lines += [
        _uncounted_line(f"{name} is no longer in its suite: ", count, "evaluation", " of it")
        for name, count in left_out.removed_cases
    ]
    if count := left_out.num_former_bindings:
        lines.append(_uncounted_line("", count, "evaluation", " with other bindings of the optimizer than today's"))
    if superseded := left_out.superseded_subjects:
        suffix = " of a former run in this folder, which its trainer began again,"
        lines.append(_uncounted_line("", len(superseded), "checkpoint", suffix))
    if note := repeated_cases_note(repeated := left_out.repeated_cases):
        lines.append(
            f"{note[0].upper()}{note[1:]}. {'It is' if len(repeated) == 1 else 'They are'} in the table of evaluations."
        )
    lines += summary.scales.problem_lines()
    lines += [
        f"No score on {name}, and no bold: {how_to_declare(name)}."
        for name in summary.scales.metrics_without_direction()
    ]
    lines += summary.scales.limit_notes()
    for reference, speedups in _speedups(cases, summary):
        num_censored = sum(speedup.censored for speedup in speedups)
        if num_censored > _MAX_CENSORED_SHARE * len(speedups):
            tuned_cases = summary.scales.baselines.baseline_by_case.values()
            factor = max(baseline.training.horizon_factor for baseline in tuned_cases)
            # Baselines that end with the budget are not trained longer with a larger factor.
            all_end_with_budget = all(entry.training.ends_with_budget for entry in tuned_cases)
            advice = "" if all_end_with_budget else "; a larger --horizon-factor would measure them"
            lines.append(
                f"The speed-up over {reference} is censored on {num_censored} of {len(speedups)} cases, more than a "
                f"tenth: the baseline, run for {factor} times the budget, never was as low. Those numbers are lower "
                f"bounds{advice}."
            )
    notes = filter(None, (snapshot.num_seeds_line(), summary.groups_note("primary")))
    lines += [f"{note[0].upper()}{note[1:]}." for note in notes]
    case_indices = range(len(snapshot.cases))
    missing_cases = [
        snapshot.case_name(case) for case in case_indices if snapshot.cell(summary.headline_index, case) is None
    ]
    if missing_cases:
        lines.append(f"{snapshot.labels[summary.headline_index]} was not evaluated on {', '.join(missing_cases)}.")
    if summary.scales.baselines.first_baseline is None and summary.scales.is_tunable:
        lines.append("No baseline was found; `lobench baseline SUITE` makes one, and --baseline SUITE names it.")
    return lines
