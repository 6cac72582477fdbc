"""The numbers of a report: scores, intervals, comparisons and speed-ups, each with what was left out of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparison import CaseEffect, Comparison, compare_cases
from lobench.analysis.intervals import Interval, stratified_t_mean
from lobench.analysis.scores import ScoreScale, higher_is_better, normalised_scores
from lobench.analysis.speedup import BaselineCurve, Form, Speedup, speedup
from lobench.report.gathered import Cell, Gathered

__all__ = ["CaseFinding", "Findings", "MeanScore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanScore:
    """The mean over cases of the mean over seeds of one subject's scores.

    Attributes:
      num_cases: Cases in the mean; those without a curve or a scale are not.
      num_missing: Those.
      num_diverged: Seeds that diverged; each counts as -1.
    """

    interval: Interval
    num_cases: int
    num_missing: int
    num_diverged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFinding:
    """One subject on one case.

    Attributes:
      final: By metric, the seed mean of the final value.
      score: By metric, with Student's interval over the seeds.
      best_single, envelope: Speed-up over the tuned baseline; None without one.
      effect: Against the first subject; None where there is no other.
    """

    case: int
    final: dict[str, float]
    score: dict[str, Interval]
    num_seeds: int
    num_diverged: int
    best_single: Speedup | None
    envelope: Speedup | None
    effect: CaseEffect | None


class Findings:
    """Computes, and keeps, what a report says of a store."""

    def __init__(self, gathered: Gathered) -> None:
        self.gathered = gathered
        self._scales: dict[tuple[int, str], ScoreScale | None] = {}
        self.shown = gathered.headline_subject()
        self.first = gathered.places()[0]
        metrics = {name for cell in gathered.cells.values() for name in cell.metrics}
        # Train and test side by side; a case whose primary metric is another one has that as its train column.
        self.metrics = ("primary", *(("test/loss",) if "test/loss" in metrics else ()))

    @property
    def scale_label(self) -> str:
        if self.gathered.baselines and self.gathered.baseline is not None:
            return f"0 is untrained, 1 is {self.gathered.baseline.label}"
        none = "no baseline fits" if self.gathered.baseline_problems else "no baseline found"
        return f"0 is untrained, 1 is the best mean in this store ({none})"

    def metric_of(self, case: int, metric: str) -> str:
        return self.gathered.cases[case].primary_metric if metric == "primary" else metric

    def metric_label(self, metric: str) -> str:
        names = sorted({self.metric_of(case, metric) for case in range(len(self.gathered.cases))})
        return names[0] if len(names) == 1 else "primary metric"

    def scale(self, case: int, metric: str) -> ScoreScale | None:
        """Returns what 0 and 1 mean; None where the case has no such metric, or no baseline while others do."""
        key = (case, metric)
        if key not in self._scales:
            self._scales[key] = self._scale(case, self.metric_of(case, metric))
        return self._scales[key]

    def _scale(self, case: int, name: str) -> ScoreScale | None:
        if self.gathered.baselines:
            found = self.gathered.baselines.get(case)
            if found is None or name not in found.tuned:
                return None
            return ScoreScale.of(name, untrained=found.untrained[name], tuned=found.tuned_mean(name))
        cells = [cell for (_, at), cell in self.gathered.cells.items() if at == case and name in cell.metrics]
        finals = np.asarray([cell.final(name).mean() for cell in cells])
        if not np.isfinite(finals).any():
            return None
        pick = np.nanmax if higher_is_better(name) else np.nanmin
        return ScoreScale.of(name, untrained=float(cells[0].metrics[name][:, 0].mean()), tuned=float(pick(finals)))

    def scores(self, subject: int, case: int, metric: str) -> np.ndarray | None:
        """Returns float64[num_seeds], or None where nothing can be said."""
        cell, scale = self.gathered.cells.get((subject, case)), self.scale(case, metric)
        name = self.metric_of(case, metric)
        if cell is None or scale is None or not scale.is_usable or name not in cell.metrics:
            return None
        return normalised_scores(cell.final(name), scale, diverged=cell.diverged)

    def mean_score(self, subject: int, metric: str) -> MeanScore:
        places = range(len(self.gathered.cases))
        found = [scores for case in places if (scores := self.scores(subject, case, metric)) is not None]
        cells = [self.gathered.cells[subject, case] for case in places if (subject, case) in self.gathered.cells]
        nothing = Interval(mean=math.nan, lower=math.nan, upper=math.nan, degrees=math.nan)
        return MeanScore(
            interval=stratified_t_mean([scores.tolist() for scores in found]) if found else nothing,
            num_cases=len(found),
            num_missing=len(places) - len(found),
            num_diverged=sum(int(cell.diverged.sum()) for cell in cells),
        )

    def all_scores(self, subject: int, metric: str) -> list[list[float]]:
        places = range(len(self.gathered.cases))
        found = (self.scores(subject, case, metric) for case in places)
        return [scores.tolist() for scores in found if scores is not None]

    def comparison(self, before: int, after: int, metric: str) -> Comparison | None:
        """Compares two subjects, paired by seed; None where they share no case."""
        differences = self.differences(before, after, metric)
        return compare_cases(differences) if differences else None

    def change(self) -> Comparison | None:
        """Compares the shown subject with the first one; None where they are one, or share no case."""
        return None if self.first == self.shown else self.comparison(self.first, self.shown, "primary")

    def shown_cases(self, comparison: Comparison | None) -> list[CaseFinding]:
        """Returns what the shown subject did on each case that it gave curves on."""
        places = range(len(self.gathered.cases))
        return [found for case in places if (found := self.case(self.shown, case, comparison)) is not None]

    def differences(self, before: int, after: int, metric: str) -> dict[str, list[float]]:
        """Returns score(after) - score(before) of each common seed, by identity of the case."""
        found: dict[str, list[float]] = {}
        for case in range(len(self.gathered.cases)):
            old, new = self.scores(before, case, metric), self.scores(after, case, metric)
            if old is None or new is None:
                continue
            old_seeds, new_seeds = (self.gathered.cells[at, case].seeds for at in (before, after))
            old_of = dict(zip(old_seeds, old, strict=True))
            pairs = [float(value - old_of[seed]) for seed, value in zip(new_seeds, new, strict=True) if seed in old_of]
            found[self.gathered.cases[case].identity] = pairs
        return found

    def case(self, subject: int, case: int, comparison: Comparison | None) -> CaseFinding | None:
        """Returns what a subject did on a case; None where it gave no curve."""
        cell = self.gathered.cells.get((subject, case))
        if cell is None or not cell.seeds:
            return None
        scores = {metric: self.scores(subject, case, metric) for metric in self.metrics}
        effects = {effect.case: effect for effect in comparison.cases} if comparison else {}
        single, envelope = self._speedups(cell, case)
        return CaseFinding(
            case=case,
            final={
                name: float(cell.final(name).mean())
                for metric in self.metrics
                if (name := self.metric_of(case, metric)) in cell.metrics
            },
            score={
                metric: stratified_t_mean([found.tolist()]) for metric, found in scores.items() if found is not None
            },
            num_seeds=len(cell.seeds),
            num_diverged=int(cell.diverged.sum()),
            best_single=single,
            envelope=envelope,
            effect=effects.get(self.gathered.cases[case].identity),
        )

    def _speedups(self, cell: Cell, case: int) -> tuple[Speedup | None, Speedup | None]:
        baseline = self.gathered.baselines.get(case)
        if baseline is None or "train/loss" not in cell.metrics:
            return None, None
        final = float(cell.final("train/loss").mean())
        curves = (
            (baseline.curve_steps, baseline.curves["train/loss"], Form.BEST_SINGLE),
            (baseline.envelope_steps, baseline.envelope, Form.ENVELOPE),
        )
        single, envelope = (
            speedup(
                final,
                baseline.num_inner_steps,
                BaselineCurve(
                    steps=np.asarray(steps, np.float64),
                    losses=np.fmin.accumulate(np.asarray(losses, np.float64)),
                    form=form,
                ),
            )
            for steps, losses, form in curves
        )
        return single, envelope

    def times_to_tuned(self, subjects: Sequence[int]) -> np.ndarray:
        """Returns float64[num_subjects + 1, num_cases]: inner steps to the tuned baseline's final training loss.

        The last row is the baseline's own; infinite where never reached. Cases without a baseline have no column.
        """
        rows: list[list[float]] = [[] for _ in range(len(subjects) + 1)]
        for case, baseline in sorted(self.gathered.baselines.items()):
            target = baseline.tuned_mean("train/loss")
            for row, subject in zip(rows, subjects, strict=False):
                cell = self.gathered.cells.get((subject, case))
                if cell is None or "train/loss" not in cell.metrics:
                    row.append(math.inf)
                    continue
                row.append(_first(cell.metrics["train/loss"].mean(axis=0), cell.steps, target))
            # Means of float32 curves: the target is met where the curve is equal to it but for rounding.
            rows[-1].append(_first(baseline.curves["train/loss"], baseline.curve_steps, target * (1 + 1e-5) + 1e-30))
        return np.asarray(rows, np.float64)


def _first(curve: np.ndarray, steps: np.ndarray, target: float) -> float:
    reached = np.asarray(curve) <= target
    return float(max(steps[int(reached.argmax())], 1)) if reached.any() else math.inf
