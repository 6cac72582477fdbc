import jax
import numpy as np
import pytest

from lobench.inner.task import SPLITS
from lobench.inner.tasks.grammar import alphabet
from lobench.inner.tasks.sequence import ByteRNN

KEY = jax.random.key(2)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logits_by_hand(params, symbols, cell):
    """One window, one symbol at a time, in float64."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    width = p["w_out"].shape[0]
    hidden, memory, rows = np.zeros(width), np.zeros(width), []
    for symbol in symbols:
        x, h = p["w_in"][symbol] + p["b"], hidden @ p["w_state"]
        if cell == "gru":
            r, z = sigmoid(x[:width] + h[:width]), sigmoid(x[width : 2 * width] + h[width : 2 * width])
            hidden = z * hidden + (1 - z) * np.tanh(x[2 * width :] + r * h[2 * width :])
        else:
            i, f, g, o = np.split(x + h, 4)
            memory = sigmoid(f + 1) * memory + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(memory)
        rows.append(hidden @ p["w_out"] + p["b_out"])
    return np.stack(rows)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_net_is_the_documented_function_and_causal(cell):
    task = ByteRNN(cell=cell, width=6, sequence_length=8, batch_size=3)
    params = task.init(KEY)
    params["b"] = params["b"] + 0.1
    windows = task.datasets.train.sample(KEY)
    assert windows.shape == (3, 9)
    logits = task.logits(params, windows[:, :-1])
    for row in range(3):
        expected = logits_by_hand(params, np.asarray(windows[row, :-1]), cell)
        np.testing.assert_allclose(logits[row], expected, rtol=1e-4, atol=1e-5)
    loss, state, aux = task.loss_with_state_and_aux(params, None, KEY, windows)
    log_probabilities = jax.nn.log_softmax(logits)
    targets = np.asarray(windows[:, 1:])
    picked = np.take_along_axis(np.asarray(log_probabilities), targets[..., None], axis=-1)
    assert float(loss) == pytest.approx(-picked.mean(), rel=1e-5)
    assert state is None
    assert float(aux["accuracy"]) == pytest.approx((np.asarray(logits).argmax(-1) == targets).mean())


def test_splits_are_different_texts():
    task = ByteRNN()
    arrays = [np.asarray(getattr(task.datasets, split).arrays) for split in SPLITS]
    assert all(array.shape[1] == 25 for array in arrays)
    starts = {array[:4].tobytes() for array in arrays}
    assert len(starts) == len(SPLITS)
    assert ByteRNN().datasets.train.arrays is task.datasets.train.arrays


@pytest.mark.parametrize(("grammar", "cell"), [("arithmetic", "gru"), ("brackets", "gru"), ("words", "lstm")])
def test_adam_lowers_the_loss(grammar, cell, train):
    task = ByteRNN(grammar=grammar, cell=cell, width=16, sequence_length=12, batch_size=8)
    (before, after), finite, aux = train(task, steps=80, learning_rate=0.02)
    assert finite
    assert before == pytest.approx(np.log(len(alphabet(grammar))), rel=0.15)
    assert after < 0.85 * before
    assert 0 < float(aux["normalized"]) < 1
    assert 0 < float(aux["accuracy"]) < 1
