import numpy as np
import pytest

from lobench.inner.task import SPLITS
from lobench.inner.tasks.data import load_text
from lobench.inner.tasks.language import PythonText
from lobench.inner.tasks.recall import AssociativeRecall, ModularAddition


def symbols_of(task, split):
    arrays = getattr(task.datasets, split).arrays
    return np.asarray(arrays["symbols"] if isinstance(arrays, dict) else arrays)


def test_the_splits_are_the_text_in_order():
    task = PythonText(width=4, num_heads=1, sequence_length=49)
    alphabet = np.frombuffer(b"\n" + bytes(range(32, 127)), np.uint8)
    assert task.network.vocab_size == 96
    parts = [alphabet[symbols_of(task, split)].tobytes() for split in SPLITS]
    assert b"".join(parts) == load_text("python_library")
    assert [len(part) for part in parts] == [901_000, 33_000, 33_000, 33_000]
    assert b"def __init__(self" in parts[0] and b"import" in parts[3]


def test_a_transformer_learns_more_than_the_frequencies_of_bytes(train):
    task = PythonText(width=32, num_layers=1, num_heads=2, sequence_length=16, batch_size=32)
    (before, after), finite, metrics = train(task, steps=120, learning_rate=0.01)
    assert finite
    assert before == pytest.approx(np.log(96), rel=0.3)
    assert after < 3.0  # the frequencies' is 3.16
    assert 0.2 < float(metrics["accuracy"]) < 1


def test_recall_counts_where_a_key_comes_again_and_its_value_is_the_one_before():
    task = AssociativeRecall(num_pairs=5, num_keys=3, num_values=4)
    arrays = task.datasets.train.arrays
    for window, weight in zip(arrays["symbols"][:200], arrays["weight"], strict=False):
        keys, values = window[::2], window[1::2]
        assert keys.max() < 3 <= values.min() and values.max() < 7
        assert len(set(zip(keys.tolist(), values.tolist(), strict=True))) == len(set(keys.tolist()))
        assert weight[::2].tolist() == [key in keys[:place] for place, key in enumerate(keys)]
        assert not weight[1::2].any()


def test_recall_and_its_loss_are_of_the_weighted_positions_alone(train):
    task = AssociativeRecall(num_pairs=8, num_keys=2, num_values=2, network="gru", width=24)
    (before, after), _, metrics = train(task, steps=150, learning_rate=0.03)
    assert before == pytest.approx(np.log(4), rel=0.2)
    assert after < 0.6  # a guess has log 2
    assert float(metrics["accuracy"]) > 0.6


def test_sums_are_right_and_each_pair_is_in_one_split():
    task = ModularAddition(modulus=7)
    rows = np.concatenate([symbols_of(task, split) for split in SPLITS]).astype(int)
    assert len({(a, b) for a, b, _, _ in rows.tolist()}) == 49 == len(rows)
    assert ((rows[:, 0] + rows[:, 1]) % 7 == rows[:, 3]).all() and (rows[:, 2] == 7).all()
    assert [len(symbols_of(task, split)) for split in SPLITS] == [31, 6, 6, 6]
