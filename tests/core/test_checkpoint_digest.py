"""The digest of a theta: one for each theta, whatever lies beside it, and never one for two."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from lobench.core.checkpoint import OWN_BINDINGS, leaves_sha256, theta_digests, theta_sha256

THETA = {"nn/w": np.ones((2, 3), np.float32), "nn/b": np.zeros(3, np.float32)}
OTHER = {"nn/w": np.full((2, 3), 2.0, np.float32), "nn/b": np.zeros(3, np.float32)}


def below(place: str, leaves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{place}/{path}": leaf for path, leaf in leaves.items()}


@pytest.mark.parametrize(
    "leaves",
    [
        below("theta", THETA),
        below("theta/params", THETA),
        below("params", THETA) | {"step": np.int32(3)},
        below("theta", THETA) | {"step": np.int64(3), "opt/count": np.int32(7)},
        below("theta", THETA) | below("opt_state/0/mu", OTHER) | below("opt_state/0/nu", OTHER),
        below("state/theta", THETA) | {"state/outer_step": np.int32(1), "rng": np.zeros(2, np.uint32)},
        below("params", THETA) | below("outer_opt_state/mu", OTHER),
        {path: leaf.astype(ml_dtypes.bfloat16) for path, leaf in THETA.items()},
    ],
)
def test_digest_of_one_theta_is_one_whatever_lies_around_it(leaves: dict[str, np.ndarray]) -> None:
    assert theta_sha256(leaves) == theta_sha256(THETA) == leaves_sha256(THETA)
    assert theta_sha256(THETA) in theta_digests(leaves)


@pytest.mark.parametrize(
    "beside",
    [
        below("ema", THETA),  # `Checkpoint.theta` may bind it
        below("opt_state/ema", THETA),
        {"log_lr": np.float32(1.0)},
        below("lopt", OTHER),
    ],
)
@pytest.mark.parametrize("name", ["theta", "params"])
def test_digest_tells_apart_what_may_be_part_of_theta(beside: dict[str, np.ndarray], name: str) -> None:
    changed = {path: leaf + np.float32(1.0) for path, leaf in beside.items()}
    assert theta_sha256(below(name, THETA) | beside) != theta_sha256(below(name, THETA) | changed)


def test_digest_tells_apart_values_names_and_carried_bindings() -> None:
    bound = THETA | {OWN_BINDINGS: np.frombuffer(b"x.y = 1", np.uint8)}
    renamed = {path.upper(): leaf for path, leaf in THETA.items()}
    assert len({*map(theta_sha256, (THETA, OTHER, bound, renamed, below("a/theta", THETA) | THETA))}) == 5


def test_digest_of_a_name_deep_in_theta_covers_all_leaves() -> None:
    leaves = below("mlp/params", THETA) | {"attention/state/w": np.ones(2, np.float32)}
    changed = leaves | {"attention/state/w": np.zeros(2, np.float32)}
    assert theta_sha256(leaves) != theta_sha256(changed)
