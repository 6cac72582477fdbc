"""What a phase takes over from the one before: parameters always, an optimizer's state and its schedules as asked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from saved_worlds import program_of
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.phases import Phase
from lobench.inner.optimizers import adam, sgd
from lobench.inner.schedules import linear
from lobench.inner.task import Task

SHOWN = texts_of("inner")

BLOCK = SeedBlock(start=0, size=1)


class Line(Task):
    """loss = params, whose gradient is 1: what SGD takes off at a step is its rate."""

    def init(self, key: jax.Array) -> Any:
        return jnp.float32(0.0)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.asarray(params)


def taken(*phases: Phase) -> list[float]:
    """Returns what each step took off the parameters."""
    total = sum(phase.num_inner_steps or 0 for phase in phases)
    case = Case(num_inner_steps=total, phases=phases, eval_every=1, eval_batches=1)
    curves = program_of(case, Line(), 1).run({}, BLOCK)
    assert curves is not None
    return [round(float(step), 4) for step in -np.diff(np.asarray(curves.metrics["train/loss"])[0])]


def phase(optimizer: Any, steps: int, opt_state: str = "keep", schedule: str = "new") -> Phase:
    return Phase(num_inner_steps=steps, optimizer=optimizer, opt_state=opt_state, schedule=schedule)


FALLING = [4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize("opt_state", ["keep", "reset"])
def test_a_new_schedule_begins_with_its_phase_and_runs_over_it(opt_state: str) -> None:
    fall = sgd(linear(4.0, 1.0))
    assert taken(phase(fall, 4), phase(fall, 2, opt_state)) == [*FALLING, 4.0, 1.0]


@pytest.mark.parametrize("opt_state", ["keep", "reset"])
def test_a_schedule_that_continues_counts_on_and_has_ended(opt_state: str) -> None:
    fall = sgd(linear(4.0, 1.0))
    assert taken(phase(fall, 4), phase(fall, 3, opt_state, "continue")) == [*FALLING, 1.0, 1.0, 1.0]


def test_a_constant_rate_becomes_a_schedule_and_back_over_a_state_that_is_kept() -> None:
    fall, half = sgd(linear(4.0, 1.0)), sgd(0.5)
    assert taken(phase(half, 2), phase(fall, 4), phase(half, 2)) == [0.5, 0.5, *FALLING, 0.5, 0.5]


def test_moments_are_kept_or_made_anew() -> None:
    """Momentum 0.5 on a gradient of 1 climbs to 2; a new state begins at 1."""
    climbs = optax.sgd(1.0, momentum=0.5)
    assert taken(phase(climbs, 3), phase(climbs, 2)) == [1.0, 1.5, 1.75, 1.875, 1.9375]
    assert taken(phase(climbs, 3), phase(climbs, 2, "reset")) == [1.0, 1.5, 1.75, 1.0, 1.5]


def test_a_state_that_does_not_fit_is_refused_in_a_line_that_names_the_phase() -> None:
    with pytest.raises(ConfigError, match=SHOWN["case-phase-2-of-2"]) as caught:
        taken(phase(adam(0.1), 2), phase(optax.sgd(0.1, momentum=0.9), 2))
    assert SHOWN["bind-phase-opt-state-reset"] in str(caught.value) and "\n" not in str(caught.value)
    assert len(taken(phase(adam(0.1), 2), phase(optax.sgd(0.1, momentum=0.9), 2, "reset"))) == 4
