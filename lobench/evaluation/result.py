"""Result of `evaluate(case)`: numpy arrays over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.core.case import Case
from lobench.core.metric import is_of_batch
from lobench.core.result import Curves
from lobench.core.wording import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["Result"]


class _Metrics(dict[str, np.ndarray]):
    """Values by metric. The error for an unknown metric lists the known ones."""

    def __missing__(self, metric: str) -> np.ndarray:
        __tracebackhide__ = True  # pytest shows the line of the test
        raise KeyError(f"no metric {metric!r}; there are {', '.join(sorted(self))}")


class Result:
    """Curves of one case over its seeds.

    Attributes:
      metrics: float32[num_seeds, num_evals] by `<split>/<metric>`; `batch/<metric>` is [num_seeds, num_logs].
      eval_steps: int[num_evals]: step 0, every `eval_every` steps, and the last step.
      log_steps: int[num_logs]: steps of `batch/<metric>`.
      diverged_at: int[num_seeds]: first inner step with a non-finite loss; -1 if all losses are finite.
      diverged: bool[num_seeds]: whether each seed diverged.
      seeds: Seed of each row.
      compile_seconds, wall_seconds: Seconds of compilation and of the program, summed over seed blocks.
      num_params: Number of inner parameters of the task.
      problems: One line for each metric of a plugin that failed, and for each binding that could not be recorded.

    >>> result = lobench.evaluate("quadratic.gin", case="small", optimizer="sgd(); sgd.learning_rate = 0.1")
    >>> result.metrics["train/loss"].shape, result.final("train/loss").shape
    ((2, 2), (2,))
    """

    def __init__(self, blocks: Sequence[Curves], case: Case | Callable[[], Case] | None = None) -> None:
        # A plugin's metric may have failed for one block.
        names = [name for name in blocks[0].metrics if all(name in block.metrics for block in blocks)]
        self._case = case
        self.blocks = tuple(blocks)
        values = {name: np.concatenate([np.asarray(block.metrics[name]) for block in blocks]) for name in names}
        self.metrics = _Metrics(values)
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
        """The bound case, built on first use. None if it was evaluated in another process."""
        if callable(self._case):
            self._case = self._case()
        return self._case

    @property
    def diverged(self) -> np.ndarray:
        return self.diverged_at >= 0

    def final(self, metric: str) -> np.ndarray:
        """Returns float32[num_seeds]: the value of a metric after the last step; NaN for a seed that diverged.

        Args:
          metric: Name of the metric with its split, such as `test/loss`.
        Raises:
          KeyError: The metric is unknown.
        """
        return self._metric(metric)[:, -1]

    def best(self, metric: str) -> np.ndarray:
        """Returns float64[num_seeds]: the best finite value of a metric; NaN for a seed without one.

        Args:
          metric: Name of the metric with its split, such as `test/loss`.
        Raises:
          KeyError: The metric is unknown.
          UnknownDirection: Neither the task nor the metric's plugin declares its direction.
        """
        self._metric(metric)
        return np.asarray([value for block in self.blocks for value in block.best(metric)])

    def mean(self, metric: str) -> np.ndarray:
        """Returns float64[num_seeds]: the mean of a metric over the evaluations; NaN for a seed that diverged.

        Args:
          metric: Name of the metric with its split, such as `test/loss`.
        Raises:
          KeyError: The metric is unknown.
        """
        self._metric(metric)
        return np.asarray([value for block in self.blocks for value in block.mean(metric)])

    def only(self, seed: int) -> Result:
        """Returns the result of a single seed.

        Raises:
          ValueError: The result does not contain the seed.
        """
        for block in self.blocks:
            if seed in block.seeds:
                row = block.seeds.index(seed)
                metrics: Any = {name: np.asarray(values)[row : row + 1] for name, values in block.metrics.items()}
                diverged_at = (block.diverged_at[row],)
                return Result([replace(block, seeds=(seed,), metrics=metrics, diverged_at=diverged_at)], self._case)
        raise ValueError(f"no seed {seed}; there are {', '.join(map(str, self.seeds))}")

    def curves_frame(self) -> pd.DataFrame:
        """Returns a row for each seed, metric and inner step: columns seed, metric, step, value (NaN: it diverged)."""
        import pandas as pd

        columns_of_metrics = [
            {
                "seed": np.repeat(self.seeds, len(steps)),
                "metric": name,
                "step": np.tile(steps, len(self.seeds)),
                "value": values.ravel(),
            }
            for name, values in sorted(self.metrics.items())
            for steps in [self._steps(name)]
        ]
        return pd.concat([pd.DataFrame(columns) for columns in columns_of_metrics], ignore_index=True)

    def plot(self, metric: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draws the mean over seeds, with a band from the lowest to the highest value.

        Args:
          metric: Metric to draw. None: the losses of train and test.
          ax: Axes to draw on. None: axes of a new figure.
        Returns:
          The axes.
        Raises:
          KeyError: The metric is unknown.
          LobenchError: matplotlib is not installed.
        """
        from lobench.drawing.axes import new_axes, plot
        from lobench.drawing.svg import all_line_styles, curve_of_seeds, inner_chart, needs_log_axis

        losses = [name for name in ("train/loss", "test/loss") if name in self.metrics]
        names = [metric] if metric is not None else losses or sorted(self.metrics)[:1]
        series = [
            curve_of_seeds(name, self._steps(name), self._metric(name), style)
            for name, style in zip(names, all_line_styles(), strict=False)
        ]
        ax = ax if ax is not None else new_axes(1)[0]
        y_label = names[0] if len(names) == 1 else "loss"
        plot(ax, replace(inner_chart("", y_label, series, log_y=needs_log_axis(series)), title=""))
        return ax

    def _steps(self, metric: str) -> np.ndarray:
        return self.log_steps if is_of_batch(metric) else self.eval_steps

    def _metric(self, metric: str) -> np.ndarray:
        if metric not in self.metrics and self.case and not self.case.eval_batches:
            names = ", ".join(sorted(self.metrics))
            raise KeyError(f"no metric {metric!r} (Case.eval_batches = 0 evaluates nothing); there are {names}")
        return self.metrics[metric]

    def __repr__(self) -> str:
        finals = ", ".join(f"{name}={np.mean(self.final(name)):.4g}" for name in sorted(self.metrics))
        return f"Result(seeds={list(self.seeds)}, diverged={int(self.diverged.sum())}, {finals})"

    def _repr_html_(self) -> str:
        """Returns each metric with its mean over seeds, its range and its curve as HTML, for notebooks."""
        from lobench.drawing.curves import sparkline
        from lobench.drawing.html import paragraph, table

        num_diverged = int(self.diverged.sum())
        summary = f"{counted(len(self.seeds), 'seed')}, {num_diverged} diverged, {self.num_params:,} parameters"
        seconds = f"{self.wall_seconds:.3g} s, and {self.compile_seconds:.3g} s of compiling"
        rows = []
        for name in sorted(self.metrics):
            finals = self.final(name)
            finite_finals = finals[np.isfinite(finals)]
            range_text = f"{finite_finals.min():.4g} to {finite_finals.max():.4g}" if len(finite_finals) else "-"
            mean_text = f"{finals.mean():.4g}" if len(finite_finals) == len(finals) else "diverged"
            rows.append([name, mean_text, range_text, sparkline(self.metrics[name].mean(axis=0))])
        lines = [paragraph(f"{summary}; {seconds}"), *(paragraph(problem) for problem in self.problems)]
        return "".join([*lines, table(["metric", "final mean", "over the seeds", "mean by step"], rows)])
