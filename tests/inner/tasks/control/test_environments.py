"""Environments against gymnasium's, against what is known of them, and in somebody's own words."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.tasks.control import PPO, REINFORCE, Box, CartPole, Catch, Discrete, Pendulum, ReachGoals
from lobench.inner.tasks.control.environment import Step, layout_of
from lobench.inner.tasks.control.foreign import as_environment

SHOWN = texts_of("inner")

KEY = jax.random.key(0)
TASK = jnp.int32(0)


def gymnasium_itself() -> Any:
    reason = "gymnasium is not installed: lobench's environments are not compared with its own"
    return pytest.importorskip("gymnasium", reason=reason)


def test_cart_pole_is_gymnasiums_over_a_thousand_random_steps() -> None:
    theirs, ours = gymnasium_itself().make("CartPole-v1").unwrapped, CartPole()
    reset, step = jax.jit(ours.reset), jax.jit(ours.step)
    actions = np.random.default_rng(0).integers(0, 2, 1000)
    episodes, state, time = 0, None, 0
    theirs.reset(seed=0)
    for action in actions:
        if state is None:
            observation, state = reset(jax.random.key(episodes), TASK)
            theirs.reset()
            theirs.state, time = np.asarray(observation, np.float64), 0
        found, wanted = step(KEY, state, action), theirs.step(int(action))
        time += 1
        np.testing.assert_allclose(found.observation, wanted[0], atol=1e-5)
        assert (float(found.reward), bool(found.terminated), bool(found.truncated)) == (*wanted[1:3], False)
        state, episodes = (None, episodes + 1) if wanted[2] else (found.state, episodes)
    assert episodes > 30


def test_a_pole_that_is_held_up_is_truncated_at_500_and_not_terminated() -> None:
    assert gymnasium_itself().spec("CartPole-v1").max_episode_steps == 500
    env = CartPole()

    def play(state: Any, _: Any) -> Any:
        lean = state.values @ jnp.array([0.1, 0.3, 3.0, 1.0])
        found = env.step(KEY, state, (lean > 0).astype(jnp.int32))
        return found.state, found

    _, found = jax.lax.scan(play, env.reset(KEY, TASK)[1], None, length=500)
    assert not found.terminated.any() and found.reward.sum() == 500 == env.best_return
    np.testing.assert_array_equal(found.truncated, np.arange(500) == 499)
    np.testing.assert_array_equal(found.success, found.truncated)


def test_pendulum_is_gymnasiums() -> None:
    theirs, ours = gymnasium_itself().make("Pendulum-v1").unwrapped, Pendulum()
    step = jax.jit(ours.step)
    observation, state = ours.reset(KEY, TASK)
    theirs.reset(seed=0)
    theirs.state = np.asarray([state.angle, state.speed], np.float64)
    for torque in np.random.default_rng(0).uniform(-3, 3, 100):
        found, wanted = step(KEY, state, np.float32([torque])), theirs.step(np.float32([torque]))
        np.testing.assert_allclose(found.observation, wanted[0], atol=1e-3)
        assert float(found.reward) == pytest.approx(float(wanted[1]), abs=1e-2)
        state = found.state
    assert not found.terminated and Pendulum(time_limit=1).step(KEY, state, jnp.zeros(1)).truncated
    assert observation.shape == (3,)


def test_who_follows_the_ball_catches_it_and_who_does_not_loses() -> None:
    env = Catch(rows=6, columns=5)
    step = jax.jit(env.step)
    for seed in range(8):
        observation, state = env.reset(jax.random.key(seed), TASK)
        board = np.asarray(observation)
        assert board.shape == (6, 5) and board.sum() == 2 and board[5, 2] == 1 and board[0, int(state.ball)] == 1
        for follows in (True, False):
            at = state
            for turn in range(5):
                way = int(jnp.sign(at.ball - at.paddle)) if follows else (1 if at.ball < 2 else -1)
                found = step(KEY, at, jnp.int32(1 + way))
                at = found.state
                assert bool(found.terminated) == (turn == 4) and not found.truncated
            caught = follows or int(at.ball) == int(at.paddle)
            assert float(found.reward) == (1.0 if caught else -1.0) and bool(found.success) == caught


def test_a_goal_is_reached_and_goals_of_meta_testing_are_others() -> None:
    env = ReachGoals(num_tasks=3, num_points=2)
    assert env.actions.shape == (2, 2)
    observation, state = env.reset(KEY, jnp.int32(2))
    assert observation.shape == (2, 2, 2)
    step = jax.jit(env.step)
    for _ in range(12):
        found = step(KEY, state, jnp.clip(state.goals - state.points, -0.1, 0.1))
        state = found.state
    assert found.terminated and found.success and not found.truncated
    many, other = ReachGoals(num_tasks=500), ReachGoals(num_tasks=500, goals="meta_test")
    train, test = (np.asarray(jax.vmap(one.goals)(jnp.arange(500))).reshape(500, 2) for one in (many, other))
    np.testing.assert_array_equal(train[2], ReachGoals(num_tasks=3).goals(2)[0])
    assert not set(map(tuple, train)) & set(map(tuple, test)) and len(set(map(tuple, train))) == 500
    assert ReachGoals(show_goals=False).reset(KEY, TASK)[0].shape == (1, 2)


@dataclasses.dataclass(frozen=True)
class _Params:
    max_steps_in_episode: int = 3


class _GymnaxState(NamedTuple):
    x: jax.Array
    time: Any


class OldGymnax:
    """Says `done` when time is up too, as gymnax did before it had `is_truncated`."""

    default_params = _Params()

    def reset_env(self, key: jax.Array, params: Any) -> Any:
        state = _GymnaxState(jnp.zeros(2), 0)
        return state.x, state

    def step_env(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        after = _GymnaxState(state.x + action, state.time + 1)
        done = (after.x.sum() > 5) | (after.time >= params.max_steps_in_episode)
        return after.x, after, action * 1.0, done, {}

    def action_space(self, params: Any) -> Any:
        return type("Discrete", (), {"n": 4})()


class NewGymnax(OldGymnax):
    def step_env(self, key: jax.Array, state: Any, action: jax.Array, params: Any) -> Any:
        after = _GymnaxState(state.x + action, state.time + 1)
        return after.x, after, action * 1.0, after.x.sum() > 5, {}

    def is_truncated(self, state: Any, params: Any) -> Any:
        return state.time >= params.max_steps_in_episode

    def action_space(self, params: Any) -> Any:
        return type("Box", (), {"low": -np.ones((2, 1)), "high": 1.0, "shape": (2, 1)})()


@pytest.mark.parametrize("kind", [OldGymnax, NewGymnax])
def test_of_an_object_of_gymnax_the_end_and_the_time_limit_are_two_things(kind: type) -> None:
    env = as_environment(kind(), "PPO.env")
    assert env.actions == (Discrete(4) if kind is OldGymnax else Box((2, 1), -1.0, 1.0))
    flags = []
    for action in (0, 2):
        _, state = env.reset(KEY, TASK)
        for _ in range(3):
            found = env.step(KEY, state, jnp.int32(action))
            state = found.state
        flags.append((bool(found.terminated), bool(found.truncated)))
    assert flags == [(False, True), (True, True)] and env.time_limit == 3


def test_a_name_of_gymnax_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from lobench.inner.tasks.control import GymnaxEnvironment

    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(ConfigError, match=SHOWN["acrobot-v1-not-installed-pip"]) as found:
        GymnaxEnvironment(name="Acrobot-v1")
    assert "\n" not in str(found.value)


class Own:
    """The least that is an environment."""

    actions = Discrete(2)

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros(2), jnp.zeros(2)

    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        return Step(jnp.zeros(2), state, jnp.float32(0), jnp.bool_(True), jnp.bool_(False))


class Grows(Own):
    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        return super().step(key, state, action)._replace(observation=jnp.zeros(3))


class TurnsToIntegers(Own):
    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        return super().step(key, state, action)._replace(state=jnp.zeros(2, jnp.int32))


class PaysTwice(Own):
    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        return super().step(key, state, action)._replace(reward=jnp.zeros(2))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Grows(), SHOWN["grows-step-changes-the-observation"]),
        (TurnsToIntegers(), SHOWN["turnstointegers-step-changes-the-state"]),
        (PaysTwice(), SHOWN["paystwice-step-gives-a-reward"]),
    ],
)
def test_an_environment_whose_step_changes_shapes_is_one_line(env: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as found:
        PPO(env=env).init_with_state(KEY)
    assert "\n" not in str(found.value)
    assert layout_of(as_environment(Own(), "PPO.env")) == (2, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"collection": "roundrobin"}, SHOWN["ppo-collection-got-roundrobin-expected"]),
        ({"env": "CartPole"}, SHOWN["ppo-env-is-no-environment"]),
        ({"env": CartPole}, SHOWN["does-gin-bind-name-where"]),
        ({"num_envs": 3, "num_steps": 5}, SHOWN["ppo-minibatches-got-4-expected"]),
        ({"num_envs": 2, "cell": "gru"}, SHOWN["ppo-minibatches-got-4-expected-a"]),
        ({"cell": "rnn"}, SHOWN["ppo-cell-got-rnn-expected"]),
    ],
)
def test_a_wrong_setting_is_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO(**settings)


def test_reinforce_needs_two_processes() -> None:
    with pytest.raises(ConfigError, match=SHOWN["reinforce-num-envs-got-1"]):
        REINFORCE(num_envs=1)
