"""Advantages, rewards to go, and streaks of good episodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["advantages", "longest_streak", "returns_to_go"]


def advantages(
    rewards: jax.Array,
    values: jax.Array,
    next_values: jax.Array,
    terminated: jax.Array,
    cut: jax.Array,
    *,
    discount: float,
    trace: float,
) -> jax.Array:
    """Returns generalized advantages, float32[num_steps, ...].

    delta_t = r_t + discount V'_t (1 - terminated_t) - V_t; A_t = delta_t + discount trace (1 - cut_t) A_{t+1}. At a
    truncation, the value of the next observation counts, and the advantages of the next episode do not.

    Args:
      rewards, values: float32[num_steps, ...].
      next_values: float32[num_steps, ...], values of the observations after the steps, before any reset.
      terminated, cut: bool[num_steps, ...]; terminated implies cut.
      discount: Decay of rewards.
      trace: Lambda of generalized advantage estimation.
    Source: Schulman et al. 2016 (arXiv 1506.02438); Pardo et al. 2018 (arXiv 1712.00378) for time limits.
    """
    deltas = rewards + discount * next_values * (1.0 - terminated) - values

    def step(next_advantage: jax.Array, delta_and_trace: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, goes_on = delta_and_trace
        advantage = delta + discount * trace * goes_on * next_advantage
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, 1.0 - cut), reverse=True)[1]


def returns_to_go(rewards: jax.Array, *, discount: float) -> jax.Array:
    """Returns the discounted sum of the rewards from each step on, float32[num_steps, ...]."""

    def step(later_return: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = reward + discount * later_return
        return total, total

    return jax.lax.scan(step, jnp.zeros_like(rewards[0]), rewards, reverse=True)[1]


def longest_streak(open_streak: jax.Array, done: jax.Array, is_good: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the lengths of the longest streak of good episodes and of the streak open at the end, int32[] each.

    Args:
      open_streak: int32[], open streak before these episodes.
      done: bool[count], whether an episode ended, in order.
      is_good: bool[count], whether it was good.
    """

    def extend_streak(streaks: tuple[jax.Array, jax.Array], row: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        longest, streak = streaks
        done, is_good = row
        streak = jnp.where(done, jnp.where(is_good, streak + 1, 0), streak)
        return (jnp.maximum(longest, streak), streak), None

    # A scan, because a cumulative sum would be a hundred times as large a program.
    (longest, streak), _ = jax.lax.scan(extend_streak, (open_streak, open_streak), (done, is_good))
    return longest, streak
