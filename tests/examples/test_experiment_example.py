"""The experiments of examples/experiment are what their comments say."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.config.experiment.file import read_experiment

FOLDER = Path(__file__).parents[2] / "examples" / "experiment"


def test_two_optimizers_a_published_one_and_a_meta_training() -> None:
    experiment = read_experiment(FOLDER / "experiment.gin").experiment
    assert [method.kind for method in experiment.methods] == ["optimizer", "optimizer", "checkpoint", "command"]


def test_three_ways_of_meta_training_of_five_sessions_on_two_suites_as_they_come() -> None:
    experiment = read_experiment(FOLDER / "three_ways.gin").experiment
    assert [(method.kind, method.checkpoints) for method in experiment.methods] == [("command", "all")] * 3
    assert experiment.num_sessions == 5 and len(experiment.suites) == 2
