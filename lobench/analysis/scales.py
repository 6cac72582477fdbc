"""What 0 and 1 mean on each case, and the one place where finals become scores."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from lobench.analysis.scores import ScoreScale, normalised_scores
from lobench.analysis.subjects import Cell, Subject
from lobench.core.case import CaseInfo
from lobench.core.metric import Direction, direction_of, how_to_declare

__all__ = ["Scales", "seed_scores", "tuned_scale"]

_NO_SCALE = ScoreScale(untrained=math.nan, tuned=math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """The scale of every case and metric: a tuned baseline's, or, for want of one, that of those who were read.

    Every score that lobench tells is `scores` of a cell, or, of a gate, `seed_scores` itself.

    Attributes:
      among: By the identity of the case the cells of everyone who was read.
      tuned: By identity the baseline of those cases that have one.
      baseline: The first file that was found, whose optimizer and protocol all others share.
      problems: Of what was found: which cases it does not serve, and why.
      num_cases: Cases that were looked for.
    """

    among: Mapping[str, Sequence[Cell]]
    tuned: Mapping[str, BaselineCase] = field(default_factory=dict)
    baseline: Baseline | None = None
    problems: tuple[BaselineError, ...] = ()
    num_cases: int
    _known: dict[tuple[str, str], ScoreScale] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, subjects: Iterable[Subject], places: Sequence[Path] | None = ()) -> Scales:
        """Returns the scales of all cases that the subjects have.

        Args:
          subjects: Everyone whom the stores hold, not only those who are compared: a number must not change with whom
            it stands beside.
          places: Suites, or files of baselines; all that count are of the first one's optimizer and protocol. None:
            those beside the cases, where these lie below the working directory.
        Raises:
          BaselineError: a file cannot be read.
        """
        subjects, among = tuple(subjects), dict[str, list[Cell]]()
        for subject in subjects:
            for identity, cell in subject.every_form().items():
                among.setdefault(identity, []).append(cell)
        current = {identity: cell.case for subject in subjects for identity, cell in subject.cells.items()}
        places = beside_cases(current.values()) if places is None else places
        files = [path for place in places for path in ([place] if place.suffix == ".json" else find_baselines(place))]
        loaded = [Baseline.load(path) for path in files]
        loaded = [found for found in loaded if found.label == loaded[0].label]
        tuned: dict[str, BaselineCase] = {}
        problems = []
        for identity, info in current.items():
            found = _case(loaded, info)
            if isinstance(found, BaselineError):
                problems.append(found)
            elif found is not None:
                tuned[identity] = found
        return cls(
            among=among,
            tuned=tuned,
            baseline=loaded[0] if loaded else None,
            problems=tuple(problems),
            num_cases=len(current),
        )

    @property
    def label(self) -> str:
        """Whose baseline it is; "" where it serves no case."""
        return self.baseline.label if self.baseline is not None and self.tuned else ""

    def scores(self, cell: Cell, metric: str | None) -> dict[int, float]:
        """Returns the score of each seed that has the metric; NaN for all where the case has no scale.

        Args:
          metric: None: the case's primary one.
        """
        name = metric or cell.case.primary_metric
        finals, starts = cell.final.get(name, {}), cell.untrained.get(name, {})
        return seed_scores(finals, starts, cell.diverged_at, self.scale(cell.case, name))

    def scale(self, case: CaseInfo, metric: str) -> ScoreScale:
        """Returns the scale of a case; not usable where there is none.

        Other seeds, or another budget, make another identity of a case: one that nobody has is known by its name.
        """
        identity = case.identity
        if identity not in self.among:
            names = {(cells[0].case.suite, cells[0].case.name): found for found, cells in self.among.items()}
            identity = names.get((case.suite, case.name), "")
        key = (identity, metric)
        if key not in self._known:
            tuned, cells = self.tuned.get(identity), self.among.get(identity, ())
            direction = _direction(cells, metric)
            if tuned is not None and metric in tuned.tuned:
                self._known[key] = tuned_scale(tuned, metric, direction)
            else:
                self._known[key] = _relative(cells, metric, direction)
        return self._known[key]

    def direction(self, case: CaseInfo, metric: str) -> Direction | None:
        """Returns which way a metric is better on a case, as anyone who was read declares it; None: nobody does."""
        return _direction(self.among.get(case.identity, ()), metric)

    def undeclared(self, metric: str | None = None) -> list[str]:
        """Returns the primary metrics, or the one that is asked for, of which nobody declares the direction."""
        asked = ((cells, metric or cells[0].case.primary_metric) for cells in self.among.values())
        return sorted({name for cells, name in asked if _has(cells, name) and _direction(cells, name) is None})

    @property
    def one(self) -> str:
        """What scores 1."""
        otherwise = "the best mean that is stored"
        if not self.tuned:
            return f"{otherwise}, on each case"
        rest = f" on {len(self.tuned)} of {self.num_cases} cases, {otherwise} on the others"
        return self.label + (rest if len(self.tuned) < self.num_cases else "")

    def describe(self) -> str:
        """Returns what 0 and 1 are, and why some cases are without a baseline, a line each."""
        hint = "" if self.tuned or self.problems else " (no tuned baseline was found: --baseline SUITE names one)"
        lines = [f"scores: 0 is untrained, 1 {self.one}; a diverged seed scores -1{hint}"]
        # Seeds or deadlines can make two cases of what has one baseline.
        lines += dict.fromkeys(f"without a baseline: {problem}" for problem in self.problems)
        return "\n".join([*lines, *(f"no score on {name}: {how_to_declare(name)}" for name in self.undeclared())])


def seed_scores(
    finals: Mapping[int, float], starts: Mapping[int, float], diverged: Collection[int], scale: ScoreScale
) -> dict[int, float]:
    """Returns the score of each seed: the one place where a score is made.

    Args:
      finals: By seed, what it ended at.
      starts: By seed, what it began at; a seed may be missing.
      diverged: Seeds that met a non-finite loss.
      scale: Where it is not usable every score is NaN.
    """
    scores = normalised_scores(list(finals.values()), scale, diverged=[seed in diverged for seed in finals])
    return dict(zip(finals, scores.tolist(), strict=True))


def tuned_scale(baseline: BaselineCase, metric: str, direction: Direction | None) -> ScoreScale:
    """Returns the scale of a metric that a baseline has: untrained 0, tuned 1."""
    return ScoreScale.of(direction, untrained=baseline.untrained[metric], tuned=baseline.tuned_mean(metric))


def _direction(cells: Sequence[Cell], metric: str) -> Direction | None:
    declared = {name: direction for cell in cells for name, direction in cell.directions.items()}
    return direction_of(metric, declared)


def _has(cells: Sequence[Cell], metric: str) -> bool:
    return any(metric in cell.final for cell in cells)


def _relative(cells: Sequence[Cell], metric: str, direction: Direction | None) -> ScoreScale:
    """Returns the scale of a case among those who were read: untrained 0, the best of them 1.

    For want of a tuned baseline. A seed that diverged enters no mean here, and a subject of which more than half of the
    seeds did cannot be the best. Where nobody is better than untrained the case has no scale.
    """
    starts = [value for cell in cells for value in cell.untrained.get(metric, {}).values() if math.isfinite(value)]
    if not starts:
        return _NO_SCALE
    ends = []
    for cell in cells:
        values = [value for seed, value in cell.final.get(metric, {}).items() if seed not in cell.diverged_at]
        if values and len(values) >= len(cell.diverged_at) and all(map(math.isfinite, values)):
            ends.append(math.fsum(values) / len(values))
    tuned = (max if direction is Direction.MAX else min)(ends, default=math.nan)
    return ScoreScale.of(direction, untrained=math.fsum(starts) / len(starts), tuned=tuned)


def _case(loaded: Sequence[Baseline], info: CaseInfo) -> BaselineCase | BaselineError | None:
    errors: list[BaselineError] = []
    for baseline in loaded:
        try:
            return baseline.case(info)
        except BaselineError as error:
            errors.append(error)
    # Of several files the one that knows the case by name has more to say.
    return next((error for error in errors if isinstance(error, StaleBaseline)), errors[0] if errors else None)
