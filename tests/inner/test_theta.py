"""Theta is found in whatever holds it, and what is not theta is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from shown import texts_of

from lobench.core.errors import ThetaMismatch
from lobench.engine.checkpoints.files import content_of, flatten
from lobench.engine.checkpoints.readers import NpzReader
from lobench.inner.adapters import as_learned_optimizer
from lobench.inner.optimizer import LearnedOptimizer
from lobench.inner.optimizers.learnable import LearnableAdam, LearnableSGD
from lobench.inner.optimizers.mlp_lopt import MLPLOpt
from lobench.inner.theta import leaf_paths, match_theta

SHOWN = texts_of("inner")


class Affine(LearnedOptimizer):
    def init(self, key: jax.Array) -> Any:
        return {"mlp": {"w": jnp.zeros((2, 3)), "b": jnp.zeros(3)}}

    def opt_fn(self, theta: Any, num_steps: int | None = None) -> Any:
        raise NotImplementedError


class OfFlax(Affine):
    """flax's modules have a level of their own around everything."""

    def init(self, key: jax.Array) -> Any:
        return {"params": super().init(key)}


THETA = {"mlp": {"w": np.full((2, 3), 7.0, np.float32), "b": np.full(3, 7.0, np.float32)}}
OTHER = {"mlp": {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}}


def matched(tree: Mapping[str, Any], optimizer: LearnedOptimizer | None = None, part: str = "") -> list[float]:
    """Returns the sums of theta's leaves."""
    leaves = content_of(flatten(tree), "run/theta_3").leaves
    theta = match_theta(leaves, optimizer or Affine(), where="run/theta_3", part=part)
    return [float(np.sum(leaf)) for leaf in jax.tree.leaves(theta)]


MOMENTS = {"0": {"count": np.int32(4), "mu": OTHER, "nu": OTHER}, "1": {}}
HOLDS_THETA = {
    "theta alone": THETA,
    "wrapped": {"params": THETA, "step": np.int64(5)},
    "beside optimizer state": {"theta": THETA, "opt_state": MOMENTS, "step": np.int64(5)},
    "a train state": {"params": THETA, "opt_state": MOMENTS, "step": np.int64(5), "name": "run"},
    "flat, with a counter": {**THETA, "outer_step": np.int64(5)},
    "flat, with another counter": {**THETA, "iteration": np.int32(5), "generation": np.int32(1)},
    "deep": {"state": {"lopt": THETA, "rng": np.zeros(2, np.uint32)}, "config": {"rate": 0.1}},
    "a meta-optimizer's name": {"lopt": THETA, "meta_optimizer_state": MOMENTS},
    "theta and its mean": {"theta": THETA, "ema": OTHER, "opt_state": MOMENTS},
    "of a trainer": {"gradient_learner_state": {"theta_opt_state": {"params": THETA, "optax_opt_state": MOMENTS}}},
    "orbax items": {"default": THETA, "ema": OTHER},
}


@pytest.mark.parametrize("name", HOLDS_THETA)
def test_theta_is_found_where_it_is(name: str) -> None:
    assert matched(HOLDS_THETA[name]) == [21.0, 42.0]
    assert matched(HOLDS_THETA[name], OfFlax()) == [21.0, 42.0]


def test_what_flax_saves_is_flaxs_theta() -> None:
    assert matched({"params": THETA}, OfFlax()) == [21.0, 42.0]
    assert matched({"params": {"params": THETA}, "opt_state": {"mu": {"params": OTHER}}}, OfFlax()) == [21.0, 42.0]


def test_between_two_the_user_decides() -> None:
    two = {"first": THETA, "second": {"lopt": OTHER}, "step": np.int64(5)}
    with pytest.raises(ThetaMismatch, match=SHOWN["several-parts-fit-affine-got"]):
        matched(two)
    assert matched(two, part="first") == matched(two, part="first/") == [21.0, 42.0]
    assert matched(two, part="second") == matched(two, part="second/lopt") == [0.0, 0.0]
    assert matched(HOLDS_THETA["beside optimizer state"], part="opt_state/0/nu") == [0.0, 0.0]
    with pytest.raises(ThetaMismatch, match=SHOWN["there-is-no-third-got"]):
        matched(two, part="third")


def test_another_optimizers_theta_is_not_taken_for_the_part_that_fits() -> None:
    more = {"log_lr": np.float32(0), "one_minus_beta1": np.float32(0)}
    with pytest.raises(ThetaMismatch, match=SHOWN["one-minus-beta1-float32-is"]):
        matched(more, LearnableSGD())
    with pytest.raises(ThetaMismatch, match=SHOWN["theta-at-lopt-does-not"]):
        matched({"lopt": {"mlp": {"w": THETA["mlp"]["w"]}}, "opt_state": {"count": np.int32(0)}})


def leaves_of(optimizer: LearnedOptimizer) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf) for path, leaf in leaf_paths(optimizer.init(jax.random.key(0))).items()}


def test_the_error_names_the_optimizers_that_would_fit() -> None:
    inside = {f"state/{path}": leaf for path, leaf in leaves_of(LearnableAdam()).items()}
    for leaves in (leaves_of(LearnableAdam()), inside):
        with pytest.raises(ThetaMismatch, match=SHOWN["does-not-fit-mlplopt-it"]):
            match_theta(leaves, MLPLOpt(), where="run/theta_3")
    with pytest.raises(ThetaMismatch, match=SHOWN["it-has-the-leaves-of"]):
        match_theta(leaves_of(MLPLOpt(hidden_size=5)), LearnableSGD(), where="run/theta_3")
    with pytest.raises(ThetaMismatch, match=SHOWN["is-it-a-checkpoint-of"]):
        match_theta({"nobodys": np.zeros(3)}, LearnableSGD(), where="run/theta_3")


def test_optimizer_whose_theta_hangs_on_an_object_is_named_for_the_object_that_it_has_now() -> None:
    sizes = iter(range(1, 5))

    class Task:
        def __init__(self) -> None:
            self.size = next(sizes)

        def __repr__(self) -> str:
            return "Task()"

    class StartOfTask(Affine):
        def __init__(self) -> None:
            self.task = Task()

        def init(self, key: jax.Array) -> Any:
            return {f"start_of_task_{self.task.size}": jnp.zeros(())}

    for size in range(1, 5):
        with pytest.raises(ThetaMismatch, match="StartOfTask"):
            match_theta({f"start_of_task_{size}": np.zeros(())}, LearnableSGD(), where="run/theta_3")


def test_a_foreign_optimizer_is_named_as_its_author_named_it() -> None:
    class TheirLOpt:
        def init(self, key: Any) -> Any:
            return {"rate": jnp.zeros(())}

        def opt_fn(self, theta: Any, is_training: bool = False) -> Any:
            raise NotImplementedError

    with pytest.raises(ThetaMismatch, match=SHOWN["does-not-fit-theirlopt-rate"]):
        match_theta({"w": np.zeros(3)}, as_learned_optimizer(TheirLOpt()), where="run/theta_3")


def test_counters_beside_flat_leaves_say_the_step_and_are_no_part_of_theta(tmp_path: Any) -> None:
    digests = set()
    for step in (5, 6):
        np.savez(tmp_path / f"{step}.npz", outer_step=step, note="text", **flatten(THETA))
        content = NpzReader().read(epath.Path(tmp_path / f"{step}.npz"))
        assert (content.outer_step, set(content.leaves)) == (step, {"mlp/w", "mlp/b"})
        digests.add(content.leaves["mlp/w"].tobytes())
    assert len(digests) == 1
    kept = content_of({"w": np.zeros(3), "step": np.float32(0.1)}, "x")  # a rate may have any name
    assert (set(kept.leaves), kept.outer_step) == ({"w", "step"}, None)
