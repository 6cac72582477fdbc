"""Report page: one self-contained HTML file for a store."""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from lobench.analysis.comparisons.listed_part import ListedPart, listed_part
from lobench.analysis.comparisons.step_costs import class_costs
from lobench.analysis.comparisons.summary import CaseFinding, Summary
from lobench.analysis.comparisons.viewer_index import ViewerIndex
from lobench.analysis.stats.comparison import PairComparison
from lobench.analysis.stats.speedup import Speedup
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import diverged_names, exploded_names
from lobench.analysis.tables.table import Panel, TableSpec, Tabulated, cell_text
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.errors import StoreError
from lobench.core.result import mean_of
from lobench.core.step_cost import UNSTEADY_NOTE
from lobench.core.wording import convert_errors, counted
from lobench.drawing.svg import format_number
from lobench.engine.whole_file import write_whole
from lobench.report.charts.charts import sections
from lobench.report.charts.films import films
from lobench.report.page.explorer import explorer_data, subject_keys
from lobench.report.page.templates import TableCell, render_template
from lobench.report.tables.text import overhead_cell, step_cell
from lobench.report.tables.verdict import (
    cards,
    interval_text,
    pair_card,
    report_subtitle,
    report_title,
    report_warnings,
    verdict_lines,
)

__all__ = ["reading_page", "render_page", "waiting_page", "write_page"]

_MAX_FAILURES = 50
_MAX_HEAT_ROWS = 40  # rows of the map of methods by cases
_VIEWS = (
    ("overview", "Overview"), ("cases", "Cases"), ("curves", "Curves"), ("evaluations", "Evaluations"),
    ("compare", "Compare"), ("searches", "Searches"), ("alarms", "Alarms"), ("failures", "Failures"),
    ("provenance", "Provenance"),
)  # fmt: skip
_MAX_ONE_LINE_COLUMNS = 5  # columns of a table whose cells are in one line
_NUM_SHADES = 8  # shades in the style sheet


def write_page(summary: Summary, output: Path, spec: TableSpec | None = None, figure: str | None = None) -> None:
    """Writes the page atomically, because it may be open in a browser."""
    text = render_page(summary, spec, figure)
    with convert_errors(OSError, StoreError, "cannot write the report", where=output):
        write_whole(output, text)


def render_page(
    summary: Summary,
    spec: TableSpec | None = None,
    figure: str | None = None,
    *,
    version: str = "",
    listed_parts: ListedPart | None = None,
) -> str:
    """Returns the page as HTML.

    Args:
      summary: Summary of the store.
      spec: Layout of the table of methods. None: the default.
      figure: Charts to include. None: all, and the explorer.
      version: Version of a served page, which requests style, scripts and data. "": a self-contained file.
      listed_parts: Subjects that the page lists. None: those of `listed_part`.
    Raises:
      StoreError: The store has no evaluations.
    """
    snapshot = summary.snapshot
    snapshot.require_rows()
    comparison = summary.headline_comparison()
    cases = summary.shown_cases(comparison)
    listed_parts = listed_parts or listed_part(summary)
    keys = _link_keys(listed_parts.subjects.snapshot)
    chart_sections = sections(summary, figure)
    explorer: str | Markup = ""
    if figure is None:  # a served page gets only the version of the data, and requests them itself
        explorer = version or _script_json(explorer_data(ViewerIndex(listed_parts.subjects), served=False))
    costs = _cost_columns(summary, cases)
    context: dict[str, Any] = {
        "subtitle": report_subtitle(snapshot),
        "version": version,
        "explorer": explorer,
        "cards": cards(summary, None),
        "pair_cards": [pair_card(f"Against {snapshot.labels[summary.reference_index]}", comparison)]
        if comparison
        else [],
        "verdict_lines": verdict_lines(summary, comparison, cases),
        "warnings": [
            *report_warnings(summary, cases),
            *([_left_out_note(listed_parts, snapshot)] if listed_parts.note else []),
        ],
        "chart_sections": chart_sections,
        "views": _VIEWS if figure is None else (),
        "heat": _heat_table(summary, keys) if figure is None else {},
        "films": films(summary) if figure is None else [],
        "cases_note": _cases_note(summary, cases),
        **_case_table(summary, cases, costs, _column_help(summary, comparison)),
        **_method_tables(summary if spec is not None and spec.methods else listed_parts.methods, spec),
        "failures": _failure_lines(snapshot, keys if figure is None else {}),
        "is_one": len(snapshot.subjects) < 2,
        "command": f"lobench results --store {shlex.quote(str(snapshot.store))} --format json",
        **_provenance_lists(summary),
    }
    return render_template("page.html", title=report_title(snapshot), served=bool(version), script="page.js", **context)


def waiting_page(store: Path) -> str:
    """Returns the page that is served while the store has no evaluations."""
    text = f"{store} holds no evaluation yet. This page becomes the report when the first one is there."
    return render_template(
        "waiting.html", title="lobench: waiting for results", served=True, heading="No result yet", text=text
    )


def reading_page(store: Path, num_evaluations: int) -> str:
    """Returns the page that is served until the store has been read for the first time."""
    text = f"{counted(num_evaluations, 'evaluation')} of {store}. This page becomes the report in a few seconds."
    return render_template(
        "waiting.html",
        title="lobench: reading the store",
        served=True,
        heading="Reading the store",
        text=text,
    )


def _left_out_note(listed_parts: ListedPart, snapshot: Snapshot) -> str:
    """Returns the note on subjects that the page does not list, with commands that show them."""
    store = shlex.quote(str(snapshot.store))
    return (
        f"{listed_parts.note} `lobench results --store {store} --all` ranks every checkpoint and method, and "
        f"`lobench report --store {store} --method NAME` makes a page of others."
    )


def _link_keys(snapshot: Snapshot) -> dict[int, str]:
    """Returns the keys of subjects in links, by the `id` of the subject."""
    return dict(zip(map(id, snapshot.subjects), subject_keys(snapshot), strict=True))


def _method_tables(summary: Summary, spec: TableSpec | None) -> dict[str, Any]:
    """Returns the table of methods. It is empty for the checkpoints of a single run, unless a table is requested."""
    snapshot = summary.snapshot
    if spec is None and not snapshot.groups.has_several_methods:
        return {"method_panels": [], "method_legend": (), "method_bold": "", "method_notes": ()}
    table = tabulate(summary, spec or TableSpec(rows="method", costs=True))
    return {
        "method_panels": [_panel_content(panel, table) for panel in table.panels],
        "method_legend": table.legend,
        "method_bold": table.bold,
        "method_notes": table.notes,
    }


def _panel_content(panel: Panel, table: Tabulated) -> tuple[str, list[str], list[list[str | TableCell]]]:
    """Returns title, columns and rows of a panel. Cells of wide tables have several lines."""
    title = panel.heading or "mean score"
    num_columns = max((len(line.entries) for line in panel.lines), default=0)
    is_wide = num_columns > _MAX_ONE_LINE_COLUMNS
    rows = list[list[str | TableCell]]()
    for line in panel.lines:
        row: list[str | TableCell] = [line.heading.text]
        for entry in line.entries:
            text = cell_text(entry, panel.digits)
            text = text.replace(" [", "\n[").replace(" (", "\n(") if is_wide else text
            is_mean = entry is not None and not entry.eliminated_by
            value = _sort_value(entry.interval.mean) if entry is not None and is_mean else ""
            row.append(TableCell(text=text, value=value, is_bold=entry is not None and entry.is_bold))
        rows.append(row)
    return title, [title, *(column.text for column in table.columns[:num_columns])], rows


def _link(view: str, *path_parts: str) -> str:
    """Returns the address of a view, as `linkTo` in the script."""
    return "#/" + "/".join([view, *(quote(path_part, safe="") for path_part in path_parts)])


def _heat_table(summary: Summary, keys: Mapping[int, str]) -> dict[str, Any]:
    """Returns the mean score of each method on each case, the best method on top. `keys` are those of `_link_keys`."""
    snapshot = summary.snapshot
    means = {
        index: summary.mean_score(index, "primary").mean
        for index in snapshot.groups.short_table_indices(summary.headline_index)
    }
    indices = sorted((index for index, mean in means.items() if not math.isnan(mean)), key=lambda index: -means[index])
    rows = []
    for index in indices[:_MAX_HEAT_ROWS]:
        scores = summary.own_scores(index, "primary")
        cells: list[str | TableCell] = [snapshot.labels[index]]
        for case, info in enumerate(snapshot.cases):
            mean = mean_of(list(scores[info.identity].values())) if scores.get(info.identity) else math.nan
            shade = round(_NUM_SHADES * min(max(mean, 0.0), 1.0)) if math.isfinite(mean) else 0
            text = format_number(round(mean, 2)) if math.isfinite(mean) else "-" if snapshot.cell(index, case) else ""
            key = keys.get(id(snapshot.subjects[index]), "")
            link = _link("evaluation", key, snapshot.case_name(case)) if key else ""
            kind = f"h{shade}" if shade else ""
            cells.append(TableCell(text=text, kind=kind, link=link))
        rows.append(cells)
    note = f"Mean scores over seeds: {summary.scale_label}. A cell leads to its evaluation."
    if len(indices) > _MAX_HEAT_ROWS:
        note += f" The best {_MAX_HEAT_ROWS} of {len(indices)} are here."
    names = [snapshot.case_name(case) for case in range(len(snapshot.cases))]
    columns = ["score", *(TableCell(text=name, link=_link("case", name)) for name in names)]
    return {"columns": columns, "rows": rows, "note": note} if rows else {}


def _column_help(summary: Summary, comparison: PairComparison | None) -> dict[str, str]:
    """Returns explanations of columns in the table of cases, by name, for columns that need one."""
    texts = {"exploded": "seeds that ended far above their own start"}
    if summary.baseline_label:
        speedup = f"steps of {summary.baseline_label} to this loss, divided by ours; with >= it is censored"
        texts["speed-up"] = f"{speedup}; over the best single setting"
        texts["speed-up, envelope"] = (
            f"{speedup}; over the envelope of all settings, a per-step oracle (smoothed over about 20 evaluations: "
            "on short budgets it lags, and the speed-up over it is optimistic)"
        )
        texts["tuned"] = f"final value of {summary.baseline_label}"
    if comparison is not None:
        are_paired = {case.paired.is_paired for case in comparison.cases}
        pairing_text = "paired by seed" if are_paired == {True} else "not paired by seed"
        pairing_text = pairing_text if len(are_paired) == 1 else "paired by seed on some cases"
        reference_label = summary.snapshot.labels[summary.reference_index]
        texts["change"] = (
            f"difference of the score to {reference_label}, {pairing_text}, without seeds that diverged or exploded"
        )
    return texts


def _cases_note(summary: Summary, cases: Sequence[CaseFinding]) -> str:
    note = f"{summary.snapshot.capitalized_labels[summary.headline_index]}: seed means of the final values."
    if any(case.effect is not None and case.effect.paired.has_diverged for case in cases):
        note += " The change leaves out seeds that diverged or exploded; the verdict counts them."
    return note


_CellColumns = Mapping[str, Mapping[int, TableCell]]  # by name, then case


def _case_table(
    summary: Summary, cases: Sequence[CaseFinding], costs: _CellColumns, meanings: Mapping[str, str]
) -> dict[str, Any]:
    has_baseline = bool(summary.baseline_label)
    has_effect = any(case.effect is not None for case in cases)
    names = ["case"]
    for metric in summary.metrics:
        label = summary.metric_label(metric)
        names += [label, *(["tuned"] if has_baseline else []), f"score on {label}"]
    names += ["speed-up", "speed-up, envelope"] if has_baseline else []
    names += ["change", "verdict"] if has_effect else []
    names += ["diverged", "exploded", "seeds"]
    names += costs
    cost_help = f"of one seed, without compilation and evaluations; {UNSTEADY_NOTE}"
    meanings = {**meanings, **dict.fromkeys(costs, cost_help)}
    columns = [TableCell(text=name, help=meanings.get(name, "")) for name in names]
    rows = [
        _case_row(summary, case, has_baseline=has_baseline, has_effect=has_effect)
        + [cells.get(case.case_index, TableCell(text="-")) for cells in costs.values()]
        for case in cases
    ]
    verdict_columns = [index for index, name in enumerate(names) if name == "verdict"]
    return {"case_columns": columns, "case_rows": rows, "case_words": verdict_columns}


def _cost_columns(summary: Summary, cases: Sequence[CaseFinding]) -> _CellColumns:
    """Returns columns with the cost of a step of the headline subject, per class of machines."""
    columns: dict[str, dict[int, TableCell]] = {}
    for case in (case.case_index for case in cases):
        cell = summary.snapshot.cell(summary.headline_index, case)
        for costs in class_costs([cell], summary.metric_of(case, summary.metrics[0])):
            for side in costs.timed_sides:
                seconds = TableCell(text=step_cell(side.seconds), value=_sort_value(side.seconds.median))
                columns.setdefault(f"seconds of a step ({costs.machine})", {})[case] = seconds
                if not math.isnan(side.overhead.ratio):
                    ratio = TableCell(text=overhead_cell(side.overhead), value=_sort_value(side.overhead.ratio))
                    columns.setdefault(f"times a gradient step ({costs.machine})", {})[case] = ratio
    return columns


def _case_row(summary: Summary, case: CaseFinding, *, has_baseline: bool, has_effect: bool) -> list[TableCell]:
    snapshot = summary.snapshot
    row = [TableCell(text=snapshot.case_name(case.case_index), link=_link("case", snapshot.case_name(case.case_index)))]
    baseline = summary.case_baseline(case.case_index)
    for metric in summary.metrics:
        name = summary.metric_of(case.case_index, metric)
        row.append(_number_cell(case.final_means[name]) if name in case.final_means else TableCell(text="-"))
        if has_baseline:
            is_tuned = baseline is not None and name in baseline.tuned
            row.append(_number_cell(baseline.tuned_mean(name)) if baseline and is_tuned else TableCell(text="-"))
        score = case.scores.get(metric)
        row.append(
            TableCell(text=interval_text(score), value=_sort_value(score.mean)) if score else TableCell(text="-")
        )
    if has_baseline:
        row += [_speedup_cell(case.best_single), _speedup_cell(case.envelope)]
    if has_effect:
        row += _effect_cells(case)
    for count in (case.num_diverged, case.num_exploded):
        kind = "bad" if count else ""
        row.append(TableCell(text=str(count), value=str(count), kind=kind))
    row.append(TableCell(text=str(case.num_seeds), value=str(case.num_seeds)))
    return row


def _effect_cells(finding: CaseFinding) -> list[TableCell]:
    if finding.effect is None:
        return [TableCell(text="-"), TableCell(text="-")]
    paired = finding.effect.paired
    verdict = str(finding.effect.verdict)
    kind = {"better": "good", "worse": "bad"}.get(verdict, "")
    return [
        TableCell(text=interval_text(paired), value=_sort_value(paired.mean)),
        TableCell(text=verdict, value=verdict, kind=kind),
    ]


def _number_cell(value: float) -> TableCell:
    return TableCell(text="diverged" if math.isnan(value) else format_number(value), value=_sort_value(value))


def _speedup_cell(speedup: Speedup | None) -> TableCell:
    if speedup is None:
        return TableCell(text="-")
    return TableCell(text=f"{speedup}" + ("" if math.isnan(speedup.value) else "x"), value=_sort_value(speedup.value))


def _sort_value(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def _failure_lines(snapshot: Snapshot, keys: Mapping[int, str]) -> list[TableCell]:
    """Returns a line for each failure and each group of diverged or exploded seeds, then the notes on the store.

    Args:
      snapshot: Content of the store.
      keys: Key of each subject for links to its evaluations, as returned by `_link_keys`.
    """
    lines = list[TableCell]()
    for index, case in itertools.product(range(len(snapshot.subjects)), range(len(snapshot.cases))):
        cell = snapshot.cell(index, case)
        if cell is None or not (cell.unconverged_seeds or cell.failures):
            continue
        diverged_texts = [f"{name} at inner step {step}" for name, step in diverged_names(cell).items()]
        texts = [f"{outcome}: {message}" for outcome, message in cell.failures]
        if diverged_texts:
            num_seeds_text = counted(len(cell.seeds), cell.case.replicate_noun)
            texts.insert(0, f"{len(diverged_texts)} of {num_seeds_text} diverged: {', '.join(diverged_texts)}")
        if exploded_texts := exploded_names(cell):
            num_seeds_text = counted(len(cell.seeds), cell.case.replicate_noun)
            texts.append(
                f"{len(exploded_texts)} of {num_seeds_text} exploded, above twice the start: "
                f"{', '.join(exploded_texts)}"
            )
        where = f"{snapshot.labels[index]}, {snapshot.case_name(case)}"
        key = keys.get(id(snapshot.subjects[index]), "")
        link = _link("evaluation", key, snapshot.case_name(case)) if key else ""
        lines += [TableCell(value=f"{where}:", link=link, text=text) for text in texts]
    if note := snapshot.edited_code_line():
        lines.insert(0, TableCell(text=note))
    if snapshot.left_out.num_skipped:
        count_text = counted(snapshot.left_out.num_skipped, "checkpoint")
        lines.append(TableCell(text=f"skipped: {count_text}, by --checkpoints: newer ones waited"))
    num_omitted = len(lines) - _MAX_FAILURES
    return [
        *lines[:_MAX_FAILURES],
        *([TableCell(text=f"and {num_omitted} more: see the list of evaluations")] if num_omitted > 0 else []),
    ]


def _script_json(value: Any) -> Markup:
    """Returns JSON for a script element, escaped so that it can neither end the element nor start a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _provenance_lists(summary: Summary) -> dict[str, Any]:
    snapshot, baseline = summary.snapshot, summary.scales.baselines.first_baseline
    case_curves = [(row.case, curves) for row, curves in snapshot.measured_rows() if curves is not None]
    curve_origins = list({id(curves.origin): curves.origin for _, curves in case_curves}.values())
    revisions = {
        curve_origin.git_revision + (" (with local changes)" if curve_origin.git_dirty else "")
        for curve_origin in curve_origins
    }
    versions = {
        f"{name} {version}" for curve_origin in curve_origins for name, version in curve_origin.versions.items()
    }
    pairs = [
        ("store", str(snapshot.store)),
        ("git revision of the suite", ", ".join(sorted(filter(None, revisions))) or "not in git"),
        ("versions", ", ".join(sorted(versions))),
        ("devices", ", ".join(sorted(filter(None, {curve_origin.device for curve_origin in curve_origins})))),
        ("hosts", ", ".join(sorted(filter(None, {curve_origin.host for curve_origin in curve_origins})))),
        ("inner program", "; ".join(sorted({str(row.program) for row in snapshot.rows}))),
    ]
    if origins := sorted(
        {
            f"{origin['file']} ({origin['sha256'][:12]})"
            for curve_origin in curve_origins
            if (origin := curve_origin.imported)
        }
    ):
        pairs.append(("imported from", "; ".join(origins)))
    if optimizers := sorted({curve_origin.optimizer for curve_origin in curve_origins if curve_origin.optimizer}):
        pairs.append(("learned optimizers", "; ".join(optimizers)))
    if baseline is not None:
        provenance = baseline.provenance
        cases = summary.scales.baselines.baseline_by_case.values()
        settings = _range_text(len(case.grid) for case in cases)
        seeds = _range_text(len(case.seeds) for case in cases)
        pairs.append(
            (
                "baseline",
                f"{baseline.label}, {baseline.protocol} protocol: on each case the best of {settings} settings "
                f"on {seeds} seeds; made by `{baseline.refresh}` on {provenance.get('device', '?')}, "
                f"git revision {str(provenance.get('git_revision', '?'))[:12]}",
            )
        )
    last_curves = {f"{case.suite}/{case.name}": curves for case, curves in case_curves}
    bindings = {name: curves.provenance.bindings for name, curves in last_curves.items()}
    return {"provenance": pairs, "bindings": sorted(bindings.items())}


def _range_text(counts: Iterable[int]) -> str:
    """Returns `15`, or `11 to 15` if the counts differ."""
    return (
        " to ".join(map(str, dict.fromkeys((min(sorted_counts), max(sorted_counts)))))
        if (sorted_counts := sorted(counts))
        else "0"
    )
