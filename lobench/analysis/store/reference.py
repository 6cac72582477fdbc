"""Reference of a gate: the last subject of a store that is not the candidate, kept for the next call.

A gate may write its candidate into the store that its reference comes from. So the candidate is never chosen, and the
choice is recorded as an event of the store that the gate writes into. A later call of the same gate then finds the same
reference, although the store has grown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import StoredSubject, last_subject
from lobench.core.errors import UsageError
from lobench.core.subject import SubjectKey
from lobench.engine.store.ledger import Ledger

__all__ = [
    "GATE_EVENT",
    "REFERENCE_EVENT",
    "ReferenceChoice",
    "choose_reference",
    "label_with_hash",
    "other_subjects",
    "recorded_choices",
    "short_hash",
]

REFERENCE_EVENT = "gate_reference"
GATE_EVENT = "gate"

_HASH_DIGITS = 12  # hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceChoice:
    """Reference chosen for a candidate when a gate first compared the two.

    Attributes:
      candidate: The candidate.
      chosen_in: Absolute path of the store whose last subject the reference was.
      reference: The reference.
    """

    candidate: SubjectKey
    chosen_in: str
    reference: SubjectKey

    def to_event(self) -> dict[str, Any]:
        """Returns the detail of the event that records the choice."""
        return {"candidate": list(self.candidate), "chosen_in": self.chosen_in, "reference": list(self.reference)}

    @classmethod
    def of_event(cls, detail: Mapping[str, Any]) -> ReferenceChoice:
        return cls(
            candidate=SubjectKey(*detail["candidate"]),
            chosen_in=str(detail["chosen_in"]),
            reference=SubjectKey(*detail["reference"]),
        )


def recorded_choices(stores: Iterable[Path]) -> list[ReferenceChoice]:
    """Returns the choices recorded in stores, in order, with present paths. Stores that do not exist are skipped."""
    choices = []
    for store in dict.fromkeys(stores):
        if (store / "ledger.sqlite").is_file():
            with Ledger.open(store, read_only=True) as ledger:
                for _, detail in ledger.events(REFERENCE_EVENT):
                    chosen_in = Path(ledger.present_path(str(detail["chosen_in"]))).resolve()
                    choices.append(ReferenceChoice.of_event({**detail, "chosen_in": chosen_in}))
    return choices


def choose_reference(
    snapshot: Snapshot, candidates: Collection[SubjectKey], choices: Sequence[ReferenceChoice] = ()
) -> StoredSubject:
    """Returns the reference of a store: the recorded reference, or else the last suitable subject.

    A subject that a gate of this store found to be worse is chosen only as the last resort. A subject without curves
    is chosen only if no other has curves.

    Args:
      snapshot: Snapshot of the store.
      candidates: Subjects to compare with the reference. They are never chosen.
      choices: Earlier choices. The first one for a candidate and this store counts if the store still has its
        reference.

    Raises:
      UsageError: The store contains the candidates only.
    """
    other_stored_subjects = other_subjects(snapshot.subjects, candidates)
    if not other_stored_subjects:
        got = "the candidate alone" if snapshot.subjects else ""
        raise UsageError(
            "the store holds no evaluation to compare with" if not snapshot.subjects else "the store has no reference",
            where=str(snapshot.store),
            got=got,
            next_step="evaluate the reference into this store, or name another store or checkpoint",
        )
    store_path = str(snapshot.store.resolve())
    for choice in choices:
        if choice.candidate in candidates and choice.chosen_in == store_path:
            recorded_subjects = [
                subject for subject in other_stored_subjects if subject.subject.key == choice.reference
            ]
            if recorded_subjects:
                return last_subject(recorded_subjects)
    regressed_keys = _regressed_candidates(snapshot.events)
    suitable_subjects = [
        subject for subject in other_stored_subjects if subject.subject.key not in regressed_keys
    ] or other_stored_subjects
    subjects_with_curves = [subject for subject in suitable_subjects if subject.num_seeds]
    return last_subject(subjects_with_curves or suitable_subjects)


def other_subjects(subjects: Iterable[StoredSubject], candidates: Collection[SubjectKey]) -> list[StoredSubject]:
    """Returns the subjects that are not candidates."""
    return [subject for subject in subjects if subject.subject.key not in candidates]


def label_with_hash(subject: StoredSubject) -> str:
    """Returns a subject's label with the start of its sha256: `theta_100.npz (sha256 0123456789ab)`."""
    return f"{subject.label} ({short_hash(subject.subject.sha256)})"


def short_hash(sha256: str) -> str:
    """Returns the start of a sha256 in the form used in outputs."""
    return f"sha256 {sha256[:_HASH_DIGITS]}"


def _regressed_candidates(events: Iterable[tuple[str, Mapping[str, Any]]]) -> set[SubjectKey]:
    """Returns the candidates whose last gate in this store gave REGRESSED."""
    last_verdicts: dict[SubjectKey, str] = {}
    for kind, detail in events:
        if kind == GATE_EVENT:
            last_verdicts.update({SubjectKey(*key): str(detail["verdict"]) for key in detail.get("candidates", ())})
    return {key for key, verdict in last_verdicts.items() if verdict == "REGRESSED"}
