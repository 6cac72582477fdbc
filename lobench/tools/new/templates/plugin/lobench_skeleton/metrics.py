"""A metric: one value per seed, computed by the worker from an evaluation's curves, and stored with them."""

import numpy as np


def skeleton(curves):
    """Returns the last training loss over the first; NaN for seeds that diverged."""
    losses = np.asarray(curves.metrics["train/loss"])  # float32[num_seeds, num_evals]
    return {"skeleton/ratio": losses[:, -1] / losses[:, 0]}
