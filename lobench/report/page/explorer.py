"""Explorer data as one JSON document, in the file or served."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.viewer_index import Curve, CurveKey, ViewerIndex, curves_of
from lobench.analysis.store.groups import are_by_step, run_names
from lobench.analysis.store.rerun_command import seeds_arguments, shown_by, trained_by, with_subject
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import Cell
from lobench.core.case import SeedBlock
from lobench.core.wording import counted, one_line
from lobench.report.charts.svg import rounded

__all__ = ["explorer_curves", "explorer_data"]

_MOST_NUMBERS = 250_000  # of curves in one file: about 1.5 MB
_POINTS = (64, 24)  # of a curve: where all fit into that, and where they do not
_MOST_POINTS = 240  # of a curve that is fetched
_HASHED = 8  # hex digits


def explorer_data(viewer_index: ViewerIndex, *, served: bool) -> dict[str, Any]:
    """Returns subjects, cases, metrics, final values, and of a file the curves as far as they fit.

    Lists are as short as they can be, and texts that many cells share are there once: ten thousand evaluations are
    about a megabyte.

    Args:
      served: Whether a server gives the curves when they are picked.
    """
    snapshot, texts = viewer_index.snapshot, _Texts()
    keys = [] if served else _embedded(viewer_index)
    found = curves_of(viewer_index, keys, _num_points(viewer_index, keys)) if keys else {}
    held = {subject for subject, *_ in found}
    marks, metrics = _marks(viewer_index), {name: place for place, name in enumerate(viewer_index.metrics)}
    return {
        "served": served,
        "metrics": [[name, str(viewer_index.directions[name] or "")] for name in viewer_index.metrics],
        "runs": [_shown(name) for name in run_names(snapshot.subjects, viewer_index.runs)],
        "course": "outer step" if are_by_step(snapshot.subjects, viewer_index.runs) else "checkpoint, in order",
        "subjects": [
            {
                "key": key,
                "label": _shown(snapshot.labels[place]),
                "with": _shown(with_subject(subject.who)),
                "curves": served or place in held,
                **marks.get(place, {}),
            }
            for place, (key, subject) in enumerate(zip(_keys(snapshot), snapshot.subjects, strict=True))
        ],
        "cases": [
            {
                "name": _shown(snapshot.name(place)),
                "primary": metrics.get(case.primary_metric, -1),
                "about": f"{counted(case.num_inner_steps, 'inner step')}; headline {case.primary_metric}"
                + (f"; {case.role}" if case.role else ""),
                "file": _shown(case.node_id.partition("::")[0]),
                "train": _shown(trained_by(case)),
                "show": _shown(shown_by(case)),
            }
            for place, case in enumerate(snapshot.cases)
        ],
        "cells": [number for row in snapshot.subjects for case in snapshot.cases
                  for number in _cell(row.cells.get(case.identity), texts)],
        "texts": texts.known,
        "finals": [_numbers(viewer_index.finals[name]) for name in viewer_index.metrics],
        "curves": _packed(viewer_index, found),
    }  # fmt: skip


def explorer_curves(viewer_index: ViewerIndex, keys: Iterable[CurveKey]) -> dict[str, Any]:
    """Returns curves that somebody has picked, as `explorer_data` has them."""
    return _packed(viewer_index, curves_of(viewer_index, keys, _MOST_POINTS))


def _packed(viewer_index: ViewerIndex, found: dict[CurveKey, Curve]) -> dict[str, Any]:
    """Returns the curves by `subject,case,metric`: the place of its inner steps among `grids`, and one list a number.

    Of a single seed that is the mean alone.
    """
    grids: dict[tuple[int, ...], int] = {}
    metrics = {name: place for place, name in enumerate(viewer_index.metrics)}
    packed = {}
    for (subject, case, metric), (steps, values) in found.items():
        kept = values if np.isfinite(values[1]).any() else values[:1]
        rows = [_numbers(row) for row in kept]
        packed[f"{subject},{case},{metrics[metric]}"] = [grids.setdefault(steps, len(grids)), *rows]
    return {"grids": [list(steps) for steps in grids], "of": packed}


class _Texts:
    """Texts that many cells share, by their places."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.known)
            self.known.append(_shown(text))
        return self._places[text]


def _cell(cell: Cell | None, texts: _Texts) -> tuple[int, int, int]:
    """Returns the places of what a cell is, of its gin bindings, and of the options that name its seeds; -1: none."""
    if cell is None:
        return -1, -1, -1
    failures = [f"{outcome}: {message}" if message else str(outcome) for outcome, message in cell.failures]
    if not cell.sources:
        return texts.place("; ".join(["no curves", *failures])), -1, -1
    seeds = cell.seeds
    follow = seeds == tuple(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    listed = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    seeds_text = f"seeds {seeds[0]} to {seeds[-1]}" if follow else listed
    diverged = [f"seed {seed} diverged at inner step {step}" for seed, step in cell.diverged_at.items()]
    lost = [f"{counted(count, 'seed')} lost ({outcome})" for outcome, count in cell.lost.items()]
    curves = [curves for curves, _ in cell.sources.values()][-1]
    blocks = {(one.seeds[0], len(one.seeds)) for one, _ in cell.sources.values()}
    arguments = seeds_arguments(cell.case, [SeedBlock(start=start, size=size) for start, size in blocks])
    origin = curves.provenance
    imported = [f"imported from {origin.imported.get('file', '?')}"] if origin.imported else []
    about = "; ".join([seeds_text, *diverged, *lost, *imported, *failures])
    return texts.place(about), texts.place(origin.bindings), texts.place(arguments)


def _keys(snapshot: Snapshot) -> list[str]:
    """Returns what names each subject in a link, whatever else the store holds by then."""
    if snapshot.methods:
        return list(snapshot.methods)
    found, seen = [], dict[str, int]()
    for subject in snapshot.subjects:
        who = subject.who
        place = f"@{who.outer_step}" if who.has_theta else ""
        key = "-".join(filter(None, (who.sha256[:_HASHED], who.variant.key[:4]))) + place
        seen[key] = seen.get(key, 0) + 1
        found.append(key if seen[key] == 1 else f"{key}~{seen[key]}")
    return found


def _marks(viewer_index: ViewerIndex) -> dict[int, dict[str, Any]]:
    """Returns which run a subject is of, at which outer step, and whether it is the best or the last one there."""
    found: dict[int, dict[str, Any]] = {}
    by_step = are_by_step(viewer_index.snapshot.subjects, viewer_index.runs)
    for number, (run, best) in enumerate(zip(viewer_index.runs, viewer_index.best, strict=True)):
        for order, place in enumerate(run):
            step = viewer_index.snapshot.subjects[place].who.outer_step if by_step else order
            found[place] = {"run": number, "step": step}
        found[run[-1]]["last"] = True
        if best is not None:
            found[best]["best"] = True
    return found


def _num_points(viewer_index: ViewerIndex, keys: Sequence[CurveKey]) -> int:
    """Returns how many points each of these curves may have."""
    return next((most for most in _POINTS if _size(viewer_index, keys, most) <= _MOST_NUMBERS), _POINTS[-1])


def _size(viewer_index: ViewerIndex, keys: Sequence[CurveKey], most_points: int) -> int:
    cells = (viewer_index.snapshot.cell(subject, case) for subject, case, _ in keys)
    return sum(
        min(len(cell.steps), most_points) * (1 if len(cell.sources) == 1 else 6) for cell in cells if cell is not None
    )


def _embedded(viewer_index: ViewerIndex) -> list[CurveKey]:
    """Returns the curves that a file holds: those of the most interesting subjects, until it would be too long."""
    found: list[CurveKey] = []
    numbers = 0
    for place in viewer_index.by_interest():
        keys = viewer_index.keys_of(place)
        numbers += _size(viewer_index, keys, _POINTS[-1])
        if found and numbers > _MOST_NUMBERS:
            break
        found += keys
    return found


def _numbers(values: NDArray[np.float64]) -> list[float | int | None]:
    return [rounded(value) if math.isfinite(value) else None for value in values.ravel().tolist()]


def _shown(text: str) -> str:
    """Returns text without characters that steer; its lines stay."""
    return "\n".join(one_line(line) for line in text.split("\n"))
