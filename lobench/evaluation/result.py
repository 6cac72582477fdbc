"""What `evaluate(case)` returns: numpy arrays over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lobench.core.case import Case
from lobench.core.result import Curves

__all__ = ["Result"]


class Result:
    """Curves of one case over its seeds.

    Attributes:
      metrics: float32[num_seeds, num_evals] by `<split>/<metric>`; `batch/<metric>` is [num_seeds, num_logs].
      eval_steps: int[num_evals]: 0, every `eval_every`, the last step.
      log_steps: int[num_logs]: the steps of `batch/<metric>`.
      diverged_at: int[num_seeds]: first inner step with a non-finite loss, -1 where there was none.
      diverged: bool[num_seeds].
      seeds: The seeds, in the order of the rows.
      compile_seconds, wall_seconds: Summed over the seed blocks.
      num_params: Inner parameters of the task.
      problems: A line for each plugin's metric that failed, and for each binding that could not be made.
    """

    def __init__(self, blocks: Sequence[Curves], case: Case | Callable[[], Case] | None = None) -> None:
        # A plugin's metric may have failed for one block.
        names = [name for name in blocks[0].metrics if all(name in block.metrics for block in blocks)]
        self._case = case
        self.blocks = tuple(blocks)
        self.metrics = {name: np.concatenate([np.asarray(block.metrics[name]) for block in blocks]) for name in names}
        self.eval_steps = np.asarray(blocks[0].eval_steps)
        self.log_steps = np.asarray(blocks[0].log_steps)
        self.diverged_at = np.concatenate([np.asarray(block.diverged_at) for block in blocks])
        self.seeds = tuple(seed for block in blocks for seed in block.seeds)
        self.compile_seconds = sum(block.compile_seconds for block in blocks)
        self.wall_seconds = sum(block.wall_seconds for block in blocks)
        self.num_params = blocks[0].num_params
        self.problems = tuple(dict.fromkeys(problem for block in blocks for problem in block.problems))

    @property
    def case(self) -> Case | None:
        """The case as bound, when it is asked for; None where it was evaluated in another process."""
        if callable(self._case):
            self._case = self._case()
        return self._case

    @property
    def diverged(self) -> np.ndarray:
        return self.diverged_at >= 0

    def final(self, metric: str) -> np.ndarray:
        """Returns float32[num_seeds]: the value after the last step; NaN for a seed that diverged."""
        return self._metric(metric)[:, -1]

    def best(self, metric: str) -> np.ndarray:
        """Returns float64[num_seeds]: the best finite value; NaN for none.

        Raises:
          UnknownDirection: neither the task nor the metric's plugin declares which way it is better.
        """
        self._metric(metric)
        return np.asarray([value for block in self.blocks for value in block.best(metric)])

    def mean(self, metric: str) -> np.ndarray:
        """Returns float64[num_seeds]: the mean over the evaluations; NaN for a seed that diverged."""
        self._metric(metric)
        return np.asarray([value for block in self.blocks for value in block.mean(metric)])

    def only(self, seed: int) -> Result:
        """Returns what one seed gave.

        Raises:
          ValueError: there is no such seed.
        """
        for block in self.blocks:
            if seed in block.seeds:
                row = block.seeds.index(seed)
                metrics: Any = {name: np.asarray(values)[row : row + 1] for name, values in block.metrics.items()}
                diverged_at = (block.diverged_at[row],)
                return Result([replace(block, seeds=(seed,), metrics=metrics, diverged_at=diverged_at)], self._case)
        raise ValueError(f"no seed {seed}; there are {', '.join(map(str, self.seeds))}")

    def _metric(self, metric: str) -> np.ndarray:
        if metric not in self.metrics:
            why = " (Case.eval_batches = 0 evaluates nothing)" if self.case and not self.case.eval_batches else ""
            raise KeyError(f"no metric {metric!r}{why}; there are {', '.join(sorted(self.metrics))}")
        return self.metrics[metric]

    def __repr__(self) -> str:
        finals = ", ".join(f"{name}={np.mean(self.final(name)):.4g}" for name in sorted(self.metrics))
        return f"Result(seeds={list(self.seeds)}, diverged={int(self.diverged.sum())}, {finals})"
