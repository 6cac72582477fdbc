"""Text output of `lobench keep`."""

from __future__ import annotations

from lobench.core.wording import counted, duration, one_line
from lobench.report.tables.text import text_table
from lobench.tools.keep.keep import Kept
from lobench.tools.keep.sequence import Decision, Sequence, Terms

__all__ = ["kept_text", "log_text"]


def kept_text(found: Kept) -> str:
    """Returns the answer in one line, and the error rate that it belongs to in another."""
    one = found.decision
    if found.error:
        return one_line(f"no decision: {found.error}; the same command tries again")
    assert one.answer is not None
    earlier = "" if found.is_new else " (decided before)"
    parts = [
        f"{one.answer.upper()}{earlier}: {one.description} against {one.incumbent.label}",
        one.reason,
        _difference(one, found.terms),
        _diverged(one),
        f"{counted(one.pairs, 'pair')}, {one.fresh_pairs} of them on fresh seeds",
        duration(one.core_seconds) + " of runs",
    ]
    return "\n".join([one_line("; ".join(part for part in parts if part)), _rate(found)])


def _difference(one: Decision, terms: Terms) -> str:
    if one.difference is None:
        return ""
    word = "better" if one.difference >= 0 else "worse"
    return f"{terms.metric} {word} by {abs(one.difference):.3g} on fresh seeds, e-value {one.e_value:.3g}"


def _diverged(one: Decision) -> str:
    if not any(one.diverged):
        return ""
    return f"diverged: {one.diverged[0]} of the candidate, {one.diverged[1]} of the incumbent"


def _rate(found: Kept) -> str:
    kept = f"{found.num_kept} kept of {counted(found.num_tests, 'test')} in this store"
    return f"{kept}; at most {found.terms.fdr:.0%} of those kept are expected to be no improvement"


def log_text(found: Sequence) -> str:
    """Returns a table of all decisions, and the error rate."""
    rows = [["", "answer", "change", "e-value", "needed", "difference", "pairs", "fresh", "cost"]]
    for one in found.decisions:
        rows.append(
            [
                str(one.number),
                one.answer.value if one.answer is not None else "open",
                one_line(one.description),
                f"{one.e_value:.3g}" if one.test else "",
                f"{1 / one.level:.3g}" if one.test else "",
                f"{one.difference:.3g}" if one.difference is not None else "",
                str(one.pairs),
                str(one.fresh_pairs),
                duration(one.core_seconds),
            ]
        )
    kept = f"{found.num_kept} kept of {counted(found.num_tests, 'test')}, {counted(len(found.decisions), 'candidate')}"
    rate = f"at most {found.terms.fdr:.0%} of those kept are expected to be no improvement"
    return "\n".join([text_table(rows), "", f"{kept} by {found.terms.metric}; {rate}"])
