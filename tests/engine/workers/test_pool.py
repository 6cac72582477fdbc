"""Workers that misbehave, as the local pool sees them: real processes that serve what this file says."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from shown import texts_of
from tiny import is_alive

from lobench.core.codec import Message
from lobench.core.errors import LobenchError
from lobench.engine.config.layers import Layers
from lobench.engine.workers import channel
from lobench.engine.workers import process as worker_process
from lobench.engine.workers.pool import InlineExecutor, LocalPool, WorkerConfig
from lobench.engine.workers.protocol import FROM_WORKER, Exit, Failed, FromWorker, Progress
from lobench.hookspecs import ExecutorEvent, Notice, WorkerExited, WorkerMessage

SHOWN = texts_of("workers")

SERVE = """
import os, resource, signal, struct, sys, time
from pathlib import Path
from lobench.core.result import Outcome
from lobench.engine.workers.last_words import likely_cause
from lobench.engine.workers.protocol import Failed, Progress, JobResult

def child():
    pid = os.fork()
    if not pid:
        time.sleep(600)
    return pid

def forks_and_dies(connection, configure, *, owns_process):
    connection.send_bytes(Progress(lease=0, step=child()).to_bytes())
    os._exit(7)

def forks_and_waits(connection, configure, *, owns_process):
    connection.send_bytes(Progress(lease=0, step=child()).to_bytes())
    time.sleep(600)

def freezes(connection, configure, *, owns_process):
    message = JobResult(lease=0, outcome=Outcome.PASSED, payload=b"x" * 1_000_000).to_bytes()
    os.write(connection.fileno(), struct.pack("!i", len(message)) + message[:1000])
    os.kill(os.getpid(), signal.SIGSTOP)

def rubbish(connection, configure, *, owns_process):
    connection.send_bytes(Progress(lease=0, step=3).to_bytes())
    os.write(connection.fileno(), b"Epoch 1/10: loss 0.3\\n")
    time.sleep(600)

def closes(connection, configure, *, owns_process):
    connection.close()
    time.sleep(600)

def never_reads(connection, configure, *, owns_process):
    connection.send_bytes(Progress(lease=0, step=3).to_bytes())
    time.sleep(600)

def needs_memory(connection, configure, *, owns_process):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
    bytearray(1 << 33)

def crashes(connection, configure, *, owns_process):
    import faulthandler
    faulthandler.enable()
    print("good/test_good.py ", end="", flush=True)
    os.abort()

def gives_up(connection, configure, *, owns_process):
    print("E   ImportError: libjax.so: failed to map segment", flush=True)
    words = likely_cause(Path(configure.log), configure.log_start)
    connection.send_bytes(Failed(messages=("the session ended", words)).to_bytes())

def aborts(connection, configure, *, owns_process):
    import faulthandler
    faulthandler.enable()
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\\n")
    os.abort()
"""

# A chief that is killed while its worker's child runs.
CHIEF = """
import os, signal, sys
from pathlib import Path
from lobench.engine.config.layers import Layers
from lobench.engine.workers.pool import InlineExecutor, LocalPool, WorkerConfig
from lobench.engine.workers.protocol import Progress
folder = Path(sys.argv[1])
pool = LocalPool(WorkerConfig(arguments=(), layers=Layers(), log_folder=folder / "logs",
    compilation_cache=folder / "cache", serve="misbehaving:forks_and_waits"))
pool.start(0, 1)
while not (said := pool.wait(1.0)):
    pass
print(Progress.from_bytes(said[0].message).step, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

PATIENT = 600.0
M = TypeVar("M", bound=Message)


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], LocalPool]]:
    (tmp_path / "misbehaving.py").write_text(SERVE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made: list[LocalPool] = []

    def make(serve: str) -> LocalPool:
        made.append(
            LocalPool(
                WorkerConfig(
                    arguments=(),
                    layers=Layers(),
                    log_folder=tmp_path / "logs",
                    compilation_cache=tmp_path / "cache",
                    serve=f"misbehaving:{serve}",
                )
            )
        )
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def read(received: ExecutorEvent) -> FromWorker | ExecutorEvent:
    return FROM_WORKER.from_bytes(received.message) if isinstance(received, WorkerMessage) else received


def until(pool: LocalPool, kind: type[M]) -> tuple[M, list[FromWorker | ExecutorEvent]]:
    """Returns the first message of a kind, and all that was said up to it."""
    deadline = time.monotonic() + PATIENT
    output: list[FromWorker | ExecutorEvent] = []
    while not (found := [one for one in output if isinstance(one, kind)]):
        assert time.monotonic() < deadline, output
        output += map(read, pool.wait(1.0))
    return found[0], output


def ends(pid: int) -> bool:
    deadline = time.monotonic() + PATIENT
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def test_a_death_is_noticed_while_a_forked_child_holds_the_pipe_and_the_child_ends_too(
    pools: Callable[[str], LocalPool],
) -> None:
    pool = pools("forks_and_dies")
    pool.start(0, 1)
    died, output = until(pool, WorkerExited)
    assert isinstance(output[0], Progress) and output[1:] == [died]
    assert died.message == SHOWN["exited-with-status-7"]
    assert ends(output[0].step)


def test_what_workers_started_does_not_outlive_a_killed_chief(
    pools: Callable[[str], LocalPool], tmp_path: Path
) -> None:
    pools("forks_and_waits")  # for the module that it serves
    chief = subprocess.run([sys.executable, "-c", CHIEF, str(tmp_path)], capture_output=True, text=True, check=False)
    assert chief.returncode == -signal.SIGKILL, chief.stderr
    assert ends(int(chief.stdout))


def test_a_worker_frozen_in_the_middle_of_a_message_blocks_nobody_and_is_one_that_died(
    pools: Callable[[str], LocalPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "STALL_SECONDS", 1.0)
    pool = pools("freezes")
    pool.start(0, 1)
    assert SHOWN["in-the-middle-of-a"] in until(pool, WorkerExited)[0].message


def test_rubbish_in_the_pipe_is_a_death_in_one_line(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("rubbish")
    pool.start(0, 1)
    died, output = until(pool, WorkerExited)
    assert output == [Progress(lease=0, step=3), died]
    text = died.message
    assert "Epoch 1/10" in text and "\n" not in text
    assert pool.pids == {}


def test_a_worker_that_closes_its_pipe_and_lives_on_is_ended(
    pools: Callable[[str], LocalPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_CLOSING_SECONDS", 0.5)
    pool = pools("closes")
    pool.start(0, 1)
    pid = pool.pids[0]
    assert until(pool, WorkerExited)[0].message == SHOWN["closed-its-pipe"]
    assert ends(pid)


def test_a_worker_that_never_reads_does_not_block_the_chief(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("never_reads")
    pool.start(0, 1)
    until(pool, Progress)
    for _ in range(10):
        pool.send(0, Exit().to_bytes() + b"x" * 1_000_000)
    assert pool.wait(0.1) == []


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        ("needs_memory", SHOWN["exited-with-status-1-memoryerror"]),
        ("aborts", SHOWN["killed-by-signal-6-terminate"]),
        ("crashes", SHOWN["killed-by-signal-6-fatal"]),
    ],
)
def test_a_death_says_why(pools: Callable[[str], LocalPool], serve: str, why: str) -> None:
    pool = pools(serve)
    pool.start(0, 1)
    assert until(pool, WorkerExited)[0].message.startswith(why)


def test_a_session_that_fails_says_what_its_log_says(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("gives_up")
    pool.start(0, 1)
    failed, _ = until(pool, Failed)
    assert failed.messages == (SHOWN["session-ended"], SHOWN["e-importerror-libjax-so-failed"])


def test_a_worker_that_cannot_be_imported_says_so(pools: Callable[[str], LocalPool], tmp_path: Path) -> None:
    pool = pools("rubbish")
    (tmp_path / "misbehaving.py").unlink()
    (tmp_path / "logs" / "worker-0.log").write_text("ValueError: of an earlier worker\n")
    pool.start(0, 1)
    assert SHOWN["no-module-named-misbehaving"] in until(pool, WorkerExited)[0].message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_where_logs_cannot_be_written_workers_work_and_it_is_said_once(
    pools: Callable[[str], LocalPool], tmp_path: Path
) -> None:
    pool = pools("rubbish")
    for worker in (0, 1):
        (tmp_path / "logs" / f"worker-{worker}.log").symlink_to("/dev/full")
        pool.start(worker, 1)
    output: list[FromWorker | ExecutorEvent] = []
    while pool.pids:
        output += until(pool, WorkerExited)[1]
    notices = [one.message for one in output if isinstance(one, Notice)]
    assert len(notices) == 1 and SHOWN["no-space-left-on-device"] in notices[0] and str(tmp_path / "logs") in notices[0]


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_worker_that_cannot_be_started_died_and_says_why(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("rubbish")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.dup(0) for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, before[1]))
    try:
        pool.start(0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)
    (died,) = pool.wait(0.0)
    assert isinstance(died, WorkerExited) and SHOWN["too-many-open-files"] in died.message


def test_inline_worker_that_raises_is_an_error_of_its_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising.py").write_text("def serve(*_, **__):\n    raise OSError(116, 'Stale file handle')\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = WorkerConfig(
        arguments=(),
        layers=Layers(),
        log_folder=tmp_path / "logs",
        compilation_cache=tmp_path / "cache",
        serve="raising:serve",
    )
    executor = InlineExecutor(config)
    executor.start(0, 1)
    deadline = time.monotonic() + PATIENT
    with contextlib.closing(executor), pytest.raises(LobenchError, match=SHOWN["worker-has-ended-stale-file"]):
        while time.monotonic() < deadline:
            executor.wait(0.1)
