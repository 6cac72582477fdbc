"""Decodes genomes to theta: initial values and mutations by counter-based keys, with a cache of parents.

Each mutation, and each mean of several parents, is one call of a compiled program on one theta. A theta decoded from
its cached parents therefore has the same bits as one decoded from the start of its lineage.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lobench import ConfigError, LearnedOptimizer
from lobench.extend import leaf_paths
from lobench_evolve.genome import Genome, lineage

__all__ = ["RANDOM_IMPLEMENTATION", "Decoder", "Weights", "key_of"]

RANDOM_IMPLEMENTATION = "threefry2x32"


def key_of(seed: int) -> jax.Array:
    """Returns the key whose data are the seed's bits."""
    data = jnp.asarray(np.asarray([seed >> 32, seed & 0xFFFFFFFF], np.uint32))
    key: jax.Array = jax.random.wrap_key_data(data, impl=RANDOM_IMPLEMENTATION)
    return key


class Weights:
    """Thetas of a learned optimizer as vectors, float32[num_weights].

    Args:
      optimizer: Learned optimizer, which defines the structure of theta.
      initial_scale: Factors on leaves of the initial theta, by path.
      decay: Fraction by which a mutation shrinks its parent's weights first.
    Raises:
      ConfigError: A leaf is not float32, or theta lacks a path of `initial_scale`.
    """

    def __init__(self, optimizer: LearnedOptimizer, initial_scale: Mapping[str, float], *, decay: float = 0.0) -> None:
        template = jax.eval_shape(optimizer.init, jax.random.key(0, impl=RANDOM_IMPLEMENTATION))
        leaves = leaf_paths(template)
        name = type(optimizer).__name__
        for path, leaf in leaves.items():
            if leaf.dtype != jnp.float32:
                raise ConfigError(f"leaf {path!r} of {name}'s theta", got=str(leaf.dtype), expected="float32")
        unknown_paths = [path for path in initial_scale if path not in leaves]
        if unknown_paths:
            raise ConfigError(
                f"Evolve.initial_scale: {name}'s theta has no leaf {unknown_paths[0]!r}",
                expected="one of " + ", ".join(leaves),
            )
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
        flat_zeros, self._unravel = ravel_pytree(zeros)
        self.num_weights = int(flat_zeros.size)
        factors = [initial_scale.get(path, 1.0) for path in leaves]

        def init(key: jax.Array) -> jax.Array:
            theta_leaves, structure = jax.tree.flatten(optimizer.init(key))
            scaled_leaves = [leaf * factor for leaf, factor in zip(theta_leaves, factors, strict=True)]
            return ravel_pytree(jax.tree.unflatten(structure, scaled_leaves))[0]

        self._kept_fraction = 1.0 - decay
        self.init = jax.jit(init)
        self.mean = jax.jit(lambda thetas: jnp.mean(jnp.stack(thetas), axis=0))
        self.mutate = jax.jit(self._mutate)
        self.add_noise = jax.jit(self._add_noise)

    def _noise(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (self.num_weights,), jnp.float32)

    def _mutate(self, parent: jax.Array, key: jax.Array, sigma: jax.Array) -> jax.Array:
        kept_part = parent if self._kept_fraction == 1.0 else self._kept_fraction * parent
        return kept_part + sigma * self._noise(key)

    def _add_noise(self, total: jax.Array, key: jax.Array, weight: jax.Array) -> jax.Array:
        return total + weight * self._noise(key)

    def unravel(self, theta_vector: jax.Array) -> Any:
        """Returns theta in the optimizer's own structure."""
        return self._unravel(theta_vector)

    def leaves(self, theta_vector: jax.Array) -> dict[str, np.ndarray]:
        """Returns theta's leaves by path, as checkpoints hold them."""
        return {path: np.asarray(leaf) for path, leaf in leaf_paths(self._unravel(theta_vector)).items()}


class Decoder:
    """Cache of the thetas of genomes, each computed from its nearest cached ancestors.

    Args:
      weights: Functions that create and mutate thetas.
      max_bytes: Size of the cached thetas. The least recently used are dropped first; genomes are always kept.
    """

    def __init__(self, weights: Weights, max_bytes: int = 256 << 20) -> None:
        self._weights = weights
        self._capacity = max(max_bytes // (4 * weights.num_weights), 2)
        self._genomes: dict[int, Genome] = {}
        self._cache: OrderedDict[int, jax.Array] = OrderedDict()
        # Mean of the last parents, which children of a generation may share.
        self._mean_parents: tuple[int, ...] = ()
        self._mean: jax.Array = jnp.zeros(0)

    def add_genomes(self, genomes: Iterable[Genome]) -> None:
        """Adds genomes to be decoded later, in any order."""
        self._genomes.update({genome.id: genome for genome in genomes})

    def add_theta(self, genome_id: int, theta: jax.Array) -> None:
        """Adds a theta that is not made from a seed, such as the mean of evolution strategies."""
        self._cache[genome_id] = theta
        self._cache.move_to_end(genome_id)
        while len(self._cache) > self._capacity:
            self._cache.popitem(last=False)

    def forget(self, genome_ids: Iterable[int]) -> None:
        """Drops genomes that have no descendants any more, and their thetas."""
        for genome_id in genome_ids:
            self._genomes.pop(genome_id, None)
            self._cache.pop(genome_id, None)

    def theta(self, genome_id: int, *, keep: bool = True) -> jax.Array:
        """Returns the theta of a genome, float32[num_weights].

        Args:
          genome_id: Id of the genome.
          keep: Whether to cache it, because it is likely to be a parent.
        """
        missing_genomes = self._missing_genomes(genome_id)
        num_uses = Counter(parent for genome in missing_genomes for parent in genome.parents)
        parent_thetas: dict[int, jax.Array] = {}  # parents of genomes that are not made yet
        for parent in num_uses.keys() & self._cache.keys():
            parent_thetas[parent] = self._cache[parent]
            self._cache.move_to_end(parent)
        for genome in missing_genomes:
            theta = self._make_theta(genome, parent_thetas)
            if keep or genome.id != genome_id:
                self.add_theta(genome.id, theta)
            for parent in genome.parents:
                num_uses[parent] -= 1
                if not num_uses[parent]:
                    del parent_thetas[parent]
            if genome.id == genome_id:
                return theta
            parent_thetas[genome.id] = theta
        self._cache.move_to_end(genome_id)
        return self._cache[genome_id]

    def _missing_genomes(self, genome_id: int) -> list[Genome]:
        """Returns the genome and its ancestors that are not cached, ancestors first."""
        return lineage(self._genomes, [genome_id], self._cache)

    def _make_theta(self, genome: Genome, parents: Mapping[int, jax.Array]) -> jax.Array:
        key = key_of(genome.seed)
        thetas = [parents[parent] for parent in genome.parents]
        if not thetas:
            initial: jax.Array = self._weights.init(key)
            return initial
        theta = thetas[0]
        if len(thetas) > 1:
            if genome.parents != self._mean_parents:
                self._mean_parents, self._mean = genome.parents, self._weights.mean(thetas)
            theta = self._mean
        mutated: jax.Array = self._weights.mutate(theta, key, genome.sigma) if genome.sigma else theta
        return mutated
