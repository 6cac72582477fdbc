"""A SLURM of one node on this machine, from Debian's packages, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

__all__ = ["OneNode"]

_DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue", "scancel")


class OneNode:
    """Controller, node daemon and munge, which end with `stop`. Skips the test if they cannot be started."""

    def __init__(self, folder: Path) -> None:
        if missing := [name for name in _DAEMONS if shutil.which(name, path=_path()) is None]:
            pytest.skip(f"no {missing[0]}: apt-get install slurm-wlm munge")
        if os.geteuid() != 0:
            pytest.skip("SLURM's daemons of a test run as root")
        self._folder, self._daemons = folder, list[subprocess.Popen[bytes]]()
        for name in ("ctld", "d", "munge"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        key, munge_socket = folder / "munge" / "key", folder / "munge" / "socket"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        names = {"key-file": key, "socket": munge_socket, "pid-file": folder / "munge/pid"}
        names |= {"log-file": folder / "munge/log", "seed-file": folder / "munge/seed"}
        self._start("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in names.items()))
        self._until(munge_socket.exists, "munge")
        conf = folder / "slurm.conf"
        conf.write_text(self._configuration(munge_socket))
        self.environment = {"SLURM_CONF": str(conf), "PATH": _path()}
        self._start("slurmctld", "-D", "-f", str(conf), "-L", str(folder / "ctld.log"))
        self._start("slurmd", "-D", "-f", str(conf), "-L", str(folder / "d.log"))
        self._until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t"), "the node")

    def _configuration(self, munge_socket: Path) -> str:
        host, folder, (ctld, d) = socket.gethostname().partition(".")[0], self._folder, _free_ports()
        return f"""ClusterName=lobench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={d}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge_socket}
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/d
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ReturnToService=2
KillWait=2
OverTimeLimit=0
SchedulerParameters=sched_min_interval=1000,batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptMode=CANCEL
PreemptType=preempt/partition_prio
NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10
"""

    def _start(self, *command: str) -> None:
        environment = {**os.environ, "PATH": _path()}
        log = (self._folder / f"{command[0]}.out").open("wb")
        with log:
            self._daemons.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _until(self, condition: object, what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():  # type: ignore[operator]
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                self.stop()
                pytest.skip(f"SLURM cannot run here: {what} does not start; {self._last_words()}")
            time.sleep(0.05)

    def _last_words(self) -> str:
        texts = [path.read_text(errors="replace").strip() for path in self._folder.glob("*.out")]
        return "; ".join(text.splitlines()[-1] for text in texts if text)

    def run(self, *command: str) -> str:
        """Returns the output of one of SLURM's commands; "" if it fails."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    def jobs(self, *states: str) -> list[str]:
        """Returns the numbers of jobs in these states, RUNNING by default, in order."""
        text = self.run("squeue", "-h", f"--states={','.join(states or ('RUNNING',))}", "--format=%i")
        return sorted(text.split(), key=int)

    def end_jobs(self) -> None:
        """Cancels all jobs and waits for their processes, which would outlive the daemons."""
        self.run("scancel", "--state=PENDING")
        self.run("scancel", "--state=RUNNING")
        deadline = time.monotonic() + 30
        while self.jobs("RUNNING", "COMPLETING") and time.monotonic() < deadline:
            time.sleep(0.05)

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons = []


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _free_ports() -> list[int]:
    ends = [socket.socket() for _ in range(2)]
    for end in ends:
        end.bind(("127.0.0.1", 0))
    ports = [int(end.getsockname()[1]) for end in ends]
    for end in ends:
        end.close()
    return ports
