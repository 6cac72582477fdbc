"""The verdict on a training, from what its steps showed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from shown import texts_of

from lobench.tools.debug.diagnosis import (
    DiagnosedStep,
    NonFiniteLeaf,
    Training,
    diagnose,
    first_unusual_input,
    smoothed_losses,
)

SHOWN = texts_of("debug")


def step(number: int, loss: float, **values: object) -> DiagnosedStep:
    sizes = {"weights": {"a": 1.0, "b": 1.0, "c": 1.0}, "updates": {"a": 0.01, "b": 0.01, "c": 0.01}}
    return DiagnosedStep(step=number, loss=loss, **{**sizes, **values})  # type: ignore[arg-type]


def training(*steps: DiagnosedStep, **values: object) -> Training:
    dtypes = dict.fromkeys("abc", "float32")
    return Training(**{"steps": steps, "dtypes": dtypes, "num_inner_steps": len(steps), **values})  # type: ignore[arg-type]


def falling(count: int, **values: object) -> list[DiagnosedStep]:
    return [step(number, 2.0 * 0.9**number, **values) for number in range(count)]


def test_a_training_without_trouble_says_so() -> None:
    found = diagnose(training(*falling(40)))
    assert found.kind == "none" and found.step is None
    assert found.line.startswith(SHOWN["no-trouble-found-the-loss"])


def test_the_first_value_that_is_not_finite_is_named_in_the_order_of_the_step() -> None:
    bad = (
        NonFiniteLeaf(location="optimizer_state", leaf="nu/a", num_nan=3, num_inf=0, size=8),
        NonFiniteLeaf(location="output", leaf="a", num_nan=8, num_inf=0, size=8),
    )
    steps = [*falling(10), step(10, 0.7, non_finite_leaves=bad), step(11, math.nan)]
    found = diagnose(training(*steps))
    assert (found.kind, found.place, found.leaf, found.step, found.onset) == (
        "non_finite",
        "optimizer_state",
        "nu/a",
        10,
        9,
    )
    assert SHOWN["in-the-optimizer-s-state"] in found.line
    assert found.facts == (SHOWN["also-at-step-10-the"],)


def test_who_ran_away_before_is_to_blame_and_not_the_overflow() -> None:
    updates = {"a": 0.01, "b": 9.0, "c": 0.01}
    bad = (NonFiniteLeaf(location="loss", leaf="", num_nan=0, num_inf=1, size=1),)
    steps = [
        *falling(10),
        step(10, 5e3, updates=updates),
        step(11, 1e30, updates=updates),
        step(12, math.inf, non_finite_leaves=bad),
    ]
    steps[9] = dataclasses.replace(steps[9], updates=updates)
    found = diagnose(training(*steps))
    assert (found.kind, found.leaf, found.step, found.onset) == ("one_layer", "b", 10, 9)
    assert SHOWN["updates-of-b-are-too"] in found.line
    assert SHOWN["first-value-that-is-not"] in found.facts[0]


def test_one_odd_batch_is_no_trouble_and_a_loss_that_stays_up_is() -> None:
    steps = falling(60)
    steps[40] = step(40, 3.0)
    assert diagnose(training(*steps)).kind == "none"
    high = [step(number, 1.0, updates=dict.fromkeys("abc", 2.0)) for number in range(40, 60)]
    found = diagnose(training(*steps[:40], *high))
    assert (found.kind, found.step, found.onset) == ("all_layers", 40, 39)


def test_a_loss_that_rises_without_large_updates_is_the_tasks_doing() -> None:
    small = dict.fromkeys("abc", 0.0001)
    steps = [*falling(40, updates=small), *[step(number, 2.0, updates=small) for number in range(40, 60)]]
    found = diagnose(training(*steps))
    assert (found.kind, found.leaf, found.step, found.onset) == ("jump", "", 40, 39)
    assert SHOWN["task-or-its-data-changed"] in found.line


def test_layers_that_learn_nothing() -> None:
    dead = diagnose(training(*falling(20, zero_fractions={"a": 0.2, "b": 1.0})))
    assert (dead.kind, dead.leaf, dead.step) == ("dead_layer", "b", 0)
    low = {"a": "float32", "b": "bfloat16", "c": "float32"}
    assert diagnose(training(*falling(20, zero_fractions={"b": 1.0}), dtypes=low)).kind == "underflow"
    lost = diagnose(training(*falling(20, unmoved_fractions={"b": 0.97}), dtypes=low))
    assert lost.kind == "lost_updates" and SHOWN["of-the-weights-do-not"] in lost.line
    frozen = diagnose(training(*falling(20, unmoved_fractions={"b": 1.0}, updates={"a": 0.1, "b": 0.0, "c": 0.1})))
    assert (frozen.kind, frozen.leaf) == ("frozen", "b")
    tiny = diagnose(training(*falling(20, updates=dict.fromkeys("abc", 1e-09))))
    assert tiny.kind == "tiny_updates"
    late = [*falling(20), *falling(10, zero_fractions={"b": 1.0})]
    assert diagnose(training(*late)).kind != "dead_layer"  # a third of the training is not most of it


def test_a_stall_and_a_loss_that_is_below_zero() -> None:
    found = diagnose(training(*[step(number, max(2.0 - 0.1 * number, 1.5)) for number in range(40)]))
    assert (found.kind, found.step) == ("stall", pytest.approx(5, abs=2))
    below = [step(number, -1.0 - number / 10) for number in range(40)]
    assert diagnose(training(*below)).kind in ("none", "stall")
    assert diagnose(training(step(0, 1.0))).kind == "none"
    assert SHOWN["losses-are-not-known"] in diagnose(training(*[step(number, math.nan) for number in range(9)])).line


def test_an_input_that_leaves_its_range_is_named_with_its_step() -> None:
    usual = {"w[2]": (np.asarray([0.0, -1.0], np.float32), np.asarray([1.0, 1.0], np.float32))}
    inside = {"w[2]": (np.asarray([0.1, -1.05], np.float32), np.asarray([1.0, 1.0], np.float32))}
    beyond = {"w[2]": (np.asarray([0.1, -7.0], np.float32), np.asarray([1.0, 1.0], np.float32))}
    steps = [*falling(5, input_ranges=inside), step(5, 1.0, input_ranges=beyond)]
    found = first_unusual_input(training(*steps, usual_ranges=usual))
    assert found is not None and found[0] == 5
    assert found[1] == SHOWN["at-step-5-input-1"]
    assert (
        first_unusual_input(training(*steps)) is None
        and first_unusual_input(training(*steps[:5], usual_ranges=usual)) is None
    )


def test_means_are_of_the_last_few_values() -> None:
    assert smoothed_losses([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert smoothed_losses([float(value) for value in range(60)])[:4].tolist() == [0.0, 0.5, 1.0, 2.0]
