import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.task import SPLITS
from lobench.inner.tasks.series import SeriesClassifier, SinusoidFamily

KEY = jax.random.key(0)


@pytest.mark.parametrize(("data", "count", "shape"), [("vowels", 640, (25, 12)), ("power", 1096, (24, 1))])
def test_the_splits_hold_every_series_once(data, count, shape):
    task = SeriesClassifier(data=data)
    arrays = [getattr(task.datasets, split).arrays for split in SPLITS]
    assert all(each["series"].shape[1:] == shape for each in arrays)
    rows = [row.tobytes() for each in arrays for row in each["series"]]
    assert len(rows) == count and len(set(rows)) >= 0.99 * count
    assert set(arrays[0]["label"].tolist()) == set(arrays[3]["label"].tolist())


@pytest.mark.parametrize(("network", "data"), [("gru", "vowels"), ("conv", "vowels"), ("mlp", "power")])
def test_adam_learns_to_tell_the_classes(network, data, train):
    task = SeriesClassifier(data=data, network=network, width=16)
    (before, after), finite, metrics = train(task, steps=150, learning_rate=0.02)
    assert finite
    assert before == pytest.approx(np.log(9 if data == "vowels" else 2), rel=0.5)
    assert after < 0.5 * before
    assert float(metrics["accuracy"]) > 0.8


def test_a_convolution_is_the_documented_function():
    task = SeriesClassifier(network="conv", width=3)
    params, series = task.init(KEY), task.datasets.train.arrays["series"][:2].astype(np.float32)
    kernel = np.asarray(params["w0"]).reshape(5, 12, 3)
    hidden = np.stack([sum(series[:, t + tap] @ kernel[tap] for tap in range(5)) for t in range(21)], axis=1)
    expected = np.maximum(hidden + params["b0"], 0).mean(axis=1) @ params["w1"] + params["b1"]
    np.testing.assert_allclose(task.logits(params, series), expected, rtol=1e-4, atol=1e-5)


def test_sinusoids_have_their_amplitude_and_period_and_a_gru_forecasts_them(train):
    family = SinusoidFamily(width=12, noise_std=0.0)
    cfg = family.sample(KEY)
    assert 0.5 <= float(cfg["amplitude"]) <= 2 and 6 <= 2 * np.pi / float(cfg["frequency"]) <= 48
    task = family.task_fn({"amplitude": jnp.float32(2.0), "frequency": jnp.float32(np.pi / 4)})
    silent = jax.tree.map(jnp.zeros_like, task.init(KEY))
    batch = {"phase": jnp.zeros(3), "noise": jnp.zeros((3, 25))}
    assert float(task.loss(silent, KEY, batch)) == pytest.approx(4 / 2, rel=1e-4)  # 24 values are three periods
    (before, after), finite, _ = train(task, steps=150, learning_rate=0.02)
    assert finite and after < 0.15 * before
