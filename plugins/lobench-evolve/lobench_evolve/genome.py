"""Genomes: a theta as the history that makes it, a few bytes whatever its size. Standard library only.

Every random choice is a hash (`lobench.extend.fold`) of what it is for, (run's seed, purpose, generation, index), so
that nothing hangs on the order in which workers answer, and a killed run draws the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Genome", "GenomeTrial", "lineage"]


@dataclass(frozen=True, slots=True)
class Genome:
    """One theta.

    Attributes:
      id: Unique within a run; larger than its parents'.
      parents: The genomes whose mean it is a mutation of; none where it begins a lineage.
      seed: 63 bits: of the mutation's noise, or of the initial theta.
      sigma: What the noise is multiplied by; its sign tells the halves of an antithetic pair apart.
    """

    id: int
    parents: tuple[int, ...]
    seed: int
    sigma: float


@dataclass(frozen=True, slots=True)
class GenomeTrial:
    """A genome and the seed of the tasks, initial parameters and batches that it is tried on."""

    genome: Genome
    seed: int


def lineage(genomes: Mapping[int, Genome], wanted: Iterable[int], known: Iterable[int] = ()) -> list[Genome]:
    """Returns the wanted genomes and their ancestors, ancestors first, as far as they are not known."""
    done, found, waiting = set(known), [], list(wanted)
    while waiting:
        at = waiting.pop()
        if at not in done:
            done.add(at)
            found.append(genomes[at])
            waiting += genomes[at].parents
    return sorted(found, key=lambda genome: genome.id)
