"""Stored descriptions of a suite's cases, for the next start."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lobench.core.case import CaseInfo
from lobench.engine.store.database import LedgerPart
from lobench.engine.store.schema import store_errors

__all__ = ["DescribedRow", "SuiteRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedRow:
    """The cases of a variant, and what they hang on.

    Attributes:
      fingerprint: Of all but files.
      files: Marks of files, by what they are to a suite.
    """

    fingerprint: str
    cases: tuple[CaseInfo, ...]
    files: Mapping[str, Any]


class SuiteRows(LedgerPart):
    """What a ledger says and is told of suites."""

    def record_described(
        self, variant: str, *, fingerprint: str, cases: Sequence[CaseInfo], files: Mapping[str, Any]
    ) -> None:
        """Keeps the cases of a variant in place of what was known of it."""
        texts = json.dumps([dataclasses.asdict(case) for case in cases]), json.dumps(files)
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO described VALUES (?, ?, ?, ?)", (variant, fingerprint, *texts))

    def described(self, variant: str) -> DescribedRow | None:
        """Returns what is known of a variant; None where nothing is, or what an older lobench wrote."""
        with store_errors(self.store):
            row = self._db.execute(
                "SELECT fingerprint, cases_json, files_json FROM described WHERE variant = ?", (variant,)
            ).fetchone()
        if row is None:
            return None
        try:
            cases = tuple(CaseInfo(**record) for record in json.loads(row[1]))
            return DescribedRow(fingerprint=row[0], cases=cases, files=json.loads(row[2]))
        except (ValueError, TypeError):
            return None  # a worker will say it again
