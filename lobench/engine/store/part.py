"""What the parts of a ledger have in common, each of which reads and writes some of its tables."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import abstractmethod
from pathlib import Path

__all__ = ["LedgerPart"]


class LedgerPart:
    """A part of `lobench.engine.store.ledger.Ledger`, which opens the database and knows its transactions."""

    store: Path
    _db: sqlite3.Connection

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Commits the body's writes together."""
