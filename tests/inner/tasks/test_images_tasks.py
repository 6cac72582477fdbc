"""Classifiers and autoencoders of images, signals and patches: known answers, floors, wrong arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.autoencoder import ImageAutoencoder, ImageVAE
from lobench.inner.tasks.convolutional import ResNetClassifier
from lobench.inner.tasks.denoising import PatchDenoiser, patch_splits
from lobench.inner.tasks.multilayer import DiabetesMLP
from lobench.inner.tasks.normalization import Norm, normalized
from lobench.inner.tasks.signals import SignalConv, SignalGRU
from lobench.inner.tasks.tables import diabetes_splits
from lobench.inner.tasks.vision import MixerClassifier

KEY = jax.random.key(5)


def batch(task, size=6):
    return jax.tree.map(lambda leaf: leaf[:size], task.datasets.train.arrays)


def zeros(task):
    """Parameters of zeros, as numpy arrays: eager jax compiles each of its operations."""
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(task.init, KEY))


def test_batch_norm_of_a_convolution_is_over_examples_and_places():
    x = np.random.default_rng(0).normal(3.0, 2.0, (5, 4, 4, 2)).astype(np.float32)
    params = {"scale0": jnp.array([1.0, 2.0]), "shift0": jnp.array([0.0, 1.0])}
    state = {"mean0": jnp.zeros(2), "variance0": jnp.ones(2), "other": jnp.ones(3)}
    out, moved = normalized(Norm(kind="batch"), x, "0", params, state, training=True)
    expected = (x - x.mean((0, 1, 2))) / x.std((0, 1, 2)) * params["scale0"] + params["shift0"]
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(moved["mean0"], 0.1 * x.mean((0, 1, 2)), rtol=1e-4)
    assert set(moved) == set(state) and set(state) == {"mean0", "variance0", "other"}


def test_a_signal_net_has_the_published_shape():
    params = jax.eval_shape(SignalConv().init, KEY)
    assert sum(leaf.size for leaf in params.values()) == 5210


def test_a_recurrent_net_reads_a_signal_from_both_ends():
    task = SignalGRU(width=2, batch_size=2)
    params = jax.jit(task.init)(KEY)
    logits = jax.jit(lambda params, signal: task.logits(params, None, signal, training=True)[0])
    signal = np.array(batch(task, 2)["signal"])
    turned = {name: leaf if name in ("w_out", "b_out") else leaf[::-1] for name, leaf in params.items()}
    turned["w_out"] = params["w_out"].reshape(2, -1, 10)[::-1].reshape(-1, 10)
    np.testing.assert_allclose(logits(turned, signal[:, ::-1]), logits(params, signal), rtol=1e-4, atol=1e-5)
    first, last = signal.copy(), signal.copy()
    first[:, 0] += 3.0
    last[:, -1] += 3.0
    only_last_time = dict(params)
    weights = np.zeros((2, 40, 2, 10), np.float32)
    weights[0, -1] = 1.0  # of what the unit from the start says after the last point
    only_last_time["w_out"] = weights.reshape(-1, 10)
    assert not np.array_equal(logits(only_last_time, last), logits(only_last_time, signal))
    weights[0, -1], weights[0, 0] = 0.0, 1.0  # and after the first
    only_first_time = {**params, "w_out": weights.reshape(-1, 10)}
    np.testing.assert_array_equal(logits(only_first_time, last), logits(only_first_time, signal))
    assert not np.array_equal(logits(only_first_time, first), logits(only_first_time, signal))


def test_a_residual_block_without_its_layers_passes_its_input_on():
    task = ResNetClassifier(data="digits", channels=(3,), norm="layer", batch_size=2)
    params, state = jax.jit(task.init_with_state)(KEY)
    assert state is None
    params = {**params, "kernel0b": np.zeros((27, 3), np.float32)}
    image = batch(task)["image"]
    logits = jax.jit(lambda params: task.logits(params, None, image, training=True)[0])
    changed = {**params, "kernel0a": 3 * np.asarray(params["kernel0a"])}
    np.testing.assert_array_equal(logits(params), logits(changed))
    stem = {**params, "kernel_stem": -np.asarray(params["kernel_stem"])}
    assert not np.array_equal(logits(params), logits(stem))


def test_a_mixer_sees_patches_row_by_row_and_mixes_them():
    task = MixerClassifier(data="digits", patch=4, width=4, num_layers=1, batch_size=2)
    patches = task._patches(np.arange(64.0)[None])
    assert patches[0, :, 0].tolist() == [0, 4, 32, 36]
    assert patches[0, 1, :5].tolist() == [4, 5, 6, 7, 12]
    params = jax.jit(task.init)(KEY)
    layers = jax.jit(lambda x: task.layers(params["layers"], x))
    x = np.random.default_rng(0).standard_normal((1, 4, 4)).astype(np.float32)
    other = x.copy()
    other[0, 3, 1] += 5.0
    moved = np.abs(np.asarray(layers(x)) - np.asarray(layers(other)))
    assert (moved[0, 0] > 1e-4).any(), "the first patch knows nothing of the last"


def test_a_vae_pays_for_its_code():
    task = ImageVAE(data="digits", hidden_sizes=(4,), code_size=2, batch_size=4)
    data, losses = batch(task), jax.jit(task.loss_with_state_and_aux)
    loss, _, metrics = losses(jax.jit(task.init)(KEY), None, KEY, data)
    assert float(loss) == pytest.approx(float(metrics["reconstruction"] + metrics["kl"]), rel=1e-6)
    # A standard normal code costs nothing, and a decoder of zeros says one half of each pixel.
    silent = zeros(task)
    loss, _, metrics = losses(silent, None, KEY, data)
    assert float(metrics["kl"]) == 0 and float(loss) == pytest.approx(np.log(2), rel=1e-5)
    # Means of 2 and variances of e: 0.5 (4 + e - 1 - 1) nats for each of two, over 64 pixels.
    silent["encoder"]["b1"] = np.float32([2, 2, 1, 1])
    _, _, metrics = losses(silent, None, KEY, data)
    assert float(metrics["kl"]) == pytest.approx((2 + np.e) / 64, rel=1e-5)


def test_the_floor_of_reconstructions_is_the_entropy_of_the_grey_values():
    task = ImageAutoencoder(data="digits", hidden_sizes=(4,), loss="bernoulli")
    white = np.asarray(task.datasets.train.arrays["image"], np.float64)
    safe = np.clip(white, 1e-12, 1 - 1e-12)
    assert task.floor == pytest.approx(-(white * np.log(safe) + (1 - white) * np.log(1 - safe)).mean(), rel=1e-4)
    assert ImageVAE(data="digits").floor == task.floor
    assert ImageAutoencoder(data="digits").floor == 0


def test_linear_regression_reaches_its_floor_and_no_less():
    task = DiabetesMLP()
    train = diabetes_splits().train
    inputs = np.column_stack([train["features"], np.ones(266)])
    # By gradient descent, in numpy: the floor is from least squares.
    w = np.zeros(11)
    for _ in range(20_000):
        w -= 0.1 * inputs.T @ (inputs @ w - train["target"]) / 266
    params = {"w0": w[:10, None].astype(np.float32), "b0": w[10:].astype(np.float32)}
    loss = jax.jit(task.loss)
    assert float(loss(params, KEY, train)) == pytest.approx(task.floor, rel=1e-5)
    assert float(loss({**params, "b0": params["b0"] + np.float32(0.01)}, KEY, train)) > task.floor
    assert DiabetesMLP(hidden_sizes=(3,)).floor == 0


def test_the_wiener_filter_reaches_the_denoisers_linear_floor():
    task = PatchDenoiser(side=4, hidden_sizes=(), noise_std=0.5)
    patches = patch_splits(4).train["patch"]
    covariance = np.cov(patches.T.astype(np.float64), bias=True)
    noise = 0.25 * np.linalg.inv(covariance + 0.25 * np.eye(16))  # of the noise, given the noisy patch
    params = {"w0": noise.T.astype(np.float32), "b0": (-noise @ patches.mean(0)).astype(np.float32)}
    loss = jax.jit(task.loss)
    assert float(loss(params, KEY, {"patch": patches})) == pytest.approx(task.linear_floor, rel=0.02)
    assert float(loss(zeros(task), KEY, {"patch": patches})) == pytest.approx(0.25, rel=0.02)
