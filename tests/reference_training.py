"""A training on the reference task, as traced code: what a test compares with the recorded curves."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from reference import digits

from lobench.inner.adapters import as_stepper

__all__ = ["AS_USERS", "cross_entropy", "logits_of", "trained"]

# Long trainings part from the recorded ones by what is rounded otherwise: they are compiled as users compile.
_FLAGS = os.environ.get("XLA_FLAGS", "")
_USERS: dict[str, bool | int] = {"xla_cpu_use_fusion_emitters": True, "xla_backend_optimization_level": 1}
AS_USERS = {name: value for name, value in _USERS.items() if name in _FLAGS}


def logits_of(params: Any, images: jax.Array) -> jax.Array:
    return jax.nn.relu(images @ params["w0"] + params["b0"]) @ params["w1"] + params["b1"]


def cross_entropy(params: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    log_softmax = jax.nn.log_softmax(logits_of(params, batch[0]))
    return -jnp.mean(jnp.take_along_axis(log_softmax, batch[1][:, None], axis=1))


def trained(
    optimizer: Any, params: Any, indices: jax.Array, loss_fn: Callable[..., jax.Array] = cross_entropy
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns batch losses, full train losses every 25 steps and the final test loss.

    Args:
      optimizer: Of a training of 500 steps, as lobench takes it.
      indices: int32[num_steps, 64]: the examples of each batch.
      loss_fn: (params, (images, labels)) -> float32[].
    """
    (images, labels), test = digits()
    stepper, key = as_stepper(optimizer, 500), jax.random.key(0)

    def step(carry: Any, index: jax.Array) -> Any:
        params, state = carry
        batch = (jnp.asarray(images)[index], jnp.asarray(labels)[index])
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        state, params, _ = stepper.step(state, params, None, grads, loss, key)
        return (params, state), loss

    def period(carry: Any, rows: jax.Array) -> Any:
        before = loss_fn(carry[0], (images, labels))
        carry, losses = jax.lax.scan(step, carry, rows)
        return carry, (before, losses)

    carry = (params, stepper.init(params, None, key))
    (params, _), (full, losses) = jax.lax.scan(period, carry, indices.reshape(-1, 25, 64))
    return losses.reshape(-1), jnp.append(full, loss_fn(params, (images, labels))), loss_fn(params, test)
