"""`lobench.load_optimizer`: a checkpoint in a training loop of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import reference_theta
from shown import texts_of
from tiny import write_checkpoint

import lobench
from lobench import ConfigError, ThetaMismatch, UsageError
from lobench.core.subject import optimizer_bindings
from lobench.inner.adapters import as_transformation

SHOWN = texts_of("api")

STEPS = 200
SUITE = """
import jax, jax.numpy as jnp, optax
import flax.linen as nn
from sklearn.datasets import load_digits
from lobench import Task, configurable

DATA = load_digits()
IMAGES, LABELS = jnp.asarray(DATA.data[:256] / 16, jnp.float32), jnp.asarray(DATA.target[:256])

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.tanh(nn.Dense(16)(x)))

def loss_of(params):
    return optax.softmax_cross_entropy_with_integer_labels(Net().apply(params, IMAGES), LABELS).mean()

@configurable
class FlaxDigits(Task):
    def init(self, key):
        return Net().init(jax.random.PRNGKey(0), IMAGES)
    def loss(self, params, key, data):
        return loss_of(params)
"""
GIN = f"""
import flax_digits
Case.num_inner_steps = {STEPS}
Case.num_seeds = 1
Case.eval_every = 1
digits/Case.task = @FlaxDigits()
"""
# Checkpoint, and its optimizer. The losses of adafac_mlp_lopt, dm, nn_adam and learnable_adam have equal bits. XLA may
# round the others otherwise, as it compiles one step here and the whole loop there: rnnprop and mlp_lopt by less than
# 1e-6. Celo's by 1.8e-6; its own losses change by 2.5e-6 if the initial parameters change by 1.2e-7.
SHIPPED = {
    "adafac_mlp_lopt": "AdafacMLPLOpt(step_mult=0.01)",
    "celo": "Celo",
    "dm": "L2ODM",
    "rnnprop": "RNNProp",
    "mlp_lopt": "MLPLOpt(step_mult=0.01)",
    "nn_adam": "NNAdam",
    "learnable_adam": "LearnableAdam",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("load") / "suite"
    folder.mkdir()
    (folder / "flax_digits.py").write_text(SUITE)
    (folder / "digits.gin").write_text(GIN)
    return folder


def plain_losses(optimizer: optax.GradientTransformationExtraArgs, folder: Path) -> np.ndarray:
    """Trains as a user of flax does, who knows nothing of lobench; returns the losses, float32[steps + 1]."""
    names: dict[str, Any] = {}
    exec((folder / "flax_digits.py").read_text().partition("@configurable")[0], names)
    loss_of, params = names["loss_of"], names["Net"]().init(jax.random.PRNGKey(0), names["IMAGES"])
    state, losses = optimizer.init(params), []

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params, value=loss)
        return optax.apply_updates(params, updates), state, loss

    for _ in range(STEPS):
        params, state, loss = step(params, state)
        losses.append(loss)
    return np.asarray([*losses, jax.jit(loss_of)(params)])


@pytest.mark.parametrize("name", SHIPPED)
def test_plain_flax_loop_with_checkpoint_equals_evaluation(name: str, suite: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "theta.npz", **reference_theta(name))
    params = optimizer_bindings(SHIPPED[name], "learned_optimizer")
    result = lobench.evaluate(suite / "digits.gin", checkpoint=tmp_path / "theta.npz", gin_params=params)
    ours = result.metrics["train/loss"][0]
    optimizer = lobench.load_optimizer(tmp_path / "theta.npz", optimizer=SHIPPED[name], num_steps=STEPS)
    theirs = plain_losses(optimizer, suite)
    # In units of the first loss, 2.5: a loss near 0 is a difference of logits near 10, so its last bits are noise.
    apart = np.abs(theirs - ours) / ours[0]
    equal = np.sum(theirs == ours)
    print(f"{name}: {apart.max():.1e} apart, {equal} of {STEPS + 1} losses equal; {ours[0]:.3f} to {ours[-1]:.2g}")
    assert ours.shape == theirs.shape == (STEPS + 1,)
    assert apart.max() < (5e-6 if name == "celo" else 1e-6)
    assert np.ptp(ours) > 0.1


PARAMS = {"w": jnp.arange(3.0)}


def test_load_optimizer_with_config_gin_needs_the_path_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "theta_2.npz", -1.0)
    (tmp_path / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\nouter_adam.learning_rate = 0.1\n")
    optimizer = lobench.load_optimizer(tmp_path / "theta_2.npz", num_steps=10)
    updates, _ = optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["w"], -np.exp(-1.0) * jnp.arange(3.0), rtol=1e-6)


def test_load_optimizer_schedule_in_gin_runs_over_num_steps(tmp_path: Path) -> None:
    np.savez(tmp_path / "theta.npz", **reference_theta("adafac_mlp_lopt"))
    name = "AdafacMLPLOpt; AdafacMLPLOpt.step_mult = @linear()"
    plain = lobench.load_optimizer(tmp_path / "theta.npz", optimizer="AdafacMLPLOpt", num_steps=4)
    decayed = lobench.load_optimizer(
        tmp_path / "theta.npz",
        optimizer=name,
        num_steps=4,
        gin_params=["linear.peak = 0.001"],
    )
    states, ratios = [jax.jit(each.init)(PARAMS) for each in (plain, decayed)], []
    updates = [jax.jit(each.update) for each in (plain, decayed)]
    for _ in range(4):
        one, states[0] = updates[0](PARAMS, states[0], PARAMS)
        other, states[1] = updates[1](PARAMS, states[1], PARAMS)
        ratios.append(float(other["w"][1] / one["w"][1]))
    np.testing.assert_allclose(ratios, [1, 2 / 3, 1 / 3, 0], atol=1e-5)


def test_load_optimizer_without_a_name_or_with_another_class_raises(tmp_path: Path) -> None:
    np.savez(tmp_path / "theta.npz", **reference_theta("adafac_mlp_lopt"))
    with pytest.raises(ConfigError, match=SHOWN["no-learned-optimizer-name-its"]):
        lobench.load_optimizer(tmp_path / "theta.npz", num_steps=10)
    with pytest.raises(ThetaMismatch, match=SHOWN["it-fits-adafacmlplopt"]):
        lobench.load_optimizer(tmp_path / "theta.npz", optimizer="MLPLOpt", num_steps=10)
    with pytest.raises(ConfigError, match=SHOWN["unknown-name-adafacmlpopt"]):
        lobench.load_optimizer(tmp_path / "theta.npz", optimizer="AdafacMLPOpt", num_steps=10)


def test_update_without_loss_or_params_raises(tmp_path: Path) -> None:
    np.savez(tmp_path / "celo.npz", **reference_theta("celo"))
    optimizer = lobench.load_optimizer(tmp_path / "celo.npz", optimizer="Celo", num_steps=10)
    state = optimizer.init(PARAMS)
    with pytest.raises(UsageError, match=SHOWN["celo-reads-the-loss-value"]):
        optimizer.update(PARAMS, state, PARAMS)
    with pytest.raises(UsageError, match=SHOWN["celo-reads-the-parameters"]):
        optimizer.update(PARAMS, state, value=jnp.float32(1.0))


def test_transformation_of_learned_optimization_object_gives_differences() -> None:
    class Theirs:
        def init(self, params: Any, model_state: Any, num_steps: int, key: Any) -> Any:
            return params

        def update(self, opt_state: Any, grad: Any, loss: Any, model_state: Any) -> Any:
            return jax.tree.map(lambda p, g: p - loss * g, opt_state, grad)

        def get_params(self, opt_state: Any) -> Any:
            return opt_state

        def get_state(self, opt_state: Any) -> None:
            return None

    optimizer = as_transformation(Theirs(), 10, name="Theirs")
    grads = {"w": jnp.ones(3)}
    updates, state = optimizer.update(grads, optimizer.init(PARAMS), PARAMS, value=jnp.float32(0.5))
    np.testing.assert_array_equal(updates["w"], [-0.5] * 3)
    np.testing.assert_array_equal(state["w"], PARAMS["w"] - 0.5)
