"""Attacks on real processes: what files, visitors and requests may hold, and nobody is led astray by.

| attack | test |
| --- | --- |
| /dev/zero as a checkpoint, 20 times at once | tests/test_attacks.py::test_a_study_is_not_held_up[a device] |
| a silent terminal, so | tests/test_attacks.py::test_a_study_is_not_held_up[a terminal] |
| a pipe that nobody writes into | tests/test_attacks.py::test_a_study_is_not_held_up[a pipe] |
| a folder with such a pipe | tests/test_attacks.py::test_a_study_is_not_held_up[a folder with a pipe] |
| a folder that holds itself | tests/test_attacks.py::test_a_study_is_not_held_up[a folder with itself] |
| a file of a terabyte that takes no disk | tests/test_attacks.py::test_a_study_is_not_held_up[a sparse file] |
| the folder of the store itself | tests/test_attacks.py::test_a_study_is_not_held_up[the folder of the store] |
| all of the machine | tests/test_attacks.py::test_a_study_is_not_held_up[the root] |
| what the kernel says of a process | tests/test_attacks.py::test_a_study_is_not_held_up[a process] |
| a path with a NUL | tests/test_attacks.py::test_a_study_is_not_held_up[a NUL] |
| JSON of 100,000 brackets as a study | tests/test_attacks.py::test_json_of_any_depth_is_refused |
| SIGTERM amid copies without an end | tests/test_attacks.py::test_a_service_ends_amid_attacks |
| `import x` in config.gin, and x.py beside it | tests/test_attacks.py::test_what_lies_in_a_run_is_not_run[import x] |
| a package there | tests/test_attacks.py::test_what_lies_in_a_run_is_not_run[import inside.x] |
| a comment that names it | tests/test_attacks.py::test_what_lies_in_a_run_is_not_run[# Parameters for x.Opt:] |
| 30,000 foreign files in a run's folder | tests/test_attacks.py::test_a_checkpoint_among_foreign_files_is_found |
| an npz that declares gigabytes | tests/test_attacks.py::test_a_theta_beyond_its_file_is_refused[declared] |
| an npz that unpacks to far more than it is | tests/test_attacks.py::test_a_theta_beyond_its_file_is_refused[packed] |
| a table that unpacks to gigabytes | tests/test_attacks.py::test_a_file_is_refused_in_a_line[bomb.csv.gz] |
| a table without an end | tests/test_attacks.py::test_a_file_is_refused_in_a_line[endless.csv] |
| a pipe as a table | tests/test_attacks.py::test_a_file_is_refused_in_a_line[pipe.csv] |
| JSON lines of any depth | tests/test_attacks.py::test_a_file_is_refused_in_a_line[deep.jsonl] |
| a folder of logs that holds itself | tests/test_attacks.py::test_a_file_is_refused_in_a_line[loop] |
| Ctrl-C while a gzipped table is read | tests/tools/test_import_attacks.py::\
test_an_interrupt_while_a_gzipped_file_is_read_is_an_interrupt |
| names that a spreadsheet would compute | tests/test_attacks.py::test_no_name_is_a_formula_in_a_csv |
| 160 visitors who say half a request | tests/test_attacks.py::test_who_has_the_token_is_served[half a request] |
| visitors whose header has no end | tests/test_attacks.py::test_who_has_the_token_is_served[an endless header] |
| a page's address that leads out of it | tests/test_attacks.py::test_who_has_the_token_is_served[a way out] |
| a chief killed while its keeper is stopped | tests/engine/workers/test_keeper.py::\
test_a_stopped_keeper_ends_what_a_killed_chief_left |
| Ctrl-C amid jax's garbage | tests/pytest_plugin/test_interrupted_collection.py::\
test_only_the_interrupt_is_no_warning |
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from lobench_pbt.connection import Address, Connection
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.trial import Refusal, Refused
from report_store import make_store
from shown import texts_of
from stores import add
from tiny import ONE_CASE, make_run, make_suite

SHOWN = texts_of("lobench")

LIMIT_SECONDS = 100  # ten times what any attack takes on a quiet machine: who is led astray does not end at all


def lobench(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as a process of its own, which is killed at the limit."""
    command = [sys.executable, "-P", "-m", "lobench.cli", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)


@contextlib.contextmanager
def served(*words: str | Path, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a command that serves, with its first line; it is killed at the limit, and whoever waits for it fails."""
    command = [sys.executable, "-m", "lobench.cli", *map(str, words)]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    timer = threading.Timer(LIMIT_SECONDS, process.kill)
    timer.start()
    try:
        with process.stdout:
            yield process, process.stdout.readline()
    finally:
        timer.cancel()
        process.kill()
        process.wait(timeout=LIMIT_SECONDS)


STUDY = """
import attacked
Study.population = 64
Study.generations = 1
Study.n_steps = 3
Study.objectives = [@loss/Objective()]
loss/Objective.metric = "loss"
loss/Objective.direction = "min"
Study.parameters = [@rate/Real()]
rate/Real.path = "served.learning_rate"
rate/Real.low = 1e-4
rate/Real.high = 1e-1
rate/Real.scale = "log"
"""
TRAINER = "import gin\n@gin.configurable\ndef served(learning_rate=0.5):\n    return learning_rate\n"


@contextlib.contextmanager
def study(folder: Path, patience: float = LIMIT_SECONDS) -> Iterator[tuple[subprocess.Popen[str], Connection]]:
    (folder / "study.gin").write_text(STUDY)
    (folder / "attacked.py").write_text(TRAINER)
    with served("pbt", "serve", "study.gin", "--store", "store", cwd=folder) as (process, output):
        assert output, "it serves"
        address = Address.parse((folder / "store" / "address").read_text())
        yield process, Connection(address, patience=patience)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Connection]]:
    folder = tmp_path_factory.mktemp("study")
    with study(folder) as (_, connection):
        yield folder, connection


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _folder_with(path: Path, make: Callable[[Path], object]) -> None:
    path.mkdir()
    make(path / "inside")


ENDLESS: dict[str, Callable[[Path], object]] = {
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to(os.ttyname(os.openpty()[1])),
    "a pipe": os.mkfifo,
    "a folder with a pipe": lambda path: _folder_with(path, os.mkfifo),
    "a folder with itself": lambda path: _folder_with(path, lambda inside: inside.symlink_to(path)),
    "a sparse file": _sparse,
    "the folder of the store": lambda path: path.symlink_to(path.parent / "store"),
    "the root": lambda path: path.symlink_to("/"),
    "a process": lambda path: path.symlink_to("/proc/self"),
    "a NUL": lambda path: None,
}


def completion(connection: Connection, worker: str, uri: str) -> Callable[[], object]:
    trial = connection.call(connection.stub.Suggest, pbt_pb2.SuggestRequest(worker=worker)).trial
    request = pbt_pb2.CompleteRequest(
        trial=trial.id,
        attempt=trial.attempt,
        checkpoint=pbt_pb2.Artifact(uri=uri, sha256="00"),
        metrics={"loss": 1.0},
        n_steps=trial.n_steps,
    )
    return lambda: connection.call(connection.stub.Complete, request)


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_study_is_not_held_up(attacked: tuple[Path, Connection], kind: str, tmp_path: Path) -> None:
    folder, connection = attacked
    path = folder / kind
    ENDLESS[kind](path)
    complete = completion(connection, "one", f"{path}\0" if kind == "a NUL" else str(path))
    with ThreadPoolExecutor(20) as callers:
        calls = [callers.submit(complete) for _ in range(20)]
        for call in calls:
            error = call.exception(timeout=LIMIT_SECONDS)
            assert isinstance(error, Refused) and error.refusal is Refusal.INVALID, error
    assert connection.call(connection.stub.Suggest, pbt_pb2.SuggestRequest(worker="another")).trial.id
    assert not list((folder / "store" / "checkpoints").iterdir())


def test_json_of_any_depth_is_refused(attacked: tuple[Path, Connection]) -> None:
    _, connection = attacked  # of a process that is killed at LIMIT_SECONDS
    for text in ("[" * 100_000, '{"version": ' * 100_000):
        with pytest.raises(Refused, match=SHOWN["nested-too-deeply"]):
            connection.call(connection.stub.CreateStudy, pbt_pb2.CreateStudyRequest(config=text))


def test_a_service_ends_amid_attacks(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for place in range(3_000):
        (tmp_path / "many" / str(place)).touch()
    with study(tmp_path, patience=1.0) as (process, connection), ThreadPoolExecutor(20) as callers:
        complete = completion(connection, "one", str(tmp_path / "many"))
        calls = [callers.submit(complete) for _ in range(20)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT_SECONDS) == 0
        for call in calls:
            call.cancel()
        connection.close()


@pytest.mark.parametrize("text", ["import x", "import inside.x", "# Parameters for x.Opt:"])
def test_what_lies_in_a_run_is_not_run(text: str, tmp_path: Path) -> None:
    run, suite = make_run(tmp_path, -3.0), make_suite(tmp_path, ONE_CASE)
    (run / "inside").mkdir()
    for file in (run / "x.py", run / "inside" / "x.py"):
        file.write_text(f"open({str(tmp_path / 'it ran')!r}, 'w')\n")
    with (run / "config.gin").open("a") as config:
        config.write(f"\n{text}\n# None.\n")
    options = ("--suite", suite, "--once", "--executor", "inline")
    done = lobench("watch", ".", *options, cwd=run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "it ran").exists()


def test_a_checkpoint_among_foreign_files_is_found(tmp_path: Path) -> None:
    run, suite = make_run(tmp_path, -3.0), make_suite(tmp_path, ONE_CASE)
    for place in range(30_000):
        os.close(os.open(run / f"sample_{place}.txt", os.O_CREAT | os.O_WRONLY))
    done = lobench("watch", ".", "--suite", suite, "--once", "--executor", "inline", cwd=run)
    assert done.returncode == 0 and "done: 1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["declared", "packed"])
def test_a_theta_beyond_its_file_is_refused(how: str, tmp_path: Path) -> None:
    num_declared, length = (1 << 33, 64) if how == "declared" else (75 << 20, 300 << 20)
    method = zipfile.ZIP_STORED if how == "declared" else zipfile.ZIP_DEFLATED
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (num_declared,)})
    with zipfile.ZipFile(tmp_path / "theta.npz", "w", method) as archive:
        archive.writestr("w.npy", header.getvalue() + bytes(length))
    suite = make_suite(tmp_path, ONE_CASE)
    (tmp_path / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    done = lobench("compare", "theta.npz", "sgd()", "--suite", suite, cwd=tmp_path)
    assert done.returncode and SHOWN["too-large-for-a-theta"] in done.stderr, done.stdout + done.stderr


def _bomb(path: Path) -> None:
    path.write_bytes(gzip.compress(b"method,case,seed,step,metric,value\n") + gzip.compress(bytes(1 << 24)) * 40)


FILES: dict[str, Callable[[Path], object]] = {
    "bomb.csv.gz": _bomb,
    "endless.csv": lambda path: path.symlink_to("/dev/zero"),
    "pipe.csv": os.mkfifo,
    "deep.jsonl": lambda path: path.write_text('{"step": ' * 100_000 + "\n"),
    "loop": lambda path: _folder_with(path, lambda inside: inside.symlink_to(path)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    done = lobench("import", name, "--store", "store", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert name in done.stderr or "/dev/zero" in done.stderr, done
    assert not (tmp_path / "store").exists()


def test_no_name_is_a_formula_in_a_csv(tmp_path: Path) -> None:
    add(tmp_path / "store", 0, {"=1+1": {"train/loss": [-1.0, 2.0]}}, optimizer="@sum(A1)")
    output = lobench("results", "--store", "store", "--format", "csv", cwd=tmp_path).stdout
    assert "'=1+1" in output and "'@sum(A1)" in output and ",=1+1" not in output and ",-1.0" in output


VISITS = {
    "half a request": (160, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "),
    "an endless header": (8, b"GET / HTTP/1.1\r\nX-Long: " + b"x" * (8 << 20)),
    "a way out": (1, b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
}


def _answer(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as visitor:
        visitor.sendall(request)
        return b"".join(iter(lambda: visitor.recv(1 << 16), b""))


@pytest.mark.parametrize("visit", VISITS)
def test_who_has_the_token_is_served(visit: str, tmp_path: Path) -> None:
    store, (count, output) = make_store(tmp_path, num_checkpoints=1, num_cases=1), VISITS[visit]
    with served("view", store, "--port", "0", "--token", "sesame", cwd=tmp_path) as (_, line):
        port = int(re.findall(r":(\d+)", line)[0])
        with contextlib.ExitStack() as opened:
            for _ in range(count):
                visitor = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS))
                with contextlib.suppress(ConnectionError):
                    visitor.sendall(output)
            if visit == "a way out":
                assert b"root:" not in b"".join(iter(lambda: visitor.recv(1 << 16), b""))
            host = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer sesame\r\nConnection: close\r\n\r\n"
            assert _answer(port, f"GET /data.json HTTP/1.1\r\n{host}".encode()).startswith(b"HTTP/1.1 200")
