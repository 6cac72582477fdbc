"""Comparison of two subjects for the page's application."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from lobench.analysis.comparisons.summary import Summary, improvement_probability
from lobench.core.wording import counted
from lobench.drawing.svg import round_values
from lobench.report.tables.verdict import Card, pair_card, score_card

__all__ = ["pair_record"]


def pair_record(summary: Summary, b: int, a: int) -> dict[str, Any] | None:
    """Returns the difference of B from A: cards, and a row per case; None if they share no case."""
    comparison = summary.comparison(a, b, "primary")
    if comparison is None:
        return None
    snapshot = summary.snapshot
    index_by_identity = {case.identity: index for index, case in enumerate(snapshot.cases)}
    improvement_interval = improvement_probability(snapshot.subjects[a], snapshot.subjects[b], None, summary.scales)
    bounds = (
        ""
        if math.isnan(improvement_interval.lower)
        else f"95% [{improvement_interval.lower:.2f}, {improvement_interval.upper:.2f}]; 0.5: no difference"
    )
    share = "n/a" if math.isnan(improvement_interval.mean) else f"{improvement_interval.mean:.2f}"
    cards = [
        pair_card(f"{snapshot.capitalized_labels[b]} against {snapshot.labels[a]}", comparison),
        Card(
            label="Chance that a seed ends better",
            value=share,
            note=bounds,
        ),
    ]
    for index in (b, a):
        mean = summary.mean_score(index, "primary")
        cards.append(score_card(f"Score, {snapshot.labels[index]}", mean, counted(mean.num_cases, "case")))
    rows = [
        [
            index_by_identity[effect.case],
            *round_values([effect.paired.mean, effect.paired.lower, effect.paired.upper, effect.p_holm]),
            str(effect.verdict),
            effect.paired.note,
        ]
        for effect in comparison.cases
        if effect.case in index_by_identity
    ]
    return {"cards": [asdict(card) for card in cards], "cases": rows}
