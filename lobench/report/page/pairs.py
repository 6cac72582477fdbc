"""Comparison of two subjects, as the page's application shows it."""

from __future__ import annotations

import math
from typing import Any

from lobench.analysis.comparisons.summary import Summary, improvement
from lobench.core.wording import counted
from lobench.report.charts.svg import rounded
from lobench.report.tables.text import p_cell
from lobench.report.tables.verdict import interval_text

__all__ = ["pair_record"]


def pair_record(summary: Summary, b: int, a: int) -> dict[str, Any] | None:
    """Returns how B differs from A, paired by seed: cards, and a row a case; None where they share no case."""
    comparison = summary.comparison(a, b, "primary")
    if comparison is None:
        return None
    snapshot, verdict = summary.snapshot, str(comparison.verdict)
    places = {case.identity: place for place, case in enumerate(snapshot.cases)}
    why = "; ".join(dict.fromkeys(filter(None, (effect.paired.note for effect in comparison.cases))))
    p_value = p_cell(comparison.p_value)
    numbers = (
        f"difference of the score {interval_text(comparison.overall)}, p {'' if p_value[0] == '<' else '= '}{p_value}"
    )
    chance = improvement(*(snapshot.subjects[place] for place in (a, b)), None, summary.scales)
    decided = len(comparison.cases) - comparison.num_undecidable
    cards = [
        _card(
            f"{snapshot.openings[b]} against {snapshot.labels[a]}",
            verdict,
            why if math.isnan(comparison.p_value) else numbers,
            {"better": "good", "worse": "bad"}.get(verdict, ""),
        ),
        _card(
            "Chance that a seed ends better",
            "n/a" if math.isnan(chance.mean) else f"{chance.mean:.2f}",
            f"95% [{chance.lower:.2f}, {chance.upper:.2f}]; 0.5: no difference" if chance.lower <= chance.upper else "",
        ),
        *(_score(summary, place) for place in (b, a)),
    ]
    cards[0]["note"] += f"; over {counted(decided, 'case')}"
    rows = [
        [
            places[effect.case],
            *(
                _finite(value)
                for value in (effect.paired.mean, effect.paired.lower, effect.paired.upper, effect.p_holm)
            ),
            str(effect.verdict),
            effect.paired.note,
        ]
        for effect in comparison.cases
        if effect.case in places
    ]
    return {"cards": cards, "cases": rows}


def _score(summary: Summary, place: int) -> dict[str, str]:
    found = summary.mean_score(place, "primary")
    value = "n/a" if math.isnan(found.interval.mean) else f"{found.interval.mean:.3f}"
    note = f"{interval_text(found.interval)}, {counted(found.num_cases, 'case')}"
    return _card(f"Score, {summary.snapshot.labels[place]}", value, note)


def _card(label: str, value: str, note: str, kind: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "note": note, "kind": kind}


def _finite(value: float) -> float | None:
    return rounded(value) if math.isfinite(value) else None
