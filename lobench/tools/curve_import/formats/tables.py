"""Tidy tables in chunks, with a row for each value or step. csv, TSV or JSON, gzipped or not, or parquet.

method,case,seed,step,metric,value          method,case,seed,step,val_loss,val_acc
adam,mnist,0,100,val_loss,0.31              adam,mnist,0,100,0.31,0.91
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lobench.core.errors import UsageError
from lobench.core.metric import Direction, is_named_loss
from lobench.core.wording import convert_errors
from lobench.engine.csv_files import READ_ERRORS, open_text
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.formats.json_files import STEPS, is_json, json_rows
from lobench.tools.curve_import.points import (
    UNNAMED_CASE,
    WITH_SEED,
    CurveRequest,
    CurveRun,
    NotCurves,
    Points,
    bare_name,
    has_seed,
    named_run,
    step_numbers,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["column_names", "is_monitor", "monitor", "read_chunks", "tidy"]

_ROLES = ("method", "case", "seed", "step", "metric", "value")
_CHUNK_ROWS = 200_000  # rows
_NUM_SNIFFED = 1000  # lines of JSON whose names are the columns
_NOT_METRICS = {
    "_runtime", "_timestamp", "timestamp", "time", "wall_time", "wall time", "elapsed", "datetime", "date", "epoch",
    "unnamed: 0", "index", "",
}  # fmt: skip
# Columns of a run's name.
_RUN_COLUMNS = ("run", "run_name", "run_id", "name", "Name", "experiment", "experiment_name", "trial")
_METHOD_COLUMNS = ("optimizer", "opt", "algorithm", "algo", "model", "variant", "Optimizer", "Algorithm", "Model")
_NUMBERED_COLUMN = r"(?P<method>.+?)[-_/. ]s?(?P<seed>\d+)"  # names of columns, such as adam/0
_WHOLE_NUMBER = re.compile(r"^(\d+)\.0*$")
_NAN = ["nan", "+nan", "-nan"]
_MISSING = ["", "None", "none", "NULL", "null", "NA", "N/A", "<NA>"]


def column_names(path: Path, *, of_all_rows: bool = False) -> list[str]:
    """Returns the header of a csv or parquet file, or the names in the first rows of a JSON file.

    Args:
      path: Path of the file.
      of_all_rows: Whether to read a JSON file to its end.
    Raises:
      UsageError: The file cannot be read, or is empty.
    """
    if is_parquet(path):
        return list(_parquet_file(path).schema_arrow.names)
    if is_json(path):
        rows = (row for _, row in itertools.islice(json_rows(path), None if of_all_rows else _NUM_SNIFFED))
        return list(dict.fromkeys(name for row in rows for name, value in row.items() if value is not None))
    with (
        convert_errors((*READ_ERRORS, csv.Error), UsageError, "this is not a csv file", where=path),
        open_text(path) as file,
    ):
        header = _CsvHeader.read(file)
    if not any(header.names):
        raise NotCurves("the file is empty", where=str(path))
    return list(header.names)


def _numeric_columns(path: Path) -> list[str]:
    """Returns the columns with a number in every row that has a value, in the order of the file."""
    import pandas as pd

    columns = list(dict.fromkeys(name for name in column_names(path, of_all_rows=True) if name))
    is_numeric: dict[str, bool] = {}
    for chunk in read_chunks(path, columns):
        for name in columns:
            column = chunk.frame[name]
            if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
                if column.notna().any():
                    is_numeric.setdefault(name, True)
                continue
            texts = column.astype(object).dropna()
            texts = texts.astype(str).str.strip()
            texts = texts[texts != ""]
            if len(texts):
                are_numbers = pd.to_numeric(texts, errors="coerce").notna() | texts.str.lower().isin(_NAN)
                is_numeric[name] = is_numeric.get(name, True) and bool(are_numbers.all())
    return [name for name in columns if is_numeric.get(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CsvHeader:
    """Header of a csv file.

    Attributes:
      names: Names of the columns.
      delimiter: Comma or tab.
      num_lines: Number of lines before the first row.
      data_line: Line after the header, if it was read to distinguish the header from a comment. "": it was not read.
      is_commented: Whether a comment precedes the header, or the header is a comment.
    """

    names: Sequence[str]
    delimiter: str
    num_lines: int
    data_line: str = ""
    is_commented: bool = False

    @classmethod
    def read(cls, file: IO[str]) -> _CsvHeader:
        """Reads the header of a csv file.

        Lines before it that begin with `#` are comments, except for `# step,loss` above numbers.
        """
        comment, line, line_number = "", "", 0
        for line in file:
            line_number += 1
            if line.startswith("#"):
                comment = line[1:]
            elif line.strip():
                break
        else:
            line = ""
        delimiter = "\t" if line.count("\t") > line.count(",") else ","
        if comment:
            names = [name.strip() for name in next(csv.reader([comment], delimiter=delimiter), [])]
            cells = next(csv.reader([line], delimiter=delimiter), [])
            if len(names) == len(cells) > 1 and all(map(_is_number, cells)):
                return cls(
                    names=names, delimiter=delimiter, num_lines=line_number - 1, data_line=line, is_commented=True
                )
        reader = csv.reader(itertools.chain([line], file), delimiter=delimiter)
        names = [name.strip() for name in next(reader, [])]
        return cls(
            names=names, delimiter=delimiter, num_lines=line_number + reader.line_num - 1, is_commented=bool(comment)
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_monitor(path: Path) -> bool:
    """Returns whether a file is a monitor.csv of stable-baselines3: `r,l,t` below a line that begins with `#{`."""
    try:
        with open_text(path) as file:
            if file.read(2) != "#{":
                return False
        return column_names(path)[:3] == ["r", "l", "t"]
    except (*READ_ERRORS, UsageError):
        return False


def read_monitor(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the return `r` (or requested columns) of episodes in a monitor.csv of stable-baselines3.

    The step of an episode is its end: the sum of the lengths `l` so far.

    Raises:
      UsageError: A column is missing, or a value is not a number.
    """
    names = column_names(path)
    columns = [name for name in request.metrics.columns(names) if name in names] if request.metrics else ["r"]
    if not columns:
        expected = f"one of {', '.join(request.metrics)}"
        raise NotCurves("the monitor has no such column", where=str(path), got=", ".join(names), expected=expected)
    run = named_run(request.name or bare_name(path), request, is_file=True)
    last_step = 0
    for chunk in read_chunks(path, list(dict.fromkeys(["l", *columns]))):
        steps = last_step + np.cumsum(chunk.steps("l"))
        last_step = int(steps[-1]) if len(steps) else last_step
        for name in columns:
            yield Points.of_curve(run, name, steps, chunk.values(name), chunk.lines)


def _json_chunks(path: Path, columns: Sequence[str], text_columns: Sequence[str]) -> Iterator[TableChunk]:
    """Yields the rows that have a value of a requested metric, in parts. Other rows are logs of other metrics.

    Metrics are all columns except the first, which is the step, and columns of texts.
    """
    import pandas as pd

    number_columns = [name for name in columns if name not in text_columns]
    metrics = number_columns[1:] or number_columns or columns  # the first column is the step
    rows = (
        (line, _with_nulls(row, metrics, columns))
        for line, row in json_rows(path)
        if any(name in row for name in metrics)
    )
    while batch := list(itertools.islice(rows, _CHUNK_ROWS)):
        frame = pd.DataFrame({name: [row.get(name) for _, row in batch] for name in columns}, dtype=object)
        for name in columns:
            if name in text_columns:
                frame[name] = frame[name].map(_cell_text).astype("category")
            else:  # a logged NaN is a value, unlike a missing one
                frame[name] = frame[name].map(lambda cell: "nan" if cell != cell else cell)
        yield TableChunk(path=path, frame=frame, lines=np.asarray([line for line, _ in batch], np.int64))


def _with_nulls(row: dict[str, Any], metrics: Sequence[str], columns: Sequence[str]) -> dict[str, Any]:
    """Replaces null by NaN in the metrics of a row, since many writers spell NaN as null in JSON.

    Null means that the metric was not logged if the row has another number, in a metric or an unused column.
    """
    nulls = [name for name in metrics if name in row and row[name] is None]
    if not nulls:
        return row
    other_values = (value for name, value in row.items() if name in metrics or name not in columns)
    if any(isinstance(value, int | float) for value in other_values):
        return row
    return {**row, **dict.fromkeys(nulls, math.nan)}


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            "parquet needs pyarrow", where=str(path), next_step="pip install 'lobench[parquet]', or import a csv"
        ) from error
    with convert_errors((OSError, ValueError), UsageError, "this is not a parquet file", where=path):
        return pyarrow.parquet.ParquetFile(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChunk:
    """Chunk of the rows of a table.

    Attributes:
      path: Path of the file.
      frame: The rows.
      lines: int64[num_rows], line numbers in the file; 0 if unknown.
    """

    path: Path
    frame: pd.DataFrame
    lines: NDArray[np.int64]

    def steps(self, column: str) -> NDArray[np.int64]:
        """Returns a column of inner steps."""
        return step_numbers(self._numbers(column, may_be_empty=False), self.lines, str(self.path), column)

    def values(self, column: str) -> NDArray[np.float64]:
        """Returns a column of numbers, with NaN for empty values."""
        return self._numbers(column, may_be_empty=True)

    def has_value(self, column: str) -> NDArray[np.bool_]:
        """Returns whether each row has a value. The text NaN counts as a value."""
        return np.asarray(self.frame[column].notna().to_numpy(), bool)

    def names_and_codes(self, column: str) -> tuple[list[str], NDArray[np.integer]]:
        """Returns the distinct names in a column of texts, and the index of each row's name."""
        categorical = self.frame[column].cat
        names = [str(name).strip() for name in categorical.categories]
        codes = categorical.codes.to_numpy()
        empty_codes = [index for index, name in enumerate(names) if not name]
        is_missing = (codes < 0) | np.isin(codes, empty_codes)
        if is_missing.any():
            row = int(is_missing.argmax())
            location = f"{self.path}, line {self.lines[row]}" if self.lines[row] else str(self.path)
            raise UsageError(f"no {column}", where=location)
        return names, codes

    def _numbers(self, name: str, *, may_be_empty: bool) -> NDArray[np.float64]:
        import pandas as pd

        column = self.frame[name]
        values = np.asarray(pd.to_numeric(column, errors="coerce"), np.float64)
        is_not_number = np.isnan(values)
        if is_not_number.any() and may_be_empty:
            is_not_number &= self.has_value(name)  # pandas writes NaN as an empty value
            is_not_number &= ~column.astype(str).str.strip().str.lower().isin(_NAN).to_numpy(bool)
        if is_not_number.any():
            row = int(is_not_number.argmax())
            cell, line = column.iloc[row], self.lines[row]
            location = f"{self.path}, line {line}" if line else f"{self.path}, row {row + 1}"
            raise UsageError(f"{name} is not a number", where=location, got=repr("" if cell != cell else cell))
        return values


def read_chunks(path: Path, columns: Sequence[str], *, texts: Sequence[str] = ()) -> Iterator[TableChunk]:
    """Yields the rows of a table in chunks.

    Args:
      path: Path of the file.
      columns: Columns to read.
      texts: Columns among them to read as text. They become categories, because names repeat.
    Raises:
      UsageError: The file cannot be read.
    """
    if is_parquet(path):
        for batch in _parquet_file(path).iter_batches(batch_size=_CHUNK_ROWS, columns=list(columns)):
            frame = batch.to_pandas()
            for name in texts:
                frame[name] = frame[name].astype(object).map(_cell_text).astype("category")
            yield TableChunk(path=path, frame=frame, lines=np.zeros(len(frame), np.int64))
        return
    if is_json(path):
        yield from _json_chunks(path, columns, texts)
        return
    import pandas as pd

    error_types = (*READ_ERRORS, pd.errors.ParserError, pd.errors.EmptyDataError)
    with convert_errors(error_types, UsageError, "this is not a csv file", where=path):
        with open_text(path) as file:
            body = _CsvBody(file)
            line = body.head.num_lines + 1
            frames = pd.read_csv(
                body,  # pandas only needs the method `read`
                usecols=lambda name: name in columns or name == body.extra_column,
                dtype=dict.fromkeys(texts, object)
                | {body.extra_column: "category"},  # objects, because a category would change the text 1e-3 to 0.001
                keep_default_na=False,
                na_values={name: _MISSING for name in columns if name not in texts},
                chunksize=_CHUNK_ROWS,
                sep=body.head.delimiter,
                skipinitialspace=True,
                index_col=False,
                low_memory=False,
            )
            for frame in body.frames(frames):
                _check_no_extra_cells(frame.pop(body.extra_column), line, str(path), body.names)
                lines = line + np.arange(len(frame), dtype=np.int64)
                yield TableChunk(path=path, frame=frame.astype(dict.fromkeys(texts, "category")), lines=lines)
                line += len(frame)
        body.check_whole(str(path))


class _CsvBody:
    """File object of a csv for pandas. It adds a column to the header, so that excess cells are noticed.

    Attributes:
      head: Header of the file.
      names: Names of the file's columns.
      extra_column: Name of the additional column, different from all others.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._last_line_parts: list[str] = []  # a list of parts, since a line may be as long as the file
        self._read_error: BaseException | None = None
        self.head = _CsvHeader.read(file)
        self.names = self.head.names
        self.extra_column = "more cells" + "." * max(map(len, self.names), default=0)
        distinct_names = [name if name not in self.names[:index] else "" for index, name in enumerate(self.names)]
        header = io.StringIO()
        csv.writer(header, lineterminator="\n", delimiter=self.head.delimiter).writerow(
            [*(name or f"{self.extra_column}{index}" for index, name in enumerate(distinct_names)), self.extra_column]
        )
        self._header = header.getvalue() + self.head.data_line

    def __iter__(self) -> Iterator[str]:
        return iter(())  # pandas checks that it is iterable

    def read(self, size: int = -1) -> str:
        """Returns the next part of the file. The first part is the header."""
        if self._header:
            header, self._header = self._header, ""
            return header
        try:
            text = self._file.read(size)
        except BaseException as error:
            self._read_error = error
            raise
        tail_start = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._last_line_parts = [text[tail_start:]] if tail_start else [*self._last_line_parts, text]
        return text

    def frames(self, unchecked_frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yields the chunks of the file that pandas parsed.

        If the file could not be read, raises the original error instead of pandas' `ParserError`.
        """
        try:
            yield from unchecked_frames
        except Exception:
            if self._read_error is not None:
                raise self._read_error from None
            raise

    def check_whole(self, where: str) -> None:
        """Raises UsageError if the last line is unfinished and lacks cells, since the file is still being written."""
        last_line = "".join(self._last_line_parts)
        cells = next(csv.reader([last_line], delimiter=self.head.delimiter), [])
        if cells and len(cells) < len(self.names) and '"' not in last_line:  # a cell may have lines
            raise UsageError(
                "the last line is cut off",
                where=where,
                got=f"{len(cells)} cells: {last_line[:60]!r}",
                expected=f"{len(self.names)}",
                next_step="import it again when it is written",
            )


def _check_no_extra_cells(extra_cells: pd.Series, line: int, where: str, names: Sequence[str]) -> None:
    """Checks that no row has more cells than the header. An empty cell from a trailing comma is allowed."""
    filled_codes = [index for index, cell in enumerate(extra_cells.cat.categories) if str(cell).strip()]
    if filled_codes:
        row = int(np.isin(extra_cells.cat.codes, filled_codes).argmax())
        raise UsageError(
            "a row has more cells than the header",
            where=f"{where}, line {line + row}",
            expected=str(len(names)),
            next_step=_other_separator(names)
            or "a decimal comma makes two cells of a number: write a point; quote a name that has a comma",
        )


def _other_separator(names: Sequence[str]) -> str:
    """Returns advice if a header has no comma, but another separator; "" otherwise."""
    separator = next((text for text in (";", "|", " ") if len(names) == 1 and text in names[0]), "")
    separator_text = "blanks" if separator == " " else repr(separator)
    return (
        f"columns are separated by {separator_text} here; write commas, and decimals with a point" if separator else ""
    )


def _cell_text(value: object) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return "" if value is None or value != value else str(int(value) if is_whole else value)  # type: ignore[call-overload]


def read_table(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the points of a tidy table.

    If there is no column of methods, the method is the requested one, or the source's name if the source is one of many
    or its name contains a seed.

    Raises:
      UsageError: A column is missing, a value is not a number, or a name is empty; the message has the line.
    """
    header = column_names(path)
    column_of_role = {role: request.columns.get(role, role) for role in _ROLES}
    fixed_roles = _fixed_roles(path, request, header, column_of_role)
    is_long = column_of_role["metric"] in header or column_of_role["value"] in header
    metric_columns = request.metrics.columns(header) if request.metrics and not is_long else []
    if any(name not in header for name in [column_of_role["step"], *metric_columns]) and is_json(path):
        header = column_names(path, of_all_rows=True)  # a metric may be logged late
        metric_columns = request.metrics.columns(header) if metric_columns else []
    if (
        not is_long
        and not metric_columns
        and all(fixed_roles[role] or column_of_role[role] in header for role in fixed_roles)
    ):
        role_columns = {*column_of_role.values(), *STEPS}
        metric_columns = [
            name for name in _numeric_columns(path) if name not in role_columns and name.lower() not in _NOT_METRICS
        ]
    needed_roles = ["step", *([] if metric_columns else ["metric", "value"])]
    needed_roles += [
        role
        for role in fixed_roles
        if column_of_role[role] in header or role in request.columns or not fixed_roles[role]
    ]
    missing_columns = [column_of_role[role] for role in needed_roles if column_of_role[role] not in header]
    missing_columns += [name for name in metric_columns if name not in header]
    missing_columns += [name for name in request.columns.values() if name not in header and name not in missing_columns]
    if missing_columns and (separator_advice := _other_separator(header)):
        raise NotCurves(
            "not a table with commas", where=str(path), got=", ".join(header)[:200], next_step=separator_advice
        )
    if missing_columns:
        raise NotCurves(
            f"the table lacks the column{'s' * (len(missing_columns) > 1)} {', '.join(missing_columns)}",
            where=str(path),
            got=", ".join(header)[:200],
            expected=", ".join(column_of_role[role] for role in needed_roles),
            next_step=_missing_columns_advice(
                path,
                header,
                [role for role in needed_roles if column_of_role[role] not in header],
                wide=bool(metric_columns),
            ),
        )
    text_roles = [role for role in ("method", "case", "seed", "metric") if role in needed_roles]
    text_columns = [column_of_role[role] for role in text_roles]
    columns = [
        *text_columns,
        *(column_of_role[role] for role in needed_roles if role not in text_roles),
        *metric_columns,
    ]
    if repeated_columns := [name for name in columns if header.count(name) > 1]:
        raise UsageError(
            f"the table has the column {repeated_columns[0]} twice", where=str(path), expected="one of each name"
        )
    num_rows, num_empty = 0, 0
    for chunk in read_chunks(path, columns, texts=text_columns):
        steps = chunk.steps(column_of_role["step"])
        runs, run_indices = _chunk_runs(
            chunk, {role: column_of_role[role] for role in text_roles if role != "metric"}, fixed_roles, request
        )
        if not metric_columns:
            metrics, metric_indices = chunk.names_and_codes(column_of_role["metric"])
            values = chunk.values(column_of_role["value"])
            is_requested = np.asarray([not request.metrics or name in request.metrics for name in metrics], bool)[
                metric_indices
            ]
            num_rows += int(is_requested.sum())
            num_empty += int((is_requested & ~chunk.has_value(column_of_role["value"])).sum())
            yield Points(
                runs=runs,
                metrics=metrics,
                run=run_indices,
                metric=metric_indices,
                step=steps,
                value=values,
                line=chunk.lines,
            )
            continue
        for name in metric_columns:
            has_value = chunk.has_value(name)
            yield Points(
                runs=runs,
                metrics=(name,),
                run=run_indices[has_value],
                metric=np.zeros(int(has_value.sum()), np.int64),
                step=steps[has_value],
                value=chunk.values(name)[has_value],
                line=chunk.lines[has_value],
            )
    if num_empty:
        notes.append(
            f"{path}: {num_empty:,} of {num_rows:,} rows have no {column_of_role['value']}, and are read as NaN: their "
            "runs count as diverged there; delete these rows if the values were not logged"
        )


def _fixed_roles(
    path: Path, request: CurveRequest, columns: Sequence[str], column_of_role: Mapping[str, str]
) -> dict[str, str]:
    """Returns the method, case and seed of tables without a column for them; "" if unknown."""
    values_by_role = {"method": request.method, "case": request.case, "seed": request.seed}
    is_named = column_of_role["method"] in columns
    has_named_seed = (
        not request.seed and column_of_role["seed"] not in columns and has_seed(request.name or bare_name(path))
    )
    if not is_named and (request.pattern or request.is_one_of_many or has_named_seed):
        run = named_run(request.name or bare_name(path), request, is_file=True)
        values_by_role = {"method": run.method, "case": run.case or UNNAMED_CASE, "seed": run.seed}
    elif request.pattern or request.is_one_of_many:
        values_by_role |= {"case": request.case or UNNAMED_CASE, "seed": request.seed or "0"}
    return values_by_role


def _missing_columns_advice(path: Path, columns: Sequence[str], missing_roles: Sequence[str], *, wide: bool) -> str:
    """Returns advice on what to type if columns are missing."""
    try:
        numeric_columns = _numeric_columns(path)
    except UsageError:
        numeric_columns = list(columns)
    step_column = next((name for name in STEPS if name in columns), "")
    if shape_advice := _shape_advice(path, columns, numeric_columns, step_column, missing_roles):
        return shape_advice
    value_columns = [
        name for name in numeric_columns if name not in (step_column, *_ROLES) and name.lower() not in _NOT_METRICS
    ]
    loss_columns = [name for name in value_columns if is_named_loss(name)] or value_columns
    if "step" in missing_roles and not step_column and ("metric" in missing_roles or not value_columns):
        return "it has no steps: a file of curves has a row for each step of a run"
    is_long = "metric" in columns or "value" in columns
    text_columns = [name for name in columns if name not in numeric_columns] if "method" in missing_roles else []
    run_column = next((name for name in _RUN_COLUMNS if name in text_columns and "seed" in missing_roles), "")
    method_column = run_column or next((name for name in _METHOD_COLUMNS if name in text_columns), "")
    option_texts = {
        "method": f"--column method={method_column}" if method_column else f"--method {shlex.quote(bare_name(path))}",
        "case": "--case NAME",
        "seed": f"--pattern {shlex.quote(WITH_SEED.pattern)}" if run_column else "--seed 0",
        "step": f"--column step={shlex.quote(step_column) or 'COLUMN'}",
        "metric": "--column metric=COLUMN"
        if is_long
        else f"--metric {shlex.quote(loss_columns[-1]) if loss_columns else 'COLUMN'}",
        "value": "--column value=COLUMN" if is_long else "",
    }
    options_text = " ".join(option_texts[role] for role in option_texts if role in missing_roles and option_texts[role])
    role_options = [f"--{role}" for role in ("method", "case", "seed") if option_texts[role].startswith(f"--{role}")]
    options_of_all_rows = [option for option in role_options if option in options_text.split()]
    verb = "applies" if len(options_of_all_rows) == 1 else "apply"
    hints = [f"add {options_text}"] * bool(options_text)
    hints += [f"{' and '.join(options_of_all_rows)} {verb} to all rows"] * bool(options_of_all_rows)
    hints += ["or name a column that the table has: --column ROLE=COLUMN"] * bool(options_text)
    hints += [f"--metric NAME takes one of the numeric columns {', '.join(value_columns)}"] * (
        wide and len(value_columns) > 1
    )
    return "; ".join(hints)


def _shape_advice(
    path: Path, columns: Sequence[str], numeric_columns: Sequence[str], step_column: str, missing_roles: Sequence[str]
) -> str:
    """Returns the command that converts a table with a column for each run or step; "" for another table."""
    if "method" in missing_roles and step_column and sum(map(has_seed, columns)) > 1:
        return _run_columns_advice(path, step_column, [name for name in columns if has_seed(name)], WITH_SEED.pattern)
    value_columns = [name for name in numeric_columns if name != step_column and name.lower() not in _NOT_METRICS]
    numbered_columns = [name for name in value_columns if re.fullmatch(_NUMBERED_COLUMN, name)]
    if "method" in missing_roles and step_column and len(numbered_columns) > 1 and numbered_columns == value_columns:
        return _run_columns_advice(path, step_column, numbered_columns, _NUMBERED_COLUMN)
    step_columns = [name for name in columns if name.isdecimal()]
    if "step" in missing_roles and len(step_columns) > 1:
        kept_columns = [name for name in columns if name not in step_columns]
        code = f"pandas.read_csv({str(path)!r}).melt({kept_columns!r}, var_name='step', value_name='loss')"
        return _conversion_advice("it has a column for each step", path, f"import pandas; {code}")
    names = [name for name in columns if name]
    if not step_column and len(names) > len({*names}):
        code = (
            f"pandas.read_csv({str(path)!r}, header=[0, 1], index_col=0).stack([0, 1])"
            ".rename_axis(['step', 'method', 'seed']).rename('loss').reset_index()"
        )
        return _conversion_advice(
            "its header has names twice, and perhaps a second line", path, f"import pandas; {code}"
        )
    return ""


def _run_columns_advice(path: Path, step_column: str, columns: Sequence[str], pattern: str) -> str:
    """Returns advice for a table with a column for each run: a command that makes rows of them."""
    kind = "parquet" if is_parquet(path) else "json" if is_json(path) else "csv"
    code = (
        f"import pandas; t = pandas.read_{kind}({str(path)!r}).melt({step_column!r}, {list(columns)!r}, 'run', 'loss')"
        "; "
        f"t[['method', 'seed']] = t['run'].str.extract({pattern!r}); "
        f"t.drop(columns='run').rename(columns={{{step_column!r}: 'step'}})"
    )
    return _conversion_advice("it has a column for each run", path, code)


def _conversion_advice(shape: str, path: Path, code: str) -> str:
    command = f"{code}.to_csv('{bare_name(path)}_rows.csv', index=False)"
    return f"{shape}; python -c {shlex.quote(command)} writes a row for each value"


def _chunk_runs(
    chunk: TableChunk, column_of_role: Mapping[str, str], fixed_roles: Mapping[str, str], request: CurveRequest
) -> tuple[list[CurveRun], NDArray[np.integer]]:
    """Returns the distinct runs in a chunk of the table, and for each row the index of its run."""
    codes_by_role = {role: chunk.names_and_codes(column) for role, column in column_of_role.items()}
    if "seed" in codes_by_role:  # pandas writes 3.0 where another row of the column was empty
        seeds, codes = codes_by_role["seed"]
        codes_by_role["seed"] = [_WHOLE_NUMBER.sub(r"\1", seed) for seed in seeds], codes
    row_codes = np.zeros(len(chunk.frame), np.int64)
    for names, codes in codes_by_role.values():
        row_codes = row_codes * (len(names) + 1) + codes
    distinct_codes, first_rows, run_codes = np.unique(row_codes, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)  # runs in the order of the file
    rank = np.empty(len(distinct_codes), np.int64)
    rank[order] = np.arange(len(distinct_codes))
    named_rows = (
        {
            role: codes_by_role[role][0][codes_by_role[role][1][row]] if role in codes_by_role else fixed_roles[role]
            for role in fixed_roles
        }
        for row in first_rows[order].tolist()
    )
    runs = [CurveRun(row["method"], row["case"], row["seed"]) for row in named_rows]
    if request.pattern and "method" in codes_by_role:  # the method column contains names of runs, as in other formats
        pattern_runs = [named_run(run.method, request) for run in runs]
        runs = [
            CurveRun(
                method=pattern_run.method,
                case=run.case if "case" in codes_by_role else pattern_run.case or run.case,
                seed=run.seed if "seed" in codes_by_role else pattern_run.seed,
            )
            for run, pattern_run in zip(runs, pattern_runs, strict=True)
        ]
    if "case" not in codes_by_role:  # a method and seed of such a file are one training, for any name of the case
        runs = [replace(run, training=f"{chunk.path}: {run.method} {run.seed}") for run in runs]
    return runs, rank[run_codes]


def tidy() -> FileKind:
    return FileKind(read=read_table, columns=("method", "case", "seed", "step", "metric", "value"))


def monitor() -> FileKind:
    return FileKind(read=read_monitor, directions=lambda path, request: {"r": Direction.MAX})
