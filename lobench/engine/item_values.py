"""Files with a value for each item of a data set: JSON lines, a JSON list of objects, or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.core.errors import LobenchError, UsageError
from lobench.core.items import seeds_of_items
from lobench.core.metric import stored_spelling
from lobench.core.wording import shortened_list
from lobench.engine.csv_files import read_text

__all__ = ["ITEM_COLUMN", "ItemValues", "read_items", "to_number", "values_by_metric"]

ITEM_COLUMN = "item"  # name of the column
_MAX_SHOWN = 5
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemValues:
    """Metrics of items.

    Attributes:
      seeds: Number of each item, in ascending order.
      items: Name of each item.
      metrics: float64[num_items] by name. NaN for an item whose value is not finite.
      problems: A line for each metric that is left out because some of the items lack it.
    """

    seeds: tuple[int, ...]
    items: tuple[str, ...]
    metrics: Mapping[str, NDArray[np.float64]]
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Mapping[str, float]], primary: str, *, where: str) -> ItemValues:
        """Returns values in the order of their items' numbers.

        Args:
          values: Value of each item, by metric.
          primary: Metric that each item must have.
          where: Name of the source of the values, for error messages.
        Raises:
          LobenchError: An item lacks the primary metric, or there are no items.
        """
        primary_name = stored_spelling(primary, values)
        if primary_name not in values:
            got = shortened_list(sorted(values), _MAX_SHOWN) or "no metric"
            raise LobenchError(f"no item has {primary}", where=where, got=got, expected=primary)
        all_items = dict.fromkeys(item for values_by_item in values.values() for item in values_by_item)
        if lacking_items := [item for item in all_items if item not in values[primary_name]]:
            items_text = shortened_list(lacking_items, _MAX_SHOWN)
            got = f"{len(lacking_items)} of {len(all_items)} items without it: {items_text}"
            raise LobenchError(f"an item has no {primary}", where=where, got=got, expected="a number for each item")
        try:
            names_by_seed = seeds_of_items(all_items)
        except ValueError as error:
            raise LobenchError(str(error), where=where) from error
        metrics = dict[str, NDArray[np.float64]]()
        problems = list[str]()
        for metric, values_by_item in values.items():
            if len(values_by_item) == len(all_items):
                metrics[primary if metric == primary_name else metric] = np.asarray(
                    [values_by_item[item] for item in names_by_seed.values()]
                )
            else:
                problems.append(
                    f"{metric} is left out: {len(all_items) - len(values_by_item)} of {len(all_items)} items lack it"
                )
        return cls(
            seeds=tuple(names_by_seed), items=tuple(names_by_seed.values()), metrics=metrics, problems=tuple(problems)
        )


def read_items(path: Path, primary: str) -> ItemValues:
    """Returns the values in a file. Columns of texts are left out.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
    >>> _ = path.write_text('{"item": "q1", "correct": true}\\n{"item": "q2", "correct": 0}\\n')
    >>> read_items(path, "correct").metrics["correct"].tolist()
    [1.0, 0.0]

    Args:
      path: File of JSON lines, a JSON list of objects, or CSV. It may be gzipped.
      primary: Metric that each item must have.
    Raises:
      LobenchError: The file is missing or cannot be read, an item occurs twice, or one has no primary metric.
    """
    return ItemValues.of(values_by_metric(path), primary, where=str(path))


def values_by_metric(path: Path) -> dict[str, dict[str, float]]:
    """Returns the values in a file by metric and item, of all metrics; see `read_items`."""
    text = read_text(path)
    where = str(path)
    rows = _json_rows(text, where) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text, where)
    values: dict[str, dict[str, float]] = {}
    items = set[str]()
    for location, row in rows:
        item = row.get(ITEM_COLUMN)
        if not isinstance(item, str | int) or isinstance(item, bool) or item == "":
            raise UsageError("no item", where=location, got=repr(item), expected='"item": "q17", its name')
        name = str(item)
        if name in items:
            raise UsageError(f"item {name!r} occurs twice", where=location, expected="one value for each item")
        items.add(name)
        for metric, value in row.items():
            if metric != ITEM_COLUMN and (number := to_number(value)) is not None:
                values.setdefault(metric, {})[name] = number
    if not items:
        raise UsageError("the file has no items", where=where)
    return values


def to_number(value: Any) -> float | None:
    """Returns a value as a number; None if it is a text, a list or missing."""
    if isinstance(value, list | dict) or value is None:
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return {"true": 1.0, "false": 0.0}.get(str(value).strip().lower())


def _json_rows(text: str, where: str) -> Iterable[tuple[str, _Row]]:
    lines = enumerate(text.split("\n"), 1)  # `splitlines` also splits at U+2028, which texts in JSON may have
    is_list = text.lstrip()[0] == "["
    located_texts = (
        [(where, text)] if is_list else [(f"{where}, line {number}", line) for number, line in lines if line.strip()]
    )
    for location, json_text in located_texts:
        try:
            document = json.loads(json_text)
        except (ValueError, RecursionError) as error:
            raise UsageError(
                "this is not JSON", where=location, got=json_text[:60], expected='{"item": "q17", ...}'
            ) from error
        for row in document if is_list else [document]:
            if not isinstance(row, dict):
                raise UsageError("no item", where=location, got=repr(row)[:60], expected='{"item": "q17", ...}')
            yield location, row


def _csv_rows(text: str, where: str) -> Iterable[tuple[str, _Row]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        if ITEM_COLUMN not in (reader.fieldnames or ()):
            got = ", ".join(map(str, reader.fieldnames or ()))[:60]
            raise UsageError(
                f"the file has no column {ITEM_COLUMN}", where=where, got=got or "an empty file", expected=ITEM_COLUMN
            )
        for row in reader:
            if None in row:
                expected = f"{len(reader.fieldnames or ())} values"
                raise UsageError("a row is too long", where=f"{where}, line {reader.line_num}", expected=expected)
            yield f"{where}, line {reader.line_num}", row
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise UsageError("this is not CSV", where=f"{where}, after line {reader.line_num}", got=str(error)) from error
