"""Pre-norm transformer as functions on dicts of parameters. The blocks serve symbols and patches."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from lobench.inner.tasks.networks import Params, dense_init
from lobench.inner.tasks.normalization import layer_norm

__all__ = ["transformer_blocks", "transformer_init"]

_GROWTH = 4  # ratio of a block's hidden layer to the width


def transformer_init(key: jax.Array, width: int, num_layers: int) -> Params:
    """Returns the parameters of the blocks. The names of layer i end in i.

    `scale_a`, `shift_a` [width] of the norm before the attention, `w_qkv` [width, 3 width], `w_mix` [width, width],
    `scale_b`, `shift_b`, `w_up` [width, 4 width], `b_up`, `w_down` [4 width, width], `b_down`; and `scale`, `shift` of
    the norm after the last block. Weights that write to the residual stream are divided by the root of their number.
    Source: Radford et al. 2019 (GPT-2), section 2.3, without biases of the attention.
    """
    ones = jnp.ones(width, jnp.float32)
    zeros = jnp.zeros(width, jnp.float32)
    params: Params = {"scale": ones, "shift": zeros}
    for layer in range(num_layers):
        keys = jax.random.split(jax.random.fold_in(key, layer), 4)
        residual_gain = 1.0 / (2 * num_layers)
        params |= {
            f"scale_a{layer}": ones,
            f"shift_a{layer}": zeros,
            f"w_qkv{layer}": dense_init(keys[0], width, 3 * width),
            f"w_mix{layer}": dense_init(keys[1], width, width, gain=residual_gain),
            f"scale_b{layer}": ones,
            f"shift_b{layer}": zeros,
            f"w_up{layer}": dense_init(keys[2], width, _GROWTH * width),
            f"b_up{layer}": jnp.zeros(_GROWTH * width, jnp.float32),
            f"w_down{layer}": dense_init(keys[3], _GROWTH * width, width, gain=residual_gain),
            f"b_down{layer}": zeros,
        }
    return params


def transformer_blocks(params: Params, x: jax.Array, *, num_layers: int, num_heads: int, causal: bool) -> jax.Array:
    """Returns the stream after the blocks and the last norm, float32[batch, length, width].

    Args:
      params: Parameters from `transformer_init`.
      x: float32[batch, length, width], with positions added.
      num_layers, num_heads: Number of layers, and of heads per layer.
      causal: Whether a position only attends to itself and earlier ones.
    """
    for layer in range(num_layers):
        normed = layer_norm(x, params[f"scale_a{layer}"], params[f"shift_a{layer}"])
        x = x + _attention(normed @ params[f"w_qkv{layer}"], num_heads, causal=causal) @ params[f"w_mix{layer}"]
        normed = layer_norm(x, params[f"scale_b{layer}"], params[f"shift_b{layer}"])
        hidden = normed @ params[f"w_up{layer}"] + params[f"b_up{layer}"]
        x = x + jax.nn.gelu(hidden) @ params[f"w_down{layer}"] + params[f"b_down{layer}"]
    return layer_norm(x, params["scale"], params["shift"])


def _attention(qkv: jax.Array, num_heads: int, *, causal: bool) -> jax.Array:
    """Returns the output of attention, float32[batch, length, width], for qkv float32[batch, length, 3 width]."""
    batch, length, width = *qkv.shape[:2], qkv.shape[2] // 3
    heads = qkv.reshape(batch, length, 3, num_heads, width // num_heads).transpose(2, 0, 3, 1, 4)
    # Batch and heads are merged, because two vmaps (over seeds and a grid) would otherwise give products of rank 6, for
    # which jaxlib 0.10's CPU compiler aborts the process.
    query, key, value = heads.reshape(3, batch * num_heads, length, width // num_heads)
    scores = query @ jnp.swapaxes(key, -1, -2) / math.sqrt(width // num_heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    outputs = (jax.nn.softmax(scores) @ value).reshape(batch, num_heads, length, width // num_heads)
    return outputs.transpose(0, 2, 1, 3).reshape(batch, length, width)
