"""`lobench watch --executor ray` on a real Ray of two nodes, and what becomes of it when nodes come and go."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import lobench as lobench_command
from forked import started
from gated import GatedSuite
from left_behind import traceless
from shown import texts_of
from tiny import (
    content,
    make_run,
    make_suite,
    results,
    until,
    watch,
    watch_apart,
    watch_command,
    write_checkpoint,
)
from two_nodes import PATIENT, Cluster, signal_all

import lobench

SHOWN = texts_of("ray")

LOCAL = ("--checkpoints", "all", "--once", "--workers", "1")

OPTIMIZER = """
from lobench import configurable
from lobench.inner.optimizers.learnable import LearnableSGD

@configurable
class MySGD(LearnableSGD):
    pass
"""

NAME = rf"{re.escape(socket.gethostname())} \([0-9.:a-f]+, id [0-9a-f]{{8}}\)"  # of a node
LOSS = SHOWN["node-what-it-held-runs"].format(name=NAME)


LOG_LRS = (-3.0, -2.5, -2.0, -1.5)  # of the checkpoints that a test may add


class Gated(GatedSuite):
    """A suite whose cases wait for a file, a run of one checkpoint, and what an undisturbed local watch records."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "a", "bb")
        self.chiefs: list[subprocess.Popen[str]] = []
        self.suite, self.run = self.path, make_run(folder, *LOG_LRS)
        done = watch(self.run, self.suite, *LOCAL, "--store", str(folder / "local"))
        assert done.returncode == 0, done.stdout + done.stderr
        self._local = content(folder / "local")

    def local(self, *, num_checkpoints: int = 1) -> list[tuple[Any, ...]]:
        return [record for record in self._local if record[0] <= num_checkpoints]

    def add_checkpoint(self, step: int) -> None:
        write_checkpoint(self.run / f"theta_{step}.npz", LOG_LRS[step - 1])

    def shut(self) -> None:
        self.hold()
        for step in range(2, len(LOG_LRS) + 1):
            for path in self.run.glob(f"theta_{step}.*"):
                path.unlink()


@pytest.fixture(scope="module")
def all_gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    gated = Gated(tmp_path_factory.mktemp("gated"))
    yield gated
    gated.release()


@pytest.fixture
def gated(all_gated: Gated) -> Iterator[Gated]:
    all_gated.shut()
    yield all_gated
    for process in all_gated.chiefs:  # one that a failed test left would keep slots from the next one
        process.kill()
        process.wait()
    all_gated.chiefs.clear()


SHORT_SILENCE = """
import lobench_ray.executor
lobench_ray.executor.SILENCE_SECONDS = 15.0
from lobench.cli import main
main()
"""


def chief(
    gated: Gated, cluster: Cluster, store: Path, *options: str, suite: Path | None = None
) -> subprocess.Popen[str]:
    arguments = watch_command(gated.run, suite or gated.suite, *cluster.options(), *options)[3:]
    words = ("-c", SHORT_SILENCE, *arguments, "--store", str(store))
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = started(*words, **output, env=cluster.environment)
    gated.chiefs.append(process)
    return process


def printed_until(process: subprocess.Popen[str], has_enough: Callable[[str], object]) -> str:
    """Reads what a process prints until it has printed enough, and returns it."""
    assert process.stdout is not None
    text = ""
    while not has_enough(text):
        line = process.stdout.readline()
        assert line, f"it has ended: {text}"
        text += line
    return text


def ending(process: subprocess.Popen[str]) -> str:
    """Returns the rest of what a process prints, once it has ended."""
    assert process.stdout is not None
    output = process.stdout.read()
    assert process.wait(PATIENT) == 0, output
    return output


def together(store: Path) -> dict[tuple[str, int], str]:
    """How each evaluation was computed, by case and outer step."""
    records = results(store)
    return {(r["case"]["name"], r["checkpoint"]["outer_step"]): r["provenance"]["together"] for r in records}


EVALUATOR = """
import json, pathlib, sys
checkpoint, step, seed, out = sys.argv[1:]
assert pathlib.Path(checkpoint).is_file()
pathlib.Path(out, "m.json").write_text(json.dumps({"valid/loss": int(step) + int(seed) / 8}))
lines = [json.dumps({"item": f"q{place}", "correct": place < int(step)}) + "\\n" for place in range(5)]
pathlib.Path(out, "answers.jsonl").write_text("".join(lines))
"""
COMMANDS = """
x/Case.command = "python evaluate.py {checkpoint} {step} {seed} {out}"
x/Case.num_seeds = 2
x/Case.primary_metric = "valid/loss"
x/Case.curves = "{out}/m.json"
qa/Case.command = "python evaluate.py {checkpoint} {step} {seed} {out}"
qa/Case.curves = "{out}/answers.jsonl"
qa/Case.primary_metric = "correct"
qa/Case.metric_directions = {"correct": "max"}
qa/Case.replicates = "items"
"""
TESTS = """
import pytest
from lobench import Case, cases
from tiny_tasks import Bowl

@cases(bowl=Case(task=Bowl(), num_inner_steps=10, num_seeds=2, eval_every=5))
def test_bowl(case, evaluate):
    evaluate(case)

@pytest.mark.parametrize("width", [2, 3])
def test_size(checkpoint, record, width):
    record("valid/size", width * checkpoint.outer_step)
    assert checkpoint.outer_step < 2

def test_items(checkpoint, record):
    for name, leaf in checkpoint.theta().items():
        record("accuracy", leaf.size > 0, item=name)
    for name in ("a", "b", "c"):
        record("accuracy", checkpoint.outer_step / 4, item=name)
"""


def recorded(store: Path) -> list[tuple[Any, ...]]:
    """Returns what must be equal of each evaluation, wherever it was computed."""
    found = [
        (
            result["case"]["name"],
            result["checkpoint"]["sha256"],
            result["seeds"],
            result["outcome"],
            result.get("items", []),
            result["curves"],
        )
        for result in results(store, "--curves")
    ]
    return sorted(found, key=lambda one: one[:3])


def notebook(run: Path, suite: Path, store: Path) -> None:
    """Evaluates a run as a cell of a notebook does, in this process."""
    with traceless():
        watched = lobench.watch(run, suite, store=str(store), checkpoints="all", once=True, executor="inline")
    assert sum(watched.ending.outcomes.values()) > 0


def session_of_two(suite: Path, checkpoint: Path, store: Path) -> None:
    words = [sys.executable, "-m", "pytest", str(suite), "-n", "2", "-p", "no:cacheprovider"]
    words += ["--lobench-checkpoint", str(checkpoint), "--lobench-store", str(store)]
    subprocess.run(words, capture_output=True, timeout=PATIENT, check=False)


def test_suite_of_every_kind_of_case_has_equal_results_everywhere_and_nodes_get_each_file_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    """On two nodes, in the local pool, in a notebook, and in a session of pytest on two processes.

    Waiting checkpoints are computed together, and workers import modules of the chief's folder, from where the path of
    the store begins.
    """
    project = tmp_path / "project"
    project.mkdir()
    (project / "my_optimizer.py").write_text(OPTIMIZER)
    suite, run = make_suite(tmp_path, gin=""), make_run(tmp_path, -3.0, -2.5)
    (suite / "evaluate.py").write_text(EVALUATOR)
    (suite / "tiny.gin").rename(suite / "commands.gin").write_text(COMMANDS)
    (suite / "test_tiny.py").write_text(TESTS)
    words = ["watch", run, "--suite", suite, "--together", "2"]
    words += ["--gin-param", "import my_optimizer", "--gin-param", "Case.learned_optimizer = @MySGD()"]
    local = lobench_command(*words, *LOCAL, "--store", tmp_path / "local", cwd=project)
    nodes = [cluster.nodes["head"], cluster.second]
    before = [set(node.sent("suites") + node.sent("theta")) for node in nodes]
    command = [sys.executable, "-m", "lobench.cli", *map(str, words), *cluster.options(), "--once"]
    done = subprocess.run(
        [*command, "--store", "../ray"],
        cwd=project,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=PATIENT,
    )
    assert (local.returncode, done.returncode) == (1, 1), local.stdout + done.stdout + done.stderr
    assert SHOWN["cores-on-2-nodes"] in done.stdout
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert together(tmp_path / "ray") == together(tmp_path / "local")
    assert together(tmp_path / "ray").items() >= {("bowl", step): f"{step} of 2" for step in (1, 2)}.items()
    checkpoints = [record["checkpoint"] for record in results(tmp_path / "ray")]
    thetas = {f"{checkpoint['sha256']}.npz": checkpoint["outer_step"] for checkpoint in checkpoints}
    for node, known in zip(nodes, before, strict=True):
        assert set(node.sent("theta")) - known <= {*thetas}
        assert len(set(node.sent("suites")) - known) == 1
    assert any(node.sent("xla_cache") for node in nodes)  # of the one that trains
    notebook(run, suite, tmp_path / "notebook")
    session_of_two(suite, run / "theta_2.npz", tmp_path / "pytest")
    found = recorded(tmp_path / "ray")
    assert recorded(tmp_path / "notebook") == found
    assert recorded(tmp_path / "pytest") == [one for one in found if thetas[f"{one[1]}.npz"] == 2]
    assert [one[0] for one in found if one[3] == "failed"] == ["test_size[2]", "test_size[3]"]
    assert {name: len(items) for name, *_, items, _ in found} == {
        "bowl": 0, "x": 0, "test_size[2]": 0, "test_size[3]": 0, "qa": 5, "test_items": 4,
    }  # fmt: skip


def test_a_ray_of_this_machine_alone_ends_with_its_watch_however_that_ends(gated: Gated, tmp_path: Path) -> None:
    gated.release()
    ray = ("--executor", "ray", "--ray-address", "local")
    command = watch_command(gated.run, gated.suite, *LOCAL, *ray, "--store", str(tmp_path / "store"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="lobench-ray-", dir="/tmp") as scratch:  # short, for its sockets' names
        environment |= {"RAY_TMPDIR": scratch, "TMPDIR": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
        environment["RAY_worker_niceness"] = "0"  # as in `Cluster`

        def of_ray() -> list[psutil.Process]:
            processes = list(psutil.process_iter(["cmdline"]))
            return [process for process in processes if scratch in " ".join(process.info["cmdline"] or ())]

        killed = subprocess.Popen(command, env=environment)
        until(lambda: any(Path(scratch).glob("**/gcs_server.out")), "a Ray is started")
        killed.kill()
        killed.wait()
        while left := of_ray():  # some of it may still be starting
            assert not psutil.wait_procs(left, PATIENT)[1], "the Ray of a killed watch does not end"
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert SHOWN["cores-on-1-node"] in done.stdout
        assert not of_ray()
    assert content(tmp_path / "store") == gated.local()


def test_a_watch_that_loses_a_node_and_then_ray_loses_nothing_and_records_nothing_twice(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--once")
    until(lambda: gated.num_begun() == 2, "both cases run")
    second.kill()
    printed_until(process, re.compile(LOSS).search)
    cluster.kill()
    cluster.start_head()
    gated.release()
    output = ending(process)
    assert SHOWN["lost-ray"] in output
    assert "again" in output
    assert content(tmp_path / "store") == gated.local()


def test_a_node_that_cannot_run_workers_is_left_out_and_a_case_wider_than_the_others_waits_for_one(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    """It lacks what workers are made of. The other reasons are in `test_sweep.py` and the test of a refused watch."""
    suite = shutil.copytree(gated.suite, tmp_path / "gated")
    with (suite / "gated.gin").open("a") as file:
        file.write('wide/Case.command = "true"\nwide/Case.num_cpus = 2\n')
    if "second" in cluster.nodes:
        cluster.nodes["second"].kill()
    (tmp_path / "empty" / "lobench_ray").mkdir(parents=True)
    (tmp_path / "empty" / "lobench_ray" / "__init__.py").touch()
    bad = cluster.start_node("empty", PYTHONPATH=str(tmp_path / "empty"))
    process = chief(gated, cluster, tmp_path / "store", "--once", suite=suite)
    try:
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        line = next(line for line in printed if "left out" in line)
        assert re.search(NAME, line) and "lobench_ray.slot" in line, line
        assert any(SHOWN["core-on-1-node"] in line for line in printed)
        gated.release()
        printed_until(process, lambda text: SHOWN["no-node-has-2-cores"] in text and text.count("passed") == 2)
        process.terminate()
        process.communicate(timeout=PATIENT)
    finally:
        bad.kill()
    assert process.returncode == 130
    assert content(tmp_path / "store") == gated.local()


def test_leases_of_what_is_frozen_run_out_and_its_late_result_is_not_taken(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    """A frozen slot is found out by its silence alone, a frozen node by Ray."""
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--until-step", "4")
    output = ""
    for step, processes in ((1, second.workers), (3, second.processes)):
        until(lambda: gated.num_begun() == 2, "both nodes evaluate")
        frozen = processes()
        assert frozen
        signal_all(frozen, signal.SIGSTOP)
        gated.release()
        try:
            output += printed_until(process, lambda text: text.count("passed") == 2)  # the other node runs both
        finally:
            signal_all(frozen, signal.SIGCONT)
        gated.add_checkpoint(step + 1)  # by the time that it is done, the late result has come
        if step == 1:
            output += printed_until(process, lambda text: text.count("passed") == 2)
            gated.hold()
            gated.add_checkpoint(3)
    output += ending(process)
    second.kill()  # one that Ray took for dead ends itself some time later, maybe in the middle of another test
    assert len(re.findall(LOSS, output)) == 2, output
    assert content(tmp_path / "store") == gated.local(num_checkpoints=4)


WITHOUT_TOKEN = """
import os, sys
from ray._raylet import Config
from lobench import LobenchError
from lobench_ray.access import check_token
for mode in ("", "token"):
    os.environ["RAY_AUTH_MODE"] = mode
    Config.initialize("")
    try:
        check_token(sys.argv[1])
    except LobenchError as error:
        print(error)
"""


def test_who_lacks_the_token_is_told_so_at_once(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    command = watch_command(run, suite, *cluster.options(), "--once", "--store", str(tmp_path / "store"))
    environment = {**cluster.environment, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert done.returncode == 2
    assert cluster.address in done.stderr and "RAY_AUTH_TOKEN" in done.stderr
    assert SHOWN["token-that-is-not-this"] in done.stderr
    assert SHOWN["ray-start-head"] not in done.stderr
    environment = {**cluster.environment, "HOME": "/nowhere"}
    del environment["RAY_AUTH_TOKEN"]
    words = [sys.executable, "-c", WITHOUT_TOKEN, cluster.address]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENT, check=True)
    for why, text in zip(("ray-auth-mode-is-not", "ray-auth-mode-token-and"), done.stdout.splitlines(), strict=True):
        assert cluster.address in text and SHOWN[why] in text and "RAY_AUTH_TOKEN" in text


def test_a_ray_that_asks_nobody_for_a_token_is_refused(gated: Gated, tmp_path: Path) -> None:
    gated.release()
    cluster = Cluster(tmp_path / "open", mode="disabled")
    try:
        cluster.start_head()
        refused, taken = (
            cluster.watch(gated.run, gated.suite, "--store", str(tmp_path / "store"), *more)
            for more in ((), ("--insecure",))
        )
    finally:
        cluster.kill()
    assert refused.returncode == 2
    assert SHOWN["accepts-every-connection"] in refused.stderr
    assert "--insecure" in refused.stderr
    assert taken.returncode == 0, taken.stdout + taken.stderr


def test_watch_is_refused_where_each_node_would_give_other_numbers(
    cluster: Cluster, gated: Gated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = cluster.second  # it has the versions of this environment
    newer = tmp_path / "newer" / "optax-99.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 99.0\n")
    monkeypatch.setitem(cluster.environment, "PYTHONPATH", str(newer.parent))
    process = chief(gated, cluster, tmp_path / "none", "--once")
    try:
        assert process.stdout is not None
        printed_until(process, lambda text: "on 2 nodes" in text)
        second.signal(signal.SIGSTOP)  # alive at first, so that a slot is moved there from the node left out
        output, _ = process.communicate(timeout=PATIENT)
    finally:
        second.kill()
    assert process.returncode == 2, output
    why = SHOWN["node-would-give-other-numbers"].format(name=NAME, version=re.escape(version("optax")))
    assert re.search(why, output), output


def test_a_dry_run_does_not_take_this_machines_cores_for_the_clusters(tmp_path: Path) -> None:
    suite, run = (
        make_suite(tmp_path, extra="\nwide/Case.task = @Bowl()\nwide/Case.num_cpus = 999\n"),
        make_run(tmp_path, -3.0),
    )
    found = []
    for options in ((), ("--executor", "ray"), ("--executor", "ray", "--workers", "3")):
        done = watch_apart(run, suite, *options, "--dry-run")
        assert done.returncode == 0, done.stderr
        found += [line.split(" x ")[-1].split(" ")[0] for line in done.stdout.splitlines() if "/wide" in line]
    assert found[1:] == ["999", "3"]
    assert found[0] != "999"


def test_no_ray_where_one_was_named(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = watch_apart(run, suite, "--once", "--executor", "ray", "--ray-address", address)
    assert done.returncode == 2
    assert address in done.stderr
    assert SHOWN["ray-start-head"] in done.stderr
