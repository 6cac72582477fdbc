"""The example trainer: what its demonstration hopes for holds over meta-seeds."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import pytest


@pytest.fixture(scope="module")
def trainer(example):
    return example("meta_train")


def test_meta_training_learns(trainer):
    # Of seeds 0, 5 and 7 this one once ended in constant steps that kill every ReLU: the loss of a uniform guess, 0.83,
    # to the end.
    losses = [loss for _, loss in itertools.islice(trainer.meta_train(5, trainer.OUTER_STEPS), 41)]
    assert losses[0] > 0.7
    assert sum(losses[-10:]) / 10 < 0


def test_no_theta_is_better_by_a_uniform_guess_than_by_diverging(trainer):
    steps = trainer.INNER_STEPS
    guess, diverged = jnp.full(steps, 2.3025851), jnp.full(steps, jnp.nan)
    assert trainer.meta_loss(guess) == pytest.approx(float(trainer.meta_loss(diverged)), abs=1e-6)
    assert trainer.meta_loss(jnp.full(steps, 0.5)) < trainer.meta_loss(guess)
