"""Which checkpoint is best, when some diverge and some are lost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from stores import add

from lobench.analysis.ranking import rank
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import subjects_of
from lobench.core.result import Outcome
from lobench.engine.ledger import Ledger


def test_diverged_and_lost_seeds_count_against_a_checkpoint(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.0]}, "b": {"train/loss": [1.0, 1.0]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.0, 0.0]}, "b": {"train/loss": [0.5, math.nan]}})
    add(tmp_path, 3, {"a": {"train/loss": [0.5, 0.5]}, "b": Outcome.OOM})
    add(tmp_path, 4, {"a": {"train/loss": [0.0, 0.0]}})
    ledger = Ledger.open(tmp_path, read_only=True)
    subjects = subjects_of(ledger.evaluations())
    ledger.close()
    ranked = rank(subjects, None, Scales.of(subjects))
    # Case a runs from 2 to 0, case b from 2 to .5; the fourth was not evaluated on both.
    assert [one.subject.checkpoint.outer_step for one in ranked] == [1, 2, 3]
    assert [one.worth for one in ranked] == pytest.approx([(0.5 + 2 / 3) / 2, (1 + 0) / 2, (0.75 - 1) / 2])
    # The score itself is that of every other headline: of the seeds that there are.
    assert [one.score.mean for one in ranked] == pytest.approx([(0.5 + 2 / 3) / 2, (1 + 0) / 2, 0.75])
    assert [(one.num_diverged, one.num_lost) for one in ranked] == [(0, 0), (1, 0), (0, 4)]
