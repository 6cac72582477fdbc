"""Keys that a training is given are those that jax would derive inside its program."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lobench.inner.training.streams import EVAL, FILM, Replica, key_of, stream

_SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3)


def _data(keys: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(keys))


@jax.jit
def _streams(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the keys of all streams, as jax derives them and as a replica without keys does, uint32[num, 2]."""
    derived = [jax.random.fold_in(key_of(seed), which) for which in range(FILM + 1)]
    bare = [stream(Replica(seed, np.uint32(0)), which) for which in range(FILM + 1)]
    return jax.random.key_data(jnp.stack(derived)), jax.random.key_data(jnp.stack(bare))


@functools.partial(jax.jit, static_argnums=2)
def _of_split(seed: jax.Array, split: int, num_batches: int) -> jax.Array:
    """Returns the keys of data and of losses of a split's batches, uint32[num_batches, 2, 2]."""
    key = jax.random.fold_in(jax.random.fold_in(key_of(seed), EVAL), split)
    return jax.random.key_data(jax.vmap(jax.random.split)(jax.random.split(key, num_batches)))


@given(seeds=_SEEDS, num_splits=st.integers(1, 4), num_batches=st.integers(1, 5))
def test_keys_given_are_the_keys_derived(seeds: list[int], num_splits: int, num_batches: int) -> None:
    of_seeds = np.asarray(seeds, np.uint32)
    replicas = Replica.of(of_seeds, np.zeros_like(of_seeds), num_splits, num_batches)
    for index, seed in enumerate(of_seeds):
        derived, bare = _streams(seed)
        np.testing.assert_array_equal(derived, [keys[index] for keys in replicas.streams])
        np.testing.assert_array_equal(derived, bare)
        for split, keys in enumerate(replicas.evaluation):
            of_data, of_losses = (each[index] for each in keys)
            np.testing.assert_array_equal(_of_split(seed, split, num_batches), np.stack([of_data, of_losses], 1))
        assert len(replicas.evaluation) == num_splits


def test_one_replica_has_no_axis() -> None:
    one = Replica.of(np.asarray([3], np.uint32), np.asarray([0], np.uint32), 2, 5).alone()
    assert one.seed.shape == one.task.shape == ()
    assert _data(stream(one, EVAL)).tolist() == _data(stream(Replica(np.uint32(3), np.uint32(0)), EVAL)).tolist()
    assert [[each.shape for each in split] for split in one.evaluation] == [[(5, 2), (5, 2)]] * 2
