"""Table of the methods or checkpoints of a store, best first: the default output of `lobench results`."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.mean_scores import MeanScore
from lobench.analysis.store.methods import hyperparameters_text
from lobench.analysis.store.search_history import edge_notes_by_label
from lobench.analysis.store.subjects import StoredSubject
from lobench.analysis.tables.tabulate import race_notes
from lobench.core.case import CaseInfo, common_replicate_noun
from lobench.core.result import Outcome, mean_of
from lobench.core.wording import counted, counted_range, duration_text, is_level, level_text, one_line, shortened_list
from lobench.report.tables.text import final_mean_text, interval_cell, interval_words, text_table

__all__ = ["MOST_ROWS", "best_lines", "ranking_text"]

MOST_ROWS = 27  # most rows without --all
_MAX_NAMED = 3
_MOST_CASES = 4  # columns of final values, if there are no scores


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Method or checkpoint of the table.

    Attributes:
      index: Index of the subject.
      labels: Its labels, several if one checkpoint was seen at several steps or paths.
      score: Mean score.
      is_ranked: Whether the subject has a score on every case, and was evaluated on all planned seeds.
    """

    index: int
    labels: tuple[str, ...]
    score: MeanScore
    is_ranked: bool


def ranking_text(summary: Summary, *, include_all: bool = False, names_options: bool = True) -> str:
    """Returns the best method or checkpoint in a line, and a table of all of them, best first.

    Args:
      summary: Summary of the store.
      include_all: Whether to show all rows. Otherwise the first `MOST_ROWS`.
      names_options: Whether to name the options of `lobench results` that show more.
    """
    snapshot = summary.snapshot
    if not snapshot.rows or not snapshot.subjects:
        return snapshot.no_results_message
    rows = _ranking_rows(summary)
    shown_rows = rows if include_all else rows[:MOST_ROWS]
    hidden = len(rows) - len(shown_rows)
    omission_note = [f"{hidden:,} more{': --all' if names_options else ''}"] if hidden else []
    answer_lines = [_answer(summary, rows, _best_rows(summary, rows)), *_next_steps(summary, rows)]
    if snapshot.has_decisions:
        log = shlex.join(["lobench", "keep", "--log", "--store", str(snapshot.store)])
        answer_lines = [f"runs of `lobench keep`, which chose their seeds by results: `{log}` has its decisions"]
    options = ["By case: --cases. Every evaluation: --evaluations"] if names_options else []
    notes = [*omission_note, *_best_settings_lines(summary, rows), *_ranking_notes(summary, rows), *options]
    table = text_table(_table_rows(summary, shown_rows), left={1})
    return "\n\n".join(["\n".join(map(one_line, answer_lines)), table, "\n".join(map(one_line, notes))])


def best_lines(summary: Summary) -> list[str]:
    """Returns the first lines of `ranking_text`: the best of several methods or checkpoints; [] if there is none."""
    rows = _ranking_rows(summary) if summary.snapshot.subjects and not summary.snapshot.has_decisions else []
    equal = _best_rows(summary, rows) if len(rows) > 1 else []
    return [_answer(summary, rows, equal), *_next_steps(summary, rows)] if equal else []


def _ranking_rows(summary: Summary) -> list[_Row]:
    """Returns the rows, best first. Rows that cannot be ranked are last."""
    snapshot = summary.snapshot
    indices_by_content = dict[object, list[int]]()
    left_race = summary.out_of_race
    for index, subject in enumerate(snapshot.subjects):
        # A watch and a comparison may give one theta different variants with the same bindings of its optimizer.
        key: object = (
            subject.subject.key
            if snapshot.experiment.method_names
            else (subject.subject.sha256, subject.optimizer_hashes)
        )
        content = (key, *sorted(subject.cells)) if subject.subject.has_theta else index
        indices_by_content.setdefault(content, []).append(index)
    scores = {indices[0]: summary.mean_score(indices[0], "primary") for indices in indices_by_content.values()}
    max_cases = max(score.num_cases for score in scores.values())
    rows = []
    rivals = [snapshot.subjects[indices[0]] for indices in indices_by_content.values()]
    for indices in indices_by_content.values():
        score = scores[indices[0]]
        is_complete = score.num_cases == max_cases and not snapshot.subjects[indices[0]].lacks_seeds(rivals)
        rows.append(
            _Row(
                index=indices[0],
                labels=tuple(dict.fromkeys(snapshot.labels[index] for index in indices)),
                score=score,
                is_ranked=is_complete and score.has_surviving_seed and indices[0] not in left_race,
            )
        )
    return sorted(rows, key=lambda row: (not row.is_ranked, math.isnan(row.score.mean), -row.score.mean))


def _best_rows(summary: Summary, rows: Sequence[_Row]) -> list[_Row]:
    """Returns the best row, and the rows that no test finds to be worse."""
    ranked_rows = [row for row in rows if row.is_ranked]
    if not ranked_rows:
        return []
    not_worse = bold_means(summary, [row.index for row in ranked_rows], "primary").indices
    return [row for index, row in enumerate(ranked_rows) if index in not_worse]


def _answer(summary: Summary, rows: Sequence[_Row], best_rows: Sequence[_Row]) -> str:
    kind = "checkpoint" if all(subject.subject.has_theta for subject in summary.snapshot.subjects) else "method"
    if len(rows) == 1 and math.isnan(rows[0].score.mean):
        return f"{_row_label(rows[0])}: no score"
    if not best_rows:
        return f"{counted(len(rows), kind)}, and none can be ranked: {_why_unranked(summary, rows)}"
    best, *equal_rows = best_rows
    score = interval_words(best.score.interval)
    extent_text = f"{counted(best.score.num_cases, 'case')} x {_seeds_text(best.score, summary)}"
    if len(rows) == 1:
        return f"{_row_label(best)}: score {score}, {extent_text}"
    num_ranked = sum(row.is_ranked for row in rows)
    if num_ranked == 1:
        text = f"{_row_label(best)} is the only one of {counted(len(rows), kind)} that can be ranked"
        return f"{text}: score {score}, {extent_text}"
    unranked_text = f" ({len(rows) - num_ranked} more cannot be ranked)" if num_ranked < len(rows) else ""
    others = [row for row in rows if row.is_ranked and row is not best]
    level = level_text(best.score.mean, ((_row_label(row), row.score.mean) for row in others))
    text = f"{_row_label(best)} is the best of {counted(num_ranked, kind)}{unranked_text}{level}"
    text = f"{text}: score {score}, {extent_text}"
    others = [row for row in others if not is_level(row.score.mean, best.score.mean)]
    equal_rows = [row for row in equal_rows if row in others]
    if not others:
        return text
    if equal_rows:
        return f"{text}; not significantly worse: {shortened_list([_row_label(row) for row in equal_rows], _MAX_NAMED)}"
    worse_text = "all others" if all(row.is_ranked for row in rows) else "all others that have a rank"
    replicates = f"{common_replicate_noun(summary.snapshot.cases)}s"
    where = f" on {replicates} that converge" if _has_lost_seeds(summary, rows) else ""
    has_lost_case = any(not best.score.survived_cases <= row.score.survived_cases for row in others)
    lost_note = f", or lost all {replicates} of a case" if has_lost_case else ""
    return f"{text}; {worse_text} are worse{where} (level 5% for all together){lost_note}"


def _has_lost_seeds(summary: Summary, rows: Sequence[_Row]) -> bool:
    """Returns whether a ranked row has a diverged or exploded seed, which counts in scores and not in the test."""
    subjects = [summary.snapshot.subjects[row.index] for row in rows if row.is_ranked]
    return any(subject.num_diverged or subject.num_exploded for subject in subjects)


def _why_unranked(summary: Summary, rows: Sequence[_Row]) -> str:
    if all(math.isnan(row.score.mean) for row in rows):
        return "no score"
    noun = common_replicate_noun(summary.snapshot.cases)
    return f"each lacks a case or a planned {noun}, or diverged on every {noun}"


def _seeds_text(score: MeanScore, summary: Summary) -> str:
    noun = common_replicate_noun(case for case in summary.snapshot.cases if case.identity in score.scores)
    return counted_range((len(seeds) for seeds in score.scores.values()), noun)


def _row_label(row: _Row) -> str:
    return ", ".join(row.labels)


def _next_steps(summary: Summary, rows: Sequence[_Row]) -> list[str]:
    """Returns advice for a checkpoint that was chosen on the seeds of its score."""
    is_checkpoint = summary.snapshot.subjects[rows[0].index].subject.has_theta
    has_fresh_seeds = not all(case.fixed_seeds for case in summary.snapshot.cases)
    if not is_checkpoint or sum(row.is_ranked for row in rows) < 2:
        return []
    if not has_fresh_seeds:
        replicates = f"{common_replicate_noun(summary.snapshot.cases)}s"
        return [
            f"optimistic, because the score's {replicates} chose the best, and they are the same in each evaluation"
        ]
    return ["optimistic, because the score's seeds chose the best: `lobench best` evaluates the top on fresh seeds"]


def _table_rows(summary: Summary, rows: Sequence[_Row]) -> list[list[str]]:
    snapshot = summary.snapshot
    has_lost = any(snapshot.subjects[row.index].num_missing for row in rows)
    has_exploded = any(snapshot.subjects[row.index].num_exploded for row in rows)
    kind = "checkpoint" if all(subject.subject.has_theta for subject in snapshot.subjects) else "method"
    cases_without_score = _without_scores(summary) if all(math.isnan(row.score.mean) for row in rows) else []
    is_several = len(snapshot.cases) > 1
    means = [
        f"{name}, {case.primary_metric}" if is_several else case.primary_metric for name, case in cases_without_score
    ]
    header = ["rank", kind, *(means or ["score [95%]"]), "cases", "diverged"]
    header += [*(["exploded"] if has_exploded else []), *(["no result"] if has_lost else []), "training time"]
    table = [header]
    rank, rank_score = 0, math.nan
    for place, row in enumerate(rows, 1):
        if not is_level(row.score.mean, rank_score):
            rank, rank_score = place, row.score.mean
        subject = snapshot.subjects[row.index]
        num_cases = len(snapshot.cases)
        cases_text = (
            f"{row.score.num_cases}" if row.score.num_cases == num_cases else f"{row.score.num_cases} of {num_cases}"
        )
        line = [
            f"{rank}" if row.is_ranked else "-",
            _row_label(row),
            *([_mean_cell(subject, case) for _, case in cases_without_score] or [interval_cell(row.score.interval)]),
            cases_text,
            f"{subject.num_diverged} of {subject.num_seeds}",
        ]
        line += [str(subject.num_exploded)] if has_exploded else []
        line += [str(subject.num_missing)] if has_lost else []
        table.append([*line, _time_cell(summary, row)])
    return table


def _without_scores(summary: Summary) -> list[tuple[str, CaseInfo]]:
    """Returns the names and the first cases of a store without scores. Their final values are shown instead."""
    snapshot = summary.snapshot
    return [(snapshot.case_name(index), case) for index, case in enumerate(snapshot.cases[:_MOST_CASES])]


def _mean_cell(subject: StoredSubject, case: CaseInfo) -> str:
    """Returns the mean final value over the seeds, "diverged" if a seed diverged; "-" without a result."""
    cell = subject.cells.get(case.identity)
    values = list(cell.final_values.get(case.primary_metric, {}).values()) if cell is not None else []
    return final_mean_text(mean_of(values)) if values else "-"


def _time_cell(summary: Summary, row: _Row) -> str:
    """Returns the total seconds of a row's trainings."""
    cells = summary.snapshot.subjects[row.index].cells.values()
    curves = {id(block): block for cell in cells for block in cell.blocks}
    seconds = math.fsum(curve.wall_seconds for curve in curves.values())
    return duration_text(seconds) if seconds > 0 else "-"


def _best_settings_lines(summary: Summary, rows: Sequence[_Row]) -> list[str]:
    """Returns the best setting of each search, and whether a value of it is the smallest or largest that was tried."""
    snapshot = summary.snapshot
    edges = edge_notes_by_label(snapshot)
    lines = []
    for row in rows:
        if snapshot.search_of(row.index) is not None:
            label = snapshot.labels[row.index]
            lines.append(f"{label}: {hyperparameters_text(snapshot, row.index)}")
            lines += [f"{label}: {edge}" for edge in edges.get(label, ())]
    return lines


def _ranking_notes(summary: Summary, rows: Sequence[_Row]) -> list[str]:
    """Returns notes on the scores, and on limits of the ranking."""
    snapshot = summary.snapshot
    lines = summary.scales.describe("`lobench baseline` tunes one").splitlines()
    if all(math.isnan(row.score.mean) for row in rows):
        lines = lines[1:]  # the first line describes scores, and there are none
    if cases_text := summary.common_cases_text("primary", with_names=False):
        lines.append(f"scores are over {cases_text}")
    if any(not row.is_ranked and not math.isnan(row.score.mean) for row in rows):
        lines.append("-: lacks a case or a planned seed, left a race, or diverged on every seed")
    lines += [*race_notes(summary, has_bounds=False), *filter(None, [snapshot.num_seeds_line()])]
    chosen = [row.labels[0] for row in rows if (search := snapshot.search_of(row.index)) and not search.has_fresh_seeds]
    if chosen:
        lines.append(f"optimistic, on the seeds that chose the setting: {shortened_list(chosen, _MAX_NAMED)}")
    outcomes = Counter(
        str(row.outcome) for row in snapshot.rows if row.outcome is not Outcome.PASSED and row.present_sightings
    )
    if outcomes:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        lines.append(f"evaluations that did not pass: {counts}")
    if snapshot.experiment.num_other_optimizers:
        outside_text = counted(snapshot.experiment.num_other_optimizers, "optimizer")
        lines.append(
            f"the store also has {outside_text} outside the experiment's last run; "
            "`lobench results --by method --all` has them"
        )
    return lines
