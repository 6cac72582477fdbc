"""From genomes to theta: initial values and mutations by counter-based keys, decoded from cached parents.

A mutation is always one run of one compiled program on one theta. So a theta decoded from its cached parent has the
same bits as one decoded from the beginning of its lineage, whatever else is decoded beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from lobench import ConfigError, LearnedOptimizer, leaf_paths
from lobench_evolve.genome import Genome

__all__ = ["RANDOM_IMPLEMENTATION", "Decoder", "Weights", "key_of"]

RANDOM_IMPLEMENTATION = "threefry2x32"


def key_of(seed: int) -> jax.Array:
    """Returns the key whose data are the seed's bits."""
    data = jnp.asarray(np.asarray([seed >> 32, seed & 0xFFFFFFFF], np.uint32))
    key: jax.Array = jax.random.wrap_key_data(data, impl=RANDOM_IMPLEMENTATION)
    return key


class Weights:
    """The thetas of a learned optimizer as vectors, float32[num_weights].

    Args:
      optimizer: Declares theta.
      initial_scale: Factors on leaves of the initial theta, by path.
    Raises:
      ConfigError: a leaf that is no float32, or a path in `initial_scale` that theta does not have.
    """

    def __init__(self, optimizer: LearnedOptimizer, initial_scale: Mapping[str, float]) -> None:
        template = jax.eval_shape(optimizer.init, jax.random.key(0, impl=RANDOM_IMPLEMENTATION))
        leaves = leaf_paths(template)
        name = type(optimizer).__name__
        for path, leaf in leaves.items():
            if leaf.dtype != jnp.float32:
                raise ConfigError(f"leaf {path!r} of {name}'s theta", got=str(leaf.dtype), expected="float32")
        unknown = [path for path in initial_scale if path not in leaves]
        if unknown:
            raise ConfigError(
                f"Evolve.initial_scale: {name}'s theta has no leaf {unknown[0]!r}",
                expected="one of " + ", ".join(leaves),
            )
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
        flat, self._unravel = ravel_pytree(zeros)
        self.num_weights = int(flat.size)
        factors = [initial_scale.get(path, 1.0) for path in leaves]

        def init(key: jax.Array) -> jax.Array:
            found, structure = jax.tree.flatten(optimizer.init(key))
            scaled = [leaf * factor for leaf, factor in zip(found, factors, strict=True)]
            return ravel_pytree(jax.tree.unflatten(structure, scaled))[0]

        self.init = jax.jit(init)
        self.mutate = jax.jit(self._mutate)
        self.add_noise = jax.jit(self._add_noise)

    def _noise(self, key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (self.num_weights,), jnp.float32)

    def _mutate(self, parent: jax.Array, key: jax.Array, sigma: jax.Array) -> jax.Array:
        return parent + sigma * self._noise(key)

    def _add_noise(self, total: jax.Array, key: jax.Array, weight: jax.Array) -> jax.Array:
        return total + weight * self._noise(key)

    def unravel(self, flat: jax.Array) -> Any:
        """Returns theta in the optimizer's own structure."""
        return self._unravel(flat)

    def leaves(self, flat: jax.Array) -> dict[str, np.ndarray]:
        """Returns theta's leaves by path, as checkpoints hold them."""
        return {path: np.asarray(leaf) for path, leaf in leaf_paths(self._unravel(flat)).items()}


class Decoder:
    """Thetas of genomes, made from the nearest ancestor that is still in memory.

    Args:
      weights: Makes and mutates.
      max_bytes: Of cached thetas; what is longest unused goes first. Genomes themselves are kept.
    """

    def __init__(self, weights: Weights, max_bytes: int = 256 << 20) -> None:
        self._weights = weights
        self._capacity = max(max_bytes // (4 * weights.num_weights), 2)
        self._genomes: dict[int, Genome] = {}
        self._cache: OrderedDict[int, jax.Array] = OrderedDict()

    def learn(self, genomes: Iterable[Genome]) -> None:
        """Takes genomes to be decoded later; a parent may come before or after its children."""
        self._genomes.update({genome.id: genome for genome in genomes})

    def put(self, genome_id: int, theta: jax.Array) -> None:
        """Takes a theta that no seed makes, such as the mean of evolution strategies."""
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
        """Returns float32[num_weights]; `keep` says whether it is likely to be a parent."""
        missing: list[Genome] = []
        at: int | None = genome_id
        while at is not None and at not in self._cache:
            genome = self._genomes[at]
            missing.append(genome)
            at = genome.parent
        theta = self._cache[at] if at is not None else None
        if at is not None:
            self._cache.move_to_end(at)
        for genome in reversed(missing):
            key = key_of(genome.seed)
            theta = self._weights.init(key) if theta is None else self._weights.mutate(theta, key, genome.sigma)
            if keep or genome.id != genome_id:
                self.put(genome.id, theta)
        assert theta is not None
        return theta
