"""Hyperparameter grids of a baseline: VeLO's learning rates, AlgoPerf's AdamW space, a file of points, a search."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.errors import ConfigError
from lobench.core.search.search import SearchStrategy, search_seed
from lobench.core.search.space import Space
from lobench.core.trials import TrialHistory
from lobench.core.wording import convert_errors

__all__ = [
    "GRIDS",
    "BaselineGrid",
    "BaselineSearch",
    "algoperf_grid",
    "defaults_grid",
    "grid_from_file",
    "named_grid",
    "velo_grid",
]

_WAVE = 8  # points per wave of a search, trained in one program

# Trains points and returns their fitness.
TrainPoints = Callable[[Sequence[Mapping[str, float]]], Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineGrid:
    """Settings to try. The best point of each study wins, and the baseline is the mean of the studies' winners.

    Attributes:
      name: Part of the baseline file's name.
      points: Values by hyperparameter. All points have the same hyperparameters.
      studies: Index of the study of each point.
    """

    name: str
    points: tuple[Mapping[str, float], ...]
    studies: tuple[int, ...]

    @property
    def hyperparameter_names(self) -> Sequence[str]:
        """Names of the hyperparameters."""
        return list(self.points[0])

    def train(self, train_points: TrainPoints) -> BaselineGrid:
        """Trains all points at once and returns the grid."""
        train_points(self.points)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineSearch:
    """Search used in place of a grid, with the strategies, spaces and waves of experiments. It is a single study.

    Attributes:
      name: Part of the baseline file's name.
      space: Search space.
      strategy: Search strategy.
      num_trials: Number of trials. None: the strategy determines it.
    """

    name: str
    space: Space
    strategy: SearchStrategy
    num_trials: int | None = None

    @property
    def hyperparameter_names(self) -> Sequence[str]:
        """Names of the hyperparameters."""
        return [parameter.path for parameter in self.space.parameters]

    def train(self, train_points: TrainPoints) -> BaselineGrid:
        """Trains one wave after another, and returns a grid of all their points."""
        history = TrialHistory(
            self.strategy, self.space, seed=search_seed(0, self.name), width=_WAVE, num_trials=self.num_trials
        )
        while new_trials := history.advance():
            fitness_values = train_points([_numeric_parameters(trial.parameters) for trial in new_trials])
            for trial, value in zip(new_trials, fitness_values, strict=True):
                history.set_state(trial.number, "done", value)
        points = tuple(_numeric_parameters(trial.parameters) for trial in history.trials)
        return BaselineGrid(name=self.name, points=points, studies=(0,) * len(points))


def _numeric_parameters(values: Mapping[str, object]) -> dict[str, float]:
    """Returns a trial's parameters as numbers, because all points are trained in one program.

    Raises:
      ConfigError: A value is not a number.
    """
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    if numbers.keys() != values.keys() or any(isinstance(value, bool) for value in numbers.values()):
        raise ConfigError("a baseline is tuned over numbers", got=repr(dict(values)))
    return numbers


def velo_grid() -> BaselineGrid:
    """Returns the learning rates {1, 3} x 10^{-7..-1} and 1: fifteen points, one study.

    Source: Metz et al. 2022 (VeLO), the baselines of google/learned_optimization.
    """
    rates = [float(f"{factor}e{exponent}") for exponent in range(-7, 0) for factor in (1, 3)] + [1.0]
    return BaselineGrid(name="velo", points=tuple({"learning_rate": rate} for rate in rates), studies=(0,) * len(rates))


def defaults_grid(name: str = "defaults") -> BaselineGrid:
    """Returns a single point without hyperparameters, which leaves the optimizer at its defaults."""
    return BaselineGrid(name=name, points=({},), studies=(0,))


def algoperf_grid() -> BaselineGrid:
    """Returns AlgoPerf's space for AdamW: three studies of five quasi-random points.

    Learning rate log-uniform in [1e-4, 1e-2], 1 - beta1 in [.02, .5], weight decay in [5e-3, 1]. Each study is the
    start of a scrambled Halton sequence of its own seed.

    Source: Dahl et al. 2023 (AlgoPerf), external tuning.
    """
    from scipy.stats import qmc

    ranges = ((1e-4, 1e-2), (0.02, 0.5), (5e-3, 1.0))
    points, studies = [], []
    for study in range(3):
        for row in qmc.Halton(d=3, scramble=True, rng=study).random(5):
            rate, one_minus_b1, decay = (
                math.exp(math.log(low) + float(share) * math.log(high / low))
                for share, (low, high) in zip(row, ranges, strict=True)
            )
            # Six digits are readable, and give the same point on every machine.
            point = {"learning_rate": rate, "b1": 1 - one_minus_b1, "weight_decay": decay}
            points.append({name: float(f"{value:.6g}") for name, value in point.items()})
            studies.append(study)
    return BaselineGrid(name="algoperf", points=tuple(points), studies=tuple(studies))


def grid_from_file(path: Path) -> BaselineGrid:
    """Reads a JSON list of points (`[{"learning_rate": 0.1}, ...]`) as one study. The grid has the file's name.

    Raises:
      ConfigError: The file is not readable or not such a list, or its name is that of a built-in grid.
    """
    with convert_errors((OSError, ValueError), ConfigError, "cannot read the grid", where=path):
        points = json.loads(path.read_text(encoding="utf-8"))
    rows = points if isinstance(points, list) else []
    is_valid = bool(rows) and all(
        isinstance(point, dict)
        and point.keys() == rows[0].keys()
        and all(isinstance(value, int | float) for value in point.values())
        for point in rows
    )
    if not is_valid:
        raise ConfigError(
            "not a grid of hyperparameters",
            where=str(path),
            expected='a list of points with the same names, such as [{"learning_rate": 0.1}, {"learning_rate": 0.3}]',
        )
    if path.stem in GRIDS:
        raise ConfigError(
            "lobench has a grid of this name, and its baseline the name of the file that this would make",
            where=str(path),
            got=repr(path.stem),
            next_step="call the file otherwise",
        )
    return BaselineGrid(name=path.stem, points=tuple(rows), studies=(0,) * len(rows))


GRIDS: Mapping[str, Callable[[], BaselineGrid]] = {
    "velo": velo_grid,
    "algoperf": algoperf_grid,
    "defaults": defaults_grid,
}


def named_grid(name: str) -> BaselineGrid:
    """Returns the grid given to `--grid`: velo, algoperf, defaults, or the path of a file."""
    return GRIDS[name]() if name in GRIDS else grid_from_file(Path(name))
