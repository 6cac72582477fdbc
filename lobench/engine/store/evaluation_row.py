"""Stored evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.curve_summary import CurveSummary
from lobench.core.labels import Labels
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome, read_header
from lobench.core.subject import Subject
from lobench.engine.store.schema import intact_rows

__all__ = ["EvaluationRow"]


# Never changed, and a member of sets; a frozen one takes three times as long to create.
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class EvaluationRow:
    """Stored evaluation, with every sighting of its subject.

    Its fields are columns of the ledger. They are not grouped, because a large store has a row for each of its results.

    Attributes:
      key: Key of the evaluation.
      program: Program of the key.
      case: Case that was evaluated.
      outcome: Outcome.
      message: Error message, if any.
      payload: `Curves.to_payload()`; None without curves, or if they are in `at_hand`.
      subjects: Sightings of its subject.
      labels: Labels of the evaluation.
      recorded_at: Time of the record in seconds since 1970, by the clock of its machine. Not suitable for ordering.
      id: Number of the record in its store; 0 if it is not from a store.
      at_hand: Curves of an evaluation that was not read from a store, or summary of the curves of one that was.
      superseded: Subjects that a restart in place superseded. Curves over outer steps leave them out.
      code: `key.code` with canonical fingerprints; see `Codes.canonical_code`.
      curves: Curves, decoded from the payload on each access, because many readers need few numbers of many rows.
    """

    key: EvaluationKey
    program: Program
    case: CaseInfo
    outcome: Outcome
    message: str
    payload: bytes | None
    subjects: tuple[Subject, ...]
    labels: Labels
    recorded_at: float
    id: int = 0
    at_hand: Curves | CurveSummary | None = None
    superseded: tuple[Subject, ...] = ()
    code: str = ""

    @property
    def has_curves(self) -> bool:
        return self.payload is not None or self.at_hand is not None

    @property
    def sightings(self) -> tuple[Subject, ...]:
        """Sightings of its subject; a placeholder without a path if unknown, as after a partial merge."""
        if self.subjects:
            return self.subjects
        return (Subject.of_checkpoint(Checkpoint(uri="", sha256=self.key.checkpoint_sha256, outer_step=0)),)

    @property
    def present(self) -> tuple[Subject, ...]:
        """Sightings that no restart in place superseded; () if all of them were."""
        if not self.superseded:
            return self.sightings
        return tuple(sighting for sighting in self.sightings if sighting not in self.superseded)

    @property
    def where(self) -> str:
        """Description of the evaluation for error messages."""
        return f"{self.case.suite}/{self.case.name} of checkpoint {self.key.checkpoint_sha256[:12]}"

    def header(self) -> tuple[dict[str, Any], int]:
        """Returns the header of the payload, and the offset of its values. The payload must not be None."""
        assert self.payload is not None
        with intact_rows(self.where):
            return read_header(self.payload)

    @property
    def measured(self) -> Curves | CurveSummary | None:
        """Summary of the curves if only that was read, else the curves. Sufficient for tables."""
        return self.at_hand if self.at_hand is not None else self.curves

    @property
    def curves(self) -> Curves | None:
        if self.payload is None:
            return self.at_hand.complete() if isinstance(self.at_hand, CurveSummary) else self.at_hand
        try:
            return Curves.from_payload(self.payload)
        except Exception:
            with intact_rows(self.where):
                raise
