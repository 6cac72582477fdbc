"""MuLO's steps: AdafacMLPLOpt's, smaller where a matrix lies between hidden layers."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from shown import texts_of

from lobench import ConfigError
from lobench.inner.optimizers import AdafacMLPLOpt, MuLO
from lobench.testing.bits import COMPILED_FAST

SHOWN = texts_of("inner")

SHAPES = {"b1": (12,), "w0": (5, 8), "w1": (8, 12), "w2": (12, 3)}
PARAMS = {name: np.full(shape, len(shape) - 1, np.float32) for name, shape in SHAPES.items()}
GRADS = {name: np.cos(np.arange(leaf.size, dtype=np.float32)).reshape(leaf.shape) for name, leaf in PARAMS.items()}


def steps(optimizer: Any) -> dict[str, jax.Array]:
    """Returns the first update."""
    generator = np.random.default_rng(0)
    shapes = jax.eval_shape(optimizer.init, jax.random.key(0))
    theta = jax.tree.map(lambda leaf: generator.standard_normal(leaf.shape).astype(leaf.dtype) / 4, shapes)

    @functools.partial(jax.jit, compiler_options=COMPILED_FAST)
    def first_update(theta: Any) -> dict[str, jax.Array]:
        made = optimizer.opt_fn(theta)
        updates: dict[str, jax.Array] = made.update(GRADS, made.init(PARAMS), PARAMS)[0]
        return updates

    return first_update(theta)


def test_a_step_between_hidden_layers_shrinks_with_its_inputs() -> None:
    plain, scaled = steps(AdafacMLPLOpt(step_mult=0.01)), steps(MuLO("w1|b", base_width=2, hidden_size=4))
    for name, factor in {"b1": 1.0, "w0": 1.0, "w1": 2 / 8, "w2": 1.0}.items():
        np.testing.assert_allclose(scaled[name], factor * plain[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "output"),
    [
        (
            {"hidden": "layer"},
            SHOWN["mulo-hidden-names-no-matrix"],
        ),
        ({"hidden": "("}, SHOWN["mulo-hidden-is-not-a"]),
        ({"base_width": 0}, SHOWN["mulo-base-width-got-0"]),
    ],
)
def test_what_is_no_width_is_said_in_a_line(settings: dict[str, Any], output: str) -> None:
    with pytest.raises(ConfigError, match=output.replace("(", r"\(")):
        steps(MuLO(**settings, hidden_size=4))
