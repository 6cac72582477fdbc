"""Between values and protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping

from lobench_pbt.proto import pbt_pb2
from lobench_pbt.trial import Artifact, State, Trial, Value

__all__ = ["artifact_from", "artifact_to", "params_from", "trial_from", "trial_to"]

_ARTIFACTS = ("warm_checkpoint", "warm_state", "checkpoint", "train_state")
_OPTIONAL = ("initiator_id", "opponent_id", "completed_seq")


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
        **{name: getattr(trial, name) for name in _OPTIONAL},
        **{name: artifact_to(getattr(trial, name)) for name in _ARTIFACTS},
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
        **{name: getattr(message, name) if message.HasField(name) else None for name in _OPTIONAL},
        **{name: artifact_from(getattr(message, name)) for name in _ARTIFACTS},
    )
