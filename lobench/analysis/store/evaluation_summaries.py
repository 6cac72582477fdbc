"""Overview of many evaluations: a few numbers of each payload, 10,000 of them in a fraction of a second."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.core.case import CaseInfo
from lobench.core.metric import Direction, direction_of, is_of_batch
from lobench.core.result import count_exploded
from lobench.core.step_cost import StepCost
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["NUM_SPARKS", "EvaluationSummary", "evaluation_summaries"]

NUM_SPARKS = 12
_PREFIX = struct.Struct("<4sI")  # of a payload: its mark, and the length of its header

FloatArray = NDArray[np.float64]
_Numbers = dict[str, Any]  # of an `Overview`, by its fields


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSummary:
    """One line of a table: an evaluation, or a sighting of its subject.

    Attributes:
      direction: Of the primary metric; None without curves too.
      final: By metric, the seed mean after the last step; NaN where a seed diverged.
      best: Seed mean of the best value of the primary metric; NaN where there is none, or its direction is not known.
      curve: float64[NUM_SPARKS], seed mean of the primary metric, evenly over its evaluations; NaN where unknown.
      diverged: Seeds that met a non-finite loss; -1 without curves.
      exploded: Seeds that ended above twice their start, without having diverged.
      wall_seconds: NaN without curves.
      cost: Of its steps; None where nobody measured them.
    """

    row: EvaluationRow
    subject: Subject
    direction: Direction | None = None
    final: dict[str, float] = field(default_factory=dict)
    best: float = math.nan
    curve: FloatArray = field(default_factory=lambda: np.full(NUM_SPARKS, np.nan))
    diverged: int = -1
    exploded: int = 0
    wall_seconds: float = math.nan
    cost: StepCost | None = None


def evaluation_summaries(rows: Sequence[EvaluationRow]) -> list[EvaluationSummary]:
    """Returns a line for each evaluation and sighting, in the order of the rows."""
    found: list[_Numbers] = [{}] * len(rows)
    groups: dict[tuple[str, str, str], list[tuple[int, dict[str, Any], memoryview]]] = {}
    for place, row in enumerate(rows):
        if row.payload is not None:
            header, start = row.header()
            shape = (str(header["metrics"]), row.case.primary_metric, str(header.get("directions", {})))
            groups.setdefault(shape, []).append((place, header, memoryview(row.payload)[start:]))
    for members in groups.values():
        _measure(members, [rows[place].case for place, _, _ in members], found)
    pairs = zip(rows, found, strict=True)
    return [
        EvaluationSummary(row=row, subject=subject, **numbers) for row, numbers in pairs for subject in row.sightings
    ]


def _measure(
    members: Sequence[tuple[int, dict[str, Any], memoryview]], cases: Sequence[CaseInfo], found: list[_Numbers]
) -> None:
    """Fills in the numbers of evaluations whose metrics have the same names and shapes."""
    length = 4 * sum(math.prod(shape) for _, shape in members[0][1]["metrics"])  # a film may follow, as long as it is
    values = np.frombuffer(b"".join(body[:length] for _, _, body in members), "<f4").reshape(len(members), -1)
    finals: dict[str, list[float]] = {}
    primary = cases[0].primary_metric
    declared = {name: Direction(value) for name, value in members[0][1].get("directions", {}).items()}
    direction = direction_of(primary, declared)
    best, curves = [math.nan] * len(members), np.full((len(members), NUM_SPARKS), np.nan)
    exploded = [0] * len(members)
    offset = 0
    for name, shape in members[0][1]["metrics"]:
        size = math.prod(shape)
        block = values[:, offset : offset + size].reshape(len(members), *shape).astype(np.float64)
        offset += size
        if size == 0 or is_of_batch(name):
            continue
        finals[name] = block[:, :, -1].mean(axis=1).tolist()
        if name == primary:
            if direction is not None:
                best = _best(block, higher=direction is Direction.MAX).tolist()
            columns = np.linspace(0, block.shape[2] - 1, NUM_SPARKS).round().astype(int)
            curves = block[:, :, columns].mean(axis=1)
            ends_of = zip(block[:, :, 0].tolist(), block[:, :, -1].tolist(), strict=True)
            exploded = [count_exploded(case, *both) for case, both in zip(cases, ends_of, strict=True)]
    names = list(finals)
    for index, ((place, header, _), ends) in enumerate(zip(members, zip(*finals.values(), strict=True), strict=True)):
        num_diverged = sum(step >= 0 for step in header["diverged_at"])
        final = dict.fromkeys(names, math.nan) if num_diverged else dict(zip(names, ends, strict=True))
        found[place] = {
            "direction": direction,
            "final": final,
            "best": best[index],
            "curve": curves[index],
            "diverged": num_diverged,
            "exploded": exploded[index],
            "wall_seconds": header["wall_seconds"],
            "cost": StepCost.read(cost) if (cost := header.get("cost")) is not None else None,
        }


def _best(block: FloatArray, *, higher: bool) -> FloatArray:
    """Returns the seed mean of each seed's best finite value; block is float64[evaluations, seeds, steps]."""
    worst = -np.inf if higher else np.inf
    known = np.where(np.isfinite(block), block, worst)
    best = known.max(axis=2) if higher else known.min(axis=2)
    return np.asarray(np.where(np.isfinite(best), best, np.nan).mean(axis=1))
