"""One run, or one per seed and case: several at a time on this machine, or a share of them in each job of an array."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import click

from lobench import UsageError
from lobench_evolve.extension import extend_run
from lobench_evolve.run import ExecutorOptions, plan, run_experiment

__all__ = ["CommandOutcome", "EvolveCommand", "EvolveRecord", "Run", "run_command", "shard_indices"]

_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveCommand:
    """Options of `lobench evolve`, under the names of the command line; the executor has `executor_options`."""

    config: Path
    store: Path
    executor_options: ExecutorOptions
    workers: int
    seed: int
    seeds: int
    cases: tuple[str, ...]
    scopes: tuple[str, ...]
    parallel: int
    shard: str
    gin_params: tuple[str, ...]
    extend: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Result of one run. Generations and fitness (of the last elite) are None for runs in separate processes."""

    folder: Path
    exit_code: int
    num_generations: int | None = None
    fitness: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """Result of the command: its exit code, and the runs that were started."""

    exit_code: int
    runs: tuple[Run, ...] = ()


EvolveRecord: TypeAlias = Annotated[CommandOutcome, "`lobench evolve`: how the runs ended."]


def run_command(command: EvolveCommand) -> CommandOutcome:
    """Runs one experiment in this process, or several in separate processes.

    Raises:
      LobenchError: As in `plan` and `run_experiment`.
    """
    # SIGTERM acts like Ctrl-C, so that child processes are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if command.seeds or command.cases or command.shard:
            return _run_in_processes(command)
        experiment = plan(
            command.config,
            folder=command.store,
            scopes=command.scopes,
            seed=command.seed,
            gin_params=command.gin_params,
        )
        if command.extend:
            experiment = extend_run(experiment)
        workers = command.workers or os.cpu_count() or 1
        generations = run_experiment(experiment, command.executor_options, num_workers=workers, log=_log)
    except KeyboardInterrupt:
        _log("interrupted; the same command goes on from here")
        return CommandOutcome(exit_code=130)
    last_generation = generations[-1].result
    num_generations = generations[-1].generation + 1
    folder = experiment.folder / "checkpoints"
    _log(f"{num_generations} generations; last fitness {last_generation.elite_fitness:.6g}; {folder}")
    run = Run(
        folder=experiment.folder, exit_code=0, num_generations=num_generations, fitness=last_generation.elite_fitness
    )
    return CommandOutcome(exit_code=0, runs=(run,))


def shard_indices(shard: str, count: int) -> range:
    """Returns the indices of a share of experiments.

    Args:
      shard: "I/N" for the Ith of N shares. "": all experiments.
      count: Number of experiments.
    Raises:
      UsageError: `shard` is malformed.
    """
    index, _, num_shares = (shard or "0/1").partition("/")
    if not (index.isdecimal() and num_shares.isdecimal()) or not int(index) < int(num_shares):
        raise UsageError("--shard", got=repr(shard), expected="I/N with 0 <= I < N, such as 0/20")
    return range(int(index), count, int(num_shares))


def _run_in_processes(command: EvolveCommand) -> CommandOutcome:
    """Runs this command in a process per seed and case, so that each experiment can also be run and resumed alone."""
    if command.scopes:
        raise UsageError("--case is for one run", next_step="give --cases for a run for each, or neither for all cases")
    seeds = range(command.seed, command.seed + max(command.seeds, 1))
    cases: Sequence[str] = tuple(dict.fromkeys(command.cases)) or ("",)
    experiments = list(itertools.product(cases, seeds))
    for case in cases:  # raises for a wrong name before anything is started
        scopes = [case] if case else []
        plan(command.config, folder=command.store, scopes=scopes, seed=0, gin_params=command.gin_params)
    shard_experiments = [experiments[index] for index in shard_indices(command.shard, len(experiments))]
    workers = command.workers or max((os.cpu_count() or 1) // command.parallel, 1)
    waiting_experiments = list(shard_experiments)
    running_processes = dict[str, subprocess.Popen[bytes]]()
    ended_runs = list[Run]()
    try:
        while waiting_experiments or running_processes:
            while waiting_experiments and len(running_processes) < command.parallel:
                case, seed = waiting_experiments.pop(0)
                name = f"{case or 'all'}/seed_{seed}"
                running_processes[name] = subprocess.Popen(
                    _command_of_run(command, name, case, seed, workers), preexec_fn=_end_with_parent
                )
            time.sleep(_POLL_SECONDS)
            for name, process in list(running_processes.items()):
                if (exit_code := process.poll()) is not None:
                    del running_processes[name]
                    ended_runs.append(Run(folder=command.store / name, exit_code=exit_code))
                    _log(f"{name}: ended with exit code {exit_code}")
    finally:
        for process in running_processes.values():
            process.terminate()
        for process in running_processes.values():
            process.wait()
    return CommandOutcome(
        exit_code=min(max((abs(run.exit_code) for run in ended_runs), default=0), 3), runs=tuple(ended_runs)
    )


def _end_with_parent() -> None:
    """Ends an experiment when its parent process is killed (on Linux), so that the same command can resume it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _command_of_run(command: EvolveCommand, name: str, case: str, seed: int, workers: int) -> list[str]:
    arguments = [
        sys.executable,
        "-P",
        "-m",
        "lobench.cli",
        "evolve",
        str(command.config),
        "--store",
        str(command.store / name),
    ]
    executor_options = command.executor_options
    arguments += ["--seed", str(seed), "--executor", executor_options.executor, "--workers", str(workers)]
    arguments += ["--ray-address", executor_options.address, *(["--insecure"] if executor_options.insecure else [])]
    arguments += ["--extend"] if command.extend else []
    for scope in [case] if case else []:
        arguments += ["--case", scope]
    for gin_param in command.gin_params:
        arguments += ["--gin-param", gin_param]
    return arguments


def _log(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()
