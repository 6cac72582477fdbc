"""Extra inputs, the optimizer's side: transformations that ask for more than a gradient, at any depth of nesting."""

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
from lobench.inner.extra_inputs.calling import call_offering
from lobench.inner.extra_inputs.task_side import GIVEN_BY, Facts, Wanted, Wants
from lobench.inner.optimizer import PyTree

__all__ = ["any_wanting", "asked_for", "declared_wants", "offering", "starts_of", "wanting", "wants_of"]

T = TypeVar("T")
_TREES = ("memory", "task_gradients", "scale_invariant")  # like params
_LIVING: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()  # updates of optimizers that want something


class _Wanting(optax.GradientTransformationExtraArgs):  # type: ignore[misc]  # of optax
    """An optax transformation with what the inner program asks an optimizer for besides."""

    wants: tuple[str, ...] = ()
    eval_params: Callable[[PyTree, PyTree], PyTree] | None = None
    initial_params: Callable[..., PyTree] | None = None
    metrics: Callable[[PyTree], Mapping[str, jax.Array]] | None = None


class _Asked(NamedTuple):
    """What one optimizer says when it is asked what it wants: it alone, and not what it wraps."""

    name: str
    wants: tuple[str, ...]
    initial_params: Callable[..., PyTree] | None


@dataclass(frozen=True, slots=True)
class _Offer:
    """What optimizers that are called now can have, however deep they sit in others."""

    facts: Facts = field(default_factory=dict)
    wanted: Wanted = field(default_factory=dict)
    asked: list[_Asked] | None = None  # where only who wants what is to be found out


_OFFER: ContextVar[_Offer] = ContextVar("offer", default=_Offer())  # noqa: B039  (nobody changes it)


def wanting(
    init: Callable[..., PyTree],
    update: Callable[..., tuple[PyTree, PyTree]],
    wants: Sequence[str] = (),
    *,
    name: str = "",
    inner: Any = None,
    eval_params: Callable[[PyTree, PyTree], PyTree] | None = None,
    initial_params: Callable[..., PyTree] | None = None,
    metrics: Callable[[PyTree], Mapping[str, jax.Array]] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optax transformation that wants more than a gradient, alone or inside of `optax.chain` and its like.

    Args:
      init: `(params) -> state`, or with the keywords `scale_invariant` and `num_losses`, where it wants such.
      update: `(grads, state, params, **extra) -> (updates, state)`; `extra` has what is wanted by its names. With
        `task_losses` comes `weighted_gradient`, float32[K] -> the gradient of the losses so weighted.
      wants: Out of "memory", "task_losses", "task_gradients", "scale_invariant".
      name: How errors call it; "": as the function that defines `update`.
      inner: The optimizer that this one wraps: what that one wants is wanted too, and training starts, and is
        evaluated, where it says, unless this one says otherwise.
      eval_params, initial_params, metrics: As of `InnerOptimizer`; `initial_params` may take `scale_invariant`.
    Raises:
      ConfigError: there is no such want.
    """
    name = name or update.__qualname__.partition(".")[0]
    wants = _known(wants, name)

    def begin(params: PyTree, **given: Any) -> PyTree:
        offer = _OFFER.get()
        if offer.asked is None:
            facts = {**offer.facts, **given}
            _require({want: name for want in wants if want == "scale_invariant"}, facts)
            return call_offering(init, params, **_within(facts, params))
        offer.asked.append(_Asked(name, wants, initial_params))
        return inner.init(params) if inner is not None else ()

    def step(grads: PyTree, state: PyTree, params: PyTree = None, **extra: Any) -> tuple[PyTree, PyTree]:
        given = _within({**_OFFER.get().wanted, **extra}, grads)
        _require(dict.fromkeys(wants, name), given)
        stepped: tuple[PyTree, PyTree] = call_offering(update, grads, state, params, **given)
        return stepped

    step.__qualname__ = name
    made: Any = _Wanting(begin, step)
    _LIVING.add(step)
    made.wants = tuple(dict.fromkeys((*wants, *getattr(inner, "wants", ()))))
    made.eval_params = eval_params or getattr(inner, "eval_params", None)
    made.initial_params = initial_params or getattr(inner, "initial_params", None)
    made.metrics = metrics
    return made


def any_wanting() -> bool:
    """Says whether this process has an optimizer that `wanting` has made."""
    return len(_LIVING) > 0


def _known(wants: Sequence[str], name: str) -> tuple[str, ...]:
    if isinstance(wants, str):
        wants = (wants,)
    for want in wants:
        if want not in GIVEN_BY:
            expected = f"one of {', '.join(GIVEN_BY)}"
            advice = suggestion(str(want), GIVEN_BY)
            raise ConfigError(f"{name} wants {want!r}", expected=expected, next_step=advice)
    return tuple(wants)


def _within(given: dict[str, Any], like: PyTree) -> dict[str, Any]:
    """Returns what is given to an optimizer that trains a part of the parameters, as `optax.masked` marks it."""

    def is_masked(leaf: Any) -> bool:
        return isinstance(leaf, optax.MaskedNode)

    if not any(map(is_masked, jax.tree.leaves(like, is_leaf=is_masked))):
        return given

    def part(tree: PyTree) -> PyTree:
        def one(leaf: Any, each: Any) -> Any:
            return leaf if is_masked(leaf) else each

        return jax.tree.map(one, like, tree, is_leaf=is_masked)

    given = {name: part(value) if name in _TREES else value for name, value in given.items()}
    if "weighted_gradient" in given:
        whole = given["weighted_gradient"]
        given["weighted_gradient"] = lambda weights: part(whole(weights))
    return given


@contextlib.contextmanager
def offering(facts: Facts, wanted: Wanted) -> Iterator[None]:
    """Offers to all optimizers that are called inside what they may want."""
    token = _OFFER.set(_Offer(facts, wanted))
    try:
        yield
    finally:
        _OFFER.reset(token)


def wants_of(optimizer: Any, params: PyTree) -> Wants:
    """Returns what an optimizer wants, and what is wanted of those inside of it that `wanting` has made."""
    found = dict(declared_wants(optimizer))
    for asked in _asked(optimizer, params):
        found |= dict.fromkeys(asked.wants, asked.name)
    return found


def declared_wants(optimizer: Any) -> Wants:
    """Returns what an optimizer says itself that it wants."""
    name = _name(optimizer)
    return dict.fromkeys(_known(getattr(optimizer, "wants", ()), name), name)


def asked_for(update: Callable[..., T], wants: Wants, offered: dict[str, Any]) -> Callable[..., T]:
    """Returns an update that gets what it has said that it wants, which is taken out of what is only offered.

    Raises:
      ConfigError: nothing has computed it.
    """
    _require(wants, offered)
    return functools.partial(update, **{want: offered.pop(want) for want in wants})


def starts_of(optimizer: Any, params: PyTree) -> list[Callable[..., PyTree]]:
    """Returns the `initial_params` of an optimizer, or else those of what is inside of it."""
    own = getattr(optimizer, "initial_params", None)
    if own is not None:
        return [own]
    return [asked.initial_params for asked in _asked(optimizer, params) if asked.initial_params is not None]


def _asked(optimizer: Any, params: PyTree) -> list[_Asked]:
    found: list[_Asked] = []
    if not any_wanting():
        return found
    token = _OFFER.set(_Offer(asked=found))
    try:
        # What a task says is not known yet: any number of losses will do. And a function of its own: jax would not
        # call again what it has traced before.
        facts = {"num_losses": 2, "scale_invariant": jax.tree.map(lambda leaf: None, params)}
        jax.eval_shape(lambda params: call_offering(optimizer.init, params, **facts), params)
    finally:
        _OFFER.reset(token)
    return found


def _name(optimizer: Any) -> str:
    if isinstance(optimizer, optax.GradientTransformation):
        return str(getattr(optimizer.update, "__qualname__", "an optimizer")).partition(".")[0]
    return type(optimizer).__name__


def _require(wants: Wants, given: Wanted) -> None:
    """Raises ConfigError where something that is wanted was not computed."""
    for want, name in wants.items():
        if want not in given:
            raise ConfigError(
                f"{name} wants {want!r}, which nothing computes here",
                next_step="train a case with it: `Case.optimizer`, or `Case.learned_optimizer`",
            )
