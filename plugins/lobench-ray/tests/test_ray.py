"""A real Ray of two nodes on one machine; each node has a folder of its own for what is sent to it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tiny import content, make_run, make_suite, results, watch, watch_command, write_checkpoint

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("ray")]

ALL = ("--checkpoints", "all")
PATIENT = 300.0  # seconds; on a machine that does nothing else a test takes 10


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for another process; the only clock is how long a test may take."""
    deadline = time.monotonic() + PATIENT
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


class Node:
    """A `ray start --block` and all that it started."""

    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.log = folder / "ray.log"
        self.log.write_text("")
        ray = Path(sys.executable).with_name("ray")
        command = [str(ray), "start", "--num-cpus=1", "--object-store-memory=80000000", "--block", *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**environment, "TMPDIR": str(folder / "tmp")}, stdout=log, stderr=log
            )
        until(lambda: "Ray runtime started" in self.log.read_text() or self.process.poll() is not None, "a node")
        assert self.process.poll() is None, self.log.read_text()

    def signal(self, number: int) -> None:
        """Sends a signal to every process of the node, the workers' own among them."""
        for process in [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]:
            if process.is_running():
                process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def sent(self, kind: str) -> list[str]:
        return sorted(path.name for path in (self.folder / "tmp" / f"lobench-{os.getuid()}" / kind).iterdir())


class Cluster:
    """A head and a second node, one core each."""

    def __init__(self, folder: Path, mode: str = "token") -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"},
            "RAY_AUTH_MODE": mode,
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A frozen node is found out soon, or new slots are placed on it.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        self.nodes: dict[str, Node] = {}
        self.address = ""

    def start_head(self) -> None:
        # Short: names of sockets below it must not be longer than 107 characters.
        scratch = Path("/tmp") / f"lobench-ray-{self.port}"
        options = ("--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={scratch}")
        head = self.nodes["head"] = Node(self.folder / "head", self.environment, *options)
        found = re.search(r"--address='(\S+)'", head.log.read_text())
        assert found is not None
        self.address = found[1]

    def start_second(self) -> Node:
        options = (f"--address={self.address}",)
        self.nodes["second"] = Node(self.folder / "second", self.environment, *options)
        return self.nodes["second"]

    @property
    def second(self) -> Node:
        node = self.nodes.get("second")
        return node if node is not None and node.process.poll() is None else self.start_second()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def options(self) -> tuple[str, ...]:
        return (*ALL, "--executor", "ray", "--ray-address", self.address)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    two = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        two.start_head()
        two.start_second()
        yield two
    finally:
        two.kill()


GATE = '''
@configurable
class Gate(Bowl):
    """Says that it is being compiled, and waits until it may be."""
    def __init__(self, *, folder):
        super().__init__()
        self.folder = folder
    def init(self, key):
        open(os.path.join(self.folder, f"waits-{os.getpid()}"), "w").close()
        while not os.path.exists(os.path.join(self.folder, "go")):
            time.sleep(0.05)
        return super().init(key)
'''


class Gated:
    """A suite whose cases wait for a file, a run of one checkpoint, and what an undisturbed local watch records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        gin = "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 2\n"
        for name in "ab":
            gin += f"{name}/Case.task = @Gate()\n{name}/Gate.folder = '{folder}'\n"
        self.suite, self.run = make_suite(folder, gin=gin), make_run(folder, -3.0)
        with (self.suite / "tiny_tasks.py").open("a") as file:
            file.write(GATE)
        self.open()
        done = watch(self.run, self.suite, *ALL, "--once", "--workers", "1", "--store", str(folder / "local"))
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
def gated(all_gated: Gated) -> Gated:
    all_gated.shut()
    return all_gated


SHORT_SILENCE = """
import lobench_ray.executor
lobench_ray.executor.SILENCE_SECONDS = 6.0
from lobench.cli import main
main()
"""


def chief(gated: Gated, cluster: Cluster, store: Path, *options: str) -> subprocess.Popen[str]:
    arguments = watch_command(gated.run, gated.suite, *cluster.options(), *options)[3:]
    return subprocess.Popen(
        [sys.executable, "-c", SHORT_SILENCE, *arguments, "--store", str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=cluster.environment,
    )


def ending(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 0, output
    return output


def test_two_nodes_give_the_bits_of_the_local_pool_and_get_each_file_once(cluster: Cluster, tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0)
    local = watch(run, suite, *ALL, "--once", "--workers", "1", "--store", str(tmp_path / "local"))
    assert local.returncode == 0, local.stdout + local.stderr
    command = watch_command(run, suite, *cluster.options(), "--once", "--store", str(tmp_path / "ray"))
    done = subprocess.run(
        command, env=cluster.environment, capture_output=True, text=True, timeout=PATIENT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 cores on 2 nodes" in done.stdout
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    thetas = {f"{record['checkpoint']['sha256']}.npz" for record in results(tmp_path / "ray")}
    for node in cluster.nodes.values():
        assert set(node.sent("theta")) <= thetas
        assert len(node.sent("suites")) == 1
        assert node.sent("xla_cache")


def test_a_node_killed_in_the_middle_loses_nothing_and_records_nothing_twice(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--once")
    until(lambda: len(gated.waiting()) == 2, "both cases run")
    second.kill()
    gated.open()
    ending(process)
    assert content(tmp_path / "store") == gated.local


def test_a_frozen_nodes_leases_run_out_and_its_late_result_is_not_taken(
    cluster: Cluster, gated: Gated, tmp_path: Path
) -> None:
    second = cluster.second
    process = chief(gated, cluster, tmp_path / "store", "--until-step", "2")
    until(lambda: len(gated.waiting()) == 2, "both cases run")
    second.signal(signal.SIGSTOP)
    gated.open()
    try:
        until(lambda: len(results(tmp_path / "store")) == 2, "the other node runs what the frozen one held")
    finally:
        second.signal(signal.SIGCONT)
    write_checkpoint(gated.run / "theta_2.npz", -2.0)  # by the time that it is done, the late result has come
    ending(process)
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
    assert "lost Ray" in output
    assert "again" in output
    assert content(tmp_path / "store") == gated.local


def test_a_ray_that_asks_nobody_for_a_token_is_refused(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    cluster = Cluster(tmp_path / "open", mode="disabled")
    try:
        cluster.start_head()
        command = watch_command(run, suite, *cluster.options(), "--once", "--store", str(tmp_path / "store"))
        refused, taken = (
            subprocess.run(
                [*command, *more], env=cluster.environment, capture_output=True, text=True, timeout=PATIENT, check=False
            )
            for more in ((), ("--insecure",))
        )
    finally:
        cluster.kill()
    assert refused.returncode == 2
    assert "lets anybody in" in refused.stderr
    assert "--insecure" in refused.stderr
    assert taken.returncode == 0, taken.stdout + taken.stderr


def test_no_ray_where_one_was_named(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = watch(run, suite, *ALL, "--once", "--executor", "ray", "--ray-address", address)
    assert done.returncode == 2
    assert address in done.stderr
    assert "ray start --head" in done.stderr
