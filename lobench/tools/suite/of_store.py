"""Worth of the cases of a store, or of a suite with tuned baselines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.scores.baseline_file import Baseline, find_baselines
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import seed_scores
from lobench.analysis.store.case_groups import case_groups
from lobench.analysis.store.methods import read_methods
from lobench.core.errors import StoreError
from lobench.core.metric import Direction
from lobench.tools.suite.worth import SuiteScores, SuiteWorth, suite_worth

__all__ = ["baseline_scores", "worth_of_baselines", "worth_of_store"]

_METRIC = "train/loss"  # metric by which baselines are tuned


def worth_of_store(
    store: Path,
    baselines: Sequence[Path] = (),
    experiment: str | None = None,
    *,
    include_all: bool = False,
    keep: float = 0.9,
    difference: float = 0.05,
) -> SuiteWorth:
    """Returns the worth of the cases of a store, measured by the methods that have results on all of them.

    Methods that lack a case, and cases without a scale, are listed in `left_out`.

    Example:
        found = worth_of_store(Path(".lobench/experiment"), keep=0.95)
        {case.name: case.signal_to_noise for case in found.cases}

    Args:
      store: Folder of the store.
      baselines: Suites, or files of baselines, that define the scales. (): those of the store's suites.
      experiment: Name of the experiment. None: the last one that ran.
      include_all: Whether to use all methods in the store, instead of an experiment's.
      keep: Rank correlation that a subset must keep.
      difference: Difference of two mean scores, for the number of seeds that shows it.
    Raises:
      StoreError: The folder is not a store, or the store has too few methods or cases.
      UsageError: The store lacks the experiment.
    """
    summary = summary_of(store, baselines or None, snapshot=read_methods(store, experiment, include_all=include_all))
    snapshot = summary.snapshot
    scores_by_subject = {
        index: mean_score(subject, None, summary.scales).scores for index, subject in enumerate(snapshot.subjects)
    }
    scored_identities = set().union(*scores_by_subject.values())
    scored_cases = [case for case, info in enumerate(snapshot.cases) if info.identity in scored_identities]
    left_out_reasons = {
        snapshot.case_name(case): "has no scale" for case in range(len(snapshot.cases)) if case not in scored_cases
    }
    if moved := summary.scales.baselines.moved_notes:
        left_out_reasons["baselines"] = "; ".join(moved)
    indices = []
    for subject_index, scores in scores_by_subject.items():
        missing_cases = [
            snapshot.case_name(case) for case in scored_cases if snapshot.cases[case].identity not in scores
        ]
        if missing_cases:
            left_out_reasons[snapshot.labels[subject_index]] = f"has no score on {', '.join(missing_cases)}"
        else:
            indices.append(subject_index)
    identities = [snapshot.cases[case].identity for case in scored_cases]
    groups = case_groups([snapshot.subjects[index].cells for index in indices], identities)
    suite_scores = SuiteScores(
        methods=[snapshot.labels[index] for index in indices],
        cases=[snapshot.case_name(case) for case in scored_cases],
        scores=[[scores_by_subject[index][identity] for identity in identities] for index in indices],
        seconds=[_seconds(summary, indices, case) for case in scored_cases],
        groups=[[identities.index(case) for case in group] for group in groups if len(group) > 1],
        left_out=left_out_reasons,
    )
    worth = suite_worth(suite_scores, keep=keep, difference=difference, where=str(store))
    return dataclasses.replace(worth, other_code=snapshot.edited_code_line())


def worth_of_baselines(suite: Path, *, keep: float = 0.9, difference: float = 0.05) -> SuiteWorth:
    """Returns the worth of the cases of a suite, measured by the optimizers tuned on it, on the scale of tuned Adam.

    Args:
      suite: Folder of the suite.
      keep: Rank correlation that a subset must keep.
      difference: Difference of two mean scores, for the number of seeds that shows it.
    Raises:
      StoreError: Too few optimizers, or none, were tuned on the suite.
      BaselineError: A baseline file cannot be read.
    """
    if not find_baselines(suite):
        raise StoreError(
            "neither a store nor a suite with tuned baselines",
            where=str(suite),
            next_step="`lobench run` fills a store with methods; `lobench baseline` tunes optimizers on a suite",
        )
    return suite_worth(baseline_scores(suite), keep=keep, difference=difference, where=str(suite))


def baseline_scores(suite: Path) -> SuiteScores:
    """Returns the scores of the optimizers tuned on a suite, on the seeds that tuned Adam has too."""
    files = find_baselines(suite)
    baselines_of_suite = [Baseline.load(path) for path in files]
    cases = (
        [
            name
            for name in baselines_of_suite[0].cases
            if all(name in other_baseline.cases for other_baseline in baselines_of_suite)
        ]
        if baselines_of_suite
        else []
    )
    scores = []
    for baseline in baselines_of_suite:
        row = []
        for name in cases:
            adam, case = baselines_of_suite[0].cases[name], baseline.cases[name]
            scale = adam.score_scale(_METRIC, Direction.MIN, is_primary=True)
            starts = dict(zip(adam.seeds, adam.starts[_METRIC], strict=True))
            finals = dict(zip(case.seeds, case.tuned[_METRIC], strict=True))
            common_finals = {seed: value for seed, value in finals.items() if seed in starts}
            row.append(seed_scores(common_finals, {seed: starts[seed] for seed in common_finals}, (), scale))
        scores.append(row)
    return SuiteScores(
        methods=[file.stem for file in files],
        cases=[name.partition(":")[2] or name for name in cases],
        scores=scores,
        seconds=[math.nan] * len(cases),
    )


def _seconds(summary: Summary, indices: Sequence[int], case: int) -> float:
    """Returns the seconds of one seed without compilation, as the median over methods; NaN for imports."""
    seconds = []
    for index in indices:
        cell = summary.snapshot.cell(index, case)
        curves = (
            {id(curves_of_seeds): curves_of_seeds for curves_of_seeds, _ in cell.curves_by_seed.values()}.values()
            if cell is not None
            else ()
        )
        if num_seeds := sum(len(curve.seeds) for curve in curves):
            seconds.append(sum(curve.wall_seconds for curve in curves) / num_seeds)
    return float(np.median(seconds)) if seconds and any(seconds) else math.nan
