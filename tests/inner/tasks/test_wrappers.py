"""Wrappers do to a task what they say, and nothing else; each passes the tasks' contract, over a task and a family."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.task import Datasets, IteratorDataset, SampledDataset, Task, TaskFamily
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.image import DigitsConv, DigitsMLP, PermutedDigits
from lobench.inner.tasks.quadratic import Quadratic, QuadraticFamily
from lobench.inner.tasks.recall import ModularAddition
from lobench.inner.tasks.wrappers import (
    Augmented,
    BatchSize,
    Bfloat16,
    GradientNoise,
    LabelNoise,
    MaximalUpdate,
    Reparametrised,
)
from lobench.inner.tasks.wrappers.augmented import _erase, _flip, _shift
from lobench.testing.bits import COMPILED_FAST
from lobench.testing.tasks import TaskContract

SHOWN = texts_of("inner")

KEY = jax.random.key(7)
MLP = DigitsMLP(hidden_sizes=(8,), batch_size=16)
START = MLP.init_with_state(KEY)[0]
BATCH = jax.tree.map(lambda leaf: jnp.asarray(leaf[:16]), digits_splits().train)


class Batches(Task):
    """A task on batches of a kind: what wrappers change of them is seen."""

    def __init__(self, dataset: Any) -> None:
        self.datasets = Datasets(train=dataset, test=dataset)

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"x": jax.random.normal(key, (2,))}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(params["x"] ** 2) + 0 * jnp.mean(data["label"].astype(jnp.float32))


def of_iterator(seed: int) -> Any:
    return ({"label": np.arange(first, first + 3, dtype=np.int32) + 100 * seed} for first in itertools.count(0, 3))


def of_key(key: jax.Array) -> Any:
    return {"label": jax.random.randint(key, (5,), 0, 10, jnp.int32)}


class TestReparametrised(TaskContract):
    def task(self) -> Any:
        return Reparametrised(task=DigitsConv(channels=(2,), batch_size=4), by="parameter", low=0.5, high=2.0)


class TestBatchSizeOfAFamilyInBfloat16(TaskContract):
    def task(self) -> Any:
        return BatchSize(task=Bfloat16(task=PermutedDigits(hidden_sizes=(4,)), params="bfloat16"), batch_size=3)


class TestNoiseAndAugmentation(TaskContract):
    def task(self) -> Any:
        noisy = GradientNoise(task=LabelNoise(task=DigitsMLP(hidden_sizes=(4,), batch_size=4)))
        return Augmented(task=noisy, shift=1, erase=2, flip=True, noise_std=0.1)


class TestMaximalUpdate(TaskContract):
    def task(self) -> Any:
        wide, narrow = (DigitsMLP(hidden_sizes=(width, width), norm="batch") for width in (16, 8))
        return MaximalUpdate(task=wide, base=narrow)


def loss_of(task: Any, params: Any, key: jax.Array = KEY, batch: Any = BATCH) -> Any:
    return jax.jit(lambda params: task.loss_with_state_and_aux(params, None, key, batch)[0])(params)


def evaluated(task: Any, params: Any) -> Any:
    return jax.jit(lambda params: task.eval_loss_with_aux(params, None, KEY, BATCH)[0])(params)


def gradient_of(task: Any, params: Any) -> Any:
    return jax.jit(jax.grad(lambda params: task.loss_with_state_and_aux(params, None, KEY, BATCH)[0]))(params)


@pytest.mark.parametrize(
    "options", [{"scale": 1000.0}, {"by": "tensor"}, {"by": "parameter"}, {"by": "global"}], ids=str
)
def test_reparametrised_weights_are_the_same_function_in_other_units(options: dict[str, Any]) -> None:
    task = Reparametrised(task=MLP, **options)
    plain, ours = START, task.init_with_state(KEY)[0]
    assert float(loss_of(task, ours)) == pytest.approx(float(loss_of(MLP, plain)), rel=1e-4)
    scales = task.scales(plain)
    for leaf, other, scale in zip(*map(jax.tree.leaves, (plain, ours, scales)), strict=True):
        np.testing.assert_allclose(np.asarray(other) * scale, leaf, rtol=1e-6)
        assert np.shape(scale) == (np.shape(leaf) if options.get("by") == "parameter" else ())
        assert (np.asarray(scale) >= 1e-3).all() and (np.asarray(scale) <= 1.001e3).all()
    grads, others = gradient_of(MLP, plain), gradient_of(task, ours)
    for leaf, other, scale in zip(*map(jax.tree.leaves, (grads, others, scales)), strict=True):
        np.testing.assert_allclose(other, leaf * scale, rtol=2e-3, atol=1e-4 * np.abs(leaf * scale).max())
    distinct = {float(np.asarray(scale).flat[0]) for scale in jax.tree.leaves(scales)}
    assert len(distinct) == (1 if options.get("by", "global") == "global" else 4)


def test_a_share_of_the_training_labels_is_wrong_and_no_other() -> None:
    task = LabelNoise(task=MLP, rate=0.25)
    clean, noisy = MLP.datasets.train.arrays, task.datasets.train.arrays
    is_wrong = clean["label"] != noisy["label"]
    assert is_wrong.mean() == pytest.approx(0.25, abs=0.05) and set(noisy["label"]) == set(range(10))
    assert noisy["image"] is clean["image"] and noisy["label"].dtype == np.int32
    assert task.datasets.test is MLP.datasets.test
    assert (LabelNoise(task=MLP, rate=0.25).datasets.train.arrays["label"] == noisy["label"]).all()
    assert (LabelNoise(task=MLP, rate=0.25, problem_seed=1).datasets.train.arrays["label"] != noisy["label"]).any()
    every = LabelNoise(task=MLP, rate=1.0).datasets.train.arrays["label"]
    assert (every != clean["label"]).all()


def test_labels_of_generated_batches_are_wrong_as_often() -> None:
    task = LabelNoise(task=Batches(SampledDataset(of_key)), rate=1.0, num_classes=10)
    keys = jax.random.split(KEY, 50)
    drawn = jax.vmap(lambda key: of_key(jax.random.split(key)[0])["label"])(keys)
    noisy = jax.vmap(task.datasets.train.sample)(keys)["label"]
    assert (noisy != drawn).all() and noisy.min() == 0 and noisy.max() == 9
    iterated = LabelNoise(task=Batches(IteratorDataset(of_iterator)), rate=1.0, num_classes=10).datasets.train
    first, again = (list(itertools.islice(iterated.batches(1), 3)) for _ in range(2))
    assert all((one["label"] == other["label"]).all() for one, other in zip(first, again, strict=True))
    assert (first[0]["label"] != np.arange(100, 103) % 10).all()


def test_gradient_noise_is_in_the_gradient_alone() -> None:
    task = GradientNoise(task=MLP, std=0.5)
    params = START
    assert float(loss_of(task, params)) == float(loss_of(MLP, params))
    exact, noisy = (gradient_of(each, params) for each in (MLP, task))
    noise = np.concatenate([np.ravel(a - b) for a, b in zip(*map(jax.tree.leaves, (noisy, exact)), strict=True)])
    assert noise.std() == pytest.approx(0.5, rel=0.1) and abs(noise.mean()) < 0.1
    assert evaluated(task, params) == evaluated(MLP, params)


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_bfloat16_rounds_what_is_computed_and_hands_on_float32(stored: str) -> None:
    task = Bfloat16(task=MLP, params=stored)
    params, _ = task.init_with_state(KEY)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {stored}
    loss, exact = loss_of(task, params), loss_of(MLP, START)
    assert loss.dtype == jnp.float32 and loss != exact and float(loss) == pytest.approx(float(exact), rel=0.02)
    assert jnp.bfloat16(loss) == loss, "the loss was computed in a finer type"
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(gradient_of(task, params))} == {stored}


def test_batches_of_any_size_hold_the_same_examples() -> None:
    for size in (1, 512):
        batch = BatchSize(task=MLP, batch_size=size).datasets.train.sample(KEY)
        assert batch["image"].shape == (size, 64) and batch["label"].shape == (size,)
    resized = BatchSize(task=Batches(IteratorDataset(of_iterator)), batch_size=4).datasets.train.batches(0)
    assert [one["label"].tolist() for one in itertools.islice(resized, 3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    for size in (2, 12):
        drawn = BatchSize(task=Batches(SampledDataset(of_key)), batch_size=size).datasets.test.sample(KEY)
        assert drawn["label"].shape == (size,)


def test_images_are_changed_in_training_alone() -> None:
    task = Augmented(task=MLP, noise_std=1.0)
    params = START
    assert loss_of(task, params) != loss_of(MLP, params)
    assert loss_of(task, params) != loss_of(task, params, jax.random.key(8))
    assert evaluated(task, params) == evaluated(MLP, params)


def test_an_image_is_mirrored_moved_and_erased() -> None:
    image, keys = jnp.arange(1.0, 26.0).reshape(5, 5), jax.random.split(KEY, 200)
    mirrored = jax.jit(jax.vmap(lambda key: _flip(key, image)))(keys)
    assert {bool((one == image).all()) for one in mirrored} == {True, False}
    assert all((one == image).all() or (one == image[:, ::-1]).all() for one in mirrored)
    moved = {tuple(np.asarray(one).ravel()) for one in jax.jit(jax.vmap(lambda key: _shift(key, image, 1)))(keys)}
    padded = np.pad(np.asarray(image), 1)
    assert moved == {tuple(padded[r : r + 5, c : c + 5].ravel()) for r in range(3) for c in range(3)}
    erased = jax.jit(jax.vmap(lambda key: _erase(key, image[..., None], 2)))(keys)[..., 0]
    assert {int((one == 0).sum()) for one in erased} == {4} and len(
        {tuple(map(float, one.ravel())) for one in erased}
    ) == 16


def test_wrappers_nest_and_what_a_task_has_besides_stays() -> None:
    task = GradientNoise(task=Reparametrised(task=Quadratic(dim=3), scale=10.0))
    assert task.optimum.shape == (3,) and task.datasets is None
    assert float(task.normalizer(jnp.float32(0.1))) == float(Quadratic(dim=3).normalizer(jnp.float32(0.1)))
    family = GradientNoise(task=QuadraticFamily())
    assert isinstance(family, TaskFamily)
    cfg = family.sample(KEY)
    same = QuadraticFamily().task_fn(cfg)
    params, _ = family.task_fn(cfg).init_with_state(KEY)
    assert float(family.task_fn(cfg).loss(params, KEY, None) - same.loss(params, KEY, None)) == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (lambda: Reparametrised(task=3), SHOWN["reparametrised-task-is-not-a"]),
        (lambda: Reparametrised(task=MLP, by="layer"), SHOWN["reparametrised-by-got-layer"]),
        (lambda: Reparametrised(task=MLP, scale=0.0), SHOWN["reparametrised-scale-got-0-0"]),
        (lambda: Reparametrised(task=MLP, scale=2.0, by="tensor"), SHOWN["scales-by-tensor-are-drawn"]),
        (lambda: Reparametrised(task=MLP, low=3.0, high=2.0), SHOWN["reparametrised-low-got-3-0"]),
        (lambda: LabelNoise(task=MLP, rate=1.5), SHOWN["labelnoise-rate-got-1-5"]),
        (
            lambda: LabelNoise(task=MLP, field="lable"),
            SHOWN["got-lable-expected-a-part"],
        ),
        (lambda: LabelNoise(task=MLP, field="image"), SHOWN["got-image-of-float32-expected"]),
        (lambda: LabelNoise(task=Quadratic()), SHOWN["labelnoise-the-wrapped-task-has"]),
        (lambda: LabelNoise(task=Batches(SampledDataset(of_key))), SHOWN["labelnoise-num-classes-the-task"]),
        (lambda: GradientNoise(task=MLP, std=-1.0), SHOWN["gradientnoise-std-got-1-0"]),
        (lambda: Bfloat16(task=MLP, params="float16"), SHOWN["bfloat16-params-got-float16"]),
        (lambda: BatchSize(task=MLP, batch_size=0), SHOWN["batchsize-batch-size-got-0"]),
        (lambda: BatchSize(task=Quadratic()), SHOWN["batchsize-the-wrapped-task-has"]),
        (lambda: Augmented(task=MLP), SHOWN["augmented-changes-nothing"]),
        (lambda: loss_of(Augmented(task=MLP, flip=True, field="label"), START), SHOWN["not-images"]),
        (lambda: MaximalUpdate(task=MLP, base=MLP, steps="lion"), SHOWN["maximalupdate-steps-got-lion"]),
        (
            lambda: MaximalUpdate(task=MLP, base=DigitsMLP(hidden_sizes=(8, 8))).init_with_state(KEY),
            SHOWN["maximalupdate-base-has-other-parameters"],
        ),
    ],
)
def test_what_makes_no_sense_is_told_in_a_line(make: Any, output: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert output in str(caught.value) and "\n" not in str(caught.value)


def perceptron(width: int) -> tuple[Any, Any, Any]:
    """Returns a net, a batch, and what gives its logits."""
    net = DigitsMLP(hidden_sizes=(width, width), activation="tanh")
    return net, BATCH, lambda params: net.logits(params, None, BATCH["image"], training=False)[0]


def transformer(width: int) -> tuple[Any, Any, Any]:
    """The same; heads keep their size."""
    net = ModularAddition(modulus=8, width=width, num_layers=1, num_heads=width // 16, batch_size=16)
    batch = net.datasets.train.sample(KEY)
    return net, batch, lambda params: net.logits(params, batch["symbols"][:, :-1].astype(jnp.int32))


def moved(make: Any, width: int, parametrisation: str, rate: float) -> float:
    """Returns how far the logits of a net have moved after some steps of Adam's or SGD's size: the coordinate check."""
    net, batch, logits_of = make(width)
    base = make(32)[0]
    task: Any = net if parametrisation == "plain" else MaximalUpdate(task=net, base=base, steps=parametrisation)

    def stepped(params: Any, _: None) -> tuple[Any, Any]:
        grads = jax.grad(lambda p: task.loss_with_state(p, None, KEY, batch)[0])(params)
        step = grads if parametrisation == "sgd" else jax.tree.map(jnp.sign, grads)
        logits = logits_of(params if task is net else task.wrapped_params(params))
        return jax.tree.map(lambda leaf, moved: leaf - rate * moved, params, step), logits

    @functools.partial(jax.jit, compiler_options=COMPILED_FAST)
    def distance() -> jax.Array:
        logits = jax.lax.scan(stepped, task.init_with_state(KEY)[0], length=4)[1]
        return jnp.sqrt(jnp.mean((logits[-1] - logits[0]) ** 2))

    return float(distance())


@pytest.mark.parametrize(
    ("make", "width", "steps", "rate"),
    [(perceptron, 1024, "adam", 1e-3), (perceptron, 1024, "sgd", 0.1), (transformer, 256, "adam", 1e-3)],
)
def test_in_maximal_update_parametrisation_outputs_move_as_far_at_every_width(
    make: Any, width: int, steps: str, rate: float
) -> None:
    narrow, wide = (moved(make, each, steps, rate) for each in (32, width))
    assert 0.5 < wide / narrow < 2.0, (narrow, wide)


def test_without_it_a_wide_net_moves_many_times_as_far() -> None:
    narrow, wide = (moved(perceptron, each, "plain", 1e-3) for each in (32, 1024))
    assert wide / narrow > 4, (narrow, wide)


def test_at_the_width_of_its_base_a_task_keeps_its_bits() -> None:
    task = MaximalUpdate(task=MLP, base=MLP)
    params, _ = task.init_with_state(KEY)
    for leaf, other in zip(*map(jax.tree.leaves, (params, START)), strict=True):
        np.testing.assert_array_equal(leaf, other)
    assert loss_of(task, params) == loss_of(MLP, params)
