"""`lobench evolve` with real processes, real kills and real checkpoints."""

from __future__ import annotations

import gc
import hashlib
import itertools
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Done, lobench
from forked import python
from lobench_evolve.journal import read_generations
from programs import document
from shown import texts_of
from tiny import PATIENCE, make_suite, results, watch_here

SHOWN = texts_of("evolve")

CONFIG = """
import tiny_tasks
Case.learned_optimizer = @LearnableAdam()
LearnableAdam.initial_lr = 0.01
Case.num_inner_steps = 10
Case.num_seeds = 2
a/Case.task = @Bowl()

Evolve.num_generations = 3
Evolve.checkpoint_every = 2
Evolve.members_per_program = 4
TruncationGA.population_size = 8
TruncationGA.num_parents = 3
TruncationGA.num_candidates = 2
TruncationGA.elite_evals = 2
TruncationGA.sigma = 0.5
AntitheticES.num_pairs = 4
AntitheticES.learning_rate = 0.3
"""
STRATEGIES = {
    "ga": ("Evolve.strategy = 'ga'",),
    "es": ("Evolve.strategy = 'es'",),
    "mixed": ("Evolve.strategy = 'ga'", "TruncationGA.parents_per_child = 2", "TruncationGA.decay = 0.05"),
}


def make_config(folder: Path, extra: str = "") -> Path:
    config = make_suite(folder) / "evolve.gin"
    config.write_text(CONFIG + extra)
    return config


def command(config: Path, store: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "lobench.cli", "evolve", str(config), "--store", str(store), *options]


def run(config: Path, store: Path, *options: str) -> Done:
    """Runs it in this process."""
    return lobench(*command(config, store, *options)[3:])


def killed(write: int, config: Path, store: Path, *options: str) -> bool:
    """Runs it in a process of its own that kills itself at its n-th write; says whether it did."""
    words = ["-c", KILLED, str(write), *command(config, store, *options)[3:]]
    return python(*words, timeout=PATIENCE).returncode == -9


def evolve(config: Path, store: Path, *options: str) -> str:
    done = run(config, store, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def content(store: Path) -> dict[str, Any]:
    """What must be equal between two runs: all but seconds and the order in which results came."""
    with sqlite3.connect(store / "evolve.sqlite") as connection:
        found = connection.execute("SELECT generation, phase, block, fitness FROM results ORDER BY 1, 2, 3").fetchall()
        ended = connection.execute("SELECT generation, record FROM generations ORDER BY 1").fetchall()
    files = {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.glob("*/generation_*"))
    }
    return {"results": found, "generations": ended, "files": files}


EXECUTOR = """
from lobench.hookspecs import Declaration

def lobench_executors():
    return [Declaration(name="planted", factory=":Planted")]

class Planted:
    def __init__(self, config, wakeup):
        self.start = self.send = self.kill = self.close = lambda *_: None

    def wait(self, timeout):
        raise ZeroDivisionError("planted")
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_config(tmp_path_factory.mktemp("evolve"))


@pytest.fixture(scope="module", params=STRATEGIES)
def reference(request: pytest.FixtureRequest, config: Path) -> tuple[Path, tuple[str, ...]]:
    """The store of a run in one process, and the options that it took."""
    params = [text for value in STRATEGIES[request.param] for text in ("--gin-param", value)]
    options = (*params, "--seed", "3")
    store = config.parent / request.param
    evolve(config, store, *options, "--executor", "inline", "--workers", "1")
    return store, options


def test_generations_and_checkpoints_are_there(reference: tuple[Path, tuple[str, ...]]) -> None:
    store, _ = reference
    closed = read_generations(store)
    assert [entry.generation for entry in closed] == [0, 1, 2]
    assert all(entry.result.num_results == 8 and entry.result.num_not_finite == 0 for entry in closed)
    names = [path.name for path in sorted((store / "checkpoints").glob("*.npz"))]
    steps = (0, 1, 2, 3) if store.name == "es" else (0, 1, 2)
    assert names == [f"generation_{step:06d}.npz" for step in steps]


def test_a_run_that_has_ended_is_told_to_programs(reference: tuple[Path, tuple[str, ...]], config: Path) -> None:
    store, options = reference
    found = document(evolve(config, store, *options, "--executor", "inline", "--workers", "1", "--format", "json"))
    (only,) = found["runs"]
    assert found["exit_code"] == 0 and only["folder"] == str(store) and only["num_generations"] == 3
    assert only["fitness"] == read_generations(store)[-1].result.elite_fitness


@pytest.mark.filterwarnings("error")
def test_inline_is_one_worker_however_many_are_asked_for(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one had taken the first one's place, whose socket nobody closed."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: unraisable.append(found.exc_value))
    one = ("--gin-param", "Evolve.num_generations = 1", "--executor", "inline")
    evolve(config, tmp_path / "store", *one, "--workers", "2")
    gc.collect()
    assert unraisable == []


# The test of a lost worker has a genetic algorithm with two workers.
@pytest.mark.parametrize("reference", ["es"], indirect=True)
def test_two_workers_give_the_same_bits(reference: tuple[Path, tuple[str, ...]], config: Path, tmp_path: Path) -> None:
    store, options = reference
    evolve(config, tmp_path / "two", *options, "--workers", "2")
    assert content(tmp_path / "two") == content(store)


KILLED = """
import os, signal, sys
from lobench_evolve import journal
left = int(sys.argv.pop(1))
class Database:
    def __init__(self, wrapped):
        self.wrapped = wrapped
    def __getattr__(self, name):
        return getattr(self.wrapped, name)
    def execute(self, sql, *arguments):
        global left
        left -= sql == "COMMIT"
        if sql == "COMMIT" and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.wrapped.execute(sql, *arguments)
connect = journal.sqlite3.connect
journal.sqlite3.connect = lambda *a, **k: Database(connect(*a, **k))
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


# "mixed" is a genetic algorithm.
@pytest.mark.parametrize("reference", ["es", "mixed"], indirect=True)
def test_killed_at_its_writes_it_goes_on_with_the_same_bits(
    reference: tuple[Path, tuple[str, ...]], config: Path, tmp_path: Path
) -> None:
    store, options = reference
    arguments = (config, tmp_path / "killed", *options, "--executor", "inline", "--workers", "1")
    # The first two compare the run with what was begun; what is written next is the same of every strategy.
    for write in (3, 4, 5, 6) if store.name == "es" else (4, 5, 6):
        assert killed(write, *arguments)
    evolve(*arguments)
    assert content(tmp_path / "killed") == content(store)


@pytest.mark.parametrize("reference", ["mixed"], indirect=True)
def test_a_lost_workers_members_are_evaluated_by_another(
    reference: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    store, options = reference
    extra = f"a/Case.task = @Killer()\nKiller.counter = '{tmp_path}/counter'\nKiller.times = 2\n"
    output = evolve(make_config(tmp_path, extra), tmp_path / "lost", *options, "--workers", "2")
    assert output.count(SHOWN["its-job-goes-to-another"]) == 2
    assert content(tmp_path / "lost") == content(store)


def test_a_job_that_every_worker_dies_of_ends_the_run(tmp_path: Path) -> None:
    extra = f"a/Case.task = @Killer()\nKiller.counter = '{tmp_path}/counter'\nKiller.times = 100\n"
    done = run(make_config(tmp_path, extra), tmp_path / "store", "--workers", "1")
    assert done.returncode == 2
    assert SHOWN["its-worker-died-3-times"] in done.stderr
    assert "Traceback" not in done.stderr


def test_first_results_close_a_generation_and_replay(config: Path, tmp_path: Path) -> None:
    options = ("--gin-param", "Evolve.first_n = 5", "--gin-param", "Evolve.members_per_program = 2")
    first, second = tmp_path / "first", tmp_path / "second"
    evolve(config, first, *options, "--workers", "2")
    assert [entry.result.num_results for entry in read_generations(first)] == [5, 5, 5]
    shutil.copytree(first, second, ignore=shutil.ignore_patterns("generation_*"))
    with sqlite3.connect(second / "evolve.sqlite") as connection:
        connection.execute("DELETE FROM generations")
    evolve(config, second, *options, "--executor", "inline", "--workers", "1")
    assert content(second) == content(first)


@pytest.mark.parametrize("reference", ["es", "mixed"], indirect=True)
def test_a_watch_evaluates_what_was_evolved(reference: tuple[Path, tuple[str, ...]], config: Path) -> None:
    store, _ = reference
    suite = config.parent / "test_tiny.py"
    done = watch_here(store / "checkpoints", suite, "--once", "--checkpoints", "all", "--name", "tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(store / "checkpoints" / "lobench_results" / "tiny")
    steps = {record["checkpoint"]["outer_step"] for record in found}
    assert steps == ({0, 1, 2, 3} if store.name == "es" else {0, 1, 2})
    final = {record["checkpoint"]["outer_step"]: record["metrics"]["train/loss"]["final"] for record in found}
    assert final[max(steps)] < final[0]


def test_experiments_are_runs_of_their_own(tmp_path: Path) -> None:
    config = make_config(tmp_path, "b/Case.task = @Bowl()\nb/Bowl.dim = 2\n")
    options = ("--executor", "inline", "--workers", "1", "--gin-param", "Evolve.num_generations = 1", "--seeds", "2")
    output = evolve(config, tmp_path / "many", *options, "--cases", "a", "--cases", "b", "--shard", "1/2")
    runs = sorted(str(path.parent.relative_to(tmp_path / "many")) for path in tmp_path.rglob("evolve.sqlite"))
    assert runs == ["a/seed_1", "b/seed_1"]
    assert output.count(SHOWN["ended-with-exit-code-0"]) == 2
    single = tmp_path / "single"
    evolve(config, single, *options[:-2], "--case", "b", "--seed", "1")
    assert content(single) == content(tmp_path / "many" / "b" / "seed_1")


def test_where_no_checkpoint_can_be_written_it_says_so_and_goes_on_later(config: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").touch()
    options = ("--executor", "inline", "--workers", "1")
    done = run(config, tmp_path, *options)
    assert done.returncode == 2
    assert SHOWN["cannot-write-a-checkpoint"] in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    (tmp_path / "checkpoints").unlink()
    assert "3 generations" in evolve(config, tmp_path, *options)


@pytest.mark.parametrize("reference", ["ga"], indirect=True)
def test_another_run_in_the_same_store_is_refused(reference: tuple[Path, tuple[str, ...]], config: Path) -> None:
    store, options = reference
    done = run(config, store, *options, "--gin-param", "LearnableAdam.initial_lr = 0.02")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert SHOWN["run-was-begun-otherwise"] in line
    assert SHOWN["got-learnableadam-initial-lr-is"] in line
    assert SHOWN["to-extend-it-change-evolve"] in line


def es(config: Path, store: Path, generations: int, *options: str) -> tuple[Any, ...]:
    params = ("Evolve.strategy = 'es'", f"Evolve.num_generations = {generations}")
    given = [text for param in params for text in ("--gin-param", param)]
    return config, store, *given, "--executor", "inline", "--workers", "1", *options


def rates_of(store: Path) -> list[float]:
    """How far theta moved from one checkpoint to the next; every generation of these runs writes one."""
    paths = sorted((store / "checkpoints").glob("*.npz"))
    thetas = [
        np.concatenate([leaf.ravel() for name, leaf in np.load(path).items() if "theta" in name]) for path in paths
    ]
    return [float(np.abs(after - before).max()) for before, after in itertools.pairwise(thetas)]


def test_a_longer_run_is_refused_by_both_words_and_extended_by_one_of_them(config: Path, tmp_path: Path) -> None:
    often = ("--gin-param", "Evolve.checkpoint_every = 1", "--gin-param", "AntitheticES.final_rate_fraction = 0.0")
    store = tmp_path / "run"
    assert SHOWN["no-run-of-an-evolution"] in run(*es(config, store, 5, *often, "--extend")).stderr
    assert run(*es(config, store, 3, *often)).returncode == 0
    before = content(store)
    refused = run(*es(config, store, 6, *often))
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert SHOWN["got-evolve-num-generations-is"] in line
    assert "by 3 generations" in line and "--extend" in line
    done = run(*es(config, store, 6, *often, "--extend"))
    assert done.returncode == 0 and "6 generations" in done.stdout, done.stderr
    branch = store / "extended_to_6"
    assert [entry.generation for entry in read_generations(branch)] == [3, 4, 5]
    assert content(store) == before, "the run itself is as it was"
    last, first = (path / "checkpoints" / "generation_000003.npz" for path in (store, branch))
    assert last.read_bytes() == first.read_bytes(), "it starts where the other ended"
    assert rates_of(branch)[0] > rates_of(store)[-1], "along a cosine of its own"
    again = run(*es(config, store, 6, *often, "--extend"))
    assert again.returncode == 0 and [entry.generation for entry in read_generations(branch)] == [3, 4, 5]
    further = run(*es(config, branch, 7, *often, "--extend"))
    assert further.returncode == 0 and [
        generation.generation for generation in read_generations(branch / "extended_to_7")
    ] == [6]
    assert SHOWN["adds-no-generation"] in run(*es(config, store, 3, *often, "--extend")).stderr
    two = run(*es(config, store, 6, *often, "--extend", "--gin-param", "AntitheticES.sigma = 0.2", "--seed", "1"))
    assert SHOWN["antithetices-sigma-is-0-2"] in two.stderr and SHOWN["seed-is-1-and-was"] in two.stderr


def test_an_extension_that_is_killed_goes_on_with_the_same_bits(config: Path, tmp_path: Path) -> None:
    for name in ("calm", "killed"):
        assert run(*es(config, tmp_path / name, 2)).returncode == 0
    assert run(*es(config, tmp_path / "calm", 4, "--extend")).returncode == 0
    for write in (3, 5):
        assert killed(write, *es(config, tmp_path / "killed", 4, "--extend"))
    unfinished = run(*es(config, tmp_path / "killed" / "extended_to_4", 5, "--extend"))
    assert SHOWN["this-one-has-not"] in unfinished.stderr and SHOWN["resume-it-first"] in unfinished.stderr
    assert run(*es(config, tmp_path / "killed", 4, "--extend")).returncode == 0
    assert content(tmp_path / "killed" / "extended_to_4") == content(tmp_path / "calm" / "extended_to_4")


def test_a_genetic_algorithm_goes_on_in_place_with_either_word(config: Path, tmp_path: Path) -> None:
    longer = ("--executor", "inline", "--workers", "1", "--gin-param", "Evolve.num_generations = 4")
    evolve(config, tmp_path / "run", "--executor", "inline", "--workers", "1")
    evolve(config, tmp_path / "run", *longer, "--extend")
    assert [entry.generation for entry in read_generations(tmp_path / "run")] == [0, 1, 2, 3]


def test_an_error_of_a_task_is_said(tmp_path: Path) -> None:
    """And not the note that jax puts under it."""
    suite = make_config(tmp_path, "a/Case.task = @Misshapen()\n")
    with (suite.parent / "tiny_tasks.py").open("a") as file:
        file.write(
            "@configurable\nclass Misshapen(Bowl):\n"
            "    def loss(self, params, key, data):\n        return params @ jnp.ones(7)\n"
        )
    done = run(suite, tmp_path / "store", "--workers", "1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(SHOWN["lobench-typeerror"]) and "(7,)" in line


def test_experiments_end_with_what_started_them(tmp_path: Path) -> None:
    """So that the same command can go on with them; a case that is named twice is one all the same."""
    many = ("--seeds", "1", "--cases", "a", "--cases", "a", "--parallel", "2", "--executor", "inline", "--workers", "1")
    config, store = make_config(tmp_path), tmp_path / "many"
    started = command(config, store, *many, "--gin-param", "Evolve.num_generations = 20000")
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert "generation 0" in parent.stdout.readline()
        parent.kill()
        parent.communicate(timeout=PATIENCE)  # until the last of them has gone, which has the pipe too
    num_before = len(read_generations(store / "a" / "seed_0"))
    output = evolve(config, store, *many, "--gin-param", f"Evolve.num_generations = {num_before + 1}")
    assert output.count(SHOWN["ended-with-exit-code-0"]) == 1


def test_an_executor_of_a_plugin_that_fails_is_one_line(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted-1.0.dist-info").mkdir()
    (tmp_path / "planted-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (tmp_path / "planted-1.0.dist-info/entry_points.txt").write_text("[lobench]\nplanted = planted_executor\n")
    (tmp_path / "planted_executor.py").write_text(EXECUTOR)
    monkeypatch.syspath_prepend(tmp_path)
    done = run(config, tmp_path / "store", "--executor", "planted", "--workers", "1")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, SHOWN["planted-hook-lobench-executors-planted"] in line) == (3, True), line
