"""CSV files, gzipped or not: columns by name, checked numbers, and one-line errors."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lobench.core.errors import UsageError
from lobench.core.wording import convert_errors

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["READ_ERRORS", "normalized_name", "open_text", "read_csv", "read_text"]

# Exceptions from reading a file that is damaged, or is not a (gzipped) text file.
READ_ERRORS = (OSError, EOFError, zlib.error, UnicodeError)
_MIN_UNPACKED_BYTES, _MAX_RATIO = 2**28, 200  # limits of the unpacked size: bytes, or a multiple of the packed size


def read_csv(path: Path, *, text_columns: Sequence[str], number_columns: Sequence[str], row_name: str) -> pd.DataFrame:
    """Returns the named columns of a CSV file as a data frame.

    Args:
      path: Path of the file.
      text_columns: Columns of texts. None of their values may be empty.
      number_columns: Columns of floats. A missing value is NaN.
      row_name: Name of a row in error messages: "evaluation".
    Raises:
      UsageError: The file is missing or not a CSV, a column is missing, or a value is invalid. The message has the
        line.
    """
    import pandas as pd

    where = str(path)
    text = read_text(path)
    parse_errors = (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError)
    with (
        convert_errors(parse_errors, UsageError, f"this is not a CSV of {row_name}s", where=path),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", pd.errors.ParserWarning)
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False, index_col=False).fillna("")
    table.columns = [normalized_name(str(column)) for column in table.columns]
    required_columns = (*text_columns, *number_columns)
    missing_columns = [column for column in required_columns if column not in table.columns]
    if missing_columns:
        raise UsageError(
            f"the log lacks the column{'s' * (len(missing_columns) > 1)} {', '.join(missing_columns)}",
            where=where,
            got=", ".join(table.columns)[:200],
            expected=", ".join(required_columns),
        )
    duplicate_columns = [column for column in required_columns if list(table.columns).count(column) > 1]
    if duplicate_columns:
        raise UsageError(
            f"the log has the column {duplicate_columns[0]} twice", where=where, expected="one of each name"
        )
    if table.empty:
        raise UsageError(f"the log holds no {row_name}", where=where)
    table = table[list(required_columns)]
    for column in number_columns:
        table[column] = _to_floats(table[column], where, text)
    for column in text_columns:
        empty_rows = table.index[table[column].str.strip() == ""]
        if len(empty_rows):
            raise UsageError(f"no {column}", where=f"{where}, line {_line_number(text, int(empty_rows[0]))}")
    return table


def open_text(path: Path) -> IO[str]:
    """Opens a text file, gzipped or not, whatever its name.

    Raises:
      UsageError: The file cannot be read.
    """
    with convert_errors(OSError, UsageError, "cannot read this file", where=path):
        with path.open("rb") as raw_file:
            first_bytes = raw_file.read(2)
        if first_bytes == b"\x1f\x8b":
            unpacked_bytes = io.BufferedReader(_GzipReader(path))
            return io.TextIOWrapper(
                unpacked_bytes, encoding=_encoding(_unpacked_head(path)), errors="strict", newline=""
            )
        return path.open(encoding=_encoding(first_bytes), errors="strict", newline="")


def _unpacked_head(path: Path) -> bytes:
    """Returns the first two bytes of a gzipped file; b"" if it is damaged, which is reported when it is read."""
    try:
        with io.BufferedReader(_GzipReader(path)) as file:
            return file.peek(2)[:2]
    except (EOFError, zlib.error, OSError):
        return b""


def _encoding(first_bytes: bytes) -> str:
    """Returns "utf-16" for a file that begins with its byte-order mark, as spreadsheets and PowerShell write it."""
    return "utf-16" if first_bytes in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


class _GzipReader(io.RawIOBase):
    """Gzipped file with a limit on its unpacked size, because a few bytes can unpack to gigabytes."""

    def __init__(self, path: Path) -> None:
        self._path, self._max_bytes = path, max(_MIN_UNPACKED_BYTES, _MAX_RATIO * path.stat().st_size)
        self._file = gzip.GzipFile(path)
        self._num_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._num_read += len(data)
        if self._num_read > self._max_bytes:
            raise UsageError(
                "the file unpacks to far more than a table does",
                where=str(self._path),
                got=f"over {self._num_read:,} bytes from {self._path.stat().st_size:,}",
                next_step="unpack it, check it, and import the file in it",
            )
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def read_text(path: Path) -> str:
    """Returns the content of a file, unpacked if it is gzipped, whatever its name."""
    with (
        convert_errors(UnicodeError, UsageError, "this is not a text file", where=path),
        convert_errors((OSError, EOFError, zlib.error), UsageError, "cannot read this file", where=path),
        open_text(path) as file,
    ):
        return file.read()


def _to_floats(column: pd.Series, where: str, text: str) -> pd.Series:
    """Returns a column as floats. Missing values (empty, NaN, None, ...) are NaN; other texts raise UsageError."""
    import pandas as pd

    stripped_texts = column.str.strip()
    values = pd.to_numeric(stripped_texts, errors="coerce").astype("float64")
    is_invalid = values.isna() & ~stripped_texts.str.lower().isin(
        ["", "nan", "+nan", "-nan", "na", "n/a", "none", "null", "<na>"]
    )
    if is_invalid.any():
        row = int(is_invalid.idxmax())
        location = f"{where}, line {_line_number(text, row)}"
        raise UsageError(f"{column.name} is not a number", where=location, got=repr(column[row]))
    return values


def _line_number(text: str, target_row: int) -> int:
    """Returns the line on which a row begins. Rows are numbered as in pandas, which skips blank lines."""
    reader = csv.reader(io.StringIO(text, newline=""))
    line_number = 1
    row_index = -2
    for record in reader:
        row_index += "".join(record).strip() != "" or len(record) > 1
        if row_index == target_row:
            break
        line_number = reader.line_num + 1
    return line_number


def normalized_name(name: str) -> str:
    """Returns a column's name in lower case, with words joined by one underscore."""
    return re.sub(r"[\W_]+", "_", str(name).strip().lower()).strip("_")
