"""User command (a meta-training, a script) that runs with a worker's cores and ends with the worker."""

from __future__ import annotations

import math
import os
import queue
import subprocess
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from lobench.core.result import Outcome
from lobench.core.wording import cause
from lobench.engine.group_files import open_to_group
from lobench.engine.workers.channel import ChiefEnd
from lobench.engine.workers.last_words import exit_text, log_tail, printable
from lobench.engine.workers.process_tree import kill_tree
from lobench.engine.workers.protocol import (
    TO_WORKER,
    Command,
    Configure,
    JobResult,
    Ready,
    StopCommand,
    ToWorker,
)

__all__ = ["CommandRunner", "serve"]


class CommandRunner:
    """Runs commands one after another, in this process's group, so that killing the group also ends the command."""

    def __init__(self) -> None:
        self._process_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lease = -1
        self._stopped_leases: set[int] = set()

    def run(self, command: Command, *, timeout_seconds: float = math.inf) -> JobResult:
        """Runs a command until it ends, is stopped, or has run for too long. Its output is appended to its log."""
        timer = threading.Timer(min(timeout_seconds, threading.TIMEOUT_MAX), self.stop, [command.lease])
        timer.daemon = True
        started_at = time.monotonic()
        timer.start()
        problem = self._run_process(command)
        timer.cancel()
        if problem and time.monotonic() - started_at >= timeout_seconds:
            text = f"ran past its deadline; got more than {timeout_seconds:g} s"
            return JobResult(lease=command.lease, outcome=Outcome.TIMEOUT, message=text)
        outcome = Outcome.FAILED if problem else Outcome.PASSED
        return JobResult(lease=command.lease, outcome=outcome, message=problem)

    def _run_process(self, command: Command) -> str:
        """Returns "" if the exit code is 0; else how the command ended, and the last line of its standard error."""
        try:
            Path(command.log).parent.mkdir(parents=True, exist_ok=True)
            with open(f"{command.log}.out", "ab") as output_log, open(f"{command.log}.err", "ab") as error_log:
                for suffix in ("out", "err"):
                    open_to_group(Path(f"{command.log}.{suffix}"))
                size_before = error_log.tell()
                with self._process_lock:
                    if command.lease in self._stopped_leases:
                        return "stopped before it began"
                    self._process = _start_process(command, output_log.fileno(), error_log.fileno())
                    self._lease = command.lease
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)  # keeps its id from being reused
                with self._process_lock:
                    self._lease, exit_code = -1, self._process.wait()
            if exit_code == 0:
                return ""
            text = log_tail(Path(f"{command.log}.err"), size_before)
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return exit_text(exit_code) + (f": {printable(lines[-1])}" if lines else "")
        except OSError as error:
            return f"it could not be run: {cause(error)}"

    def stop(self, lease: int) -> None:
        """Kills the command of a lease with its child processes, or prevents its start. Any thread may call it."""
        with self._process_lock:
            self._stopped_leases.add(lease)
            if self._process is not None and self._lease == lease:
                kill_tree(self._process.pid)


def _start_process(command: Command, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(command.words),
        cwd=command.folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """Returns the environment of a command: the worker's, with as many threads as the worker has cores."""
    cores = os.environ.get("NPROC", "1")
    return {"OMP_NUM_THREADS": cores, "PYTHONUNBUFFERED": "1", **os.environ}


def serve(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Runs a worker that has no suite and only runs commands; see `Configure.serve`."""
    chief = ChiefEnd(connection, TO_WORKER, owns_process=owns_process)
    runner = CommandRunner()
    pending_commands = queue.Queue[Command | None]()

    def handle(message: ToWorker | None) -> None:
        if isinstance(message, StopCommand):
            runner.stop(message.lease)
        else:
            pending_commands.put(message if isinstance(message, Command) else None)

    chief.send(Ready())
    chief.listen(handle)
    while (command := pending_commands.get()) is not None:
        chief.send(runner.run(command))
