"""Keys that a training is given are those that jax would derive inside its program."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lobench.inner.training.streams import EVAL, FILM, Replica, key_of, stream

_SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3)


def _data(keys: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(keys))


@given(seeds=_SEEDS, num_splits=st.integers(1, 4), num_batches=st.integers(1, 5))
def test_keys_given_are_the_keys_derived(seeds: list[int], num_splits: int, num_batches: int) -> None:
    of_seeds = np.asarray(seeds, np.uint32)
    replicas = Replica.of(of_seeds, np.zeros_like(of_seeds), num_splits, num_batches)
    for index, seed in enumerate(of_seeds):
        bare = Replica(seed, np.uint32(0))
        for which in range(FILM + 1):
            derived = jax.random.fold_in(key_of(seed), which)
            np.testing.assert_array_equal(_data(derived), replicas.streams[which][index])
            np.testing.assert_array_equal(_data(derived), _data(stream(bare, which)))
        for split in range(num_splits):
            keys = jax.random.split(jax.random.fold_in(stream(bare, EVAL), split), num_batches)
            of_data, of_losses = (each[index] for each in replicas.evaluation[split])
            np.testing.assert_array_equal(_data(jax.vmap(jax.random.split)(keys)), np.stack([of_data, of_losses], 1))


def test_one_replica_has_no_axis() -> None:
    one = Replica.of(np.asarray([3], np.uint32), np.asarray([0], np.uint32), 2, 5).alone()
    assert one.seed.shape == one.task.shape == ()
    assert _data(stream(one, EVAL)).tolist() == _data(stream(Replica(np.uint32(3), np.uint32(0)), EVAL)).tolist()
    assert [[each.shape for each in split] for split in one.evaluation] == [[(5, 2), (5, 2)]] * 2
