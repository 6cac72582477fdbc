"""Time of a bare gradient step beside a training: part of its cost, and never its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.core.result import Curves
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.runner import BlockRunner
from lobench.inner.training.gradient_steps import GradientSteps

SHOWN = texts_of("evaluation")


def _train(folder: Path) -> Curves:
    path = folder / "a.gin"
    path.write_text(
        "import lobench.inner.tasks.quadratic\na/Case.task = @Quadratic()\nCase.optimizer = @sgd()\n"
        "Case.num_inner_steps = 60\nCase.eval_every = 20\nCase.time_gradient = True\n"
    )
    return BlockRunner(Layers()).run(
        specs_in(path)[0], "", ThetaLeaves(leaves=None, where="sgd"), SeedBlock(start=0, size=1)
    )


def test_what_was_trained_stays_where_the_gradient_cannot_be_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: GradientSteps, block: SeedBlock, num_thetas: int = 0) -> None:
        raise MemoryError("no room for 3 GB")

    monkeypatch.setattr(GradientSteps, "cost", no_room)
    found = _train(tmp_path)
    assert found.cost is not None and found.cost.gradient is None and found.eval_steps[-1] == 60
    assert any(SHOWN["gradient-step-was-not-measured"] in line for line in found.problems)


def test_a_cost_has_the_time_of_a_gradient_and_the_training_counts_its_own_compilations_alone(tmp_path: Path) -> None:
    found = _train(tmp_path)
    assert found.cost is not None and found.cost.gradient is not None and found.cost.gradient.samples
    assert found.cost.gradient.machine_class == found.cost.machine_class and found.num_compilations <= 1
