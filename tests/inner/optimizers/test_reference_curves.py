"""Each learned optimizer follows its authors' own trajectories on the reference task."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import batch_indices, initial_params, reference_curves, reference_theta, relative_error
from reference_training import AS_USERS, trained

from lobench.inner.optimizers import L2ODM, AdafacMLPLOpt, Celo, MLPLOpt, RNNProp
from lobench.inner.theta import match_theta

LEARNED = {
    "dm": ("dm", L2ODM()),
    "dm_cl": ("dm_cl", L2ODM()),
    "rnnprop": ("rnnprop", RNNProp()),
    "celo": ("celo", Celo()),
    "mlp_lopt": ("mlp_lopt", MLPLOpt()),
    "mlp_lopt_x10": ("mlp_lopt", MLPLOpt(step_mult=0.01)),
    "adafac_mlp_lopt": ("adafac_mlp_lopt", AdafacMLPLOpt()),
    "adafac_mlp_lopt_x10": ("adafac_mlp_lopt", AdafacMLPLOpt(step_mult=0.01)),
}


def train(optimizer: Any, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns batch losses, full train losses every 25 steps and the final test loss."""
    run = jax.jit(lambda params, indices: trained(optimizer, params, indices), compiler_options=AS_USERS)
    losses, full, final = run(initial_params(seed), batch_indices(seed))
    return np.asarray(losses), np.asarray(full), float(final)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [*LEARNED, "adam_0.001", "adam_0.003", "adam_0.01"])
def test_follows_the_reference(name: str, seed: int) -> None:
    reference = reference_curves()[name][seed]
    if name in LEARNED:
        file, learned = LEARNED[name]
        theta = jax.tree.map(jnp.asarray, match_theta(reference_theta(file), learned, where=file))
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
