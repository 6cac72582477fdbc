"""The command lines of `lobench` and `pytest` in this process: without seconds for every start, and traceless."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from left_behind import traceless
from programs import document

from lobench.api.settings import WatchSettings
from lobench.cli import cli, main


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


# Commands that evaluate and take an executor.
_EVALUATING = ("watch", "run", "compare", "tune", "ablate", "best", "bisect", "falsify", "alarm", "evolve", "keep")


@contextlib.contextmanager
def _evaluating(**defaults: str) -> Iterator[None]:
    """Has commands evaluate with other defaults than their own."""
    settings = {"default_map": dict.fromkeys(_EVALUATING, defaults), **cli.context_settings}
    with mock.patch.dict(cli.context_settings, settings):  # a page's reader has defaults of their own
        yield


def functions_evaluate_here() -> contextlib.AbstractContextManager[object]:
    """Has functions of `lobench` that are given no executor evaluate in this process."""
    return mock.patch.dict(WatchSettings.__init__.__kwdefaults__, executor="inline")


def lobench(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Runs a command of `lobench` to its exit, in a folder; what it says to programs must keep its schema.

    On this machine it has one worker, unless it names others: by default one for each core would start, for a single
    case too. Executors on other machines refuse a command that names no number.
    """
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = list(map(str, arguments))
    is_here = not any(word.startswith(("ray", "slurm")) for word in words)
    with (
        traceless(),
        _evaluating(workers="1") if is_here else contextlib.nullcontext(),
        contextlib.chdir(cwd or "."),
        mock.patch.object(sys, "argv", ["lobench", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
    if "--format json" in " ".join(words) and out.getvalue() and "--help" not in words:
        document(out.getvalue())
    return Done(code, out.getvalue(), err.getvalue())


def lobench_here(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Runs a command as `lobench` does. It evaluates in this process, without two seconds for the start of a worker.

    Several workers, and those of `--executor local`, are processes.
    """
    words = list(map(str, arguments))
    is_here = "--workers" not in words or words[words.index("--workers") + 1] == "1"
    with _evaluating(workers="1", executor="inline") if is_here else contextlib.nullcontext():
        return lobench(*arguments, cwd=cwd)


# Of the outer session; what asks for it is in its environment.
_OUTER = (
    *("cacheprovider", "timeout", "faulthandler", "hypothesispytest", "rerunfailures", "randomly"),
    "unraisableexception",  # which looks for garbage in the whole process at the end of a session
)


def pytest_session(*arguments: str | Path, cwd: Path) -> Done:
    """Runs a session of pytest to its end, in a folder. Not with `-n`: workers of xdist need a process above them."""
    words = [*(f"-pno:{name}" for name in _OUTER), *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with mock.patch.dict(os.environ, inherited, clear=True):
        return in_process(lambda: int(pytest.main(words)), cwd)


def in_process(call: Callable[[], int], cwd: Path) -> Done:
    """Calls what returns an exit code, in a folder, as a process of its own would."""
    out, err = io.StringIO(), io.StringIO()
    with traceless(), contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call()
    return Done(code, out.getvalue(), err.getvalue())
