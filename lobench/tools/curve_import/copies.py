"""Detection of duplicate curves: one training in two files, or in a file and in the store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.store.subjects import LOBENCH_SEEDS
from lobench.core.case import CaseInfo
from lobench.core.result import Curves, EvaluationKey
from lobench.core.subject import Subject
from lobench.core.wording import counted, shortened_list
from lobench.engine.store.imports import imported_curves
from lobench.engine.store.ledger import Ledger
from lobench.tools.curve_import.collected_curves import CurveFile
from lobench.tools.curve_import.formats.kinds import formats_by_name
from lobench.tools.curve_import.points import CurveRun

__all__ = ["CopyFinder"]

_LEAST_POINTS = 2  # a single value may be equal by chance
_MOST_SHOWN = 3  # copies of a note


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstCurve:
    """First of several equal curves: its evaluation and its files."""

    key: EvaluationKey
    run: str
    files: frozenset[str]
    hashes: frozenset[str]


class CopyFinder:
    """Finds curves that have the same values as another curve of the method and case, in this import or in the store.

    Two files with the same curve contain one training, which counts once. Equal curves in one file are separate runs,
    unless its format does not name runs. Curves of a single value are separate runs too, unless the files are equal.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._first_curves_by_group: dict[tuple[str, str], dict[bytes, _FirstCurve]] = {}
        self._found_copies: dict[str, list[str]] = {}

    def key_of_copy(
        self, subject: Subject, case: CaseInfo, curves: Curves, *, run: CurveRun, sources: Sequence[CurveFile]
    ) -> EvaluationKey | None:
        """Returns the evaluation of which a curve is a copy; None if the curve is new."""
        if curves.provenance.imported.get("draws") == LOBENCH_SEEDS:
            return None
        first_curve = self._first_curves(subject, case).get(_digest(case, curves))
        if first_curve is None or first_curve.run == run.seed:
            return None
        if first_curve.key.seed_block.start == curves.seeds[0]:
            return None  # the store already has the same run under another name
        files = {str(source.path) for source in sources}
        hashes = {source.sha256 for source in sources}
        if files & first_curve.files and not all(
            formats_by_name()[source.format_name].may_repeat_runs for source in sources
        ):
            return None
        if _num_values(case, curves) < _LEAST_POINTS and not hashes & first_curve.hashes:
            return None
        self._found_copies.setdefault(f"{subject.name} on {case.suite}/{case.name}", []).append(
            f"{run.seed!r} of {'; '.join(sorted(files))} has the values of {first_curve.run!r}"
            + (f" of {'; '.join(sorted(first_curve.files))}" if files != first_curve.files else "")
        )
        return first_curve.key

    def add(
        self,
        subject: Subject,
        case: CaseInfo,
        curves: Curves,
        *,
        key: EvaluationKey,
        run: CurveRun,
        sources: Sequence[CurveFile],
    ) -> None:
        """Registers a curve that was written."""
        first_curve = _FirstCurve(
            key=key,
            run=run.seed,
            files=frozenset(str(source.path) for source in sources),
            hashes=frozenset(source.sha256 for source in sources),
        )
        self._first_curves(subject, case).setdefault(_digest(case, curves), first_curve)

    def notes(self) -> list[str]:
        """Returns a line for each method and case with copies."""
        return [
            f"{where}: {counted(len(copies), 'run')} left out as a copy of another one: "
            f"{shortened_list(copies, _MOST_SHOWN)}"
            for where, copies in self._found_copies.items()
        ]

    def _first_curves(self, subject: Subject, case: CaseInfo) -> dict[bytes, _FirstCurve]:
        """Returns the first curves of a method and case by their values. Curves of the store are read once."""
        group_key = (subject.sha256, case.identity)
        if group_key not in self._first_curves_by_group:
            firsts = self._first_curves_by_group[group_key] = {}
            for key, curves in imported_curves(self._ledger, subject, case):
                origin = curves.provenance.imported
                first_curve = _FirstCurve(
                    key=key,
                    run=origin.get("run", ""),
                    files=frozenset(origin.get("file", "").split("; ")),
                    hashes=frozenset(origin.get("sha256", "").split("; ")),
                )
                firsts.setdefault(_digest(case, curves), first_curve)
        return self._first_curves_by_group[group_key]


def _digest(case: CaseInfo, curves: Curves) -> bytes:
    values = curves.metrics.get(case.primary_metric)
    steps = np.asarray(curves.eval_steps, np.int64)
    return hashlib.sha256(steps.tobytes() + (b"" if values is None else bytes(values))).digest()


def _num_values(case: CaseInfo, curves: Curves) -> int:
    return int(np.isfinite(np.asarray(curves.metrics[case.primary_metric])).sum())
