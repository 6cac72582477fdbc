"""examples/multitask and the page on several losses: every weighter is there, and a part of both runs here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lobench
from lobench.engine.config.experiment_files import read_experiment
from lobench.inner.optimizers import weighters

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "examples/multitask/experiment.gin"
PAGE = (ROOT / "docs/multitask.md").read_text()


def test_the_example_has_every_weighter_and_five_sessions() -> None:
    experiment = read_experiment(EXPERIMENT).experiment
    said = EXPERIMENT.read_text()
    assert len(experiment.sessions) == 5
    for name in weighters.__all__:
        assert f"Method.optimizer = @{name}()" in said and f"/{name}.inner = @adam()" in said
        assert f"`{name}`" in PAGE, "the page's table has it too"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (task,), (gin,) = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "gin"))
    (tmp_path / "mytask.py").write_text(task)
    (tmp_path / "experiment.gin").write_text(gin)
    monkeypatch.chdir(tmp_path)
    results = lobench.run("experiment.gin", store="store", gin_params=("Case.num_inner_steps = 50",), workers=1)
    found = results.evaluations()
    assert list(found["outcome"]) == ["passed"] * 3, found["message"].tolist()
    weights = results.curves("train/weight_task_2")
    assert len(weights) == 2, "of those methods that weigh"
