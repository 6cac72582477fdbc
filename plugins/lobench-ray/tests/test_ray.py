"""`lobench watch --executor ray` on a real Ray of two nodes, and what becomes of it when nodes come and go."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import lobench as lobench_command
from forked import started
from left_behind import traceless
from shown import texts_of
from tiny import (
    GATE,
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


class Gated:
    """A suite whose cases wait for a file, a run of one checkpoint, and what an undisturbed local watch records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chiefs: list[subprocess.Popen[str]] = []
        gin = "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 2\n"
        for name in "ab":
            gin += f"{name}/Case.task = @Gate()\n{name}/Gate.folder = '{folder}'\n"
        self.suite, self.run = make_suite(folder, gin=gin), make_run(folder, -3.0)
        with (self.suite / "tiny_tasks.py").open("a") as file:
            file.write(GATE)
        self.open()
        done = watch(self.run, self.suite, *LOCAL, "--store", str(folder / "local"))
        assert done.returncode == 0, done.stdout + done.stderr
        self.local = content(folder / "local")

    def waiting(self) -> list[int]:
        return [int(path.name.removeprefix("waits-")) for path in self.folder.glob("waits-*")]

    def open(self) -> None:
        (self.folder / "go").touch()

    def shut(self) -> None:
        for path in (self.folder / "go", *self.folder.glob("waits-*"), *self.run.glob("theta_2.*")):
            path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def all_gated(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    return Gated(tmp_path_factory.mktemp("gated"))


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


def chief(gated: Gated, cluster: Cluster, store: Path, *options: str) -> subprocess.Popen[str]:
    arguments = watch_command(gated.run, gated.suite, *cluster.options(), *options)[3:]
    words = ("-c", SHORT_SILENCE, *arguments, "--store", str(store))
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = started(*words, **output, env=cluster.environment)
    gated.chiefs.append(process)
    return process


def ending(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 0, output
    return output


def together(store: Path) -> dict[tuple[str, int], str]:
    """How each evaluation was computed, by case and outer step."""
    records = results(store)
    return {(r["case"]["name"], r["checkpoint"]["outer_step"]): r["provenance"]["together"] for r in records}


def test_two_nodes_give_the_bits_of_the_local_pool_and_get_each_file_once(cluster: Cluster, tmp_path: Path) -> None:
    """Waiting checkpoints are computed together there too, and workers import modules of the chief's folder."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "my_optimizer.py").write_text(OPTIMIZER)
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.5, -2.0, -1.5)
    words = ["watch", run, "--suite", suite, "--together", "4"]
    words += ["--gin-param", "import my_optimizer", "--gin-param", "Case.learned_optimizer = @MySGD()"]
    local = lobench_command(*words, *LOCAL, "--store", tmp_path / "local", cwd=project)
    assert local.returncode == 0, local.stdout + local.stderr
    nodes = [cluster.nodes["head"], cluster.second]
    before = [set(node.sent("suites") + node.sent("theta")) for node in nodes]
    command = [sys.executable, "-m", "lobench.cli", *map(str, words), *cluster.options(), "--once", "--store"]
    done = subprocess.run(
        [*command, str(tmp_path / "ray")],
        cwd=project,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=PATIENT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SHOWN["cores-on-2-nodes"] in done.stdout
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    groups = {(case, step): f"{step} of 4" for case in "ab" for step in (1, 2, 3, 4)}
    assert together(tmp_path / "ray") == together(tmp_path / "local") == groups
    thetas = {f"{record['checkpoint']['sha256']}.npz" for record in results(tmp_path / "ray")}
    for node, known in zip(nodes, before, strict=True):
        assert set(node.sent("theta")) - known <= thetas
        assert len(set(node.sent("suites")) - known) == 1
        assert node.sent("xla_cache")


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


@pytest.mark.long
def test_suite_of_every_kind_of_case_has_equal_results_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, gin=""), make_run(tmp_path, -3.0, -2.5)
    (suite / "evaluate.py").write_text(EVALUATOR)
    (suite / "tiny.gin").rename(suite / "commands.gin").write_text(COMMANDS)
    (suite / "test_tiny.py").write_text(TESTS)
    local = watch(run, suite, *LOCAL, "--store", str(tmp_path / "local"))
    done = cluster.watch(run, suite, "--store", str(tmp_path / "ray"))
    assert (local.returncode, done.returncode) == (1, 1), local.stdout + done.stdout + done.stderr
    notebook(run, suite, tmp_path / "notebook")
    for checkpoint in sorted(run.glob("theta_*.npz")):
        session_of_two(suite, checkpoint, tmp_path / "pytest")
    found = recorded(tmp_path / "ray")
    for name in ("local", "notebook", "pytest"):
        assert recorded(tmp_path / name) == found, name
    assert [one[0] for one in found if one[3] == "failed"] == ["test_size[2]", "test_size[3]"]
    assert {name: len(items) for name, *_, items, _ in found} == {
        "bowl": 0, "x": 0, "test_size[2]": 0, "test_size[3]": 0, "qa": 5, "test_items": 4,
    }  # fmt: skip


def test_a_ray_of_this_machine_alone_ends_with_its_watch_however_that_ends(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    command = watch_command(run, suite, *LOCAL, "--executor", "ray", "--ray-address", "local", "--store", str(store))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="lobench-ray-", dir="/tmp") as scratch:  # short, for its sockets' names
        environment |= {"RAY_TMPDIR": scratch, "TMPDIR": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
        environment["RAY_worker_niceness"] = "0"  # as in `Cluster`

        def of_ray() -> list[str]:
            lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
            return [line for line in lines if scratch in line]

        killed = subprocess.Popen(command, env=environment)
        until(of_ray, "a Ray is started")
        killed.kill()
        killed.wait()
        until(lambda: not of_ray(), "the Ray of a killed watch ends")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert SHOWN["cores-on-1-node"] in done.stdout
        assert not of_ray()
    assert [record["outcome"] for record in results(store)] == ["passed", "passed"]


def test_a_node_killed_in_the_middle_loses_nothing_and_records_nothing_twice(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--once")
    until(lambda: len(gated.waiting()) == 2, "both cases run")
    second.kill()
    gated.open()
    output = ending(process)
    assert len(re.findall(SHOWN["node-what-it-held-runs"].format(name=NAME), output)) == 1, output
    assert content(tmp_path / "store") == gated.local


@pytest.mark.parametrize("what", ["node", "slot"])
def test_leases_of_what_is_frozen_run_out_and_its_late_result_is_not_taken(
    cluster: Cluster, gated: Gated, tmp_path: Path, what: str
) -> None:
    """A frozen node is found out by Ray; a frozen slot by its silence alone."""
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--until-step", "2")
    until(lambda: len(gated.waiting()) == 2, "both cases run")
    frozen = second.processes() if what == "node" else second.workers()
    assert frozen
    signal_all(frozen, signal.SIGSTOP)
    gated.open()
    try:
        until(lambda: len(results(tmp_path / "store")) == 2, "the other node runs what the frozen one held")
    finally:
        signal_all(frozen, signal.SIGCONT)
    write_checkpoint(gated.run / "theta_2.npz", -2.0)  # by the time that it is done, the late result has come
    output = ending(process)
    assert len(re.findall(SHOWN["node-what-it-held-runs"].format(name=NAME), output)) == 1, output
    second.kill()  # one that Ray took for dead ends itself some time later, maybe in the middle of another test
    assert [record for record in content(tmp_path / "store") if record[0] == 1] == gated.local
    assert len(content(tmp_path / "store")) == 4


def test_ray_started_again_under_a_living_chief_is_found_again(cluster: Cluster, gated: Gated, tmp_path: Path) -> None:
    assert cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--once")
    until(lambda: len(gated.waiting()) == 2, "both cases run")
    cluster.kill()
    cluster.start_head()
    cluster.start_second()
    gated.open()
    output = ending(process)
    assert SHOWN["lost-ray"] in output
    assert "again" in output
    assert content(tmp_path / "store") == gated.local


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"RAY_AUTH_TOKEN": "0" * 64}, SHOWN["token-that-is-not-this"]),
        ({"RAY_AUTH_TOKEN": "", "HOME": "/nowhere"}, SHOWN["ray-auth-mode-token-and"]),
        ({"RAY_AUTH_MODE": "", "RAY_AUTH_TOKEN": ""}, SHOWN["ray-auth-mode-is-not"]),
    ],
    ids=["another", "none", "no mode"],
)
def test_who_lacks_the_token_is_told_so_at_once(
    cluster: Cluster, tmp_path: Path, given: dict[str, str], why: str
) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    environment = {name: value for name, value in {**cluster.environment, **given}.items() if value}
    command = watch_command(run, suite, *cluster.options(), "--once", "--store", str(tmp_path / "store"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENT, check=False)
    assert done.returncode == 2
    assert cluster.address in done.stderr and why in done.stderr and "RAY_AUTH_TOKEN" in done.stderr
    assert SHOWN["ray-start-head"] not in done.stderr


def test_a_ray_that_asks_nobody_for_a_token_is_refused(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    cluster = Cluster(tmp_path / "open", mode="disabled")
    try:
        cluster.start_head()
        refused, taken = (
            cluster.watch(run, suite, "--store", str(tmp_path / "store"), *more) for more in ((), ("--insecure",))
        )
    finally:
        cluster.kill()
    assert refused.returncode == 2
    assert SHOWN["accepts-every-connection"] in refused.stderr
    assert "--insecure" in refused.stderr
    assert taken.returncode == 0, taken.stdout + taken.stderr


def test_nodes_that_would_give_other_numbers_or_none_are_left_out(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    """One has another version, one lacks what workers are made of, one a folder of its own for them."""
    cluster.second.kill()
    older = tmp_path / "older" / "optax-0.0.1.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n")
    (tmp_path / "empty" / "lobench_ray").mkdir(parents=True)
    (tmp_path / "empty" / "lobench_ray" / "__init__.py").touch()
    closed = cluster.start_node("closed")
    folder = closed.folder / "tmp" / f"lobench-{os.getuid()}"
    folder.touch()
    bad = [
        closed,
        cluster.start_node("older", PYTHONPATH=str(older.parent)),
        cluster.start_node("empty", PYTHONPATH=str(tmp_path / "empty")),
    ]
    process = chief(gated, cluster, tmp_path / "store", "--once")
    try:
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        lines = [next(line for line in printed if "left out" in line) for _ in bad]
        text = "".join(lines)
        assert re.search(SHOWN["node-would-give-other-numbers"].format(name=NAME), text), text
        assert "lobench_ray.slot" in text and str(folder) in text
        assert any(SHOWN["core-on-1-node"] in line for line in printed)
        gated.open()
        ending(process)
    finally:
        for node in bad:
            node.kill()
    assert content(tmp_path / "store") == gated.local


def test_watch_is_refused_where_each_node_would_give_other_numbers(
    cluster: Cluster, gated: Gated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "newer" / "optax-99.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 99.0\n")
    monkeypatch.setitem(cluster.environment, "PYTHONPATH", str(newer.parent))
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "none", "--once")
    try:
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        assert any("on 2 nodes" in line for line in printed)
        second.signal(signal.SIGSTOP)  # alive at first, so that a slot is moved there from the node left out
        output, _ = process.communicate(timeout=PATIENT)
    finally:
        second.kill()
    assert process.returncode == 2, output
    assert "for 99.0" in output


def test_a_case_wider_than_every_node_waits_for_one_and_the_watch_says_so(cluster: Cluster, tmp_path: Path) -> None:
    wide = "\nwide/Case.task = @Bowl()\nwide/Case.num_cpus = 2\n"
    suite, run, store = make_suite(tmp_path, extra=wide), make_run(tmp_path, -3.0), tmp_path / "store"
    assert cluster.second
    command = watch_command(run, suite, *cluster.options(), "--once", "--store", str(store))
    process = subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any(SHOWN["no-node-has-2-cores"] in line for line in process.stdout)
        until(lambda: len(results(store)) == 2, "the other cases are evaluated")
    finally:
        process.terminate()
        process.communicate(timeout=PATIENT)
    assert process.returncode == 130
    assert {record["case"]["name"] for record in results(store)} == {"a", "b"}


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
