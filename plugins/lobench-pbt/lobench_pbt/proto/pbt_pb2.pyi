from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Value(_message.Message):
    __slots__ = ("real", "integer", "text", "flag")
    REAL_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    real: float
    integer: int
    text: str
    flag: bool
    def __init__(self, real: _Optional[float] = ..., integer: _Optional[int] = ..., text: _Optional[str] = ..., flag: _Optional[bool] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("uri", "sha256")
    URI_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    uri: str
    sha256: str
    def __init__(self, uri: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("study", "id", "state", "generation", "slot", "initiator_id", "opponent_id", "parent_ids", "params", "start_step", "n_steps", "warm_checkpoint", "warm_state", "checkpoint", "train_state", "seed", "attempt", "worker", "metrics", "fitness", "reason", "completed_seq", "lease_seconds")
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STUDY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INITIATOR_ID_FIELD_NUMBER: _ClassVar[int]
    OPPONENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    START_STEP_FIELD_NUMBER: _ClassVar[int]
    N_STEPS_FIELD_NUMBER: _ClassVar[int]
    WARM_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WARM_STATE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TRAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FITNESS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_SEQ_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    study: str
    id: int
    state: str
    generation: int
    slot: int
    initiator_id: int
    opponent_id: int
    parent_ids: _containers.RepeatedScalarFieldContainer[int]
    params: _containers.MessageMap[str, Value]
    start_step: int
    n_steps: int
    warm_checkpoint: Artifact
    warm_state: Artifact
    checkpoint: Artifact
    train_state: Artifact
    seed: int
    attempt: int
    worker: str
    metrics: _containers.ScalarMap[str, float]
    fitness: _containers.RepeatedScalarFieldContainer[float]
    reason: str
    completed_seq: int
    lease_seconds: float
    def __init__(self, study: _Optional[str] = ..., id: _Optional[int] = ..., state: _Optional[str] = ..., generation: _Optional[int] = ..., slot: _Optional[int] = ..., initiator_id: _Optional[int] = ..., opponent_id: _Optional[int] = ..., parent_ids: _Optional[_Iterable[int]] = ..., params: _Optional[_Mapping[str, Value]] = ..., start_step: _Optional[int] = ..., n_steps: _Optional[int] = ..., warm_checkpoint: _Optional[_Union[Artifact, _Mapping]] = ..., warm_state: _Optional[_Union[Artifact, _Mapping]] = ..., checkpoint: _Optional[_Union[Artifact, _Mapping]] = ..., train_state: _Optional[_Union[Artifact, _Mapping]] = ..., seed: _Optional[int] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ..., fitness: _Optional[_Iterable[float]] = ..., reason: _Optional[str] = ..., completed_seq: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class Study(_message.Message):
    __slots__ = ("name", "config", "stopped", "num_trials")
    class NumTrialsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    NUM_TRIALS_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: str
    stopped: bool
    num_trials: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., config: _Optional[str] = ..., stopped: _Optional[bool] = ..., num_trials: _Optional[_Mapping[str, int]] = ...) -> None: ...

class CreateStudyRequest(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: str
    def __init__(self, config: _Optional[str] = ...) -> None: ...

class GetStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class StopStudyRequest(_message.Message):
    __slots__ = ("study",)
    STUDY_FIELD_NUMBER: _ClassVar[int]
    study: str
    def __init__(self, study: _Optional[str] = ...) -> None: ...

class ListTrialsRequest(_message.Message):
    __slots__ = ("study", "after_id", "limit")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    study: str
    after_id: int
    limit: int
    def __init__(self, study: _Optional[str] = ..., after_id: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListTrialsReply(_message.Message):
    __slots__ = ("trials", "more")
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    more: bool
    def __init__(self, trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class SuggestRequest(_message.Message):
    __slots__ = ("study", "worker", "process", "gone")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    study: str
    worker: str
    process: str
    gone: str
    def __init__(self, study: _Optional[str] = ..., worker: _Optional[str] = ..., process: _Optional[str] = ..., gone: _Optional[str] = ...) -> None: ...

class SuggestReply(_message.Message):
    __slots__ = ("answer", "trial", "holder")
    class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DONE: _ClassVar[SuggestReply.Answer]
        WAIT: _ClassVar[SuggestReply.Answer]
        TRIAL: _ClassVar[SuggestReply.Answer]
        HELD: _ClassVar[SuggestReply.Answer]
    DONE: SuggestReply.Answer
    WAIT: SuggestReply.Answer
    TRIAL: SuggestReply.Answer
    HELD: SuggestReply.Answer
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    answer: SuggestReply.Answer
    trial: Trial
    holder: str
    def __init__(self, answer: _Optional[_Union[SuggestReply.Answer, str]] = ..., trial: _Optional[_Union[Trial, _Mapping]] = ..., holder: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("study", "trial", "attempt", "process")
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    study: str
    trial: int
    attempt: int
    process: str
    def __init__(self, study: _Optional[str] = ..., trial: _Optional[int] = ..., attempt: _Optional[int] = ..., process: _Optional[str] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    def __init__(self, stop: _Optional[bool] = ...) -> None: ...

class AddMeasurementRequest(_message.Message):
    __slots__ = ("study", "trial", "attempt", "step", "seconds", "metrics", "process")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    study: str
    trial: int
    attempt: int
    step: int
    seconds: float
    metrics: _containers.ScalarMap[str, float]
    process: str
    def __init__(self, study: _Optional[str] = ..., trial: _Optional[int] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., seconds: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ..., process: _Optional[str] = ...) -> None: ...

class AddMeasurementReply(_message.Message):
    __slots__ = ("stop",)
    STOP_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    def __init__(self, stop: _Optional[bool] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("study", "trial", "attempt", "checkpoint", "train_state", "metrics", "n_steps", "infeasible_reason", "process")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TRAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    N_STEPS_FIELD_NUMBER: _ClassVar[int]
    INFEASIBLE_REASON_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    study: str
    trial: int
    attempt: int
    checkpoint: Artifact
    train_state: Artifact
    metrics: _containers.ScalarMap[str, float]
    n_steps: int
    infeasible_reason: str
    process: str
    def __init__(self, study: _Optional[str] = ..., trial: _Optional[int] = ..., attempt: _Optional[int] = ..., checkpoint: _Optional[_Union[Artifact, _Mapping]] = ..., train_state: _Optional[_Union[Artifact, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., n_steps: _Optional[int] = ..., infeasible_reason: _Optional[str] = ..., process: _Optional[str] = ...) -> None: ...

class ReportFitnessRequest(_message.Message):
    __slots__ = ("study", "trial", "generation", "sha256", "metrics", "missing_reason")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STUDY_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MISSING_REASON_FIELD_NUMBER: _ClassVar[int]
    study: str
    trial: int
    generation: int
    sha256: str
    metrics: _containers.ScalarMap[str, float]
    missing_reason: str
    def __init__(self, study: _Optional[str] = ..., trial: _Optional[int] = ..., generation: _Optional[int] = ..., sha256: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ..., missing_reason: _Optional[str] = ...) -> None: ...

class ReportFitnessReply(_message.Message):
    __slots__ = ("verdict",)
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        IGNORED: _ClassVar[ReportFitnessReply.Verdict]
        HELD: _ClassVar[ReportFitnessReply.Verdict]
        ACCEPTED: _ClassVar[ReportFitnessReply.Verdict]
    IGNORED: ReportFitnessReply.Verdict
    HELD: ReportFitnessReply.Verdict
    ACCEPTED: ReportFitnessReply.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: ReportFitnessReply.Verdict
    def __init__(self, verdict: _Optional[_Union[ReportFitnessReply.Verdict, str]] = ...) -> None: ...
