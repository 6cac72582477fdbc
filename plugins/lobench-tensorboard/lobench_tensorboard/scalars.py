"""Which scalars an event gives. All values are of the last inner step; the step of all is the outer step.

For a case, as soon as all its seeds are there:

    <suite>/<case>/<split>/<metric>    mean over seeds; NaN if one diverged, which must not vanish in a mean
    <suite>/<case>/diverged            number of seeds that diverged
    <suite>/<case>/exploded            number of others whose primary loss ended above twice its start

For a suite, when every evaluation of the checkpoint has an outcome:

    <suite>/mean/<split>/<metric>      mean over cases of the mean over seeds, with ..._lower and ..._upper: 95%,
                                       stratified t; no bounds where a case has one seed or one of them diverged
    <suite>/diverged                   number of seeds that diverged, over all cases
    <suite>/exploded                   number of others that exploded, over all cases
    <suite>/not_evaluated              number of evaluations without curves; the mean is over the others
    <suite>/outcomes/<outcome>         number of evaluations; `passed` and `failed` always, others where there are any

Best values and whole curves stay in the ledger: `lobench results --curves` has them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from lobench import Outcome
from lobench.extend import Curves, stratified_t_mean
from lobench.hookspecs import CheckpointFinished, EvaluationFinished

__all__ = ["Scalar", "scalars_of"]

Scalar = tuple[str, float]


def scalars_of(event: EvaluationFinished | CheckpointFinished) -> list[Scalar]:
    """Returns (tag, value) of everything that an event lets be known."""
    if isinstance(event, EvaluationFinished):
        return _of_case([event])
    scalars: list[Scalar] = []
    for suite in sorted({evaluation.case.suite for evaluation in event.evaluations}):
        of_suite = [evaluation for evaluation in event.evaluations if evaluation.case.suite == suite]
        scalars += _of_suite(suite, of_suite)
    return scalars


def _of_case(evaluations: Sequence[EvaluationFinished]) -> list[Scalar]:
    """Nothing while seeds are missing: one block of several says little, and could not be corrected later."""
    case, blocks = evaluations[0].case, _curves(evaluations)
    if len({seed for block in blocks for seed in block.seeds}) < case.num_seeds:
        return []
    prefix = f"{case.suite}/{case.name}"
    means = [(f"{prefix}/{metric}", stratified_t_mean([_finals(blocks, metric)]).mean) for metric in _metrics(blocks)]
    return [*means, (f"{prefix}/diverged", _num_diverged(blocks)), (f"{prefix}/exploded", _num_exploded(evaluations))]


def _of_suite(suite: str, evaluations: Sequence[EvaluationFinished]) -> list[Scalar]:
    by_case: dict[str, list[EvaluationFinished]] = {}
    for evaluation in evaluations:
        by_case.setdefault(evaluation.case.key, []).append(evaluation)
    scalars = [scalar for of_case in by_case.values() for scalar in _of_case(of_case)]
    cases = [blocks for of_case in by_case.values() if (blocks := _curves(of_case))]
    scalars += _means(suite, cases)
    scalars.append((f"{suite}/diverged", _num_diverged(block for blocks in cases for block in blocks)))
    scalars.append((f"{suite}/exploded", _num_exploded(evaluations)))
    missing = sum(evaluation.curves is None for evaluation in evaluations)
    scalars.append((f"{suite}/not_evaluated", float(missing)))
    outcomes = Counter({Outcome.PASSED: 0, Outcome.FAILED: 0})
    outcomes.update(evaluation.outcome for evaluation in evaluations)
    return [*scalars, *((f"{suite}/outcomes/{outcome}", float(outcomes[outcome])) for outcome in sorted(outcomes))]


def _means(suite: str, cases: Sequence[Sequence[Curves]]) -> list[Scalar]:
    """Means over the cases that have a metric, with intervals."""
    scalars: list[Scalar] = []
    for metric in sorted({metric for blocks in cases for metric in _metrics(blocks)}):
        interval = stratified_t_mean([_finals(blocks, metric) for blocks in cases if metric in _metrics(blocks)])
        tag = f"{suite}/mean/{metric}"
        scalars.append((tag, interval.mean))
        if not math.isnan(interval.lower):
            scalars += [(f"{tag}_lower", interval.lower), (f"{tag}_upper", interval.upper)]
    return scalars


def _curves(evaluations: Iterable[EvaluationFinished]) -> list[Curves]:
    return [evaluation.curves for evaluation in evaluations if evaluation.curves is not None]


def _metrics(blocks: Sequence[Curves]) -> list[str]:
    """Returns the metrics that all blocks have: a plugin's own may have failed for one."""
    return sorted(set.intersection(*(set(block.metrics) for block in blocks)))


def _finals(blocks: Iterable[Curves], metric: str) -> list[float]:
    return [value for block in blocks for value in block.final(metric)]


def _num_exploded(evaluations: Iterable[EvaluationFinished]) -> float:
    return float(sum(one.curves.num_exploded(one.case) for one in evaluations if one.curves is not None))


def _num_diverged(blocks: Iterable[Curves]) -> float:
    return float(sum(block.num_diverged for block in blocks))
