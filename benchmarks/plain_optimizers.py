"""Learned optimizers as they are usually written: every feature concatenated, matrix products over the last axis.

They are what `plain_loop` steps with. The rules are those of `lobench.inner.optimizers`, and the losses the same;
written here once more because layout and fusion are what the benchmarks compare.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from lobench.inner.optimizers.adafac_mlp_lopt import shifted_decays
from lobench.inner.optimizers.celo import initial_schedule_state, schedule_step
from lobench.inner.optimizers.factored import factored_axes
from lobench.inner.optimizers.features import step_embedding
from lobench.inner.optimizers.lstm import initial_state

__all__ = ["adafac_mlp_lopt", "celo", "l2o_dm", "mlp_lopt"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)
_SLOW = np.asarray([0.999], np.float32)
_MLP_DECAYS = np.asarray([0.1, 0.5, 0.9, 0.99, 0.999, 0.9999], np.float32)


def _decayed(old: jax.Array, new: jax.Array, decays: jax.Array) -> jax.Array:
    """Accumulators with the decays as last axis, [..., num_decays]."""
    return decays * old + (1 - decays) * new[..., None]


def _rms_norm(features: jax.Array) -> jax.Array:
    """Each channel of [..., channels] over its root mean square."""
    axes = tuple(range(features.ndim - 1))
    return features * jax.lax.rsqrt(1e-5 + jnp.mean(features * features, axis=axes, keepdims=True))


def _perceptron(network: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for weights, bias in network[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    return x @ network[-1][0] + network[-1][1]


def _factored(
    state: tuple[jax.Array, jax.Array], grad: jax.Array, decays: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], jax.Array, jax.Array, jax.Array]:
    """Returns the state, row and column as full tensors [..., 3], and what multiplies a gradient, [..., 3]."""
    squares, axes = grad * grad + 1e-30, factored_axes(grad.shape)

    def safe_rsqrt(x: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(jnp.maximum(x, 1e-9))

    if axes is None:
        full = _decayed(state[0], squares, decays)
        return (full, state[1]), full, full, safe_rsqrt(full + 1e-9)
    d0, d1 = axes
    row = _decayed(state[0], squares.mean(axis=d0), decays)
    col = _decayed(state[1], squares.mean(axis=d1), decays)
    d1_in_row = d1 - 1 if d1 > d0 else d1
    row_scale = safe_rsqrt(row / (row.mean(axis=d1_in_row, keepdims=True) + 1e-9))
    shape = (*grad.shape, len(_DECAYS))
    scale = jnp.expand_dims(row_scale, d0) * jnp.expand_dims(safe_rsqrt(col), d1)
    wide = [jnp.broadcast_to(jnp.expand_dims(x, axis), shape) for x, axis in ((row, d0), (col, d1))]
    return (row, col), wide[0], wide[1], scale


def _init_factored(shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    axes = factored_axes(shape)
    if axes is None:
        return jnp.zeros((*shape, 3)), jnp.zeros(3)
    row, col = (tuple(size for i, size in enumerate(shape) if i != axis) for axis in axes)
    return jnp.zeros((*row, 3)), jnp.zeros((*col, 3))


def _initial(params: Any) -> dict[str, Any]:
    leaves = jax.tree.leaves(params)

    def last(accumulator: jax.Array) -> jax.Array:
        return jnp.moveaxis(accumulator, 0, -1)

    return {
        "step": jnp.int32(0),
        "momentum": [jnp.zeros((*leaf.shape, 3)) for leaf in leaves],
        "rms": [jnp.zeros((*leaf.shape, 1)) for leaf in leaves],
        "factored": [_init_factored(leaf.shape) for leaf in leaves],
    }


def _with_updates(grads: Any, updates: list[jax.Array]) -> Any:
    return jax.tree.unflatten(jax.tree.structure(grads), updates)


def adafac_mlp_lopt(theta: Any, num_steps: int) -> optax.GradientTransformationExtraArgs:
    momentum_decays = shifted_decays(_DECAYS, theta["momentum_decays"])
    rms_decays = jnp.clip(shifted_decays(_SLOW, theta["rms_decays"]), 0.0, 1.0)
    factored_decays = jnp.clip(shifted_decays(_DECAYS, theta["adafactor_decays"]), 0.0, 1.0)
    layers = [(theta["nn"]["~"][f"w{i}"], theta["nn"]["~"][f"b{i}"]) for i in range(3)]

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        embedding = step_embedding(state["step"])
        new: dict[str, Any] = {"step": state["step"] + 1, "momentum": [], "rms": [], "factored": []}
        updates = []
        for i, (grad, param) in enumerate(zip(jax.tree.leaves(grads), jax.tree.leaves(params), strict=True)):
            m = _decayed(state["momentum"][i], grad, momentum_decays)
            r = _decayed(state["rms"][i], grad * grad, rms_decays)
            factored, row, col, scale = _factored(state["factored"][i], grad, factored_decays)
            r_scale = jax.lax.rsqrt(r + 1e-6)
            fac_m = m * scale if grad.ndim >= 2 else m * jax.lax.rsqrt(row + 1e-6)
            features = [grad[..., None], param[..., None], m, r, m * r_scale, r_scale, grad[..., None] * scale]
            features += [row, col, jax.lax.rsqrt(row + 1e-8), jax.lax.rsqrt(col + 1e-8), fac_m]
            normed = _rms_norm(jnp.concatenate(features, axis=-1))
            times = jnp.broadcast_to(embedding, (*grad.shape, 11))
            output = _perceptron(layers, jnp.concatenate([normed, times], axis=-1))
            updates.append(-output[..., 0] * jnp.exp(output[..., 1] * 0.001) * 0.001)
            new["momentum"].append(m)
            new["rms"].append(r)
            new["factored"].append(factored)
        return _with_updates(grads, updates), new

    return optax.GradientTransformationExtraArgs(_initial, update)


def celo(theta: Any, num_steps: int) -> optax.GradientTransformationExtraArgs:
    network = theta["ff_mod_stack"]["~"]
    first = jnp.concatenate([network[f"w0__{i}"][0] for i in range(14)])
    layers = [(first, network["b0"][0])] + [(network[f"w{i}"][0], network[f"b{i}"][0]) for i in (1, 2)]

    def init(params: Any) -> dict[str, Any]:
        return _initial(params) | initial_schedule_state(theta, len(jax.tree.leaves(params)), num_steps)

    def update(grads: Any, state: Any, params: Any = None, *, value: Any, **extra: Any) -> tuple[Any, Any]:
        schedule, rates = schedule_step(theta, state, value, num_steps)
        new: dict[str, Any] = {**schedule, "momentum": [], "rms": [], "factored": []}
        updates = []
        for i, (raw, param) in enumerate(zip(jax.tree.leaves(grads), jax.tree.leaves(params), strict=True)):
            grad = jnp.clip(raw, -1000.0, 1000.0)
            m = _decayed(state["momentum"][i], grad, _DECAYS)
            r = _decayed(state["rms"][i], grad * grad, _SLOW)
            factored, row, col, scale = _factored(state["factored"][i], grad, _DECAYS)
            g, r_scale = grad[..., None], jax.lax.rsqrt(r + 1e-6)
            fac_m = m * scale if grad.ndim >= 2 else m * jax.lax.rsqrt(row)
            features = [g, jnp.clip(g, -0.1, 0.1), param[..., None], m, r, m * r_scale, r_scale, g * scale, g * r_scale]
            features += [row, col, jax.lax.rsqrt(row + 1e-8), jax.lax.rsqrt(col + 1e-8), fac_m]
            output = _perceptron(layers, _rms_norm(jnp.concatenate(features, axis=-1)))
            size = jnp.sqrt(jnp.mean(param * param) + 1e-9)
            updates.append(-output[..., 0] * size * jnp.exp(0.001 * output[..., 1]) * 0.001 * rates[i])
            new["momentum"].append(m)
            new["rms"].append(r)
            new["factored"].append(factored)
        return _with_updates(grads, updates), new

    return optax.GradientTransformationExtraArgs(init, update)


def mlp_lopt(theta: Any, num_steps: int) -> optax.GradientTransformationExtraArgs:
    layers = [(theta["mlp"]["~"][f"linear_{i}"]["w"], theta["mlp"]["~"][f"linear_{i}"]["b"]) for i in range(3)]

    def init(params: Any) -> dict[str, Any]:
        momentum = [jnp.zeros((*leaf.shape, len(_MLP_DECAYS))) for leaf in jax.tree.leaves(params)]
        return {"step": jnp.int32(0), "momentum": momentum}

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        embedding = step_embedding(state["step"])
        updates, momenta = [], []
        for old, grad, param in zip(state["momentum"], jax.tree.leaves(grads), jax.tree.leaves(params), strict=True):
            m = _decayed(old, grad, _MLP_DECAYS)
            normed = _rms_norm(jnp.concatenate([grad[..., None], param[..., None], m], axis=-1))
            times = jnp.broadcast_to(embedding, (*grad.shape, 11))
            output = _perceptron(layers, jnp.concatenate([normed, times], axis=-1))
            updates.append(-output[..., 0] * jnp.exp(output[..., 1] * 0.001) * 0.001)
            momenta.append(m)
        return _with_updates(grads, updates), {"step": state["step"] + 1, "momentum": momenta}

    return optax.GradientTransformationExtraArgs(init, update)


def l2o_dm(theta: Any, num_steps: int) -> optax.GradientTransformationExtraArgs:
    def cell(layer: Any, x: jax.Array, state: Any) -> Any:
        h, c = state
        i, j, f, o = jnp.split(jnp.concatenate([x, h], axis=1) @ layer["w_gates"] + layer["b_gates"], 4, axis=1)
        c = c * jax.nn.sigmoid(f + 1) + jax.nn.sigmoid(i) * jnp.tanh(j)
        return jnp.tanh(c) * jax.nn.sigmoid(o), c

    def init(params: Any) -> Any:
        return initial_state(sum(leaf.size for leaf in jax.tree.leaves(params)))

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        grad, unravel = ravel_pytree(grads)
        log = jnp.maximum(jnp.log(jnp.abs(grad) + np.finfo(np.float32).eps) / 5.0, -1.0)
        sign = jnp.clip(grad * np.float32(np.exp(5.0)), -1.0, 1.0)
        first = cell(theta["lstm_1"], jnp.stack([log, sign], axis=1), state[0])
        second = cell(theta["lstm_2"], first[0], state[1])
        output = second[0] @ theta["linear"]["w"] + theta["linear"]["b"]
        return unravel(0.01 * output[:, 0]), (first, second)

    return optax.GradientTransformationExtraArgs(init, update)
