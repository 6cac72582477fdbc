"""What every reader of curves gives: points, by run and metric, in blocks of any order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.errors import UsageError
from lobench.core.metric import Direction

__all__ = ["Asked", "LoggedRun", "Points", "Run", "metric_name", "named_run", "named_runs", "step_numbers"]

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "val": "val", "valid": "val", "validation": "val",
    "eval": "val", "dev": "val",
}  # fmt: skip
_WITH_SPLIT = re.compile(rf"({'|'.join(_SPLITS)})[ _./-]+(.+)", re.IGNORECASE)
_WITH_SEED = re.compile(r"(?P<method>.+?)[-_/. ]seed[-_=: ]?(?P<seed>\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """One training: a method on a case with a seed, as a file calls them; "" where it does not say the case."""

    method: str
    case: str
    seed: str

    def __str__(self) -> str:
        return f"method {self.method!r}, case {self.case!r}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """A run as who logged it knows it.

    Attributes:
      id: Its own, which no other run has.
      name: What people call it; several may have one.
      seed: Its parameter `seed`, "" where it has none.
    """

    id: str
    name: str
    seed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Values of runs.

    Attributes:
      runs, metrics: What the numbers below stand for.
      run, metric: int[num_points], places among `runs` and `metrics`.
      step: int64[num_points], inner steps.
      value: float64[num_points]; NaN and infinities are what a diverged run logs.
      line: int64[num_points], lines of the file; 0: it has none.
    """

    runs: Sequence[Run]
    metrics: Sequence[str]
    run: NDArray[np.integer]
    metric: NDArray[np.integer]
    step: NDArray[np.int64]
    value: NDArray[np.float64]
    line: NDArray[np.int64]

    @classmethod
    def of_curve(cls, run: Run, metric: str, steps: ArrayLike, values: ArrayLike, lines: ArrayLike = 0) -> Points:
        """Returns the points of one curve."""
        step = np.asarray(steps, np.int64)
        none = np.zeros(len(step), np.int64)
        return cls(
            runs=(run,),
            metrics=(metric,),
            run=none,
            metric=none,
            step=step,
            value=np.asarray(values, np.float64),
            line=none + np.asarray(lines, np.int64),
        )

    @classmethod
    def of_curves(cls, run: Run, found: Mapping[str, Sequence[tuple[int, float]]]) -> Iterator[Points]:
        """Yields the points of a run's curves, by metric steps with their values."""
        for metric, points in found.items():
            steps, values = zip(*points, strict=True)
            yield cls.of_curve(run, metric, steps, values)

    def of_metrics(self, names: Collection[str]) -> Points:
        """Returns the points of some metrics only."""
        if all(name in names for name in self.metrics):
            return self
        kept = np.asarray([name in names for name in self.metrics])[self.metric]
        parts = {name: getattr(self, name)[kept] for name in ("run", "metric", "step", "value", "line")}
        return replace(self, **parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What who imports says of a file that the file does not say.

    Attributes:
      columns: Of a table: by `method`, `case`, `seed`, `step`, `metric` or `value` the column that holds it.
      method, case, seed: Of all rows, where the file has none; "": not said.
      metrics: What the file calls those that are taken, the primary one first, by lobench's names for them; empty: all.
      pattern: Of names of runs, with groups `method`, `case`, `seed`.
      directions: By lobench's name of a metric.
      targets: AlgoPerf's file of targets.
    """

    columns: dict[str, str] = field(default_factory=dict)
    method: str = ""
    case: str = ""
    seed: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    pattern: str = ""
    directions: dict[str, Direction] = field(default_factory=dict)
    targets: Path | None = None


def metric_name(name: str) -> str:
    """Returns lobench's name of a metric: `val_loss` is `val/loss`, `validation/acc` is `val/accuracy`."""
    found = _WITH_SPLIT.fullmatch(name.strip())
    if found is None:
        return name.strip().replace("batch/", "per_batch/")
    rest = found[2].strip()
    return f"{_SPLITS[found[1].lower()]}/{'accuracy' if rest.lower() == 'acc' else rest}"


def named_run(name: str, asked: Asked, *, case: str = "") -> Run:
    """Returns what the name of a run says: `adam_seed3` is seed 3 of adam, unless a pattern says otherwise.

    With `--method` the runs are its seeds.

    Raises:
      UsageError: the pattern does not fit, or is none.
    """
    try:
        found = re.fullmatch(asked.pattern, name) if asked.pattern else _WITH_SEED.fullmatch(name)
    except re.error as error:
        raise UsageError("--pattern is no regular expression", got=f"{asked.pattern!r}, {error}") from error
    if asked.pattern and found is None:
        raise UsageError("--pattern does not fit a run's name", got=f"{name!r}, {asked.pattern!r}")
    said = {key: value for key, value in (found.groupdict() if found else {}).items() if value}
    return Run(
        method=asked.method or said.get("method", name),
        case=said.get("case", case) if asked.pattern else asked.case or case,
        seed=said.get("seed", name if asked.method else asked.seed or "0"),
    )


def named_runs(known: Sequence[LoggedRun], asked: Asked, notes: list[str]) -> Iterator[tuple[str, Run]]:
    """Yields the ids of runs, and what each is to lobench.

    Runs of one name are one method's, and each is a seed: the one that its parameter `seed` says, or its id.

    Raises:
      UsageError: as `named_run`.
    """
    numbers = Counter(one.name for one in known)
    seeds = Counter((one.name, one.seed) for one in known)
    notes += [f"{count} runs are called {name!r}: they are its seeds" for name, count in numbers.items() if count > 1]
    for one in known:
        run = named_run(one.name, asked)
        if numbers[one.name] > 1:
            run = replace(run, seed=one.seed if one.seed and seeds[one.name, one.seed] == 1 else one.id)
        yield one.id, run


def step_numbers(values: NDArray[np.float64], lines: NDArray[np.int64], where: str, column: str) -> NDArray[np.int64]:
    """Returns steps as whole numbers.

    Raises:
      UsageError: one is none, or negative.
    """
    with np.errstate(invalid="ignore"):
        steps = np.where(np.isfinite(values), values, -1).astype(np.int64)
    odd = (steps < 0) | (steps != values)
    if odd.any():
        row = int(odd.argmax())
        place = f"{where}, line {lines[row]}" if lines[row] else where
        raise UsageError(f"{column} is no step", where=place, got=f"{values[row]:g}", expected="a whole number >= 0")
    return steps
