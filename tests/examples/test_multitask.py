"""examples/multitask and the page on several losses: every weighter is there."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.config.experiment.file import read_experiment
from lobench.inner.optimizers import weighters

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "examples/multitask/experiment.gin"
PAGE = (ROOT / "docs/multitask.md").read_text()


def test_the_example_has_every_weighter_and_five_sessions() -> None:
    experiment = read_experiment(EXPERIMENT).experiment
    output = EXPERIMENT.read_text()
    assert len(experiment.sessions) == 5
    for name in weighters.__all__:
        assert f"Method.optimizer = @{name}()" in output and f"/{name}.inner = @adam()" in output
        assert f"`{name}`" in PAGE, "the page's table has it too"
