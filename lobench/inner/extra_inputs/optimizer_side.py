"""Optimizers with extra inputs: transformations that request more than a gradient, at any depth of nesting."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import jax
import optax

from lobench.core.errors import ConfigError, suggestion
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.task_side import TASK_METHODS, ExtraInputs, ExtraValues, Facts
from lobench.inner.optimizer import PyTree

__all__ = [
    "any_with_extra_inputs",
    "bind_requested_inputs",
    "declared_extra_inputs",
    "extra_inputs_of",
    "initial_params_functions",
    "provide_inputs",
    "with_extra_inputs",
]

T = TypeVar("T")
_TREE_INPUTS = ("memory", "task_gradients", "scale_invariant")  # like params
_LIVE_UPDATES: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()  # updates of optimizers with extra inputs


class _WithExtraInputs(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # of optax
    """An optax transformation with the optional attributes of `InnerOptimizer`."""

    extra_inputs: tuple[str, ...] = ()
    eval_params: Callable[[PyTree, PyTree], PyTree] | None = None
    initial_params: Callable[..., PyTree] | None = None
    metrics: Callable[[PyTree], Mapping[str, jax.Array]] | None = None


class _Request(NamedTuple):
    """Extra inputs that one optimizer requests itself, without the requests of optimizers that it wraps."""

    name: str
    extra_inputs: tuple[str, ...]
    initial_params: Callable[..., PyTree] | None


@dataclass(frozen=True, slots=True)
class _ProvidedInputs:
    """Facts and extra values for the optimizers that are being called, at any depth of nesting."""

    facts: Facts = field(default_factory=dict)
    extra_values: ExtraValues = field(default_factory=dict)
    requests: list[_Request] | None = None  # a list: collect the requests, compute nothing


_PROVIDED: ContextVar[_ProvidedInputs] = ContextVar("offer", default=_ProvidedInputs())  # noqa: B039  (immutable)


def with_extra_inputs(
    init: Callable[..., PyTree],
    update: Callable[..., tuple[PyTree, PyTree]],
    extra_inputs: Sequence[str] = (),
    *,
    name: str = "",
    inner: Any = None,
    eval_params: Callable[[PyTree, PyTree], PyTree] | None = None,
    initial_params: Callable[..., PyTree] | None = None,
    metrics: Callable[[PyTree], Mapping[str, jax.Array]] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optax transformation with extra inputs, for use alone or in `optax.chain` and other wrappers.

    Args:
      init: `(params) -> state`, which may accept the keywords `scale_invariant` and `num_losses`.
      update: `(grads, state, params, **extra) -> (updates, state)`. `extra` has the requested inputs by name. With
        `task_losses` comes `weighted_gradient`, a function from float32[K] to the gradient of the weighted losses.
      extra_inputs: Names out of "memory", "task_losses", "task_gradients", "scale_invariant".
      name: Name in error messages. "": that of the function that defines `update`.
      inner: Optimizer that this one wraps. Its extra inputs are requested too, and its `initial_params` and
        `eval_params` are used unless this one has its own.
      eval_params, initial_params, metrics: As in `InnerOptimizer`. `initial_params` may accept `scale_invariant`.
    Raises:
      ConfigError: An input is unknown.

    >>> scaled = lobench.with_extra_inputs(
    ...     lambda params: (),
    ...     lambda grads, state, params, task_losses: (jax.tree.map(lambda g: -task_losses[0] * g, grads), state),
    ...     ["task_losses"],
    ... )
    >>> isinstance(scaled, optax.GradientTransformationExtraArgs)
    True
    """
    name = name or update.__qualname__.partition(".")[0]
    extra_inputs = _checked_inputs(extra_inputs, name)

    def init_with_facts(params: PyTree, **given_facts: Any) -> PyTree:
        provided = _PROVIDED.get()
        if provided.requests is None:
            facts = {**provided.facts, **given_facts}
            _require_inputs({input_name: name for input_name in extra_inputs if input_name == "scale_invariant"}, facts)
            return call_with_accepted(init, params, **_masked_inputs(facts, params))
        provided.requests.append(_Request(name, extra_inputs, initial_params))
        return inner.init(params) if inner is not None else ()

    def step(grads: PyTree, state: PyTree, params: PyTree = None, **extra: Any) -> tuple[PyTree, PyTree]:
        extra_values = _masked_inputs({**_PROVIDED.get().extra_values, **extra}, grads)
        _require_inputs(dict.fromkeys(extra_inputs, name), extra_values)
        result: tuple[PyTree, PyTree] = call_with_accepted(update, grads, state, params, **extra_values)
        return result

    step.__qualname__ = name
    optimizer: Any = _WithExtraInputs(init_with_facts, step)
    _LIVE_UPDATES.add(step)
    optimizer.extra_inputs = tuple(dict.fromkeys((*extra_inputs, *getattr(inner, "extra_inputs", ()))))
    optimizer.eval_params = eval_params or getattr(inner, "eval_params", None)
    optimizer.initial_params = initial_params or getattr(inner, "initial_params", None)
    optimizer.metrics = metrics
    return optimizer


def any_with_extra_inputs() -> bool:
    """Returns whether this process has an optimizer made by `with_extra_inputs`."""
    return len(_LIVE_UPDATES) > 0


def _checked_inputs(extra_inputs: Sequence[str], name: str) -> tuple[str, ...]:
    if isinstance(extra_inputs, str):
        extra_inputs = (extra_inputs,)
    for input_name in extra_inputs:
        if input_name not in TASK_METHODS:
            expected = f"one of {', '.join(TASK_METHODS)}"
            advice = suggestion(str(input_name), TASK_METHODS)
            raise ConfigError(f"{name} requests {input_name!r}", expected=expected, next_step=advice)
    return tuple(extra_inputs)


def _masked_inputs(inputs: dict[str, Any], masked_tree: PyTree) -> dict[str, Any]:
    """Returns the inputs of an optimizer that trains only some of the parameters, as marked by `optax.masked`."""

    def is_masked(leaf: Any) -> bool:
        return isinstance(leaf, optax.MaskedNode)

    if not any(map(is_masked, jax.tree.leaves(masked_tree, is_leaf=is_masked))):
        return inputs

    def mask(tree: PyTree) -> PyTree:
        def mask_leaf(leaf: Any, value: Any) -> Any:
            return leaf if is_masked(leaf) else value

        return jax.tree.map(mask_leaf, masked_tree, tree, is_leaf=is_masked)

    inputs = {name: mask(value) if name in _TREE_INPUTS else value for name, value in inputs.items()}
    if "weighted_gradient" in inputs:
        weighted_gradient = inputs["weighted_gradient"]
        inputs["weighted_gradient"] = lambda weights: mask(weighted_gradient(weights))
    return inputs


@contextlib.contextmanager
def provide_inputs(facts: Facts, extra_values: ExtraValues) -> Iterator[None]:
    """Provides the extra inputs to all optimizers that are called inside."""
    token = _PROVIDED.set(_ProvidedInputs(facts, extra_values))
    try:
        yield
    finally:
        _PROVIDED.reset(token)


def extra_inputs_of(optimizer: Any, params: PyTree) -> ExtraInputs:
    """Returns the extra inputs of an optimizer and of the optimizers inside it that `with_extra_inputs` made."""
    extra_inputs = dict(declared_extra_inputs(optimizer))
    for request in _requests_of(optimizer, params):
        extra_inputs |= dict.fromkeys(request.extra_inputs, request.name)
    return extra_inputs


def declared_extra_inputs(optimizer: Any) -> ExtraInputs:
    """Returns the extra inputs that an optimizer requests itself."""
    name = _optimizer_name(optimizer)
    return dict.fromkeys(_checked_inputs(getattr(optimizer, "extra_inputs", ()), name), name)


def bind_requested_inputs(
    update: Callable[..., T], extra_inputs: ExtraInputs, available: dict[str, Any]
) -> Callable[..., T]:
    """Returns an update with the requested inputs bound. They are removed from `available`.

    Raises:
      ConfigError: A requested input was not computed.
    """
    _require_inputs(extra_inputs, available)
    return functools.partial(update, **{input_name: available.pop(input_name) for input_name in extra_inputs})


def initial_params_functions(optimizer: Any, params: PyTree) -> list[Callable[..., PyTree]]:
    """Returns the `initial_params` function of an optimizer, or the functions of the optimizers inside it."""
    initial_params = getattr(optimizer, "initial_params", None)
    if initial_params is not None:
        return [initial_params]
    return [request.initial_params for request in _requests_of(optimizer, params) if request.initial_params is not None]


def _requests_of(optimizer: Any, params: PyTree) -> list[_Request]:
    requests: list[_Request] = []
    if not any_with_extra_inputs():
        return requests
    token = _PROVIDED.set(_ProvidedInputs(requests=requests))
    try:
        # The task is unknown yet, so any number of losses will do. The lambda is new for each call, because jax caches
        # functions that it has traced.
        facts = {"num_losses": 2, "scale_invariant": jax.tree.map(lambda leaf: None, params)}
        jax.eval_shape(lambda params: call_with_accepted(optimizer.init, params, **facts), params)
    finally:
        _PROVIDED.reset(token)
    return requests


def _optimizer_name(optimizer: Any) -> str:
    if isinstance(optimizer, optax.GradientTransformation):
        return str(getattr(optimizer.update, "__qualname__", "an optimizer")).partition(".")[0]
    return type(optimizer).__name__


def _require_inputs(extra_inputs: ExtraInputs, provided: ExtraValues) -> None:
    """Raises ConfigError if a requested input was not computed."""
    for input_name, name in extra_inputs.items():
        if input_name not in provided:
            raise ConfigError(
                f"{name} requests {input_name!r}, which nothing computes here",
                next_step="train a case with it: `Case.optimizer`, or `Case.learned_optimizer`",
            )
