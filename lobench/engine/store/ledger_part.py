"""Base of the parts of a ledger: queries with one-line errors, and the ledger's events."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lobench.engine.store.schema import decoding_errors, store_errors

__all__ = ["LedgerPart"]


class LedgerPart:
    """Base of the parts of `lobench.engine.store.ledger.Ledger`, which opens the database and nests transactions."""

    store: Path
    _db: sqlite3.Connection

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Commits the body's writes together."""

    @abstractmethod
    def record_event(self, kind: str, **detail: Any) -> None:
        """Records an event that is not a result: skipped, expired, unreadable, started, ..."""

    def _fetch_rows(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        with store_errors(self.store):
            return self._db.execute(query, values).fetchall()

    def _fetch_number(self, query: str, values: Sequence[object] = ()) -> int:
        """Returns the integer that a query selects; 0 if it selects NULL."""
        ((number,),) = self._fetch_rows(query, values)
        return int(number or 0)

    def timed_events(self, *kinds: str) -> list[tuple[str, dict[str, Any], float]]:
        """Returns the kind, the content and the time of events, in the order of their recording.

        Args:
          kinds: Kinds to select. Empty: all.
        """
        where = f"WHERE kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        rows = self._fetch_rows(f"SELECT kind, detail, at FROM events {where} ORDER BY id", kinds)
        with decoding_errors(self.store):
            return [(kind, json.loads(detail), recorded_at) for kind, detail, recorded_at in rows]

    def events(self, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns `timed_events` without the times."""
        return [(kind, detail) for kind, detail, _ in self.timed_events(*kinds)]

    def _event_details(self, kind: str) -> list[dict[str, Any]]:
        return [detail for _, detail in self.events(kind)]
