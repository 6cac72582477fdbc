"""Text and JSON documents of `lobench keep`."""

from __future__ import annotations

from typing import Annotated, TypedDict

from lobench.core.json_numbers import record_from
from lobench.core.wording import counted, duration_text, one_line, seed_ranges_text
from lobench.report.tables.text import text_table
from lobench.tools.keep.keep import KeepResult, MeasuredTotal
from lobench.tools.keep.sequence import Decision, DecisionSequence, Terms, Total

__all__ = ["KeepLogRecord", "KeepRecord", "kept_record", "kept_text", "log_record", "log_text"]


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


def kept_text(outcome: KeepResult) -> str:
    """Returns the answer in one line, and the error rate that it belongs to in another."""
    decision = outcome.decision
    if outcome.error:
        return one_line(f"no decision: {outcome.error}; the same command tries again")
    assert decision.answer is not None
    earlier_note = "" if outcome.is_new else " (decided before)"
    clauses = [
        f"{decision.answer.upper()}{earlier_note}: {decision.description} against {decision.incumbent.label}",
        decision.reason,
        _difference_text(decision, outcome.decisions.terms),
        _divergence_text(decision),
        f"{counted(decision.pairs, 'pair')}, {decision.fresh_pairs} of them on fresh seeds",
        duration_text(decision.core_seconds) + " of runs",
    ]
    return "\n".join([one_line("; ".join(clause for clause in clauses if clause)), _rate_text(outcome)])


def _difference_text(decision: Decision, terms: Terms) -> str:
    if decision.difference is None:
        return ""
    direction = "better" if decision.difference >= 0 else "worse"
    return (
        f"{terms.metric} {direction} by {abs(decision.difference):.3g} on fresh seeds, e-value {decision.e_value:.3g}"
    )


def _divergence_text(decision: Decision) -> str:
    if not any(decision.diverged):
        return ""
    return f"diverged: {decision.diverged[0]} of the candidate, {decision.diverged[1]} of the incumbent"


def _rate_text(result: KeepResult) -> str:
    decisions = result.decisions
    counts_text = f"{decisions.num_kept} kept of {counted(decisions.num_tests, 'test')} in this store"
    return f"{counts_text}; at most {decisions.terms.fdr:.0%} of those kept are expected to be no improvement"


def log_text(measured_total: MeasuredTotal) -> str:
    """Returns a table of all decisions, the error rate, and the chain of kept changes with its measured total."""
    decisions = measured_total.decisions
    rows = [
        ["", "answer", "change", "e-value", "level", "needed", "difference", "pairs", "fresh seeds", "core-seconds"]
    ]
    for decision in decisions.decisions:
        rows.append(
            [
                str(decision.number),
                decision.answer.value if decision.answer is not None else "open",
                one_line(decision.description),
                f"{decision.e_value:.3g}" if decision.test else "",
                f"{decision.level:.2g}" if decision.test else "",
                f"{1 / decision.level:.3g}" if decision.test else "",
                f"{decision.difference:.3g}" if decision.difference is not None else "",
                str(decision.pairs),
                seed_ranges_text(decision.seeds),
                f"{decision.core_seconds:.3g}",
            ]
        )
    candidates_text = counted(len(decisions.decisions), "candidate")
    counts_text = f"{decisions.num_kept} kept of {counted(decisions.num_tests, 'test')}, {candidates_text}"
    rate_text = f"at most {decisions.terms.fdr:.0%} of those kept are expected to be no improvement"
    lines = [text_table(rows), "", f"{counts_text} by {decisions.terms.metric}; {rate_text}"]
    if decisions.chain:
        changes_text = "; ".join(f"{decision.number} {decision.description}" for decision in decisions.chain)
        lines.append(one_line(f"chain of kept changes from {decisions.chain[0].incumbent.label}: {changes_text}"))
        error_text = f"no measurement: {measured_total.error}; the same command tries again"
        lines.append(one_line(f"in total: {error_text if measured_total.error else _total_text(decisions)}"))
    return "\n".join(lines)


def _total_text(sequence: DecisionSequence) -> str:
    total = sequence.total
    if total is None:
        return "not measured; lobench keep --log --measure 8 runs both ends of the chain on 8 fresh seeds"
    clauses = [f"{counted(total.pairs, 'pair')} on fresh seeds {seed_ranges_text(total.seeds)}"]
    if total.difference is not None:
        direction = "better" if total.difference >= 0 else "worse"
        text = f"{sequence.terms.metric} {direction} by {abs(total.difference):.3g}"
        if total.lower is not None and total.upper is not None:
            text += f" (improvement between {total.lower:.3g} and {total.upper:.3g}, 95%)"
        clauses.insert(0, text)
    if any(total.diverged):
        clauses.append(f"diverged: {total.diverged[0]} of the last version, {total.diverged[1]} of the first")
    return "; ".join(clauses)


def kept_record(outcome: KeepResult) -> KeepRecord:
    return record_from(KeepRecord, outcome, outcome.decisions, outcome.decisions.terms)


def log_record(measured_total: MeasuredTotal) -> KeepLogRecord:
    decisions = measured_total.decisions
    chain = [decision.number for decision in decisions.chain]
    return record_from(KeepLogRecord, decisions, decisions.terms, chain=chain, error=measured_total.error)
