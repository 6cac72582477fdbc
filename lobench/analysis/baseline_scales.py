"""Scales from tuned baselines, for what compares the subjects of stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lobench.analysis.baseline_file import (
    Baseline,
    BaselineCase,
    BaselineError,
    StaleBaseline,
    beside_cases,
    find_baselines,
)
from lobench.analysis.scores import ScoreScale
from lobench.analysis.subjects import Subject
from lobench.core.case import CaseInfo

__all__ = ["BaselineScales", "baseline_scales"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineScales:
    """What tuned baselines say of some cases.

    Attributes:
      num_cases: Cases that were looked for.
      label: Whose baseline it is; "" without one.
      scales: By metric ("primary": each case's own) and identity of the case.
      num_scaled: Cases that have a scale.
      problems: Of a file that was found: which cases it does not serve, and why.
    """

    num_cases: int
    label: str = ""
    scales: Mapping[str, Mapping[str, ScoreScale]] = field(default_factory=dict)
    num_scaled: int = 0
    problems: tuple[BaselineError, ...] = ()

    def of(self, metric: str | None) -> Mapping[str, ScoreScale]:
        """Returns the scales of a metric by identity of the case; None: each case's primary one."""
        return self.scales.get(metric or "primary", {})

    def describe(self, otherwise: str) -> str:
        """Returns what 0 and 1 are; `otherwise` is what 1 is on cases without a tuned baseline."""
        if not self.num_scaled:
            one = f"{otherwise} on each case"
            hint = "" if self.problems else " (no tuned baseline was found: --baseline SUITE names one)"
        else:
            rest = f" on {self.num_scaled} of {self.num_cases} cases, {otherwise} on the others"
            one, hint = self.label + (rest if self.num_scaled < self.num_cases else ""), ""
        lines = [f"scores: 0 is untrained, 1 {one}; a diverged seed scores -1{hint}"]
        # Seeds or deadlines can make two cases of what has one baseline.
        return "\n".join([*lines, *dict.fromkeys(f"without a baseline: {problem}" for problem in self.problems)])


def baseline_scales(subjects: Sequence[Subject], places: Sequence[Path] | None = None) -> BaselineScales:
    """Returns the scale of every case that a baseline knows.

    Args:
      places: Suites, or files of baselines; all that count are of the first one's optimizer and protocol. None: those
        beside the cases, where these lie below the working directory.
    Raises:
      BaselineError: a file cannot be read.
    """
    cases = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
    places = beside_cases(cases.values()) if places is None else places
    files = [path for place in places for path in ([place] if place.suffix == ".json" else find_baselines(place))]
    loaded = [Baseline.load(path) for path in files]
    if not loaded:
        return BaselineScales(num_cases=len(cases))
    loaded = [found for found in loaded if found.label == loaded[0].label]
    scales: dict[str, dict[str, ScoreScale]] = {}
    num_scaled, problems = 0, []
    for identity, info in cases.items():
        found = _case(loaded, info)
        if isinstance(found, BaselineError):
            problems.append(found)
            continue
        num_scaled += 1
        for metric in found.tuned:
            scale = ScoreScale.of(metric, untrained=found.untrained[metric], tuned=found.tuned_mean(metric))
            scales.setdefault(metric, {})[identity] = scale
            if metric == info.primary_metric:
                scales.setdefault("primary", {})[identity] = scale
    return BaselineScales(
        num_cases=len(cases), label=loaded[0].label, scales=scales, num_scaled=num_scaled, problems=tuple(problems)
    )


def _case(loaded: Sequence[Baseline], info: CaseInfo) -> BaselineCase | BaselineError:
    errors: list[BaselineError] = []
    for baseline in loaded:
        try:
            return baseline.case(info)
        except BaselineError as error:
            errors.append(error)
    # Of several files the one that knows the case by name has more to say.
    return next((error for error in errors if isinstance(error, StaleBaseline)), errors[0])
