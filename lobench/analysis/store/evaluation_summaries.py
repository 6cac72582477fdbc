"""Overview of many evaluations: a few numbers of each payload, 10,000 of them in a fraction of a second."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lobench.core.case import CaseInfo
from lobench.core.metric import Direction, direction_of, is_of_batch
from lobench.core.result import Curves, exploded_seeds
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


class _Head(NamedTuple):
    """What a line needs of a payload's header."""

    metrics: Sequence[tuple[str, tuple[int, ...]]]  # names and shapes, in the order of the values
    directions: Mapping[str, Direction]
    diverged_at: Sequence[int]
    wall_seconds: float
    cost: StepCost | None

    @classmethod
    def of(cls, curves: Curves) -> _Head:
        shapes = [(name, view.shape or ()) for name, view in curves.metrics.items()]
        return cls(shapes, curves.directions, curves.diverged_at, curves.wall_seconds, curves.cost)

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> _Head:
        directions = {name: Direction(value) for name, value in header.get("directions", {}).items()}
        cost = StepCost.read(cost) if (cost := header.get("cost")) is not None else None
        shapes = [(name, tuple(shape)) for name, shape in header["metrics"]]
        return cls(shapes, directions, header["diverged_at"], header["wall_seconds"], cost)


class _Member(NamedTuple):
    place: int
    head: _Head
    body: memoryview


def evaluation_summaries(
    rows: Sequence[EvaluationRow], curves: Iterable[Curves | None] | None = None
) -> list[EvaluationSummary]:
    """Returns a line for each evaluation and sighting, in the order of the rows.

    Args:
      curves: Of each row, where somebody has read them; None: headers are read here, which is less.
    """
    found: list[_Numbers] = [{}] * len(rows)
    groups: dict[Hashable, list[_Member]] = {}
    for place, (row, own) in enumerate(zip(rows, curves or itertools.repeat(None), strict=False)):
        if row.payload is not None:
            head = _Head.of(own) if own is not None else _Head.read(row.header()[0])
            start = _PREFIX.size + _PREFIX.unpack_from(row.payload)[1]
            shape = (tuple(head.metrics), row.case.primary_metric, tuple(head.directions.items()))
            groups.setdefault(shape, []).append(_Member(place, head, memoryview(row.payload)[start:]))
    for members in groups.values():
        _measure(members, [rows[one.place].case for one in members], found)
    pairs = zip(rows, found, strict=True)
    return [
        EvaluationSummary(row=row, subject=subject, **numbers) for row, numbers in pairs for subject in row.sightings
    ]


def _measure(members: Sequence[_Member], cases: Sequence[CaseInfo], found: list[_Numbers]) -> None:
    """Fills in the numbers of evaluations whose metrics have the same names and shapes."""
    metrics = members[0].head.metrics
    length = 4 * sum(math.prod(shape) for _, shape in metrics)  # a film may follow, as long as it is
    values = np.frombuffer(b"".join(one.body[:length] for one in members), "<f4").reshape(len(members), -1)
    finals: dict[str, list[float]] = {}
    primary = cases[0].primary_metric
    direction = direction_of(primary, members[0].head.directions)
    best, curves = [math.nan] * len(members), np.full((len(members), NUM_SPARKS), np.nan)
    exploded = [0] * len(members)
    offset = 0
    for name, shape in metrics:
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
            starts, ends = block[:, :, 0], block[:, :, -1]
            lows = np.asarray([case.minimum or 0.0 for case in cases])[:, None]
            above = (np.isfinite(ends) & (ends - lows > 2 * (starts - lows))).any(axis=1) & (block.shape[2] > 1)
            for at in np.flatnonzero(above).tolist():
                steps = members[at].head.diverged_at
                exploded[at] = sum(exploded_seeds(cases[at], starts[at].tolist(), ends[at].tolist(), steps))
    names = list(finals)
    for index, ((place, head, _), last) in enumerate(zip(members, zip(*finals.values(), strict=True), strict=True)):
        num_diverged = sum(step >= 0 for step in head.diverged_at)
        final = dict.fromkeys(names, math.nan) if num_diverged else dict(zip(names, last, strict=True))
        found[place] = {
            "direction": direction,
            "final": final,
            "best": best[index],
            "curve": curves[index],
            "diverged": num_diverged,
            "exploded": exploded[index],
            "wall_seconds": head.wall_seconds,
            "cost": head.cost,
        }


def _best(block: FloatArray, *, higher: bool) -> FloatArray:
    """Returns the seed mean of each seed's best finite value; block is float64[evaluations, seeds, steps]."""
    worst = -np.inf if higher else np.inf
    known = np.where(np.isfinite(block), block, worst)
    best = known.max(axis=2) if higher else known.min(axis=2)
    return np.asarray(np.where(np.isfinite(best), best, np.nan).mean(axis=1))
