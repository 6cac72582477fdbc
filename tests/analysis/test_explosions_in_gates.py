"""A gate takes an exploded seed as a diverged one: replacing one by the other changes no verdict."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from stores import add

from lobench.analysis.comparisons.gates import GateResult, GateRules
from lobench.analysis.comparisons.method_comparison import compare_subjects
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import read_store

EXPLODED = 90.0  # the start is 2


def gated(store: Path, lost: float, num_a: int, num_b: int, rules: GateRules) -> GateResult:
    """Returns the gate of two sides of 12 seeds, some of which have a lost value."""
    draw = np.random.default_rng(0)
    for step, num_lost in ((1, num_a), (2, num_b)):
        finals = (0.5 + 0.01 * draw.standard_normal(12)).tolist()
        add(store, step, {"a": {"train/loss": [*[lost] * num_lost, *finals[num_lost:]]}})
    add(store, 3, {"a": {"train/loss": [0.1] * 12}})  # what 1 on the scale is
    first, second, third = read_store(store).subjects
    (pair,) = compare_subjects([first, second], rules=rules, scales=Scales.of([first, second, third]))
    return pair.primary.gate.cases[0]


@pytest.mark.parametrize("max_diverged", [1.0, 0.1])
@pytest.mark.parametrize(("num_a", "num_b"), [(0, 0), (0, 1), (0, 5), (1, 0), (4, 4), (0, 11), (12, 12)])
def test_a_gate_with_exploded_seeds_is_that_with_diverged_ones(
    tmp_path: Path, num_a: int, num_b: int, max_diverged: float
) -> None:
    rules = GateRules(max_diverged=max_diverged)
    exploded, diverged = (gated(tmp_path / str(lost), lost, num_a, num_b, rules) for lost in (EXPLODED, math.nan))
    assert repr(exploded) == repr(diverged)
    assert (exploded.diverged_a, exploded.diverged_b) == (num_a, num_b)
