"""What is learned: advantages, gradients, normalization, streaks, and whose draws are whose."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.tasks.control import PPO, REINFORCE, Box, CartPole, Catch, Discrete, GoalFamily, ReachGoals, Step
from lobench.inner.tasks.control.moments import initial_moments
from lobench.inner.tasks.control.policy import Policy
from lobench.inner.tasks.control.processes import ProcessRunner, keys_of_steps, split_first_step
from lobench.inner.tasks.control.returns import advantages, longest_streak, returns_to_go
from lobench.inner.training.train import TrainingProgram
from lobench.inner.vmap_periodic import compute_when_due

KEY = jax.random.key(0)

jitted_longest_streak = jax.jit(longest_streak)


def started(task: PPO) -> tuple[Any, Any]:
    """Returns the initial parameters and the initial experience."""
    return jax.jit(lambda key: (task.init(key), task.initial_experience(key)))(KEY)


def test_advantages_are_the_sum_over_all_pairs_of_steps() -> None:
    rng = np.random.default_rng(0)
    rewards, values, ahead = rng.standard_normal((3, 40, 2))
    terminated, truncated = rng.random((2, 40, 2)) < 0.1
    cut = terminated | truncated
    found = advantages(*map(jnp.asarray, (rewards, values, ahead, terminated, cut)), discount=0.9, trace=0.8)
    deltas = rewards + 0.9 * ahead * ~terminated - values
    wanted = np.zeros_like(rewards)
    for t in range(40):
        for k in range(t, 40):
            wanted[t] += (0.9 * 0.8) ** (k - t) * deltas[k] * (~cut[t:k]).all(axis=0)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    # Rewards and values in other units are advantages in other units.
    scaled = advantages(
        *map(jnp.asarray, (8 * rewards, 8 * values, 8 * ahead, terminated, cut)), discount=0.9, trace=0.8
    )
    np.testing.assert_array_equal(scaled, 8 * np.asarray(found))
    zero = jnp.zeros_like(rewards)
    alone, twice = (advantages(c * rewards, zero, zero, cut, cut, discount=0.9, trace=1.0) for c in (1.0, 2.0))
    np.testing.assert_array_equal(twice, 2 * alone)
    whole = advantages(rewards, zero, zero, 0 * cut, 0 * cut, discount=0.9, trace=1.0)
    np.testing.assert_allclose(whole, returns_to_go(jnp.asarray(rewards), discount=0.9), atol=1e-5)


class Arms:
    """A bandit: an episode is one pull of one of two arms."""

    actions = Discrete(2)
    time_limit = 1

    def reset(self, key: jax.Array) -> Any:
        return jnp.ones(1), jnp.zeros(())

    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        return Step(jnp.ones(1), state, jnp.array([0.3, 1.0])[action], jnp.bool_(True), jnp.bool_(False))


@pytest.mark.parametrize("kind", [REINFORCE, PPO])
def test_the_gradient_of_a_bandit_is_the_closed_form(kind: type) -> None:
    settings: dict[str, Any] = {"env": Arms(), "num_envs": 40_000, "hidden_sizes": (), "shared": True}
    if kind is PPO:
        weights = {"value_weight": 0.0, "entropy_weight": 0.0, "normalize_advantages": False}
        settings |= {"num_steps": 1, "epochs": 1, "minibatches": 1, **weights}
    task = kind(**settings)
    params, state = jax.jit(task.init_with_state)(KEY)
    params["policy"]["b"] = jnp.array([0.0, 0.4])
    params["policy"]["w"] = jnp.zeros((1, 2))
    grads = jax.jit(jax.grad(lambda params: task.loss_with_state_and_aux(params, state, KEY, None)[0]))(params)
    first, second = jax.nn.softmax(jnp.array([0.0, 0.4]))
    wanted = float(first * second * (0.3 - 1.0))  # of the mean return, to the first logit
    # One pull's gain times the gradient of its log probability is at most 1 in size.
    np.testing.assert_allclose(grads["policy"]["b"], [-wanted, wanted], atol=4 / np.sqrt(40_000))
    assert abs(wanted) > 0.15


def test_moments_are_those_of_all_rows_at_once() -> None:
    rows = np.random.default_rng(0).normal(3.0, 2.0, (70, 3)).astype(np.float32)
    moments = initial_moments(3)
    np.testing.assert_array_equal(moments.standardize(rows), rows)
    for part in (rows[:10], rows[10:11], rows[11:]):
        moments = moments.with_rows(part)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-5)
    centred = np.asarray(moments.standardize(rows))
    np.testing.assert_allclose(centred.std(axis=0), 1.0, rtol=1e-5)


@hypothesis.given(st.integers(0, 3), st.lists(st.sampled_from(["none", "good", "bad"]), min_size=1, max_size=12))
@hypothesis.settings(max_examples=60, deadline=None)
def test_the_longest_streak_is_what_counting_gives(before: int, episodes: list[str]) -> None:
    episodes = episodes + ["none"] * (12 - len(episodes))
    row = longest = before
    for episode in episodes:
        row = {"none": row, "good": row + 1, "bad": 0}[episode]
        longest = max(longest, row)
    done, good = (np.array([name in kinds for name in episodes]) for kinds in (("good", "bad"), ("good",)))
    assert tuple(map(int, jitted_longest_streak(jnp.int32(before), done, good))) == (longest, row)


def test_a_change_is_computed_when_it_is_due_and_made_in_the_replicas_in_which_it_is() -> None:
    def one(due: jax.Array, value: jax.Array) -> jax.Array:
        return compute_when_due(due, lambda: value + 1.0, value)

    due = jnp.array([True, False, True])
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(due, jnp.zeros(3)), [1, 0, 1])
    both = jax.jit(jax.vmap(jax.vmap(one), in_axes=(None, 0)))(due, jnp.zeros((2, 3)))
    np.testing.assert_array_equal(both, [[1, 0, 1]] * 2)
    # A condition, and not a choice between two results that are both computed.
    assert " cond[" in str(jax.make_jaxpr(jax.vmap(one))(due, jnp.zeros(3)))


def test_the_draws_of_a_process_do_not_hang_on_how_many_there_are() -> None:
    env = ReachGoals(num_tasks=7)
    runs = []
    for count in (3, 5):
        task = PPO(env=env, num_envs=count, num_steps=60, minibatches=1, collection="random", hidden_sizes=(8,))
        params, experience = started(task)
        after, rollout = jax.jit(task.collect)(params, experience, keys_of_steps(jax.random.key(1), 60, count))
        tasks = (np.asarray(experience.processes.task)[:3], np.asarray(after.processes.task)[:3])
        runs.append((tasks, np.asarray(rollout.steps.decision.action)[:, :3], np.asarray(after.processes.episode)[:3]))
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_allclose(runs[0][1], runs[1][1], atol=1e-4)
    np.testing.assert_array_equal(runs[0][2], runs[1][2])
    assert len(set(np.ravel(runs[0][0]).tolist())) > 2


@pytest.mark.parametrize(
    ("collection", "wanted"),
    [("cycle", [[0, 0, 0], [1, 1, 1], [2, 2, 2]]), ("uniform", [[0, 1, 2], [1, 2, 3], [2, 3, 0]])],
)
def test_tasks_are_collected_from_in_turn(collection: str, wanted: list[list[int]]) -> None:
    assert _tasks(collection, 3, 3).tolist() == wanted


def test_tasks_are_drawn_and_not_the_same_again_where_that_is_asked_for() -> None:
    drawn, different = (_tasks(collection, 4, 40) for collection in ("random", "different"))
    assert set(drawn.ravel().tolist()) == set(range(4)) == set(different.ravel().tolist())
    assert (drawn[1:] == drawn[:-1]).any() and not (different[1:] == different[:-1]).any()


def _tasks(collection: str, count: int, episodes: int) -> np.ndarray:
    """Returns the tasks of processes, int[episodes, count]; an episode is a step."""
    env = ReachGoals(num_tasks=4, time_limit=1)
    policy = Policy(env.actions, 4, hidden_sizes=(2,), activation="tanh", shares_trunk=True, cell=None)
    process_runner, params = ProcessRunner(env, policy, collection, 0.9), policy.init(KEY)

    def step(processes: Any, keys: Any) -> Any:
        after, found = process_runner.step_processes(params, None, processes, keys)
        return process_runner.restart_finished(after, found.done, keys), processes.task

    def run() -> jax.Array:
        first, keys = split_first_step(keys_of_steps(KEY, episodes + 1, count))
        return jax.lax.scan(step, process_runner.start_processes(first), keys)[1]

    return np.asarray(jax.jit(run)())


def test_a_rollout_is_learned_from_whole_and_then_comes_the_next() -> None:
    task = PPO(env=Catch(rows=3, columns=3), num_envs=2, num_steps=6, epochs=2, minibatches=3, hidden_sizes=(4,))
    params, state = jax.jit(task.init_with_state)(KEY)
    step = jax.jit(lambda state, key: task.loss_with_state_and_aux(params, state, key, None)[1])
    played, lessons = [], []
    for index in range(8):
        lessons.append(step(state, jax.random.key(index)))
        state = lessons[-1]
        played.append(int(state.experience.processes.episode.sum()))
    assert played[0] == played[5] > 0 and played[6] == played[7] > played[5]
    for epoch in lessons[0].order:
        assert sorted(epoch.tolist()) == list(range(12))
    np.testing.assert_array_equal(lessons[0].lesson.decision.action, lessons[5].lesson.decision.action)
    log_probs = [state.lesson.decision.log_prob for state in lessons[5:7]]
    assert not np.array_equal(*log_probs) or played[6] > played[5]


class Lives:
    """Five steps of reward 1; a life is lost at the second, time is up at the fifth."""

    actions = Box((2, 2))

    def reset(self, key: jax.Array) -> Any:
        return jnp.zeros((1, 2)), jnp.int32(0)

    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        assert action.shape == (2, 2)
        time = state + 1
        return Step(
            jnp.full((1, 2), time, jnp.float32),
            time,
            jnp.float32(1.0),
            jnp.bool_(False),
            time == 5,
            life_lost=time == 2,
        )


def test_time_limits_and_lost_lives_cut_advantages_and_keep_the_value_of_what_comes() -> None:
    task = PPO(env=Lives(), num_envs=1, num_steps=7, minibatches=1, hidden_sizes=(4,), discount=0.5, trace=1.0)
    params, experience = started(task)
    after, (steps, _) = jax.jit(task.collect)(params, experience, keys_of_steps(KEY, 7, 1))
    np.testing.assert_array_equal(steps.cut[:, 0], [0, 1, 0, 0, 1, 0, 1])
    np.testing.assert_array_equal(steps.done[:, 0], [0, 0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(steps.decision.starts[:, 0], [1, 0, 0, 0, 0, 1, 0])
    assert not steps.terminated.any() and float(after.processes.last_return[0]) == 5.0
    # The value is of the observation before the reset, 5, and not of the next episode's first one.
    features = jnp.tanh(jnp.full(2, 5.0) @ params["critic"]["w0"])
    value = float((features @ params["value"]["w"])[0])
    assert float(steps.next_value[4, 0]) == pytest.approx(value, rel=1e-5) and value != 0
    assert float(steps.next_value[5, 0]) == pytest.approx(float(steps.decision.value[6, 0]), rel=1e-5)
    assert steps.decision.action.shape == (7, 1, 4)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_policy_that_looks_at_whole_episodes_remembers_what_one_that_looks_step_by_step_does(
    cell: str, shared: bool
) -> None:
    policy = Policy(Discrete(3), 2, hidden_sizes=(4,), activation="tanh", shares_trunk=shared, cell=cell)
    params = policy.init(KEY)
    observations = jax.random.normal(KEY, (6, 2, 2))
    starts = jnp.zeros((6, 2), bool).at[0].set(True).at[3, 1].set(True)
    memory, found, apply = policy.memory(2), [], jax.jit(policy.apply)
    for at in range(6):
        memory, output, values = apply(params, memory, observations[at], starts[at])
        found.append((output, values))
    outputs, values = jax.jit(policy.apply_to_sequences)(params, policy.memory(2), observations, starts)
    np.testing.assert_allclose(outputs, jnp.stack([output for output, _ in found]), atol=1e-6)
    np.testing.assert_allclose(values, jnp.stack([values for _, values in found]), atol=1e-6)
    # At a start nothing is remembered.
    fresh = apply(params, policy.memory(2), observations[3], starts[3])[1]
    np.testing.assert_allclose(fresh[1], outputs[3, 1], atol=1e-6)
    assert not np.allclose(fresh[0], outputs[3, 0], atol=1e-6)
    names = {"trunk", "trunk_cell"} if shared else {"actor", "actor_cell", "critic", "critic_cell"}
    assert set(params) == names | {"policy", "value"}


def test_observations_and_rewards_are_normalized_each_by_itself() -> None:
    for observations, rewards in [(True, False), (False, True)]:
        task = PPO(normalize_observations=observations, normalize_rewards=rewards)
        state = jax.eval_shape(task.initial_experience, KEY)
        assert (state.observations is not None, state.rewards is not None) == (observations, rewards)
    task = PPO(normalize_observations=True, normalize_rewards=True, hidden_sizes=(4,))
    params, state = started(task)
    collect = jax.jit(task.collect)
    state, (raw, _) = collect(params, state, keys_of_steps(KEY, 64, 4))
    state, (steps, _) = collect(params, state, keys_of_steps(jax.random.key(1), 64, 4))
    spreads = [np.asarray(each.decision.observation).reshape(-1, 4).std(axis=0) for each in (raw, steps)]
    assert (np.abs(spreads[1] - 1) < 0.4).all() and not (np.abs(spreads[0] - 1) < 0.4).all()
    scale = np.sqrt(float(state.rewards.variance[0]))
    np.testing.assert_allclose(steps.reward, np.ones((64, 4)) / scale, rtol=1e-5)
    # Metrics are of the rewards as they are.
    assert float(task.metrics(state)["return"]) == pytest.approx(float(state.processes.last_return.mean()))
    assert (np.asarray(state.processes.last_return) % 1 == 0).all()


class Broken(Arms):
    def step(self, key: jax.Array, state: Any, action: Any) -> Any:
        found = super().step(key, state, action)
        return found._replace(reward=jnp.where(jax.random.uniform(key) < 0.1, jnp.nan, found.reward))


def test_a_reward_that_is_no_number_has_diverged_and_wins_nothing() -> None:
    curves = trained(REINFORCE(env=Broken(), num_envs=8, hidden_sizes=(2,)), num_inner_steps=24, eval_every=12)
    assert all(0 <= step <= 12 for step in curves.diverged_at) and curves.num_diverged == 2
    assert np.isnan(curves.final("train/return")).all() and np.isnan(curves.final("train/loss")).all()
    task = PPO(env=Broken(), num_envs=8, num_steps=16, hidden_sizes=(2,), normalize_rewards=True)
    params, state = jax.jit(task.init_with_state)(KEY)
    assert np.isnan(jax.jit(task.loss_with_state)(params, state, KEY, None)[0])


def trained(task: Any, *, rate: float = 0.01, **case: Any) -> Any:
    settings: dict[str, Any] = {"num_inner_steps": 100, "eval_every": 100, "num_seeds": 2, "eval_batches": 1, **case}
    built = Case(**settings)
    optimizer = optax.adam(rate)
    program = TrainingProgram(built, task, lambda theta: as_stepper(optimizer, built.num_inner_steps), built.num_seeds)
    curves = program.run({}, SeedBlock(start=0, size=built.num_seeds))
    assert curves is not None
    return curves


def test_ppo_learns_to_catch_and_is_solved_when_enough_episodes_in_a_row_were_caught() -> None:
    task = PPO(
        env=Catch(rows=5, columns=3), num_envs=16, num_steps=16, hidden_sizes=(32,), solved_episodes=40, film_steps=8
    )
    curves = trained(task, num_inner_steps=480, eval_every=240, log_every=160)
    assert min(curves.final("train/return")) > 0.9 and min(curves.final("train/success")) > 0.95
    assert max(curves.first("train/return")) < 0.9 and curves.first("train/solved") == [0, 0]
    assert curves.final("train/solved") == [1, 1]
    assert {"batch/return", "batch/success", "batch/solved", "batch/loss"} <= set(curves.metrics)
    losses, returns = (np.asarray(curves.metrics[f"train/{name}"]) for name in ("loss", "return"))
    np.testing.assert_allclose(losses, 1 - returns, atol=1e-6)
    assert curves.film is not None and np.asarray(curves.film.frames).shape == (5, 2, 4) and curves.film.seed == 0


def test_reinforce_learns_to_catch_from_its_own_episodes_alone() -> None:
    task = REINFORCE(env=Catch(rows=4, columns=3), num_envs=16, discount=1.0)
    curves = trained(task, num_inner_steps=200, eval_every=50, eval_batches=0, rate=0.02)
    assert max(curves.first("train/return")) < 0.6 and min(curves.final("train/return")) > 0.8
    assert curves.film is None and "batch/return" not in curves.metrics and "train/success" in curves.metrics


def test_a_family_gives_each_task_a_goal_of_its_own() -> None:
    family = GoalFamily(task=REINFORCE(env=ReachGoals(num_tasks=1000), num_envs=2, num_steps=3, hidden_sizes=(2,)))
    goals = []
    for seed in range(3):
        task = family.task_fn(family.sample(jax.random.key(seed)))
        goals.append(np.asarray(task.env.reset(KEY, jnp.int32(0))[1].goals))
        assert task.init_with_state(KEY)[1].experience.processes.state.goals.shape == (2, 1, 2)
    assert not np.array_equal(goals[0], goals[1]) and not np.array_equal(goals[1], goals[2])


def test_a_policy_with_a_memory_learns_from_whole_processes() -> None:
    task = PPO(env=CartPole(time_limit=20, hide_speeds=True), cell="gru", num_envs=4, num_steps=8, hidden_sizes=(4,))
    params, state = jax.jit(task.init_with_state)(KEY)
    grads, state = jax.jit(jax.grad(task.loss_with_state, has_aux=True))(params, state, KEY, None)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(grads))
    assert state.order.shape == (4, 4) and state.lesson.decision.observation.shape == (8, 4, 2)
