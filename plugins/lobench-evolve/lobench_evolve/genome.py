"""Genomes: a theta as the history that makes it, a few bytes whatever its size. Standard library only.

Every random choice is a hash (`lobench.fold`) of what it is for, (run's seed, purpose, generation, index), so that
nothing hangs on the order in which workers answer, and a killed run draws the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Genome", "Trial", "lineage"]


@dataclass(frozen=True, slots=True)
class Genome:
    """One theta.

    Attributes:
      id: Unique within a run.
      parent: The genome that it is a mutation of; None where it begins a lineage.
      seed: 63 bits: of the mutation's noise, or of the initial theta.
      sigma: What the noise is multiplied by; its sign tells the halves of an antithetic pair apart.
    """

    id: int
    parent: int | None
    seed: int
    sigma: float

    def to_record(self) -> list[int | float | None]:
        return [self.id, self.parent, self.seed, self.sigma]


@dataclass(frozen=True, slots=True)
class Trial:
    """A genome and the seed of the tasks, initial parameters and batches that it is tried on."""

    genome: Genome
    seed: int


def lineage(genomes: Mapping[int, Genome], wanted: Iterable[int], known: Iterable[int] = ()) -> list[Genome]:
    """Returns the wanted genomes and their ancestors, ancestors first, as far as they are not known."""
    done = set(known)
    found: list[Genome] = []
    for genome_id in wanted:
        chain: list[Genome] = []
        at: int | None = genome_id
        while at is not None and at not in done:
            chain.append(genomes[at])
            done.add(at)
            at = genomes[at].parent
        found += reversed(chain)
    return found
