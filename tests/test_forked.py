"""Processes that tests fork: they end, print and see what processes that are started anew would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from forked import ANEW, TORCH, programs, python, started
from reference import ROOT
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite

from lobench.engine.config.user_code import code_fingerprint

SHOWN = texts_of("lobench")

FORKS = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")


INTERRUPT = """
import os, signal, threading
signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(5))
threading.Thread(target=signal.pthread_kill, args=(threading.main_thread().ident, signal.SIGUSR1)).start()
signal.alarm(60)
signal.pause()
"""


@pytest.mark.parametrize(
    ("code", "returncode", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('text')", 1, "text\n"),
        ("import os; os._exit(4)", 4, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import threading; threading.Timer(0.01, print, ['late']).start()", 0, ""),
        (INTERRUPT, 5, ""),
    ],
)
def test_forked_process_ends_as_one_that_is_started_anew(code: str, returncode: int, stderr: str) -> None:
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (returncode, stderr)
    assert done.stdout == ("late\n" if "Timer" in code else "")


@FORKS
def test_forked_process_leads_its_session_when_popen_returns() -> None:
    for _ in range(5):  # whoever started it may end its group at once, which must not be that of the tests
        with started("-c", "input()", start_new_session=True, stdin=subprocess.PIPE) as process:
            assert (os.getsid(process.pid), os.getpgid(process.pid)) == (process.pid, process.pid)
            process.communicate(b"\n")


def lobench(*words: str | Path, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lobench.cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload,no-any-return]


def is_forked(pid: int) -> bool:
    return "forked.py" in Path(f"/proc/{pid}/cmdline").read_text()


@FORKS
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="this process is no worker of xdist")
def test_worker_of_xdist_is_forked_and_has_forked_children() -> None:
    assert is_forked(os.getpid())
    assert python("-c", "import os; print(os.getppid())").stdout == f"{os.getpid()}\n"


@FORKS
def test_forked_process_has_the_modules_that_its_environment_asks_for() -> None:
    code = "import sys; print('torch' in sys.modules)"
    pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
    for env, has_torch in (({}, "False"), (TORCH, "True"), ({}, "False")):
        done = python("-c", code, env={**os.environ, **env})
        assert done.stdout.strip() == has_torch, done.stderr


@FORKS
def test_command_of_lobench_and_its_workers_are_forked_with_a_session_of_their_own(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path / "run", -2.0)
    with lobench("watch", run, "--suite", suite, "--workers", "1", "--verbose", start_new_session=True) as watch:
        try:
            assert watch.stdout is not None
            next(line for line in watch.stdout if "train/loss" in line)
            assert is_forked(watch.pid) and os.getsid(watch.pid) == watch.pid and watch.poll() is None
            children = [child.pid for child in psutil.Process(watch.pid).children()]
            assert any(is_forked(pid) and os.getpgid(pid) == pid for pid in children), "its worker leads a group"
        finally:
            os.killpg(watch.pid, signal.SIGTERM)
        watch.communicate(timeout=60)


@FORKS
def test_command_in_a_folder_with_a_module_of_another_name_is_forked_and_others_are_not(tmp_path: Path) -> None:
    def forked() -> bool:
        with lobench("--version", cwd=tmp_path, stdin=subprocess.PIPE) as process:
            return bool(process.is_forked)  # type: ignore[attr-defined]

    (tmp_path / "mine.py").touch()
    assert forked()
    with lobench("--version", env={**os.environ, **ANEW}) as anew:
        assert not anew.is_forked  # type: ignore[attr-defined]
    (tmp_path / "numpy.py").touch()
    assert not forked(), "its numpy is this file"


@FORKS
def test_programs_of_a_shell_are_forked_with_its_input_output_and_codes(tmp_path: Path) -> None:
    def shell(script: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": f"{programs()}:{os.environ['PATH']}", **more}
        command = ["bash", "-c", script]
        return subprocess.run(command, env=env, cwd=tmp_path, input="given\n", capture_output=True, text=True)

    (tmp_path / "script.py").write_text("import sys\nprint(sys.stdin.read(), sys.argv[1:], 'optax' in sys.modules)\n")
    assert shell("python script.py 'a b'").stdout == "given\n ['a b'] True\n"
    assert shell("python -u -c 'import sys; print(sys.modules.get(\"optax\"))'").stdout == "None\n"
    ended = shell(
        "python -c 'import sys; sys.exit(3)'; echo $?; python -c 'import os; os.kill(os.getpid(), 9)'; echo $?"
    )
    assert ended.stdout == f"3\n{128 + signal.SIGKILL}\n"
    assert shell("python -c 'import sys; sys.stdout.reconfigure(errors=\"replace\"); print(1)' | cat").stdout == "1\n"
    assert shell("lobench --version && pytest --version").stdout.startswith(SHOWN["lobench-version"])
    code = "import jax, sys; print(jax.config.jax_enable_x64)"
    assert shell(f"python -c '{code}'", JAX_ENABLE_X64="1").stdout == "True\n"
    assert shell("python script.py", PYTHONHASHSEED="1").stdout.endswith("False\n"), "another server imports with it"
    waiting = "import signal; print(1, flush=True); signal.pause()"
    with subprocess.Popen([f"{programs()}/python", "-c", waiting], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        process.terminate()
    assert process.returncode == -signal.SIGTERM


def test_code_of_a_suite_of_this_checkout_has_no_tests() -> None:
    """Each worker parses that code: what the conftest.py beside the suites reaches."""
    files = code_fingerprint([ROOT / "conftest.py"]).files
    assert not [file for file in files if Path(file).name.startswith("test_")]
