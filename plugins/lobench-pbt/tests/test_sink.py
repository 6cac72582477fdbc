"""What a watch's results become for a controller."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from lobench_pbt.server import Security, start_server
from lobench_pbt.service import Service
from lobench_pbt.sink import PbtSink, metrics_of, trial_of
from lobench_pbt.study import FitnessFrom
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import State
from pbt_simulation import PLUGINS, make_study, write_theta
from shown import texts_of

from lobench import LobenchError, UsageError
from lobench.extend import Checkpoint, Direction, Objective, Subject
from lobench.hookspecs import CheckpointFinished, Delivery, SinkContext
from lobench.testing.sinks import sample_deliveries

SHOWN = texts_of("pbt")

LOSS = (Objective(metric="train/loss", direction=Direction.MIN),)


def finished(*cases: str) -> CheckpointFinished:
    """Returns the first sample checkpoint with the evaluations of some cases."""
    event = next(entry.event for entry in sample_deliveries() if isinstance(entry.event, CheckpointFinished))
    kept = tuple(evaluation for evaluation in event.evaluations if evaluation.case.name in cases)
    return dataclasses.replace(event, evaluations=kept)


@pytest.mark.parametrize(
    ("run", "trial"), [("trial_12", 12), ("sweep/trial_0007", 7), ("trial_", None), ("", None), ("mytrial_3", None)]
)
def test_the_trial_of_a_run(run: str, trial: int | None) -> None:
    assert trial_of(run) == trial


def of_checkpoint(event: CheckpointFinished, checkpoint: Checkpoint) -> CheckpointFinished:
    return dataclasses.replace(event, subject=Subject.of_checkpoint(checkpoint))


def test_the_mean_over_cases_of_the_mean_over_seeds() -> None:
    """Case `whole` has seeds of 1 and 2, `blocks` 4, 5 and, in another block, 6."""
    metrics, missing = metrics_of(finished("whole", "blocks"))
    assert missing == ""
    assert metrics["whole:train/loss"] == 1.5
    assert metrics["blocks:train/loss"] == 5.0
    assert metrics["train/loss"] == 3.25


def test_a_seed_that_diverged_is_nan_and_an_evaluation_without_curves_is_no_fitness() -> None:
    metrics, missing = metrics_of(finished("whole", "diverges"))
    assert missing == "" and math.isnan(metrics["train/loss"]) and metrics["whole:train/loss"] == 1.5
    assert metrics_of(finished("whole", "breaks")) == ({}, SHOWN["suite-breaks-was-not-evaluated"])
    assert metrics_of(finished()) == ({}, SHOWN["no-case-was-evaluated"])


def test_infinities_of_both_signs_are_nan_and_hold_up_nothing() -> None:
    """What a sink raises is tried again for ever, and all that follows it waits."""
    event = finished("whole")
    (evaluation,) = event.evaluations
    assert evaluation.curves is not None
    for values, mean in (
        ((math.inf, -math.inf), math.nan),
        ((math.inf, 1.0), math.inf),
        ((1.7e308, 1.7e308), math.inf),
    ):
        curves = SimpleNamespace(metrics=("train/loss",), final=lambda _, values=values: values)
        changed = dataclasses.replace(event, evaluations=(dataclasses.replace(evaluation, curves=curves),))
        metrics, missing = metrics_of(changed)
        assert missing == "" and repr(metrics["train/loss"]) == repr(mean)


def test_without_an_address_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=SHOWN["sink-pbt-host-port"]):
        PbtSink(SinkContext(store=tmp_path))


def test_deliveries_become_fitness_whenever_and_however_often_they_come(tmp_path: Path) -> None:
    service = Service(tmp_path / "store", clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(fitness_from=FitnessFrom.WATCH, objectives=LOSS, parameters=()))
    trial = service.suggest("", "one").trial
    assert trial is not None
    artifact = write_theta(tmp_path / "theta.npz", 1.0)
    event = finished("whole", "blocks")
    ours = dataclasses.replace(event.checkpoint, run="trial_1", sha256=artifact.sha256, generation=0)
    deliveries = [
        Delivery(sequence=1, event=event.evaluations[0]),
        Delivery(sequence=2, event=of_checkpoint(event, ours)),
        Delivery(sequence=3, event=event),  # of no trial
        Delivery(sequence=4, event=of_checkpoint(event, dataclasses.replace(ours, run="trial_99"))),
    ]
    server, address = start_server(service, "127.0.0.1:0", Security())
    sink = PbtSink(SinkContext(store=tmp_path, argument=address))
    sink.deliver(deliveries)
    service.complete("", 1, Completion(attempt=0, checkpoint=artifact, n_steps=trial.n_steps))
    before = service.list_trials("")
    sink.deliver(deliveries)
    sink.close()
    assert service.list_trials("") == before
    assert (before[0].state, before[0].fitness) == (State.SUCCEEDED, (-3.25,))
    server.stop(grace=None).wait()
    again = PbtSink(SinkContext(store=tmp_path, argument=address))
    with pytest.raises(LobenchError, match=SHOWN["the-controller"]):
        again.deliver(deliveries)  # the watch tries again later
    again.close()
    service.close()


def test_a_result_that_no_trial_waits_for_is_said_once_a_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And holds up nothing, whatever the numbers: those that no message holds would be tried again for ever."""
    service = Service(tmp_path / "store", clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(make_study(fitness_from=FitnessFrom.WATCH, objectives=LOSS, parameters=()))
    trial = service.suggest("", "one").trial
    assert trial is not None
    artifact = write_theta(tmp_path / "theta.npz", 1.0)
    service.complete("", 1, Completion(attempt=0, checkpoint=artifact, n_steps=trial.n_steps))
    event = finished("whole")

    def delivery(run: str, generation: int, sha256: str = artifact.sha256) -> Delivery:
        ours = dataclasses.replace(event.checkpoint, run=run, sha256=sha256, generation=generation, uri=f"{run}.npz")
        return Delivery(sequence=1, event=of_checkpoint(event, ours))

    wrong = [("trial_1", 3), ("trial_7", 0), (f"trial_{2**63}", 0), ("trial_1", 2**31), ("trial_1", 3)]
    server, address = start_server(service, "127.0.0.1:0", Security())
    sink = PbtSink(SinkContext(store=tmp_path, argument=address))
    sink.deliver([delivery("trial_1", 0, sha256="0" * 64)])
    assert caplog.messages == [], "another checkpoint of the trial"
    sink.deliver([delivery(run, generation) for run, generation in wrong])
    assert caplog.messages == [
        SHOWN["sink-pbt-trial-1-npz"],
        SHOWN["sink-pbt-trial-7-npz"],
        SHOWN["sink-pbt-trial-npz-is"].format(number=2**63),
    ]
    sink.deliver([delivery("trial_1", 0)])
    assert service.list_trials("")[0].state is State.SUCCEEDED
    sink.close()
    server.stop(grace=None).wait()
    service.close()
