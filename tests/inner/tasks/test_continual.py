"""Streams of tasks: what each task is, what is remembered of it, and what batch norm does between tasks."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from saved_worlds import states_in
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.phases import task_sequence
from lobench.core.result import Curves
from lobench.inner.extra_inputs.task_side import facts_of
from lobench.inner.optimizers import agem, sgd
from lobench.inner.task import Datasets
from lobench.inner.tasks.continual import PermutedStream, RotatedDigits, RotatedStream, SplitDigits, SplitStream
from lobench.inner.tasks.continual.memory import Examples, Memory
from lobench.inner.tasks.continual.stream import continual_metrics
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.training.phase_transitions import later_phases, phase_stepper
from lobench.inner.training.train import TrainingProgram
from lobench.testing.bits import COMPILED_FAST
from lobench.testing.tasks import TaskContract

SHOWN = texts_of("inner")

KEY = jax.random.key(0)


def network(**settings: Any) -> MLPClassifier:
    return MLPClassifier(data="digits", hidden_sizes=(8,), batch_size=16, **settings)


def normed(**settings: Any) -> MLPClassifier:
    return network(norm="batch", **settings)


def program_of(
    task: Any, *, steps: int = 6, are_alike: bool = True, optimizer: Any = None, num_seeds: int = 2, **values: Any
) -> TrainingProgram:
    phases = task_sequence(num_tasks=task.num_phases, num_inner_steps=steps)
    phases = tuple(replace(phase, optimizer=optimizer or sgd(0.5)) for phase in phases)
    total = steps * len(phases)
    case = Case(**{"eval_every": 4, "eval_batches": 2, **values}, num_inner_steps=total, phases=phases, save_every=1)
    task.check_case(case)
    later = later_phases(case, lambda index, theta: phase_stepper(case, index, theta))
    first = functools.partial(phase_stepper, case, 0)
    return TrainingProgram(case, task, first, num_seeds, (), later, are_alike=are_alike and bool(later))


def trained(task: Any, **settings: Any) -> Curves:
    curves = program_of(task, **settings).run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    return curves


def bits(curves: Curves) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in curves.metrics.items()}


def matrix(curves: Curves, ends: list[int], num_tasks: int) -> np.ndarray:
    """R[seed, i, j]."""
    columns = [curves.eval_steps.index(end) for end in ends]
    rows = [np.asarray(curves.metrics[f"test/accuracy_task_{j}"])[:, columns] for j in range(num_tasks)]
    return np.stack(rows, axis=2)


class TestSplitDigits(TaskContract):
    def task(self) -> Any:
        return SplitDigits(task=normed(), protocol="separate", memory_size=8, replay=True)


class TestRotatedSignals(TaskContract):
    def task(self) -> Any:
        return RotatedStream(task=MLPClassifier(data="mnist1d", hidden_sizes=(8,), batch_size=16), interleaved=True)


def test_tasks_of_a_split_stream_have_their_own_classes_alone() -> None:
    for num_tasks in (2, 5):
        task = SplitStream(task=network(), num_tasks=num_tasks)
        data = task.datasets.test.arrays
        for index in range(num_tasks):
            inputs, labels = task.examples(data, index)
            assert set(np.asarray(labels)) == {2 * index, 2 * index + 1}
            known = digits_splits().test
            expected = known["image"][known["label"] // 2 == index]
            assert np.array_equal(np.unique(inputs, axis=0), np.unique(expected, axis=0))
    assert np.array_equal(data["image"], SplitStream(task=network(), num_tasks=1).datasets.test.arrays["image"])


def test_tasks_of_a_permuted_stream_are_the_data_in_another_order_whatever_their_number() -> None:
    data = {"image": np.arange(128, dtype=np.float32).reshape(2, 64), "label": np.array([3, 4])}
    few, many = PermutedStream(task=network(), num_tasks=3), PermutedStream(task=network(), num_tasks=6)
    seen = set()
    for index in range(3):
        inputs, labels = few.examples(data, index)
        assert np.array_equal(inputs, many.examples(data, index)[0]) and list(labels) == [3, 4]
        assert np.array_equal(np.sort(inputs, axis=1), data["image"])
        seen.add(np.asarray(inputs).tobytes())
    assert len(seen) == 3 and np.array_equal(few.examples(data, 0)[0], data["image"])


def test_images_turn_around_their_middle_and_signals_along_a_ring() -> None:
    image = np.random.default_rng(0).random((1, 8, 8)).astype(np.float32)
    task = RotatedDigits(task=network(), angles=(0.0, 90.0, 180.0, 45.0))
    for index, turns in enumerate((0, 1, 2)):
        inputs, _ = task.examples({"image": image.reshape(1, 64), "label": np.array([0])}, index)
        np.testing.assert_allclose(np.asarray(inputs).reshape(8, 8), np.rot90(image[0], turns), atol=1e-6)
    flat, _ = task.examples({"image": np.ones((1, 64), np.float32), "label": np.array([0])}, 3)
    np.testing.assert_allclose(np.asarray(flat).reshape(8, 8)[2:6, 2:6], 1, atol=1e-6)

    signals = np.random.default_rng(0).random((1, 40)).astype(np.float32)
    task = RotatedStream(task=MLPClassifier(data="mnist1d"), angles=(36.0, -9.0))
    moved, _ = task.examples({"signal": signals, "label": np.array([0])}, 0)
    np.testing.assert_allclose(moved, np.roll(signals, 4, axis=1), atol=1e-6)
    moved, _ = task.examples({"signal": signals, "label": np.array([0])}, 1)
    np.testing.assert_allclose(moved, np.roll(signals, -1, axis=1), atol=1e-6)


def test_what_was_forgotten_by_hand() -> None:
    accuracy = np.float32([[[0.5, 0.9, 0.9, 0.6, 0.7, 0.4]], [[0.5, 0.4, 0.95, 0.8, 0.8, 0.9]], [[0.5, 0, 0, 0, 1, 1]]])
    metrics = {f"test/accuracy_task_{task}": accuracy[task] for task in range(3)}
    found = continual_metrics(metrics, [0, 5, 10, 20, 25, 30], [10, 20, 30])
    np.testing.assert_array_equal(found["train/task"], [[0, 0, 0, 1, 2, 2]])
    np.testing.assert_allclose(found["test/forgetting"], [[0, 0, 0, 0.3, 0.1, 0.2]], atol=1e-7)
    # Of task 1 the accuracy at its own end was .8; at the end of all it is .9.
    np.testing.assert_allclose(found["test/backward_transfer"], [[0, 0, 0, -0.3, -0.1, -0.2]], atol=1e-7)
    part = continual_metrics({name: values[:, :4] for name, values in metrics.items()}, [0, 5, 10, 20], [10, 20, 30])
    np.testing.assert_allclose(part["test/forgetting"], [[0, 0, 0, 0.3]], atol=1e-7)


def test_one_program_is_that_of_all_phases_and_gives_what_each_phase_of_its_own_gives(tmp_path: Path) -> None:
    task = SplitStream(task=normed(), num_tasks=2, protocol="new", memory_size=4, replay=True)
    program, block = program_of(task), SeedBlock(start=0, size=2)
    found, apart = program.run({}, block), trained(task, are_alike=False)
    assert found is not None and found.eval_steps == apart.eval_steps == (0, 4, 6, 8, 12)
    for name, values in found.metrics.items():
        np.testing.assert_allclose(np.asarray(values), np.asarray(apart.metrics[name]), atol=1e-5, err_msg=name)
    assert len({id(compiled) for compiled in program._compile_caches}) == 1
    expected = continual_metrics({k: np.asarray(v) for k, v in found.metrics.items()}, list(found.eval_steps), [6, 12])
    for name in ("test/forgetting", "train/backward_transfer", "train/task"):
        np.testing.assert_array_equal(np.asarray(found.metrics[name]), expected[name])
    of_tasks = [np.asarray(found.metrics[f"test/accuracy_task_{j}"]) for j in range(2)]
    accuracy = np.asarray(found.metrics["test/accuracy"])
    np.testing.assert_array_equal(accuracy[:, :3], of_tasks[0][:, :3])
    np.testing.assert_allclose(accuracy[:, 3:], np.mean(of_tasks, axis=0)[:, 3:], rtol=1e-6)

    states, steps = states_in(tmp_path, program._case), []
    assert program.run({}, block, saves=states, should_stop=lambda: len(steps) > 8, on_progress=steps.append) is None
    again = program.run({}, block, saves=states)
    assert again is not None and 6 < again.resumed_at < 12 and bits(again) == bits(found)


def test_a_frozen_network_forgets_nothing_after_its_first_task() -> None:
    curves = trained(SplitStream(task=normed(), num_tasks=3, protocol="frozen"))
    found = matrix(curves, [6, 12, 18], 3)
    for task in range(3):
        assert (found[:, task:, task] == found[:, task : task + 1, task]).all()
    assert (np.asarray(curves.metrics["test/forgetting"]) == 0)[:, curves.eval_steps.index(12) :].all()
    assert (found[:, 0, 1] != found[:, 2, 1]).any(), "the scales and shifts of batch norm are trained on"


def test_a_stream_of_one_task_is_the_same_program_whatever_batch_norm_does_between_tasks() -> None:
    def text(protocol: str) -> str:
        task = SplitStream(task=normed(), num_tasks=1, protocol=protocol)

        def all_of_it(key: jax.Array, batch: Any) -> Any:
            params, state = task.init_with_state(key)
            trained = task.loss_with_state_and_aux(params, state, key, batch)
            return trained, task.eval_loss_with_aux(params, trained[1], key, batch)

        return jax.jit(all_of_it).lower(KEY, task.datasets.train.sample(KEY)).as_text()

    texts = {protocol: text(protocol) for protocol in ("none", "separate", "new", "frozen", "continual")}
    assert texts["none"] == texts["separate"] == texts["new"] == texts["frozen"] != texts["continual"]


def test_a_task_is_evaluated_with_its_own_batch_norm() -> None:
    for protocol in ("separate", "new"):
        task = SplitStream(task=normed(), num_tasks=3, protocol=protocol)
        params, state = task.init_with_state(KEY)
        moved = {**state["network"], "mean0": jnp.full(8, 7.0)}
        params = {**params, "scale0": jnp.full(8, 3.0)}
        entered, after = task.enter_phase(params, {**state, "network": moved}, 1)
        assert int(after["task"]) == 1 and (after["stored"]["mean0"][0] == 7).all()
        is_new = protocol == "new"
        assert (entered["scale0"] == (1 if is_new else 3)).all()
        assert (after["network"]["mean0"] == (0 if is_new else 7)).all()
        own = [task._norm_of_task(jnp.int32(j), entered, after) for j in range(3)]
        assert [float(one["scale0"][0]) for one in own] == [3.0, *([1.0, 1.0] if is_new else [3.0, 3.0])]


def test_global_statistics_are_those_of_one_pass_over_the_data_of_all_tasks_so_far() -> None:
    network = MLPClassifier(data="digits", hidden_sizes=(8, 6), batch_size=16, norm="batch")
    task = SplitStream(task=network, num_tasks=4, protocol="global")
    params, state = task.init_with_state(KEY)
    state = {**state, "task": jnp.int32(2)}
    found = jax.jit(task._global_statistics)(params, state)
    train = digits_splits().train
    x = train["image"][train["label"] < 6].astype(np.float64)
    for layer in range(2):
        x = x @ np.asarray(params[f"w{layer}"], np.float64) + np.asarray(params[f"b{layer}"])
        np.testing.assert_allclose(found[f"mean{layer}"], x.mean(0), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[f"variance{layer}"], x.var(0), rtol=1e-6, atol=1e-6)
        x = np.maximum((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), 0)


def test_a_memory_is_filled_evenly_over_the_first_pass_and_gives_what_came_before() -> None:
    memory = Memory.empty(3, 4, 1)
    after = jax.jit(Memory.after_step, static_argnums=4)
    drawn = jax.jit(Memory.draw, static_argnums=3)
    assert not drawn(memory, KEY, 0, 5)[1]
    for task, steps in ((0, 10), (1, 5)):
        for step in range(steps):
            rows = 100.0 * task + 10 * step + jnp.arange(6.0)
            batch = Examples(rows[:, None], rows.astype(jnp.int32), jnp.full(6, task))
            memory = after(memory, batch, jnp.int32(task), jnp.int32(step), 8)
    assert memory.filled.tolist() == [4, 3, 0]
    assert memory.labels.tolist() == [[0, 21, 42, 63], [100, 121, 142, 0], [0, 0, 0, 0]]
    for before, expected in ((1, {0, 21, 42, 63}), (2, {0, 21, 42, 63, 100, 121, 142})):
        examples, is_there = drawn(memory, KEY, before, 200)
        assert is_there and set(examples.labels.tolist()) == expected
        assert (examples.labels // 100 == examples.tasks).all()
        assert np.array_equal(examples.inputs[:, 0], examples.labels)


def test_the_loss_of_an_empty_memory_is_0_and_that_of_a_full_one_is_of_the_earlier_tasks() -> None:
    task = SplitStream(task=normed(norm_epsilon=0.0), num_tasks=3, memory_size=8)
    params, state = task.init_with_state(KEY)
    loss = jax.jit(jax.value_and_grad(task.memory_loss), compiler_options=COMPILED_FAST)
    value, gradient = loss(params, state, KEY)
    assert value == 0 and all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))
    step = jax.jit(task.loss_with_state_and_aux, compiler_options=COMPILED_FAST)
    batch = task.datasets.train.sample(KEY)
    for _ in range(20):
        state = step(params, state, KEY, batch)[1]
    value, gradient = loss(params, task.enter_phase(params, state, 1)[1], KEY)
    assert 0 < value < 5
    assert (gradient["w1"][:, :2] != 0).any() and (gradient["w1"][:, 2:] == 0).all(), "task 0 has the classes 0 and 1"


def test_who_wants_a_memory_of_size_0_is_told_what_to_bind() -> None:
    with pytest.raises(ConfigError) as caught:
        facts_of({"memory": "agem"}, lambda: SplitStream(task=network()), {})
    assert str(caught.value).startswith(SHOWN["agem-requests-memory"]) and "\n" not in str(caught.value)
    assert str(caught.value).endswith(SHOWN["bind-splitstream-memory-size-50"])


def test_replay_of_an_empty_memory_is_no_replay_and_later_the_memory_joins_the_batch() -> None:
    plain, replay = (SplitStream(task=normed(), num_tasks=3, memory_size=8, replay=flag) for flag in (False, True))
    params, state = plain.init_with_state(KEY)
    batch = plain.datasets.train.sample(KEY)
    steps = [jax.jit(task.loss_with_state_and_aux, compiler_options=COMPILED_FAST) for task in (plain, replay)]
    (a, after, _), (b, of_replay, _) = (step(params, state, KEY, batch) for step in steps)
    np.testing.assert_allclose(a, b, rtol=1e-5)
    np.testing.assert_allclose(after["network"]["mean0"], of_replay["network"]["mean0"], rtol=1e-4, atol=1e-6)
    entered = plain.enter_phase(params, after, 1)[1]
    means = [step(params, entered, KEY, batch)[1]["network"]["mean0"] for step in steps]
    assert abs(means[0] - means[1]).max() > 1e-2


def test_an_interleaved_stream_trains_all_tasks_at_once() -> None:
    task = SplitStream(task=network(), num_tasks=4, interleaved=True)
    _, state = task.init_with_state(KEY)
    batch = task._current_batch(state, KEY, task.datasets.train.take(jnp.arange(64)))
    assert set(np.asarray(batch.tasks)) == {0, 1, 2, 3} and (batch.labels // 2 == batch.tasks).all()
    assert task.metrics_over_phases({"test/accuracy_task_0": np.zeros((1, 1))}, [0], [8]) == {}


@pytest.mark.parametrize(("head", "visible"), [("masked", (2, 2)), ("partial", (2, 10)), ("single", (10, 10))])
def test_a_head_says_which_classes_count(head: str, visible: tuple[int, int]) -> None:
    task = SplitStream(task=network(), head=head)
    logits, tasks = jnp.zeros((1, 10)), jnp.array([1])
    shown = [int((task.mask_logits(logits, tasks, training=training) == 0).sum()) for training in (True, False)]
    assert tuple(shown) == visible
    if head == "masked":
        assert np.flatnonzero(task.mask_logits(logits, tasks, training=True)[0] == 0).tolist() == [2, 3]
        assert float(task.normalizer(jnp.log(2.0))) == pytest.approx(1.0)


def test_a_gem_forgets_less_than_sgd() -> None:
    """Paired over five seeds, one-sided: A-GEM's published order, at a size for seconds."""
    task = SplitStream(task=network(), num_tasks=4, head="partial", memory_size=30)
    train, test = task.datasets.train, task.datasets.test
    task.datasets = Datasets(train=train, test=test)
    forgotten = []
    for optimizer in (sgd(0.3), agem(sgd(0.3))):
        program = program_of(task, steps=100, optimizer=optimizer, num_seeds=5, eval_every=400, eval_batches=20)
        curves = program.run({}, SeedBlock(start=0, size=5))
        assert curves is not None
        forgotten.append(np.asarray(curves.metrics["test/forgetting"])[:, -1])
    assert forgotten[0].mean() > 0.1, "SGD forgets"
    assert scipy.stats.ttest_rel(forgotten[1], forgotten[0], alternative="less").pvalue < 0.05, forgotten
