"""OptList against its rule in numpy, from a list in a file or in an installed package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import opt_list

SHOWN = texts_of("inner")

COMMON: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.99,
    "epsilon": 0.1,
    "adamw_weight_decay": 0.2,
    "l2_weight_decay": 0.1,
}
LIST = [
    {
        **COMMON,
        "learning_rate": 0.1,
        "use_nesterov": False,
        "warmup_fraction": 0.0,
        "min_learning_rate_mult": 0.5,
        "constant_fraction": 0.3,
    },
    {
        **COMMON,
        "learning_rate": 0.3,
        "use_nesterov": True,
        "warmup_fraction": 0.01,
        "min_learning_rate_mult": 0.0,
        "constant_fraction": 0.4,
    },
]
NUM_STEPS = 10


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "learned_optimization" / "optimizers" / "data" / "opt_list.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LIST))
    (tmp_path / "learned_optimization" / "__init__.py").touch()
    return str(path)


def by_the_rule(setting: dict[str, Any], param: np.ndarray) -> np.ndarray:
    m, v, path = 0.0, 0.0, []
    for t in range(NUM_STEPS):
        peak, constant = setting["learning_rate"], setting["constant_fraction"] * NUM_STEPS
        lowest = setting["min_learning_rate_mult"] * peak
        rate = lowest + (peak - lowest) * (
            0.5 + 0.5 * np.cos(np.pi * (max(t, constant) - constant) / (NUM_STEPS - constant))
        )
        if setting["warmup_fraction"] and t < constant:
            rate = peak * t / constant
        rate *= np.sqrt(1 - setting["beta2"] ** (t + 1)) / (1 - setting["beta1"] ** (t + 1))
        grad = 2 * param - setting["l2_weight_decay"] * param
        m = setting["beta1"] * m + (1 - setting["beta1"]) * grad
        v = setting["beta2"] * v + (1 - setting["beta2"]) * grad**2
        ahead = setting["beta1"] * m + (1 - setting["beta1"]) * grad if setting["use_nesterov"] else m
        param = param - rate * (ahead / (np.sqrt(v) + setting["epsilon"]) + setting["adamw_weight_decay"] * param)
        path.append(param)
    return np.stack(path)


def path_of(optimizer: Any, params: jax.Array) -> jax.Array:
    stepper = as_stepper(optimizer, NUM_STEPS)

    def step(carry: Any, _: None) -> Any:
        state, params = carry
        state, params, _ = stepper.step(state, params, None, 2 * params, jnp.float32(0), jax.random.key(0))
        return (state, params), params

    return jax.lax.scan(step, (stepper.init(params, None, jax.random.key(0)), params), length=NUM_STEPS)[1]


def test_entries_side_by_side_follow_the_rule(file: str) -> None:
    start = np.float32([1.0, -2.0])
    both = jax.jit(jax.vmap(lambda index: path_of(opt_list(index, file), jnp.asarray(start))))(jnp.arange(2.0))
    for index, setting in enumerate(LIST):
        expected = by_the_rule(setting, start.astype(np.float64))
        np.testing.assert_allclose(both[index], expected, rtol=1e-5)
        np.testing.assert_allclose(path_of(opt_list(index, file), jnp.asarray(start)), expected, rtol=1e-5)


def test_the_list_of_an_installed_package_is_found(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(file).parents[3]))
    state = opt_list(1).init(jnp.zeros(2))
    assert state.mu.shape == (2,)


@pytest.mark.parametrize(
    ("keywords", "output"),
    [
        ({}, SHOWN["list-of-settings-is-not"]),
        ({"file": "nowhere.json"}, SHOWN["nowhere-json-opt-list-cannot"]),
        ({"index": 2}, SHOWN["opt-list-index-got-2"]),
        ({"index": -1}, "from 0 to 1"),
    ],
)
def test_a_list_or_a_place_that_is_not_there_is_said(keywords: dict[str, Any], output: str, file: str) -> None:
    with pytest.raises(ConfigError, match=output):
        opt_list(**({"file": file} | keywords if "index" in keywords else keywords))
