"""Record of raised alarms in the store of a watch, for pages and for `lobench alarm`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lobench.core.errors import StoreError
from lobench.core.wording import cause

__all__ = ["RECORD_FILE", "alarm_lines", "read_record"]

RECORD_FILE = Path("alarm", "alarms.json")  # relative to the store


def alarm_lines(store: Path) -> list[str]:
    """Returns the line of each alarm that was raised along a watched run.

    Raises:
      StoreError: The record of alarms cannot be read.
    """
    return read_record(store / RECORD_FILE)[2]


def read_record(file: Path) -> tuple[list[list[Any]], dict[str, list[list[Any]]], list[str]]:
    """Returns the reported alarms, the alarms delivered to each sink by its address, and the line of each alarm.

    Raises:
      StoreError: The record of alarms cannot be read.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"told": [], "sinks": {}}
        raised = list(document["told"])
        lines = document.get("lines", [f"ALARM {kind}: outer step {step}" for kind, _, step in raised])
        return raised, {address: list(names) for address, names in document["sinks"].items()}, list(map(str, lines))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            "the record of raised alarms cannot be read", where=str(file), got=cause(error), next_step="move it away"
        ) from error
