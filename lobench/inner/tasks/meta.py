"""Tasks about training: a learned optimizer, a loss smoothed by evolution strategies, two kinds of distillation."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.mlp_lopt import MLPLOpt
from lobench.inner.task import SPLITS, ArrayDataset, Batch, Datasets, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.digits import NUM_CLASSES, NUM_PIXELS, digits_splits
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.tasks.measured import Aux, LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import Params
from lobench.inner.tasks.objectives import accuracy, softmax_cross_entropy
from lobench.inner.tasks.quadratic import QuadraticFamily
from lobench.inner.tasks.splits import make_datasets
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, wrap_task_or_family

__all__ = ["DatasetDistillation", "Distillation", "ESSmoothed", "MetaTraining"]


@configurable
class MetaTraining(ReferencedTask):
    """Meta-training of a learned optimizer: the parameters are its theta, the loss is that of its inner trainings.

    In each step `num_tasks` new tasks are drawn and trained for `num_unroll` steps each. The loss is the mean over
    tasks of the losses before each step and at the end, divided by the first one. An optimizer that does nothing has 1.
    The gradient is backpropagated through the training. The floor is unknown; 0 would mean a task that is solved before
    its first step.

    Args:
      learned_optimizer: Learned optimizer such as @MLPLOpt(). None: MLPLOpt with hidden size 8 and step_mult 0.1.
      family: Family of tasks without data, such as @QuadraticFamily(). None: the one with dim 8 and max_condition 10.
      num_unroll: Number of inner steps.
      num_tasks: Number of tasks per batch.
    """

    reference_loss = 1.0  # loss of an optimizer that does nothing

    def __init__(
        self, *, learned_optimizer: object = None, family: object = None, num_unroll: int = 16, num_tasks: int = 8
    ) -> None:
        name = type(self).__name__
        self._learned_optimizer = as_learned_optimizer(learned_optimizer or MLPLOpt(step_mult=0.1, hidden_size=8))
        inner_family = as_task(family or QuadraticFamily(dim=8, max_condition=10.0))
        if not isinstance(inner_family, TaskFamily) or inner_family.datasets is not None:
            family_name = type(inner_family).__name__
            raise ConfigError(
                f"{name}.family", got=family_name, expected="a family without datasets, such as @QuadraticFamily()"
            )
        self._family = inner_family
        self._num_unroll = arguments.integer(self, "num_unroll", num_unroll)
        self._num_tasks = arguments.integer(self, "num_tasks", num_tasks)

    def init(self, key: jax.Array) -> PyTree:
        return self._learned_optimizer.init(key)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        keys = jax.random.split(key, self._num_tasks)
        return jnp.mean(jax.vmap(lambda key: self._relative_loss(params, key))(keys))

    def _relative_loss(self, theta: PyTree, key: jax.Array) -> jax.Array:
        """Returns the mean of a task's losses, divided by the first one."""
        task_key, init_key, optimizer_key, loss_key = jax.random.split(key, 4)
        task = self._family.task_fn(self._family.sample(task_key))
        stepper = as_stepper(self._learned_optimizer.opt_fn(theta, self._num_unroll), self._num_unroll)

        def loss_of(params: PyTree, state: PyTree, key: jax.Array) -> tuple[jax.Array, PyTree]:
            return task.loss_with_state(params, state, key, None)

        def step(carry: PyTree, keys: jax.Array) -> tuple[PyTree, jax.Array]:
            opt_state, params, state = carry
            (loss, state), grads = jax.value_and_grad(loss_of, has_aux=True)(params, state, keys[0])
            return stepper.step(opt_state, params, state, grads, loss, keys[1]), loss

        params, state = task.init_with_state(init_key)
        initial_carry = stepper.init(params, state, optimizer_key), params, state
        keys = jax.random.split(loss_key, (self._num_unroll + 1, 2))
        (_, params, state), losses = jax.lax.scan(step, initial_carry, keys[1:])
        last_loss, _ = loss_of(params, state, keys[0, 0])
        return (jnp.sum(losses) + last_loss) / ((self._num_unroll + 1) * losses[0])


@configurable
def ESSmoothed(*, task: Any = None, std: float = 0.05, num_pairs: int = 8) -> Task | TaskFamily:
    """Wrapper that smooths a task's loss with normal noise on the parameters; gradients by evolution strategies.

    The training loss is the mean of the losses at `params + std noise` and `params - std noise` over `num_pairs` pairs.
    Its gradient is estimated as the mean of `noise (plus - minus) / (2 std)`. Evaluations, floor, data and metrics are
    those of the task itself.

    Args:
      task: Task or family, such as @Rosenbrock(). None: DigitsMLP with a hidden layer of 16.
      std: Standard deviation of the noise, > 0.
      num_pairs: Number of pairs of losses in a step.
    Source: Salimans et al. 2017 (arXiv 1703.03864); Metz et al. 2019 (arXiv 1810.10180), section 3.
    """
    arguments.number("ESSmoothed", "std", std, at_least=1e-8)
    arguments.integer("ESSmoothed", "num_pairs", num_pairs)
    task = DigitsMLP(hidden_sizes=(16,)) if task is None else task
    return wrap_task_or_family("ESSmoothed", task, lambda inner: _Smoothed(inner, std, num_pairs))


class _Smoothed(TaskWrapper):
    def __init__(self, task: Task, std: float, num_pairs: int) -> None:
        super().__init__(task)
        self._std, self._num_pairs = std, num_pairs

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        noise_key, loss_key = jax.random.split(key)
        leaves, structure = jax.tree.flatten(jax.lax.stop_gradient(params))

        def perturbed_loss(std: float, noise: list[jax.Array]) -> tuple[jax.Array, PyTree, Aux]:
            perturbed_leaves = [leaf + std * direction for leaf, direction in zip(leaves, noise, strict=True)]
            loss, new_state, aux = self.task.loss_with_state_and_aux(
                jax.tree.unflatten(structure, perturbed_leaves), state, loss_key, data
            )
            return loss, new_state, dict(aux)

        def mean_loss_and_slope(key: jax.Array) -> tuple[jax.Array, list[jax.Array], PyTree, Aux]:
            keys = jax.random.split(key, len(leaves))
            noise = [
                jax.random.normal(leaf_key, leaf.shape, leaf.dtype) for leaf_key, leaf in zip(keys, leaves, strict=True)
            ]
            (plus, new_state, aux), (minus, _, _) = perturbed_loss(self._std, noise), perturbed_loss(-self._std, noise)
            slope = (plus - minus) / (2 * self._std)
            return (plus + minus) / 2, [slope * direction for direction in noise], new_state, aux

        losses, slopes, states, aux = jax.vmap(mean_loss_and_slope)(jax.random.split(noise_key, self._num_pairs))
        loss = jnp.mean(losses)
        # A term whose value is zero and whose gradient is the estimate.
        for leaf, slope in zip(jax.tree.leaves(params), slopes, strict=True):
            loss = loss + jnp.sum(jnp.mean(slope, axis=0) * (leaf - jax.lax.stop_gradient(leaf)))
        first_state = jax.tree.map(lambda leaf: leaf[0], states)
        return loss, first_state, {name: jnp.mean(values) for name, values in aux.items()}


@configurable
class Distillation(ReferencedTask, MeasuredTask):
    """Distillation of a large classifier of the digits into a small one; Kullback-Leibler divergence in nats.

    The teacher is a ridge regression on 512 random ReLU features of the training split, computed when the task is
    created. The loss is the mean of KL(teacher, student); its floor is 0. `accuracy` is measured on the true labels.
    Batches have `image` float32[batch, 64], `label` int32[batch] and `teacher` float32[batch, 10], log probabilities.
    Source: Hinton et al. 2015 (arXiv 1503.02531).

    Args:
      hidden_sizes, activation, batch_size: As in DigitsMLP, for the student.
    """

    datasets: Datasets
    reference_loss = math.log(NUM_CLASSES)  # about that of a uniform guess

    def __init__(
        self, *, hidden_sizes: tuple[int, ...] = (16,), activation: str = "relu", batch_size: int = 64
    ) -> None:
        self._student = DigitsMLP(hidden_sizes=hidden_sizes, activation=activation, batch_size=batch_size)
        examples = _examples_with_teacher()
        self.datasets = Datasets(**{split: ArrayDataset(arrays, batch_size) for split, arrays in examples.items()})

    def init(self, key: jax.Array) -> Params:
        return self._student.init_with_state(key)[0]

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        logits, _ = self._student.logits(params, None, data["image"], training=True)
        gap = jnp.exp(data["teacher"]) * (data["teacher"] - jax.nn.log_softmax(logits))
        return jnp.mean(jnp.sum(gap, axis=-1)), state, {"accuracy": accuracy(logits, data["label"])}


@functools.cache
def _examples_with_teacher() -> dict[str, dict[str, np.ndarray]]:
    splits = digits_splits()
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((NUM_PIXELS, 512)) / 8
    biases = rng.standard_normal(512) / 2

    def features(images: np.ndarray) -> np.ndarray:
        return np.maximum(images @ weights + biases, 0.0)

    hidden = features(splits.train["image"])
    targets = np.eye(NUM_CLASSES)[splits.train["label"]]
    readout = np.linalg.solve(hidden.T @ hidden + 0.1 * np.eye(512), hidden.T @ targets)
    examples = {}
    for split in SPLITS:
        arrays = getattr(splits, split)
        # Rounded: the last bits of a matrix product differ from machine to machine.
        logits = np.round(8 * features(arrays["image"]) @ readout, 3)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        examples[split] = arrays | {"teacher": logits.astype(np.float32)}
    return examples


@configurable
class DatasetDistillation(ReferencedTask, MeasuredTask):
    """Distillation of the digits into a few images, on which a classifier is trained.

    Parameters are `image` [10 images_per_class, 64] and the logarithm of a learning rate. A softmax regression starts
    at zero and takes `num_unroll` steps of gradient descent on the images, which have fixed labels. The loss is its
    cross entropy on a batch of the digits, and `accuracy` its accuracy there. The gradient is backpropagated through
    this training. The floor is unknown; a uniform guess has log 10. Source: Wang et al. 2018 (arXiv 1811.10959).

    Args:
      images_per_class: Number of learned images per digit.
      num_unroll: Number of steps of gradient descent.
      batch_size: Examples per batch, in training and evaluation.
    """

    datasets: Datasets
    reference_loss = math.log(NUM_CLASSES)

    def __init__(self, *, images_per_class: int = 1, num_unroll: int = 10, batch_size: int = 64) -> None:
        self._num_unroll = arguments.integer(self, "num_unroll", num_unroll)
        self._labels = np.tile(np.arange(NUM_CLASSES), arguments.integer(self, "images_per_class", images_per_class))
        self.datasets = make_datasets(digits_splits, arguments.integer(self, "batch_size", batch_size))

    def init(self, key: jax.Array) -> Params:
        images = 0.1 * jax.random.normal(key, (len(self._labels), NUM_PIXELS), jnp.float32)
        return {"image": images, "log_rate": jnp.zeros((), jnp.float32)}

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        one_hot = jax.nn.one_hot(self._labels, NUM_CLASSES)
        rate = jnp.exp(params["log_rate"])

        def step(_: int, weights: jax.Array) -> jax.Array:
            errors = jax.nn.softmax(params["image"] @ weights) - one_hot
            return weights - rate * params["image"].T @ errors / len(self._labels)

        zeros = jnp.zeros((NUM_PIXELS, NUM_CLASSES), jnp.float32)
        logits = data["image"] @ jax.lax.fori_loop(0, self._num_unroll, step, zeros)
        return softmax_cross_entropy(logits, data["label"]), state, {"accuracy": accuracy(logits, data["label"])}
