"""Each learned optimizer follows its authors' own trajectories on the reference task."""

from __future__ import annotations

import numpy as np
import pytest
from reference import reference_curves, relative_error
from reference_training import OPTIMIZERS, assert_follows, run_reference


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_follows_the_reference(name: str, seed: int) -> None:
    reference = reference_curves()[name][seed]
    losses, full, final = run_reference(name, seed)
    error = relative_error(losses, reference["batch_loss"])
    print(f"{name} seed {seed}: relative error {error[:200].max():.1e} to step 200, {error.max():.1e} to the end")
    if not assert_follows(losses, reference["batch_loss"], name, seed):
        return  # its end is another one
    np.testing.assert_allclose(full, reference["train_loss_every25"], rtol=1e-2)
    np.testing.assert_allclose(final, reference["final_test_loss"], rtol=1e-2)
