"""Tests that run once for each checkpoint. Replace `evaluated` by yours; any framework will do."""

import json
import random
from pathlib import Path

import pytest


def evaluated(checkpoint: Path, noise: float) -> float:
    weights = json.loads((checkpoint / "weights.json").read_text())
    return float(weights["w"] ** 2 + noise * random.random())


@pytest.mark.lobench(num_seeds=2)
def test_loss(checkpoint, record):
    for seed in range(2):
        random.seed(seed)
        loss = evaluated(checkpoint.path, noise=0.01)
        record("valid/loss", loss, seed=seed)
        assert loss < 1.0


def test_weights_are_finite(checkpoint):
    weights = json.loads((checkpoint.path / "weights.json").read_text())
    assert abs(weights["w"]) < float("inf")
