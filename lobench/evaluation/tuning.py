"""Baseline tuning on a case: a grid of hyperparameters in one compiled program, the best point evaluated alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.analysis.scores.baseline_file import (
    BaselineCase,
    BaselineTraining,
    GridPoint,
    TunedCurves,
    training_code_id,
)
from lobench.analysis.scores.baseline_grids import BaselineGrid, BaselineSearch, defaults_grid
from lobench.analysis.scores.score_scale import fallback_scale, scores
from lobench.analysis.stats.speedup import envelope
from lobench.core.case import Case, CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.metric import Direction
from lobench.core.result import Curves
from lobench.core.wording import headline
from lobench.engine.config.arguments import OptimizerSettings
from lobench.engine.config.binding import complete_selector
from lobench.engine.config.bound import BoundCase, bind_case, integer_field_of
from lobench.engine.config.gin_state import CONFIGURABLES, might_have_parameter, names_in_keys
from lobench.engine.config.layers import Layers
from lobench.evaluation.programs import StepperMaker, program_of, programs_kept_for_user
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.runner import BlockRunner, claim_for, wrong_threads_error
from lobench.inner.adapters import Stepper, as_stepper, as_task
from lobench.inner.extra_inputs.task_side import facts_of
from lobench.inner.optimizer import PyTree
from lobench.inner.schedules.schedule import horizon_reads
from lobench.inner.task import TaskFamily
from lobench.inner.training.constants import split_constants
from lobench.inner.training.streams import key_of

__all__ = ["point_text", "reevaluate_baseline", "run_points", "tune"]

_MAX_EVAL_EVERY = 10  # VeLO's protocol
_NUM_CURVE_POINTS = 100  # up to the case's own budget, and as many again beyond it
_LINE_SEARCH_OPTIMIZERS = ("optax.lbfgs",)  # a factor before a line search changes only where the search begins


def tune(
    spec: CaseSpec,
    layers: Layers,
    optimizer: str,
    grid: BaselineGrid | BaselineSearch,
    *,
    num_seeds: int,
    horizon_factor: int,
) -> BaselineCase:
    """Trains every point of the grid on the case with seeds 0, ..., num_seeds-1, and returns the case's baseline.

    The points of a grid, or of a search's wave, are trained in one program. The best point is then evaluated alone,
    like any method, so that the scores 0 and 1 are defined by bits of an ordinary evaluation.

    Args:
      spec: Place of the case.
      layers: gin text bound before and after the case's own file.
      optimizer: Name of a gin configurable that returns an optax transformation and has the grid's parameters. If a
        grid varies only the learning rate, and the optimizer has none, it is trained unchanged.
      grid: Points, or a search for them.
      num_seeds: Number of seeds.
      horizon_factor: Length of the training as a multiple of the case's budget, so that faster optimizers can be
        measured. A case with phases, and an optimizer whose schedule runs over the budget, end with the budget.
    Raises:
      ConfigError: The optimizer is unknown, it lacks a parameter of the grid, or the case does not bind.
      LobenchError: The task or the optimizer fails.
    """
    grid = _grid_or_point(_bind(spec, layers, build=False), grid, optimizer)
    horizon_matters: list[bool] = []  # whether the optimizer depends on the length of the training
    curves: list[Curves] = []

    def train_and_score(points: Sequence[Mapping[str, float]]) -> list[float]:
        bound_case = _bind(spec, layers, _float_point_text(optimizer, points[0]))
        with _tuning_context(spec, optimizer):
            if not horizon_matters:
                horizon_matters.append(_depends_on_horizon(bound_case.case))
            horizon_factor_of_case = 1 if bound_case.phases or horizon_matters[0] else horizon_factor
            new_curves = _train_points(bound_case, optimizer, points, num_seeds, horizon_factor_of_case)
        curves.extend(new_curves)
        eval_index = new_curves[0].eval_steps.index(bound_case.case.num_inner_steps)
        return [_fitness(new_curve, eval_index) for new_curve in new_curves]

    tried_grid = grid.train(train_and_score)
    baseline_case = _baseline_of_grid(
        _bind(spec, layers, build=False), tried_grid, curves, depends_on_horizon=horizon_matters[0]
    )
    return _with_evaluations(baseline_case, _evaluate_best(spec, layers, optimizer, baseline_case))


def reevaluate_baseline(
    spec: CaseSpec, layers: Layers, optimizer: str, earlier_case: BaselineCase
) -> BaselineCase | None:
    """Returns a baseline from an older file, with its best points evaluated as in `tune`.

    Returns:
      None if the grid itself must be trained again, because it was trained in another way.
    Raises:
      LobenchError: As in `tune`.
    """
    bound_case = _bind(spec, layers, point_text(optimizer, earlier_case.grid[earlier_case.best[0]].values))
    with _tuning_context(spec, optimizer):
        depends_on_horizon = _depends_on_horizon(bound_case.case)
    if bound_case.phases or (depends_on_horizon and earlier_case.training.horizon_factor > 1):
        return None
    program = training_code_id(bound_case.phase_lines)
    training = dataclasses.replace(earlier_case.training, program=program, is_told_horizon=depends_on_horizon)
    scale, minimum = bound_case.case.scale, bound_case.case.minimum
    baseline_case = dataclasses.replace(earlier_case, training=training, scale=scale, minimum=minimum)
    return _with_evaluations(baseline_case, _evaluate_best(spec, layers, optimizer, baseline_case))


def point_text(optimizer: str, point: Mapping[str, float]) -> str:
    """Returns a point in the form of `--optimizer`: `adam(); adam.learning_rate = 0.01`."""
    return "; ".join([f"{optimizer}()", *(f"{optimizer}.{name} = {value!r}" for name, value in point.items())])


def _fitness(curves: Curves, eval_index: int) -> float:
    """Returns a point's fitness: the mean score of `train/loss` at the budget, on the case's own scale."""
    losses = np.asarray(curves.metrics["train/loss"], np.float64)
    scale = fallback_scale("train/loss", Direction.MIN, losses[:, 0])
    point_scores = scores(losses[:, eval_index], scale, starts=losses[:, 0])
    return float(point_scores.mean()) if scale.is_usable else -float(losses[:, eval_index].mean())


def run_points(spec: CaseSpec, layers: Layers, optimizer: str, grid: BaselineGrid, *, num_seeds: int) -> list[Curves]:
    """Returns the curves of every point of a grid on a case, with seeds 0 .. num_seeds-1.

    Raises:
      LobenchError: As in `tune`.
    """
    _grid_or_point(_bind(spec, layers, build=False), grid, optimizer)
    with _tuning_context(spec, optimizer):
        return _train_points(
            _bind(spec, layers, _float_point_text(optimizer, grid.points[0])), optimizer, grid.points, num_seeds
        )


def _float_point_text(optimizer: str, point: Mapping[str, float]) -> str:
    """Returns the gin text of a point, with each value as a float, which a compiled program takes as an argument."""
    return point_text(optimizer, {name: float(value) for name, value in point.items()})


def _bind(spec: CaseSpec, layers: Layers, optimizer: str = "", *, build: bool = True) -> BoundCase:
    """Binds a case, after creating jax's backend for it, because the case's modules may create arrays."""
    layers = dataclasses.replace(layers, optimizer=optimizer)
    has_threads = claim_for(spec, layers)
    bound_case = bind_case(spec, layers, build=build)
    if not has_threads:
        raise wrong_threads_error(bound_case.case.num_cpus, f"{spec.path}: {spec.name}")
    return bound_case


@contextmanager
def _tuning_context(spec: CaseSpec, optimizer: str) -> Iterator[None]:
    """Keeps compiled programs in the user's folder, and turns errors of a task or an optimizer into one line."""
    try:
        with programs_kept_for_user():
            yield
    except LobenchError:
        raise
    except Exception as error:
        where = f"{spec.path}: case {spec.name!r}"
        raise LobenchError(f"{optimizer!r} cannot be tuned on it", where=where, got=headline(error)) from error


def _train_points(
    bound_case: BoundCase,
    optimizer: str,
    points: Sequence[Mapping[str, float]],
    num_seeds: int,
    horizon_factor: int | None = None,
) -> list[Curves]:
    """Trains points of a grid with seeds 0 .. num_seeds-1, in one program.

    Args:
      bound_case: Case bound with the optimizer, and with values for the parameters of the points.
      optimizer: Name of the optimizer.
      points: Values of its parameters.
      num_seeds: Number of seeds.
      horizon_factor: Length of the training as a multiple of the case's budget, evaluated often. None: the case as
        bound.
    """
    steps = bound_case.case.num_inner_steps
    if horizon_factor is not None:
        case = dataclasses.replace(bound_case.case, eval_every=_eval_every(bound_case.case), log_every=0)
        bound_case = dataclasses.replace(bound_case, case=case)
    selector = complete_selector(optimizer, "the optimizer to tune")
    names = [f"{names_in_keys([selector])[selector]}.{name}" for name in points[0]]
    for settings in [phase.settings for phase in bound_case.phases] or [bound_case.settings]:
        assert set(names) <= set(settings.names), (names, settings.names)
    point_maker = _PointMaker(bound_case)
    program = program_of(
        bound_case, num_seeds, stepper_maker=point_maker, num_inner_steps=steps * (horizon_factor or 1)
    )
    thetas = [{name: np.float32(value) for name, value in zip(names, point.values(), strict=True)} for point in points]
    block = SeedBlock(start=0, size=num_seeds)
    values = bound_case.settings.values
    if thetas == [{}]:
        curves = program.run({}, block, settings=values)
        curves_of_settings = [curves] if curves is not None else None
    else:
        curves_of_settings = program.run_many(thetas, block, settings=values)
    assert curves_of_settings is not None, "nobody stops it"
    return curves_of_settings


class _PointMaker(StepperMaker):
    """Makes steppers of a grid's points. `theta` has the values of the settings that the grid varies."""

    def in_phase(self, index: int, theta: Any, *values: Any) -> Stepper:
        return _with_constant_dtypes(
            super().in_phase(index, {}, *self._current_values(theta, self.bound_case.phases[index].settings, values))
        )

    def __call__(self, theta: Any, *values: Any) -> Stepper:
        return _with_constant_dtypes(
            super().__call__({}, *self._current_values(theta, self.bound_case.settings, values))
        )

    def _current_values(
        self, theta: Mapping[str, Any], settings: OptimizerSettings, values: Sequence[Any]
    ) -> list[Any]:
        return [theta.get(name, value) for name, value in zip(settings.names, values, strict=True)]


def _evaluate_best(spec: CaseSpec, layers: Layers, optimizer: str, baseline_case: BaselineCase) -> list[Curves]:
    """Evaluates the best point of each study alone, like a method, with the baseline's seeds."""
    block = SeedBlock(start=baseline_case.seeds[0], size=len(baseline_case.seeds))
    evaluation_bindings = ["Case.log_every = 0"]
    if integer_field_of("eval_batches", spec, layers) is not None:
        evaluation_bindings.append(f"Case.eval_every = {baseline_case.training.eval_every}")
    curves_of_best = []
    for index in baseline_case.best:
        text = point_text(optimizer, baseline_case.grid[index].values)
        point_layers = dataclasses.replace(
            layers, optimizer=text, gin_params=(*layers.gin_params, *evaluation_bindings)
        )
        with _tuning_context(spec, optimizer):
            curves_of_best.append(
                BlockRunner(point_layers).run(spec, "", ThetaLeaves(leaves=None, where=optimizer), block)
            )
    return curves_of_best


def _depends_on_horizon(case: Case) -> bool:
    """Returns whether a case's optimizer depends on the length of the training, as most schedules do."""

    def create_optimizer(seed: jax.Array) -> jax.Array:
        task = as_task(case.task)
        if isinstance(task, TaskFamily):
            task = task.task_fn(task.sample(key_of(seed)))
        params, state = split_constants(*task.init_with_state(key_of(seed)))
        stepper = as_stepper(case.optimizer, case.num_inner_steps)
        stepper.init(params, state, key_of(seed), facts_of(stepper.extra_inputs(params), lambda: task, params))
        return seed

    with horizon_reads() as reads:
        jax.eval_shape(create_optimizer, np.uint32(0))
    return bool(reads)


def _eval_every(case: Case) -> int:
    """Returns the number of steps between evaluations of a grid. It divides the budget, whose end is evaluated."""
    # Without evaluations, metrics are means over `eval_every` steps.
    max_eval_every = _MAX_EVAL_EVERY if case.eval_batches else case.eval_every
    return next(step for step in range(max_eval_every, 0, -1) if case.num_inner_steps % step == 0)


def _grid_or_point(
    bound_case: BoundCase, grid: BaselineGrid | BaselineSearch, optimizer: str
) -> BaselineGrid | BaselineSearch:
    """Returns the grid, or a single point if the grid varies only a learning rate that the optimizer does not have.

    Args:
      bound_case: Bound case. Its modules, which may define the optimizer, are imported.
      grid: Grid or search over which to tune.
      optimizer: Name of the optimizer.
    Raises:
      ConfigError: The optimizer is unknown, or it lacks a parameter of the grid.
    """
    name = complete_selector(optimizer, "the optimizer to tune")
    wrapper = CONFIGURABLES[name].wrapper
    if isinstance(grid, BaselineGrid) and list(grid.hyperparameter_names) == ["learning_rate"]:
        grid = (
            grid
            if might_have_parameter(wrapper, "learning_rate") and name not in _LINE_SEARCH_OPTIMIZERS
            else defaults_grid(grid.name)
        )
    missing_parameters = [
        parameter for parameter in grid.hyperparameter_names if not might_have_parameter(wrapper, parameter)
    ]
    if missing_parameters:
        raise ConfigError(
            f"{optimizer!r} has no parameter {missing_parameters[0]!r}, which the grid {grid.name!r} varies"
        )
    return grid


def _with_constant_dtypes(stepper: Stepper) -> Stepper:
    """Keeps the dtypes of an optimizer's state: a traced b1 is a float32, which makes averages of bfloat16 float32."""

    def with_old_dtype(old_leaf: jax.Array, new_leaf: Any) -> jax.Array:
        both_floating = jnp.issubdtype(old_leaf.dtype, jnp.floating) and jnp.issubdtype(
            jnp.result_type(new_leaf), jnp.floating
        )
        return jnp.asarray(new_leaf, old_leaf.dtype) if both_floating else new_leaf

    def step(opt_state: PyTree, *arguments: Any) -> tuple[PyTree, PyTree, PyTree]:
        new_state, params, model_state = stepper.step(opt_state, *arguments)
        return jax.tree.map(with_old_dtype, opt_state, new_state), params, model_state

    return dataclasses.replace(stepper, step=step)


def _baseline_of_grid(
    bound_case: BoundCase, grid: BaselineGrid, curves: Sequence[Curves], *, depends_on_horizon: bool
) -> BaselineCase:
    """Returns the baseline of a grid, without the evaluations of its best points."""
    budget = bound_case.case.num_inner_steps
    steps = curves[0].eval_steps
    eval_index = steps.index(budget)
    losses = np.stack([np.asarray(curve.metrics["train/loss"]) for curve in curves])  # [points, seeds, evals]
    # A seed's losses are NaN from its divergence on, so the mean at the budget is NaN if a seed diverged before.
    final_means = losses[:, :, eval_index].astype(np.float64).mean(axis=1)
    points = tuple(
        GridPoint(
            values=dict(values),
            study=study,
            final=float(final_means[i]),
            num_diverged=int(np.isnan(losses[i, :, eval_index]).sum()),
        )
        for i, (values, study) in enumerate(zip(grid.points, grid.studies, strict=True))
    )
    best_indices = tuple(_best_index(final_means, grid.studies, study) for study in sorted(set(grid.studies)))
    best_curves = curves[best_indices[0]]
    shown_evals = _shown_eval_indices(len(steps), eval_index)
    return BaselineCase(
        problem=bound_case.info.problem,
        training=BaselineTraining(
            num_inner_steps=budget,
            horizon_factor=steps[-1] // budget,
            eval_every=_eval_every(bound_case.case),
            program=training_code_id(bound_case.phase_lines),
            is_told_horizon=depends_on_horizon,
            code=bound_case.info.task_code,
        ),
        seeds=best_curves.seeds,
        grid=points,
        best=best_indices,
        untrained={},
        tuned={},
        scale=bound_case.case.scale,
        minimum=bound_case.case.minimum,
        curves=TunedCurves(
            steps=np.asarray(steps)[shown_evals],
            means={name: np.asarray(values).mean(axis=0)[shown_evals] for name, values in best_curves.metrics.items()},
            envelope=envelope(losses, steps).losses.astype(np.float32),
        ),
    )


def _with_evaluations(baseline_case: BaselineCase, curves_of_best: Sequence[Curves]) -> BaselineCase:
    """Returns a baseline whose values up to the case's budget are those of evaluations of its best settings."""
    best_curves = curves_of_best[0]
    steps = np.asarray(best_curves.eval_steps)
    is_beyond_budget = baseline_case.curves.steps > baseline_case.training.num_inner_steps
    shown_evals = _shown_eval_indices(len(steps), len(steps) - 1)
    metrics = {name: np.asarray(values) for name, values in best_curves.metrics.items()}
    unknown_curve = np.full(len(baseline_case.curves.steps), np.nan, np.float32)
    means = {
        name: np.concatenate(
            [values.mean(axis=0)[shown_evals], baseline_case.curves.means.get(name, unknown_curve)[is_beyond_budget]]
        )
        for name, values in metrics.items()
    }
    steps = np.concatenate([steps[shown_evals], baseline_case.curves.steps[is_beyond_budget]])
    return dataclasses.replace(
        baseline_case,
        untrained={name: float(values[:, 0].mean()) for name, values in metrics.items()},
        starts={name: tuple(values[:, 0].astype(float).tolist()) for name, values in metrics.items()},
        tuned={
            name: tuple(
                np.mean([np.asarray(curves.metrics[name])[:, -1] for curves in curves_of_best], axis=0).tolist()
            )
            for name in metrics
        },
        curves=dataclasses.replace(baseline_case.curves, steps=steps, means=means),
    )


def _best_index(finals: np.ndarray, studies: Sequence[int], study: int) -> int:
    indices = np.flatnonzero(np.asarray(studies) == study)  # if all points diverged, the first of them is returned
    return int(indices[np.argmin(np.where(np.isnan(finals[indices]), np.inf, finals[indices]))])


def _shown_eval_indices(num_evals: int, budget_index: int) -> np.ndarray:
    """Picks evaluations: evenly up to the case's own budget, in growing steps beyond it."""
    within_budget = np.linspace(0, budget_index, _NUM_CURVE_POINTS + 1)
    beyond_budget = np.geomspace(max(budget_index, 1), num_evals - 1, _NUM_CURVE_POINTS + 1)
    return np.unique(
        np.rint(np.concatenate([within_budget, [budget_index], beyond_budget, [num_evals - 1]])).astype(np.int64)
    )
