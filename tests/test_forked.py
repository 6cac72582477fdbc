"""Processes that tests fork: they end, print and see what processes that are started anew would."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from forked import python


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
    for value, shown in (("1", "True True\n"), ("0", "True False\n"), ("1", "True True\n")):
        assert python("-c", code, env={**os.environ, "JAX_ENABLE_X64": value}).stdout == shown
    without = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    code = "import sys, jax; print('optax' in sys.modules, jax.config.jax_compilation_cache_dir)"
    assert python("-c", code, env=without).stdout == "True None\n"
