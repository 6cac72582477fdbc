import jax
import numpy as np
import pytest

from lobench.inner.task import SPLITS
from lobench.inner.tasks.graph import BlockModelGCN

KEY = jax.random.key(0)


def test_the_network_is_kipf_and_wellings():
    task = BlockModelGCN(num_nodes=24, width=5)
    propagation = np.asarray(task.propagation, np.float64)
    links = (propagation > 0).astype(float)
    np.testing.assert_array_equal(links, links.T)
    assert links.diagonal().all()
    degrees = links.sum(axis=1)
    np.testing.assert_allclose(propagation, links / np.sqrt(degrees[:, None] * degrees), rtol=1e-6)
    params = {name: np.asarray(leaf) + 0.1 for name, leaf in task.init(KEY).items()}
    hidden = np.maximum(task.propagated @ params["w0"] + params["b0"], 0)
    expected = propagation @ hidden @ params["w1"] + params["b1"]
    np.testing.assert_allclose(task.logits(params), expected, rtol=1e-4, atol=1e-5)


def test_every_node_is_in_one_split_and_links_are_likelier_within():
    task = BlockModelGCN(num_nodes=400, degree=20.0, contrast=5.0)
    masks = np.concatenate([getattr(task.datasets, split).arrays[0] for split in SPLITS]).reshape(4, 400)
    np.testing.assert_array_equal(masks.sum(axis=0), 1)
    assert masks.sum(axis=1).tolist() == [202, 66, 66, 66]
    links = np.asarray(task.propagation) > 0
    same = np.asarray(task.one_hot @ task.one_hot.T) > 0
    away = ~np.eye(400, dtype=bool)
    assert links[away].sum() / 400 == pytest.approx(20, rel=0.1)
    assert links[same & away].mean() / links[~same].mean() == pytest.approx(5, rel=0.2)


def test_a_gcn_learns_and_stays_above_the_floor_where_it_is_not_trained(train):
    task = BlockModelGCN(separation=1.0)
    assert 0 < task.best_loss < 0.2 < BlockModelGCN(degree=4.0).best_loss < np.log(4)
    (before, after), finite, metrics = train(task, steps=100, learning_rate=0.03)
    assert finite and before > 1.2 and after < 0.3 * before
    assert float(metrics["accuracy"]) > 0.9


def test_without_any_evidence_the_floor_is_a_guess():
    task = BlockModelGCN(contrast=1.0, separation=0.0)
    assert task.best_loss == pytest.approx(np.log(4), rel=1e-6)
