"""Trial fitness: the mean score of a trial over cases, on scales that do not depend on other trials.

The score has its usual definition (`lobench.analysis.scores.score_scale`): 0 is untrained, 1 the tuned baseline of the
suite, -1 a diverged seed. If a case has no baseline, the score 1 in tables is the best stored mean, which changes with
every trial. A search uses the case's fallback scale in its place: on a log scale 1 is a tenth of the start.

Example: A loss begins at 2.4. A trial that ends at .24 has the fitness 1, and one that ends at .0024 has 3, unclipped.

A case with a single value for each seed, such as a case of a command, has no start. A loss then counts by its decimal
logarithm, and any other metric by its value: losses of .24 and .0024 have the fitness 0.62 and 2.62.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from lobench.analysis.scores.baseline_file import BaselineCase
from lobench.analysis.scores.scales import Scales, seed_scores
from lobench.analysis.scores.score_scale import SIGNED_LOSS_ADVICE, ScaleKind, fallback_scale, is_signed
from lobench.analysis.store.subjects import Cell, StoredSubject, subject_of
from lobench.core.case import CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.metric import Direction, UnknownDirection
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["fitness", "fitness_of_sessions"]

_MIN_DISTANCE = 1e-12  # a loss counts as at least this far above its minimum


def fitness(
    rows: Sequence[EvaluationRow], cases: Sequence[CaseInfo], seeds: range | None, suite_paths: Sequence[str | Path]
) -> float | None:
    """Returns the mean over cases of the mean score over seeds; None if a seed of a case has no curve.

    It is also None if a case has single values in place of curves, and one of them diverged: such a seed has no score.

    Cases whose results have the same bits, because they are one training, count once.

    Args:
      rows: Evaluations of one subject, in the order of their recording.
      cases: Cases that must all be evaluated.
      seeds: Seeds that count. None: all seeds of each case.
      suite_paths: Suites whose baselines define the scales.

    Raises:
      UnknownDirection: The direction in which a case's metric is better is not declared.
      LobenchError: A loss is below 0 on a log scale, or the metric has no scale.
    """
    if not rows or not cases:
        return None
    subject = subject_of(rows[0].sightings[-1], rows, {case.identity for case in cases})
    scales = Scales.of([subject], [Path(path) for path in suite_paths])
    means = []
    for case in cases:
        if case.identity in subject.repeated_identities:
            continue  # another case with the same problem counts for both
        cell = subject.cells.get(case.identity)
        if cell is None:
            return None
        wanted_seeds = {seed for block in case.blocks() for seed in block.seeds if seeds is None or seed in seeds}
        wanted_seeds = set(cell.seeds) if case.has_items else wanted_seeds
        if not wanted_seeds or wanted_seeds - set(cell.seeds):
            return None
        direction = _direction(scales, case, subject)
        tuned_case = scales.baselines.baseline_by_case.get(case.identity)
        mean_function = _mean_value if cell.has_single_values and tuned_case is None else _mean_score
        value = mean_function(case, cell, wanted_seeds, tuned_case, direction)
        if value is None:
            return None
        means.append(value)
    return math.fsum(means) / len(means)


def fitness_of_sessions(
    rows: Sequence[EvaluationRow], sessions: Collection[int], suite_paths: Sequence[str | Path]
) -> float | None:
    """Returns the fitness of a script, each of whose sessions is an evaluation; None if a session has no curve.

    Args:
      rows: Evaluations of one subject, each of one session.
      sessions: Sessions that count.
      suite_paths: Suites whose baselines define the scales.

    Raises:
      LobenchError: As in `fitness`.
    """
    rows_of_sessions = [row for row in rows if row.key.seed_block.start in sessions]
    first_seed = min(sessions)
    count = len(sessions)
    cases = {row.case.identity: row.case for row in rows_of_sessions}
    case_forms = [
        replace(case, first_seed=first_seed, block_sizes=(1,) * count, num_seeds=count) for case in cases.values()
    ]
    return fitness(rows_of_sessions, case_forms, range(first_seed, max(sessions) + 1), suite_paths)


def _direction(scales: Scales, case: CaseInfo, subject: StoredSubject) -> Direction:
    direction = scales.direction(case, case.primary_metric)
    if direction is None:
        raise UnknownDirection(case.primary_metric, where=f"{case.suite}/{case.name} of {subject.label}")
    return direction


def _mean_value(
    case: CaseInfo, cell: Cell, seeds: Collection[int], tuned_case: BaselineCase | None, direction: Direction
) -> float | None:
    """Returns the mean of single values, on a logarithmic scale for a loss; higher is better. None if one diverged."""
    finals = [cell.final_values.get(case.primary_metric, {}).get(seed, math.nan) for seed in sorted(seeds)]
    if not all(map(math.isfinite, finals)):
        return None
    # The kind must not depend on the values, because trials are compared.
    kind = fallback_scale(case.primary_metric, direction, [1.0], declared_scale=case.scale or "").kind
    if kind is ScaleKind.LINEAR:
        sign = 1.0 if direction is Direction.MAX else -1.0
        return sign * math.fsum(finals) / len(finals)
    distances = [value - (case.minimum or 0.0) for value in finals]
    if min(distances) < 0:
        raise _fitness_error(case, SIGNED_LOSS_ADVICE)
    return -math.fsum(math.log10(max(value, _MIN_DISTANCE)) for value in distances) / len(distances)


def _fitness_error(case: CaseInfo, why: str) -> LobenchError:
    return LobenchError(
        f"no fitness: {why}",
        where=f"{case.suite}/{case.name}",
        next_step="finished evaluations stay in the store",
    )


def _mean_score(
    case: CaseInfo, cell: Cell, seeds: Collection[int], tuned_case: BaselineCase | None, direction: Direction
) -> float | None:
    metric = case.primary_metric
    finals = {seed: cell.final_values.get(metric, {}).get(seed, math.nan) for seed in sorted(seeds)}
    starts = {seed: cell.untrained_values.get(metric, {}).get(seed, math.nan) for seed in finals}
    if tuned_case is not None and metric in tuned_case.tuned:
        scale = tuned_case.score_scale(metric, direction, is_primary=metric == case.primary_metric)
    else:
        scale = fallback_scale(
            metric, direction, starts.values(), declared_scale=case.scale or "", minimum=case.minimum
        )
    converged = [value for seed, value in finals.items() if seed not in cell.diverged_at]
    if not scale.is_usable or is_signed(converged, scale):
        raise _fitness_error(case, SIGNED_LOSS_ADVICE if scale.is_usable else f"{metric} has no scale")
    scores = seed_scores(finals, starts, cell.diverged_at, scale)
    return math.fsum(scores.values()) / len(scores)
