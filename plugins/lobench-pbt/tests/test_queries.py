"""What a request costs does not grow with the history: the plans of its statements, and the steps that they take."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lobench_pbt.service import Service
from lobench_pbt.study import FitnessFrom, Opponents, Study
from lobench_pbt.transitions import Completion, Score
from lobench_pbt.trial import Artifact, State, StudyTrial
from lobench_pbt.trial_table import TrialTable
from pbt_simulation import PLUGINS, Simulation, make_study, write_theta

from lobench.extend import transaction

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# Tables that grow with a study's history.
GROWING = ("trials", "measurements", "scores", "holders")
_ACCESS = re.compile(rf"(SCAN|SEARCH) ({'|'.join(GROWING)})\b(?:.* \((?P<by>[^)]*)\))?")


class Traced(Simulation):
    """Keeps every statement that the service runs, with its values."""

    statements: set[str]

    def _open(self) -> Service:
        service = super()._open()
        self.statements = getattr(self, "statements", set())
        service._db.set_trace_callback(self.statements.add)
        return service


def bad_accesses(db: sqlite3.Connection, statement: str) -> list[str]:
    """Returns the steps of a statement's plan that read all trials of a study, by whatever index."""
    plain = statement.replace("-Inf", "-9e999")
    details = [str(row[3]) for row in db.execute(f"EXPLAIN QUERY PLAN {plain}")]
    found = [(detail, _ACCESS.search(detail)) for detail in details]
    return [detail for detail, access in found if access and (access["by"] or "study=?") == "study=?"]


def walk(study: Study, folder: Path) -> Traced:
    """A whole study with kills, late and lost fitness, measurements, pages and a stop."""
    simulation = Traced(folder, study, 7)
    trial = simulation.service.suggest("", "first").trial
    assert trial is not None
    simulation.service.heartbeat("", trial.id, trial.attempt)
    simulation.service.add_measurement("", trial.id, trial.attempt, step=1, seconds=0.0, metrics={"loss": 1.0})
    simulation.service.get_study()
    simulation.service.resume()
    simulation.run()
    service = simulation._open()
    service.stop_study()
    service.close()
    return simulation


@pytest.mark.parametrize("fitness_from", FitnessFrom)
@pytest.mark.parametrize(
    "values", [{}, {"budget": True, "opponents": Opponents.SAME}, {"strategy": "exploit_explore"}], ids=str
)
def test_no_statement_reads_a_whole_study(fitness_from: FitnessFrom, values: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as name:
        simulation = walk(make_study(**values, fitness_from=fitness_from), Path(name))
        db = sqlite3.connect(Path(name) / "pbt.sqlite")
        reads = {text for text in simulation.statements if re.match(r"(?i)select|update|delete|insert", text.strip())}
        wrong = {re.sub(r"\s+", " ", text): bad for text in reads if (bad := bad_accesses(db, text))}
        db.close()
    assert len(reads) > 50
    assert not wrong, sorted(wrong.items())[:5]


def fill(service: Service, study: Study, generations: int) -> None:
    """Writes generations that are over, as if they had been trained."""
    table = TrialTable(service._db, study.name)
    with transaction(service._db):
        for id in range(1, generations * study.population + 1):
            generation, slot = divmod(id - 1, study.population)
            first = generation == 0
            table.write_trial(
                StudyTrial(
                    id=id,
                    state=State.SUCCEEDED,
                    generation=generation,
                    slot=slot,
                    initiator_id=None if first else id - study.population,
                    parent_ids=() if first else (id - study.population,),
                    params={"outer.learning_rate": 0.1},
                    n_steps=5,
                    checkpoint=Artifact(uri=f"/nowhere/{id}", sha256=str(id)),
                    metrics={"loss": 1.0},
                    fitness=(-1.0,),
                    completed_seq=id,
                )
            )


@contextmanager
def counted(db: sqlite3.Connection) -> Iterator[list[int]]:
    """Counts the steps of SQLite's machine."""
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    db.set_progress_handler(step, 1)
    yield steps
    db.set_progress_handler(None, 1)


def costs(folder: Path, generations: int, fitness_from: FitnessFrom) -> dict[str, int]:
    """Returns the steps of each request after so many generations."""
    study = make_study(population=10, generations=10_000, fitness_from=fitness_from, parameters=())
    service = Service(folder / "store", clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(study)
    fill(service, study, generations)
    found: dict[str, int] = {}
    for worker in ("one", "two"):  # the second time nothing is new any more
        with counted(service._db) as steps:
            trial = service.suggest("", worker).trial
        found["suggest"] = steps[0]
        assert trial is not None and trial.generation == generations
        with counted(service._db) as steps:
            service.heartbeat("", trial.id, 0)
        found["heartbeat"] = steps[0]
        with counted(service._db) as steps:
            service.add_measurement("", trial.id, 0, step=1, seconds=0.0, metrics={"loss": 1.0})
        found["add_measurement"] = steps[0]
        checkpoint = write_theta(folder / f"{worker}.npz", 1.0)
        metrics = {} if fitness_from is FitnessFrom.WATCH else {"loss": 2.0}
        done = Completion(attempt=0, checkpoint=checkpoint, metrics=metrics, n_steps=5)
        with counted(service._db) as steps:
            service.complete("", trial.id, done)
        found["complete"] = steps[0]
        with counted(service._db) as steps:
            score = Score(metrics={"loss": 2.0})
            service.report_fitness("", trial.id, generation=trial.generation, sha256=checkpoint.sha256, score=score)
        found["report_fitness"] = steps[0]
        with counted(service._db) as steps:
            service.get_study()
        found["get_study"] = steps[0]
        with counted(service._db) as steps:
            service.list_trials("", after=generations * 10 - 10, limit=5)
        found["list_trials"] = steps[0]
        with counted(service._db) as steps:
            service.expire()
        found["expire"] = steps[0]
    service.close()
    return found


@pytest.mark.parametrize("fitness_from", FitnessFrom)
def test_a_request_takes_as_many_steps_whatever_came_before(tmp_path: Path, fitness_from: FitnessFrom) -> None:
    early, late = (costs(tmp_path / str(count), count, fitness_from) for count in (30, 300))
    assert {name: late[name] <= 1.1 * early[name] + 20 for name in early} == dict.fromkeys(early, True), (early, late)
