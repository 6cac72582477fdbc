import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.image import DigitsAutoencoder, DigitsConv, DigitsMLP, PermutedDigits

KEY = jax.random.key(5)
BATCH = jax.tree.map(lambda leaf: jnp.asarray(leaf[:48]), digits_splits().train)


def test_mlp_is_the_documented_function():
    task = DigitsMLP(hidden_sizes=(32,), activation="relu")
    params, state = task.init_with_state(KEY)
    assert state is None
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "w0": (64, 32),
        "b0": (32,),
        "w1": (32, 10),
        "b1": (10,),
    }
    assert all(leaf.dtype == jnp.float32 for leaf in params.values())
    loss, _, aux = task.loss_with_state_and_aux(params, None, KEY, BATCH)

    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    logits = np.maximum(np.asarray(BATCH["image"]) @ p["w0"] + p["b0"], 0) @ p["w1"] + p["b1"]
    log_probabilities = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    labels = np.asarray(BATCH["label"])
    assert float(loss) == pytest.approx(-log_probabilities[np.arange(48), labels].mean(), rel=1e-5)
    assert float(aux["accuracy"]) == pytest.approx((logits.argmax(1) == labels).mean())


def test_batch_norm_state_moves_in_training_and_rules_evaluations():
    task = DigitsMLP(hidden_sizes=(16, 8), norm="batch")
    params, state = task.init_with_state(KEY)
    assert set(state) == {"mean0", "variance0", "mean1", "variance1"}
    kept = jax.tree.map(np.asarray, state)
    _, new_state, _ = task.loss_with_state_and_aux(params, state, KEY, BATCH)
    for name, leaf in new_state.items():
        assert leaf.shape == state[name].shape
        assert not np.allclose(leaf, kept[name]), f"{name} did not move"
        np.testing.assert_array_equal(state[name], kept[name])  # the given state is left alone

    # Inference: an example's loss does not hang on the rest of its batch, but on the running statistics.
    one = jax.tree.map(lambda leaf: leaf[:1], BATCH)
    singles = [
        task.eval_loss_with_aux(params, new_state, KEY, jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], BATCH))[0]
        for i in range(4)
    ]
    four, _ = task.eval_loss_with_aux(params, new_state, KEY, jax.tree.map(lambda leaf: leaf[:4], BATCH))
    assert float(four) == pytest.approx(float(np.mean(singles)), rel=1e-5)
    before, _ = task.eval_loss_with_aux(params, state, KEY, one)
    assert abs(float(singles[0]) - float(before)) > 1e-4

    # Many training passes bring the running statistics, and with them the loss, to the batch's own.
    training_pass = jax.jit(task.loss_with_state_and_aux)
    for _ in range(150):
        training, new_state, _ = training_pass(params, new_state, KEY, BATCH)
    inference, _ = task.eval_loss_with_aux(params, new_state, KEY, BATCH)
    assert float(inference) == pytest.approx(float(training), rel=1e-3)


def test_layer_norm_ignores_the_scale_of_its_input_and_has_no_state():
    task = DigitsMLP(hidden_sizes=(16,), norm="layer")
    params, state = task.init_with_state(KEY)
    assert state is None
    loss = task.eval_loss_with_aux(params, None, KEY, BATCH)[0]
    scaled = task.eval_loss_with_aux({**params, "w0": 50 * params["w0"]}, None, KEY, BATCH)[0]
    assert float(scaled) == pytest.approx(float(loss), rel=1e-3)


TASKS = {
    "relu": DigitsMLP(hidden_sizes=(16,)),
    "batch": DigitsMLP(hidden_sizes=(16,), norm="batch"),
    "conv": DigitsConv(channels=(4, 8), batch_size=16),
    "bernoulli": DigitsAutoencoder(hidden_sizes=(16,), loss="bernoulli"),
}


@pytest.mark.parametrize("name", TASKS)
def test_adam_lowers_the_loss(name, train):
    (before, after), finite, aux = train(TASKS[name], steps=80, learning_rate=0.02)
    assert finite
    assert after < 0.85 * before
    assert 0 < float(aux["normalized"]) < 1
    assert ("accuracy" in aux) == (name != "bernoulli")


def test_autoencoder_normalizer_is_one_for_an_output_of_zeros():
    for loss in ("mse", "bernoulli"):
        task = DigitsAutoencoder(hidden_sizes=(4,), loss=loss)
        zeros = jax.tree.map(jnp.zeros_like, task.init(KEY))
        whole = jax.tree.map(jnp.asarray, digits_splits().train)
        assert float(task.normalizer(task.loss(zeros, KEY, whole))) == pytest.approx(1.0, rel=1e-5)


def test_permuted_digits_permute_the_batch():
    family = PermutedDigits(hidden_sizes=(16,))
    cfg = family.sample(KEY)
    assert sorted(cfg["pixel_perm"].tolist()) == list(range(64))
    assert sorted(cfg["label_perm"].tolist()) == list(range(10))
    task, plain = family.task_fn(cfg), DigitsMLP(hidden_sizes=(16,))
    params, _ = plain.init_with_state(KEY)
    image, label = np.asarray(BATCH["image"]), np.asarray(BATCH["label"])
    by_hand = {"image": image[:, np.asarray(cfg["pixel_perm"])], "label": np.asarray(cfg["label_perm"])[label]}
    expected, _ = plain.eval_loss_with_aux(params, None, KEY, by_hand)
    found, _ = task.eval_loss_with_aux(params, None, KEY, BATCH)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
    assert abs(float(found) - float(plain.eval_loss_with_aux(params, None, KEY, BATCH)[0])) > 1e-3
    assert family.datasets.train.arrays["image"] is plain.datasets.train.arrays["image"]
