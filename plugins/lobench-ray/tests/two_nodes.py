"""A real Ray of two nodes on one machine; each node has a folder of its own for what is sent to it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from races import noisy_suite
from tiny import until, watch_command

PATIENT = 900.0  # seconds; on a machine that does nothing else a test takes 10

# `ray` as where only Ray's core is installed: importing its server takes twice as long as all else, and with grpc it
# starts another process, a server for remote clients.
RAY = """
import sys
sys.modules |= {'ray.serve': None, 'grpc': None}
from ray._private import services
from ray._private.node import Node
from ray.scripts.scripts import main
Node.start_api_server = lambda *_, **__: None  # the dashboard's process, which a head starts without a dashboard too
# In place of the two agents of each node, for runtime environments and metrics that nobody asks for: programs that end
# with the node. The node is given their ports, without a listener, or it would wait until the agents tell them. The
# Ray that a watch starts itself has its agents.
agents = {'dashboard_agent_command': 'cat', 'runtime_env_agent_command': 'cat', 'dashboard_agent_listen_port': '1'}
agents |= {'metrics-agent-port': '1', 'metrics_export_port': '1', 'runtime_env_agent_port': '1'}
start = getattr(services, 'start_ray_process', None)  # private: another Ray may have none, and starts agents
def start_without_agents(command, kind, *rest, **options):
    if kind == 'raylet':
        own = [word for word in command if word.partition('=')[0].removeprefix('--') not in agents]
        command = [*own, *(f'--{name}={value}' for name, value in agents.items())]
    return start(command, kind, *rest, **options)
if start is not None:
    services.start_ray_process = start_without_agents
main()
"""

# Task for `tiny_tasks.py` of `noisy_suite`: after this number of trainings, each that begins waits for a file "go".
HELD = """
@configurable
class Held(Noisy):
    def __init__(self, *, folder, num_starts, dim=3):
        super().__init__(dim=dim)
        self.folder, self.num_starts = folder, num_starts
    def init(self, key):
        def start(x):
            with open(os.path.join(self.folder, "starts"), "a") as file:
                file.write("x")
            if os.path.getsize(file.name) > self.num_starts:
                open(os.path.join(self.folder, f"waits-{os.getpid()}"), "w").close()
                while not os.path.exists(os.path.join(self.folder, "go")):
                    time.sleep(0.05)
            return x
        params = super().init(key)
        of = jax.ShapeDtypeStruct(params.shape, params.dtype)
        return jax.pure_callback(start, of, params, vmap_method="sequential")
"""


class Held:
    """A suite of one case whose evaluations stop in the middle of the work, see `HELD`."""

    def __init__(self, folder: Path, *, num_starts: int) -> None:
        self.folder = folder
        self.suite = noisy_suite(folder)
        with (self.suite / "tiny_tasks.py").open("a") as file:
            file.write(HELD)
        lines = (self.suite / "tiny.gin").read_text().splitlines(keepends=True)
        gin = "".join(line for line in lines if not line.startswith("b/")).replace("@Noisy", "@Held")
        self.gin = f"{gin}Held.folder = '{folder}'\nHeld.num_starts = {num_starts}\n"
        (self.suite / "tiny.gin").write_text(self.gin)
        self.release()

    def hold(self) -> None:
        for path in (self.folder / "go", self.folder / "starts", *self.folder.glob("waits-*")):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        (self.folder / "go").touch()

    def num_waiting(self) -> int:
        return len(list(self.folder.glob("waits-*")))


def signal_all(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


class Node:
    """A `ray start --block` and all that it started."""

    def __init__(self, folder: Path, environment: dict[str, str], *options: str) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.log = folder / "ray.log"
        self.log.write_text("")
        # Nobody reads what a log monitor sends: it took as long as all workers together.
        few = ("--num-cpus=1", "--object-store-memory=80000000", "--include-log-monitor=false")
        command = [sys.executable, "-c", RAY, "start", *few, "--block", *options]
        own = {**environment, "TMPDIR": str(folder / "tmp")}
        own.pop("JAX_COMPILATION_CACHE_DIR", None)  # a node has a cache of its own
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=own, stdout=log, stderr=log)
        until(lambda: "Ray runtime started" in self.log.read_text() or self.process.poll() is not None, "a node")
        assert self.process.poll() is None, self.log.read_text()

    def processes(self) -> list[psutil.Process]:
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def signal(self, number: int) -> None:
        """Sends a signal to every process of the node, the workers' own among them."""
        signal_all(self.processes(), number)

    def workers(self) -> list[psutil.Process]:
        """Returns the actors that hold slots, and lobench's own workers below them."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name().startswith("ray::Slot"):
                    found += [process, *process.children(recursive=True)]
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def sent(self, kind: str) -> list[str]:
        return sorted(path.name for path in (self.folder / "tmp" / f"lobench-{os.getuid()}").glob(f"{kind}/*"))


class Cluster:
    """A head and a second node, one core each."""

    def __init__(self, folder: Path, mode: str = "token") -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": mode,
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
            # The first driver is not to wait for a process that may have died at its start, until it is given up.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_pipe_based_agent_to_parent_health_check": "1",  # what stands for agents reads that pipe
            "RAY_worker_niceness": "0",  # at Ray's 15 what it starts hardly runs beside busy processes
            # A frozen node is found out soon, or new slots are placed on it.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        self.nodes: dict[str, Node] = {}
        self.address = ""
        # Short: names of sockets below it must not be longer than 107 characters.
        self.scratch = Path("/tmp") / f"lobench-ray-{self.port}"

    def start_head(self, *more: str) -> None:
        fewer = ("--include-dashboard=false", "--no-monitor")
        options = ("--head", f"--port={self.port}", *fewer, f"--temp-dir={self.scratch}")
        head = self.nodes["head"] = Node(self.folder / "head", self.environment, *options, *more)
        found = re.search(r"--address='(\S+)'", head.log.read_text())
        assert found is not None
        self.address = found[1]

    def start_second(self) -> Node:
        return self.start_node("second")

    def start_node(self, name: str, **environment: str) -> Node:
        node = Node(self.folder / name, self.environment | environment, f"--address={self.address}")
        self.nodes[name] = node
        return node

    @property
    def second(self) -> Node:
        node = self.nodes.get("second")
        return node if node is not None and node.process.poll() is None else self.start_second()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def join(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Gives this process what a member of the cluster has in its environment; returns the address."""
        for name, value in self.environment.items():
            if name.startswith("RAY_"):
                monkeypatch.setenv(name, value)
        return self.address

    def options(self) -> tuple[str, ...]:
        return ("--checkpoints", "all", "--executor", "ray", "--ray-address", self.address)

    def watch(self, run: Path, suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs a watch on the cluster to its end."""
        command = watch_command(run, suite, *self.options(), "--once", *options)
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENT, check=False
        )
