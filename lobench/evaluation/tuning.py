"""Tunes a baseline on a case: the whole grid of hyperparameters in one compiled program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gin.config as gin_state
import jax
import jax.numpy as jnp
import numpy as np

from lobench.analysis.baseline_file import BaselineCase, GridPoint
from lobench.analysis.grids import Grid, Searched, untuned
from lobench.analysis.own_scale import own_scale
from lobench.analysis.score_scale import scores
from lobench.core.case import Case, CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.headline import headline
from lobench.core.metric import Direction
from lobench.core.result import Curves
from lobench.engine.config.binding import complete_selector
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.evaluation.runner import claim_for, wrong_threads
from lobench.inner.adapters import Stepper, as_stepper, as_task
from lobench.inner.optimizer import PyTree
from lobench.inner.parallel_sessions import num_updates
from lobench.inner.train import Program

__all__ = ["run_points", "step_zero", "tune"]

_EVAL_EVERY = 10  # VeLO's protocol
_EMA = 0.95
_CURVE_POINTS = 100  # up to the case's own budget, and as many again beyond it
_ENVELOPE_POINTS = 512
_FINDS_ITS_RATE = ("optax.lbfgs",)  # a factor before a line search changes only where the search begins


def tune(
    spec: CaseSpec,
    layers: Layers,
    optimizer: str,
    grid: Grid | Searched,
    *,
    num_seeds: int,
    horizon_factor: int,
) -> BaselineCase:
    """Trains every point of the grid on the case, seeds 0 .. num_seeds-1, and keeps what comparisons need.

    The points of a grid are one program, and so are those of a search's wave.

    Args:
      optimizer: Name of a gin configurable that returns an optax transformation and takes the grid's names. One
        without a learning rate is trained as it is where a grid varies the rate alone.
      horizon_factor: How many times the case's own budget it trains, so that a faster optimizer can be measured.
    Raises:
      ConfigError: no such optimizer, or it lacks a parameter of the grid; the case does not bind.
      LobenchError: the task or the optimizer fails.
    """
    bound, grid = _bound(spec, layers), _suited(grid, optimizer)
    budget = bound.case.num_inner_steps
    case = dataclasses.replace(
        bound.case, num_inner_steps=budget * horizon_factor, eval_every=_divisor(budget), log_every=0
    )
    curves: list[Curves] = []

    def run(points: Sequence[Mapping[str, float]]) -> list[float]:
        found = _run(spec, case, optimizer, grid, points, num_seeds)
        curves.extend(found)
        return [_worth(one, budget // case.eval_every) for one in found]

    return _summary(bound, case.eval_every, horizon_factor, grid.tried(run), curves)


def _worth(curves: Curves, at: int) -> float:
    """Returns what a search knows of a point: the mean score of `train/loss` at the budget, on the case's own scale."""
    losses = np.asarray(curves.metrics["train/loss"], np.float64)
    scale = own_scale("train/loss", Direction.MIN, losses[:, 0])
    found = scores(losses[:, at], scale, starts=losses[:, 0])
    return float(found.mean()) if scale.is_usable else -float(losses[:, at].mean())


def run_points(spec: CaseSpec, layers: Layers, optimizer: str, grid: Grid, *, num_seeds: int) -> list[Curves]:
    """Returns the curves of every point of a grid on a case as it is, seeds 0 .. num_seeds-1.

    Raises:
      As `tune`.
    """
    return _run(spec, _bound(spec, layers).case, optimizer, grid, grid.points, num_seeds)


def step_zero(
    spec: CaseSpec, layers: Layers, optimizer: str, point: Mapping[str, float], *, num_seeds: int
) -> dict[str, tuple[float, ...]]:
    """Returns by metric where each seed begins, of a point: one inner step is trained, and step 0 evaluated.

    Raises:
      As `tune`.
    """
    bound = _bound(spec, layers)
    case = dataclasses.replace(bound.case, num_inner_steps=1, eval_every=1, log_every=0)
    grid = Grid(name="step zero", points=(point,), studies=(0,))
    [curves] = _run(spec, case, optimizer, grid, grid.points, num_seeds)
    return _starts(curves)


def _bound(spec: CaseSpec, layers: Layers) -> BoundCase:
    """Binds a case for this process, whose backend is claimed first: the case's modules may make arrays."""
    is_ours = claim_for(spec, layers)
    bound = bind_case(spec, layers)
    if not is_ours:
        raise wrong_threads(bound.case.num_cpus, f"{spec.path}: {spec.name}")
    return bound


def _run(
    spec: CaseSpec,
    case: Case,
    optimizer: str,
    grid: Grid | Searched,
    points: Sequence[Mapping[str, float]],
    num_seeds: int,
) -> list[Curves]:
    """Trains points of the grid, seeds 0 .. num_seeds-1, in one program."""
    make = _factory(optimizer, grid)
    program = Program(
        case,
        as_task(case.task),
        lambda theta: _with_steady_dtypes(as_stepper(make(**theta), case.num_inner_steps * num_updates(case))),
        num_seeds,
    )
    block = SeedBlock(start=0, size=num_seeds)
    thetas = [{name: np.float32(value) for name, value in point.items()} for point in points]
    try:
        if thetas == [{}]:
            only = program.run({}, block)
            curves = [only] if only is not None else None
        else:
            curves = program.run_many(thetas, block)
    except LobenchError:
        raise
    except Exception as error:  # a task's or an optimizer's own
        where = f"{spec.path}: case {spec.name!r}"
        raise LobenchError(f"{optimizer!r} cannot be tuned on it", where=where, got=headline(error)) from error
    assert curves is not None, "nobody stops it"
    return curves


def _starts(curves: Curves) -> dict[str, tuple[float, ...]]:
    return {name: tuple(np.asarray(values)[:, 0].astype(float).tolist()) for name, values in curves.metrics.items()}


def _divisor(budget: int) -> int:
    """Returns the largest divisor of the budget up to ten: the case's own budget must be evaluated too."""
    return next(step for step in range(_EVAL_EVERY, 0, -1) if budget % step == 0)


def _suited(grid: Grid | Searched, optimizer: str) -> Grid | Searched:
    """Returns the grid, or the one point of an optimizer that has no learning rate, where only that would vary."""
    name = complete_selector(optimizer, "the optimizer to tune")
    has_rate = gin_state._might_have_parameter(gin_state._REGISTRY[name].wrapper, "learning_rate")
    varies_rate_alone = isinstance(grid, Grid) and list(grid.names) == ["learning_rate"]
    return untuned(grid.name) if varies_rate_alone and (not has_rate or name in _FINDS_ITS_RATE) else grid


def _factory(optimizer: str, grid: Grid | Searched) -> Callable[..., object]:
    found = gin_state._REGISTRY[complete_selector(optimizer, "the optimizer to tune")]
    missing = [name for name in grid.names if not gin_state._might_have_parameter(found.wrapper, name)]
    if missing:
        raise ConfigError(f"{optimizer!r} has no parameter {missing[0]!r}, which the grid {grid.name!r} varies")
    make: Callable[..., object] = found.wrapped
    return make


def _with_steady_dtypes(stepper: Stepper) -> Stepper:
    """Keeps the dtypes of an optimizer's state: a traced b1 is a float32, which makes averages of bfloat16 float32."""

    def steady(old: jax.Array, new: Any) -> jax.Array:
        both = jnp.issubdtype(old.dtype, jnp.floating) and jnp.issubdtype(jnp.result_type(new), jnp.floating)
        return jnp.asarray(new, old.dtype) if both else new

    def step(opt_state: PyTree, *rest: Any) -> tuple[PyTree, PyTree, PyTree]:
        new_state, params, model_state = stepper.step(opt_state, *rest)
        return jax.tree.map(steady, opt_state, new_state), params, model_state

    return dataclasses.replace(stepper, step=step)


def _summary(
    bound: BoundCase, eval_every: int, horizon_factor: int, grid: Grid, curves: Sequence[Curves]
) -> BaselineCase:
    budget = bound.case.num_inner_steps
    at = budget // eval_every
    losses = np.stack([np.asarray(found.metrics["train/loss"]) for found in curves])  # [points, seeds, evals]
    # A seed is NaN from its divergence on, so that a mean at the budget knows of what diverged before it.
    finals = losses[:, :, at].astype(np.float64).mean(axis=1)
    points = tuple(
        GridPoint(
            values=dict(values), study=study, final=float(finals[i]), num_diverged=int(np.isnan(losses[i, :, at]).sum())
        )
        for i, (values, study) in enumerate(zip(grid.points, grid.studies, strict=True))
    )
    best = tuple(_best(finals, grid.studies, study) for study in sorted(set(grid.studies)))
    chosen = curves[best[0]]
    kept = _kept(losses.shape[2], at)
    return BaselineCase(
        problem=bound.info.problem,
        num_inner_steps=budget,
        horizon_factor=horizon_factor,
        eval_every=eval_every,
        seeds=chosen.seeds,
        grid=points,
        best=best,
        untrained={name: float(np.asarray(values)[:, 0].mean()) for name, values in chosen.metrics.items()},
        starts=_starts(chosen),
        scale=bound.case.scale,
        minimum=bound.case.minimum,
        tuned={
            name: tuple(np.mean([np.asarray(curves[i].metrics[name])[:, at] for i in best], axis=0).tolist())
            for name in chosen.metrics
        },
        curve_steps=np.asarray(chosen.eval_steps)[kept],
        curves={name: np.asarray(values).mean(axis=0)[kept] for name, values in chosen.metrics.items()},
        envelope=_envelope(losses.mean(axis=1)),
    )


def _best(finals: np.ndarray, studies: Sequence[int], study: int) -> int:
    own = np.flatnonzero(np.asarray(studies) == study)  # where all of them diverged it is still one of them
    return int(own[np.argmin(np.where(np.isnan(finals[own]), np.inf, finals[own]))])


def _kept(num_evals: int, at: int) -> np.ndarray:
    """Picks evaluations: evenly up to the case's own budget, in growing steps beyond it."""
    own = np.linspace(0, at, _CURVE_POINTS + 1)
    beyond = np.geomspace(max(at, 1), num_evals - 1, _CURVE_POINTS + 1)
    return np.unique(np.rint(np.concatenate([own, [at], beyond, [num_evals - 1]])).astype(np.int64))


def _envelope(losses: np.ndarray) -> np.ndarray:
    """Returns float32[512] of VeLO's per-step oracle from seed means [points, evals].

    Per point the exponential average x <- .95 x + .05 l, the lowest over the points, interpolated, running minimum.
    """
    smoothed = np.empty_like(losses, dtype=np.float64)
    smoothed[:, 0] = losses[:, 0]
    for i in range(1, losses.shape[1]):
        smoothed[:, i] = _EMA * smoothed[:, i - 1] + (1 - _EMA) * losses[:, i]
    # fmin ignores the NaN of a point that diverged, as long as another point is left.
    lowest = np.fmin.reduce(smoothed, axis=0)
    steps = np.linspace(0, losses.shape[1] - 1, _ENVELOPE_POINTS)
    return np.fmin.accumulate(np.interp(steps, np.arange(losses.shape[1]), lowest)).astype(np.float32)
