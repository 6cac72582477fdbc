import subprocess
import sys

import numpy as np

from lobench.inner.task import SPLITS
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.splits import make_datasets


def test_splits_are_the_documented_rows():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(12345).permutation(1797)
    splits = digits_splits()
    bounds = {"train": (0, 1077), "inner_valid": (1077, 1257), "outer_valid": (1257, 1437), "test": (1437, 1797)}
    assert set(bounds) == set(SPLITS)
    for name, (start, end) in bounds.items():
        split = getattr(splits, name)
        np.testing.assert_array_equal(split["image"], (images / 16).astype(np.float32)[order[start:end]])
        np.testing.assert_array_equal(split["label"], labels[order[start:end]])
        assert split["image"].dtype == np.float32
        assert split["label"].dtype == np.int32
        assert split["image"].min() >= 0
        assert split["image"].max() <= 1


def test_datasets_share_their_arrays():
    small, large = make_datasets(digits_splits, 8), make_datasets(digits_splits, 64)
    assert small.train.arrays["image"] is large.train.arrays["image"]
    assert make_datasets(digits_splits, 8) is small
    assert (small.test.batch_size, large.test.batch_size) == (8, 64)


def test_building_tasks_leaves_jax_without_a_backend():
    program = """
import lobench.inner.tasks as tasks
from jax._src import xla_bridge
for name in set(tasks.__all__) - {*tasks.wrappers.__all__, "module_task"}:
    getattr(tasks, name)()
assert not xla_bridge.backends_are_initialized()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
