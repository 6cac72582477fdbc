"""Scales from tuned baselines, for what compares the subjects of stores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lobench.analysis.baseline_file import Baseline, BaselineCase, BaselineError, find_baselines
from lobench.analysis.scores import ScoreScale
from lobench.analysis.subjects import Subject
from lobench.core.case import CaseInfo

__all__ = ["baseline_scales"]


def baseline_scales(
    subjects: Sequence[Subject], places: Sequence[Path]
) -> tuple[dict[str, dict[str, ScoreScale]], str, int]:
    """Returns the scale of every case that a baseline knows, whose baseline it is, and how many cases have one.

    Args:
      places: Suites, or files of baselines; all that count are of the first one's optimizer and protocol.
    Returns:
      Scales by metric ("primary": each case's own) and identity of the case; the baseline's label, "" without one.
    Raises:
      BaselineError: a file cannot be read.
    """
    files = [path for place in places for path in ([place] if place.suffix == ".json" else find_baselines(place))]
    loaded = [Baseline.load(path) for path in files]
    if not loaded:
        return {}, "", 0
    loaded = [found for found in loaded if found.label == loaded[0].label]
    cases = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
    scales: dict[str, dict[str, ScoreScale]] = {}
    num_cases = 0
    for identity, info in cases.items():
        found = _case(loaded, info)
        if found is None:
            continue
        num_cases += 1
        for metric in found.tuned:
            scale = ScoreScale(untrained=found.untrained[metric], tuned=found.tuned_mean(metric))
            scales.setdefault(metric, {})[identity] = scale
            if metric == info.primary_metric:
                scales.setdefault("primary", {})[identity] = scale
    return scales, loaded[0].label, num_cases


def _case(loaded: Sequence[Baseline], info: CaseInfo) -> BaselineCase | None:
    for baseline in loaded:
        try:
            return baseline.case(info)
        except BaselineError:
            continue
    return None
