"""A training on the reference task, as traced code: what a test compares with the recorded curves."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from reference import batch_indices, digits, initial_params, reference_theta, relative_error

from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import L2ODM, AdafacMLPLOpt, Celo, MLPLOpt, RNNProp
from lobench.inner.theta import match_theta

__all__ = [
    "AS_USERS",
    "OPTIMIZERS",
    "assert_follows",
    "cross_entropy",
    "logits_of",
    "run_reference",
    "trained",
]

# Long trainings part from the recorded ones by what is rounded otherwise: they are compiled as users compile.
_FLAGS = os.environ.get("XLA_FLAGS", "")
_USERS: dict[str, bool | int] = {"xla_cpu_use_fusion_emitters": True, "xla_backend_optimization_level": 1}
AS_USERS = {name: value for name, value in _USERS.items() if name in _FLAGS}

# Optimizers by the name of their curves: what makes one, the checkpoint's file, real-valued settings.
OPTIMIZERS: dict[str, tuple[Callable[..., Any], str, dict[str, float]]] = {
    "dm": (L2ODM, "dm", {}),
    "dm_cl": (L2ODM, "dm_cl", {}),
    "rnnprop": (RNNProp, "rnnprop", {}),
    "celo": (Celo, "celo", {}),
    "mlp_lopt": (MLPLOpt, "mlp_lopt", {"step_mult": 0.001}),
    "mlp_lopt_x10": (MLPLOpt, "mlp_lopt", {"step_mult": 0.01}),
    "adafac_mlp_lopt": (AdafacMLPLOpt, "adafac_mlp_lopt", {"step_mult": 0.001}),
    "adafac_mlp_lopt_x10": (AdafacMLPLOpt, "adafac_mlp_lopt", {"step_mult": 0.01}),
    **{f"adam_{rate}": (optax.adam, "", {"learning_rate": rate}) for rate in (0.001, 0.003, 0.01)},
}


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


@functools.cache
def _program(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of (theta, settings, params, indices), which checkpoints and settings share, as in lobench."""

    @functools.partial(jax.jit, compiler_options=AS_USERS)
    def run(theta: Any, settings: dict[str, jax.Array], params: Any, indices: jax.Array) -> Any:
        made = make(**settings)
        return trained(made.opt_fn(theta, 500) if theta else made, params, indices)

    return run


def run_reference(name: str, seed: int, *, moved_by: float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns batch losses, full train losses every 25 steps and the final test loss.

    Args:
      name: Name of the optimizer among `OPTIMIZERS`.
      moved_by: Relative change of the initial parameters, as random as rounding errors.
    """
    make, file, settings = OPTIMIZERS[name]
    theta = match_theta(reference_theta(file), make(), where=file) if file else {}
    generator = np.random.default_rng(0)
    params = {
        name: (leaf * (1 + moved_by * generator.standard_normal(leaf.shape))).astype(np.float32)
        for name, leaf in initial_params(seed).items()
    }
    numbers = {setting: np.float32(value) for setting, value in settings.items()}
    losses, full, final = _program(make)(theta, numbers, params, batch_indices(seed))
    return np.asarray(losses), np.asarray(full), float(final)


def assert_follows(losses: np.ndarray, recorded: Any, name: str, seed: int) -> bool:
    """Asserts that a training has the recorded losses; returns whether it has them to its end.

    The curves were recorded on a processor with AVX-512. Others sum in another order, and a chaotic training (L2O-DM)
    takes another path then. There it may differ by ten times as much as it does from a training whose initial
    parameters differ by a rounding error.
    """
    error = relative_error(losses, recorded)
    if error[:200].max() < 1e-5 and error.max() < 1e-2:
        return True
    assert not _has_avx512(), f"relative error {error[:200].max():.1e} to step 200, {error.max():.1e} to the end"
    one, other = (run_reference(name, seed, moved_by=moved)[0] for moved in (0.0, 1e-7))
    chaos = np.maximum.accumulate(relative_error(other, one))
    assert error[0] < 1e-6 and chaos[:5].max() < 1e-4, "the first steps are not chaotic"
    allowed = np.maximum(10 * chaos, 1e-5)
    assert (np.maximum.accumulate(error) <= allowed).all(), "it differs by more than rounding errors explain"
    return False


def _has_avx512() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return not cpuinfo.exists() or "avx512f" in cpuinfo.read_text()
