"""Summary of curves: the numbers of an evaluation that tables need, so that they need not decode curves.

A store has a summary with each payload. `summarize` creates it when an evaluation is recorded, or later for older
evaluations. `CurveSummary` returns exactly the numbers that `Curves` computes from the payload.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lobench.core.case import CaseInfo
from lobench.core.film import Film
from lobench.core.metric import Direction, UnknownDirection, direction_of, is_of_batch
from lobench.core.result import Curves, Provenance, exploded_seeds
from lobench.core.step_cost import StepCost

__all__ = [
    "NUM_SPARKS",
    "SUMMARY_VERSION",
    "CurveSummary",
    "head_ids",
    "packed_divergence_steps",
    "packed_first_and_last",
    "read_summary",
    "summarize",
]

SUMMARY_VERSION = "1"  # stores recompute their summaries if it changes
NUM_SPARKS = 12
_SECONDS = struct.Struct("<dd")  # wall and compile
_NUM_COLUMNS = 4  # per metric: first, last, lowest and highest value of each seed


def summarize(curves: Curves, primary_metric: str) -> tuple[str, bytes]:
    """Returns the summary of an evaluation's curves: a text that many evaluations share, and its own numbers.

    Args:
      curves: Curves to summarize.
      primary_metric: Metric whose mean curve is included, at `NUM_SPARKS` of its points.
    """
    shapes = {name: curves.metrics[name].shape or () for name in sorted(curves.metrics)}
    shared_fields = {
        "seeds": curves.seeds,
        "eval_steps": curves.eval_steps,
        "metrics": list(shapes.items()),
        "directions": dict(curves.directions),
        "origin": {
            name: getattr(curves.provenance, name) for name in Provenance.__dataclass_fields__ if name != "bindings"
        },
        "training": curves.training,
        "film": curves.film is not None,
    }
    num_seeds = len(curves.seeds)
    encoded_parts = [
        _SECONDS.pack(curves.wall_seconds, curves.compile_seconds),
        struct.pack(f"<{num_seeds}q", *curves.diverged_at),
    ]
    for name in _metrics_per_eval(shapes):
        rows: list[list[float]] = curves.metrics[name].tolist()  # type: ignore[assignment]  # typeshed knows one axis
        finite_ranges = [_finite_range(row) for row in rows]
        columns = [
            [row[0] for row in rows],
            [row[-1] for row in rows],
            [low for low, _ in finite_ranges],
            [high for _, high in finite_ranges],
        ]
        encoded_parts += [struct.pack(f"<{len(column)}f", *column) for column in columns]
        if name == primary_metric:
            encoded_parts.append(struct.pack(f"<{NUM_SPARKS}d", *_spark_values(rows)))
    if curves.cost is not None:
        encoded_parts.append(json.dumps(curves.cost.header()).encode())
    text = json.dumps(shared_fields | {"primary": primary_metric}, separators=(",", ":"))
    return text, b"".join(encoded_parts)


def _metrics_per_eval(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Returns the metrics with a value per seed and evaluation."""
    return [name for name, shape in shapes.items() if len(shape) == 2 and all(shape) and not is_of_batch(name)]


def _finite_range(row: Sequence[float]) -> tuple[float, float]:
    """Returns the lowest and the highest finite value; NaN if no value is finite."""
    finite_values = row if math.isfinite(sum(row)) else [value for value in row if math.isfinite(value)]
    return min(finite_values, default=math.nan), max(finite_values, default=math.nan)


def _spark_values(rows: Sequence[Sequence[float]]) -> list[float]:
    """Returns the mean over seeds at points spread evenly over the curve."""
    step = (len(rows[0]) - 1) / (NUM_SPARKS - 1)
    columns = [round(index * step) for index in range(NUM_SPARKS)]
    values = ([row[column] for column in columns] for row in rows)
    # `sum` is not used, because its rounding changed in Python 3.12.
    return [functools.reduce(operator.add, seeds) / len(rows) for seeds in zip(*values, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Layout of the numbers of a summary, after the seconds and `diverged_at`.

    Attributes:
      steps, column: Formats of `diverged_at`, and of one value per seed.
      offsets: Offset of the columns of each included metric, by name.
      sparks_at: Offset of the mean curve; -1 if the primary metric is not included.
      cost_at: Offset of the costs, which end the summary.
    """

    steps: struct.Struct
    column: struct.Struct
    offsets: Mapping[str, int]
    sparks_at: int
    cost_at: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Head:
    """Part of a summary that many evaluations share."""

    seeds: tuple[int, ...]
    eval_steps: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]]
    directions: Mapping[str, Direction]
    origin: Provenance
    training: str
    has_film: bool
    layout: _Layout
    has_sorted_seeds: bool


def _read_head(text: str) -> _Head:
    fields: Mapping[str, Any] = json.loads(text)
    shapes = {name: tuple(shape) for name, shape in fields["metrics"]}
    seeds = tuple(fields["seeds"])
    offsets = dict[str, int]()
    sparks_at = -1
    steps = struct.Struct(f"<{len(seeds)}q")
    column = struct.Struct(f"<{len(seeds)}f")
    offset = _SECONDS.size + steps.size
    for name in _metrics_per_eval(shapes):
        offsets[name] = offset
        offset += _NUM_COLUMNS * column.size
        if name == fields["primary"]:
            sparks_at, offset = offset, offset + 8 * NUM_SPARKS
    return _Head(
        seeds=seeds,
        eval_steps=tuple(fields["eval_steps"]),
        shapes=shapes,
        directions={name: Direction(value) for name, value in fields["directions"].items()},
        origin=Provenance(**fields["origin"]),
        training=fields["training"],
        has_film=fields["film"],
        layout=_Layout(steps=steps, column=column, offsets=offsets, sparks_at=sparks_at, cost_at=offset),
        has_sorted_seeds=list(seeds) == sorted({*seeds}),
    )


_shared_head = functools.lru_cache(maxsize=4096)(_read_head)


def read_summary(shared_text: str, packed_numbers: bytes, load: Callable[[], Curves]) -> CurveSummary:
    """Returns a summary written by `summarize`.

    Args:
      shared_text, packed_numbers: The two parts that `summarize` returned.
      load: Function that reads the curves. Called for values that are not in the summary.
    Raises:
      ValueError: The summary is damaged.
    """
    shared_head = _shared_head(shared_text)
    if len(packed_numbers) < shared_head.layout.cost_at:
        raise ValueError(
            f"a damaged summary of {len(packed_numbers)} bytes, expected at least {shared_head.layout.cost_at}"
        )
    return CurveSummary(shared_head, packed_numbers, load)


def head_ids(summaries: Iterable[CurveSummary]) -> list[int]:
    """Returns a number for each evaluation: the same one for equal seeds, steps, metrics and provenance."""
    return [id(summary._head) for summary in summaries]


def packed_first_and_last(summaries: Iterable[CurveSummary], metric: str) -> bytes:
    """Returns the first and the last values of many evaluations, one evaluation after another.

    Args:
      summaries: Summaries that have the metric.
      metric: Name of the metric.

    Returns:
      Little-endian float32[num_summaries, 2, num_seeds] if all have equally many seeds.
    """
    packed_values = list[bytes]()
    shared_head: _Head | None = None
    for summary in summaries:
        if summary._head is not shared_head:  # consecutive evaluations mostly share one head
            shared_head = summary._head
            start = shared_head.layout.offsets[metric]
            stop = start + 2 * shared_head.layout.column.size
        packed_values.append(summary._numbers[start:stop])
    return b"".join(packed_values)


def packed_divergence_steps(summaries: Sequence[CurveSummary]) -> bytes:
    """Returns `diverged_at` of many evaluations, one evaluation after another, as little-endian int64."""
    offset = _SECONDS.size
    return b"".join([summary._numbers[offset : offset + summary._head.layout.steps.size] for summary in summaries])


class CurveSummary:
    """Curves of which only a summary was read. Has a subset of the interface of `Curves`.

    Values that are not in the summary are read from the store each time.
    """

    __slots__ = ("_head", "_load", "_numbers")

    def __init__(self, shared_head: _Head, packed_numbers: bytes, load: Callable[[], Curves]) -> None:
        self._head, self._numbers, self._load = shared_head, packed_numbers, load

    @classmethod
    def of(cls, curves: Curves, primary_metric: str) -> CurveSummary:
        """Returns the summary of curves in memory."""
        return read_summary(*summarize(curves, primary_metric), curves.complete)

    def complete(self) -> Curves:
        """Returns the complete curves from the store."""
        return self._load()

    @property
    def seeds(self) -> tuple[int, ...]:
        return self._head.seeds

    @property
    def has_sorted_seeds(self) -> bool:
        """Whether the seeds are in ascending order, each once."""
        return self._head.has_sorted_seeds

    @property
    def eval_steps(self) -> tuple[int, ...]:
        return self._head.eval_steps

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each metric."""
        return self._head.shapes

    @property
    def summarized_metrics(self) -> Collection[str]:
        """Metrics whose numbers are in the summary: those with values at evaluations."""
        return self._head.layout.offsets.keys()

    @property
    def directions(self) -> Mapping[str, Direction]:
        return self._head.directions

    @property
    def origin(self) -> Provenance:
        """Provenance without its bindings."""
        return self._head.origin

    @property
    def training(self) -> str:
        return self._head.training

    @property
    def wall_seconds(self) -> float:
        return float(_SECONDS.unpack_from(self._numbers)[0])

    @property
    def compile_seconds(self) -> float:
        return float(_SECONDS.unpack_from(self._numbers)[1])

    @property
    def diverged_at(self) -> tuple[int, ...]:
        return self._head.layout.steps.unpack_from(self._numbers, _SECONDS.size)

    @property
    def num_diverged(self) -> int:
        return sum(step >= 0 for step in self.diverged_at)

    @property
    def cost(self) -> StepCost | None:
        text = self._numbers[self._head.layout.cost_at :]
        return StepCost.read(json.loads(text)) if text else None

    def first(self, metric: str) -> list[float]:
        return self._column(metric, 0)

    def final(self, metric: str) -> list[float]:
        return self._column(metric, 1)

    def best(self, metric: str) -> list[float]:
        direction = self.direction(metric)
        if direction is None:
            raise UnknownDirection(metric)
        return self._column(metric, 3 if direction is Direction.MAX else 2)

    def direction(self, metric: str) -> Direction | None:
        return direction_of(metric, self.directions)

    def exploded(self, case: CaseInfo) -> list[bool]:
        name = case.primary_metric
        if len(self.eval_steps) < 2 or name not in self._head.layout.offsets or self._head.shapes[name][1] < 2:
            return [False] * len(self.seeds)
        return exploded_seeds(case, self.first(name), self.final(name), self.diverged_at)

    def num_exploded(self, case: CaseInfo) -> int:
        return sum(self.exploded(case))

    def sparks(self) -> list[float]:
        """Returns the mean curve of the primary metric at `NUM_SPARKS` points; [] if it is not in the summary."""
        offset = self._head.layout.sparks_at
        return list(struct.unpack_from(f"<{NUM_SPARKS}d", self._numbers, offset)) if offset >= 0 else []

    def _column(self, metric: str, step_index: int) -> list[float]:
        layout = self._head.layout
        offset = layout.offsets[metric] + step_index * layout.column.size
        return list(layout.column.unpack_from(self._numbers, offset))

    # Read from the complete curves:

    @property
    def metrics(self) -> Mapping[str, memoryview[float]]:
        return self._load().metrics

    @property
    def provenance(self) -> Provenance:
        return self._load().provenance

    @property
    def problems(self) -> tuple[str, ...]:
        return self._load().problems

    @property
    def film(self) -> Film | None:
        return self._load().film if self._head.has_film else None

    @property
    def num_params(self) -> int:
        return self._load().num_params

    @property
    def resumed_at(self) -> int:
        return self._load().resumed_at
