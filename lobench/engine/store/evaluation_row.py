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
from lobench.engine.store.schema import decoding_errors

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
      payload: `Curves.to_payload()`; None without curves, or if they are in `attached_curves`.
      recorded_sightings: Sightings of its subject.
      labels: Labels of the evaluation.
      recorded_at: Time of the record in seconds since 1970, by the clock of its machine. Not suitable for ordering.
      id: Number of the record in its store; 0 if it is not from a store.
      attached_curves: Curves of an evaluation that was not read from a store, or summary of the curves of one that was.
      superseded_sightings: Subjects that a restart in place superseded. Curves over outer steps leave them out.
      code: `key.code` with canonical fingerprints; see `Codes.canonical_code`.
      curves: Curves, decoded from the payload on each access, because many readers need few numbers of many rows.
    """

    key: EvaluationKey
    program: Program
    case: CaseInfo
    outcome: Outcome
    message: str
    payload: bytes | None
    recorded_sightings: tuple[Subject, ...]
    labels: Labels
    recorded_at: float
    id: int = 0
    attached_curves: Curves | CurveSummary | None = None
    superseded_sightings: tuple[Subject, ...] = ()
    code: str = ""

    @property
    def has_curves(self) -> bool:
        return self.payload is not None or self.attached_curves is not None

    @property
    def sightings(self) -> tuple[Subject, ...]:
        """Sightings of its subject; a placeholder without a path if unknown, as after a partial merge."""
        if self.recorded_sightings:
            return self.recorded_sightings
        return (Subject.of_checkpoint(Checkpoint(uri="", sha256=self.key.checkpoint_sha256, outer_step=0)),)

    @property
    def present_sightings(self) -> tuple[Subject, ...]:
        """Sightings that no restart in place superseded; () if all of them were."""
        if not self.superseded_sightings:
            return self.sightings
        return tuple(sighting for sighting in self.sightings if sighting not in self.superseded_sightings)

    @property
    def where(self) -> str:
        """Description of the evaluation for error messages."""
        return f"{self.case.suite}/{self.case.name} of checkpoint {self.key.checkpoint_sha256[:12]}"

    def header(self) -> tuple[dict[str, Any], int]:
        """Returns the header of the payload, and the offset of its values. The payload must not be None."""
        assert self.payload is not None
        with decoding_errors(self.where):
            return read_header(self.payload)

    @property
    def curves_or_summary(self) -> Curves | CurveSummary | None:
        """Summary of the curves if only that was read, else the curves. Sufficient for tables."""
        return self.attached_curves if self.attached_curves is not None else self.curves

    @property
    def curves(self) -> Curves | None:
        if self.payload is None:
            return (
                self.attached_curves.complete()
                if isinstance(self.attached_curves, CurveSummary)
                else self.attached_curves
            )
        try:
            return Curves.from_payload(self.payload)
        except Exception:
            with decoding_errors(self.where):
                raise
