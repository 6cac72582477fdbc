"""`optax.lookahead`, whose update needs fast and slow parameters at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import optax

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree, TransformationWithEvalParams

__all__ = ["is_lookahead", "refuse_lookahead_inside", "synced_lookahead"]


def is_lookahead(optimizer: Any) -> bool:
    """Returns whether an optimizer was made by `optax.lookahead`."""
    maker_name = getattr(optimizer.init, "__qualname__", "")
    return maker_name.startswith("lookahead.") and getattr(optimizer.init, "__module__", "").startswith("optax.")


def refuse_lookahead_inside(opt_state: PyTree) -> None:
    """Raises ConfigError if a part of an optimizer is a lookahead, because its parameters have another structure."""
    state_types = (_Lookahead, optax.LookaheadState)
    state_parts = jax.tree.leaves(opt_state, is_leaf=lambda part: isinstance(part, state_types))
    if any(isinstance(part, optax.LookaheadState) for part in state_parts):
        raise ConfigError(
            "optax.lookahead is inside another transformation, whose parameters are not `optax.LookaheadParams`",
            expected="optax.lookahead around the others",
            next_step="write optax.lookahead(optax.chain(...), sync_period, slow_step_size)",
        )


class _Lookahead(NamedTuple):
    """State of a lookahead: the inner state, and the slow parameters.

    The fast parameters are the trained ones.
    """

    inner: PyTree
    slow: PyTree


def synced_lookahead(transformation: Any) -> TransformationWithEvalParams:
    """Returns `optax.lookahead(...)` with its slow parameters as part of its state. Evaluations use these."""

    def init(params: PyTree) -> _Lookahead:
        return _Lookahead(transformation.init(optax.LookaheadParams.init_synced(params)), params)

    def update(grads: PyTree, state: _Lookahead, params: PyTree = None) -> tuple[PyTree, _Lookahead]:
        lookahead_params = optax.LookaheadParams(fast=params, slow=state.slow)
        updates, inner = transformation.update(grads, state.inner, lookahead_params)
        return updates.fast, _Lookahead(inner, optax.apply_updates(state.slow, updates.slow))

    return TransformationWithEvalParams(init=init, update=update, eval_params=lambda state, params: state.slow)
