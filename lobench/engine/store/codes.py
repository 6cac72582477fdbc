"""User code behind a ledger's evaluations: which results count as made by the current code.

The parts of each fingerprint, and the fingerprints that users have declared to be equal, are events of the ledger.
"""

from __future__ import annotations

import functools
import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from lobench.core.code import canonical_fingerprints, is_same_code, join_code, split_code
from lobench.engine.store.ledger_part import LedgerPart

if TYPE_CHECKING:
    from lobench.engine.store.current import PlanHistory

__all__ = ["CASE_CONDITION", "CODE_EVENT", "METHOD_CODE_EVENT", "SAME_CODE_EVENT", "SHOWN_DIGITS", "Codes"]

CODE_EVENT, SAME_CODE_EVENT = "code", "same_code"  # kinds of events
METHOD_CODE_EVENT = "method_code"  # event: which code a command was run with, in order
SHOWN_DIGITS = 8  # digits of a fingerprint in the name of a command's folder

# SQL condition on evaluations `e`: they are of the cases that `Codes.case_filter` returns.
CASE_CONDITION = "e.case_identity || ':' || e.optimizer_hash || char(10) || e.code IN (SELECT value FROM json_each(?))"


class Codes(LedgerPart):
    """Part of a ledger: fingerprints of the user's code behind its evaluations."""

    @abstractmethod
    def plan_history(self) -> PlanHistory:
        """Returns the plans of this ledger, in their order."""

    def record_code(self, parts_by_id: Mapping[str, Mapping[str, str]]) -> None:
        """Records the parts of fingerprints, by id. Known ids are skipped."""
        new_parts = {part_id: part_hashes for part_id, part_hashes in parts_by_id.items() if part_id not in self._parts}
        if not new_parts:
            return
        with self.transaction():
            for part_id, part_hashes in new_parts.items():
                self.record_event(CODE_EVENT, id=part_id, parts=dict(part_hashes))
        self._parts.update(new_parts)

    def accept_code(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Records that results of one code count as results of another (`--keep-results`).

        Args:
          pairs: Codes of stored results, each with the current code, in the form of `join_code`.
        """
        accepted_pairs = {
            (stored_code, current_code)
            for pair in pairs
            for stored_code, current_code in zip(*map(split_code, pair), strict=True)
            if stored_code
            and current_code
            and self.canonical_codes.get(stored_code, stored_code)
            != self.canonical_codes.get(current_code, current_code)
        }
        if not accepted_pairs:
            return
        with self.transaction():
            for stored_code, current_code in sorted(accepted_pairs):
                self.record_event(SAME_CODE_EVENT, code=stored_code, other=current_code)
        self.__dict__.pop("canonical_codes", None)

    @functools.cached_property
    def canonical_codes(self) -> Mapping[str, str]:
        """Canonical fingerprint of each fingerprint that was declared equal to others."""
        return canonical_fingerprints(
            (detail["code"], detail["other"]) for detail in self._event_details(SAME_CODE_EVENT)
        )

    @functools.cached_property
    def _parts(self) -> dict[str, Mapping[str, str]]:
        return {detail["id"]: detail["parts"] for detail in self._event_details(CODE_EVENT)}

    def code_parts(self, code: str) -> Mapping[str, str] | None:
        """Returns the parts of a fingerprint; None if the store does not know it."""
        return self._parts.get(code)

    def names_of_code_parts(self) -> list[str]:
        """Returns the names of the files and packages in all recorded fingerprints."""
        return list(dict.fromkeys(name for part_hashes in self._parts.values() for name in part_hashes))

    def script_codes(self) -> list[tuple[str, str]]:
        """Returns the name of each method that is a command, with its fingerprint when it was run, in order."""
        return [(detail["method"], detail["code"]) for detail in self._event_details(METHOD_CODE_EVENT)]

    def canonical_code(self, code: str) -> str:
        """Returns a code with canonical fingerprints: one for each set of fingerprints that were declared equal."""
        canonical_codes = self.canonical_codes
        return (
            join_code(*(canonical_codes.get(part_id, part_id) for part_id in split_code(code)))
            if code and canonical_codes
            else code
        )

    def counts_as_current(self, stored_code: str, current_code: str) -> bool:
        """Returns whether results with the code `stored_code` count as results of the current code."""
        return is_same_code(stored_code, current_code, self.canonical_codes)

    def case_filter(self, case_keys: Collection[str], codes: Mapping[str, str]) -> str:
        """Returns the argument of `CASE_CONDITION`: cases, with the codes whose results count.

        Args:
          case_keys: `CaseInfo.key` of each case.
          codes: Current code by case key. Results of any code count for cases without an entry.
        """
        return json.dumps(
            [f"{key}\n{code}" for key in sorted(case_keys) for code in self.counting_codes(codes.get(key, ""))]
        )

    def counting_codes(self, current_code: str) -> list[str]:
        """Returns the codes of stored results that count as the current code; all of them if it is unknown."""
        last_id, known_codes = self._codes_up_to_id
        newest_id = self._fetch_number("SELECT MAX(id) FROM evaluations")
        index = "NOT INDEXED" if last_id else ""  # reads the new rows only; the index would be read as a whole
        new_codes = self._fetch_rows(f"SELECT DISTINCT code FROM evaluations {index} WHERE id > ?", (last_id,))
        known_codes = known_codes | {code for (code,) in new_codes}
        self._codes_up_to_id = newest_id, known_codes
        return sorted(code for code in known_codes if self.counts_as_current(code, current_code))

    @functools.cached_property
    def _codes_up_to_id(self) -> tuple[int, frozenset[str]]:
        """Id of an evaluation, and the codes of the evaluations up to it."""
        return 0, frozenset()

    def reset_codes(self) -> None:
        """Called after evaluations were removed or rolled back, or their codes were changed."""
        self.__dict__.pop("_codes_up_to_id", None)

    def outdated_ids(
        self, sha256: str = "", *, after: int = 0, known_ids: frozenset[int] = frozenset()
    ) -> frozenset[int]:
        """Returns the ids of evaluations that do not count because other code has results of the same work.

        For one case and subject, only results of the code that was planned last count. If this code has no results, the
        code of the latest result counts.

        Args:
          sha256: Hash of the subject. "": all subjects.
          after: Id of an evaluation. Up to it, the result is known: since it was found, no evaluation has changed, and
            no code was planned or declared equal to another. 0: nothing is known.
          known_ids: The known result.
        """
        key = "checkpoint_sha256, optimizer_hash, case_identity"
        conditions, values = ["code <> ''"], list[object]()
        if sha256:
            conditions.append("checkpoint_sha256 = ?")
            values.append(sha256)
        if after:
            # Reads the new rows only; the index would be read as a whole.
            conditions.append(f"({key}) IN (SELECT {key} FROM evaluations NOT INDEXED WHERE id > ?)")
            values.append(after)
        groups = self._fetch_rows(
            f"SELECT {key} FROM evaluations WHERE {' AND '.join(conditions)} "
            f"GROUP BY {key} HAVING COUNT(DISTINCT code) > 1",
            values,
        )
        if not groups:
            return known_ids
        planned_codes = self.plan_history().last_codes
        outdated_ids = set(known_ids)
        for group in groups:
            rows = self._fetch_rows(
                "SELECT id, code FROM evaluations WHERE checkpoint_sha256 = ? AND optimizer_hash = ? "
                "AND case_identity = ? ORDER BY id",
                group,
            )
            current_code = planned_codes.get(f"{group[2]}:{group[1]}", "")
            if not current_code or not any(self.counts_as_current(code, current_code) for _, code in rows if code):
                current_code = next(code for _, code in reversed(rows) if code)
            outdated_ids.difference_update(evaluation_id for evaluation_id, _ in rows)
            outdated_ids.update(
                evaluation_id for evaluation_id, code in rows if not self.counts_as_current(code, current_code)
            )
        return frozenset(outdated_ids)
