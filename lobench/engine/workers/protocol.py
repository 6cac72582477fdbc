"""Protocol between chief and workers. Each message is a frozen dataclass.

A chief sends `Configure` first. A worker sends `Ready` once it has collected its suites, and then answers requests:
`Describe` with `Described` or `Failed`, `Job` with any number of `Progress` and `Remark` and one `JobResult`. Executors
transport the messages as bytes. Events of executors themselves (`WorkerExited`, `Notice`, ...) are defined in
`lobench.hookspecs`. All paths in messages are absolute, because workers may have any working directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.codec import Codec, Message
from lobench.core.result import Outcome
from lobench.core.subject import Variant
from lobench.engine.config.layers import Layers

__all__ = [
    "FROM_WORKER",
    "TO_WORKER",
    "Command",
    "Configure",
    "Describe",
    "Described",
    "Exit",
    "Failed",
    "FileMark",
    "FromWorker",
    "Job",
    "JobResult",
    "Progress",
    "Ready",
    "Remark",
    "StopCommand",
    "ToWorker",
    "WorkerSession",
]

# Messages of a chief to a worker.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSession:
    """Work of all workers of a watch, wherever they run.

    Attributes:
      arguments: Arguments of pytest, including the suites.
      layers: gin text bound before and after each case's own file.
      serve: "module:function" that runs the worker: `serve(connection, configure, *, owns_process)`. It returns on
        `Exit` and at the end of the pipe. `owns_process` states whether the process is the worker's own, which then
        ends too.
      working_folder: Working directory of the process, if this machine has it. "": not changed.
      with_tests: Whether ordinary tests of the suites are cases, because all subjects are checkpoints.
    """

    arguments: tuple[str, ...]
    layers: Layers
    serve: str
    working_folder: str = ""
    with_tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure(WorkerSession, Message):
    """First message to a worker: its configuration.

    Attributes:
      num_cpus: Number of cores that it computes with.
      compilation_cache: Folder of jax's persistent cache.
      log: File to which the process's output is written; "" for no file.
      log_start: Position in `log` at which the output begins.
      file_folder: Folder with the files named in messages, by their names alone. "": their paths are as in the
        messages.
      state_folder: Folder in which trainings save their states. "": states are not saved.

    >>> serve = "lobench.pytest_plugin.worker:serve"
    >>> first = Configure(num_cpus=1, arguments=(), layers=Layers(), compilation_cache="", serve=serve)
    >>> kind_of(first.to_bytes())
    'configure'
    """

    num_cpus: int
    compilation_cache: str
    log: str = ""
    log_start: int = 0
    file_folder: str = ""
    state_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Message):
    """Request to evaluate one seed block of a case for a subject.

    Attributes:
      lease: Number that is returned in `Progress` and `JobResult`.
      case_key: `CaseInfo.key` of the case with the subject's bindings.
      seed_block: Seeds to evaluate.
      checkpoint_uri: URI of the checkpoint.
      theta_path: File of theta's leaves; "" for a subject without a theta.
      companions: URIs and theta files of checkpoints whose otherwise equal jobs this worker will get next.
      code: `CaseInfo.code` of the case, with which the result will be recorded; "" if unknown.
      variant: Bindings of the subject.
      outer_step, run, generation: Position of the checkpoint.
      sha256: Identity of the checkpoint.
    """

    lease: int
    case_key: str
    seed_block: SeedBlock
    checkpoint_uri: str
    theta_path: str
    companions: tuple[tuple[str, str], ...] = ()
    code: str = ""
    variant: Variant = field(default_factory=Variant)
    outer_step: int = 0
    run: str = ""
    generation: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Message):
    """Request to run a user command, such as a meta-training, with the worker's cores.

    Its end is reported by `JobResult`.

    Attributes:
      lease: Number that is returned in `JobResult`.
      words: The program and its arguments.
      folder: Working directory.
      log: Path of the files with its output, without `.out` and `.err`.
    """

    lease: int
    words: tuple[str, ...]
    folder: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand(Message):
    """Request to stop a command, or not to start it, because its results are no longer needed."""

    lease: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Message):
    """Request for the cases of the suites, bound with a variant.

    Attributes:
      variant: Variant of the cases.
      is_traced: Whether to trace the cases' trainings too, so that invalid values are answered with `Failed`.
      names: Names of the cases to trace, any of `CaseInfo.names`. Empty: all cases.
    """

    variant: Variant = field(default_factory=Variant)
    is_traced: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Message):
    """Request to exit after the current job.

    >>> kind_of(Exit().to_bytes())
    'exit'
    """


# Messages of a worker to its chief.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """Report that the suites are collected and jobs are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMark:
    """Stamp of a file when it was read. If the stamp differs later, the content may have changed."""

    path: str
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Message):
    """Answer to `Describe`.

    Attributes:
      variant_key: Key of the variant.
      cases: Cases of the variant.
      files: Stamps of all files on which the answer depends: those of the suites, and every Python module loaded from
        outside the interpreter and installed packages. The answer is valid while they are unchanged.
      missing: Files that do not exist, and whose creation would change the answer.
      code_files: Paths of the user's code behind the cases and their optimizers.
      listed: Hash of the names of code files in each folder that is searched by a pattern, by the folder's path.
      data: Paths of data files that this code names.
      codes: Parts of each fingerprint of the cases' code, by its id.
      edited: Files of that code that were edited since the worker imported them.
    """

    variant_key: str
    cases: tuple[CaseInfo, ...]
    files: tuple[FileMark, ...]
    missing: tuple[str, ...] = ()
    code_files: tuple[str, ...] = ()
    listed: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    codes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Message):
    """Report that the suites, or the cases of a variant, cannot be used.

    Attributes:
      messages: Reasons, one per line.
      variant_key: Key of the variant whose cases cannot be bound; the worker continues. None: the suites cannot be
        collected, and the worker ends.
    """

    messages: tuple[str, ...]
    variant_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Message):
    """Report of the number of inner steps that a job has completed."""

    lease: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Message):
    """Line about the current job for the log, for example on an unusable saved state."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(Message):
    """Result of a job, as the worker sends it to the chief.

    Attributes:
      lease: Number of the job.
      outcome: Outcome.
      message: Error message in one line; "" if there was no error.
      replace: Whether the worker should be replaced, because its state is unknown.
      other_code: Parts of the code that differ from the job's. If it is not empty, the result does not count.
      other_gin: Whether the worker's gin files differ from those from which the job's case was described. If so, the
        result does not count.
      payload: `Curves.to_payload()`; b"" for a result without curves.
    """

    lease: int
    outcome: Outcome
    message: str = ""
    replace: bool = False
    other_code: Mapping[str, str] = field(default_factory=dict)
    other_gin: bool = False
    payload: bytes = b""


ToWorker: TypeAlias = Job | Command | StopCommand | Describe | Exit
FromWorker: TypeAlias = Ready | Described | Failed | Progress | Remark | JobResult

TO_WORKER: Codec[ToWorker] = Codec(Job, Command, StopCommand, Describe, Exit)
FROM_WORKER: Codec[FromWorker] = Codec(Ready, Described, Failed, Progress, Remark, JobResult)
