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


def lineage(genomes: Mapping[int, Genome], wanted_ids: Iterable[int], known_ids: Iterable[int] = ()) -> list[Genome]:
    """Returns the wanted genomes and their ancestors, without the known ones, ancestors first.

    Args:
      genomes: Genomes by id.
      wanted_ids: Ids of the wanted genomes.
      known_ids: Ids of the genomes to leave out, with their ancestors.
    """
    visited_ids = set(known_ids)
    ancestors = []
    pending_ids = list(wanted_ids)
    while pending_ids:
        genome_id = pending_ids.pop()
        if genome_id not in visited_ids:
            visited_ids.add(genome_id)
            ancestors.append(genomes[genome_id])
            pending_ids += genomes[genome_id].parents
    return sorted(ancestors, key=lambda genome: genome.id)
