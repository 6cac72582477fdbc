"""User command (a meta-training) run in a worker's slot, and ended with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lobench.core.wording import cause
from lobench.engine.workers.last_words import how_it_ended, printable, tail_of

__all__ = ["command_words", "run_command"]


def command_words(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a command's words with what stands for `{session}`, `{folder}` and `{gin}`; `python` is lobench's own."""
    found = list(words)
    for name, value in values.items():
        found = [word.replace(f"{{{name}}}", value) for word in found]
    return (sys.executable, *found[1:]) if found[0] == "python" else tuple(found)


def run_command(words: Sequence[str], *, folder: str, log: str) -> str:
    """Runs a command to its end, in this process's group: who ends the group ends the command.

    Args:
      folder: Where it runs.
      log: Path of the files that take what it prints, without `.out` and `.err`; what is there stays.
    Returns:
      "" where its exit code is 0; otherwise the last line of its standard error, or how it ended.
    """
    try:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with open(f"{log}.out", "ab") as out, open(f"{log}.err", "ab") as err:
            size_before = err.tell()
            code = subprocess.Popen(
                list(words), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=_environment()
            ).wait()
        if code == 0:
            return ""
        lines = [line.strip() for line in tail_of(Path(f"{log}.err"), size_before).splitlines() if line.strip()]
        return how_it_ended(code) + (f": {printable(lines[-1])}" if lines else "")
    except OSError as error:
        return f"it could not be run: {cause(error)}"


def _environment() -> dict[str, str]:
    """A worker ignores what a terminal sends, and has as many threads as its slot has cores: so does the command."""
    cores = os.environ.get("NPROC", "1")
    return {"OMP_NUM_THREADS": cores, "PYTHONUNBUFFERED": "1", **os.environ}
