"""Stored descriptions of a suite's cases, so that the next run need not ask a worker."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lobench.core.case import CaseInfo
from lobench.engine.store.ledger_part import LedgerPart

__all__ = ["RecordedDescription", "SuiteDescriptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDescription:
    """Cases of a variant, and the inputs from which they were collected.

    Attributes:
      fingerprint: Hash of all inputs except files.
      cases: Cases as a worker described them.
      files: Stamps of the files that were read, by their role in a suite.
    """

    fingerprint: str
    cases: tuple[CaseInfo, ...]
    files: Mapping[str, Any]


class SuiteDescriptions(LedgerPart):
    """Part of a ledger: descriptions of suites."""

    def record_description(
        self, variant: str, *, fingerprint: str, cases: Sequence[CaseInfo], files: Mapping[str, Any]
    ) -> None:
        """Records the cases of a variant, replacing earlier ones."""
        texts = json.dumps([dataclasses.asdict(case) for case in cases]), json.dumps(files)
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO described VALUES (?, ?, ?, ?)", (variant, fingerprint, *texts))

    def recorded_description(self, variant: str) -> RecordedDescription | None:
        """Returns the recorded cases of a variant; None without a record, or if an older lobench wrote it."""
        rows = self._fetch_rows(
            "SELECT fingerprint, cases_json, files_json FROM described WHERE variant = ?", (variant,)
        )
        if not rows:
            return None
        ((fingerprint, cases, files),) = rows
        try:
            case_infos = tuple(CaseInfo(**record) for record in json.loads(cases))
            return RecordedDescription(fingerprint=fingerprint, cases=case_infos, files=json.loads(files))
        except (ValueError, TypeError):
            return None  # a worker will describe the cases again
