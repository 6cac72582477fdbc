"""Schedules that look at losses, and replicas that share parameters, over phases and over a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from saved_worlds import BLOCK, Bowl, Counting, Regression, bits, case_of, program_of, states_in

from lobench.core.phases import Phase
from lobench.inner import schedules
from lobench.inner.task import Task

REPLICAS: list[dict[str, Any]] = [{}, *({"sessions": word, "num_lanes": 3} for word in ("shared", "synced", "mean"))]
IDS = ["apart", "shared", "synced", "mean"]


def reducing() -> optax.GradientTransformation:
    return optax.sgd(schedules.warmup(steps=3, then=schedules.plateau(rate=0.05, factor=0.5, patience=1, window=2)))


TASKS: list[Task] = [Regression("array"), Counting("positioned"), Regression("replayed"), Bowl()]


@pytest.mark.parametrize(("replicas", "task"), list(zip(REPLICAS, TASKS, strict=True)), ids=IDS)
def test_what_replicas_and_schedules_have_seen_is_saved_with_the_rest(
    tmp_path: Path, replicas: dict[str, Any], task: Task
) -> None:
    optimizer = reducing()
    phases = tuple(
        Phase(num_inner_steps=steps, optimizer=optimizer, opt_state="keep", schedule=word)
        for steps, word in ((13, "new"), (7, "continue"))
    )
    case = case_of(phases, save_every=1, **replicas)
    program = program_of(case, task)
    whole = bits(program.run({}, BLOCK))
    for step in (5, 16):
        folder = tmp_path / str(step)
        reached: list[int] = []
        stopped = program.run(
            {},
            BLOCK,
            saves=states_in(folder, case),
            on_progress=reached.append,
            should_stop=lambda step=step, reached=reached: reached[-1] >= step,
        )
        assert stopped is None and reached[-1] == step
        again = program.run({}, BLOCK, saves=states_in(folder, case))
        assert again is not None and again.resumed_at == step
        assert bits(again) == whole, f"after step {step}"


@pytest.mark.parametrize("replicas", REPLICAS[::2], ids=IDS[::2])
def test_two_phases_that_keep_all_are_one(replicas: dict[str, Any]) -> None:
    optimizer = optax.adam(schedules.plateau(rate=0.05, factor=0.5, patience=1, window=2))
    one = case_of((Phase(num_inner_steps=20, optimizer=optimizer),), **replicas)
    phases = (
        Phase(num_inner_steps=13, optimizer=optimizer),
        Phase(num_inner_steps=7, optimizer=optimizer, opt_state="keep", schedule="continue"),
    )
    two = program_of(case_of(phases, **replicas), Bowl()).run({}, BLOCK)
    assert bits(two) == bits(program_of(one, Bowl()).run({}, BLOCK))


class Slope(Task):
    """The loss is the parameter, whose gradient is 1: each update takes the rate off it."""

    def init(self, key: jax.Array) -> Any:
        return jnp.float32(0)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.asarray(params)


@pytest.mark.parametrize(
    ("word", "opt_state", "replicas"),
    [("new", "keep", 1), ("new", "reset", 2), ("continue", "keep", 2), ("continue", "reset", 1)],
)
def test_a_schedule_begins_anew_or_counts_on_whatever_becomes_of_the_state(
    word: str, opt_state: str, replicas: int
) -> None:
    optimizer = optax.sgd(schedules.linear(peak=1.0, final=0.0))
    phases = (
        Phase(num_inner_steps=3, optimizer=optimizer),
        Phase(num_inner_steps=5, optimizer=optimizer, opt_state=opt_state, schedule=word),
    )
    values = {"sessions": "shared", "num_lanes": replicas} if replicas > 1 else {}
    curves = program_of(case_of(phases, eval_every=1, log_every=0, **values), Slope()).run({}, BLOCK)
    assert curves is not None
    taken = -np.diff(np.asarray(curves.metrics["train/loss"])[0])
    first, second = (np.linspace(1, 0, steps * replicas) for steps in (3, 5))
    count = np.arange(3 * replicas, 8 * replicas)
    later = second if word == "new" else np.interp(count, np.arange(5 * replicas), second)
    wanted = np.concatenate([first, later]).reshape(-1, replicas).sum(1)
    np.testing.assert_allclose(taken, wanted, atol=1e-6)
