"""The gradient reference of `examples/evolve/maml.py` on goals."""

from __future__ import annotations

import dataclasses
import runpy
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from lobench_evolve.tasks import PointGoals
from reference import ROOT

KEY = jax.random.key(3)
MAML = runpy.run_path(str(ROOT / "examples" / "evolve" / "maml.py"))["Maml"]


def settings(**changes: Any) -> Any:
    family = PointGoals(num_episodes=2, num_moves=2, hidden_sizes=())
    return MAML(**{"family": family, "inner_steps": 2, "inner_rate": 1.0, "num_tasks": 40_000, **changes})


def test_with_the_score_term_the_gradient_is_that_of_the_loss_after_adaptation() -> None:
    """Against finite differences under common random numbers; without the term it is another."""
    maml = settings()
    theta = {"w0": jnp.zeros((2, 2)), "b0": jnp.array([0.8, 0.2]), "log_std": jnp.full(2, -0.5)}

    def gradient(maml: Any) -> jax.Array:
        found: jax.Array = jax.jit(jax.grad(maml.surrogate, has_aux=True))(theta, KEY)[0]["b0"]
        return found

    value = jax.jit(lambda b0: maml.surrogate({**theta, "b0": b0}, KEY)[1])
    step = jnp.array([0.05, 0.0])
    slope = float(value(theta["b0"] + step) - value(theta["b0"] - step)) / 0.1
    whole, fixed = (float(gradient(dataclasses.replace(maml, score_term=term))[0]) for term in (True, False))
    assert whole == pytest.approx(slope, abs=0.008)
    assert abs(fixed - slope) > 0.02
