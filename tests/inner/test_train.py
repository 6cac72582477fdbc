"""The inner program: known answers, and what must not change a bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
from lobench.inner.optimizer import TransformationWithEvalParams
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, Task, TaskFamily
from lobench.inner.training.recorder import eval_steps
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

BLOCK = SeedBlock(start=0, size=3)


class Line(Task):
    """loss = |params|, from 1 down: SGD of rate r takes r off at each step."""

    def init(self, key: jax.Array) -> Any:
        return jnp.float32(1.0)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.asarray(params)


def run(task: Any, optimizer: Any = None, block: SeedBlock = BLOCK, theta: Any = None, **values: Any) -> Curves:
    case = Case(**{"num_inner_steps": 10, "eval_every": 4, **values})
    optimizer = optimizer if optimizer is not None else optax.sgd(0.25)
    make = optimizer if theta is not None else (lambda _: optimizer)
    program = TrainingProgram(case, task, lambda theta: as_stepper(make(theta), case.num_inner_steps), block.size)
    curves = program.run(theta if theta is not None else {}, block)
    assert curves is not None
    return curves


def test_evaluations_are_at_zero_every_so_often_and_at_the_end() -> None:
    assert eval_steps(10, 4) == [0, 4, 8, 10]
    assert eval_steps(8, 4) == [0, 4, 8]
    assert eval_steps(3, 100) == [0, 3]
    curves = run(Line(), log_every=3)
    assert curves.metrics["train/loss"].tolist() == [[1.0, 0.0, -1.0, -1.5]] * 3
    assert (curves.log_steps, curves.metrics["batch/loss"].tolist()[0]) == ((0, 3, 6, 9), [1.0, 0.25, -0.5, -1.25])
    assert curves.eval_steps == (0, 4, 8, 10) and curves.num_params == 1


class Unseen(Line):
    """Says more of a training batch than its loss; whoever evaluates it, or opens its other splits, fails."""

    def __init__(self) -> None:
        def opened(seed: int) -> Iterator[np.ndarray]:
            raise AssertionError("a split was opened that nothing reads")

        self.datasets = Datasets(train=IteratorDataset(counting()), test=IteratorDataset(opened))

    def loss_with_state_and_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        return params, state, {"batch_is": data, "halves": jnp.stack([params, params]) / 2, "loss": jnp.float32(7)}

    def eval_loss_with_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        raise AssertionError("an evaluation was traced")


def test_without_evaluations_the_last_batches_stand_for_them_and_nothing_is_evaluated() -> None:
    curves = run(Unseen(), eval_batches=0)
    assert curves.metrics.keys() == {"train/loss", "train/batch_is", "train/halves"}
    assert curves.eval_steps == (0, 4, 8, 10)
    # The batches 0, 0-3, 4-7 and 6-9, each before its update.
    assert curves.metrics["train/loss"].tolist() == [[1.0, 0.625, -0.375, -0.875]] * 3
    assert curves.metrics["train/halves"].tolist()[0] == [0.5, 0.3125, -0.1875, -0.4375]
    assert curves.metrics["train/batch_is"].tolist() == [[s + 0.0, s + 1.5, s + 5.5, s + 7.5] for s in range(3)]


@pytest.mark.parametrize(("eval_every", "log_every"), [(4, 3), (3, 1), (1, 4), (100, 10)])
def test_how_often_it_logs_and_what_stands_for_evaluations_are_apart(eval_every: int, log_every: int) -> None:
    curves = run(Unseen(), eval_batches=0, eval_every=eval_every, log_every=log_every)
    batches = [1 - 0.25 * step for step in range(10)]
    assert curves.log_steps == tuple(range(0, 10, log_every))
    assert curves.metrics["batch/loss"].tolist()[1] == batches[::log_every]
    assert curves.metrics["batch/batch_is"].tolist()[1] == [float(1 + step) for step in range(0, 10, log_every)]
    means = [np.mean(batches[max(step - eval_every, 0) : step] or batches[0]) for step in curves.eval_steps]
    np.testing.assert_allclose(curves.metrics["train/loss"].tolist()[1], means, rtol=1e-6)


@pytest.mark.parametrize(("eval_every", "log_every"), [(150, 1), (150, 7), (50, 64), (150, 149), (70, 1)])
def test_a_log_is_whole_where_evaluations_are_far_apart(eval_every: int, log_every: int) -> None:
    curves = run(Line(), num_inner_steps=150, eval_every=eval_every, log_every=log_every)
    assert curves.log_steps == tuple(range(0, 150, log_every))
    assert curves.metrics["batch/loss"].tolist() == [[1 - 0.25 * step for step in range(0, 150, log_every)]] * 3


@pytest.mark.parametrize("log_every", [0, 1])
def test_a_loss_that_breaks_is_seen_without_evaluations(log_every: int) -> None:
    curves = run(Explodes(), optax.sgd(1.0), eval_batches=0, log_every=log_every)
    assert curves.diverged_at == (5, 5, 5)
    assert np.isnan(np.asarray(curves.metrics["train/loss"])).tolist() == [[False, False, True, True]] * 3


def test_all_that_a_task_says_of_a_training_batch_is_logged() -> None:
    before, after = run(Noisy(), num_inner_steps=30), run(Noisy(), num_inner_steps=30, log_every=1, eval_every=1)
    assert before.metrics.keys() == {"train/loss", "test/loss"}
    assert after.metrics.keys() == {"train/loss", "test/loss", "batch/loss"}
    learned = as_learned_optimizer(ForeignLearnedOptimizer())
    curves = run(as_task(ForeignTask()), lambda theta: learned.opt_fn(theta, 10), theta={"rate": 0.25}, log_every=5)
    assert curves.metrics["batch/state"].tolist()[0] == [0.0, 5.0]
    assert curves.metrics["batch/normalized_loss"].tolist()[0] == [2.0, -0.5]


class Noisy(Task):
    def __init__(self) -> None:
        self.datasets = Datasets(
            train=ArrayDataset(np.arange(20, dtype=np.float32), 4), test=ArrayDataset(np.ones(3), 2)
        )

    def init(self, key: jax.Array) -> Any:
        return jax.random.uniform(key, (2,), minval=-1.0)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.mean((params[0] * data - params[1]) ** 2) / 100


def test_the_length_of_the_calls_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    from lobench.inner.training import loop, prefetch

    for metrics, eval_batches in (({"train/loss", "test/loss"}, 5), ({"train/loss"}, 0)):
        case = Case(num_inner_steps=83, eval_every=4, eval_batches=eval_batches)
        program = TrainingProgram(case, Noisy(), lambda _: as_stepper(optax.sgd(0.25), 83), BLOCK.size)
        reached: dict[int, list[int]] = {}
        found = []
        for chunk in (83, 1, 7, 25):
            monkeypatch.setattr(loop, "FIRST_CHUNK", chunk)
            monkeypatch.setattr(prefetch, "_CHUNK_SECONDS", 0.0)
            curves = program.run({}, BLOCK, on_progress=reached.setdefault(chunk, []).append)
            assert curves is not None and curves.metrics.keys() == metrics
            found.append({name: values.tobytes() for name, values in curves.metrics.items()})
        assert found[1:] == 3 * found[:1] and len({tuple(steps) for steps in reached.values()}) == 4


def test_seeds_start_where_they_start_in_any_block() -> None:
    all_seeds = run(Noisy(), block=SeedBlock(start=0, size=4)).metrics["train/loss"].tolist()
    last_two = run(Noisy(), block=SeedBlock(start=2, size=2)).metrics["train/loss"].tolist()
    np.testing.assert_allclose(all_seeds[2:], last_two, rtol=1e-5)
    assert len({row[0] for row in all_seeds}) == 4


class Explodes(Line):
    """The loss of seed 1 and later is infinite from step 5 on."""

    def init(self, key: jax.Array) -> Any:
        return jnp.zeros(2)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.where(params[1] < -4.5, jnp.inf, params[1])


def test_the_first_step_that_is_not_finite_is_recorded_and_nan_from_there() -> None:
    curves = run(Explodes(), optax.sgd(1.0))
    assert curves.diverged_at == (5, 5, 5)
    assert np.isnan(np.asarray(curves.metrics["train/loss"])).tolist() == [[False, False, True, True]] * 3


class Shifts(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return jax.random.normal(key)

    def task_fn(self, cfg: Any) -> Task:
        class Shift(Line):
            def init(self, key: jax.Array) -> Any:
                return cfg

        return Shift()


def test_task_i_of_a_family_is_the_same_whatever_their_number() -> None:
    means = [run(Shifts(), num_tasks=n).metrics["train/loss"].tolist()[0][0] for n in (1, 2, 3)]
    first, second, third = means[0], 2 * means[1] - means[0], 3 * means[2] - 2 * means[1]
    again = run(Shifts(), num_tasks=3, block=SeedBlock(start=7, size=1)).metrics["train/loss"].tolist()[0][0]
    assert len({first, second, third}) == 3
    assert again == pytest.approx(means[2])


def counting(limit: int | None = None) -> Any:
    def batches(seed: int) -> Iterator[np.ndarray]:
        numbers = itertools.count() if limit is None else range(limit)
        return (np.float32(seed + number) for number in numbers)

    return batches


class Fed(Line):
    """The loss is the batch, so that the log shows what was fed."""

    def __init__(self, limit: int | None = None) -> None:
        self.datasets = Datasets(train=IteratorDataset(counting(limit)))

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return data + 0 * params


def test_batches_of_an_iterator_come_in_order_and_once() -> None:
    curves = run(Fed(), num_inner_steps=120, log_every=1)
    for seed in BLOCK.seeds:
        assert curves.metrics["batch/loss"].tolist()[seed] == [float(seed + n) for n in range(120)]


def test_an_iterator_that_ends_early_is_an_error() -> None:
    with pytest.raises(ConfigError, match=SHOWN["ended-early-got-20-batches"]):
        run(Fed(60), num_inner_steps=120)


def test_an_averaging_optimizer_is_evaluated_where_it_says() -> None:
    sgd = optax.with_extra_args_support(optax.sgd(0.25))
    shifted = TransformationWithEvalParams(sgd.init, sgd.update, lambda state, params: params + 100)
    assert run(Line(), shifted).metrics["train/loss"].tolist()[0] == [101.0, 100.0, 99.0, 98.5]


def test_one_program_serves_every_theta() -> None:
    case = Case(num_inner_steps=4, eval_every=4)
    program = TrainingProgram(case, Line(), lambda rate: as_stepper(optax.sgd(rate), 4), 1)
    block = SeedBlock(start=0, size=1)
    first, second = (program.run(np.float32(rate), block) for rate in (0.5, 0.25))
    assert first is not None and second is not None
    assert first.final("train/loss") == [-1.0] and second.final("train/loss") == [0.0]
    assert first.compile_seconds > 0 and second.compile_seconds == 0


@pytest.mark.parametrize(("eval_batches", "num_seeds"), [(5, 2), (0, 1)])
def test_many_thetas_train_in_one_program_and_each_as_if_alone(eval_batches: int, num_seeds: int) -> None:
    case = Case(num_inner_steps=30, eval_every=10, log_every=1, eval_batches=eval_batches)
    rates = [np.float32(rate) for rate in (0.1, 0.2, np.nan, 0.3)]
    program = TrainingProgram(case, Noisy(), lambda rate: as_stepper(optax.sgd(rate), 30), num_seeds)
    block = SeedBlock(start=0, size=num_seeds)
    together = program.run_many(rates, block)
    assert together is not None and len(together) == 4
    for rate, curves in zip(rates, together, strict=True):
        alone = program.run(rate, block)
        assert alone is not None and alone.diverged_at == curves.diverged_at
        assert curves.metrics.keys() == {"train/loss", "batch/loss", *(["test/loss"] if eval_batches else [])}
        for name in curves.metrics:
            np.testing.assert_allclose(curves.metrics[name], alone.metrics[name], rtol=1e-5, atol=1e-6)
        assert curves.num_params == alone.num_params


def test_a_run_can_be_stopped_between_chunks() -> None:
    program = TrainingProgram(Case(num_inner_steps=100_000), Line(), lambda _: as_stepper(optax.sgd(0.1), 100_000), 1)
    steps: list[int] = []
    stopped = program.run({}, SeedBlock(start=0, size=1), on_progress=steps.append, should_stop=lambda: len(steps) == 2)
    assert stopped is None and len(steps) == 2


# Stand-ins in the shape of google/learned_optimization.


class ForeignOptimizer:
    def init(self, params: Any, model_state: Any = None, num_steps: int | None = None, key: Any = None) -> Any:
        assert num_steps == 10
        return (params, model_state, 0)

    def update(
        self, opt_state: Any, grad: Any, loss: Any, model_state: Any = None, is_valid: Any = False, key: Any = None
    ) -> Any:
        params, _, count = opt_state
        return (jax.tree.map(lambda p, g: p - 0.25 * g, params, grad), model_state, count + 1)

    def get_params(self, opt_state: Any) -> Any:
        return opt_state[0]

    def get_state(self, opt_state: Any) -> Any:
        return opt_state[1]


class ForeignLearnedOptimizer:
    def init(self, key: Any) -> Any:
        return {"rate": jnp.float32(0.25)}

    def opt_fn(self, theta: Any, is_training: bool = False) -> Any:
        return ForeignOptimizer()


class ForeignTask:
    datasets = None

    def init_with_state(self, key: Any) -> Any:
        return jnp.float32(1.0), jnp.int32(0)

    def loss_with_state_and_aux(self, params: Any, state: Any, key: Any, data: Any) -> Any:
        return params, state + 1, {"state": state.astype(jnp.float32)}

    def normalizer(self, loss: Any) -> Any:
        return 2 * loss


class ForeignFamily:
    datasets = None

    def sample(self, key: Any) -> Any:
        return jnp.float32(0)

    def task_fn(self, cfg: Any) -> Any:
        return ForeignTask()


@pytest.mark.parametrize("task", [ForeignTask(), ForeignFamily()])
def test_foreign_tasks_and_optimizers_train_as_ours_do(task: Any) -> None:
    learned = as_learned_optimizer(ForeignLearnedOptimizer())
    curves = run(as_task(task), lambda theta: learned.opt_fn(theta, 10), theta=learned.init(jax.random.key(0)))
    assert curves.metrics["train/loss"].tolist()[0] == [1.0, 0.0, -1.0, -1.5]
    assert curves.metrics["train/normalized_loss"].tolist()[0] == [2.0, 0.0, -2.0, -3.0]
    assert curves.metrics["train/state"].tolist()[0] == [0.0, 4.0, 8.0, 10.0]


def test_what_is_neither_is_refused_by_name() -> None:
    for wrap in (lambda x: as_stepper(x, 1), as_learned_optimizer, as_task):
        with pytest.raises(ConfigError, match=SHOWN["got-int-expected"]):
            wrap(3)
