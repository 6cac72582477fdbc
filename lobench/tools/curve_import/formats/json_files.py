"""Rows of JSON files: objects in lines, or one document in the layout of a library.

{"step": 0, "val": {"loss": 2.3}}                         lines: an object for each step, `val.loss` is a column
[{"step": 0, "loss": 2.3}, ...]                           pandas, orient="records"
{"step": {"0": 0, "1": 100}, "loss": {...}}               pandas, orient="columns", "list", "split", "index", "table"
{"log_history": [{"step": 10, "loss": 2.3}, ...]}         trainer_state.json of Hugging Face
{"val.loss": {"steps": [...], "values": [...]}}           metrics.json of sacred
{"loss": [2.3, ...], "val_loss": [...]}                   History.history of Keras: the row's number is the step
"""

from __future__ import annotations

import functools
import itertools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lobench.core.errors import UsageError
from lobench.core.wording import cause, convert_errors
from lobench.engine.csv_files import READ_ERRORS, open_text, read_text
from lobench.tools.curve_import.points import NotCurves

__all__ = ["STEPS", "is_json", "is_object", "is_records", "json_rows"]

STEPS = (  # common names of the step
    "step", "iteration", "iter", "global_step", "_step", "steps", "iterations", "training_iteration", "timesteps",
    "epoch", "epochs", "it", "i",
)  # fmt: skip
_LINES = (".jsonl", ".ndjson")
_RECORD_FIELDS = {"label", "checkpoint", "primary_metric"}  # fields of `lobench results --format json`
_DEEPOBS = {"train_losses", "test_losses"}
_FROM_DEEPOBS = (
    "import json, sys, pandas; d = json.load(open(sys.argv[1])); "
    "pandas.DataFrame({k: v for k, v in d.items() if k.endswith(('losses', 'accuracies')) and v and "
    "len(v) == len(d['test_losses'])}).rename_axis('step').to_csv(sys.argv[2])"
)


def is_json(path: Path) -> bool:
    """Returns whether a file, gzipped or not, begins like a JSON object or array."""
    try:
        with open_text(path) as file:
            return _first_character(file.read(64)) in ("{", "[")
    except (*READ_ERRORS, UsageError):
        return False


def _first_character(text: str) -> str:
    return text.lstrip()[:1]


def is_records(path: Path) -> bool:
    """Returns whether a file is a list of lobench's own results."""
    try:
        with open_text(path) as file:
            if _first_character(file.read(64)) != "[":
                return False
        document = _document(path)
    except (*READ_ERRORS, UsageError):
        return False
    first_record = document[0] if isinstance(document, list) and document else {}
    return isinstance(first_record, dict) and bool(_RECORD_FIELDS & first_record.keys()) and "step" not in first_record


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the values of each row, with nested values as `outer.inner`. The line is 0 if unknown.

    Raises:
      UsageError: The file is not valid JSON, or a line is not an object.
    """
    document = _document(path)
    if document is None:
        yield from _line_rows(path)
        return
    for row in _document_rows(document, path):
        yield 0, dict(_flatten("", row))


def _document(path: Path) -> Any:
    """Returns a file's JSON document, or the list of consecutive documents; None for JSON lines."""
    state = path.stat()
    return _read_document(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=2)  # each file is read for its format, its columns and its rows
def _read_document(path: Path, mtime_ns: int, size: int) -> Any:
    with convert_errors(READ_ERRORS, UsageError, "cannot read this file", where=path), open_text(path) as file:
        lines = (line for line in file if line.strip())
        first_line = next(lines, "")
        has_more = next(lines, None) is not None
    begins_with_object = is_object(first_line)
    if has_more and (begins_with_object or path.suffix.lower() in _LINES):
        return None
    if not has_more and not begins_with_object and _first_character(first_line) == "{":
        return None  # the line is incomplete, or not JSON
    text = read_text(path).strip()
    try:
        documents, position = [], 0
        while position < len(text):
            document, position = json.JSONDecoder().raw_decode(text, position)
            documents.append(document)
            while position < len(text) and text[position] in " \t\r\n,":
                position += 1
    except (ValueError, RecursionError) as error:
        is_cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(text) - 1
        next_step = "import it again when it is written" if is_cut else ""
        raise UsageError(
            "the file is cut off" if is_cut else "not JSON",
            where=str(path),
            got=cause(error),
            next_step=next_step,
        ) from error
    return documents[0] if len(documents) == 1 else documents


def is_object(line: str | bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _document_rows(document: Any, path: Path) -> list[Mapping[str, Any]]:
    """Returns the rows of values in a JSON document, one per logged step.

    Raises:
      NotCurves: The document has another layout.
    """
    if isinstance(document, list) and document and all(isinstance(row, dict) for row in document):
        _check_no_lists(document[0], path)
        return document
    if isinstance(document, dict):
        if document.keys() >= _DEEPOBS:
            names = shlex.join(["python", "-c", _FROM_DEEPOBS, str(path), f"{path.stem}.csv"])
            raise NotCurves("this is a run of DeepOBS, with values by epoch", where=str(path), next_step=names)
        if (rows := _object_rows(document)) is not None:
            return rows
    elif document == []:
        return []
    document_text = ", ".join(map(str, document))[:100] if isinstance(document, dict) else type(document).__name__
    raise _not_a_table(path, document_text if isinstance(document, dict) else f"a {document_text}")


def _check_no_lists(row: Mapping[str, Any], path: Path) -> None:
    """Checks that a row is a step, and not a run with lists of steps and values.

    Raises:
      NotCurves: Several values of the row are lists of the same length.
    """
    lists = {name: value for name, value in row.items() if isinstance(value, list) and len(value) > 1}
    if len(lists) > 1 and len({len(value) for value in lists.values()}) == 1:
        step = next((name for name in lists if name.lower() in STEPS), "step")
        code = f"import pandas; t = pandas.read_json({str(path)!r}).explode({[*lists]!r}); "
        code += f"t.rename(columns={{{step!r}: 'step'}}).to_csv({f'{path.stem}_rows.csv'!r}, index=False)"
        raise NotCurves(
            "each row is a run, with lists of its values",
            where=str(path),
            got=", ".join(row),
            next_step=f"{shlex.join(['python', '-c', code])} writes a row for each step",
        )


def _not_a_table(path: Path, got: str) -> NotCurves:
    return NotCurves(
        "this JSON is not a table",
        where=str(path),
        got=got,
        expected="an array of rows, an object for each line, or columns",
        next_step="write a row for each run and step: pandas.DataFrame(rows, columns=['method', 'seed', 'step', "
        f"'val_loss']).to_csv('{path.stem}.csv', index=False)",
    )


def _object_rows(document: dict[str, Any]) -> list[Mapping[str, Any]] | None:
    values = list(document.values())
    if isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):  # orient="split"
        return [dict(zip(document["columns"], row, strict=False)) for row in document["data"]]
    row_list_names = [name for name, value in document.items() if _are_rows(value)]
    if "log_history" in row_list_names or len(row_list_names) == 1:
        return list(document["log_history" if "log_history" in row_list_names else row_list_names[0]])
    if values and all(isinstance(value, dict) for value in values):
        if all(isinstance(column.get("steps"), list) and isinstance(column.get("values"), list) for column in values):
            return [
                {"step": step, "metric": name, "value": value}
                for name, column in document.items()
                for step, value in zip(column["steps"], column["values"], strict=True)
            ]
        if all(name.isdecimal() for name in document):  # orient="index"
            return values
        if all(column.keys() == values[0].keys() and not any(map(_is_nested, column.values())) for column in values):
            return [{name: column[row] for name, column in document.items()} for row in values[0]]
    if values and all(isinstance(value, list) and len(value) == len(values[0]) for value in values):
        if any(_is_nested(element) for value in values for element in value):
            return None
        if all(map(_are_numbers, values)) and not any(map(_may_be_steps, document, values)):
            document = {"step": range(len(values[0])), **document}
        return [dict(zip(document, row, strict=True)) for row in zip(*document.values(), strict=True)]
    has_scalars = any(True for _ in _flatten("", document))
    return [document] if has_scalars and not any(isinstance(value, list) for value in values) else None


def _are_numbers(column: Sequence[object]) -> bool:
    return all(
        number is None or (isinstance(number, int | float) and not isinstance(number, bool)) for number in column
    )


def _may_be_steps(name: str, column: Sequence[Any]) -> bool:
    """Returns whether a column is called a step, or increases from row to row in whole numbers."""
    if name.lower() in STEPS:
        return True
    are_whole = all(isinstance(number, int) or (isinstance(number, float) and number.is_integer()) for number in column)
    return are_whole and len(column) > 1 and all(earlier < later for earlier, later in itertools.pairwise(column))


def _are_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _is_nested(value: object) -> bool:
    return isinstance(value, dict | list)


def _line_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with convert_errors(READ_ERRORS, UsageError, "cannot read this file", where=path), open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                values = dict(_flatten("", json.loads(line)))
            except (ValueError, AttributeError, RecursionError) as error:
                is_cut = not line.endswith("\n")
                next_step = "import it again when it is written" if is_cut else ""
                raise UsageError(
                    "the last line is cut off" if is_cut else "a line is not a JSON object",
                    where=f"{path}, line {number}",
                    got=repr(line.strip()[:60]),
                    next_step=next_step,
                ) from error
            yield number, values


def _flatten(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, member in value.items():
        inner = f"{name}.{key}" if name else str(key)
        if isinstance(member, dict):
            yield from _flatten(inner, member)
        elif member is None or (isinstance(member, str | int | float) and not isinstance(member, bool)):
            yield inner, member
