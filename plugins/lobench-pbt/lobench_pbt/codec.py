"""Conversion between values and protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lobench.extend import Value
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.trial import ARTIFACTS, Artifact, State, StudyTrial

__all__ = [
    "artifact_from_message",
    "artifact_to_message",
    "params_from_message",
    "trial_from_message",
    "trial_to_message",
]

# Fields of a trial that a message has unchanged, and those that it may lack.
_SHARED_FIELDS = (
    "id",
    "state",
    "generation",
    "slot",
    "parent_ids",
    "start_step",
    "n_steps",
    "seed",
    "attempt",
    "reason",
)
_OPTIONAL_FIELDS: tuple[Literal["initiator_id", "opponent_id", "completed_seq"], ...]
_OPTIONAL_FIELDS = ("initiator_id", "opponent_id", "completed_seq")


def _value_message(value: Value) -> pbt_pb2.Value:
    if isinstance(value, bool):
        return pbt_pb2.Value(flag=value)
    if isinstance(value, int):
        return pbt_pb2.Value(integer=value)
    return pbt_pb2.Value(text=value) if isinstance(value, str) else pbt_pb2.Value(real=value)


def params_from_message(params: Mapping[str, pbt_pb2.Value]) -> dict[str, Value]:
    return {path: getattr(value, value.WhichOneof("kind") or "real") for path, value in sorted(params.items())}


def artifact_to_message(artifact: Artifact | None) -> pbt_pb2.Artifact | None:
    return pbt_pb2.Artifact(uri=artifact.uri, sha256=artifact.sha256) if artifact is not None else None


def artifact_from_message(message: pbt_pb2.Artifact) -> Artifact | None:
    return Artifact(uri=message.uri, sha256=message.sha256) if message.uri else None


def trial_to_message(trial: StudyTrial, *, study: str, lease_seconds: float = 0.0) -> pbt_pb2.Trial:
    shared_fields: dict[str, Any] = {name: getattr(trial, name) for name in (*_SHARED_FIELDS, *_OPTIONAL_FIELDS)}
    shared_fields |= {name: artifact_to_message(getattr(trial, name)) for name in ARTIFACTS}
    return pbt_pb2.Trial(
        **shared_fields,
        study=study,
        params={path: _value_message(value) for path, value in trial.params.items()},
        worker=trial.worker_id,
        metrics=trial.metrics or {},
        fitness=trial.fitness or (),
        lease_seconds=lease_seconds,
    )


def trial_from_message(message: pbt_pb2.Trial) -> StudyTrial:
    """Returns the trial of a message. Messages have no deadlines."""
    values: dict[str, Any] = {name: getattr(message, name) for name in _SHARED_FIELDS}
    values |= {name: getattr(message, name) for name in _OPTIONAL_FIELDS if message.HasField(name)}
    values |= {name: artifact_from_message(getattr(message, name)) for name in ARTIFACTS}
    values |= {"state": State(message.state), "parent_ids": tuple(message.parent_ids), "worker_id": message.worker}
    return StudyTrial(
        **values,
        params=params_from_message(message.params),
        metrics=dict(message.metrics) or None,
        fitness=tuple(message.fitness) or None,
    )
