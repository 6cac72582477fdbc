"""JSON documents of `lobench keep`."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from lobench.core.json_numbers import record_from
from lobench.tools.keep.keep import Kept, MeasuredTotal

__all__ = ["DecisionRecord", "KeepLogRecord", "KeepRecord", "log_record", "record_of"]


class SideRecord(TypedDict):
    name: Annotated[str, "Hash of files, command and environment; the name of its folder in STORE/keep/revisions."]
    label: str


class DecisionRecord(TypedDict):
    """One decision of a store."""

    number: int
    candidate: SideRecord
    incumbent: SideRecord
    description: str
    answer: Annotated[Literal["keep", "discard", "undecided"] | None, "null while it is open, or if a run failed."]
    reason: str
    margin: float
    difference: Annotated[float | None, "Mean improvement on fresh seeds, in units of the metric."]
    e_value: Annotated[float | None, "Evidence for the candidate on fresh seeds."]
    level: Annotated[float, "KEEP requires an e-value of at least 1 / level. 0: it was not tested."]
    test: Annotated[int, "Number of the test in the sequence whose error rate is held. 0: it was not tested."]
    pairs: int
    fresh_pairs: int
    seeds: Annotated[list[int], "Fresh seeds of the test. No other decision uses them."]
    max_seeds: int
    diverged: Annotated[list[int], "Numbers of seeds on which the candidate and the incumbent diverged."]
    core_seconds: float


class KeepRecord(TypedDict):
    """`lobench keep`: one decision, and the error rate that it belongs to."""

    decision: DecisionRecord
    metric: str
    maximize: bool
    fdr: float
    num_tests: int
    num_kept: int
    error: Annotated[str, 'Run that had an error; "" without one.']


class TotalRecord(TypedDict):
    """Improvement from the first incumbent of the chain to its last candidate, on seeds that no decision uses."""

    first: SideRecord
    last: SideRecord
    seeds: list[int]
    pairs: Annotated[int, "Number of pairs in which both sides converged."]
    difference: Annotated[float | None, "Mean improvement in these pairs, in units of the metric."]
    lower: Annotated[float | None, "Lower end of its 95% t interval."]
    upper: Annotated[float | None, "Upper end of its 95% t interval."]
    diverged: Annotated[list[int], "Numbers of seeds on which the last candidate and the first incumbent diverged."]


class KeepLogRecord(TypedDict):
    """`lobench keep --log`: all decisions of a store, in their order."""

    metric: str
    maximize: bool
    fdr: float
    num_tests: int
    num_kept: int
    decisions: list[DecisionRecord]
    chain: Annotated[list[int], "Numbers of the decisions that led to the newest kept candidate, in their order."]
    total: Annotated[TotalRecord | None, "null until `lobench keep --log --measure N` has measured it."]
    error: Annotated[str, 'Description of the run of `--measure N` that had an error; "" without one.']


def record_of(kept: Kept) -> KeepRecord:
    terms = kept.terms
    return record_from(KeepRecord, kept, metric=terms.metric, maximize=terms.maximize, fdr=terms.fdr)


def log_record(measured: MeasuredTotal) -> KeepLogRecord:
    decisions = measured.decisions
    return record_from(
        KeepLogRecord,
        decisions,
        metric=decisions.terms.metric,
        maximize=decisions.terms.maximize,
        fdr=decisions.terms.fdr,
        chain=[one.number for one in decisions.chain],
        error=measured.error,
    )
