"""Node classification with a graph convolutional network on a stochastic block model."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import SPLITS, Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import Params, two_layers_init
from lobench.inner.tasks.splits import row_datasets

__all__ = ["BlockModelGCN"]

_NUM_COMMUNITIES, _NUM_FEATURES = 4, 16


@configurable
class BlockModelGCN(ReferencedTask, MeasuredTask):
    """Node classification with a two-layer graph convolutional network, in a graph of four communities.

    Two nodes of one community are linked with a higher probability than other nodes. A node's 16 features are normal
    about a centre of its community. Half of the nodes train, each other split has a sixth; a training step sees the
    whole graph and the labels of all its nodes, so a batch is a mask float32[1, num_nodes]. Mean cross entropy in nats
    and `accuracy` are over the masked nodes. Parameters: `w0` [16, width], `b0`, `w1` [width, 4], `b1`.
    Source: Kipf and Welling 2017 (arXiv 1609.02907), equation 9.

    Args:
      num_nodes: At least 12.
      width: Width of the hidden layer.
      degree: Expected number of links of a node.
      contrast: How much likelier a link is within a community than between two, >= 1.
      separation: Distance of a community's centre from zero, in standard deviations of the features.
      problem_seed: Seed of graph and features.
    Attributes:
      propagation: The normalized adjacency, float32[num_nodes, num_nodes]; propagated: its product with the features.
      one_hot: Communities, float32[num_nodes, 4].
      best_loss: Lower bound of the expected loss: the loss of Bayes' rule for a node if the probabilities and the
        labels of all other nodes are known, averaged over nodes.
    """

    datasets: Datasets
    reference_loss = math.log(_NUM_COMMUNITIES)

    def __init__(
        self,
        *,
        num_nodes: int = 192,
        width: int = 16,
        degree: float = 12.0,
        contrast: float = 6.0,
        separation: float = 1.0,
        problem_seed: int = 0,
    ) -> None:
        arguments.integer(self, "num_nodes", num_nodes, at_least=12)
        self._width = arguments.integer(self, "width", width)
        degree = arguments.number(self, "degree", degree, at_least=0.1)
        contrast = arguments.number(self, "contrast", contrast, at_least=1.0)
        separation = arguments.number(self, "separation", separation)
        arguments.integer(self, "problem_seed", problem_seed, at_least=0)
        graph = _graph(num_nodes, degree, contrast, separation, problem_seed)
        self.propagation, self.propagated, self.one_hot, self.best_loss = graph
        self.datasets = _split_masks(num_nodes, problem_seed)

    def init(self, key: jax.Array) -> Params:
        return two_layers_init(key, _NUM_FEATURES, self._width, _NUM_COMMUNITIES)

    def logits(self, params: Params) -> jax.Array:
        """Returns logits of all nodes, float32[num_nodes, 4]."""
        hidden = jax.nn.relu(self.propagated @ params["w0"] + params["b0"])
        return jnp.asarray(self.propagation) @ (hidden @ params["w1"]) + params["b1"]

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        logits = self.logits(params)
        weight = data[0] / jnp.sum(data[0])
        loss = -jnp.sum(weight * jnp.sum(self.one_hot * jax.nn.log_softmax(logits), axis=-1))
        hits = jnp.argmax(logits, axis=-1) == jnp.argmax(self.one_hot, axis=-1)
        return loss, state, {"accuracy": jnp.sum(weight * hits)}


@functools.cache
def _graph(
    num_nodes: int, degree: float, contrast: float, separation: float, problem_seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Returns the normalized adjacency, its product with the features, labels as one-hot, and the floor of the loss."""
    rng = np.random.default_rng(problem_seed)
    one_hot = np.eye(_NUM_COMMUNITIES)[np.arange(num_nodes) % _NUM_COMMUNITIES]
    is_same_community = one_hot @ one_hot.T
    # A node has about a quarter of all nodes in its community.
    p_between = degree / (num_nodes * (contrast + _NUM_COMMUNITIES - 1) / _NUM_COMMUNITIES)
    p_within = min(contrast * p_between, 0.99)
    p_between = min(p_between, 0.99)
    upper = np.triu(rng.random((num_nodes, num_nodes)) < np.where(is_same_community, p_within, p_between), k=1)
    links = (upper | upper.T).astype(np.float64)
    centres = rng.standard_normal((_NUM_COMMUNITIES, _NUM_FEATURES))
    centres *= separation / np.linalg.norm(centres, axis=1, keepdims=True)
    features = one_hot @ centres + rng.standard_normal((num_nodes, _NUM_FEATURES))

    num_linked = links @ one_hot
    num_unlinked = one_hot.sum(axis=0) - one_hot - num_linked
    evidence = num_linked * math.log(p_within / p_between) + num_unlinked * math.log((1 - p_within) / (1 - p_between))
    evidence -= 0.5 * np.square(features[:, None] - centres).sum(axis=-1)
    own_evidence = (evidence * one_hot).sum(axis=1)
    best_loss = float(np.mean(np.logaddexp.reduce(evidence, axis=1) - own_evidence))

    links_and_self = links + np.eye(num_nodes)
    scale = links_and_self.sum(axis=1) ** -0.5
    propagation = scale[:, None] * links_and_self * scale
    arrays = (propagation, propagation @ features, one_hot)
    return (*(array.astype(np.float32) for array in arrays), best_loss)  # type: ignore[return-value]


def _split_masks(num_nodes: int, problem_seed: int) -> Datasets:
    order = np.random.default_rng([problem_seed, 1]).permutation(num_nodes)
    group_size = num_nodes // 6
    nodes_of_splits = np.split(order, [num_nodes - 3 * group_size, num_nodes - 2 * group_size, num_nodes - group_size])
    masks = np.zeros((4, num_nodes), np.float32)
    for mask, nodes in zip(masks, nodes_of_splits, strict=True):
        mask[nodes] = 1.0
    return row_datasets(masks, dict.fromkeys(SPLITS, 1), 1)
