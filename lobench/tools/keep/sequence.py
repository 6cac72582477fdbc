"""Sequence of the decisions of a store, in the file `STORE/keep/decisions.json`."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lobench.core.errors import StoreError, UsageError
from lobench.core.wording import cause
from lobench.engine.whole_file import write_whole
from lobench.tools.keep.decision import KeepAnswer

__all__ = ["ComparedRevision", "Decision", "DecisionSequence", "DecisionStore", "Terms", "Total"]

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRevision:
    """Revision in a decision.

    Attributes:
      name: Hash of files, command and environment. It is the name of its folder in STORE/keep/revisions.
      label: Name for people.
    """

    name: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms that all decisions of a store share.

    Attributes:
      fdr: Bound of the false discovery rate of KEEP.
      metric: Metric that decides, by its last value.
      maximize: Whether higher is better.
      curves: File that the command writes, with placeholders.
      screen: Number of seeds that all candidates share.
    """

    fdr: float
    metric: str
    maximize: bool
    curves: str
    screen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision. Its fields are the keys of an entry in the store's file and in JSON documents.

    Attributes:
      number: Number of the decision in its store, from 1 on.
      candidate, incumbent: The two revisions.
      description: Description of the change.
      margin: Improvement that KEEP requires, in units of the metric.
      max_seeds: Largest number of pairs on fresh seeds.
      test: Number of the test in the sequence of tests. 0: not tested, because the shared seeds were enough to discard
        the candidate.
      level: Level of the test: KEEP requires an e-value of at least 1 / level. 0: not tested.
      seeds: Seeds of the test. No other decision uses them.
      answer: The answer. None (null in JSON) while it is open, or if a run failed.
      reason: Reason for the answer, one clause.
      e_value: Evidence for the candidate, by the seeds of the test.
      difference: Mean improvement on the seeds of the test on which both converged. None (null) without such a seed.
      pairs: Number of pairs with results, including pairs on shared seeds.
      fresh_pairs: Number of pairs with results on the seeds of the test.
      diverged: Number of pairs in which the candidate diverged, and in which the incumbent did.
      core_seconds: Core-seconds of the candidate's runs, and of the incumbent's on the seeds of the test.
    """

    number: int
    candidate: ComparedRevision
    incumbent: ComparedRevision
    description: str = ""
    margin: float = 0.0
    max_seeds: int
    test: int = 0
    level: float = 0.0
    seeds: tuple[int, ...] = ()
    answer: KeepAnswer | None = None
    reason: str = ""
    e_value: float = 0.0
    difference: float | None = None
    pairs: int = 0
    fresh_pairs: int = 0
    diverged: tuple[int, int] = (0, 0)
    core_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Improvement from the first incumbent of a chain of kept changes to its last candidate.

    It is measured on seeds that no decision uses, so the choice of the changes does not bias it.

    Attributes:
      first, last: The two revisions.
      seeds: Seeds of the measurement.
      pairs: Number of pairs in which both sides converged.
      difference: Mean improvement in these pairs, in units of the metric. None (null) without such a pair.
      lower, upper: 95% t interval of the mean. None (null) below two pairs.
      diverged: Number of seeds on which the last candidate diverged, and on which the first incumbent did.
    """

    first: ComparedRevision
    last: ComparedRevision
    seeds: tuple[int, ...]
    pairs: int = 0
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None
    diverged: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSequence:
    """Decisions recorded in a store.

    Attributes:
      terms: Settings that apply to every decision.
      decisions: Decisions in the order of their numbers.
      totals: Measured total differences, one for each pair (first incumbent, last candidate) of a chain.
    """

    terms: Terms
    decisions: tuple[Decision, ...] = field(default=())
    totals: tuple[Total, ...] = field(default=())

    @property
    def num_tests(self) -> int:
        return max((decision.test for decision in self.decisions), default=0)

    @property
    def num_kept(self) -> int:
        return sum(decision.answer is KeepAnswer.KEEP for decision in self.decisions)

    @property
    def next_seed(self) -> int:
        """Smallest seed that no decision has used."""
        used_seeds = [seed for decision in self.decisions for seed in decision.seeds]
        used_seeds += [seed for total in self.totals for seed in total.seeds]
        return max(used_seeds, default=self.terms.screen - 1) + 1

    @property
    def chain(self) -> tuple[Decision, ...]:
        """Kept changes up to the newest one; the incumbent of each is the candidate of the one before."""
        kept_decisions = [decision for decision in self.decisions if decision.answer is KeepAnswer.KEEP]
        chain = kept_decisions[-1:]
        while chain:
            earlier_decisions = [decision for decision in kept_decisions if decision.number < chain[0].number]
            predecessors = [
                decision for decision in earlier_decisions if decision.candidate.name == chain[0].incumbent.name
            ]
            if not predecessors:
                break
            chain.insert(0, predecessors[-1])
        return tuple(chain)

    @property
    def total(self) -> Total | None:
        """Measured difference between the first incumbent and the last candidate of the chain; None if not measured."""
        if not self.chain:
            return None
        first_and_last = (self.chain[0].incumbent.name, self.chain[-1].candidate.name)
        return next((total for total in self.totals if (total.first.name, total.last.name) == first_and_last), None)

    def with_total(self, total: Total) -> DecisionSequence:
        """Returns the sequence with a measured total difference. It replaces an earlier one of the same revisions."""
        other_totals = [
            existing
            for existing in self.totals
            if (existing.first.name, existing.last.name) != (total.first.name, total.last.name)
        ]
        return dataclasses.replace(self, totals=(*other_totals, total))

    def find_decision(self, candidate: ComparedRevision, incumbent: ComparedRevision, margin: float) -> Decision | None:
        """Returns the earlier decision between two revisions with a margin; None if there is none."""
        identity = (candidate.name, incumbent.name, margin)
        for decision in self.decisions:
            if (decision.candidate.name, decision.incumbent.name, decision.margin) == identity:
                return decision
        return None

    def with_decision(self, decision: Decision) -> DecisionSequence:
        """Returns the sequence with a decision added. It replaces the decision with the same number."""
        index = decision.number - 1
        decisions = (*self.decisions[:index], decision, *self.decisions[index + 1 :])
        return dataclasses.replace(self, decisions=decisions)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionStore:
    """Reads and writes the file of a sequence."""

    path: Path

    def read(self, terms: Terms | None = None) -> DecisionSequence:
        """Returns the sequence of the store; an empty one for a new store.

        Args:
          terms: Terms of the caller. None: those of the store.
        Raises:
          StoreError: The file is damaged, or is missing and no terms are given.
          UsageError: The store has other terms.
        """
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
            sequence = _parse_sequence(record)
        except FileNotFoundError:
            if terms is None:
                raise StoreError("no decisions here", where=str(self.path.parent.parent)) from None
            return DecisionSequence(terms=terms)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StoreError(
                "the decisions cannot be read", where=str(self.path), got=cause(error), next_step="move the store away"
            ) from error
        for name in Terms.__slots__ if terms is not None else ():
            wanted_value = getattr(terms, name)
            stored_value = getattr(sequence.terms, name)
            if wanted_value != stored_value:
                raise UsageError(
                    "all decisions of a store have the same terms",
                    where=str(self.path.parent.parent),
                    got=f"{name} {wanted_value!r}",
                    expected=repr(stored_value),
                    next_step="another --store begins another sequence",
                )
        return sequence

    def write(self, sequence: DecisionSequence) -> None:
        record = {"version": _VERSION, **dataclasses.asdict(sequence)}
        write_whole(self.path, json.dumps(record, indent=1) + "\n", durable=True)


def _parse_sequence(record: dict[str, Any]) -> DecisionSequence:
    if record["version"] != _VERSION:
        raise ValueError(f"version {record['version']} of the file is newer than this lobench")
    decisions = []
    for entry in record["decisions"]:
        sides_by_name = {name: ComparedRevision(**entry[name]) for name in ("candidate", "incumbent")}
        answer = None if entry["answer"] is None else KeepAnswer(entry["answer"])
        tuples = {name: tuple(entry[name]) for name in ("seeds", "diverged")}
        decisions.append(Decision(**{**entry, **sides_by_name, **tuples, "answer": answer}))
    totals = []
    for entry in record.get("totals", ()):
        sides_by_name = {name: ComparedRevision(**entry[name]) for name in ("first", "last")}
        tuples = {name: tuple(entry[name]) for name in ("seeds", "diverged")}
        totals.append(Total(**{**entry, **sides_by_name, **tuples}))
    return DecisionSequence(terms=Terms(**record["terms"]), decisions=tuple(decisions), totals=tuple(totals))
