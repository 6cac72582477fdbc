"""Output formats of `lobench results`."""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, cast

from lobench.cli.output import json_parts, json_text, not_printed, warn
from lobench.core.case import CaseInfo, canonical_case_name, ordinary_test_name
from lobench.core.errors import StoreError, UsageError
from lobench.core.metric import stored_spelling
from lobench.core.wording import convert_errors, one_line, shortened_list
from lobench.engine.store.edited_code import ResultCodes, edited_code, edited_code_line
from lobench.engine.store.ledger import EvaluationRow, Ledger

if TYPE_CHECKING:
    import pandas as pd

    from lobench.analysis.comparisons.summary import Summary
    from lobench.engine.store.current import CurrentCases
    from lobench.report.tables.result_records import ResultRecord

__all__ = [
    "atomic_output",
    "csv_chunks",
    "evaluations_text",
    "export_every_eval_ever",
    "export_parquet",
    "history_text",
    "json_chunks",
    "method_table_text",
    "store_ranking_text",
]


_CHUNK = 1 << 16  # characters
_MAX_BYTES_IN_MEMORY = 1 << 24  # bytes
_MAX_NAMED = 6


@contextlib.contextmanager
def json_chunks(store: Path, pattern: str, *, curves: bool) -> Iterator[Iterable[str]]:
    """Yields the parts of the JSON document with the evaluations and the checkpoints that could not be read."""
    from lobench.report.tables.result_records import result_records

    def write(file: TextIO, results: _StoredRows) -> None:
        records = result_records(results.rows(), results.codes, with_curves=curves)
        for part in json_parts("results", itertools.chain(records, _unread_records(results.ledger))):
            file.write(part)  # `writelines` would look at the size only at the end
        file.write("\n")

    with _buffered_text(store, pattern, write) as chunks:
        yield chunks


@contextlib.contextmanager
def csv_chunks(store: Path, pattern: str) -> Iterator[Iterable[str]]:
    """Yields the parts of a csv file with a row for each value, as `StoredResults.frame` has them."""
    from lobench.analysis.tables.frames import value_frames

    def write(file: TextIO, results: _StoredRows) -> None:
        if _write_csv(file, value_frames(results.rows()), csv.QUOTE_MINIMAL):
            # Readers of the file take a carriage return for the end of a line. It is quoted only if all text is.
            file.seek(0)
            file.truncate()
            _write_csv(file, value_frames(results.rows()), csv.QUOTE_NONNUMERIC)

    with _buffered_text(store, pattern, write) as chunks:
        yield chunks


def _write_csv(file: TextIO, frames: Iterable[pd.DataFrame], quoting: Literal[0, 1, 2, 3]) -> bool:
    """Writes the parts of a frame as one csv file. Returns whether a text has a carriage return."""
    has_carriage_return = False
    for index, frame in enumerate(frames):
        text_columns = frame.select_dtypes(exclude="number")
        has_carriage_return = has_carriage_return or any(
            "\r" in str(name) for column in text_columns for name in text_columns[column].unique()
        )
        frame = frame.assign(**{name: frame[name].map(_escape_formula) for name in text_columns})
        file.write(frame.to_csv(index=False, header=index == 0, quoting=quoting))
    return has_carriage_return


class _StoredRows:
    """Evaluations of the cases that match a pattern, read one by one."""

    def __init__(self, store: Path, pattern: str, ledger: Ledger) -> None:
        self._store, self._pattern, self.ledger = store, pattern, ledger
        self.codes = ResultCodes(ledger)
        self._is_edited = False

    def rows(self) -> Iterator[EvaluationRow]:
        for row in _matching_rows(self._store, self._pattern, self.ledger.evaluations()):
            self._is_edited = self._is_edited or any(
                self.codes.changed_files_of_code(self.codes.code_of(row, subject)) for subject in row.sightings
            )
            yield row

    def warn_of_other_code(self) -> None:
        """Warns if evaluations that were read are current results of other code than the user's present code."""
        if self._is_edited:
            rows = list(_matching_rows(self._store, self._pattern, self.ledger.evaluations(summarized=True)))
            warn(_other_code_line(self.ledger, rows))


@contextlib.contextmanager
def _buffered_text(store: Path, pattern: str, write: Callable[[TextIO, _StoredRows], None]) -> Iterator[Iterable[str]]:
    """Yields the parts of a text that `write` makes of the evaluations of a store.

    The text is buffered in a file until it is complete, so that a store with a damaged last row prints no partial one.
    """
    with tempfile.SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY, "w+", encoding="utf-8", newline="") as file:
        is_written = convert_errors(OSError, StoreError, "cannot write this file", where=tempfile.gettempdir())
        with is_written, Ledger.open(store, read_only=True) as ledger:
            results = _StoredRows(store, pattern, ledger)
            write(cast("TextIO", file), results)
            results.warn_of_other_code()
        file.seek(0)
        yield iter(lambda: file.read(_CHUNK), "")


def export_every_eval_ever(store: Path, folder: Path | None) -> None:
    """Writes a JSON file for each subject of a store, in the format of Every Eval Ever.

    Raises:
      UsageError: No folder is given, it contains files, or no subject has a finite value.
    """
    from lobench.analysis.comparisons.summary import summary_of
    from lobench.engine.whole_file import require_writable, write_whole
    from lobench.report.tables.every_eval_ever import every_eval_ever_records

    if folder is None or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        got = "no --output" if folder is None else str(folder)
        raise UsageError("--format every-eval-ever", got=got, expected="--output with a folder, missing or empty")
    summary = summary_of(store)
    records_by_file = dict(every_eval_ever_records(summary))
    if not records_by_file:
        raise UsageError("no subject has a value", where=str(store))
    require_writable(folder / next(iter(records_by_file)))
    for name, record in records_by_file.items():
        write_whole(folder / f"{name}.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    warn(summary.snapshot.edited_code_line())


def evaluations_text(store: Path, pattern: str, *, sort: str, metrics: Sequence[str] = ()) -> str:
    """Returns a table of the evaluations, and lines on checkpoints that could not be read.

    Raises:
      UsageError: No evaluation has one of the metrics.
    """
    from lobench.analysis.store.evaluation_summaries import evaluation_summaries
    from lobench.report.tables.table import results_table

    with Ledger.open(store, read_only=True) as ledger:
        rows = list(_matching_rows(store, pattern, ledger.evaluations(summarized=True)))
        current = ledger.current_cases(rows)
        other_code_line = _other_code_line(ledger, rows)
        unread_entries = list(_unread_records(ledger))
    summaries = evaluation_summaries(rows)
    stored_metrics = {name for summary in summaries for name in summary.final_means}
    extra_metrics = _stored_metrics(metrics, stored_metrics)
    lines = [results_table(summaries, sort=sort, metrics=extra_metrics)] if rows or not unread_entries else []
    primary_metrics = {row.case.primary_metric for row in rows}
    added_metrics = {name for summary in summaries for name in summary.plugin_metrics}
    hidden_metrics_lines = _hidden_metrics_lines(
        stored_metrics - {*extra_metrics, *primary_metrics, *added_metrics, "train/loss", "test/loss", "test/accuracy"}
    )
    return "\n".join([*lines, *hidden_metrics_lines, *_table_notes(rows, current, other_code_line, unread_entries)])


def _other_code_line(ledger: Ledger, rows: Sequence[EvaluationRow]) -> str:
    """Returns a line on current results that other code than the user's present code made; "" if there are none."""
    if not (edited_codes := edited_code(ledger, rows)):
        return ""
    are_current = ledger.current_cases(rows).are_current(rows)
    return edited_code_line(
        [row for row, is_current in zip(rows, are_current, strict=True) if is_current], edited_codes
    )


def _stored_metrics(metrics: Sequence[str], stored_names: Collection[str]) -> list[str]:
    """Returns the names of metrics in the spelling of the store.

    Raises:
      UsageError: There is no such metric.
    """
    metric_names = [stored_spelling(metric, stored_names) for metric in metrics]
    for metric in metric_names:
        if metric not in stored_names:
            raise UsageError(
                "no evaluation has this metric", got=repr(metric), expected=", ".join(sorted(stored_names))
            )
    return list(dict.fromkeys(metric_names))


def _hidden_metrics_lines(hidden_metrics: Collection[str]) -> list[str]:
    """Returns a line that names the metrics that a table does not show; [] if it shows all."""
    return (
        [f"other metrics, by --metric: {shortened_list(sorted(hidden_metrics), _MAX_NAMED)}"] if hidden_metrics else []
    )


def _repeated_cases_lines(summary: Summary) -> list[str]:
    """Returns a line on cases that count as another one, since they have the same training; [] if there are none."""
    from lobench.analysis.store.subjects import repeated_cases_note

    note = repeated_cases_note(summary.snapshot.left_out.repeated_cases)
    return [one_line(note)] if note else []


def store_ranking_text(store: Path, *, include_all: bool) -> str:
    """Returns the methods or checkpoints, best first, and lines on checkpoints that could not be read."""
    from lobench.analysis.comparisons.summary import summary_of_methods
    from lobench.report.tables.ranking import ranking_text

    with Ledger.open(store, read_only=True) as ledger:
        unread_entries = list(_unread_records(ledger))
    summary = summary_of_methods(store)
    rows = summary.snapshot.rows
    current_cases = summary.snapshot.current
    lines = [ranking_text(summary, include_all=include_all)] if rows or not unread_entries else []
    lines += _hidden_metrics_lines(_hidden_metrics(summary, ()))
    lines += _repeated_cases_lines(summary)
    return "\n".join([*lines, *_table_notes(rows, current_cases, summary.snapshot.edited_code_line(), unread_entries)])


def _table_notes(
    rows: Sequence[EvaluationRow], current: CurrentCases, other_code_line: str, unread_entries: Iterable[ResultRecord]
) -> list[str]:
    """Returns the lines below a table: several programs, codes and bindings, unreadable checkpoints."""
    from lobench.analysis.store.subjects import notes_on_rows

    notes = [*notes_on_rows(rows, current), other_code_line]
    notes += [f"{record['outcome']}: {record['message']}" for record in unread_entries]
    return [one_line(note) for note in notes if note]


def _unread_records(ledger: Ledger) -> Iterator[ResultRecord]:
    from lobench.report.tables.result_records import unread_records

    read_uris = {checkpoint.uri for checkpoint in ledger.sightings().values()}
    return unread_records(ledger.events(), read_uris)


def _hidden_metrics(summary: Summary, shown_metrics: Collection[str]) -> set[str]:
    """Returns the metrics of a summary that no table shows, except the losses of train and test."""
    snapshot = summary.snapshot
    all_metrics = {name for subject in snapshot.subjects for name in subject.metrics()}
    return all_metrics - {*shown_metrics, *(case.primary_metric for case in snapshot.cases), "train/loss", "test/loss"}


def method_table_text(
    store: Path,
    output_format: str,
    experiment: str | None,
    *,
    include_all: bool,
    table: Path | None,
    metrics: Sequence[str] = (),
) -> str:
    """Returns the table of methods and cases of an experiment, or of the whole store, as text or as JSON.

    Raises:
      UsageError: No evaluation has one of the metrics.
    """
    from lobench.analysis.comparisons.listed_part import best_methods
    from lobench.analysis.comparisons.summary import summary_of_methods
    from lobench.analysis.tables.table import TableSpec, read_table
    from lobench.analysis.tables.tabulate import tabulate
    from lobench.report.tables.method_table import method_records, method_text

    spec = read_table(table) if table is not None else TableSpec(rows="method", costs=True)
    summary = summary_of_methods(store, experiment, include_all=include_all)
    if metrics:
        stored_names = {name for subject in summary.snapshot.subjects for name in subject.metrics()}
        spec = replace(spec, metrics=[*(spec.metrics or summary.metrics), *_stored_metrics(metrics, stored_names)])
    if output_format == "json":
        warn(summary.snapshot.edited_code_line())
        return json_text("results.methods", method_records(tabulate(summary, spec)))
    listed_summary, note = best_methods(summary) if table is None and not include_all else (summary, "")
    notes = [f"{note}; --all shows all"] if note else []
    return "\n".join(
        [
            method_text(tabulate(listed_summary, spec)),
            *notes,
            *_hidden_metrics_lines(_hidden_metrics(summary, spec.metrics)),
            *_repeated_cases_lines(summary),
        ]
    )


def history_text(store: Path, output_format: str) -> str:
    """Returns the experiments and runs of the stores in or below a folder, as tables or as JSON."""
    from lobench.analysis.comparisons.run_history import experiment_history, find_stores, run_history
    from lobench.analysis.store.snapshot import read_store
    from lobench.report.tables.history_tables import experiments_table, history_table

    stores = find_stores(store)
    experiments = experiment_history(stores)
    runs = run_history(stores)
    if output_format == "table":
        lines = (read_store(store, summarized=True).edited_code_line() for store in stores)
        notes = [f"{store}: {line}" for store, line in zip(stores, lines, strict=True) if line]
        tables = [experiments_table(experiments)] * bool(experiments) + ["\n".join([history_table(runs), *notes])]
        return "\n\n".join(tables)
    return json_text("results.history", [*experiments, *runs])


def _escape_formula(cell: object) -> object:
    """Escapes a text so that no spreadsheet evaluates it: `=1+1` becomes `'=1+1`."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA_STARTS else cell


_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def export_parquet(store: Path, output: Path | None, pattern: str) -> None:
    """Writes the results of a store as a parquet file with a row for each value.

    Args:
      store: Folder of the store.
      output: Path of the file.
      pattern: Pattern for the names of cases.
    Raises:
      UsageError: No path is given, or pyarrow is not installed.
    """
    from lobench.analysis.tables.frames import value_frame

    if output is None:
        raise not_printed("parquet")
    with Ledger.open(store, read_only=True) as ledger:
        results = _StoredRows(store, pattern, ledger)
        frame = value_frame(results.rows())
        results.warn_of_other_code()
    try:
        with atomic_output(output) as file:
            frame.to_parquet(file, index=False)
    except ImportError as error:
        raise UsageError(
            "parquet needs pyarrow", next_step="pip install 'lobench[parquet]', or take --format csv"
        ) from error


@contextlib.contextmanager
def atomic_output(output: Path) -> Iterator[Path]:
    """Yields the path of a file to write, which then replaces an output file; see `replacing_file`.

    Raises:
      StoreError: Writing failed, for example on a full disk. An earlier output file is not changed.
    """
    from lobench.engine.whole_file import replacing_file

    with convert_errors(OSError, StoreError, "cannot write this file", where=output), replacing_file(output) as file:
        yield file


def _matching_rows(store: Path, pattern: str, rows: Iterable[EvaluationRow]) -> Iterator[EvaluationRow]:
    """Yields the evaluations of the cases that match a pattern.

    Raises:
      UsageError: There are evaluations, but none of a matching case.
    """
    if pattern == "*":
        yield from rows
        return
    patterns = {pattern, canonical_case_name(pattern), ordinary_test_name(pattern)}
    is_match_by_case = dict[CaseInfo, bool]()
    for row in rows:
        if row.case not in is_match_by_case:
            names = row.case.names
            is_match_by_case[row.case] = row.case.has_name(pattern) or any(
                fnmatchcase(name, pattern) for name in names for pattern in patterns
            )
        if is_match_by_case[row.case]:
            yield row
    if not any(is_match_by_case.values()):
        case_names = ", ".join(sorted({f"{case.suite}/{case.name}" for case in is_match_by_case}))
        raise UsageError("--case matches no case", where=str(store), got=repr(pattern), expected=f"one of {case_names}")
