"""Reader of a page, who runs its commands and programs, in this process if possible.

Commands of lobench and pytest, programs and files of Python run in this process; bash runs the rest. A command that
serves until Ctrl-C is a process: its page is requested once, and then it is terminated.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from commands import Done, functions_evaluate_here, in_process, lobench, pytest_session
from forked import programs
from reference import ROOT

from lobench.cli import cli

__all__ = ["Reader", "environment"]

# What ends by Ctrl-C ends by itself, and evaluations are made here.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "watch": {"executor": "inline", "workers": "1", "once": True},
    "run": {"executor": "inline", "workers": "1"},
    "tune": {"executor": "inline", "workers": "1"},
    "compare": {"executor": "inline", "workers": "1"},
    "best": {"executor": "inline", "workers": "1"},
    "bisect": {"executor": "inline", "workers": "1"},
    "keep": {"executor": "inline", "workers": "1"},
    "ablate": {"executor": "inline", "workers": "1"},
}
_SERVE = {"lobench view": ["--port", "0"], "tensorboard --logdir": ["--port", "0"]}  # on a port that is free
_ONE_CORE = Path(__file__).parent / "one_core"
_SHELL = re.compile(r"[|&;<>$`*(){}]|^\w+=|\\")


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment of a page's processes: this Python's programs, and what the page has installed.

    They run as on a machine of one core, where `-n auto` needs no process beside the session.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    places = (_ONE_CORE, programs(), Path(sys.executable).parent, found["PATH"])
    found["PATH"] = ":".join(map(str, filter(None, places)))
    found["PYTHONPATH"] = str(folder / ".installed")
    found["PYTEST_XDIST_AUTO_NUM_WORKERS"] = "0"
    return found


class Reader:
    """Somebody in a folder, with a page's commands.

    Args:
      defaults: Of commands' options, where the page says nothing: `{"tune": {"sessions": 2}}`.
    """

    def __init__(self, folder: Path, defaults: Mapping[str, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._defaults = {name: {**DEFAULTS.get(name, {}), **defaults.get(name, {})} for name in {*DEFAULTS, *defaults}}
        self._names: dict[str, Any] = {"__name__": "__main__"}  # programs of a page are cells of one notebook

    def command(self, line: str) -> Done:
        """Runs a command to its end."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = []
        plain = not _SHELL.search(_unquoted(line))
        if plain and words[0] == "pip":
            return _installed(words)
        if served := next((name for name in _SERVE if plain and line.startswith(name)), None):
            return self._served([*words, *_SERVE[served]])
        if plain and words[0] == "lobench" and "--patch" not in words:  # a patch is bytes
            return self._lobench(words[1:])
        if plain and words[0] == "pytest" and ("-n" not in words or "-n auto" in line):
            with self._as_reader():
                return pytest_session(*("0" if word == "auto" else word for word in words[1:]), cwd=self._folder)
        if plain and words[0] == "python" and words[1].endswith(".py"):
            return self._script(words[1:])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self._folder, env=_with_inline(environment(self._folder)), capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def program(self, text: str, name: str) -> Done:
        """Runs a program as a cell of a notebook."""

        def cell() -> int:
            exec(compile(text, name, "exec"), self._names)
            return 0

        with self._as_reader(), functions_evaluate_here():
            return in_process(cell, self._folder)

    def _script(self, words: list[str]) -> Done:
        """Runs a file as Python's main module."""

        def main() -> int:
            try:
                runpy.run_path(words[0], run_name="__main__")
            except SystemExit as ending:
                return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
            return 0

        path = [str((self._folder / words[0]).parent), *sys.path]
        with self._as_reader(), mock.patch.object(sys, "argv", words), mock.patch.object(sys, "path", path):
            return in_process(main, self._folder)

    def _lobench(self, words: list[str]) -> Done:
        defaults = dict(self._defaults)
        if "--workers" in words:  # as many processes as the page says
            defaults = {name: {key: own[key] for key in own if key != "executor"} for name, own in defaults.items()}
        with mock.patch.dict(cli.context_settings, {"default_map": defaults}):
            return lobench(*words, cwd=self._folder)

    @contextlib.contextmanager
    def _as_reader(self) -> Iterator[None]:
        with (
            mock.patch.dict(os.environ, _with_inline(environment(self._folder))),
            mock.patch("lobench.api.settings.num_cores", return_value=1),  # so one worker, where a page says none
        ):
            yield

    def _served(self, words: list[str]) -> Done:
        with _started(words, self._folder) as process:
            output, address = "", None
            assert process.stdout is not None
            while address is None and (line := process.stdout.readline()):
                output += line
                address = re.search(r"http://(?:localhost|127\.0\.0\.1):\d+\S*", line)
            if address is None:
                return Done(process.wait() or 1, output, "")
            with urllib.request.urlopen(address[0]) as page:
                assert page.status == 200
            process.terminate()  # a job in the background, as this test may be, has no Ctrl-C
            output += process.stdout.read()
            return Done(0 if process.wait() in (0, 143, -signal.SIGTERM) else process.returncode, output, "")


def _with_inline(environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "LOBENCH_TESTS_EXECUTOR": "inline"}


@contextlib.contextmanager
def _started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _unquoted(line: str) -> str:
    """Returns a line without what stands in quotes, and without its comment."""
    return re.sub(r"(^|\s)#.*", "", re.sub(r"'[^']*'|\"[^\"$`]*\"", "", line))


def _installed(words: list[str]) -> Done:
    """Instead of installing: what pip would be given is there, and lobench has the extras that are named."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = [word for word in words[2:] if not word.startswith("-")]
    for name in given:
        path, _, extras = name.partition("[")
        if path != "lobench":
            assert (ROOT / path / "pyproject.toml").is_file(), f"{name} is not to be installed"
        assert all(extra in project["optional-dependencies"] for extra in extras.rstrip("]").split(",") if extra), name
    assert given
    return Done(0, "", "")
