"""The command line in this process: as `lobench` would do it, without a second for every start."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from programs import document

from lobench.cli import main

_STAYING = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix)  # this checkout may lie in the temp folder


@contextlib.contextmanager
def _suites_forgotten() -> Iterator[None]:
    """Modules of suites, and what they named in gin, go before and after: other tests have the same names."""
    path = sys.path[:]
    _forget(set())
    before = set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        _forget(before)


def _forget(kept: set[str]) -> None:
    gone = set()
    for name in set(sys.modules) - kept:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and file.startswith(tempfile.gettempdir()) and not file.startswith(_STAYING):
            del sys.modules[name]
            gone.add(name)
    if gone:
        import gin

        for selector, named in list(gin.config._REGISTRY.items()):
            if named.wrapped.__module__ in gone:
                gin.config._REGISTRY.pop(selector)


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def lobench(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Runs a command of `lobench` to its exit, in a folder; what it says to programs must keep its schema."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words = list(map(str, arguments))
    with (
        _suites_forgotten(),
        contextlib.chdir(cwd or "."),
        mock.patch.object(sys, "argv", ["lobench", *words]),
        mock.patch.dict(os.environ),  # a worker in this process sets some
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            gc.enable()  # commands that end with their process turn it off
    if "--format json" in " ".join(words) and out.getvalue() and "--help" not in words:
        document(out.getvalue())
    return Done(code, out.getvalue(), err.getvalue())
