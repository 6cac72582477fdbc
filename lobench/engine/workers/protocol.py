"""Protocol between chief and workers, each message a frozen dataclass.

A chief says `Configure` first. A worker says `Ready` once it has collected its suites, and then answers: `Describe` by
`Described` or `Failed`, `Job` by `Progress` and `Remark` as often as it likes and one `JobResult`. Executors carry the
bytes of these and do not open them. What an executor says for itself (`WorkerExited`, `Notice`, ...) is beside its
protocol in `lobench.hookspecs`. All paths in messages are absolute: workers may have any working directory.
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
]

# A chief to a worker.


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure(Message):
    """The first message: what the process is to be.

    Attributes:
      num_cpus: Cores that it computes with.
      arguments: pytest's, the suites among them.
      layers: gin text around the cases.
      compilation_cache: Folder of jax's persistent cache.
      serve: "module:function" that runs the worker: `serve(connection, configure, *, owns_process)`. It ends at `Exit`
        and when the pipe ends; `owns_process` says whether the process is the worker's own, which then ends too.
      log: File that takes what the process prints, from `log_start` on; "" where there is none.
      file_folder: Where the files lie that messages name, by their names alone; "": where the messages say.
      state_folder: Where trainings are saved as they go; "": nowhere.
      working_folder: Working directory of the process, if this machine has it; "": as it was started.
    """

    num_cpus: int
    arguments: tuple[str, ...]
    layers: Layers
    compilation_cache: str
    serve: str
    log: str = ""
    log_start: int = 0
    file_folder: str = ""
    state_folder: str = ""
    working_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Message):
    """One seed block of one case for one subject.

    Attributes:
      lease: Comes back with `Progress` and `JobResult`.
      case_key: `CaseInfo.key` of a case as it is with these bindings.
      code: `CaseInfo.code` of it, by which the result will be recorded; "": not known.
      theta_path: File of theta's leaves; "" where there is no theta.
      companions: URI and theta's path of checkpoints whose jobs, otherwise the same, this worker gets next.
      variant: The subject's own gin text.
    """

    lease: int
    case_key: str
    seed_block: SeedBlock
    checkpoint_uri: str
    theta_path: str
    companions: tuple[tuple[str, str], ...] = ()
    code: str = ""
    variant: Variant = field(default_factory=Variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Message):
    """A program of the user's, a meta-training say, that has the worker's slot until it ends; `JobResult` tells how.

    Attributes:
      words: The program and its arguments.
      folder: Where it runs.
      log: Path of the files that take its output, without `.out` and `.err`.
    """

    lease: int
    words: tuple[str, ...]
    folder: str
    log: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand(Message):
    """Ends a command, which runs or is still to come: nothing that it could do is wanted any more."""

    lease: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Message):
    """Asks which cases the suites have in a variant; there is no other way to learn cases.

    Attributes:
      is_traced: Whether their trainings are traced too: what is wrong with their values is `Failed` then.
      names: Of those that are traced, any of `CaseInfo.names`; (): all.
    """

    variant: Variant = field(default_factory=Variant)
    is_traced: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Message):
    """Asks to end after what runs."""


# A worker to its chief.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Message):
    """The suites are collected; jobs may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMark:
    """A file as it was when it was read: one with other marks may have other contents."""

    path: str
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Described(Message):
    """Answers `Describe`.

    Attributes:
      cases: Of this variant, each once.
      files: Every file that the answer hangs on: those of the suites, and each Python module that the process has
        loaded from outside the interpreter's and the packages' folders. While their marks stay, so does the answer.
      missing: Files that do not exist, and that would change the answer if they did.
      code_files: Paths of the user's code behind the cases and their optimizers.
      codes: The parts of each fingerprint of the cases' code, by its id.
      edited: Files of it that were edited since the worker imported them.
    """

    variant_key: str
    cases: tuple[CaseInfo, ...]
    files: tuple[FileMark, ...]
    missing: tuple[str, ...] = ()
    code_files: tuple[str, ...] = ()
    codes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    edited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Message):
    """The suites cannot be used.

    Attributes:
      messages: Why, a line each.
      variant_key: Of the variant whose cases cannot be bound: the worker lives on. None: the suites cannot be collected
        at all, and the worker ends.
    """

    messages: tuple[str, ...]
    variant_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Message):
    """How many inner steps the job has done."""

    lease: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Message):
    """A line for people on the job that runs: a saved state that is of no use, say."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(Message):
    """How a job ended.

    Attributes:
      message: One line on what went wrong, "" where nothing did.
      replace: The worker's state is unknown: another should take its place.
      other_code: Parts of the code that the worker has instead of the job's; then nothing was evaluated that counts.
      payload: `Curves.to_payload()`, or b"" where there are none.
    """

    lease: int
    outcome: Outcome
    message: str = ""
    replace: bool = False
    other_code: Mapping[str, str] = field(default_factory=dict)
    payload: bytes = b""


ToWorker: TypeAlias = Job | Command | StopCommand | Describe | Exit
FromWorker: TypeAlias = Ready | Described | Failed | Progress | Remark | JobResult

TO_WORKER: Codec[ToWorker] = Codec(Job, Command, StopCommand, Describe, Exit)
FROM_WORKER: Codec[FromWorker] = Codec(Ready, Described, Failed, Progress, Remark, JobResult)
