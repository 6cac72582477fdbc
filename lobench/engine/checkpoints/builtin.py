"""Declarations of the directory source and of the built-in readers."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_checkpoint_readers", "lobench_checkpoint_sources"]


@hookimpl
def lobench_checkpoint_sources() -> Iterable[Declaration]:
    module = "lobench.engine.checkpoints.population_source"
    directory_summary = "checkpoints in a folder and its generation_N, trial_N below, or a single one by path"
    population_summary = "several runs: each folder below that holds checkpoints is one"
    return [
        Declaration(name="directory", factory=f"{module}:PopulationSource", summary=directory_summary),
        Declaration(name="population", factory=f"{module}:RunsSource", summary=population_summary),
    ]


@hookimpl
def lobench_checkpoint_readers() -> Iterable[Declaration]:
    module = "lobench.engine.checkpoints.readers"
    return [
        Declaration(name="npz", factory=f"{module}:NpzReader", summary="numpy's .npz"),
        Declaration(name="safetensors", factory=f"{module}:SafetensorsReader", summary="safetensors files"),
        Declaration(name="torch", factory="lobench.engine.checkpoints.torch_file:TorchReader", summary="torch's .pt"),
        Declaration(name="pickle", factory=f"{module}:PickleReader", summary="pickles, if --allow-pickle is given"),
    ]
