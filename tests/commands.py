"""The command line in this process: as `lobench` would do it, without a second for every start, and traceless."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from left_behind import traceless
from programs import document

from lobench.cli import main


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
        traceless(),
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
