"""Logger of training curves that `lobench import` and `lobench run` read: for torch, JAX, numpy or any other loop.

It uses only Python's standard library. If lobench is not installed, copy this file next to your training script.

    from lobench.curves import Logger

    with Logger("curves.jsonl", method="adamw", case="cifar", seed=0) as log:
        for step in range(1001):
            ...
            if step % 100 == 0:
                log(step, {"val/loss": loss})
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from typing import Any

__all__ = ["Logger"]


class Logger:
    """Writer of JSON lines to a file, which several runs and processes may share.

    The lines of a call are written at once before it returns, so that concurrent readers see whole lines, and a
    killed training keeps its logged lines. A training that restarts, or resumes from an earlier step, logs steps
    again: the later lines of a step count (`lobench import --last-counts`; `lobench run` always).

    Args:
      path: Path of the file, in an existing folder.
      method: Name of the method, as used by `lobench compare`. Scripts run by `lobench run` may omit it.
      case: Name of the training problem, common to all methods that are compared on it.
      seed: Seed of the data and the initial parameters. Scripts run by `lobench run` may omit it.
    """

    def __init__(self, path: str | os.PathLike[str], *, method: str = "", case: str = "", seed: int | str = "") -> None:
        given = {"method": method, "case": case, "seed": seed}
        self._run = {name: value for name, value in given.items() if value != ""}
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        size = os.fstat(self._file).st_size
        self._is_cut = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"  # cut off by a killed program

    def __call__(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Logs values at a step.

        Args:
          step: Inner step.
          metrics: Values by the name of their metric (`val/loss`). A value may be a tensor with one element.

        Raises:
          OSError: A line could not be written completely, as on a full disk.
        """
        numbers = {name: float(value.item() if hasattr(value, "item") else value) for name, value in metrics.items()}
        rows = [{**self._run, "step": int(step), "metric": name, "value": number} for name, number in numbers.items()]
        lines = ("\n" * self._is_cut + "".join(json.dumps(row) + "\n" for row in rows)).encode()
        self._is_cut = os.write(self._file, lines) < len(lines)
        if self._is_cut:
            raise OSError(errno.ENOSPC, "the line is not written to its end: is the disk full?")

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
