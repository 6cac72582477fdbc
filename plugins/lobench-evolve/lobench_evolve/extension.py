"""Extension of a finished run by more generations, in a branch of its store."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from lobench import UsageError
from lobench_evolve.differences import BINDINGS_FIELD, LENGTH_SETTING, continuation_error, differences
from lobench_evolve.journal import read_run
from lobench_evolve.run import Evolution

__all__ = ["branch_folder", "extend_run"]


def branch_folder(folder: Path, num_generations: int) -> Path:
    """Returns the folder of a run's branch with `num_generations` generations."""
    return folder / f"extended_to_{num_generations}"


def extend_run(experiment: Evolution) -> Evolution:
    """Returns a run that continues a finished one over the added generations.

    It starts with theta and Adam's moments of the finished run. The learning rate follows a cosine over the added
    generations. The folder of the finished run does not change. A genetic algorithm has no schedule, so its first
    generations do not depend on their number, and it continues in place.

    Raises:
      UsageError: The configuration adds no generation, it differs in more than its length, or the run has not ended.
      StoreError: The store has no run.
    """
    if experiment.run_settings.strategy != "es":
        return experiment
    where = str(experiment.folder)
    parent = read_run(experiment.folder)
    num_generations = experiment.run_settings.num_generations
    parent_settings = json.loads(parent.values["settings"])[0]
    earlier_settings = dataclasses.replace(
        experiment.run_settings, first_generation=parent_settings.get("first_generation", 0)
    )
    identity_values = {
        **dataclasses.replace(experiment, run_settings=earlier_settings).identity(),
        BINDINGS_FIELD: experiment.bindings,
    }
    changes = [change for change in differences(parent.values, identity_values) if change.name != LENGTH_SETTING]
    if changes:
        raise continuation_error(where, changes, values=identity_values)
    num_parent_generations = parent_settings["num_generations"]
    if num_generations <= num_parent_generations:
        raise UsageError(
            "--extend adds no generation",
            where=where,
            got=f"{LENGTH_SETTING} = {num_generations}",
            expected=f"more than {num_parent_generations}",
        )
    if parent.state is None or parent.state[0] != num_parent_generations:
        generation_reached = parent.state[0] if parent.state is not None else 0
        raise UsageError(
            "--extend goes on where a run has ended, and this one has not",
            where=where,
            got=f"generation {generation_reached} of {num_parent_generations}",
            next_step=f"resume it first: the same command with {LENGTH_SETTING} = {num_parent_generations} and without "
            "--extend",
        )
    first_generation, state = parent.state
    gin_params = (*experiment.layers.gin_params, f"Evolve.first_generation = {first_generation}")
    return dataclasses.replace(
        experiment,
        folder=branch_folder(experiment.folder, num_generations),
        layers=dataclasses.replace(experiment.layers, gin_params=gin_params),
        run_settings=dataclasses.replace(experiment.run_settings, first_generation=first_generation),
        parent_state=state,
    )
