"""The experiment that the README names: reading it binds nothing, and what it binds must be there."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.checkpoints.given import given_methods
from lobench.engine.config.bound import bind_case
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.plugins import load_plugins

EXPERIMENT = Path(__file__).parents[2] / "examples/experiment/experiment.gin"


def test_every_case_binds_with_every_method() -> None:
    file, modules = read_experiment(EXPERIMENT), tuple(load_plugins().gin_modules())
    given = given_methods(file.experiment.methods)
    assert set(given) == {"adam", "momentum", "celo"}
    for spec in specs_in(EXPERIMENT):
        for one in given.values():
            layers = Layers(gin_modules=modules, gin_params=file.shared_lines, variant=one.variant)
            assert not bind_case(spec, layers).problems
