"""Data of the page's application as one JSON document, in the file or served."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.viewer_index import BandCurve, CurveKey, ViewerIndex, band_curves_of
from lobench.analysis.store.groups import run_names, steps_increase
from lobench.analysis.store.rerun_command import results_command, seed_options, subject_options, training_command
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import Cell, StoredSubject, diverged_names, exploded_names
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.step_cost import Overhead
from lobench.core.subject import Subject
from lobench.core.wording import counted, one_line, short_path
from lobench.drawing.svg import all_line_styles, round_rows, round_values
from lobench.report.charts.styles import method_styles
from lobench.report.page.evaluations import ListedEvaluation, evaluation_list, evaluation_record
from lobench.report.page.pairs import pair_record

__all__ = ["PageParts", "explorer_curves", "explorer_data", "subject_keys"]

_MAX_NUMBERS = 200_000  # numbers of curves in one file, about 1.4 MB
_POINTS_PER_CURVE = (64, 24)  # points of a curve, if all fit, and if they do not
_MOST_POINTS = 240  # points of a requested curve
_MOST_SEED_NUMBERS = 100_000  # numbers of single seeds' curves in one file
_MOST_EFFECTS = 2_000  # tests of cases in the pairs of one file
_MAX_PAIRED_SUBJECTS = 6  # subjects with all pairs in a file
_HASH_DIGITS = 8  # hex digits


class PageParts:
    """Parts of a page's data, kept for later pages with the same subjects.

    Attributes:
      evaluations: Evaluations of the last page by row, as in `evaluation_list`.
    """

    def __init__(self) -> None:
        self._cases: tuple[CaseInfo, ...] = ()
        self._subject_parts: dict[int, _SubjectPart] = {}  # by the `id` of the subject, which is held
        self.evaluations: dict[int, list[ListedEvaluation]] = {}

    def parts_of_subjects(self, snapshot: Snapshot) -> list[_SubjectPart]:
        """Returns the part of each subject. Only the parts of this snapshot are kept."""
        earlier_parts = self._subject_parts if snapshot.cases == self._cases else {}
        texts_of_cells: dict[int, _CellTexts] | None = None
        seed_texts = _SeedTexts()
        parts = list[_SubjectPart]()
        for subject in snapshot.subjects:
            part = earlier_parts.get(id(subject))
            if part is None:
                if texts_of_cells is None:  # a renamed subject has the same cells
                    texts_of_cells = _texts_by_cell(self._subject_parts.values())
                cells = tuple(subject.cells.get(case.identity) for case in snapshot.cases)
                texts = (
                    (texts_of_cells.get(id(cell)) or _cell_texts(cell, seed_texts)) if cell is not None else None
                    for cell in cells
                )
                paces = _step_durations(cells, snapshot.cases)
                part = _SubjectPart(subject=subject, cells=cells, texts=tuple(texts), step_durations=paces)
            parts.append(part)
        self._cases = snapshot.cases
        self._subject_parts = {id(part.subject): part for part in parts}
        return parts


_CellTexts: TypeAlias = tuple[str, str, str]  # description, gin bindings and seed options of a cell
_NO_TEXTS = ("", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubjectPart:
    """Part of a page's data on one subject.

    Attributes:
      subject: The subject.
      cells: Cells of the subject by case. None without a cell.
      texts: Texts on these cells by case. None without a cell.
      step_durations: Durations of an inner step by case; see `_step_durations`.
    """

    subject: StoredSubject
    cells: tuple[Cell | None, ...]
    texts: tuple[_CellTexts | None, ...]
    step_durations: NDArray[np.float64]


def _texts_by_cell(parts: Iterable[_SubjectPart]) -> dict[int, _CellTexts]:
    """Returns the texts of the cells of subjects, by the cell's `id`."""
    pairs = ((cell, texts) for part in parts for cell, texts in zip(part.cells, part.texts, strict=True))
    return {id(cell): texts for cell, texts in pairs if texts is not None}


def explorer_data(viewer_index: ViewerIndex, *, served: bool, parts: PageParts | None = None) -> dict[str, Any]:
    """Returns subjects, cases, metrics, final values and evaluations.

    Data of a file (without `served`) include as many curves and pairs as the size limit permits.

    Lists are as short as possible, and texts shared by many cells are stored once: ten thousand evaluations take about
    a megabyte.

    Args:
      viewer_index: Index of the results.
      served: Whether a server delivers the curves on request.
      parts: Parts of an earlier page, to be reused. None: all are made here.
    """
    snapshot = viewer_index.snapshot
    parts = parts or PageParts()
    parts_of_subjects = parts.parts_of_subjects(snapshot)
    indices: dict[str, int] = {"": -1}  # index of each text; many cells share a text
    indices_of_texts = dict[_CellTexts, list[int]]()
    cells = list[int]()
    for texts in itertools.chain.from_iterable(part.texts for part in parts_of_subjects):
        if (cell_texts := texts or _NO_TEXTS) not in indices_of_texts:
            indices_of_texts[cell_texts] = [indices.setdefault(text, len(indices) - 1) for text in cell_texts]
        cells += indices_of_texts[cell_texts]
    paces = np.reshape([part.step_durations for part in parts_of_subjects], (len(parts_of_subjects), 2, -1))
    curve_keys = [] if served else _embedded_keys(viewer_index)
    curves = band_curves_of(viewer_index, curve_keys, _num_points(viewer_index, curve_keys)) if curve_keys else {}
    subjects_with_curves = {subject for subject, *_ in curves}
    styles = method_styles(viewer_index.summary, [index for index in viewer_index.best_indices if index is not None])
    headline_pair = viewer_index.summary.headline_index, viewer_index.summary.reference_index
    link_keys = subject_keys(snapshot)
    run_marks = _run_marks(viewer_index)
    metrics = {name: index for index, name in enumerate(viewer_index.metrics)}
    return {
        "store": shlex.quote(str(snapshot.store)),
        "styles": all_line_styles(),
        "pair": [link_keys[index] for index in headline_pair],
        "metrics": [[name, str(viewer_index.directions[name] or "")] for name in viewer_index.metrics],
        "runs": [_escape(name) for name in run_names(snapshot.subjects, viewer_index.runs)],
        "course": "outer step" if steps_increase(snapshot.subjects, viewer_index.runs) else "checkpoint, in order",
        "subjects": [
            {
                "key": key,
                "label": _escape(snapshot.labels[index]),
                "style": styles[index],
                "with": _escape(subject_options(_without_folders(subject.subject))),
                "curves": served or index in subjects_with_curves,
                **run_marks.get(index, {}),
            }
            for index, (key, subject) in enumerate(zip(link_keys, snapshot.subjects, strict=True))
        ],
        "cases": [
            {
                "name": _escape(snapshot.case_name(index)),
                "primary": metrics.get(case.primary_metric, -1),
                "about": f"{counted(case.num_inner_steps, 'inner step')}; headline {case.primary_metric}"
                + (f"; {case.role}" if case.role else ""),
                "file": _escape(case.node_id.partition("::")[0]),
                "train": _escape(training_command(case)),
                "show": _escape(results_command(case)),
            }
            for index, case in enumerate(snapshot.cases)
        ],
        "cells": cells,
        "texts": [_escape(text) for text in indices if text],
        "seconds": round_values(paces[:, 0]),
        "gradients": round_values(paces[:, 1]),
        "finals": [round_values(viewer_index.finals[name]) for name in viewer_index.metrics],
        "curves": _pack_curves(viewer_index, curves),
        "held": {} if served else _evaluation_records(viewer_index),
        "pairs": {} if served else _pair_records(viewer_index),
        "evaluations": evaluation_list(snapshot, parts.evaluations),
    }  # fmt: skip


def _step_durations(cells: Sequence[Cell | None], cases: Sequence[CaseInfo]) -> NDArray[np.float64]:
    """Returns the duration of an inner step: float64[2, num_cases], NaN if unknown.

    The first value is in wall seconds, the second in bare gradient steps. The last of several seed blocks counts.
    """
    paces = np.full((2, len(cases)), np.nan)
    for index, (cell, case) in enumerate(zip(cells, cases, strict=True)):
        if cell is None or not cell.curves_by_seed:
            continue
        curves = [curves for curves, _ in cell.curves_by_seed.values()][-1]
        if curves.wall_seconds > 0:
            paces[0, index] = curves.wall_seconds / case.num_inner_steps
        if curves.cost is not None and curves.cost.gradient is not None:
            paces[1, index] = Overhead.of([curves.cost]).ratio
    return paces


def _evaluation_records(viewer_index: ViewerIndex) -> dict[str, Any]:
    """Returns evaluations with the curves of their seeds, diverged and failed ones first, up to a size limit."""
    snapshot = viewer_index.snapshot
    records = dict[str, Any]()
    num_values = 0
    index_pairs = [
        (subject, case) for subject in viewer_index.indices_by_interest() for case in range(len(snapshot.cases))
    ]
    cells = [(indices, cell) for indices in index_pairs if (cell := snapshot.cell(*indices)) is not None]
    for (subject, case), cell in sorted(cells, key=lambda entry: not (entry[1].diverged_at or entry[1].failures)):
        num_values += (
            min(len(cell.steps), _POINTS_PER_CURVE[0]) * len(cell.curves_by_seed) * len(cell.final_values)
            if cell.curves_by_seed
            else 0
        )
        if records and num_values > _MOST_SEED_NUMBERS:
            break
        records[f"{subject},{case}"] = evaluation_record(viewer_index, subject, case, _POINTS_PER_CURVE[0])
    return records


def _pair_records(viewer_index: ViewerIndex) -> dict[str, Any]:
    """Returns the pairs in a file: the headline's pair, and pairs of the first methods in charts."""
    summary = viewer_index.summary
    chart_subjects = summary.snapshot.groups.chart_indices(summary.headline_index)[:_MAX_PAIRED_SUBJECTS]
    pairs = dict.fromkeys(
        [(summary.headline_index, summary.reference_index), *itertools.permutations(chart_subjects, 2)]
    )
    max_pairs = _MOST_EFFECTS // max(len(summary.snapshot.cases), 1)
    records = ((pair, pair_record(summary, *pair)) for pair in list(pairs)[: max(max_pairs, 1)] if pair[0] != pair[1])
    return {f"{b},{a}": record for (b, a), record in records if record is not None}


def explorer_curves(viewer_index: ViewerIndex, keys: Iterable[CurveKey]) -> dict[str, Any]:
    """Returns requested curves in the format of `explorer_data`."""
    return _pack_curves(viewer_index, band_curves_of(viewer_index, keys, _MOST_POINTS))


def _pack_curves(viewer_index: ViewerIndex, curves: dict[CurveKey, BandCurve]) -> dict[str, Any]:
    """Returns the curves by `subject,case,metric`: an index into `grids`, and a list for each statistic.

    A single seed has only its values.
    """
    grids: dict[tuple[int, ...], int] = {}
    metrics = {name: index for index, name in enumerate(viewer_index.metrics)}
    rows = round_rows([values if np.isfinite(values[1]).any() else values[:1] for _, values in curves.values()])
    packed_curves = {
        f"{subject},{case},{metrics[metric]}": [grids.setdefault(steps, len(grids)), *statistics]
        for ((subject, case, metric), (steps, _)), statistics in zip(curves.items(), rows, strict=True)
    }
    return {"grids": [list(steps) for steps in grids], "of": packed_curves}


_SeedTexts: TypeAlias = dict[tuple[object, ...], tuple[str, str]]  # texts on seeds, shared by many cells


def _cell_texts(cell: Cell, seed_texts: _SeedTexts) -> tuple[str, str, str]:
    """Returns a cell's description, gin bindings and seed options."""
    failures = [f"{outcome}: {message}" if message else str(outcome) for outcome, message in cell.failures]
    if not cell.curves_by_seed:
        return "; ".join(["no curves", *failures]), "", ""
    curves = [curves for curves, _ in cell.curves_by_seed.values()][-1]
    blocks = frozenset((block.seeds[0], len(block.seeds)) for block, _ in cell.curves_by_seed.values())
    key = id(cell.case), cell.seeds, blocks
    if key not in seed_texts:
        seed_texts[key] = _texts_on_seeds(cell.case, cell.seeds, blocks)
    seeds_text, arguments = seed_texts[key]
    diverged_texts = [f"{name} diverged at inner step {step}" for name, step in diverged_names(cell).items()]
    lost_texts = [f"{counted(count, 'seed')} lost ({outcome})" for outcome, count in cell.num_lost_by_outcome.items()]
    provenance = curves.provenance
    import_texts = [f"imported from {provenance.imported.get('file', '?')}"] if provenance.imported else []
    exploded_texts = [f"{name} exploded" for name in exploded_names(cell)]
    description = "; ".join([seeds_text, *diverged_texts, *exploded_texts, *lost_texts, *import_texts, *failures])
    return description, provenance.bindings, arguments


def _texts_on_seeds(case: CaseInfo, seeds: Sequence[int], blocks: Iterable[tuple[int, int]]) -> tuple[str, str]:
    """Returns a text on the seeds or items of a cell, and the options that select them."""
    if case.has_items:
        return counted(len(seeds), "item"), ""  # one run gives all of them
    are_consecutive = seeds == tuple(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 1
    all_seeds_text = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    arguments = seed_options(case, [SeedBlock(start=start, size=size) for start, size in blocks])
    return f"seeds {seeds[0]} to {seeds[-1]}" if are_consecutive else all_seeds_text, arguments


def subject_keys(snapshot: Snapshot) -> list[str]:
    """Returns the key of each subject in links, which does not depend on other content of the store."""
    if snapshot.experiment.method_names:
        return list(snapshot.experiment.method_names)
    keys = []
    num_subjects = dict[str, int]()
    for subject in snapshot.subjects:
        identity = subject.subject
        step = f"@{identity.outer_step}" if identity.has_theta else ""
        key = "-".join(filter(None, (identity.sha256[:_HASH_DIGITS], identity.variant.key[:4]))) + step
        num_subjects[key] = num_subjects.get(key, 0) + 1
        keys.append(key if num_subjects[key] == 1 else f"{key}~{num_subjects[key]}")
    return keys


def _run_marks(viewer_index: ViewerIndex) -> dict[int, dict[str, Any]]:
    """Returns for each subject its run and outer step, and whether it is the best or the last of the run."""
    marks: dict[int, dict[str, Any]] = {}
    is_by_step = steps_increase(viewer_index.snapshot.subjects, viewer_index.runs)
    for number, (run, best_index) in enumerate(zip(viewer_index.runs, viewer_index.best_indices, strict=True)):
        for position, index in enumerate(run):
            step = viewer_index.snapshot.subjects[index].subject.outer_step if is_by_step else position
            marks[index] = {"run": number, "step": step}
        marks[run[-1]]["last"] = True
        if best_index is not None:
            marks[best_index]["best"] = True
    return marks


def _num_points(viewer_index: ViewerIndex, keys: Sequence[CurveKey]) -> int:
    """Returns the number of points that each of these curves may have."""
    return next(
        (
            num_points
            for num_points in _POINTS_PER_CURVE
            if _num_curve_values(viewer_index, keys, num_points) <= _MAX_NUMBERS
        ),
        _POINTS_PER_CURVE[-1],
    )


def _num_curve_values(viewer_index: ViewerIndex, keys: Sequence[CurveKey], most_points: int) -> int:
    cells = (viewer_index.snapshot.cell(subject, case) for subject, case, _ in keys)
    return sum(
        min(len(cell.steps), most_points) * (1 if len(cell.curves_by_seed) == 1 else 6)
        for cell in cells
        if cell is not None
    )


def _embedded_keys(viewer_index: ViewerIndex) -> list[CurveKey]:
    """Returns the keys of the curves to store in a file: the most interesting subjects, up to a size limit."""
    curve_keys: list[CurveKey] = []
    num_values = 0
    for index in viewer_index.indices_by_interest():
        keys = viewer_index.keys_of(index)
        num_values += _num_curve_values(viewer_index, keys, _POINTS_PER_CURVE[-1])
        if curve_keys and num_values > _MAX_NUMBERS:
            break
        curve_keys += keys
    return curve_keys


def _without_folders(subject: Subject) -> Subject:
    """Returns a subject without the folders of this machine in its path: a page may be shared."""
    path = short_path(subject.uri)
    return dataclasses.replace(subject, uri=os.path.basename(path) if os.path.isabs(path) else path)


def _escape(text: str) -> str:
    """Escapes control characters except for line breaks."""
    return "\n".join(one_line(line) for line in text.split("\n"))
