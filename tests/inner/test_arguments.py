"""Settings as arguments of a program: what compiles, what does not, and what falls back to a constant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lobench.core.case import Case, SeedBlock, UnboundDefault
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper
from lobench.inner.task import Task
from lobench.inner.training.train import TrainingProgram

BLOCK = SeedBlock(start=0, size=2)
USUAL = (0.5, 0.5)


class Bowl(Task):
    """loss = |x|^2 / 2: its gradient is x."""

    def __init__(self, dtype: Any = jnp.float32) -> None:
        self._dtype = dtype

    def init(self, key: jax.Array) -> Any:
        return jnp.linspace(0.5, 2.0, 4, dtype=self._dtype)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(jnp.asarray(params, jnp.float32) ** 2) / 2


def program(rule: Callable[..., Any], num_settings: int = 2, task: Task | None = None, **case: Any) -> TrainingProgram:
    values = {"num_inner_steps": 5, "eval_every": 5, **case}
    make = lambda theta, *settings: as_stepper(rule(*settings), values["num_inner_steps"])  # noqa: E731
    return TrainingProgram(Case(**values), task or Bowl(), make, BLOCK.size, USUAL[:num_settings])


def losses(curves: Curves | None) -> np.ndarray:
    assert curves is not None
    return np.asarray(curves.metrics["train/loss"])


def run(one: TrainingProgram, *settings: float) -> np.ndarray:
    return losses(one.run({}, BLOCK, settings=settings))


def momentum(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=decay)


def asks_whether_decay(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.chain(optax.sgd(rate), *([optax.scale(1 - decay)] if decay else []))


def takes_the_number(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=float(decay))


def computes_with_numpy(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum=1 - np.exp(np.log(1 - decay)))


def looks_at_the_type(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.chain(optax.sgd(rate), optax.scale(1 - decay) if isinstance(decay, float) else optax.identity())


def looks_it_up(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.sgd(rate, momentum={decay: decay}[decay])


def does_not_read_it(rate: Any, decay: Any) -> optax.GradientTransformation:
    return optax.sgd(rate)


def refuses(rate: Any, decay: Any) -> optax.GradientTransformation:
    if not 0 <= decay < 1:
        raise ValueError(f"decay = {decay}")
    return optax.sgd(rate, momentum=decay)


FALL_BACK = [
    asks_whether_decay,
    takes_the_number,
    computes_with_numpy,
    looks_at_the_type,
    looks_it_up,
    does_not_read_it,
    refuses,
]


def test_other_values_compile_nothing_and_train_as_their_own_optimizer_does(compiled: list[float]) -> None:
    one = program(momentum)
    run(one, 0.1, 0.9)
    compiled.clear()
    for rate, decay in [(0.2, 0.9), (0.05, 0.0), (0.2, 0.5)]:
        found = run(one, rate, decay)
        assert not compiled
        alone = program(lambda rate=rate, decay=decay: momentum(rate, decay), 0)
        np.testing.assert_allclose(found, run(alone), rtol=1e-6)
        compiled.clear()


@pytest.mark.parametrize("rule", FALL_BACK)
def test_a_setting_that_cannot_be_an_argument_is_a_constant_and_the_other_stays_one(
    rule: Callable[..., Any], compiled: list[float]
) -> None:
    one = program(rule)
    run(one, 0.1, 0.5)
    compiled.clear()
    run(one, 0.3, 0.5)
    assert not compiled, "the rate is an argument"
    for rate, decay in [(0.3, 0.25), *([(0.3, 0.0)] if rule is asks_whether_decay else [])]:
        found = run(one, rate, decay)
        alone = program(lambda rate=rate, decay=decay, rule=rule: rule(rate, decay), 0)
        np.testing.assert_allclose(found, run(alone), rtol=1e-6)


@pytest.mark.parametrize("rule", [momentum, *FALL_BACK])
def test_bits_hang_on_the_settings_and_not_on_what_was_trained_before(rule: Callable[..., Any]) -> None:
    settings = [(0.1, 0.0), (0.3, 0.5), (0.3, 0.0)]
    forth, back = program(rule), program(rule)
    found = {each: run(forth, *each).tobytes() for each in settings}
    assert {each: run(back, *each).tobytes() for each in reversed(settings)} == found
    assert len(set(found.values())) >= 2


def test_where_all_fall_back_it_is_the_program_of_before() -> None:
    def asks(rate: Any, decay: Any) -> optax.GradientTransformation:
        return optax.sgd(float(rate), momentum=float(decay))

    assert run(program(asks), 0.1, 0.9).tobytes() == run(program(lambda: momentum(0.1, 0.9), 0)).tobytes()


def test_a_constant_under_which_the_others_cannot_be_traced_makes_all_constant(compiled: list[float]) -> None:
    def odd(rate: Any, decay: Any) -> optax.GradientTransformation:
        return optax.sgd(float(rate) if float(decay) == 0.75 else rate)

    one = program(odd)
    run(one, 0.1, 0.5)
    for rate in (0.1, 0.2):
        np.testing.assert_allclose(run(one, rate, 0.75), run(program(lambda rate=rate: optax.sgd(rate), 0)), rtol=1e-6)
    compiled.clear()
    run(one, 0.3, 0.5)
    assert not compiled, "with the other constant the rate is an argument"


def test_a_choice_of_arguments_traces_the_evaluation_of_the_task_once() -> None:
    class Counting(Bowl):
        num_evals = 0

        def eval_loss_with_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
            self.num_evals += 1
            return super().eval_loss_with_aux(params, state, key, data)

    task = Counting()
    one = TrainingProgram(
        Case(num_inner_steps=5, eval_every=5),
        task,
        lambda theta, *settings: as_stepper(asks_whether_decay(*settings), 5),
        BLOCK.size,
        USUAL,
    )
    run(one, UnboundDefault(0.1), UnboundDefault(0.5))
    assert task.num_evals == 1


def test_several_thetas_share_the_settings() -> None:
    def rule(theta: Any, rate: Any) -> Any:
        return as_stepper(optax.sgd(theta * rate), 5)

    one = TrainingProgram(Case(num_inner_steps=5, eval_every=5), Bowl(), rule, BLOCK.size, (0.5,))
    thetas = [np.float32(1.0), np.float32(2.0), np.float32(0.5)]
    found = one.run_many(thetas, BLOCK, settings=(0.1,))
    assert found is not None
    for theta, curves in zip(thetas, found, strict=True):
        np.testing.assert_allclose(losses(curves), losses(one.run(theta, BLOCK, settings=(0.1,))), rtol=1e-6)


def test_a_setting_takes_the_type_of_what_it_is_multiplied_with() -> None:
    seen: set[Any] = set()

    def rule(rate: Any) -> optax.GradientTransformation:
        def update(grads: Any, state: Any, params: Any = None) -> Any:
            seen.add((rate * grads).dtype)
            return -rate * grads, state

        return optax.GradientTransformation(lambda params: (), update)

    run(program(rule, 1, Bowl(jnp.bfloat16)), 0.1)
    assert seen == {jnp.dtype(jnp.bfloat16)}


def test_an_optimizer_that_fails_says_its_own_error() -> None:
    def fails(rate: Any, decay: Any) -> Any:
        raise ZeroDivisionError("of its own")

    with pytest.raises(ZeroDivisionError, match="of its own"):
        run(program(fails), 0.1, 0.9)


def test_few_constants_are_kept(compiled: list[float]) -> None:
    one = program(takes_the_number)
    decays: Sequence[float] = [decay / 20 for decay in range(10)]
    for decay in decays:
        run(one, 0.1, decay)
    compiled.clear()
    run(one, 0.2, decays[-1])
    assert not compiled
    run(one, 0.2, decays[0])
    assert len(compiled) == 1
