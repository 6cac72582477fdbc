"""Text output of `lobench keep`."""

from __future__ import annotations

from lobench.core.wording import counted, duration, one_line, seed_ranges
from lobench.report.tables.text import text_table
from lobench.tools.keep.keep import Kept, MeasuredTotal
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


def log_text(measured: MeasuredTotal) -> str:
    """Returns a table of all decisions, the error rate, and the chain of kept changes with its measured total."""
    found = measured.decisions
    rows = [
        ["", "answer", "change", "e-value", "level", "needed", "difference", "pairs", "fresh seeds", "core-seconds"]
    ]
    for one in found.decisions:
        rows.append(
            [
                str(one.number),
                one.answer.value if one.answer is not None else "open",
                one_line(one.description),
                f"{one.e_value:.3g}" if one.test else "",
                f"{one.level:.2g}" if one.test else "",
                f"{1 / one.level:.3g}" if one.test else "",
                f"{one.difference:.3g}" if one.difference is not None else "",
                str(one.pairs),
                seed_ranges(one.seeds),
                f"{one.core_seconds:.3g}",
            ]
        )
    kept = f"{found.num_kept} kept of {counted(found.num_tests, 'test')}, {counted(len(found.decisions), 'candidate')}"
    rate = f"at most {found.terms.fdr:.0%} of those kept are expected to be no improvement"
    lines = [text_table(rows), "", f"{kept} by {found.terms.metric}; {rate}"]
    if found.chain:
        changes = "; ".join(f"{one.number} {one.description}" for one in found.chain)
        lines.append(one_line(f"chain of kept changes from {found.chain[0].incumbent.label}: {changes}"))
        error = f"no measurement: {measured.error}; the same command tries again"
        lines.append(one_line(f"in total: {error if measured.error else _total(found)}"))
    return "\n".join(lines)


def _total(found: Sequence) -> str:
    total = found.total
    if total is None:
        return "not measured; lobench keep --log --measure 8 runs both ends of the chain on 8 fresh seeds"
    parts = [f"{counted(total.pairs, 'pair')} on fresh seeds {seed_ranges(total.seeds)}"]
    if total.difference is not None:
        word = "better" if total.difference >= 0 else "worse"
        text = f"{found.terms.metric} {word} by {abs(total.difference):.3g}"
        if total.lower is not None and total.upper is not None:
            text += f" (improvement between {total.lower:.3g} and {total.upper:.3g}, 95%)"
        parts.insert(0, text)
    if any(total.diverged):
        parts.append(f"diverged: {total.diverged[0]} of the last version, {total.diverged[1]} of the first")
    return "; ".join(parts)
