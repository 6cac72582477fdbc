"""Writes results as TensorBoard scalars, each (tag, outer step) once, whenever and wherever the process is killed.

Event files are only ever appended to. So the sink reads its own files back when it opens, and writes what is missing: a
delivery that comes again after a crash finds its scalars there. Of two thetas at one outer step, the first stays.

Tags: `<suite>/<case>/<split>/<metric>` is the mean over seeds after the last inner step (NaN if a seed diverged),
`<suite>/<case>/diverged` counts those seeds; once a checkpoint is complete, `<suite>/mean/<split>/<metric>` is the mean
over cases with `_lower` and `_upper` (95%, stratified t), `<suite>/diverged` and `<suite>/not_evaluated` are counts.
A generation g > 0 of a population is a run of its own, `generation_<g>`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.summary import Writer

from lobench import Curves, stratified_t_mean
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished, SinkContext

__all__ = ["TensorBoardSink", "written_scalars"]

Scalar = tuple[str, float]


def written_scalars(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields (tag, step) of every scalar in a run's event files; a record cut off by a crash ends its file, no more."""
    for file in sorted(folder.glob("events.out.tfevents.*")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield value.tag, event.step


class _Run:
    """One run directory: what is in it, and a writer."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._written = set(written_scalars(folder))
        self._writer = Writer(str(folder))

    def add(self, scalars: Sequence[Scalar], step: int) -> None:
        for tag, value in scalars:
            if (tag, step) not in self._written:
                self._writer.add_scalar(tag, np.float32(value), step)
                self._written.add((tag, step))

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class TensorBoardSink:
    """Takes deliveries; see the module's text for the tags."""

    def __init__(self, context: SinkContext) -> None:
        self._folder = Path(context.argument) if context.argument else context.store / "tensorboard"
        self._runs: dict[int, _Run] = {}

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        touched = set()
        for delivery in deliveries:
            event = delivery.event
            run = self._run(event.checkpoint.generation)
            run.add(_scalars(event), event.checkpoint.outer_step)
            touched.add(event.checkpoint.generation)
        for generation in touched:
            self._runs[generation].flush()

    def close(self) -> None:
        for run in self._runs.values():
            run.close()

    def _run(self, generation: int) -> _Run:
        if generation not in self._runs:
            folder = self._folder / f"generation_{generation}" if generation else self._folder
            self._runs[generation] = _Run(folder)
        return self._runs[generation]


def _scalars(event: EvaluationFinished | CheckpointFinished) -> list[Scalar]:
    if isinstance(event, CheckpointFinished):
        return _of_checkpoint(event)
    # A case of several seed blocks is complete only with its checkpoint.
    if event.curves is None or len(event.curves.seeds) < event.case.num_seeds:
        return []
    return _of_case(event, [event.curves])


def _of_case(event: EvaluationFinished, blocks: Sequence[Curves]) -> list[Scalar]:
    prefix = f"{event.case.suite}/{event.case.name}"
    scalars = [(f"{prefix}/{name}", _mean(_finals(blocks, name))) for name in sorted(blocks[0].metrics)]
    return [*scalars, (f"{prefix}/diverged", float(sum(block.num_diverged for block in blocks)))]


def _of_checkpoint(event: CheckpointFinished) -> list[Scalar]:
    scalars: list[Scalar] = []
    suites = sorted({evaluation.case.suite for evaluation in event.evaluations})
    for suite in suites:
        evaluations = [evaluation for evaluation in event.evaluations if evaluation.case.suite == suite]
        by_case: dict[str, list[EvaluationFinished]] = {}
        for evaluation in evaluations:
            if evaluation.curves is not None:
                by_case.setdefault(evaluation.case.key, []).append(evaluation)
        blocks = {key: [found.curves for found in rows if found.curves is not None] for key, rows in by_case.items()}
        for key, rows in by_case.items():
            scalars += _of_case(rows[0], blocks[key])
        scalars += _means(suite, list(blocks.values()))
        diverged = sum(block.num_diverged for curves in blocks.values() for block in curves)
        scalars.append((f"{suite}/diverged", float(diverged)))
        missing = sum(evaluation.curves is None for evaluation in evaluations)
        scalars.append((f"{suite}/not_evaluated", float(missing)))
    return scalars


def _means(suite: str, cases: Sequence[Sequence[Curves]]) -> list[Scalar]:
    """Means over the cases that have a metric, with intervals."""
    scalars: list[Scalar] = []
    for name in sorted({name for blocks in cases for name in blocks[0].metrics}):
        cells = [_finals(blocks, name) for blocks in cases if name in blocks[0].metrics]
        interval = stratified_t_mean(cells)
        tag = f"{suite}/mean/{name}"
        scalars += [(tag, interval.mean), (f"{tag}_lower", interval.lower), (f"{tag}_upper", interval.upper)]
    return scalars


def _finals(blocks: Sequence[Curves], name: str) -> list[float]:
    return [value for block in blocks for value in block.final(name)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
