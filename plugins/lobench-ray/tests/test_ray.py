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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
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
    process = subprocess.Popen(
        [sys.executable, "-c", SHORT_SILENCE, *arguments, "--store", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=cluster.environment,
    )
    gated.chiefs.append(process)
    return process


def ending(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 0, output
    return output


def test_two_nodes_give_the_bits_of_the_local_pool_and_get_each_file_once(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0)
    local = watch(run, suite, *LOCAL, "--store", str(tmp_path / "local"))
    assert local.returncode == 0, local.stdout + local.stderr
    nodes = [cluster.nodes["head"], cluster.second]
    before = [set(node.sent("suites") + node.sent("theta")) for node in nodes]
    done = cluster.watch(run, suite, "--store", str(tmp_path / "ray"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert SHOWN["cores-on-2-nodes"] in done.stdout
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    thetas = {f"{record['checkpoint']['sha256']}.npz" for record in results(tmp_path / "ray")}
    for node, known in zip(nodes, before, strict=True):
        assert set(node.sent("theta")) - known <= thetas
        assert len(set(node.sent("suites")) - known) == 1
        assert node.sent("xla_cache")


def together(store: Path) -> dict[tuple[str, int], str]:
    """How each evaluation was computed, by case and outer step."""
    records = results(store)
    return {(r["case"]["name"], r["checkpoint"]["outer_step"]): r["provenance"]["together"] for r in records}


EVALUATOR = """
import json, pathlib, sys
checkpoint, seed, out = sys.argv[1:]
size = len((pathlib.Path(checkpoint) / "weights.bin").read_bytes())
pathlib.Path(out, "m.json").write_text(json.dumps({"valid/loss": size + int(seed) / 8}))
lines = [json.dumps({"item": f"q{place}", "correct": place < size}) + "\\n" for place in range(5)]
pathlib.Path(out, "answers.jsonl").write_text("".join(lines))
"""
TEST = """
import pytest

@pytest.mark.parametrize("width", [2, 3])
def test_size(checkpoint, record, width):
    record("valid/size", width * (checkpoint.path / "weights.bin").stat().st_size)
    assert checkpoint.outer_step < 3

def test_items(checkpoint, record):
    for name in ("a", "b", "c"):
        record("accuracy", checkpoint.outer_step / 4, item=name)
"""


QA = """
qa/Case.command = "python evaluate.py {checkpoint} {seed} {out}"
qa/Case.curves = "{out}/answers.jsonl"
qa/Case.primary_metric = "correct"
qa/Case.metric_directions = {"correct": "max"}
qa/Case.replicates = "items"
"""
OF_THETA = """
from lobench import Case, cases
from tiny_tasks import Bowl

@cases(bowl=Case(task=Bowl(), num_inner_steps=10, num_seeds=2, eval_every=5))
def test_bowl(case, evaluate):
    evaluate(case)

def test_answers(checkpoint, record):
    for name, leaf in checkpoint.theta().items():
        record("correct", leaf.size > 0, item=name)
"""


def recorded(store: Path) -> list[tuple[Any, ...]]:
    """Returns what must be equal of each evaluation, wherever it was computed."""
    found = [
        (
            one["case"]["name"],
            one["checkpoint"]["sha256"],
            one["seeds"],
            one["outcome"],
            one.get("items", []),
            one["curves"],
        )
        for one in results(store, "--curves")
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


def test_commands_and_tests_have_the_metrics_of_the_local_pool_and_of_pytest(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = tmp_path / "lm", tmp_path / "run"
    suite.mkdir()
    (suite / "evaluate.py").write_text(EVALUATOR)
    (suite / "test_lm.py").write_text(TEST)
    (suite / "lm.gin").write_text(
        'Case.num_seeds = 2\nCase.primary_metric = "valid/loss"\nx/Case.curves = "{out}/m.json"\n'
        'x/Case.command = "python evaluate.py {checkpoint} {seed} {out}"\n' + QA
    )
    for step in (1, 2, 3):
        folder = run / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "weights.bin").write_bytes(b"x" * step)
        (folder / "trainer_state.json").write_text("{}")
    local = watch(run, suite, *LOCAL, "--store", str(tmp_path / "local"))
    done = cluster.watch(run, suite, "--store", str(tmp_path / "ray"))
    assert (local.returncode, done.returncode) == (1, 1), local.stdout + done.stdout + done.stderr
    notebook(run, suite, tmp_path / "notebook")
    for step in (1, 2, 3):
        session_of_two(suite, run / f"checkpoint-{step}", tmp_path / "pytest")
    found = recorded(tmp_path / "ray")
    for name in ("local", "notebook", "pytest"):
        assert recorded(tmp_path / name) == found, name
    assert len(found) == 18 and [one[3] for one in found].count("failed") == 2
    assert {name: len(items) for name, *_, items, _ in found} == {
        "x": 0, "test_size[2]": 0, "test_size[3]": 0, "qa": 5, "test_items": 3,
    }  # fmt: skip


@pytest.mark.long
def test_suite_of_every_kind_of_case_has_equal_results_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, gin=""), make_run(tmp_path, -3.0)
    (suite / "evaluate.py").write_text(
        EVALUATOR.replace('pathlib.Path(checkpoint) / "weights.bin"', "pathlib.Path(checkpoint)")
    )
    (suite / "tiny.gin").rename(suite / "qa.gin").write_text(QA)
    (suite / "test_tiny.py").write_text(OF_THETA)
    local = watch(run, suite, *LOCAL, "--store", str(tmp_path / "local"))
    done = cluster.watch(run, suite, "--store", str(tmp_path / "ray"))
    assert (local.returncode, done.returncode) == (0, 0), local.stdout + done.stdout + done.stderr
    notebook(run, suite, tmp_path / "notebook")
    session_of_two(suite, next(run.glob("theta_*.npz")), tmp_path / "pytest")
    found = recorded(tmp_path / "ray")
    assert [one[0] for one in found] == ["bowl", "qa", "test_answers"]
    for name in ("local", "notebook", "pytest"):
        assert recorded(tmp_path / name) == found, name


def test_worker_of_a_node_imports_modules_of_the_chiefs_working_directory(cluster: Cluster, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "my_optimizer.py").write_text(OPTIMIZER)
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    params = ("--gin-param", "import my_optimizer", "--gin-param", "Case.learned_optimizer = @MySGD()")
    command = watch_command(run, suite, *cluster.options(), "--once", *params)
    done = subprocess.run(
        command, cwd=project, env=cluster.environment, capture_output=True, text=True, timeout=PATIENT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_waiting_checkpoints_are_computed_together_with_the_bits_of_the_local_pool(
    cluster: Cluster, tmp_path: Path
) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.5, -2.0, -1.5)
    group = ("--together", "4")
    local = watch(run, suite, *LOCAL, *group, "--store", str(tmp_path / "local"))
    assert local.returncode == 0, local.stdout + local.stderr
    assert cluster.second
    done = cluster.watch(run, suite, *group, "--store", str(tmp_path / "ray"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    groups = {(case, step): f"{step} of 4" for case in "ab" for step in (1, 2, 3, 4)}
    assert together(tmp_path / "ray") == together(tmp_path / "local") == groups


def test_a_ray_of_this_machine_alone_ends_with_its_watch_however_that_ends(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    command = watch_command(run, suite, *LOCAL, "--executor", "ray", "--ray-address", "local", "--store", str(store))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="lobench-ray-", dir="/tmp") as scratch:  # short, for its sockets' names
        environment |= {"RAY_TMPDIR": scratch, "TMPDIR": str(tmp_path)}

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


def test_a_node_with_other_versions_is_left_out(gated: Gated, tmp_path: Path) -> None:
    """Its numbers would be others; where there is no other node, nothing is computed."""
    older = tmp_path / "older" / "optax-0.0.1.dist-info"
    older.mkdir(parents=True)
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: optax\nVersion: 0.0.1\n")
    cluster = Cluster(tmp_path / "mixed")
    try:
        cluster.start_head()
        cluster.start_second(PYTHONPATH=str(older.parent))
        process = chief(gated, cluster, tmp_path / "store", "--once")
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        line = next(line for line in printed if "left out" in line)
        assert re.search(SHOWN["node-would-give-other-numbers"].format(name=NAME), line), line
        assert SHOWN["core-on-1-node"] in next(printed)
        gated.open()
        ending(process)
    finally:
        cluster.kill()
    assert content(tmp_path / "store") == gated.local
    try:
        cluster.start_head("--num-cpus=0")  # no node that cases could run on
        cluster.start_second(PYTHONPATH=str(older.parent))
        refused = cluster.watch(gated.run, gated.suite, "--store", str(tmp_path / "none"))
    finally:
        cluster.kill()
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "optax 0.0.1 for" in refused.stderr


@pytest.mark.parametrize("broken", ["package", "folder"])
def test_a_node_that_cannot_run_workers_is_left_out(
    cluster: Cluster, gated: Gated, tmp_path: Path, broken: str
) -> None:
    """It lacks what they are made of, or a folder of its own for them."""
    cluster.second.kill()
    (tmp_path / "lobench_ray").mkdir()
    (tmp_path / "lobench_ray/__init__.py").touch()  # and nothing else of it
    environment = {"PYTHONPATH": str(tmp_path)} if broken == "package" else {}
    second = cluster.start_second(**environment)
    folder = second.folder / "tmp" / f"lobench-{os.getuid()}"
    if broken == "folder":
        shutil.rmtree(folder, ignore_errors=True)
        folder.touch()
    process = chief(gated, cluster, tmp_path / "store", "--once")
    try:
        assert process.stdout is not None
        printed = iter(process.stdout.readline, "")
        line = next(line for line in printed if "left out" in line)
        assert ("lobench_ray.slot" if broken == "package" else str(folder)) in line
        gated.open()
        ending(process)
    finally:
        second.kill()
        if broken == "folder":
            folder.unlink()
    assert content(tmp_path / "store") == gated.local


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
