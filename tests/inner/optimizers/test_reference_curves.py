"""Each learned optimizer follows its authors' own trajectories on the reference task."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import batch_indices, digits, initial_params, reference_curves, reference_data, relative_error

from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import L2ODM, AdafacMLPLOpt, Celo, MLPLOpt, RNNProp
from lobench.inner.theta import match_theta

LEARNED = {
    "dm": ("dm.npz", L2ODM()),
    "dm_cl": ("dm_cl.npz", L2ODM()),
    "rnnprop": ("rnnprop.npz", RNNProp()),
    "celo": ("celo.msgpack", Celo()),
    "mlp_lopt": ("mlp_lopt.npz", MLPLOpt()),
    "mlp_lopt_x10": ("mlp_lopt.npz", MLPLOpt(step_mult=0.01)),
    "adafac_mlp_lopt": ("adafac_mlp_lopt.npz", AdafacMLPLOpt()),
    "adafac_mlp_lopt_x10": ("adafac_mlp_lopt.npz", AdafacMLPLOpt(step_mult=0.01)),
}


def leaves_of(path: Any) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return dict(np.load(path))
    from flax.serialization import msgpack_restore
    from flax.traverse_util import flatten_dict

    return flatten_dict(msgpack_restore(path.read_bytes()), sep="/")


def loss_fn(params: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    hidden = jax.nn.relu(batch[0] @ params["w0"] + params["b0"])
    logits = hidden @ params["w1"] + params["b1"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), batch[1][:, None], axis=1))


def train(optimizer: Any, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns batch losses, full train losses every 25 steps and the final test loss."""
    (images, labels), test = digits()
    stepper = as_stepper(optimizer, 500)

    @jax.jit
    def run(params: Any, indices: jax.Array) -> Any:
        key = jax.random.key(0)

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
        (params, _), (full, losses) = jax.lax.scan(period, carry, indices.reshape(20, 25, 64))
        last = loss_fn(params, (images, labels))
        return losses.reshape(-1), jnp.append(full, last), loss_fn(params, test)

    losses, full, final = run(initial_params(seed), batch_indices(seed))
    return np.asarray(losses), np.asarray(full), float(final)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [*LEARNED, "adam_0.001", "adam_0.003", "adam_0.01"])
def test_follows_the_reference(name: str, seed: int) -> None:
    reference = reference_curves()[name][seed]
    if name in LEARNED:
        file, learned = LEARNED[name]
        leaves = leaves_of(reference_data() / "checkpoints" / file)
        theta = jax.tree.map(jnp.asarray, match_theta(leaves, learned, where=file))
        optimizer = learned.opt_fn(theta, 500)
    else:
        optimizer = optax.adam(float(name.removeprefix("adam_")))
    losses, full, final = train(optimizer, seed)
    error = relative_error(losses, reference["batch_loss"])
    print(f"{name} seed {seed}: relative error {error[:200].max():.1e} to step 200, {error.max():.1e} to the end")
    assert error[:200].max() < 1e-5
    assert error.max() < 1e-2
    np.testing.assert_allclose(full, reference["train_loss_every25"], rtol=1e-2)
    np.testing.assert_allclose(final, reference["final_test_loss"], rtol=1e-2)
