"""Workers that misbehave, as the local pool sees them: real processes that serve what this file says."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny import is_alive

from lobench.engine.config.layers import Layers
from lobench.engine.workers import channel
from lobench.engine.workers import process as worker_process
from lobench.engine.workers.pool import LocalPool, Message, WorkerConfig

SERVE = """
import os, resource, signal, struct, sys, time
from lobench.extend import encode

def child():
    pid = os.fork()
    if not pid:
        time.sleep(600)
    return pid

def forks_and_dies(connection, arguments, layers, *, exit_at_eof):
    connection.send_bytes(encode("progress", child=child()))
    os._exit(7)

def forks_and_waits(connection, arguments, layers, *, exit_at_eof):
    connection.send_bytes(encode("progress", child=child()))
    time.sleep(600)

def freezes(connection, arguments, layers, *, exit_at_eof):
    message = encode("result", b"x" * 1_000_000)
    os.write(connection.fileno(), struct.pack("!i", len(message)) + message[:1000])
    os.kill(os.getpid(), signal.SIGSTOP)

def rubbish(connection, arguments, layers, *, exit_at_eof):
    connection.send_bytes(encode("progress", step=3))
    os.write(connection.fileno(), b"Epoch 1/10: loss 0.3\\n")
    time.sleep(600)

def lies(connection, arguments, layers, *, exit_at_eof):
    connection.send_bytes(encode("died", message="I did not"))
    time.sleep(600)

def closes(connection, arguments, layers, *, exit_at_eof):
    connection.close()
    time.sleep(600)

def never_reads(connection, arguments, layers, *, exit_at_eof):
    connection.send_bytes(encode("progress", step=3))
    time.sleep(600)

def needs_memory(connection, arguments, layers, *, exit_at_eof):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
    bytearray(1 << 33)

def crashes(connection, arguments, layers, *, exit_at_eof):
    import faulthandler
    faulthandler.enable()
    print("good/test_good.py ", end="", flush=True)
    os.abort()

def gives_up(connection, arguments, layers, *, exit_at_eof):
    print("E   ImportError: libjax.so: failed to map segment", flush=True)
    connection.send_bytes(encode("failed", messages=["the session ended"], see_log=True))

def aborts(connection, arguments, layers, *, exit_at_eof):
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
from lobench.engine.workers.pool import LocalPool, WorkerConfig
folder = Path(sys.argv[1])
pool = LocalPool(WorkerConfig(arguments=(), layers=Layers(), log_folder=folder / "logs",
    compilation_cache=folder / "cache", serve="misbehaving:forks_and_waits"))
pool.start(0, 1)
while not (said := pool.wait(1.0)):
    pass
print(said[0].values["child"], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

PATIENT = 600.0


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


def until(pool: LocalPool, kind: str) -> list[Message]:
    """Returns what was said up to the first message of a kind."""
    deadline, said = time.monotonic() + PATIENT, []
    while not any(message.kind == kind for message in said):
        assert time.monotonic() < deadline, said
        said += pool.wait(1.0)
    return said


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
    said = until(pool, "died")
    assert [message.kind for message in said] == ["progress", "died"]
    assert said[-1].values["message"] == "exited with status 7"
    assert ends(said[0].values["child"])


def test_a_killed_workers_children_end_with_it(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("forks_and_waits")
    pool.start(0, 1)
    child = until(pool, "progress")[0].values["child"]
    assert is_alive(child)
    pool.kill(0)
    assert ends(child) and pool.wait(0.0) == []


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
    assert "in the middle of a message" in until(pool, "died")[-1].values["message"]


def test_rubbish_in_the_pipe_is_a_death_in_one_line(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("rubbish")
    pool.start(0, 1)
    said = until(pool, "died")
    assert [(message.kind, message.values.get("step")) for message in said] == [("progress", 3), ("died", None)]
    text = said[-1].values["message"]
    assert "Epoch 1/10" in text and "\n" not in text
    assert pool.pids == {}


def test_a_worker_that_says_that_it_died_is_ended(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("lies")
    pool.start(0, 1)
    pid = pool.pids[0]
    assert [message.values["message"] for message in until(pool, "died")] == ["said 'died'"]
    assert ends(pid)


def test_a_worker_that_closes_its_pipe_and_lives_on_is_ended(
    pools: Callable[[str], LocalPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_CLOSING_SECONDS", 0.5)
    pool = pools("closes")
    pool.start(0, 1)
    pid = pool.pids[0]
    assert until(pool, "died")[-1].values["message"] == "closed its pipe"
    assert ends(pid)


def test_a_worker_that_never_reads_does_not_block_the_chief(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("never_reads")
    pool.start(0, 1)
    until(pool, "progress")
    for _ in range(10):
        pool.send(0, "job", theta="x" * 1_000_000)
    assert pool.wait(0.1) == []


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        ("needs_memory", "exited with status 1: MemoryError"),
        ("aborts", "killed by signal 6: terminate called after"),
        ("crashes", "killed by signal 6: Fatal Python error: Aborted in crashes"),
    ],
)
def test_a_death_says_why(pools: Callable[[str], LocalPool], serve: str, why: str) -> None:
    pool = pools(serve)
    pool.start(0, 1)
    assert until(pool, "died")[-1].values["message"].startswith(why)


def test_a_session_that_fails_says_what_its_log_says(pools: Callable[[str], LocalPool]) -> None:
    pool = pools("gives_up")
    pool.start(0, 1)
    (message,) = [message for message in until(pool, "failed") if message.kind == "failed"]
    assert message.values["messages"] == ["the session ended", "E   ImportError: libjax.so: failed to map segment"]


def test_a_worker_that_cannot_be_imported_says_so(pools: Callable[[str], LocalPool], tmp_path: Path) -> None:
    pool = pools("rubbish")
    (tmp_path / "misbehaving.py").unlink()
    (tmp_path / "logs" / "worker-0.log").write_text("ValueError: of an earlier worker\n")
    pool.start(0, 1)
    assert "No module named 'misbehaving'" in until(pool, "died")[-1].values["message"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_where_logs_cannot_be_written_workers_work_and_it_is_said_once(
    pools: Callable[[str], LocalPool], tmp_path: Path
) -> None:
    pool = pools("rubbish")
    for worker in (0, 1):
        (tmp_path / "logs" / f"worker-{worker}.log").symlink_to("/dev/full")
        pool.start(worker, 1)
    said: list[Message] = []
    while pool.pids:
        said += until(pool, "died")
    notices = [message.values["message"] for message in said if message.kind == "notice"]
    assert len(notices) == 1 and "No space left on device" in notices[0] and str(tmp_path / "logs") in notices[0]


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
    (message,) = pool.wait(0.0)
    assert message.kind == "died" and "Too many open files" in message.values["message"]
