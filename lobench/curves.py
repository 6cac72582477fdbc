"""Logger of training curves that `lobench import` reads: for loops in torch, JAX, numpy or anything else.

It needs Python's own library alone: where lobench is not installed, copy this file beside your training.

    from lobench.curves import Logger

    with Logger("curves.jsonl", method="adamw", case="cifar", seed=0) as log:
        for step in range(1001):
            ...
            if step % 100 == 0:
                log(step, {"val/loss": loss})
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

__all__ = ["Logger"]


class Logger:
    """Appends JSON lines to a file, which several runs and processes may share.

    The lines of a call are written at once and are there when it returns: who reads meanwhile sees whole lines, and a
    training that is killed keeps what it logged. One that is resumed from an earlier step logs again what it repeats;
    `lobench import --last-counts` takes the later lines.

    Args:
      path: The file, in a folder that is there.
      method: Whose curve it is; `lobench compare` takes this name.
      case: What is trained: one name for all methods that are compared on it.
      seed: Of the data and the initial parameters.
    """

    def __init__(self, path: str | os.PathLike[str], *, method: str, case: str, seed: int | str) -> None:
        self._run = {"method": method, "case": case, "seed": seed}
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def __call__(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Logs values at a step, by the name of their metric (`val/loss`); a tensor of one number is that number."""
        numbers = {name: float(value.item() if hasattr(value, "item") else value) for name, value in metrics.items()}
        rows = [{**self._run, "step": int(step), "metric": name, "value": number} for name, number in numbers.items()]
        os.write(self._file, "".join(json.dumps(row) + "\n" for row in rows).encode())

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
