"""Decoding of genomes: from the beginning or from a cached parent, the bits are the same."""

from __future__ import annotations

import numpy as np
import pytest
from lobench_evolve.genome import Genome, lineage
from lobench_evolve.messages import Learn
from lobench_evolve.weights import Decoder, Weights, key_of
from shown import texts_of

from lobench import ConfigError
from lobench.extend import fold
from lobench.inner.optimizers import AdafacMLPLOpt, LearnableAdam

SHOWN = texts_of("evolve")


@pytest.fixture(scope="module")
def weights() -> Weights:
    return Weights(AdafacMLPLOpt(), {})


def history(length: int) -> dict[int, Genome]:
    """A chain of mutations of different sizes and signs."""
    chain = [Genome(0, (), fold(5, "init"), 0.0)]
    chain += [Genome(i, (i - 1,), fold(5, "noise", i), (-1) ** i * 0.1 / i) for i in range(1, length)]
    return {genome.id: genome for genome in chain}


def test_a_cached_parent_and_one_mutation_have_the_bits_of_full_decoding(weights: Weights) -> None:
    genomes = history(12)
    cached = Decoder(weights)
    cached.add_genomes(genomes.values())
    for last in range(12):
        full = Decoder(weights)
        full.add_genomes(lineage(genomes, [last]))
        assert np.asarray(cached.theta(last)).tobytes() == np.asarray(full.theta(last)).tobytes()


def test_a_cache_that_holds_little_decodes_the_same(weights: Weights) -> None:
    genomes = history(6)
    small, large = Decoder(weights, max_bytes=0), Decoder(weights)
    for decoder in (small, large):
        decoder.add_genomes(genomes.values())
    for index in (5, 2, 4, 0, 5):
        assert np.asarray(small.theta(index)).tobytes() == np.asarray(large.theta(index)).tobytes()


def test_antithetic_halves_are_as_far_on_either_side(weights: Weights) -> None:
    decoder = Decoder(weights)
    decoder.add_theta(0, weights.init(key_of(1)))
    decoder.add_genomes([Genome(1, (0,), 77, 0.5), Genome(2, (0,), 77, -0.5)])
    middle, plus, minus = (np.asarray(decoder.theta(index)) for index in range(3))
    np.testing.assert_allclose((plus + minus) / 2, middle, atol=1e-6)
    assert np.std(plus - middle) == pytest.approx(0.5, rel=0.2)


def test_what_was_forgotten_is_not_made_up(weights: Weights) -> None:
    decoder = Decoder(weights)
    decoder.add_theta(0, weights.init(key_of(1)))
    decoder.add_genomes([Genome(1, (0,), 77, 0.5)])
    decoder.forget([0])
    with pytest.raises(KeyError):
        decoder.theta(1)


def test_the_initial_theta_is_the_optimizers_own_with_factors_on_its_leaves() -> None:
    optimizer, key = AdafacMLPLOpt(), key_of(fold(3, "init"))
    plain, scaled = (Weights(optimizer, factors) for factors in ({}, {"nn/~/w2": 0.1}))
    expected, found = plain.leaves(plain.init(key)), scaled.leaves(scaled.init(key))
    for path, leaf in expected.items():
        assert found[path].shape == leaf.shape
        np.testing.assert_allclose(found[path], (0.1 if path == "nn/~/w2" else 1.0) * leaf, rtol=1e-6)


def test_a_path_that_theta_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ConfigError, match=SHOWN["learnableadam-s-theta-has-no"]):
        Weights(LearnableAdam(), {"w2": 0.1})


def mixed(size: int, generations: int) -> dict[int, Genome]:
    """Generations whose members are mutations of the mean of two or three of the one before."""
    genomes = [Genome(index, (), fold(6, "init", index), 0.0) for index in range(size)]
    for number in range(size, size * generations):
        first = size * (number // size - 1)
        parents = sorted({first + fold(6, number, index) % size for index in range(2 + number % 2)})
        genomes.append(Genome(number, tuple(parents), fold(6, "noise", number), 0.1 if number % 5 else 0.0))
    return {genome.id: genome for genome in genomes}


@pytest.mark.parametrize("max_bytes", [0, 1 << 20])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_of_several_parents_the_bits_are_those_of_full_decoding_too(max_bytes: int, decay: float) -> None:
    weights, genomes = Weights(AdafacMLPLOpt(), {}, decay=decay), mixed(4, 5)
    cached = Decoder(weights, max_bytes)
    cached.add_genomes(genomes.values())
    for last in range(20):
        full = Decoder(weights)
        full.add_genomes(lineage(genomes, [last]))
        assert np.asarray(cached.theta(last)).tobytes() == np.asarray(full.theta(last)).tobytes()


def test_a_child_is_the_mean_of_its_parents_less_the_decay_and_its_noise() -> None:
    weights = Weights(AdafacMLPLOpt(), {}, decay=0.25)
    decoder = Decoder(weights)
    genomes = [Genome(0, (), 1, 0.0), Genome(1, (), 2, 0.0), Genome(2, (0, 1), 3, 0.5), Genome(3, (0, 1), 3, 0.0)]
    learn = Learn(forget=(), genomes=tuple(genomes), theta_updates=None)
    decoder.add_genomes(Learn.from_bytes(learn.to_bytes()).genomes)
    one, other, child, mean = (np.asarray(decoder.theta(id)) for id in range(4))
    np.testing.assert_allclose(mean, (one + other) / 2, rtol=1e-6)
    noise = (child - 0.75 * mean) / 0.5
    assert np.std(noise) == pytest.approx(1.0, rel=0.2) and abs(np.mean(noise)) < 0.3
