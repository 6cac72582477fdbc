"""Between values and protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lobench_pbt.proto import pbt_pb2
from lobench_pbt.trial import Artifact, State, Trial, Value

__all__ = ["artifact_from", "artifact_to", "params_from", "trial_from", "trial_to"]

_Optional = Literal["initiator_id", "opponent_id", "completed_seq"]


def _value_to(value: Value) -> pbt_pb2.Value:
    if isinstance(value, bool):
        return pbt_pb2.Value(flag=value)
    if isinstance(value, int):
        return pbt_pb2.Value(integer=value)
    return pbt_pb2.Value(text=value) if isinstance(value, str) else pbt_pb2.Value(real=value)


def params_from(params: Mapping[str, pbt_pb2.Value]) -> dict[str, Value]:
    return {path: getattr(value, value.WhichOneof("kind") or "real") for path, value in sorted(params.items())}


def artifact_to(artifact: Artifact | None) -> pbt_pb2.Artifact | None:
    return pbt_pb2.Artifact(uri=artifact.uri, sha256=artifact.sha256) if artifact is not None else None


def artifact_from(message: pbt_pb2.Artifact) -> Artifact | None:
    return Artifact(uri=message.uri, sha256=message.sha256) if message.uri else None


def trial_to(trial: Trial, *, study: str, lease_seconds: float = 0.0) -> pbt_pb2.Trial:
    return pbt_pb2.Trial(
        study=study,
        id=trial.id,
        state=trial.state,
        generation=trial.generation,
        slot=trial.slot,
        parent_ids=trial.parent_ids,
        params={path: _value_to(value) for path, value in trial.params.items()},
        start_step=trial.start_step,
        n_steps=trial.n_steps,
        seed=trial.seed,
        attempt=trial.attempt,
        worker=trial.worker_id,
        metrics=trial.metrics or {},
        fitness=trial.fitness or (),
        reason=trial.reason,
        lease_seconds=lease_seconds,
        initiator_id=trial.initiator_id,
        opponent_id=trial.opponent_id,
        completed_seq=trial.completed_seq,
        warm_checkpoint=artifact_to(trial.warm_checkpoint),
        warm_state=artifact_to(trial.warm_state),
        checkpoint=artifact_to(trial.checkpoint),
        train_state=artifact_to(trial.train_state),
    )


def trial_from(message: pbt_pb2.Trial) -> Trial:
    """Reads a trial; deadlines stay with the service."""
    return Trial(
        id=message.id,
        state=State(message.state),
        generation=message.generation,
        slot=message.slot,
        parent_ids=tuple(message.parent_ids),
        params=params_from(message.params),
        start_step=message.start_step,
        n_steps=message.n_steps,
        seed=message.seed,
        attempt=message.attempt,
        worker_id=message.worker,
        metrics=dict(message.metrics) or None,
        fitness=tuple(message.fitness) or None,
        reason=message.reason,
        initiator_id=_number(message, "initiator_id"),
        opponent_id=_number(message, "opponent_id"),
        completed_seq=_number(message, "completed_seq"),
        warm_checkpoint=artifact_from(message.warm_checkpoint),
        warm_state=artifact_from(message.warm_state),
        checkpoint=artifact_from(message.checkpoint),
        train_state=artifact_from(message.train_state),
    )


def _number(message: pbt_pb2.Trial, name: _Optional) -> int | None:
    value: int = getattr(message, name)
    return value if message.HasField(name) else None
