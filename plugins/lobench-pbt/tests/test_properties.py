"""The laws of a study, against the real service on a real database, with workers that come and go."""

from __future__ import annotations

import dataclasses
import math
import os
import sqlite3
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lobench_pbt.decide import reproduce, suggest
from lobench_pbt.lineage import ancestors_in_order, segments, warm_starts
from lobench_pbt.service import Service
from lobench_pbt.study import FitnessFrom, Opponents, Study
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import Artifact, State, StudyTrial
from pbt_simulation import (
    PARAMETERS,
    Rows,
    Simulation,
    assert_properties,
    make_study,
    strategy_of,
    write_theta,
)

from lobench.extend import Direction, Draws, Objective, Space, fold

STRATEGIES = ("tournament", "truncation", "exploit_explore", "winner_takes_all", "single_worker", "random_search")
# Every transition waits for the disk: thousands of them are quicker where there is none.
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
STUDIES = {
    "population": st.integers(1, 5),
    "generations": st.integers(0, 4),
    "strategy": st.sampled_from(STRATEGIES),
    "budget": st.booleans(),
    "fitness_from": st.sampled_from(FitnessFrom),
    "opponents": st.sampled_from(Opponents),
    "seed": st.integers(0, 10**6),
}


@QUICK
@given(num_workers=st.integers(1, 5), values=st.fixed_dictionaries(STUDIES))
def test_a_study_at_rest(num_workers: int, values: dict[str, object]) -> None:
    """P1, P2, P3, P4, P8."""
    study = make_study(**values)
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        trials = Simulation(Path(folder), study, study.seed, num_workers=num_workers).run()
    assert_properties(study, trials)


class Shuffled(Simulation):
    """After each restart the rows of the trial table are in another order."""

    restarts = 0

    def restart(self) -> None:
        super().restart()
        self.restarts += 1
        db = sqlite3.connect(self.store / "pbt.sqlite")
        db.row_factory = sqlite3.Row
        rows = sorted(db.execute("SELECT * FROM trials").fetchall(), key=lambda row: fold(self.restarts, row["id"]))
        with db:
            db.execute("DELETE FROM trials")
            for row in rows:
                places = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO trials ({', '.join(row.keys())}) VALUES ({places})", tuple(row))
        db.close()


def history(kind: type[Simulation], study: Study, restarted: float) -> list[StudyTrial]:
    """Returns what a simulation came to, without the places of its files."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        simulation = kind(Path(folder), study, study.seed, restarted=restarted)
        return [without_places(trial) for trial in simulation.run()]


def without_places(trial: StudyTrial) -> StudyTrial:
    names = ("warm_checkpoint", "warm_state", "checkpoint", "train_state")
    digests = {
        name: Artifact(uri="", sha256=artifact.sha256)
        for name in names
        if (artifact := getattr(trial, name)) is not None
    }
    metrics = {name: repr(value) for name, value in (trial.metrics or {}).items()}  # NaN equals NaN
    return dataclasses.replace(trial, metrics=metrics, **digests)  # type: ignore[arg-type]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.fixed_dictionaries({**STUDIES, "population": st.integers(2, 4), "generations": st.integers(1, 3)}))
def test_killed_after_any_transition_it_decides_the_same_later(values: dict[str, object]) -> None:
    """P6, P7: a service restarted before every request, its rows shuffled, against one that is never restarted."""
    study = make_study(**values)
    undisturbed = history(Simulation, study, 0.0)
    assert history(Simulation, study, 1.0) == undisturbed
    assert history(Shuffled, study, 1.0) == undisturbed


def ended(id: int, *fitness: float, generation: int = 0) -> StudyTrial:
    return StudyTrial(
        id=id,
        state=State.SUCCEEDED,
        generation=generation,
        slot=id % 100,
        fitness=fitness,
        params=Space(PARAMETERS).sample(id),
        checkpoint=Artifact(uri="", sha256=str(id)),
        completed_seq=id,
    )


def test_a_trial_of_rank_r_has_as_many_children_as_binary_tournaments_give() -> None:
    """P5: 2 (N - r) / (N - 1) in expectation, for N = 6."""
    table, strategy, count = Rows(ended(id, -float(id)) for id in range(1, 7)), strategy_of("tournament"), 3000
    children: Counter[int] = Counter()
    for seed in range(count):
        study = make_study(population=6, opponents=Opponents.SAME, seed=seed, parameters=())
        for initiator in table.trials:
            child = reproduce(study, strategy, table, initiator)
            assert child is not None
            children[child.parent_ids[0]] += 1
    found = [children[id] / count for id in range(1, 7)]
    assert found == pytest.approx([2, 1.6, 1.2, 0.8, 0.4, 0], abs=0.06)  # five standard errors


def test_who_reproduces_first_changes_nothing_but_ids() -> None:
    study, strategy, parents = make_study(seed=3), strategy_of("tournament"), [ended(id, 1.0) for id in range(1, 7)]

    def children(order: list[StudyTrial]) -> dict[int | None, StudyTrial]:
        table = Rows(parents)
        for initiator in order:
            child = reproduce(study, strategy, table, initiator)
            assert child is not None
            table.replace(child)
        found = [trial for trial in table.trials if trial.generation == 1]
        return {trial.initiator_id: dataclasses.replace(trial, id=0) for trial in found}

    assert children(parents) == children(parents[::-1])


def test_which_worker_asks_changes_nothing_but_its_name() -> None:
    study, strategy, table = make_study(seed=3), strategy_of("tournament"), Rows(ended(id, 1.0) for id in range(1, 5))
    one, two = (
        suggest(study, strategy, table, worker=worker, stopped=False, now=0.0).trial for worker in ("one", "two")
    )
    assert one is not None and two is not None
    assert dataclasses.replace(one, worker_id="two") == two


PARENTS = {2: [0], 3: [0], 4: [2], 5: [4, 3]}


@pytest.mark.parametrize(("id", "expected"), [(4, [0, 2, 4]), (5, [0, 2, 3, 4, 5]), (1, [1])])
def test_the_schedule_of_a_trial(id: int, expected: list[int]) -> None:
    """P9."""
    assert ancestors_in_order(lambda trial: PARENTS.get(trial, []), id) == expected


def test_the_weights_of_a_trial_go_back_along_its_winners() -> None:
    found = [{"trial": id, "parents": PARENTS.get(id, [])} for id in (0, 2, 3, 4, 5)]
    assert [segment["trial"] for segment in warm_starts(found)] == [0, 2, 4, 5]


@pytest.mark.parametrize(
    ("id", "to_step", "trials", "weights"),
    [
        (5, None, [0, 2, 3, 4, 5], [0, 2, 4, 5]),
        (5, 16, [0, 2, 3, 4, 5], [0, 2, 4, 5]),
        (5, 15, [0, 2, 4], [0, 2, 4]),
        (5, 10, [0, 2], [0, 2]),
        (6, None, [0, 2, 3, 4, 5], [0, 2, 4, 5]),
        (5, 0, [], []),
    ],
)
def test_a_schedule_that_is_cut_ends_with_the_weights_that_the_trial_had_then(
    id: int, to_step: int | None, trials: list[int], weights: list[int]
) -> None:
    """Trial 3 gave 5 a value by crossover and no weights; trial 6 was stopped before its first step."""
    depth = {0: 0, 2: 1, 3: 1, 4: 2, 5: 3, 6: 4}

    def row(id: int) -> StudyTrial:
        parents = tuple({**PARENTS, 6: [5, 4]}.get(id, ()))
        return StudyTrial(id=id, parent_ids=parents, start_step=5 * depth[id], n_steps=0 if id == 6 else 5)

    found = segments(row, id, to_step=to_step)
    assert [segment["trial"] for segment in found] == trials
    assert [segment["trial"] for segment in warm_starts(found)] == weights


@pytest.mark.parametrize(("opponent", "winner"), [((0.0, 1.0), 1), ((1.0, 1.0), 2), ((1.0, 0.0), 1)])
def test_pareto_improvement(opponent: tuple[float, float], winner: int) -> None:
    """P11: the opponent wins when it is no worse in every metric and better in one."""
    objectives = tuple(Objective(metric=name, direction=Direction.MAX) for name in "ab")
    study = make_study(strategy="pareto", objectives=objectives, budget=False)
    table = Rows([ended(1, 1.0, 0.0), ended(2, *opponent)])
    child = reproduce(study, strategy_of("pareto"), table, table.trials[0])
    assert child is not None and child.parent_ids[0] == winner


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nan_never_wins(tmp_path: Path, strategy: str) -> None:
    """Half of the trials are NaN: no child of the others' descends from one of them."""
    study = make_study(population=4, generations=4, strategy=strategy, p_crossover=0.0, seed=1)
    simulation = Simulation(tmp_path, study, 1, preempted=0.0, restarted=0.0, faults=0.0)
    simulation.quality = lambda trial: math.nan if trial.id % 2 else float(trial.id)
    trials = {trial.id: trial for trial in simulation.run()}
    for trial in trials.values():
        if trial.initiator_id is not None and trial.initiator_id % 2 == 0:
            assert trial.parent_ids[0] % 2 == 0


def test_a_stopped_study_comes_to_rest(tmp_path: Path) -> None:
    service = Service(tmp_path, clock=lambda: 0.0)
    service.create_study(make_study())
    trial = service.suggest("", "worker").trial
    assert trial is not None
    service.stop_study()
    assert service.heartbeat("", trial.id, trial.attempt) is True
    checkpoint = write_theta(tmp_path / "early.npz", 1.0)
    completion = Completion(attempt=0, checkpoint=checkpoint, metrics={"loss": 1.0}, n_steps=2)
    assert service.complete("", trial.id, completion).end_step == 2
    assert service.suggest("", "worker").answer == "done"
    service.close()


def test_a_study_of_several_objectives_keeps_whom_nobody_beats_and_frees_the_others(tmp_path: Path) -> None:
    """The rows and the files: what a finished study holds is the front and the last generation."""
    objectives = tuple(Objective(metric=name, direction=Direction.MAX) for name in ("loss", "size"))
    study = make_study(population=4, generations=6, strategy="pareto", objectives=objectives, parameters=())
    service = Service(tmp_path / "store", clock=lambda: 0.0)
    service.create_study(study)
    fitness: dict[int, tuple[float, float]] = {}
    while (trial := service.suggest("", "worker").trial) is not None:
        draws = Draws(trial.id, "fitness")
        fitness[trial.id] = (round(draws.uniform(), 1), round(draws.uniform(), 1))
        checkpoint = write_theta(tmp_path / f"{trial.id}.npz", float(trial.id))
        metrics = dict(zip(("loss", "size"), fitness[trial.id], strict=True))
        service.complete(
            "", trial.id, Completion(attempt=0, checkpoint=checkpoint, metrics=metrics, n_steps=trial.n_steps)
        )
    trials = service.list_trials("")
    kept = {trial.id for trial in trials if trial.is_kept}
    front = {
        id
        for id, (a, b) in fitness.items()
        if not any((c, d) != (a, b) and c >= a and d >= b for c, d in fitness.values())
    }
    first = {id for id in front if not any(fitness[other] == fitness[id] and other < id for other in front)}
    late = {trial.id for trial in trials if trial.generation == 6}
    assert kept == first | late
    assert len(kept) < len(trials) / 2
    assert len(list((tmp_path / "store" / "checkpoints").iterdir())) == len(kept)
    service.close()
