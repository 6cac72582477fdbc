"""examples/control: three ways to train policies, five sessions each. Its training is no test: it takes a minute."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.suite import specs_in

EXPERIMENT = Path(__file__).parents[2] / "examples/control/experiment.gin"


def test_it_is_an_experiment_of_three_methods_on_two_cases() -> None:
    experiment = read_experiment(EXPERIMENT).experiment
    assert [method.name for method in experiment.methods] == ["adam", "sgd", "celo"]
    assert experiment.num_sessions == 5 and len(specs_in(EXPERIMENT)) == 2
