import itertools

import jax
import numpy as np
import pytest

from lobench.inner.tasks.markov import HiddenMarkov, Source, source_of

KEY = jax.random.key(0)
SMALL = {"num_states": 3, "num_symbols": 4, "width": 16, "sequence_length": 16, "problem_seed": 2}


def probability(source, window):
    """The sum over all paths of hidden states."""
    total = 0.0
    for path in itertools.product(range(len(source.transitions)), repeat=len(window)):
        steps = source.transitions[path[:-1], path[1:]]
        total += source.stationary[path[0]] * steps.prod() * source.emissions[list(path), window].prod()
    return total


def test_bayes_loss_is_that_of_all_paths_and_its_mean_the_conditional_entropy():
    source = source_of(2, 3, np.random.default_rng(1))
    windows = np.array(list(itertools.product(range(3), repeat=4)))
    probabilities = np.array([probability(source, window) for window in windows])
    assert probabilities.sum() == pytest.approx(1)
    first = (source.stationary @ source.emissions)[windows[:, 0]]
    losses = source.bayes_loss(windows)
    np.testing.assert_allclose(losses, -np.log(probabilities / first) / 3)
    sampled = source.bayes_loss(source.windows(np.random.default_rng(2), 20_000, 4))
    assert sampled.mean() == pytest.approx(probabilities @ losses, rel=0.02)


def test_where_a_symbol_shows_its_state_the_floor_is_the_entropy_rate_of_the_chain():
    transitions = np.array([[0.9, 0.1], [0.3, 0.7]])
    source = Source(transitions=transitions, emissions=np.eye(2))
    np.testing.assert_allclose(source.stationary, [0.75, 0.25])
    rate = -(source.stationary @ (transitions * np.log(transitions)).sum(axis=1))
    windows = source.windows(np.random.default_rng(0), 5_000, 60)
    assert source.bayes_loss(windows).mean() == pytest.approx(rate, rel=0.01)


def test_a_gru_comes_within_two_percent_of_the_best_loss(train):
    task = HiddenMarkov(**SMALL, batch_size=128)
    (before, after), finite, metrics = train(task, steps=250, learning_rate=0.02)
    assert finite
    assert before == pytest.approx(np.log(4), rel=0.2)
    counts = np.bincount(np.ravel(task.datasets.train.arrays["symbols"])) / task.datasets.train.arrays["symbols"].size
    memoryless = -(counts @ np.log(counts))
    assert memoryless > 1.1 * task.best_loss, "symbols alone must not do"
    assert -0.002 < float(metrics["regret"]) < 0.02 * task.best_loss
    assert after == pytest.approx(task.best_loss, rel=0.06)  # one batch of 128 windows


def test_the_floor_hangs_on_the_source_alone():
    task = HiddenMarkov(**SMALL)
    assert HiddenMarkov(**SMALL, network="lstm").best_loss == task.best_loss
    assert HiddenMarkov(**(SMALL | {"problem_seed": 1})).best_loss != task.best_loss
