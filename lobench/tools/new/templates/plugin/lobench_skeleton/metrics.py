"""A metric: a value a seed, computed from an evaluation's curves where it ran, and stored and shown with it."""

import numpy as np


def skeleton(curves):
    """Returns the last training loss over the first; NaN for seeds that diverged."""
    losses = np.asarray(curves.metrics["train/loss"])  # float32[num_seeds, num_evals]
    return {"skeleton/ratio": losses[:, -1] / losses[:, 0]}
