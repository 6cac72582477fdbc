"""Celo: a per-parameter MLP whose learning rate for each tensor comes from an LSTM that sees loss and progress."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.optimizers.factored import FactoredMoments
from lobench.inner.optimizers.features import decayed, dense, laid_out, restored, weighted_sum

__all__ = ["Celo"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)
_RMS = np.asarray([0.999], np.float32)
_PROGRESS = np.asarray([0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1], np.float32)
_BLOCKS = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)  # channels of each block of features
_NARROW = slice(15, 27)  # rows of the first layer for the factored moments
_NUM_LOSS_DECAYS = 10
_LSTM = 64
_INPUTS = 18


@configurable
class Celo(LearnedOptimizer):
    """Celo, with its one set of per-parameter networks.

    Source: Moudgil et al. 2025 (arXiv 2501.12670).
    """

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases, in the structure of the published checkpoint."""
        keys = iter(jax.random.split(key, 32))

        def weights(*shape: int) -> jax.Array:
            return jax.random.normal(next(keys), shape) / np.sqrt(shape[-2])

        def linear(inputs: int, outputs: int) -> dict[str, jax.Array]:
            return {"w": weights(inputs, outputs), "b": jnp.zeros(outputs)}

        network = {f"w0__{index}": weights(1, channels, 4) for index, channels in enumerate(_BLOCKS)}
        network |= {"w1": weights(1, 4, 4), "w2": weights(1, 4, 3)}
        network |= {"b0": jnp.zeros((1, 4)), "b1": jnp.zeros((1, 4)), "b2": jnp.zeros((1, 3))}
        recurrent = {name: linear(_INPUTS, _LSTM) for name in ("linear", "linear_1", "linear_2")}
        recurrent["rnn/linear"] = linear(2 * _LSTM, 4 * _LSTM)
        recurrent |= {name: linear(_LSTM, 1) for name in ("rnn_to_controls", "step_size")}
        return {
            "ff_mod_stack": {"~": network},
            "lstm_init_state": {"hidden": jnp.zeros((1, _LSTM)), "cell": jnp.zeros((1, _LSTM))},
            "rnn_params": recurrent,
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        if num_steps is None:
            raise ConfigError("Celo schedules by the length of training", got="None", expected="num_steps >= 1")
        horizon = num_steps
        network = theta["ff_mod_stack"]["~"]
        weights = jnp.concatenate([network[f"w0__{index}"][0] for index in range(len(_BLOCKS))])
        wide = jnp.concatenate([weights[: _NARROW.start], weights[_NARROW.stop :]])

        def init(params: PyTree) -> dict[str, Any]:
            leaves = [laid_out(leaf) for leaf in jax.tree.leaves(params)]
            recurrent = theta["lstm_init_state"]
            return {
                "step": jnp.int32(0),
                "loss_means": jnp.zeros(_NUM_LOSS_DECAYS),
                "loss_minima": jnp.full(_NUM_LOSS_DECAYS, 999999999999.0),
                "h": jnp.tile(recurrent["hidden"], (len(leaves), 1)),
                "c": jnp.tile(recurrent["cell"], (len(leaves), 1)),
                "momentum": [jnp.zeros((3, *leaf.shape)) for leaf in leaves],
                "rms": [jnp.zeros((1, *leaf.shape)) for leaf in leaves],
                "factored": FactoredMoments([leaf.shape for leaf in leaves]).init(3),
            }

        def update(
            grads: PyTree, state: dict[str, Any], params: PyTree = None, *, value: jax.Array, **extra: Any
        ) -> tuple[PyTree, dict[str, Any]]:
            means, minima, of_loss = loss_features(state, value, horizon)
            h, c, rates = tensor_rates(theta["rnn_params"], state, of_loss, horizon)
            leaves = [jnp.clip(laid_out(leaf), -1000.0, 1000.0) for leaf in jax.tree.leaves(grads)]
            moments = FactoredMoments([leaf.shape for leaf in leaves])
            factored_state, factored = moments.update(state["factored"], leaves, jnp.asarray(_DECAYS), weights[_NARROW])
            updates, momenta, squares = [], [], []
            for index, (grad, p) in enumerate(zip(leaves, jax.tree.leaves(params), strict=True)):
                param = laid_out(p)
                m = decayed(state["momentum"][index], grad, jnp.asarray(_DECAYS))
                r = decayed(state["rms"][index], grad * grad, jnp.asarray(_RMS))
                features = _features(grad, param, m, r, factored.scales[index], factored.full[index])
                first = weighted_sum(features, wide, factored.sums[index])
                direction, magnitude = _network(network, first)
                scale = jnp.sqrt(jnp.mean(param * param) + 1e-9)
                step = direction * scale * jnp.exp(0.001 * magnitude) * 0.001 * rates[index]
                updates.append(restored(-step, jnp.shape(p)))
                momenta.append(m)
                squares.append(r)
            new_state = {
                "step": state["step"] + 1,
                "loss_means": means,
                "loss_minima": minima,
                "h": h,
                "c": c,
                "momentum": momenta,
                "rms": squares,
                "factored": factored_state,
            }
            return jax.tree.unflatten(jax.tree.structure(grads), updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)


def loss_features(state: dict[str, Any], loss: jax.Array, horizon: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the new means and minima of the loss buffer, and nine features of how fast the loss falls."""
    halflives = np.logspace(1, np.log10(horizon), _NUM_LOSS_DECAYS)
    d = jnp.asarray(np.exp(-1.0 / halflives), jnp.float32)
    t = state["step"]
    correction = 1 - d ** (t + 1).astype(jnp.float32)
    highest = jnp.max(state["loss_means"] / correction)
    clipped = jnp.minimum(2 * jnp.abs(jnp.where(t == 0, loss, highest)), loss)
    means = d * state["loss_means"] + (1 - d) * clipped
    corrected = means / correction
    minima = jnp.minimum(state["loss_minima"], corrected)
    rise = (corrected[:-1] - minima[:-1]) / jnp.maximum(1e-8, corrected[1:] - minima[:-1])
    features = jnp.clip(rise - 1, -1.0, 1.0)
    return means, minima, jnp.where(t + 1 <= 2, 0.0, features)


def tensor_rates(
    theta: dict[str, dict[str, jax.Array]], state: dict[str, Any], of_loss: jax.Array, horizon: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the LSTM's new h and c, float32[num_tensors, 64], and the learning rates, float32[num_tensors]."""
    progress = jnp.tanh(10 * (state["step"].astype(jnp.float32) / horizon - _PROGRESS))
    inputs = jnp.concatenate([progress, of_loss])
    h, c = state["h"], state["c"]
    x = jnp.tile(inputs[None], (h.shape[0], 1))
    common = jnp.max(jax.nn.relu(_linear(theta["linear_1"], x)), axis=0, keepdims=True)
    x = _linear(theta["linear_2"], x) + common
    i, g, f, o = jnp.split(_linear(theta["rnn/linear"], jnp.concatenate([x, h], axis=1)), 4, axis=1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return h, c, 0.1 * jnp.exp(_linear(theta["step_size"], h)[:, 0])


def _features(
    grad: jax.Array,
    param: jax.Array,
    m: jax.Array,
    r: jax.Array,
    scale: tuple[jax.Array, jax.Array],
    full: jax.Array | None,
) -> list[jax.Array]:
    """Returns the features of one tensor that have its shape."""
    r_scale = jax.lax.rsqrt(r + 1e-6)
    return [
        grad[None],
        jnp.clip(grad, -0.1, 0.1)[None],
        param[None],
        m,
        r,
        m * r_scale,
        r_scale,
        grad[None] * scale[0] * scale[1],
        grad[None] * r_scale,
        m * scale[0] * scale[1] if full is None else m * jax.lax.rsqrt(full),
    ]


def _network(theta: dict[str, jax.Array], first: list[jax.Array]) -> list[jax.Array]:
    """Returns direction and magnitude of one tensor's step, given the first layer's sums."""
    hidden = [jax.nn.relu(value + theta["b0"][0, unit]) for unit, value in enumerate(first)]
    hidden = [jax.nn.relu(value) for value in dense(hidden, theta["w1"][0], theta["b1"][0])]
    return dense(hidden, theta["w2"][0, :, :2], theta["b2"][0, :2])


def _linear(theta: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ theta["w"] + theta["b"]
