"""Results of a watch as the fitness of trials.

The checkpoints of a trial are in a folder named `trial_12` or `trial_000012` below the watched population. That name,
the generation in the checkpoint and the digest of theta are the key under which the controller accepts a result.

Metrics of a checkpoint: `<split>/<metric>` is the mean over cases of the mean over seeds at the last inner step, and
`<case>:<split>/<metric>` is the mean of one case. A seed that diverged makes both NaN. An evaluation without curves (an
error, a timeout, poisoned) gives no fitness.

A result whose key fits no trial is ignored, with one message per trial, because the trial may wait for another result
in vain.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Sequence

from lobench import UsageError
from lobench.hookspecs import CheckpointFinished, Delivery, SinkContext
from lobench_pbt.connection import Address, Connection
from lobench_pbt.proto import pbt_pb2

__all__ = ["PbtSink", "metrics_of", "trial_of"]

_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 2.0  # after this time the watch retries
_LARGEST_TRIAL, _LARGEST_GENERATION = (1 << 63) - 1, (1 << 31) - 1  # limits of a message


def trial_of(run: str) -> int | None:
    """Returns the number of the trial that a run's folder belongs to, or None."""
    match = re.fullmatch(r"(.*/)?trial_(\d+)", run)
    return int(match[2]) if match else None


def metrics_of(event: CheckpointFinished) -> tuple[dict[str, float], str]:
    """Returns the metrics of a checkpoint, or the reason why they are missing."""
    final_values: dict[str, dict[str, list[float]]] = {}
    for evaluation in event.evaluations:
        case = evaluation.case
        if evaluation.curves is None:
            message = f": {evaluation.message}" if evaluation.message else ""
            return {}, f"{case.suite}/{case.name} was not evaluated ({evaluation.outcome}{message})"
        for metric in evaluation.curves.metrics:
            final_values.setdefault(metric, {}).setdefault(case.name, []).extend(evaluation.curves.final(metric))
    metrics: dict[str, float] = {}
    for metric, cases in final_values.items():
        means = {name: _mean(values) for name, values in cases.items()}
        metrics[metric] = _mean(means.values())
        metrics |= {f"{name}:{metric}": mean for name, mean in means.items()}
    return metrics, "" if metrics else "no case was evaluated"


def _mean(values: Collection[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # infinities of both signs, or a sum that overflows
        return sum(values) / len(values)


class PbtSink:
    """Sink that reports each finished checkpoint of a trial. Repeated reports have no effect.

    Raises:
      UsageError: No address is given.
    """

    def __init__(self, context: SinkContext) -> None:
        if not context.argument:
            raise UsageError("sink 'pbt' needs an address", expected="--sink pbt:HOST:PORT")
        self._connection = Connection(Address.parse(context.argument), patience=_PATIENCE_SECONDS)
        self._explained_trials: set[int] = set()  # trials for which a foreign result was reported

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            event = delivery.event
            trial = trial_of(event.checkpoint.run)
            if not isinstance(event, CheckpointFinished) or trial is None:
                continue
            if not self._report(trial, event):
                self._explain_ignored(trial, event)

    def _report(self, trial: int, event: CheckpointFinished) -> bool:
        """Reports a result. Returns False if the controller ignores it."""
        generation = event.checkpoint.generation
        if trial > _LARGEST_TRIAL or generation > _LARGEST_GENERATION:
            return False
        metrics, missing_reason = metrics_of(event)
        request = pbt_pb2.ReportFitnessRequest(
            study=self._connection.address.study,
            trial=trial,
            generation=generation,
            sha256=event.checkpoint.sha256,
            metrics=metrics,
            missing_reason=missing_reason,
        )
        reply = self._connection.call(self._connection.stub.ReportFitness, request)
        return bool(reply.verdict != pbt_pb2.ReportFitnessReply.IGNORED)

    def _explain_ignored(self, trial: int, event: CheckpointFinished) -> None:
        """Reports once why a result cannot belong to the trial. Further checkpoints of an ended trial are expected."""
        if trial in self._explained_trials:
            return
        generation = self._generation(trial)
        if generation == event.checkpoint.generation:
            return
        reason = "the controller has no such trial"
        if generation is not None:
            reason = f"it is of generation {generation}, and the checkpoint of generation {event.checkpoint.generation}"
        self._explained_trials.add(trial)
        _LOG.warning("sink pbt: %s is not a fitness of trial %d: %s", event.checkpoint.uri, trial, reason)

    def _generation(self, trial: int) -> int | None:
        """Returns the generation of a trial; None if the trial does not exist."""
        if trial > _LARGEST_TRIAL:
            return None
        study = self._connection.address.study
        request = pbt_pb2.ListTrialsRequest(study=study, after_id=trial - 1, limit=1)
        trials = self._connection.call(self._connection.stub.ListTrials, request).trials
        return next((row.generation for row in trials if row.id == trial), None)

    def close(self) -> None:
        self._connection.close()
