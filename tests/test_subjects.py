"""Subjects of every kind go one way: given together, evaluated once, found again without a worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import pytest_session
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite

from lobench.api.engine_run import WatchOutcome
from lobench.api.evaluate import evaluate_into
from lobench.core.errors import ConfigError, LobenchError, UsageError
from lobench.core.result import Outcome
from lobench.engine.store.ledger import Ledger
from lobench.report.live.progress import SilentProgress

SHOWN = texts_of("lobench")

OTHER_RATE = "; LearnableSGD.initial_lr = 0.5"
# Evaluates subjects in a process of its own: `python -c EVALUATE STORE SUITE SUBJECT...`.
EVALUATE = """
import sys
from lobench.api.evaluate import evaluate_into
store, suite, *subjects = sys.argv[1:]
ending = evaluate_into(store, subjects, suite, workers=1).ending
print(sum(ending.outcomes.values()), len([name for name in ("jax", "optax") if name in sys.modules]))
"""


class Lines(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


def subjects_in(folder: Path) -> list[str]:
    """Two optimizers without theta, and one theta with two bindings."""
    theta = str(folder / "run" / "theta_1.npz")
    return ["sgd()", "adam(); adam.learning_rate = 0.1", theta, theta + OTHER_RATE]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, a run, and a store that has them all."""
    folder = tmp_path_factory.mktemp("subjects")
    make_suite(folder), make_run(folder, -3.0)
    ending = evaluate_into(folder / "store", subjects_in(folder), folder / "tiny", workers=1).ending
    assert ending.outcomes == {Outcome.PASSED: 8}
    return folder


def again(folder: Path, *subjects: str, **options: object) -> tuple[WatchOutcome, list[str]]:
    """Evaluates once more, and makes sure that no worker was needed for it."""
    logs = {log: log.stat().st_mtime_ns for log in (folder / "store" / "logs").iterdir()}
    progress = Lines()
    watched = evaluate_into(folder / "store", subjects, folder / "tiny", workers=1, progress=progress, **options)
    assert {log: log.stat().st_mtime_ns for log in (folder / "store" / "logs").iterdir()} == logs
    return watched, progress.lines


def test_an_optimizer_has_the_row_that_pytest_writes(done: Path, tmp_path: Path) -> None:
    given = ("--lobench-optimizer", "adam(); adam.learning_rate = 0.1", "--lobench-store", tmp_path)
    finished = pytest_session("-q", done / "tiny", *given, cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout
    both = []
    for store in (done / "store", tmp_path):
        ledger = Ledger.open(store, read_only=True)
        found = {
            row.key: (row.recorded_sightings[0], row.case.key, {name: bytes(v) for name, v in curves.metrics.items()})
            for row in ledger.evaluations()
            if (curves := row.curves) is not None and row.recorded_sightings[0].label.startswith("adam")
        }
        both.append(found)
        ledger.close()
    assert both[0] == both[1] and len(both[0]) == 2


def test_what_is_finished_is_seen_to_be_without_a_worker_and_without_jax(done: Path) -> None:
    command = [sys.executable, "-c", EVALUATE, str(done / "store"), str(done / "tiny"), *subjects_in(done)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert finished.stdout == "0 0\n", finished.stdout + finished.stderr


def test_one_theta_with_two_bindings_is_two_subjects(done: Path) -> None:
    ledger = Ledger.open(done / "store", read_only=True)
    rows = [row for row in ledger.evaluations() if not row.recorded_sightings[0].is_optimizer]
    ledger.close()
    assert len({row.key.checkpoint_sha256 for row in rows}) == 1
    assert sorted(len(row.recorded_sightings) for row in rows) == [1, 1, 1, 1]
    assert {row.recorded_sightings[0].label for row in rows} == {"theta_1.npz", f"theta_1.npz{OTHER_RATE}"}


def test_the_same_subject_twice_is_said_and_computed_once(done: Path) -> None:
    watched, lines = again(done, "sgd()", "sgd()")
    assert watched.ending.num_checkpoints == 1
    assert SHOWN["sgd-and-sgd-are-the"] in lines


def test_a_subject_that_is_asked_for_no_more_counts_no_more(done: Path) -> None:
    watched, _ = again(done, "sgd()")
    assert watched.ending.recorded == {Outcome.PASSED: 2} and watched.ending.num_checkpoints == 1


@pytest.mark.parametrize(
    ("text", "error", "output"),
    [
        ("adam(); adam.learning_rate = ", ConfigError, "'adam.learning_rate ='"),
        ("nothing.npz", UsageError, SHOWN["neither-a-checkpoint-nor-an"]),
        ("missing.gin", ConfigError, "missing.gin"),
    ],
)
def test_what_does_not_parse_is_refused_at_once(done: Path, text: str, error: type[LobenchError], output: str) -> None:
    with pytest.raises(error) as refused:
        again(done, "sgd()", text)
    assert output in str(refused.value) and "\n" not in str(refused.value)


def test_an_unknown_name_is_refused_before_anything_runs(done: Path, tmp_path: Path) -> None:
    with pytest.raises(LobenchError) as refused:
        evaluate_into(tmp_path / "store", ["sgd()", "adamm()"], done / "tiny", workers=1)
    text = str(refused.value)
    assert "'adamm()'" in text and SHOWN["did-you-mean-adam"] in text and "\n" not in text
    assert not (tmp_path / "store").exists(), "nothing was evaluated"
