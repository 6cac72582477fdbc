"""Genomes: a theta as the history of its mutations, a few bytes for any size of theta. Standard library only.

Every random number comes from a hash (`lobench.extend.fold`) of its purpose: (seed of the run, purpose, generation,
index). Results therefore do not depend on the order of the workers' answers, and a resumed run draws the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Genome", "GenomeTrial", "lineage"]


@dataclass(frozen=True, slots=True)
class Genome:
    """Recipe of one theta.

    Attributes:
      id: Unique in a run, and larger than those of the parents.
      parents: Ids of the genomes whose mean is mutated; () if the genome starts a lineage.
      seed: 63 bits, seed of the mutation's noise, or of the initial theta.
      sigma: Factor of the noise. The halves of an antithetic pair differ in its sign.
    """

    id: int
    parents: tuple[int, ...]
    seed: int
    sigma: float


@dataclass(frozen=True, slots=True)
class GenomeTrial:
    """A genome and the seed of the tasks, initial parameters and batches that it is evaluated on."""

    genome: Genome
    seed: int


def lineage(genomes: Mapping[int, Genome], wanted: Iterable[int], known: Iterable[int] = ()) -> list[Genome]:
    """Returns the wanted genomes and their ancestors, without the known ones, ancestors first.

    Args:
      genomes: Genomes by id.
      wanted: Ids of the wanted genomes.
      known: Ids of the genomes to leave out, with their ancestors.
    """
    visited = set(known)
    ancestors = []
    waiting = list(wanted)
    while waiting:
        genome_id = waiting.pop()
        if genome_id not in visited:
            visited.add(genome_id)
            ancestors.append(genomes[genome_id])
            waiting += genomes[genome_id].parents
    return sorted(ancestors, key=lambda genome: genome.id)
