"""One evolution: requests evaluations, selects, writes checkpoints, and resumes an interrupted run."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench import StoreError, UsageError
from lobench.extend import Layers, WorkerConfig, bind_case, cause, load_plugins, schedule, write_whole
from lobench_evolve.evolution_strategies import EvolutionStrategies, Update
from lobench_evolve.genome import Genome, GenomeTrial
from lobench_evolve.journal import ClosedGeneration, RunJournal, decode_fitness
from lobench_evolve.messages import Begin, Evaluate, Export, Rewind, StateRequest
from lobench_evolve.settings import AntitheticES, Evolve, TruncationGA, read_config
from lobench_evolve.truncation_ga import Generation, Population, selection_strategy
from lobench_evolve.worker_pool import ThetaPath, WorkerJob, WorkerPool

_TIMEOUT_BINDING = re.compile(r"(.*/)?lobench\.Case\.timeout_seconds = ")  # fixes no bit

__all__ = ["Evolution", "ExecutorOptions", "plan", "run_experiment", "worker_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """One run: strategy, cases, seed and folder.

    Attributes:
      optimizer_config: gin text that readers of the checkpoints need, written to the `config.gin` next to them.
      bindings: Bindings of the cases.
      worker_size, timeout_seconds: Largest values of the cases.
      parent_state: Final state of the run that this one extends; empty if it extends none.
    """

    folder: Path
    config: Path
    seed: int
    layers: Layers
    run_settings: Evolve
    ga: TruncationGA
    es: AntitheticES
    optimizer_config: str
    bindings: str
    worker_size: schedule.Size
    timeout_seconds: float
    parent_state: bytes = b""

    def identity(self) -> dict[str, str]:
        """Returns the settings that determine the run's decisions and bits."""
        strategy: TruncationGA | AntitheticES = self.ga if self.run_settings.strategy == "ga" else self.es
        # The number of generations may be increased later, unless the outer learning rate depends on it.
        run_settings = dataclasses.asdict(self.run_settings) | {"checkpoint_every": None}
        if self.run_settings.strategy == "ga":
            run_settings["num_generations"] = None
        if not self.run_settings.first_generation:
            del run_settings["first_generation"]
        settings = {
            "seed": str(self.seed),
            "settings": json.dumps([run_settings, dataclasses.asdict(strategy)], sort_keys=True),
            "bindings": hashlib.sha256(self.bindings.encode()).hexdigest(),
        }
        return settings | ({"extends": hashlib.sha256(self.parent_state).hexdigest()} if self.parent_state else {})


def plan(config: Path, *, folder: Path, scopes: Sequence[str], seed: int, gin_params: Sequence[str] = ()) -> Evolution:
    """Reads a configuration, without building a task or starting a worker.

    Args:
      config: gin file.
      folder: Folder of the run.
      scopes: Cases of the file over which fitness is averaged. Empty: all.
      seed: Seed of the run.
      gin_params: Bindings that override the file.
    Raises:
      ConfigError: The configuration is invalid.
      UsageError: The cases or options do not fit together.
    """
    if scopes:
        gin_params = [*gin_params, f"Evolve.cases = {list(scopes)}"]
    configuration = read_config(config, gin_params)
    selection_strategy(configuration.ga)  # raises if it is unknown
    if configuration.run_settings.first_generation:
        raise UsageError(
            "Evolve.first_generation", where=str(config), got=str(configuration.run_settings.first_generation),
            expected="no such binding: `lobench evolve --extend` sets it",
        )  # fmt: skip
    modules = tuple(load_plugins().gin_modules())
    layers = Layers(gin_params=tuple(gin_params), gin_modules=modules)
    bound_cases = [bind_case(spec, layers, build=False) for spec in configuration.cases]
    optimizer_texts = {case.optimizer_bindings for case in bound_cases}
    if len(optimizer_texts) > 1:
        raise UsageError("the cases have different learned optimizers", where=str(config), expected="one theta for all")
    binding_lines = optimizer_texts.pop().splitlines()
    if not any(line.startswith("lobench.Case.learned_optimizer") for line in binding_lines):
        raise UsageError(
            "no learned optimizer", where=str(config), next_step="bind `Case.learned_optimizer = @MyLOpt()` in it"
        )
    num_cpus = max(case.case.num_cpus for case in bound_cases)
    num_gpus = max(case.case.num_gpus for case in bound_cases)
    return Evolution(
        folder=folder,
        config=config.absolute(),
        seed=seed,
        layers=layers,
        run_settings=configuration.run_settings,
        ga=configuration.ga,
        es=configuration.es,
        optimizer_config="\n".join([*(f"import {module}" for module in configuration.imports), *binding_lines, ""]),
        bindings="\n".join(
            line for case in bound_cases for line in case.bindings.splitlines() if not _TIMEOUT_BINDING.match(line)
        ),
        worker_size=schedule.Size(num_cpus, num_gpus),
        timeout_seconds=max(case.case.timeout_seconds for case in bound_cases),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions:
    """Executor on which the workers of a run are started.

    Attributes:
      executor: Name of the executor.
      address: Address of the executor, if it uses several machines.
      insecure: Whether the executor accepts any peer.
    """

    executor: str
    address: str = ""
    insecure: bool = False


def worker_config(experiment: Evolution, executor_options: ExecutorOptions) -> WorkerConfig:
    """Returns the settings with which an executor starts workers. Workers read the run's configuration themselves."""
    return WorkerConfig(
        arguments=(str(experiment.config),),
        layers=experiment.layers,
        log_folder=experiment.folder / "logs",
        compilation_cache=experiment.folder / "compiled",
        address=executor_options.address,
        insecure=executor_options.insecure,
        serve="lobench_evolve.worker:serve",
    )


def make_worker_pool(
    experiment: Evolution, executor_options: ExecutorOptions, *, num_workers: int, log: Callable[[str], None]
) -> WorkerPool:
    """Returns a pool without starting its workers. The inline executor always has one worker."""
    return WorkerPool(
        load_plugins().make_executor(executor_options.executor, worker_config(experiment, executor_options), None),
        num_workers=1 if executor_options.executor == "inline" else num_workers,
        size=experiment.worker_size,
        timeout_seconds=experiment.timeout_seconds,
        log=log,
    )


def run_experiment(
    experiment: Evolution, executor_options: ExecutorOptions, *, num_workers: int, log: Callable[[str], None]
) -> list[ClosedGeneration]:
    """Runs or resumes an experiment, and returns its generations.

    Raises:
      LobenchError: The folder belongs to another run or is busy, a task failed, or workers do not start.
    """
    journal = RunJournal(experiment.folder, experiment.identity(), bindings=experiment.bindings)
    try:
        run = experiment.run_settings
        if run.first_generation + len(journal.generations()) < run.num_generations:
            worker_pool = make_worker_pool(experiment, executor_options, num_workers=num_workers, log=log)
            try:
                journal.check(worker_pool.start())
                runner = _GaRunner if experiment.run_settings.strategy == "ga" else _EsRunner
                runner(experiment, journal, worker_pool, log).run()
            finally:
                worker_pool.close()
        return journal.generations()
    finally:
        journal.close()


class _Runner:
    """Base of the two strategies' runners."""

    def __init__(
        self, experiment: Evolution, journal: RunJournal, worker_pool: WorkerPool, log: Callable[[str], None]
    ) -> None:
        self._experiment = experiment
        self._journal = journal
        self._worker_pool = worker_pool
        self._log = log
        self._run_settings = experiment.run_settings

    def run(self) -> None:
        self._resume()
        started_at = time.perf_counter()
        first_generation = self._run_settings.first_generation
        for generation in range(
            first_generation + len(self._journal.generations()), self._run_settings.num_generations
        ):
            generation_started_at = time.perf_counter()
            ended_generation = self._run_generation(generation)
            state = None
            if (
                generation == first_generation
                or (generation + 1) % self._run_settings.checkpoint_every == 0
                or self._is_last(generation)
            ):
                state = self._write_checkpoints(generation, ended_generation)
                self._log(
                    f"generation {generation}: fitness {ended_generation.mean_fitness:.4g} (mean), "
                    f"{ended_generation.best_fitness:.4g} "
                    f"(best), {ended_generation.elite_fitness:.4g} (elite), {time.perf_counter() - started_at:.0f} s"
                    + (
                        f"; {ended_generation.num_not_finite} of {ended_generation.num_results} not finite"
                        if ended_generation.num_not_finite
                        else ""
                    )
                )
            closed_generation = ClosedGeneration(
                generation=generation, result=ended_generation, seconds=time.perf_counter() - generation_started_at
            )
            self._journal.store_generation(closed_generation, state)

    def _is_last(self, generation: int) -> bool:
        return generation == self._run_settings.num_generations - 1

    def _resume(self) -> None:
        raise NotImplementedError

    def _run_generation(self, generation: int) -> Generation:
        raise NotImplementedError

    def _write_checkpoints(self, generation: int, ended_generation: Generation) -> bytes | None:
        """Writes the checkpoints of a generation.

        Returns the state to resume from, or None if the strategy needs none.
        """
        raise NotImplementedError

    def _evaluate(
        self,
        generation: int,
        phase: str,
        trials: Sequence[GenomeTrial],
        genomes: Mapping[int, Genome],
        *,
        first_n: int = 0,
        theta_path: ThetaPath | None = None,
    ) -> list[float | None]:
        """Returns the fitness of each trial, stored or new; None for trials that had not ended by `first_n` results."""
        block_size = self._run_settings.members_per_program
        num_wanted_results = first_n or len(trials)
        blocks = [trials[start : start + block_size] for start in range(0, len(trials), block_size)]
        fitness_values: list[float | None] = [None] * len(trials)
        num_results = 0

        def add_results(block: int, fitness: Sequence[float]) -> None:
            nonlocal num_results
            for index, value in enumerate(fitness[: num_wanted_results - num_results], block * block_size):
                fitness_values[index] = value
            num_results += min(len(fitness), num_wanted_results - num_results)

        stored_results = self._journal.stored_blocks(generation, phase)
        for result in stored_results:
            add_results(result.block, result.fitness)
        if num_results == num_wanted_results:
            return fitness_values
        missing_blocks = sorted(set(range(len(blocks))) - {result.block for result in stored_results})
        jobs = [_evaluation_job(blocks[block], theta_path) for block in missing_blocks]
        for index, payload in self._worker_pool.run(jobs, genomes):
            self._journal.add_block(generation, phase, missing_blocks[index], payload)
            add_results(missing_blocks[index], decode_fitness(payload))
            if num_results == num_wanted_results:
                break
        return fitness_values

    def _run_job(self, job: WorkerJob, genomes: Mapping[int, Genome]) -> bytes:
        ((_, payload),) = self._worker_pool.run([job], genomes)
        return payload

    def _write_checkpoint(self, folder: Path, generation: int, content: bytes) -> None:
        """Writes a checkpoint that `lobench watch` recognises as complete, and evaluates once."""
        path = folder / f"generation_{generation:06d}.npz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_if_changed(folder / "config.gin", self._experiment.optimizer_config.encode())
            _write_if_changed(path, content)
            _write_if_changed(path.with_name(path.name + ".done"), b"")
        except OSError as error:
            raise StoreError(
                "cannot write a checkpoint",
                where=str(path),
                got=cause(error),
                next_step="make it writable, and run the same command again: it goes on from here",
            ) from error


class _GaRunner(_Runner):
    def _resume(self) -> None:
        self._search = Population(self._experiment.ga, self._experiment.seed, selection_strategy(self._experiment.ga))
        for _ in self._journal.generations():
            # Earlier decisions are repeated from the stored results, because they are cheap.
            self._run_generation(self._search.generation)

    def _run_generation(self, generation: int) -> Generation:
        genomes = self._search.genomes
        fitness = self._evaluate(
            generation, "population", self._search.trials(), genomes, first_n=self._run_settings.first_n
        )
        fresh_trials = self._search.fresh_trials(fitness)
        fresh_fitness = self._evaluate(generation, "elite", fresh_trials, genomes) if fresh_trials else []
        return self._search.close_generation(fitness, fresh_fitness)

    def _write_checkpoints(self, generation: int, ended_generation: Generation) -> None:
        genomes = self._search.genomes
        for name, genome in (("checkpoints", ended_generation.elite), ("best", ended_generation.best)):
            task = Export(genome=genome, outer_step=generation)
            content = self._run_job(WorkerJob(task=task, genome_ids=(genome,)), genomes)
            self._write_checkpoint(self._experiment.folder / name, generation, content)


class _EsRunner(_Runner):
    def _resume(self) -> None:
        self._search = EvolutionStrategies(self._experiment.es, self._experiment.seed)
        step_and_state = self._journal.state()
        if step_and_state is None:
            first_generation = self._run_settings.first_generation
            parent_state = self._experiment.parent_state
            task = (
                Rewind(state=base64.b64encode(parent_state).decode())
                if parent_state
                else Begin(seed=self._search.init_seed)
            )
            step_and_state = (first_generation, self._run_job(WorkerJob(task=task), {}))
            self._journal.begin_state(*step_and_state)
        self._step, self._state = step_and_state
        self._updates: list[Update] = []
        self._search.skip_to(self._step)
        next_generation = self._run_settings.first_generation + len(self._journal.generations())
        if next_generation == self._run_settings.first_generation:
            self._write_theta(next_generation)
        while self._search.generation < next_generation:
            self._run_generation(self._search.generation)

    @property
    def _theta_path(self) -> ThetaPath:
        return ThetaPath(theta=self._search.theta, step=self._step, state=self._state, updates=tuple(self._updates))

    def _run_generation(self, generation: int) -> Generation:
        search = self._search
        trials = search.trials()
        first_n = self._run_settings.first_n
        fitness = self._evaluate(
            generation, "population", trials, search.genomes, first_n=first_n, theta_path=self._theta_path
        )
        self._updates.append(search.update(fitness))
        return search.close_generation(fitness)

    def _write_checkpoints(self, generation: int, ended_generation: Generation) -> bytes:
        self._write_theta(generation + 1)
        state = self._run_job(WorkerJob(task=StateRequest(), theta_path=self._theta_path), {})
        self._step = generation + 1
        self._state = state
        self._updates = []
        return state

    def _write_theta(self, outer_step: int) -> None:
        task = Export(genome=self._search.theta, outer_step=outer_step)
        content = self._run_job(WorkerJob(task=task, theta_path=self._theta_path), {})
        self._write_checkpoint(self._experiment.folder / "checkpoints", outer_step, content)


def _evaluation_job(trials: Sequence[GenomeTrial], theta_path: ThetaPath | None) -> WorkerJob:
    ids = tuple(trial.genome.id for trial in trials)
    task = Evaluate(trials=tuple((trial.genome.id, trial.seed) for trial in trials))
    return WorkerJob(task=task, genome_ids=ids, theta_path=theta_path)


def _write_if_changed(path: Path, content: bytes) -> None:
    """Writes a file if its content changes. An unchanged file keeps its time, so that watchers do not see it again."""
    if not path.is_file() or path.read_bytes() != content:
        write_whole(path, content, durable=True)
