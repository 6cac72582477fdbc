"""Where the reference data lie, and the reference task as they define it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def reference_data() -> Path:
    """Returns the folder of reference data, which every checkout holds; its NOTICE.md says whose they are."""
    return ROOT / "tests" / "data" / "reference"


def reference_curves() -> dict[str, list[dict[str, Any]]]:
    return json.loads((reference_data() / "reference_curves.json").read_text())


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns (images, labels) of train and test."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target.astype(np.int32)
    order = np.random.default_rng(12345).permutation(1797)
    train, test = order[:1437], order[1437:]
    return (images[train], labels[train]), (images[test], labels[test])


def initial_params(seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    w0 = generator.standard_normal((64, 32)) * np.sqrt(2 / 64)
    w1 = generator.standard_normal((32, 10)) * np.sqrt(1 / 32)
    zeros = {"b0": np.zeros(32, np.float32), "b1": np.zeros(10, np.float32)}
    return {"w0": w0.astype(np.float32), "w1": w1.astype(np.float32), **zeros}


def batch_indices(seed: int, num_steps: int = 500) -> np.ndarray:
    generator = np.random.default_rng(1000 + seed)
    return np.stack([generator.integers(0, 1437, 64) for _ in range(num_steps)])


def relative_error(losses: Any, recorded: Any) -> np.ndarray:
    """Returns the relative error of each loss, beyond what the record's own rounding can have done.

    The curves are recorded to seven decimals: a loss of .0015 is known to 3e-5 of itself and no better. (L2O-DM, which
    goes that low, agrees in every recorded digit; another order of summation in its products is 100% off by step 60.)
    """
    expected = np.asarray(recorded)
    return np.maximum(np.abs(np.asarray(losses, np.float64) - expected) - 0.5e-7, 0) / expected
