"""A member's fitness does not hang on how many share its program, nor on who they are."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lobench_evolve.members import MemberProgram
from lobench_evolve.settings import Evolve
from lobench_evolve.weights import Weights, key_of
from shown import texts_of

from lobench import Case, ConfigError, Task
from lobench.inner.optimizers import AdafacMLPLOpt, LearnableAdam
from lobench.inner.tasks import DigitsMLP

SHOWN = texts_of("evolve")

OPTIMIZER = AdafacMLPLOpt(step_mult=0.01)
SEEDS = [7, 7, 8, 9]


WEIGHTS = Weights(OPTIMIZER, {"nn/~/w2": 0.1})


@functools.cache
def program() -> MemberProgram:
    task = DigitsMLP(hidden_sizes=(), batch_size=16)
    case = Case(task=task, learned_optimizer=OPTIMIZER, num_inner_steps=5, num_seeds=1)
    return MemberProgram(case, "here", Evolve(), WEIGHTS)


def test_the_width_of_a_program_changes_the_last_bits_alone() -> None:
    found = program()
    thetas = jnp.stack([WEIGHTS.init(key_of(index)) for index in range(4)])
    together = found.run(thetas, SEEDS)
    alone = [found.run(thetas[i : i + 1], SEEDS[i : i + 1])[0] for i in range(4)]
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    assert len(set(together.tolist())) == 4


def test_a_member_that_diverges_changes_no_bit_of_its_neighbours() -> None:
    found = program()
    thetas = jnp.stack([WEIGHTS.init(key_of(index)) for index in range(4)])
    before = found.run(thetas, SEEDS)
    after = found.run(thetas.at[2].set(jnp.inf), SEEDS)
    assert np.array_equal(np.delete(before, 2), np.delete(after, 2))
    assert after[2] == pytest.approx(-5.0, abs=2.6)  # losses count as 5 from where they are not finite


def test_low_losses_count_as_they_are() -> None:
    """Only what is above the clip counts as the clip: a loss may be as negative as a log-likelihood."""

    class Low(Task):
        def init(self, key: jax.Array) -> jax.Array:
            return jnp.zeros(3)

        def loss(self, params: jax.Array, key: jax.Array, data: None) -> jax.Array:
            return jnp.sum((params - 1) ** 2) - 100

    optimizer = LearnableAdam(initial_lr=0.0)
    weights = Weights(optimizer, {})
    case = Case(task=Low(), learned_optimizer=optimizer, num_inner_steps=2, num_seeds=1)
    (fitness,) = MemberProgram(case, "here", Evolve(), weights).run(weights.init(key_of(0))[None], [0])
    assert fitness == pytest.approx(97.0)


def test_a_final_loss_needs_a_case_that_evaluates() -> None:
    case = Case(task=DigitsMLP(hidden_sizes=()), learned_optimizer=OPTIMIZER, eval_batches=0)
    with pytest.raises(ConfigError, match=SHOWN["case-eval-batches-0-evaluates"]):
        MemberProgram(case, "here", Evolve(fitness="final"), WEIGHTS)


def test_sessions_that_share_parameters_are_refused() -> None:
    task = DigitsMLP(hidden_sizes=())
    case = Case(task=task, learned_optimizer=OPTIMIZER, sessions="shared", num_lanes=2)
    with pytest.raises(ConfigError, match=SHOWN["case-sessions-shared-an-evolution"]):
        MemberProgram(case, "here", Evolve(), WEIGHTS)
