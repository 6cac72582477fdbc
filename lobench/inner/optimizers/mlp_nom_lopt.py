"""MLPNomLOpt: AdafacMLPLOpt's network beside a nominal step, Adam's say, and weight decay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.optimizers.adafac_mlp_lopt import NARROW, adafac_features, shifted_decays
from lobench.inner.optimizers.factored import FactoredMoments
from lobench.inner.optimizers.features import decayed, dense, laid_out, restored, step_embedding, weighted_sum

__all__ = ["MLPNomLOpt"]

Estimator = Literal["SGD", "SGDM", "AggMo", "Adam", "AdamAggMo"]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)
_RMS = np.asarray([0.999], np.float32)
_NUM_FEATURES = 39
_NUM_EMBEDDED = 11
_NUM_OUTPUTS = 4  # direction, magnitude, and the controls of the nominal step and of the weight decay


@configurable
class MLPNomLOpt(LearnedOptimizer):
    """A black box beside a nominal optimizer: parameters step by the sum of both.

    Args:
      exp_mult: Scales of the log magnitudes of the black box, of the nominal step and of the weight decay.
      step_mult: Scale of the black box's step.
      hidden_size: Width of both hidden layers.
      nominal_stepsize, weight_decay: Rates of what stands beside the black box.
      nominal_controller, regularization_controller: Whether the network scales them.
      nominal_grad_estimator: What the nominal step follows: SGD the gradient, SGDM the slowest momentum, AggMo the mean
        of the momenta, Adam and AdamAggMo the same of momenta over the root of the second moment.
      aggregate_magnitude, aggregate_nom_magnitude: Whether a tensor's parameters share the mean of an output.
      normalize_blackbox: Whether the black box's step is over the root of the second moment.
      selfnormalize_blackbox: Whether it is times the tensor's mean gradient.
    Source: Harrison et al. 2022 (arXiv 2209.11208).
    """

    def __init__(
        self,
        exp_mult: Sequence[float] = (0.001, 0.001, 0.001),
        step_mult: float = 0.001,
        hidden_size: int = 4,
        nominal_stepsize: float = 0.0,
        weight_decay: float = 0.0,
        nominal_controller: bool = False,
        regularization_controller: bool = False,
        nominal_grad_estimator: Estimator = "AdamAggMo",
        aggregate_magnitude: bool = False,
        aggregate_nom_magnitude: bool = False,
        normalize_blackbox: bool = False,
        selfnormalize_blackbox: bool = False,
    ) -> None:
        if nominal_grad_estimator not in _ESTIMATORS:
            raise ConfigError(
                "MLPNomLOpt.nominal_grad_estimator is unknown",
                got=repr(nominal_grad_estimator),
                expected=", ".join(_ESTIMATORS),
            )
        self._exp_mult, self._step_mult, self._hidden_size = tuple(exp_mult), step_mult, hidden_size
        self._stepsize, self._weight_decay = nominal_stepsize, weight_decay
        self._is_nominal_scaled, self._is_decay_scaled = nominal_controller, regularization_controller
        self._estimator = nominal_grad_estimator
        self._shares_magnitude, self._shares_nominal = aggregate_magnitude, aggregate_nom_magnitude
        self._is_normalized, self._is_self_normalized = normalize_blackbox, selfnormalize_blackbox

    def init(self, key: jax.Array) -> Theta:
        """Returns zero decay shifts and a network with scaled normal weights and zero biases."""
        sizes = [_NUM_FEATURES, self._hidden_size, self._hidden_size, _NUM_OUTPUTS]
        network: dict[str, jax.Array] = {}
        for layer, layer_key in enumerate(jax.random.split(key, 3)):
            shape = (sizes[layer], sizes[layer + 1])
            network[f"w{layer}"] = jax.random.truncated_normal(layer_key, -2, 2, shape) / np.sqrt(sizes[layer])
            network[f"b{layer}"] = jnp.zeros(shape[1:])
        shifts = {"momentum_decays": jnp.zeros(3), "rms_decays": jnp.zeros(1), "adafactor_decays": jnp.zeros(3)}
        return {**shifts, "nn": {"~": network}}

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        momentum_decays = shifted_decays(_DECAYS, theta["momentum_decays"])
        rms_decays = jnp.clip(shifted_decays(_RMS, theta["rms_decays"]), 0.0, 1.0)
        factored_decays = jnp.clip(shifted_decays(_DECAYS, theta["adafactor_decays"]), 0.0, 1.0)
        network = theta["nn"]["~"]
        wide = jnp.concatenate([network["w0"][: NARROW.start], network["w0"][NARROW.stop : -_NUM_EMBEDDED]])
        narrow, of_step = network["w0"][NARROW], network["w0"][-_NUM_EMBEDDED:]

        def init(params: PyTree) -> dict[str, Any]:
            leaves = [laid_out(leaf) for leaf in jax.tree.leaves(params)]
            return {
                "step": jnp.int32(0),
                "momentum": [jnp.zeros((len(_DECAYS), *leaf.shape)) for leaf in leaves],
                "rms": [jnp.zeros((1, *leaf.shape)) for leaf in leaves],
                "factored": FactoredMoments([leaf.shape for leaf in leaves]).init(len(_DECAYS)),
            }

        def update(
            grads: PyTree, state: dict[str, Any], params: PyTree = None, **extra: Any
        ) -> tuple[PyTree, dict[str, Any]]:
            bias = step_embedding(state["step"]) @ of_step + network["b0"]
            leaves = [_wide(leaf) for leaf in jax.tree.leaves(grads)]
            moments = FactoredMoments([leaf.shape for leaf in leaves])
            factored_state, factored = moments.update(state["factored"], leaves, factored_decays, narrow)
            updates, momenta, squares = [], [], []
            for index, (grad, leaf) in enumerate(zip(leaves, jax.tree.leaves(params), strict=True)):
                p = _wide(leaf)
                m = decayed(state["momentum"][index], grad, momentum_decays)
                r = decayed(state["rms"][index], grad * grad, rms_decays)
                features = adafac_features(grad, p, m, r, factored.scales[index], factored.full[index])
                first = weighted_sum(features, wide, factored.sums[index])
                step = self._step(_outputs(network, first, bias), grad, p, m, r)
                updates.append(restored(-step, jnp.shape(leaf)))
                momenta.append(m)
                squares.append(r)
            new_state = {"step": state["step"] + 1, "momentum": momenta, "rms": squares, "factored": factored_state}
            return jax.tree.unflatten(jax.tree.structure(grads), updates), new_state

        return optax.GradientTransformationExtraArgs(init, update)

    def _step(self, outputs: list[jax.Array], grad: jax.Array, p: jax.Array, m: jax.Array, r: jax.Array) -> jax.Array:
        """Returns what is subtracted from one tensor."""
        direction, magnitude, nominal, decay = outputs
        if self._shares_magnitude:
            magnitude = jnp.mean(magnitude)
        step = direction * jnp.exp(magnitude * self._exp_mult[0]) * self._step_mult
        if self._is_normalized:
            step = step * jax.lax.rsqrt(r[0] + 1e-6)
        if self._is_self_normalized:
            step = step * jnp.mean(grad)
        if self._weight_decay:
            scale = jnp.exp(decay * self._exp_mult[2]) if self._is_decay_scaled else 1.0
            step = step + self._weight_decay * scale * p
        if self._stepsize:
            if not self._is_nominal_scaled:
                nominal = jnp.ones(())
            elif self._shares_nominal:
                nominal = jnp.mean(nominal)
            followed = _ESTIMATORS[self._estimator](grad, m, r)
            step = step + self._stepsize * jnp.exp(nominal * self._exp_mult[1]) * followed
        return step


_ESTIMATORS: dict[str, Callable[[jax.Array, jax.Array, jax.Array], jax.Array]] = {
    "SGD": lambda grad, m, r: grad,
    "SGDM": lambda grad, m, r: m[-1],
    "AggMo": lambda grad, m, r: jnp.mean(m, axis=0),
    "Adam": lambda grad, m, r: (m * jax.lax.rsqrt(r + 1e-6))[-1],
    "AdamAggMo": lambda grad, m, r: jnp.mean(m * jax.lax.rsqrt(r + 1e-6), axis=0),
}


def _outputs(network: dict[str, jax.Array], first: list[jax.Array], bias: jax.Array) -> list[jax.Array]:
    """Returns the network's outputs of one tensor, given the first layer's sums; what is not used is not computed."""
    hidden = [jax.nn.relu(value + bias[unit]) for unit, value in enumerate(first)]
    hidden = [jax.nn.relu(value) for value in dense(hidden, network["w1"], network["b1"])]
    return dense(hidden, network["w2"], network["b2"])


def _wide(leaf: jax.Array) -> jax.Array:
    return laid_out(leaf).astype(jnp.float32)
