"""Values of the items of a data set, as evaluations write them.

{"item": "q17", "correct": 1}                              lines, a JSON list, or CSV with a column item
{"eval": {"model": ..., "task": ...}, "samples": [...]}    a log of inspect_ai, as JSON or `.eval`
{"doc_id": 17, "metrics": ["acc"], "acc": 1.0, ...}        samples_TASK_DATE.jsonl of lm-evaluation-harness
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import re
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lobench.core.errors import UsageError
from lobench.core.metric import Direction
from lobench.core.wording import cause, counted
from lobench.engine.csv_files import READ_ERRORS, open_text
from lobench.engine.file_stamps import FileStamp, stamp_of
from lobench.engine.item_values import ITEM_COLUMN, to_number, values_by_metric
from lobench.tools.curve_import.file_kind import FileKind
from lobench.tools.curve_import.points import (
    UNNAMED_CASE,
    CurveRequest,
    CurveRun,
    NotCurves,
    Points,
    bare_name,
    named_run,
)

__all__ = ["inspect", "item_kind", "items", "lm_eval"]

_HEAD_CHARACTERS = 1 << 16  # characters that hold the first row or the first fields of a document
# `bare_name` of a file of lm-evaluation-harness.
_SAMPLES_NAME = re.compile(r"samples_(?P<task>.+)_\d{4}-\d\d-\d\dT[\d.:-]+")
# Scores of inspect_ai: correct, incorrect, partial, no answer.
_SCORES_BY_LETTER = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_LOWER_IS_BETTER = re.compile(r".*(perplexity|loss|bits_per_byte|error|wer|ter)$", re.IGNORECASE)
_HASH_DIGITS = 12  # digits of a document's hash
_ZIP_PREFIX = b"PK\x03\x04"
_ItemValues = dict[str, dict[str, float]]  # by metric, then item


def item_kind(path: Path) -> str:
    """Returns the format of a file with values of items: "items", "inspect", "lm-eval", or "" for other files.

    Raises:
      NotCurves: It is lm-evaluation-harness's file of aggregated results.
    """
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) == _ZIP_PREFIX
        if is_zip:
            with zipfile.ZipFile(path) as archive:
                return "inspect" if "header.json" in archive.namelist() else ""
        with open_text(path) as text:
            beginning = text.read(_HEAD_CHARACTERS).lstrip()
    except (*READ_ERRORS, UsageError, zipfile.BadZipFile):
        return ""
    if beginning[:1] not in ("{", "["):
        names = [name.strip().strip('"') for name in beginning.partition("\n")[0].split(",")]
        return "items" if ITEM_COLUMN in names and "step" not in names else ""
    if beginning[:1] == "{" and re.search(r'"eval"\s*:\s*\{', beginning) and re.search(r'"status"\s*:', beginning):
        return "inspect"
    first_row = _first_object(beginning)
    if "doc_id" in first_row and "doc" in first_row:
        return "lm-eval"
    if {"results", "versions"} <= _top_names(beginning) and bare_name(path).startswith("results"):
        raise NotCurves(
            "this has means only", where=str(path), next_step="lm_eval --log_samples writes samples_TASK.jsonl"
        )
    return "items" if ITEM_COLUMN in first_row and "step" not in first_row else ""


def _first_object(beginning: str) -> Mapping[str, Any]:
    """Returns the first object of JSON lines, or of a list; {} if it is longer than the head."""
    text = beginning[1:].lstrip() if beginning.startswith("[") else beginning
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        names = _top_names(beginning)
        return dict.fromkeys(names)
    return document if isinstance(document, dict) else {}


def _top_names(beginning: str) -> set[str]:
    return set(re.findall(r'"(\w+)"\s*:', beginning))


def read_item_file(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the values of a file with a column `item`. Its name, or its folder's, is the method's.

    Raises:
      UsageError: The file cannot be read, or has an item twice.
    """
    run = named_run(request.name or bare_name(path), request, is_file=True)
    yield _item_points(run.method, run.case, values_by_metric(path))


def directions_of_items(path: Path, request: CurveRequest) -> dict[str, Direction]:
    return {"correct": Direction.MAX}


def read_samples(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the values of a file of lm-evaluation-harness: the folder is the method, and the task the case.

    A task with several filters of the answers has each metric once for each filter: `exact_match/strict-match`. The
    name of an item contains the hash of its document, since each task numbers its documents from 0.

    Raises:
      UsageError: A line is damaged, or a document occurs twice.
    """
    values: _ItemValues = {}
    filters = set[str]()
    rows = list(_json_lines(path))
    filters.update(str(row.get("filter", "none")) for _, row in rows)
    for where, row in rows:
        item = row.get("doc_id")
        name = str(row.get("filter", "none"))
        if item is None:
            raise UsageError("no doc_id", where=where, expected="a line of lm-evaluation-harness's samples")
        for metric in row.get("metrics", ()):
            value = to_number(row.get(metric))
            if value is None:
                continue  # a list or tuple that the harness aggregates itself
            column = values.setdefault(metric if len(filters) == 1 else f"{metric}/{name}", {})
            document_name = (
                f"{item} {row['doc_hash'][:_HASH_DIGITS]}" if row.get("doc_hash") else f"{_task_of(path)}/{item}"
            )
            if document_name in column:
                raise UsageError(f"doc_id {item} occurs twice", where=where, expected="one line for each document")
            column[document_name] = value
    if not values:
        raise NotCurves("no document has a number", where=str(path), expected='"metrics": ["acc"] and "acc": 1.0')
    method = path.parent.name
    case = _task_of(path)
    if request.pattern:
        run = named_run(request.name or bare_name(path), request, is_file=True)
        method, case = run.method, run.case or case
    yield _item_points(request.method or method, request.case or case, values)


def directions_of_samples(path: Path, request: CurveRequest) -> dict[str, Direction]:
    metrics = {metric for points in read_samples(path, request, []) for metric in points.metrics}
    return {
        name: Direction.MIN if _LOWER_IS_BETTER.fullmatch(name.partition("/")[0]) else Direction.MAX for name in metrics
    }


def _task_of(path: Path) -> str:
    match = _SAMPLES_NAME.fullmatch(bare_name(path))
    return match["task"] if match else UNNAMED_CASE


def _json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError("this is not JSON", where=where, got=line[:60]) from error
            if not isinstance(row, dict):
                raise UsageError("no object", where=where, got=line[:60])
            yield where, row


def read_inspect(path: Path, request: CurveRequest, notes: list[str]) -> Iterator[Points]:
    """Yields the scores in a log of inspect_ai: the model is the method, and the task the case.

    The name of an item is that of the data set and the sample's id. The value of a sample with several epochs is the
    mean over epochs. Samples without a score, such as those that ended in an error, are left out with a note.

    Raises:
      UsageError: The log is damaged, or its samples are compressed in a way that this Python cannot read.
    """
    header, samples = _inspect_log(path)
    eval_header = header.get("eval", {})
    data_set_name = (eval_header.get("dataset") or {}).get("name") or eval_header.get("task") or ""
    scores_by_metric: dict[str, dict[str, list[float]]] = {}
    num_samples = 0
    scored_samples = set[str]()
    for sample in samples:
        num_samples += 1
        for metric, value in _scores_of(sample):
            scores_by_metric.setdefault(metric, {}).setdefault(f"{data_set_name}/{sample.get('id')}", []).append(value)
            scored_samples.add(f"{sample.get('id')} {sample.get('epoch')}")
    if not scores_by_metric:
        raise NotCurves("no sample of this log has a score", where=str(path), got=counted(num_samples, "sample"))
    if num_without_score := num_samples - len(scored_samples):
        notes.append(f"{path}: {counted(num_without_score, 'sample')} of {num_samples:,} without a score left out")
    values = {
        metric: {item: float(np.mean(row)) for item, row in values_by_item.items()}
        for metric, values_by_item in scores_by_metric.items()
    }
    method = str(eval_header.get("model") or bare_name(path))
    case = str(eval_header.get("task") or UNNAMED_CASE)
    if request.pattern:
        run = named_run(method, request)
        method, case = run.method, run.case or case
    yield _item_points(request.method or method, request.case or case, values)


def directions_of_inspect(path: Path, request: CurveRequest) -> dict[str, Direction]:
    metrics = {metric for points in read_inspect(path, request, []) for metric in points.metrics}
    return dict.fromkeys(metrics, Direction.MAX)


def _scores_of(sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the name and value of each score of a sample. A score of several values has one name for each."""
    for scorer, score in (sample.get("scores") or {}).items():
        value = score.get("value") if isinstance(score, Mapping) else score
        named_values = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, part_value in named_values:
            number = _SCORES_BY_LETTER.get(part_value) if isinstance(part_value, str) else None
            number = to_number(part_value) if number is None else number
            if number is not None:
                yield (f"{scorer}/{key}" if key else scorer), number


def _inspect_log(path: Path) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Returns the header and the samples of a log, a `.json` or a `.eval`."""
    return _read_inspect_log(path, stamp_of(path))


@functools.lru_cache(maxsize=1)  # read for the directions, and for the values
def _read_inspect_log(path: Path, stamp: FileStamp | None) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    try:
        if not zipfile.is_zipfile(path):
            with open_text(path) as file:
                document = json.load(file)
            return document, list(document.get("samples") or ())
        with contextlib.suppress(ImportError):  # inspect_ai's own dependency, by which `zipfile` can unpack its logs
            importlib.import_module("zipfile_zstd")
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            header = json.loads(archive.read("header.json"))
            if "summaries.json" in names:
                return header, json.loads(archive.read("summaries.json"))
            sample_names = [name for name in names if name.startswith("samples/") and name.endswith(".json")]
            return header, [json.loads(archive.read(name)) for name in sample_names]
    except NotImplementedError as error:  # the method of compression is unknown
        conversion_advice = (
            f"`pip install zipfile-zstd`, or `inspect log convert {shlex.quote(str(path))} --to json --output-dir .`"
        )
        raise UsageError(
            "this log cannot be unpacked", where=str(path), got=cause(error), next_step=conversion_advice
        ) from error
    except (OSError, ValueError, KeyError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        raise UsageError("this log of inspect_ai is damaged", where=str(path), got=cause(error)) from error


def _item_points(method: str, case: str, values: Mapping[str, Mapping[str, float]]) -> Points:
    """Returns the values of items as points. Each item is one run."""
    items = list(dict.fromkeys(item for values_by_item in values.values() for item in values_by_item))
    index_by_item = {item: index for index, item in enumerate(items)}
    rows = [
        (index_by_item[item], metric, value)
        for metric, values_by_item in enumerate(values.values())
        for item, value in values_by_item.items()
    ]
    item_indices, metric_indices, point_values = zip(*rows, strict=True)
    zeros = np.zeros(len(rows), np.int64)
    return Points(
        runs=[CurveRun(method, case, item, is_item=True) for item in items],
        metrics=list(values),
        run=np.asarray(item_indices, np.int64),
        metric=np.asarray(metric_indices, np.int64),
        step=zeros,
        value=np.asarray(point_values, np.float64),
        line=zeros,
    )


def items() -> FileKind:
    return FileKind(read=read_item_file, directions=directions_of_items, primary="correct")


def inspect() -> FileKind:
    return FileKind(read=read_inspect, directions=directions_of_inspect)


def lm_eval() -> FileKind:
    return FileKind(read=read_samples, directions=directions_of_samples)
