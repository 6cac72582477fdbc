"""JSON documents of `lobench keep`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from lobench.core.json_numbers import record_from
from lobench.tools.keep.keep import Kept, MeasuredTotal
from lobench.tools.keep.sequence import Decision, Total

__all__ = ["KeepLogRecord", "KeepRecord", "log_record", "record_of"]


class KeepRecord(TypedDict):
    """`lobench keep`: one decision, and the error rate that it belongs to."""

    decision: Decision
    metric: str
    maximize: bool
    fdr: float
    num_tests: int
    num_kept: int
    error: Annotated[str, 'Run that had an error; "" without one.']


class KeepLogRecord(TypedDict):
    """`lobench keep --log`: all decisions of a store, in their order."""

    metric: str
    maximize: bool
    fdr: float
    num_tests: int
    num_kept: int
    decisions: list[Decision]
    chain: Annotated[list[int], "Numbers of the decisions that led to the newest kept candidate, in their order."]
    total: Annotated[Total | None, "null until `lobench keep --log --measure N` has measured it."]
    error: Annotated[str, 'Description of the run of `--measure N` that had an error; "" without one.']


def record_of(outcome: Kept) -> KeepRecord:
    return record_from(KeepRecord, outcome, outcome.terms)


def log_record(measured_total: MeasuredTotal) -> KeepLogRecord:
    decisions = measured_total.decisions
    chain = [decision.number for decision in decisions.chain]
    return record_from(KeepLogRecord, decisions, decisions.terms, chain=chain, error=measured_total.error)
