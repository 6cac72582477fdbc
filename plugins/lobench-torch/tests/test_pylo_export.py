"""Thetas that `lobench convert --to pylo` exports, in PyLO's own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
pytest.importorskip(
    "pylo.optim.ELO_naive",
    reason="PyLO is not installed: pip install git+https://github.com/Belilovsky-Lab/pylo@d05c6c1",
)

import jax
import jax.numpy as jnp
import optax
import torch
from commands import lobench as lobench_here
from pylo import models, optim
from sklearn.datasets import load_digits

import lobench
from lobench.inner import optimizers
from lobench.inner.theta import leaf_paths

STEPS = 100
# lobench's class with its settings; PyLO's, its settings, and the class of its network.
PAIRS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any], str]] = {
    "adafac": ("AdafacMLPLOpt", {"hidden_size": 16, "step_mult": 0.01}, "AdafacLO_naive", {"step_mult": 0.01}, ""),
    "elo": ("ELO", {"hidden_size": 16, "learning_rate": 0.002}, "ELO_naive", {"lr": 0.002}, "MetaMLP"),
    "celo2": ("Celo2", {"learning_rate": 0.002}, "CELO2_naive", {"lr": 0.002}, "CELO2MLP"),
}


def trained_by_torch(make: Any, params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    leaves = {name: torch.nn.Parameter(torch.from_numpy(leaf.copy())) for name, leaf in params.items()}
    optimizer, images, labels = make(list(leaves.values())), torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(STEPS):
        hidden = torch.tanh(images @ leaves["w0"] + leaves["b0"])
        loss = torch.nn.functional.cross_entropy(hidden @ leaves["w1"] + leaves["b1"], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: leaf.detach().numpy() for name, leaf in leaves.items()}


def trained_by_jax(optimizer: Any, params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> Any:
    def loss_of(params: Any) -> jax.Array:
        logits = jnp.tanh(x @ params["w0"] + params["b0"]) @ params["w1"] + params["b1"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        value, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params, value=value)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(STEPS):
        params, state = step(params, state)
    return params


@pytest.mark.parametrize("name", PAIRS)
def test_exported_theta_moves_parameters_in_torch_as_in_jax(name: str, tmp_path: Path) -> None:
    ours, settings, theirs, their_settings, network = PAIRS[name]
    theta = getattr(optimizers, ours)(**settings).init(jax.random.key(3))
    random = np.random.default_rng(0)
    # Biases and shifts of decays are 0 at first, so that their places would not be seen.
    leaves = {path: np.asarray(leaf) for path, leaf in leaf_paths(theta).items()}
    leaves = {path: leaf + np.float32(0.02) * random.standard_normal(leaf.shape, "f4") for path, leaf in leaves.items()}
    np.savez(tmp_path / "theta.npz", **leaves)
    text = f"{ours}({', '.join(f'{key}={value}' for key, value in settings.items())})"
    words = ("--to", "pylo", "--optimizer", text, "--output", "exported/model.safetensors", "--format", "json")
    done = lobench_here("convert", "theta.npz", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bindings = [line.partition(".")[2].partition(" = ") for line in json.loads(done.stdout)["bindings"]]
    their_settings = their_settings | {key: json.loads(value) for key, _, value in bindings}
    folder = str(tmp_path / "exported")
    loaded = {"network": getattr(models, network).from_pretrained(folder)} if network else {"hf_key": folder}

    data = load_digits()
    x, y = (data.data[:256] / 16).astype(np.float32), data.target[:256].astype(np.int64)
    shapes = {"w0": (64, 16), "b0": (16,), "w1": (16, 10), "b1": (10,)}
    params = {path: (0.2 * random.standard_normal(shape)).astype(np.float32) for path, shape in shapes.items()}
    optimizer = lobench.load_optimizer(tmp_path / "theta.npz", optimizer=text, num_steps=STEPS)
    found = trained_by_jax(optimizer, params, x, y)
    expected = trained_by_torch(lambda leaves: getattr(optim, theirs)(leaves, **their_settings, **loaded), params, x, y)
    for path in shapes:
        moved = np.linalg.norm(expected[path] - params[path]) / np.linalg.norm(params[path])
        apart = np.linalg.norm(found[path] - expected[path]) / np.linalg.norm(expected[path])
        print(f"{name} {path}: {apart:.1e} apart, moved by {moved:.2g}")
        assert apart < 1e-5
        assert moved > 1e-3
