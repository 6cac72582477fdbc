"""Optimizers and schedules of optax by name, registered with gin when a gin file first uses one.

`@optax.adamw()` is optax's, `@adamw()` is lobench's. Names that only optax defines need no prefix: `@muon()` is
`@optax.contrib.muon()`.
A schedule whose end is unbound (decay_steps, transition_steps) ends at the last update.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gin
import jax
import jax.numpy as jnp
import optax
import optax.contrib

from lobench.inner.lookahead import synced_lookahead
from lobench.inner.optimizer import PyTree, TransformationWithEvalParams
from lobench.inner.optimizers.baselines import evaluated_at_average
from lobench.inner.schedules.schedule import Schedule
from lobench.inner.vmap_periodic import compute_when_due

__all__ = ["OptaxNames"]

_MODULES_OF_OPTAX: tuple[ModuleType, ...] = (optax, optax.contrib)
_LENGTH_PARAMETERS = ("decay_steps", "transition_steps")
_TRANSFORMATIONS = (optax.GradientTransformation, optax.GradientTransformationExtraArgs)
_SCHEDULE_FREE = ("schedule_free", "schedule_free_adamw", "schedule_free_sgd")


class OptaxNames:
    """gin names of a module that are registered when they are used; its `lobench_on_use`."""

    summary = "`@optax.NAME()`, or `@NAME()` where nothing else has the name: every optimizer and schedule of optax's"

    def names(self) -> list[str]:
        """Returns all names, for suggestions."""
        return [
            f"{module.__name__}.{name}"
            for module in _MODULES_OF_OPTAX
            for name in dir(module)
            if _public_function(module, name)
        ]

    def optimizers(self) -> dict[str, Callable[..., Any]]:
        """Returns all optimizers by their full names: functions with a learning rate, or known as optimizers."""
        functions = {
            f"{module.__name__}.{name}": _public_function(module, name)
            for module in _MODULES_OF_OPTAX
            for name in dir(module)
        }
        return {name: function for name, function in functions.items() if function and _is_optimizer(function)}

    def find(self, selector: str) -> str | None:
        """Registers the function of optax that a selector names, and returns its full name.

        Args:
          selector: `optax.contrib.muon`, or the end of it.
        Returns:
          One name for each function, whichever selector is used; None if optax has no such function.
        """
        path, _, name = selector.removeprefix("optax.").rpartition(".")
        modules = _candidate_modules(path, selector.startswith("optax."))
        function = next(filter(None, (_public_function(module_name, name) for module_name in modules)), None)
        if function is None:
            return None
        module_name = next(
            (module_name.__name__ for module_name in _MODULES_OF_OPTAX if getattr(module_name, name, None) is function),
            f"optax.{path}",
        )
        _register(function, name, module_name)
        return f"{module_name}.{name}"


@functools.cache
def _register(function: Callable[..., Any], name: str, module_name: str) -> None:
    gin.external_configurable(_adapt_for_gin(function, name), name=name, module=module_name)


def _candidate_modules(path: str, names_optax: bool) -> list[ModuleType]:
    """Returns the modules of optax in which a name with this path is looked up."""
    if not path:
        return [optax] if names_optax else list(_MODULES_OF_OPTAX)
    module: Any = optax
    for submodule in path.split("."):
        module = getattr(module, submodule, None)
        if not isinstance(module, ModuleType) or not module.__name__.startswith("optax."):
            return []
    return [module]


def _public_function(module: ModuleType, name: str) -> Callable[..., Any] | None:
    candidate = None if name.startswith("_") else getattr(module, name, None)
    return candidate if inspect.isroutine(candidate) or isinstance(candidate, functools.partial) else None


def _is_optimizer(function: Callable[..., Any]) -> bool:
    signature = inspect.signature(function)
    doc = function.__doc__ or ""
    returns_optimizer = signature.return_annotation in (*_TRANSFORMATIONS, signature.empty)
    is_component = getattr(function, "__name__", "").startswith("scale_by_")
    text = " ".join([*signature.parameters, doc.partition("\n")[0]])
    return returns_optimizer and not is_component and ("learning_rate" in text or "optimizer" in text)


def _adapt_for_gin(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns a function that gin can call, and whose optimizer is evaluated at the right parameters."""
    if name in _SCHEDULE_FREE:
        return _with_eval_params(function, evaluated_at_average)
    if name == "lookahead":
        return _with_eval_params(function, synced_lookahead)
    if name == "sophia":
        return _with_hessian_when_due(function)
    signature = inspect.signature(function)
    if signature.return_annotation == optax.Schedule:
        return _with_training_length(function, name)
    variadic = [
        parameter.name for parameter in signature.parameters.values() if parameter.kind is parameter.VAR_POSITIONAL
    ]
    return _with_sequence(function, variadic[0]) if variadic else function


def _with_sequence(function: Callable[..., Any], sequence_name: str) -> Callable[..., Any]:
    """Wraps a *args function so that gin can bind its positional arguments as one sequence, named `sequence_name`.

    Example: `optax.chain.args = (@optax.clip(), @optax.sgd())`.
    """

    def call(**values: Any) -> Any:
        return function(*values.pop(sequence_name, ()), **values)

    return call


def _with_training_length(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    signature = inspect.signature(function)
    length_parameters = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.name in _LENGTH_PARAMETERS and parameter.default is parameter.empty
    ]

    @functools.wraps(function)
    def make(**values: Any) -> Schedule:
        missing_names = [parameter_name for parameter_name in length_parameters if parameter_name not in values]
        if not missing_names:
            schedule = function(**values)
            return Schedule(lambda num_steps: schedule, f"optax.{name}")
        signature.bind(**values, **dict.fromkeys(missing_names))  # raises for other missing arguments
        return Schedule(
            lambda num_steps: function(**values, **dict.fromkeys(missing_names, max(num_steps - 1, 1))), f"optax.{name}"
        )

    return make


def _with_eval_params(
    function: Callable[..., Any], adapt: Callable[[Any], TransformationWithEvalParams]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def make(*args: Any, **values: Any) -> TransformationWithEvalParams:
        return adapt(function(*args, **values))

    return make


def _with_hessian_when_due(function: Callable[..., Any]) -> Callable[..., Any]:
    """Estimates Sophia's Hessian only in updates that use it, also under vmap."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def make(*args: Any, **values: Any) -> optax.GradientTransformationExtraArgs:
        bound_arguments = signature.bind(*args, **values)
        bound_arguments.apply_defaults()
        interval = bound_arguments.arguments["update_interval"]
        hessian = optax.with_extra_args_support(bound_arguments.arguments["hessian_diagonal_fn"])
        bound_arguments.arguments["hessian_diagonal_fn"] = optax.GradientTransformationExtraArgs(
            hessian.init, lambda grads, state, params=None, *, estimated, **extra: estimated
        )
        sophia = function(*bound_arguments.args, **bound_arguments.kwargs)

        def update(grads: PyTree, state: PyTree, params: PyTree = None, **extra: Any) -> tuple[PyTree, PyTree]:
            sophia_state = state[0]
            estimate = functools.partial(hessian.update, grads, sophia_state.hessian_fn_state, params=params, **extra)
            shapes, _ = jax.eval_shape(estimate)
            empty_estimate = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            new_estimate = compute_when_due(
                sophia_state.count % interval == 0, estimate, (empty_estimate, sophia_state.hessian_fn_state)
            )
            sophia_updates: tuple[PyTree, PyTree] = sophia.update(grads, state, params, estimated=new_estimate)
            return sophia_updates

        return optax.GradientTransformationExtraArgs(sophia.init, update)

    return make
