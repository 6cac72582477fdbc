"""Batches of Python iterators are read beside the program, in one thread that ends with the training."""

from __future__ import annotations

import itertools
import threading
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
from lobench.inner.adapters import as_stepper
from lobench.inner.task import Datasets, IteratorDataset, Task
from lobench.inner.training.prefetch import ITERATOR_CHUNK, num_batches_to_read
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

PATIENT = 60.0  # seconds; a test that passes waits for milliseconds


class Counts(Task):
    """The loss is the batch, and its number; what is done at each batch is told."""

    def __init__(self, at: Any) -> None:
        def batches(seed: int) -> Iterator[np.ndarray]:
            for number in itertools.count():
                at(number)
                yield np.float32(number)

        self.datasets = Datasets(train=IteratorDataset(batches))

    def init(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(())

    def loss(self, params: jax.Array, key: jax.Array, data: Any) -> jax.Array:
        return data + 0 * params


class Waits(Counts):
    """Computes only once the batches of the next chunk are being read."""

    def __init__(self) -> None:
        self.is_ahead = threading.Event()
        super().__init__(lambda number: self.is_ahead.set() if number == num_batches_to_read(0) else None)

    def loss(self, params: jax.Array, key: jax.Array, data: Any) -> jax.Array:
        seen = jax.pure_callback(lambda: np.float32(self.is_ahead.wait(PATIENT)), jax.ShapeDtypeStruct((), jnp.float32))
        return super().loss(params, key, data) * seen


def run(task: Task, *, num_inner_steps: int = 120, should_stop: Any = None) -> Curves | None:
    case = Case(task=task, num_inner_steps=num_inner_steps, num_seeds=1, eval_every=100, log_every=1, eval_batches=0)
    program = TrainingProgram(case, task, lambda theta: as_stepper(optax.sgd(0.1), num_inner_steps), 1)
    return program.run({}, SeedBlock(start=0, size=1), should_stop=should_stop)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lobench reads batches"]


def test_the_next_chunk_is_read_while_this_one_computes() -> None:
    curves = run(Waits())
    assert curves is not None
    assert curves.metrics["batch/loss"].tolist() == [[float(number) for number in range(120)]]


def test_one_thread_reads_no_further_than_the_training_and_ends_with_it() -> None:
    read: list[tuple[int, int]] = []
    assert run(Counts(lambda number: read.append((number, threading.get_ident())))) is not None
    of_training = read[-120:]  # before them, the batches of the shapes of what is compiled
    assert [number for number, _ in of_training] == list(range(120))
    assert {thread for _, thread in of_training} != {threading.get_ident()}
    assert len({thread for _, thread in of_training}) == 1
    for thread in readers():
        thread.join(PATIENT)
    assert not readers()


def test_what_fails_ahead_fails_in_its_turn_and_a_stopped_training_never_meets_it() -> None:
    def at(number: int) -> None:
        if number == ITERATOR_CHUNK + 7:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        run(Counts(at))
    assert run(Counts(at), should_stop=lambda: True) is None
    for thread in readers():
        thread.join(PATIENT)
    assert not readers()


@pytest.mark.parametrize("other", [np.ones(3, np.float32), np.float32(1), {"a": np.ones(2, np.float32)}])
def test_a_batch_that_is_unlike_the_first_one_is_refused(other: Any) -> None:
    class Uneven(Counts):
        def __init__(self) -> None:
            def batches(seed: int) -> Iterator[Any]:
                for number in itertools.count():
                    yield other if number == 7 else np.ones(2, np.float32)

            self.datasets = Datasets(train=IteratorDataset(batches))

        def loss(self, params: jax.Array, key: jax.Array, data: Any) -> jax.Array:
            return data.sum() + 0 * params

    with pytest.raises(ConfigError, match=SHOWN["batch-of-the-iterator-of"]):
        run(Uneven())
