"""Alarms that were raised along a run, as its store keeps them: every page reads them, and nothing else of alarms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lobench.core.errors import StoreError
from lobench.core.wording import cause

__all__ = ["RAISED", "raised_alarms", "read_raised"]

RAISED = Path("alarm", "alarms.json")  # in the store


def raised_alarms(store: Path) -> list[str]:
    """Returns the line of each alarm that was raised along a run that is watched into a store.

    Raises:
      StoreError: they cannot be read.
    """
    return read_raised(store / RAISED)[2]


def read_raised(file: Path) -> tuple[list[list[Any]], dict[str, list[list[Any]]], list[str]]:
    """Returns the alarms that were told, what each sink was told, by its address, and a line of each alarm.

    Raises:
      StoreError: they cannot be read.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"told": [], "sinks": {}}
        raised = list(found["told"])
        lines = found.get("lines", [f"ALARM {kind}: outer step {step}" for kind, _, step in raised])
        return raised, {address: list(names) for address, names in found["sinks"].items()}, list(map(str, lines))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            "what was told of alarms cannot be read", where=str(file), got=cause(error), next_step="move it away"
        ) from error
