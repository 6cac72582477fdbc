"""What a gate measures on one case: differences from the session's own starts, and what limits them."""

from __future__ import annotations

import math

import pytest
from shown import texts_of

from lobench.analysis.comparisons.gates import Verdict, gate
from lobench.analysis.scores.score_scale import SIGNED_LOSS_ADVICE, ScoreScale
from lobench.pytest_plugin.measuring import _pair_values, _PairedValues, _verdict_note
from lobench.pytest_plugin.references import FinalValues

SHOWN = texts_of("pytest")

LOSS = "train/loss"
SCALE = ScoreScale.of_baseline(LOSS, untrained=2.0, tuned=(0.02, 0.021), starts=(2.0, 2.0))


def finals(*values: float, start: float = 2.0) -> FinalValues:
    seeds = range(len(values))
    return FinalValues(
        metrics={LOSS: dict(zip(seeds, values, strict=True))}, starts={LOSS: dict.fromkeys(seeds, start)}
    )


def differences(found: _PairedValues) -> list[float]:
    return [b - a for a, b in zip(found.samples.a, found.samples.b, strict=True)]


def test_both_sides_begin_where_the_sessions_own_run_began() -> None:
    reference = FinalValues(metrics=finals(0.1, 0.1).metrics)
    for start in (2.0, 4.0):
        found = _pair_values(finals(0.2, 0.05, start=start), reference, SCALE, LOSS)
        expected = [-math.log(2) / SCALE.unit, math.log(2) / SCALE.unit]
        assert differences(found) == pytest.approx(expected)


def test_signed_losses_decide_nothing_and_the_note_says_what_to_declare() -> None:
    found = _pair_values(finals(0.2, -0.5, 0.1, 0.1), finals(0.2, 0.2, 0.2, 0.2), SCALE, LOSS)
    assert found.is_signed and gate(found.samples).verdict is Verdict.INCONCLUSIVE
    assert SIGNED_LOSS_ADVICE in _verdict_note(found, SCALE, 4, 4) and 'Case.scale = "linear"' in SIGNED_LOSS_ADVICE
    beside = _pair_values(finals(0.2, -0.5), finals(0.2, 0.2), SCALE, LOSS, scores_signed=True)
    assert differences(beside) == pytest.approx([0, 0.7 / SCALE.linear_unit])


def test_seeds_that_prove_nothing_are_counted_in_the_note() -> None:
    found = _pair_values(finals(0.0, 9.0, math.nan, 0.1), finals(1e-13, 7.0, math.nan, 0.1), SCALE, LOSS)
    assert (found.samples.converged().a == found.samples.converged().b) and found.samples.num_diverged == (1, 1)
    assert SHOWN["on-3-of-4-seeds"] in _verdict_note(found, SCALE, 4, 4)


def test_a_case_without_a_scale_says_why() -> None:
    found = _pair_values(finals(0.1, 0.1), finals(0.1, 0.1), None, LOSS)
    assert all(map(math.isnan, differences(found)))
    assert SHOWN["lacks-the-case-s-primary"] in _verdict_note(found, None, 2, 2)
    flat = ScoreScale.of_baseline(LOSS, untrained=2.0, tuned=(2.0, 2.0))
    assert SHOWN["tuned-is-not-better-than"] in _verdict_note(
        _pair_values(finals(0.1), finals(0.1), flat, LOSS), flat, 1, 1
    )
