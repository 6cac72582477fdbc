"""`lobench watch` with real processes, real kills and TensorBoard's own reader."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from forked import ANEW, python
from shown import texts_of
from tiny import (
    KILLED_CHIEF,
    ONE_CASE,
    PATIENCE,
    content,
    is_alive,
    killed_chief,
    make_run,
    make_suite,
    results,
    watch,
    watch_apart,
    watch_command,
    write_checkpoint,
)

import lobench
from lobench.core.case import CaseInfo
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.progress import SilentProgress

SHOWN = texts_of("watch")

ALL = ("--once", "--checkpoints", "all", "--workers", "1")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, a suite, and the store of an undisturbed watch beside it."""
    folder = tmp_path_factory.mktemp("reference")
    suite, run = make_suite(folder), make_run(folder, -3.0, -2.0)
    done = watch(run, suite, *ALL, "--sink", "tensorboard", "--store", str(folder / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    return run, suite


def test_each_checkpoint_is_evaluated_and_a_second_one_compiles_nothing(reference: tuple[Path, Path]) -> None:
    found = results(reference[0].parent / "store")
    assert Counter((r["checkpoint"]["outer_step"], r["case"]["name"], r["outcome"]) for r in found) == {
        (step, case, "passed"): 1 for step in (1, 2) for case in "ab"
    }
    assert [r["num_compilations"] for r in found if r["checkpoint"]["outer_step"] == 2] == [0, 0]


def scalars(store: Path) -> Counter[tuple[str, int]]:
    from lobench_tensorboard.sink import written_scalars

    return Counter(written_scalars(store / "tensorboard"))


def test_two_workers_and_the_inline_executor_give_the_same_bits(reference: tuple[Path, Path], tmp_path: Path) -> None:
    run, suite = reference
    for name, options in {"two": ("--workers", "2"), "inline": ("--executor", "inline", "--workers", "1")}.items():
        done = watch_apart(run, suite, "--once", "--checkpoints", "all", *options, "--store", str(tmp_path / name))
        assert done.returncode == 0, done.stdout + done.stderr
        assert content(tmp_path / name) == content(run.parent / "store")


def test_two_watches_side_by_side_and_one_store_for_one(reference: tuple[Path, Path], tmp_path: Path) -> None:
    run, suite = reference
    first = subprocess.Popen(
        watch_command(run, suite, "--store", str(tmp_path / "one"), "--name", "first", "--workers", "1"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout is not None
        first.stdout.readline()
        refused = watch(run, suite, *ALL, "--store", str(tmp_path / "one"))
        assert refused.returncode == 2
        assert f"'first', process {first.pid}" in refused.stderr
        beside = watch(run, suite, *ALL, "--executor", "inline", "--store", str(tmp_path / "two"))
        assert beside.returncode == 0
    finally:
        first.send_signal(signal.SIGTERM)
        output, _ = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130
    assert SHOWN["same-command-goes-on"] in output


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Eight checkpoints, so that there are writes enough to be killed at, with their undisturbed store."""
    folder = tmp_path_factory.mktemp("longer")
    run, suite = make_run(folder, *(-3.0 + 0.25 * step for step in range(8))), make_suite(folder, ONE_CASE)
    done = watch(run, suite, *ALL, "--executor", "inline", "--sink", "tensorboard", "--store", str(folder / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    return run, suite


@pytest.mark.parametrize("after", [0, 1], ids=["before the commit", "after the commit"])
def test_killed_at_every_ledger_write_it_ends_with_the_same_ledger(
    longer: tuple[Path, Path], tmp_path: Path, after: int
) -> None:
    """One store: the k-th start is killed at its k-th write, until one start needs fewer writes than that."""
    run, suite = longer
    store = tmp_path / "store"
    options = [str(run), "--suite", str(suite), *ALL, "--sink", "tensorboard", "--store", str(store)]
    kills = 0
    for write in range(1, 40):
        code = killed_chief(write, after, "watch", *options).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
    assert kills >= 6
    assert content(store) == content(run.parent / "store")
    assert scalars(store) == scalars(run.parent / "store")


def extra_case(task: str, *bindings: str) -> str:
    lines = [f"bad/Case.task = @{task}()", "bad/Case.num_seeds = 2", *(f"bad/{binding}" for binding in bindings)]
    return "\n" + "\n".join(lines) + "\n"


def outcomes(store: Path) -> dict[str, str]:
    return {record["case"]["name"]: record["outcome"] for record in results(store)}


def test_a_killed_workers_case_runs_again_and_a_second_death_poisons_it(tmp_path: Path) -> None:
    for times, expected in ((1, "passed"), (2, "poisoned")):
        folder = tmp_path / str(times)
        bindings = (f"Killer.counter = '{folder}/counter'", f"Killer.times = {times}")
        suite = make_suite(folder, ONE_CASE, extra_case("Killer", *bindings))
        run = make_run(folder, -3.0)
        done = watch(run, suite, *ALL, "--store", str(folder / "store"))
        assert outcomes(folder / "store") == {"a": "passed", "bad": expected}
        assert done.returncode == (0 if times == 1 else 3)


class _Leases(SilentProgress):
    """Cases of the leases that run, and of those that were given up."""

    def __init__(self) -> None:
        self.running: dict[int, str] = {}
        self.given_up_cases: list[str] = []

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        self.running[lease] = case.name

    def given_up(self, lease: int) -> None:
        self.given_up_cases.append(self.running.pop(lease))

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        if lease is not None:
            self.running.pop(lease, None)


def test_a_case_that_hangs_is_ended_at_its_deadline_and_runs_no_longer(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE, extra_case("Hang", "Case.timeout_seconds = 1"))
    leases = _Leases()
    watched = lobench.watch(make_run(tmp_path, -3.0), suite, once=True, workers=1, progress=leases)
    assert outcomes(watched.store) == {"a": "passed", "bad": "timeout"}
    assert leases.given_up_cases == ["bad"] and not leases.running


@pytest.mark.xfail(
    not metadata.version("jaxlib").startswith("0.10."),
    reason="XLA of jaxlib 0.11 divides by zero where it compiles arrays of terabytes: the case is poisoned",
    strict=True,
)
def test_out_of_memory_is_tried_once_more_with_half_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # the kernels that users have ask for all of that memory
    suite = make_suite(tmp_path, ONE_CASE, extra_case("Hungry"))
    run = make_run(tmp_path, -3.0)
    done = watch(run, suite, *ALL, "--store", str(tmp_path / "store"))
    found = sorted((r["case"]["name"], r["seeds"], r["outcome"]) for r in results(tmp_path / "store"))
    assert found == [("a", [0, 1], "passed"), ("bad", [0], "oom"), ("bad", [1], "oom")], done


def test_a_suite_that_is_broken_while_it_is_watched_ends_the_watch_with_its_line(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    command = watch_command(run, suite, "--checkpoints", "all", "--workers", "1")
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    for line in chief.stdout:
        if "tiny/a  passed" in line:
            break
    (suite / "tiny.gin").write_text("Case.num_seeds = (\n")
    write_checkpoint(run / "theta_2.npz", -2.0)
    output, errors = chief.communicate(timeout=PATIENCE)
    assert chief.returncode == 2
    assert "tiny.gin:" in errors and SHOWN["syntax-error"] in errors, output + errors
    assert "INTERNAL_ERROR" not in output + errors


def test_while_the_runs_config_is_broken_no_worker_starts_and_one_line_says_so(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0), tmp_path / "store"
    config = (run / "config.gin").read_text()
    (run / "config.gin").write_text("Case.learned_optimizer = @(\n")
    command = watch_command(run, suite, "--executor", "inline", "--until-step", "1")
    chief = subprocess.Popen([*command, "--store", str(store)], stdout=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    num_lines = 0
    for line in chief.stdout:
        if SHOWN["workers-start-once-the-file"] in line:
            num_lines += 1
            (run / "config.gin").write_text(config)
    assert chief.wait(PATIENCE) == 0 and num_lines == 1
    assert Counter(record["outcome"] for record in results(store)) == {"passed": 1}


def test_a_config_that_is_empty_for_a_while_after_an_edit_does_not_end_the_watch(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0), tmp_path / "store"
    config = run / "config.gin"
    edited = f"{config.read_text()}LearnableSGD.initial_lr = 0.5\n"
    command = watch_command(run, suite, "--workers", "1", "--until-step", "2", "--store", str(store))
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    for line in chief.stdout:
        if "tiny/a  passed" in line and "outer step 1" in line:
            config.write_text(edited)
            write_checkpoint(run / "theta_2.npz", -2.0)
        if SHOWN["has-changed-restarting-with-the"].format(file=config) in line:
            config.write_text("")  # before the new worker reads it
        if SHOWN["workers-start-once-the-file"] in line:
            config.write_text(edited)
    assert chief.wait(PATIENCE) == 0
    assert Counter(record["outcome"] for record in results(store)) == {"passed": 2}


# Other bindings are there while a worker describes the cases, and the former ones again when it trains the first.
BACK_AND_FORTH = """
import os
from pathlib import Path

def take(name):
    if (folder / name).exists():
        os.replace(folder / name, folder / "run" / "config.gin")

folder = Path(FOLDER)
if not __name__.startswith("lobench_conftest"):  # a worker, not the chief
    take("second.gin")

def pytest_runtest_setup(item):
    take("third.gin")
"""


def test_bindings_that_change_and_come_back_while_a_worker_starts_are_no_errors(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0), tmp_path / "store"
    config = (run / "config.gin").read_text()
    (tmp_path / "second.gin").write_text(f"{config}LearnableSGD.initial_lr = 0.5\n")
    (tmp_path / "third.gin").write_text(config)
    (suite / "conftest.py").write_text(BACK_AND_FORTH.replace("FOLDER", repr(str(tmp_path))))
    done = watch(run, suite, *ALL, "--store", str(store))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["outcome"] for record in results(store)] == ["passed"]


def test_a_suite_that_is_edited_while_it_is_watched_is_taken_as_it_is_from_the_next_checkpoint_on(
    tmp_path: Path,
) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    command = watch_command(run, suite, "--checkpoints", "all", "--workers", "1", "--until-step", "3")
    command += ["--store", str(tmp_path / "store")]
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert chief.stdout is not None
    lines = []
    for line in chief.stdout:
        lines.append(line)
        if "tiny/b  passed" in line and "outer step 1" in line:
            os.utime(suite / "tiny_tasks.py")  # the same content: no edit
            write_checkpoint(run / "theta_2.npz", -2.0)
        if "tiny/b  passed" in line and "outer step 2" in line:
            text = (suite / "tiny.gin").read_text()
            (suite / "tiny.gin").write_text(text.replace("b/Bowl.dim = 5", "b/Bowl.dim = 6\nc/Case.task = @Bowl()"))
            write_checkpoint(run / "theta_3.npz", -1.0)
    output = "".join(lines)
    assert chief.wait(PATIENCE) == 0, output
    assert output.count(SHOWN["has-changed-restarting-with-the"].format(file=suite / "tiny.gin")) == 1, output
    assert "7 passed" in output, output
    records = results(tmp_path / "store")
    found = {(r["checkpoint"]["outer_step"], r["case"]["name"]): r["case"]["identity"] for r in records}
    assert set(found) == {(1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a"), (3, "b"), (3, "c")}
    assert found[1, "a"] == found[3, "a"] and found[1, "b"] == found[2, "b"] != found[3, "b"]


# The chief sends itself a signal while none of its handlers is there: at its start, or as it begins again after edits.
EARLY = """
import os, signal
from pathlib import Path
import numpy as np

run = Path(RUN)
if __name__.startswith("lobench_conftest"):  # the chief, not a worker
    with open(run / "starts", "a") as file:
        file.write("x")
    if len((run / "starts").read_text()) == NUMBER:
        os.kill(os.getpid(), signal.SIGINT)

def lobench_evaluation_finished(event):
    if not (run / "theta_2.npz").exists():
        with open(run.parent / "tiny" / "tiny.gin", "a") as file:
            file.write("Case.eval_every = 2\\n")
        np.savez(run / "theta_2.npz", log_lr=np.float32(-2.0))
        (run / "theta_2.npz.done").touch()
"""


@pytest.mark.parametrize("start", [1, 2])
def test_an_interrupt_before_the_first_chief_or_between_two_ends_a_watch_that_a_script_started_in_the_background(
    tmp_path: Path, start: int
) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "conftest.py").write_text(EARLY.replace("RUN", repr(str(run))).replace("NUMBER", str(start)))
    command = watch_command(run, suite, "--checkpoints", "all", "--workers", "1", "--until-step", "2")
    # As a shell does it for `&`.
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **ANEW})
    assert done.returncode == 130, done.stdout + done.stderr
    assert (run / "starts").read_text() == "x" * start


SINK = """
from pathlib import Path

class Notes:
    def __init__(self, context):
        self.file = Path(context.argument)
    def deliver(self, deliveries):
        with self.file.open("a") as file:
            file.writelines(f"OLD {delivery.sequence}\\n" for delivery in deliveries)
    def close(self):
        pass
"""
DECLARED = """
from lobench.hookspecs import Declaration

def lobench_result_sinks():
    return [Declaration(name="notes", factory="my_notes:Notes")]
"""


def test_a_sink_beside_an_edited_conftest_is_taken_as_it_is_too(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    (suite / "my_notes.py").write_text(SINK)
    (suite / "conftest.py").write_text(DECLARED)
    notes = tmp_path / "notes.txt"
    command = watch_command(run, suite, "--checkpoints", "all", "--workers", "1", "--until-step", "2")
    chief = subprocess.Popen([*command, "--sink", f"notes:{notes}"], stdout=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    for line in chief.stdout:
        if "tiny/a  passed" in line and "outer step 1" in line:
            (suite / "my_notes.py").write_text(SINK.replace("OLD", "EDITED"))
            write_checkpoint(run / "theta_2.npz", -2.0)
    assert chief.wait(PATIENCE) == 0
    written = notes.read_text().splitlines()
    assert written[0].startswith("OLD") and written[-1].startswith("EDITED"), written


# Misses a worker as soon as its log is there, and says so in a file: `python -c IMPATIENT FILE watch ...`.
IMPATIENT = """
import sys
from pathlib import Path
from lobench.engine.chief import worker_link as watch_workers
watch_workers._SLOW_START_SECONDS = 0.0
missed, mention = Path(sys.argv.pop(1)), watch_workers.WatchWorkers.log_slow_starts
def impatient(self):
    if (self._logs / "worker-0.log").is_file():
        mention(self)
        missed.touch()
watch_workers.WatchWorkers.log_slow_starts = impatient
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


def test_a_worker_that_takes_long_to_start_is_mentioned(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    missed = tmp_path / "missed"
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(f"\nwhile not os.path.exists({str(missed)!r}):\n    time.sleep(0.02)\n")
    done = python("-c", IMPATIENT, missed, "watch", run, "--suite", suite, *ALL, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    log = run / "lobench_results" / "tiny" / "logs" / "worker-0.log"
    assert done.stdout.count(SHOWN["worker-0-is-not-ready"].format(log=log)) == 1


def test_no_worker_outlives_a_killed_chief(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE, extra_case("Hang"))
    run = make_run(tmp_path, -3.0)
    command, anew = watch_command(run, suite, "--workers", "2"), {**os.environ, **ANEW}
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=anew)
    assert chief.stdout is not None
    for line in chief.stdout:
        if "  passed  " in line:
            break
    children = [int(pid) for pid in Path(f"/proc/{chief.pid}/task/{chief.pid}/children").read_text().split()]
    assert len(children) == 3  # two workers, and who ends what they started
    os.kill(chief.pid, signal.SIGKILL)
    chief.wait()
    deadline = time.monotonic() + PATIENCE
    while any(is_alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in children)


def test_new_checkpoints_are_picked_up_and_equal_thetas_are_trained_once(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path)
    command = watch_command(
        run, suite, "--checkpoints", "all", "--until-step", "3", "--workers", "1", "--sink", "tensorboard"
    )
    chief = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert chief.stdout is not None
    assert any("waiting" in line for line in chief.stdout)
    for index, log_lr in ((1, -3.0), (2, -2.0), (3, -3.0)):
        write_checkpoint(run / f"theta_{index}.npz", log_lr)
    output, _ = chief.communicate(timeout=PATIENCE)
    assert chief.returncode == 0, output
    store = run / "lobench_results" / "tiny"
    assert sorted({r["checkpoint"]["outer_step"] for r in results(store)}) == [1, 2, 3]
    assert scalars(store)["tiny/a/train/loss", 3] == 1
    assert output.count(SHOWN["tiny-a-passed"]) == 3
    assert not list((store / "spool").iterdir())


def test_a_tensorboard_folder_that_was_removed_is_filled_again(reference: tuple[Path, Path], tmp_path: Path) -> None:
    run, suite = reference
    store = shutil.copytree(run.parent / "store", tmp_path / "store")
    shutil.rmtree(store / "tensorboard")
    done = watch(run, suite, *ALL, "--sink", "tensorboard", "--store", str(store))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" not in done.stdout.replace(str(tmp_path.parent), ""), "nothing is evaluated again"
    assert scalars(store) == scalars(run.parent / "store")


def test_a_theta_that_spool_and_run_have_lost_is_expired(reference: tuple[Path, Path], tmp_path: Path) -> None:
    suite, run, store = reference[1], make_run(tmp_path, -3.0, -2.0), tmp_path / "store"
    options = [str(run), "--suite", str(suite), *ALL, "--store", str(store)]
    assert killed_chief(4, 1, "watch", *options).returncode == -signal.SIGKILL
    shutil.rmtree(store / "spool")
    (run / "theta_1.npz").unlink()
    assert watch(run, suite, *ALL, "--store", str(store)).returncode == 3
    found = Counter((r["checkpoint"]["outer_step"], r["outcome"]) for r in results(store))
    assert found == {(1, "expired"): 2, (2, "passed"): 2}


# Publishes after every commit but the one that kills.
EAGER = """
from lobench.engine.store.network import LocalCopy
changed = LocalCopy.count_change
def eager(self):
    changed(self)
    self.publish()
LocalCopy.count_change = eager
"""
# Publishes at its start and its end alone, however long it takes.
LAZY = """
from lobench.engine.store import network
network._PUBLISH_SECONDS = 1e6
"""


def test_on_a_network_file_system_a_lost_local_disk_costs_work_and_nothing_else(
    longer: tuple[Path, Path], tmp_path: Path
) -> None:
    """Killed between two publications; the local disk is kept once, lost twice."""
    run, suite = longer
    store, machine = tmp_path / "store", tmp_path / "machine"
    environment = {**os.environ, "LOBENCH_NETWORK_STORE": "1", "LOBENCH_LOCAL_DIR": str(machine)}
    options = [str(run), "--suite", str(suite), *ALL, "--sink", "tensorboard", "--store", str(store)]
    known = []
    for write, program, is_lost in ((18, EAGER, True), (6, LAZY, True), (6, EAGER, False)):
        words = (str(write), "1", "watch", *options)
        done = python("-c", program + KILLED_CHIEF, *words, env=environment, timeout=PATIENCE)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        if is_lost:
            shutil.rmtree(machine)
        known.append(len(results(store)))
    assert 0 < known[0] == known[1] <= known[2], "the second start published nothing that it evaluated"
    done = python("-m", "lobench.cli", "watch", *options, env=environment, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(store) == content(run.parent / "store")
    assert scalars(store) == scalars(run.parent / "store")
    assert list(machine.iterdir()) == [] and list((store / "spool").iterdir()) == []
