"""The shipped tasks, at small sizes, and iterators and families of a test's own keep the tasks' contract."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.core.case import SeedBlock
from lobench.inner import tasks
from lobench.inner.task import Datasets, IteratorDataset, Task, TaskFamily
from lobench.inner.tasks.control import REINFORCE, Catch, ReachGoals
from lobench.testing.tasks import TaskContract, _program

SHIPPED: dict[str, dict[str, Any]] = {
    "Ackley": {},
    "AssociativeRecall": {"num_pairs": 3, "network": "gru", "width": 4, "batch_size": 2},
    "Beale": {},
    "BlockModelGCN": {"num_nodes": 12, "width": 2},
    "ByteRNN": {"width": 4, "sequence_length": 6, "batch_size": 2},
    "ConvClassifier": {"data": "digits", "channels": (2, 2), "norm": "layer", "batch_size": 4},
    "DatasetDistillation": {"num_unroll": 2, "batch_size": 4},
    "DiabetesMLP": {"hidden_sizes": (4,), "batch_size": 4},
    "DigitsAutoencoder": {"hidden_sizes": (4,), "batch_size": 4},
    "DigitsConv": {"channels": (2,), "batch_size": 4},
    "DigitsMLP": {"hidden_sizes": (4,), "batch_size": 4},
    "Distillation": {"hidden_sizes": (4,), "batch_size": 4},
    "ESSmoothed": {"num_pairs": 2},
    "GoalFamily": {"task": REINFORCE(env=ReachGoals(num_tasks=9, time_limit=2), num_envs=2, hidden_sizes=(2,))},
    "HeatPINN": {"hidden_sizes": (4,), "num_points": 4},
    "HiddenMarkov": {"num_states": 2, "num_symbols": 3, "width": 4, "sequence_length": 4, "batch_size": 2},
    "ImageAutoencoder": {"hidden_sizes": (4,), "batch_size": 4, "loss": "bernoulli"},
    "ImageVAE": {"data": "mnist8", "hidden_sizes": (4,), "code_size": 2, "batch_size": 4},
    "MLPClassifier": {"data": "wine", "hidden_sizes": (4,), "batch_size": 4, "norm": "batch"},
    "MetaTraining": {"num_unroll": 2, "num_tasks": 2},
    "MixerClassifier": {"data": "digits", "patch": 4, "width": 4, "num_layers": 1, "batch_size": 2},
    "ModularAddition": {"modulus": 4, "network": "lstm", "width": 4, "batch_size": 2},
    "MultiTaskDigits": {"hidden_sizes": (4,), "batch_size": 4},
    "MultiTaskRegression": {
        "num_losses": 2,
        "hidden_sizes": (4,),
        "num_inputs": 3,
        "num_outputs": 2,
        "batch_size": 4,
    },
    "PPO": {"env": Catch(rows=2, columns=2), "num_envs": 2, "num_steps": 4, "hidden_sizes": (2,)},
    "PatchDenoiser": {"side": 4, "hidden_sizes": (4,), "batch_size": 4},
    "Permuted": {},
    "PermutedDigits": {"hidden_sizes": (4,), "batch_size": 4},
    "PythonText": {"width": 4, "num_layers": 1, "num_heads": 2, "sequence_length": 6, "batch_size": 2},
    "Quadratic": {"dim": 3},
    "QuadraticFamily": {"dim": 3},
    "REINFORCE": {"env": Catch(rows=2, columns=2), "num_envs": 2, "hidden_sizes": (2,)},
    "ResNetClassifier": {"data": "digits", "channels": (2, 4), "batch_size": 2},
    "Rosenbrock": {},
    "SeriesClassifier": {"data": "power", "network": "conv", "width": 4, "batch_size": 4},
    "SignalConv": {"channels": 2, "batch_size": 2},
    "SignalGRU": {"width": 2, "batch_size": 2},
    "SinusoidFamily": {"width": 4, "sequence_length": 4, "batch_size": 2},
    "StiffODE": {"width": 4, "num_steps": 2, "batch_size": 4},
    "StyblinskiTang": {},
    "ViTClassifier": {"data": "digits", "patch": 4, "width": 4, "num_layers": 1, "batch_size": 2},
}


def test_all_shipped_tasks_are_here() -> None:
    # tests/inner/tasks has the contracts of wrappers and of streams, which are nothing without a task, and of modules.
    assert {*SHIPPED, *tasks.wrappers.__all__, *tasks.continual.__all__, *tasks.modules.__all__} == set(tasks.__all__)


class Shipped(TaskContract):
    name: str

    def task(self) -> Any:
        return getattr(tasks, self.name)(**SHIPPED[self.name])


for _name in SHIPPED:
    globals()[f"Test{_name}"] = type(f"Test{_name}", (Shipped,), {"name": _name})


FAMILIES = ("GoalFamily", "Permuted", "PermutedDigits", "QuadraticFamily", "SinusoidFamily")
CONTROL = ("GoalFamily", "PPO", "REINFORCE")  # tests/inner/tasks/control trains them
WITHOUT_DATA = ("Ackley", "Beale", "MetaTraining", "Quadratic", "QuadraticFamily", "Rosenbrock", "StyblinskiTang")

# What the contract asks about families and about batches asks nothing of the others.
for _name in set(SHIPPED) - set(FAMILIES):
    globals()[f"Test{_name}"].test_a_task_of_a_family_is_the_same_whatever_their_number = None
for _name in (*WITHOUT_DATA, *CONTROL):
    globals()[f"Test{_name}"].test_batches_depend_on_the_key_alone_and_have_one_shape = None

# These take seconds to compile; the tests of the inner program, of the suites and of the tasks train them.
LONG_TO_COMPILE = ("DatasetDistillation", "DigitsAutoencoder", "DigitsConv", "DigitsMLP", "ESSmoothed", "MetaTraining")
LONG_TO_COMPILE += ("MultiTaskDigits",)
for _name in LONG_TO_COMPILE:
    globals()[f"Test{_name}"].test_trained_by_the_inner_program_it_gives_finite_curves_and_the_same_bits_twice = None

# The others are trained as a task of the same kind is, which the contract compiles: with examples drawn from arrays,
# with batches made from a key, with a state. The inner program is traced with them; their numbers are the loss's.
TRAINED_ALIKE = (
    *("AssociativeRecall", "BlockModelGCN", "ByteRNN", "DiabetesMLP", "Distillation", "ImageAutoencoder", "ImageVAE"),
    *("MixerClassifier", "ModularAddition", "PatchDenoiser", "PermutedDigits", "PythonText", "ResNetClassifier"),
    *("SeriesClassifier", "SignalConv", "SignalGRU", "ViTClassifier"),
)


def is_traced(self: TaskContract) -> None:
    assert {"train/loss"} <= _program(self._cache_key, 2).trace({}, SeedBlock(start=0, size=2))


for _name in TRAINED_ALIKE:
    globals()[f"Test{_name}"].test_trained_by_the_inner_program_it_gives_finite_curves_and_the_same_bits_twice = None
    globals()[f"Test{_name}"].test_the_inner_program_takes_it = is_traced


class Fed(Task):
    def __init__(self) -> None:
        def batches(seed: int) -> Iterator[np.ndarray]:
            generator = np.random.default_rng(seed)
            while True:
                yield generator.standard_normal(4).astype(np.float32)

        self.datasets = Datasets(train=IteratorDataset(batches), test=IteratorDataset(lambda seed: batches(seed + 1)))

    def init(self, key: jax.Array) -> Any:
        return jax.random.normal(key, ())

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.mean((params - data) ** 2)


class TestFedByIterators(TaskContract):
    test_a_task_of_a_family_is_the_same_whatever_their_number = None  # it is one task

    def task(self) -> Any:
        return Fed()


class Restless(Task):
    """What the contract must notice: the numbers hang on how often they were asked for."""

    calls = 0

    def init(self, key: jax.Array) -> Any:
        return jnp.ones(2)

    def eval_loss_with_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        return jnp.sum(params).astype(jnp.float16), {}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.sum(params) / 0.0


class Shapeless(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return jax.random.normal(key, (2,))

    def task_fn(self, cfg: Any) -> Task:
        return Restless()


def test_the_contract_notices() -> None:
    class Broken(TaskContract):
        def task(self) -> Any:
            return Shapeless()

    contract = Broken()
    for broken in (
        contract.test_the_loss_is_a_finite_number_with_finite_gradients_and_depends_on_the_key_alone,
        contract.test_an_evaluation_gives_numbers_of_the_same_names_on_every_split,
        contract.test_trained_by_the_inner_program_it_gives_finite_curves_and_the_same_bits_twice,
    ):
        with pytest.raises(AssertionError):
            broken()
    contract.test_a_task_of_a_family_is_the_same_whatever_their_number()
