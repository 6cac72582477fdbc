"""Processes that tests fork: they end, print and see what processes that are started anew would."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from forked import programs, python


def test_forked_process_has_the_arguments_folder_and_environment_that_were_given(tmp_path: Path) -> None:
    code = "import json, os, sys; print(json.dumps([sys.argv, os.getcwd(), os.environ['GIVEN'], __name__]))"
    done = python("-c", code, "one", cwd=tmp_path, env={**os.environ, "GIVEN": "two"})
    assert done.stdout == f'[["-c", "one"], "{tmp_path}", "two", "__main__"]\n', done.stderr
    (tmp_path / "beside.py").write_text("text = 'beside'\n")
    (tmp_path / "script.py").write_text("import sys, beside\nprint(beside.text, sys.argv[1:])\n")
    assert python(tmp_path / "script.py", "x").stdout == "beside ['x']\n"


@pytest.mark.parametrize(
    ("code", "returncode", "stderr"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('text')", 1, "text\n"),
        ("import os; os._exit(4)", 4, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import threading; threading.Timer(0.01, print, ['late']).start()", 0, ""),
    ],
)
def test_forked_process_ends_as_one_that_is_started_anew(code: str, returncode: int, stderr: str) -> None:
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (returncode, stderr)
    assert done.stdout == ("late\n" if "Timer" in code else "")


def test_forked_process_is_killed_at_its_timeout() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        python("-c", "import signal; signal.pause()", timeout=0.1)
    assert python("-c", "print('next')").stdout == "next\n"


def test_forked_process_has_the_imports_but_no_backend_of_jax() -> None:
    code = "import sys, jax; print('optax' in sys.modules, jax._src.xla_bridge.backends_are_initialized())"
    assert python("-c", code).stdout == "True False\n"


def test_forked_process_with_another_environment_of_jax_has_the_imports_made_with_it() -> None:
    code = "import sys, jax; print('optax' in sys.modules, jax.config.jax_enable_x64)"
    assert python("-c", code, env={**os.environ, "JAX_ENABLE_X64": "1"}).stdout == "True True\n"
    without = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    code = "import sys, jax; print('optax' in sys.modules, jax.config.jax_compilation_cache_dir)"
    assert python("-c", code, env=without).stdout == "True None\n"


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
    assert shell("lobench --version && pytest --version").stdout.startswith("lobench, version ")
    code = "import jax, sys; print(jax.config.jax_enable_x64)"
    assert shell(f"python -c '{code}'", JAX_ENABLE_X64="1").stdout == "True\n"
    waiting = "import signal; print(1, flush=True); signal.pause()"
    with subprocess.Popen([f"{programs()}/python", "-c", waiting], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        process.terminate()
    assert process.returncode == -signal.SIGTERM
