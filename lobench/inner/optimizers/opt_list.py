"""OptList: a thousand settings of NAdamW, ordered by their benefit on a thousand tasks."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.core.errors import ConfigError
from lobench.core.wording import cause
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.schedules.schedule import Schedule

__all__ = ["opt_list"]

_PACKAGE = "learned_optimization"
_IN_PACKAGE = "optimizers/data/opt_list.json"
_NAMES = (
    "learning_rate",
    "beta1",
    "beta2",
    "epsilon",
    "use_nesterov",
    "adamw_weight_decay",
    "l2_weight_decay",
    "warmup_fraction",
    "min_learning_rate_mult",
    "constant_fraction",
)


class OptListState(NamedTuple):
    """State of `opt_list`."""

    step: jax.Array  # int32[], updates before this one
    mu: PyTree
    nu: PyTree


@configurable
def opt_list(index: int = 0, file: str = "") -> optax.GradientTransformationExtraArgs:
    """OptList: NAdamW with settings from a learned list, and a schedule.

    The first entries are the most useful: try `index` 0 to 9 in turn. The list itself is not part of lobench.

    Args:
      index: Position in the list, from 0.
      file: The list, `learned_optimization/optimizers/data/opt_list.json` of google/learned_optimization. "": that of
        the installed package.
    Raises:
      ConfigError: The list is missing or cannot be read, or the position is beyond its end.
    Source: Metz et al. 2020, "Using a thousand optimization tasks to learn hyperparameter search strategies",
    arXiv 2002.11887; the rule is that of google/learned_optimization's `OptList`.
    """
    setting = _setting_at(_settings_by_name(file or _installed_list()), index)
    rate = Schedule(lambda num_steps: functools.partial(_rate, setting, num_steps), "opt_list")

    def init(params: PyTree) -> OptListState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return OptListState(jnp.zeros([], jnp.int32), zeros, zeros)

    def update(grads: PyTree, state: OptListState, params: PyTree = None) -> tuple[PyTree, OptListState]:
        num_updates = state.step + 1
        b1, b2 = setting["beta1"], setting["beta2"]
        corrected_rate = rate(state.step) * jnp.sqrt(1 - b2**num_updates) / (1 - b1**num_updates)
        # The sign is that of the original, with which the settings were found.
        grads = jax.tree.map(lambda grad, param: grad - setting["l2_weight_decay"] * param, grads, params)
        mu = jax.tree.map(lambda old, grad: b1 * old + (1 - b1) * grad, state.mu, grads)
        nu = jax.tree.map(lambda old, grad: b2 * old + (1 - b2) * grad**2, state.nu, grads)

        def step_leaf(mu: jax.Array, nu: jax.Array, grad: jax.Array, param: jax.Array) -> jax.Array:
            momentum = jnp.where(setting["use_nesterov"], b1 * mu + (1 - b1) * grad, mu)
            preconditioned = momentum / (jnp.sqrt(nu) + setting["epsilon"])
            return -corrected_rate * (preconditioned + setting["adamw_weight_decay"] * param)

        return jax.tree.map(step_leaf, mu, nu, grads, params), OptListState(num_updates, mu, nu)

    return optax.with_extra_args_support(optax.GradientTransformation(init, update))


def _rate(setting: dict[str, Any], num_steps: int, count: jax.Array) -> jax.Array:
    """Returns the rate: an optional warm-up, the peak up to `constant_fraction` of the training, then a cosine."""
    peak = setting["learning_rate"]
    min_rate = setting["min_learning_rate_mult"] * setting["learning_rate"]
    decay_start = num_steps * setting["constant_fraction"]
    warmup_end = num_steps * jnp.maximum(setting["warmup_fraction"], setting["constant_fraction"])
    step = jnp.minimum(count, num_steps).astype(jnp.float32)
    share = (jnp.maximum(step, decay_start) - decay_start) / (num_steps - decay_start)
    decayed_rate = min_rate + (peak - min_rate) * (jnp.cos(jnp.pi * share) + 1) / 2
    return jnp.where((setting["warmup_fraction"] > 0) & (step < warmup_end), peak * step / warmup_end, decayed_rate)


def _installed_list() -> str:
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _IN_PACKAGE).is_file():
            return str(path)
    raise ConfigError(
        "opt_list: the list of settings is not here",
        expected=f"google/learned_optimization's {_IN_PACKAGE}",
        next_step='bind opt_list.file = "PATH/opt_list.json"',
    )


@functools.cache
def _settings_by_name(path: str) -> dict[str, np.ndarray]:
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
        return {name: np.asarray([entry[name] for entry in entries]) for name in _NAMES}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            "opt_list: cannot read the list of settings",
            where=path,
            got=cause(error),
            expected=f"a JSON list of objects with {', '.join(_NAMES)}",
        ) from error


def _setting_at(columns: dict[str, np.ndarray], index: Any) -> dict[str, Any]:
    if isinstance(index, jax.Array):  # traced: one program computes the whole grid
        position = index.astype(jnp.int32)
        return {name: jnp.asarray(column)[position] for name, column in columns.items()}
    num_settings = len(columns["beta1"])
    if index not in range(num_settings):
        raise ConfigError("opt_list.index", got=repr(index), expected=f"a whole number from 0 to {num_settings - 1}")
    return {name: column[index].item() for name, column in columns.items()}
