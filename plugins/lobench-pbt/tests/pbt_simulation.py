"""Simulated asynchronous workers and watches against the real service, with a clock that only the simulation moves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from lobench_pbt.decide import TrialDecision
from lobench_pbt.service import Service
from lobench_pbt.study import FitnessFrom, Study
from lobench_pbt.transitions import Completion, Score
from lobench_pbt.trial import Artifact, Refused, State, StudyTrial

from lobench.extend import Direction, Draws, Kind, Objective, Parameter, Rule, Scale, checkpoint_sha256
from lobench.hookspecs import SelectionStrategy
from lobench.plugins import load_plugins

PARAMETERS = (
    Parameter(path="outer.learning_rate", kind=Kind.REAL, low=1e-4, high=1.0, scale=Scale.LOG),
    Parameter(path="outer.layers", kind=Kind.INT, low=1, high=5),
    Parameter(path="outer.shift", kind=Kind.REAL, low=-1.0, high=1.0, rule=Rule.ADD),
    Parameter(path="outer.batch", kind=Kind.DISCRETE, values=(8, 16, 32)),
    Parameter(path="outer.name", kind=Kind.CATEGORICAL, values=("sgd", "sgdm", "adam")),
    Parameter(
        path="outer.momentum",
        kind=Kind.REAL,
        low=0.5,
        high=0.99,
        when={"outer.name": ("sgdm",), "outer.batch": (8, 16)},
    ),
)
PLUGINS = load_plugins()
LOSS = (Objective(metric="loss", direction=Direction.MIN),)


def make_study(**changes: object) -> Study:
    values: dict[str, object] = {
        "name": "sim",
        "population": 4,
        "generations": 3,
        "n_steps": 5,
        "objectives": LOSS,
        "parameters": PARAMETERS,
        "p_crossover": 0.3,
        "lease_seconds": 10.0,
        "fitness_seconds": 50.0,
    }
    return Study(**{**values, **changes})  # type: ignore[arg-type]


def write_theta(path: Path, value: float) -> Artifact:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, theta=np.float32(value))
    return Artifact(uri=str(path), sha256=checkpoint_sha256(path))


@dataclass
class Simulation:
    """What happens, in an order drawn from `seed`: suggestions, ends, lost workers, restarts, late and lost fitness.

    Attributes:
      quality: Fitness metric of a trial; NaN and missing ones are added by chance.
      preempted: Chance that a worker is lost in a trial.
      restarted: Chance that the service is killed and restarted between two requests.
      faults: Chance that a trial is infeasible, its fitness NaN, late, or never comes.
    """

    store: Path
    study: Study
    seed: int
    num_workers: int = 3
    preempted: float = 0.2
    restarted: float = 0.1
    faults: float = 0.2
    quality: Callable[[StudyTrial], float] = lambda trial: Draws(trial.id, "quality").uniform()
    now: float = 0.0
    running: dict[str, StudyTrial] = field(default_factory=dict)
    waiting: list[tuple[float, StudyTrial, Score]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draws = Draws(self.seed, "simulation")
        self.service = self._open()
        self.service.create_study(self.study)

    def _open(self) -> Service:
        return Service(self.store, clock=lambda: self.now, plugins=PLUGINS)

    def restart(self) -> None:
        self.service.close()
        self.service = self._open()

    def run(self) -> list[StudyTrial]:
        """Runs to quiescence and returns the trials."""
        workers = [f"worker-{number}" for number in range(self.num_workers)]
        done: set[str] = set()
        for _ in range(20_000):
            self.now += self.draws.uniform(0.1, 3.0)
            if self.draws.chance(self.restarted):
                self.restart()
            self._report_fitness()
            worker = self.draws.choice(workers)
            if worker in self.running:
                self._end(worker, self.running.pop(worker))
                continue
            suggestion = self.service.suggest("", worker)
            if suggestion.trial is not None:
                done.clear()
                assert suggestion.answer is TrialDecision.TRIAL
                warm = suggestion.trial.warm_checkpoint
                assert warm is None or Path(warm.uri).is_file(), "a live trial's checkpoint was dropped"
                if not self.draws.chance(self.preempted):
                    self.running[worker] = suggestion.trial
                else:
                    self.now += self.study.lease_seconds if self.draws.chance(0.5) else 0.0
            elif suggestion.answer is TrialDecision.DONE:
                done.add(worker)
                if done == set(workers) and not self.waiting:
                    break
        else:
            raise AssertionError("the study does not end")
        # Fitness of the last generation that never came.
        self.now += self.study.fitness_seconds + 1
        self.service.suggest("", workers[0])
        trials = self.service.list_trials("", limit=100_000)
        self.service.close()
        return trials

    def _end(self, worker: str, trial: StudyTrial) -> None:
        fault = self.draws.chance(self.faults)
        checkpoint = write_theta(self.store / "published" / f"{trial.id}-{trial.attempt}.npz", float(trial.seed % 1000))
        metrics = {"loss": math.nan if fault and self.draws.chance(0.5) else self.quality(trial)}
        reason = "it exploded" if fault and not math.isnan(metrics["loss"]) and self.draws.chance(0.5) else ""
        score = Score(metrics=metrics)
        if self.study.fitness_from is FitnessFrom.WATCH and not reason:
            if fault and self.draws.chance(0.5):
                score = Score(metrics=None, reason="poisoned")
            late = 60.0 if fault and self.draws.chance(0.3) else 5.0
            self.waiting.append((self.now + self.draws.uniform(-3.0, late), trial, score))
            self._report_fitness()
        completion = Completion(
            attempt=trial.attempt,
            checkpoint=None if reason else checkpoint,
            metrics={} if self.study.fitness_from is FitnessFrom.WATCH or reason else metrics,
            n_steps=trial.n_steps,
            reason=reason,
        )
        try:
            ended = self.service.complete("", trial.id, completion)
            assert repr(self.service.complete("", trial.id, completion)) == repr(ended)  # NaN equals no NaN
        except Refused:
            pass  # the lease was lost meanwhile: somebody else has it, or will

    def _report_fitness(self) -> None:
        due = [entry for entry in self.waiting if entry[0] <= self.now]
        self.waiting = [entry for entry in self.waiting if entry[0] > self.now]
        for _, trial, score in due:
            path = self.store / "published" / f"{trial.id}-{trial.attempt}.npz"
            sha256 = checkpoint_sha256(path)
            for _ in range(2):
                self.service.report_fitness("", trial.id, generation=trial.generation, sha256=sha256, score=score)


def by_generation(trials: Sequence[StudyTrial]) -> dict[int, list[StudyTrial]]:
    found: dict[int, list[StudyTrial]] = {}
    for trial in trials:
        found.setdefault(trial.generation, []).append(trial)
    return found


def assert_properties(study: Study, trials: Sequence[StudyTrial]) -> None:
    """P1-P4 and P8 of a study that has come to rest."""
    from lobench.extend import Space

    by_id = {trial.id: trial for trial in trials}
    sizes = {generation: len(found) for generation, found in by_generation(trials).items()}
    assert sizes == dict.fromkeys(range(study.generations + 1), study.population)
    assert all(trial.state in (State.SUCCEEDED, State.INFEASIBLE) for trial in trials)
    initiators = [trial.initiator_id for trial in trials if trial.initiator_id is not None]
    assert len(set(initiators)) == len(initiators)
    assert set(initiators) == {trial.id for trial in trials if trial.generation < study.generations}
    assert len({trial.completed_seq for trial in trials}) == len(trials)
    space = Space(study.parameters)
    for trial in trials:
        assert space.contains(trial.params), trial
        if trial.initiator_id is not None:
            assert by_id[trial.initiator_id].generation == trial.generation - 1
        for parent in trial.parent_ids:
            assert by_id[parent].generation in (trial.generation - 1, trial.generation - 2)
            assert by_id[parent].state is State.SUCCEEDED
        depth, ancestor = 0, trial
        while ancestor.parent_ids:
            assert ancestor.warm_checkpoint == by_id[ancestor.parent_ids[0]].checkpoint
            assert ancestor.start_step == by_id[ancestor.parent_ids[0]].end_step
            depth, ancestor = depth + 1, by_id[ancestor.parent_ids[0]]
        assert depth <= trial.generation


class Rows:
    """A trial table in memory, for decisions without a service."""

    def __init__(self, trials: Iterable[StudyTrial]) -> None:
        self.trials = list(trials)

    def replace(self, trial: StudyTrial) -> None:
        """Writes a row, new or changed, and marks its initiator as having a child, as the service does."""
        rows = {row.id: row for row in self.trials} | {trial.id: trial}
        if trial.initiator_id is not None:
            rows[trial.initiator_id] = dataclasses.replace(rows[trial.initiator_id], has_child=True)
        self.trials = list(rows.values())

    def trial(self, id: int) -> StudyTrial | None:
        return next((trial for trial in self.trials if trial.id == id), None)

    def active_trial_of(self, worker: str) -> StudyTrial | None:
        return next((trial for trial in self.trials if trial.state is State.ACTIVE and trial.worker_id == worker), None)

    def oldest_requested(self) -> StudyTrial | None:
        return next((trial for trial in self.trials if trial.state is State.REQUESTED), None)

    def next_id(self) -> int:
        return 1 + max((trial.id for trial in self.trials), default=0)

    def num_trials(self, generation: int, *, terminal: bool = False) -> int:
        return sum(trial.generation == generation and (trial.is_terminal or not terminal) for trial in self.trials)

    def childless_trials(self, below: int) -> Iterable[StudyTrial]:
        return [
            trial for trial in self.trials if trial.is_terminal and not trial.has_child and trial.generation < below
        ]

    def trials_of_generations(self, generations: Sequence[int]) -> Sequence[StudyTrial]:
        return [trial for trial in self.trials if trial.generation in generations]

    def has_unfinished(self, below: int) -> bool:
        return any(trial.state in (State.ACTIVE, State.STOPPING) for trial in self.trials)


def strategy_of(name: str) -> SelectionStrategy:
    strategy: SelectionStrategy = PLUGINS.find("lobench_selection_strategies", name, kind="").load()("")
    return strategy
