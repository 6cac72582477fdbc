"""Case: task x budget x metrics, one pytest item."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeAlias

from lobench.core.code import joined_code
from lobench.core.phases import Phase
from lobench.core.suite_place import SuitePlace

__all__ = [
    "HEADLINES",
    "OPTIMIZER_FIELDS",
    "ROLES",
    "SESSIONS",
    "AxisValue",
    "Case",
    "CaseInfo",
    "CaseSpec",
    "Cell",
    "Expectations",
    "LeftToDefault",
    "SeedBlock",
    "Suite",
    "axis_text",
    "case_name",
    "names_of",
    "seed_blocks",
    "split_case",
]

AxisValue: TypeAlias = int | float | str | tuple[int | float | str | None, ...] | None
Cell: TypeAlias = tuple[tuple[str, AxisValue], ...]  # of a case's axes: a value of each by its name

# What tasks are to a checkpoint: it was meta-trained on them, or on nearly the same; it was chosen by them; neither.
ROLES = ("meta_train", "meta_valid", "meta_test")
HEADLINES = ("score", "speedup")
SESSIONS = ("apart", "shared", "synced", "mean")
OPTIMIZER_FIELDS = ("learned_optimizer", "optimizer")  # of `Case` and of `Phase`
_GIN_NODE = re.compile(r"((?:.*/)?[^/:]+\.gin)::?([^:]+)")  # digits.gin:relu32, suites/quick/digits.gin::relu32
_TEST_NODE = re.compile(r"(?:(.*)/)?[^/:]+\.py(?:::\w+)+\[([^\]]+)\]")  # quick/test_quick.py::test_digits[relu32]


class LeftToDefault(float):
    """Value of a real-valued parameter that nothing binds: the default of its signature."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One inner-training job, as gin binds it (`relu32/Case.task = @DigitsMLP()`).

    Attributes:
      task: Task or TaskFamily to train.
      learned_optimizer: LearnedOptimizer; comes from the run unless the case insists.
      optimizer: An optax transformation used as it is, without theta.
      num_inner_steps: Updates of the inner parameters, >= 1.
      num_seeds: Seeds first_seed .. first_seed+num_seeds-1, common to all checkpoints and optimizers.
      first_seed: Where they begin; no part of the case's identity.
      seed_block: Seeds that one program evaluates together; None: all of them.
      block_sizes: Seeds of one block after another, in place of num_seeds, as an experiment's sessions are added: 4,
        then 6 more: `(4, 6)`. None of them is wider than seed_block. No part of the case's identity.
      num_tasks: Tasks sampled from a TaskFamily; task i is the same whatever num_tasks. Ignored for a Task.
      sessions: "apart": each replica trains parameters of its own. Otherwise `num_lanes` replicas train one set of
        parameters, and an inner step is a round in which each takes a turn. "shared": a turn uses the parameters as the
        turn before has left them. "synced": a turn's gradient is that of the replica's copy from its own last turn.
        "mean": one update by the mean of the replicas' gradients.
      num_lanes: How many replicas that is. A seed counts such a group, and its replicas read the streams of the seeds
        `seed * num_lanes` and those that follow.
      eval_every: Inner steps between evaluations; step 0 and the last step are always evaluated.
      log_every: Inner steps between records of the training batch itself, before its update: its loss (`batch/loss`)
        and each metric that the task gives beside it (`batch/accuracy`); 0: none.
      eval_batches: Batches of each split that an evaluation averages. 0: nothing is evaluated, and `train/NAME` is the
        mean of the training batches' NAME over the last `eval_every` steps (at step 0: NAME of the first batch). No
        other split has metrics then, and the last update is not looked at.
      primary_metric: The metric that headlines show, `<split>/<metric>`.
      scale: `log` or `linear`: what the scores of the primary metric are shares of; None: a loss has a log scale, and
        everything else a linear one. Like `minimum` it is no part of what is trained: after a change `lobench baseline`
        takes seconds, and nothing is evaluated again.
      minimum: The lowest value that the primary metric can have, where that is not 0; scores are of what is above it.
      num_cpus: Cores of the inner program, over which its replicas are spread; part of what fixes the bits.
      num_gpus: Devices, over which replicas are spread, or a share of one.
      timeout_seconds: Deadline of one seed block, compilation included.
      phases: Parts of the training one after another, each with settings of its own; `num_inner_steps` is then the sum
        of theirs, whatever else is bound. None: the training is one phase.
      save_every: Inner steps between saves of a training's state, from which it goes on after a kill or a deadline;
        None: about every minute of work, 0: never. Like `keep_state` it fixes no bit and is no part of the identity.
      keep_state: Whether the state at the end stays, so that a case of more phases goes on from it.
      time_gradient: Whether the time of a bare gradient step is measured beside that of the optimizer's own, once for
        each case in a process; it fixes no bit either.
      axes: Values by name, `{"width": [8, 32]}`: each cell is a case of its own, in which `%width` is its value.
      stop_after: Share of the training after which it ends, 0 < share < 1: its result is what it gave up to the last
        evaluation before. Another training than the whole one, which goes on from its state. Searches bind it
        (`Method.median_stopping`).
    """

    task: Any = None
    learned_optimizer: Any = None
    optimizer: Any = None
    num_inner_steps: int = 1000
    num_seeds: int = 4
    first_seed: int = 0
    seed_block: int | None = None
    block_sizes: tuple[int, ...] = ()
    num_tasks: int = 4
    sessions: str = "apart"
    num_lanes: int | None = None
    eval_every: int = 50
    log_every: int = 0
    eval_batches: int = 5
    primary_metric: str = "train/loss"
    scale: str | None = None
    minimum: float | None = None
    num_cpus: int = 1
    num_gpus: float = 0.0
    timeout_seconds: float = 3600.0
    phases: Sequence[Phase] = ()
    save_every: int | None = None
    keep_state: bool = False
    time_gradient: bool = False
    axes: Mapping[str, Sequence[Any]] | None = None
    stop_after: float | None = None

    @property
    def end(self) -> int:
        """The step at which the training ends; a part of one ends a step behind its last evaluation.

        Of 100 steps that are evaluated every 20, half ends at 41: an evaluation comes before the step that follows it.
        """
        if self.stop_after is None:
            return self.num_inner_steps
        num_evals = max(int(self.stop_after * self.num_inner_steps) // self.eval_every, 1)
        return min(num_evals * self.eval_every + 1, self.num_inner_steps)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeedBlock:
    """Seeds `start .. start+size-1`, evaluated together: the unit of work and of storage."""

    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.start}+{self.size}"

    @property
    def seeds(self) -> range:
        return range(self.start, self.start + self.size)

    @property
    def span(self) -> str:
        """The seeds as tables have them: `0-3`."""
        return f"{self.start}-{self.start + self.size - 1}"

    def halves(self) -> tuple[SeedBlock, SeedBlock]:
        """Splits a block of two or more seeds; the first half takes the odd one."""
        if self.size < 2:
            raise ValueError(f"a block of {self.size} seed cannot be halved")
        first = (self.size + 1) // 2
        return SeedBlock(start=self.start, size=first), SeedBlock(start=self.start + first, size=self.size - first)


def seed_blocks(
    num_seeds: int, seed_block: int | None, first_seed: int = 0, block_sizes: Sequence[int] = ()
) -> Iterator[SeedBlock]:
    """Yields the blocks of a case in order; the last one may be smaller."""
    for count in block_sizes or (num_seeds,):
        size = seed_block or count
        for start in range(0, count, size):
            yield SeedBlock(start=first_seed + start, size=min(size, count - start))
        first_seed += count


@functools.lru_cache(maxsize=1024)  # asked for at each evaluation
def _blocks(
    num_seeds: int, seed_block: int | None, first_seed: int, block_sizes: tuple[int, ...]
) -> tuple[SeedBlock, ...]:
    return tuple(seed_blocks(num_seeds, seed_block, first_seed, block_sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInfo:
    """What the chief knows of a case without building it.

    A store leaves out what is a default: the default of a field never changes, and of a new one it is what the cases of
    older stores were.

    Attributes:
      identity: sha256 (hex) over suite-relative path, scope, test name and every binding reached from the case,
        the optimizer's excepted.
      optimizer_hash: sha256 (hex) of the bindings reached from the optimizer.
      program_hash: sha256 (16 hex digits) of all that the optimizer's program hangs on: of what it reaches without the
        values of real-valued settings, which are the program's arguments. Empty in stores of an older lobench.
      suite: Name of the suite's folder (or of the file, for a bare one).
      name: Scope of the case, with the file's stem where the suite has the name twice.
      node_id: pytest's node id in the worker's session.
      primary_metric, scale, minimum, block_sizes: As `Case`; num_seeds is the sum of the sizes, where there are any.
      role: What the case is to whom it evaluates, one of ROLES; "" where its suite does not say.
      whole: Identity of the whole training, where this is a part of one (`Case.stop_after`); else "".
      headline: What reports of its suite begin with, one of HEADLINES.
      problem: sha256 (hex) of what is trained and for how long: a baseline is comparable where it is equal, whatever
        the number of seeds, the deadlines and the test's expectations. Empty in stores of an older lobench.
      file, own_name: As `CaseSpec` says them: `digits` and `relu32`. Empty in stores of an older lobench.
      places: Places of its suite that the store knows it was read from, the last one first. Not part of a row.
      case_code, subject_code: Fingerprints of the user's code (`lobench.core.code`) behind task and test, and behind
        the optimizer. No part of the key. "" if there is no such code, and in stores of an older lobench.
      task_code: The same of the task alone, which is what a tuned baseline was trained on.
    """

    identity: str
    optimizer_hash: str
    suite: str
    name: str
    node_id: str
    num_inner_steps: int
    num_seeds: int
    seed_block: int | None
    primary_metric: str = "train/loss"
    num_cpus: int = 1
    num_gpus: float = 0.0
    timeout_seconds: float = 3600.0
    first_seed: int = 0
    problem: str = ""
    scale: str | None = None
    minimum: float | None = None
    block_sizes: tuple[int, ...] = ()
    program_hash: str = ""
    role: str = ""
    whole: str = ""
    headline: str = HEADLINES[0]
    file: str = ""
    own_name: str = ""
    places: tuple[SuitePlace, ...] = field(default=(), compare=False, repr=False)
    case_code: str = ""
    subject_code: str = ""
    task_code: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_sizes", tuple(self.block_sizes))  # JSON knows lists alone

    @property
    def names(self) -> tuple[str, ...]:
        """All that people may call it; see `names_of`."""
        node = PurePath(self.node_id.partition("::")[0])
        file = self.file or (node.stem if node.suffix == ".gin" else "")
        return names_of(self.suite, file, self.own_name or self.name, self.name)

    def is_called(self, name: str) -> bool:
        """Says whether a name, in any spelling that lobench prints, is one of its own."""
        return name in self.names or case_name(name) in self.names

    @property
    def key(self) -> str:
        """Identity of the case together with its optimizer's bindings."""
        return f"{self.identity}:{self.optimizer_hash}"

    @property
    def code(self) -> str:
        """Both fingerprints as one text; see `joined_code`."""
        return joined_code(self.case_code, self.subject_code)

    @property
    def program_key(self) -> str:
        """What names its compiled program: one that has it is warm for every case with the same."""
        return f"{self.whole or self.identity}:{self.program_hash or self.optimizer_hash}"

    @property
    def whole_key(self) -> str:
        """The key of the whole training, whose states those of its parts are."""
        return f"{self.whole or self.identity}:{self.optimizer_hash}"

    def blocks(self) -> list[SeedBlock]:
        return list(_blocks(self.num_seeds, self.seed_block, self.first_seed, self.block_sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What a bare `.gin` case expects (`relu32/expect.max_final_loss = 0.5`); `margin` counts for any case.

    Attributes:
      margin: Harm that a gate tolerates on this case; None: the session's.
      max_final_loss: Upper bound of the seed mean of the final `train/loss`.
      max_final_test_loss: The same of `test/loss`.
      min_final_accuracy: Lower bound of the seed mean of the final `test/accuracy`.
      no_divergence: No seed may meet a non-finite loss.
    """

    max_final_loss: float | None = None
    max_final_test_loss: float | None = None
    min_final_accuracy: float | None = None
    no_divergence: bool = False
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What a gin file says of all its cases (`Suite.role = "meta_test"`), or of one (`relu32/Suite.role = ...`).

    Attributes:
      role: What the tasks are to a checkpoint: one of ROLES, or "".
      roles: The same of single learned optimizers, by their names in gin, `{"Celo": "meta_train"}`; they win over role.
      headline: What reports begin with: "score"; or "speedup", VeLO's over the envelope of tuned baselines, and the
        interquartile mean of the score.
    """

    role: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    headline: str = HEADLINES[0]

    def role_for(self, optimizer: str) -> str:
        return self.roles.get(optimizer, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """Where a case is written; enough to collect it, without importing what it names.

    Attributes:
      path: Absolute path of the `.gin` file.
      scope: gin scope that binds `Case.task`.
      root: Folder above the suite; what the identity's path is relative to.
      cell: Of `Case.axes`: which of the scope's cases this is; empty where it has no axes.
    """

    path: str
    scope: str
    root: str
    cell: Cell = ()

    @property
    def name(self) -> str:
        """The case's name in its file: `relu32`, or of a cell `grid-width8-horizon100`."""
        return "-".join((self.scope, *(f"{axis}{axis_text(value)}" for axis, value in self.cell)))

    @property
    def file(self) -> str:
        """Name of its file, without `.gin`."""
        return PurePath(self.path).stem

    @property
    def names(self) -> tuple[str, ...]:
        """All that people may call it; see `names_of`."""
        return names_of(self.suite, self.file, self.name)

    def is_called(self, name: str) -> bool:
        """Says whether a name is one of its own, or its scope's, which all cells of the scope go by."""
        scope_names = names_of(self.suite, self.file, self.scope) if self.cell else ()
        return any(one in self.names or one in scope_names for one in (name, case_name(name)))

    @property
    def relative_path(self) -> str:
        return PurePath(self.path).relative_to(self.root).as_posix()

    @property
    def suite(self) -> str:
        """Name of the folder that the file is in, or of the file where it lies in the root itself."""
        relative = PurePath(self.relative_path)
        return relative.parent.name or relative.stem


def split_case(text: str) -> tuple[str, str]:
    """Returns the path before a case's name, "" if there is none, and the name.

    >>> [split_case(text) for text in ("relu32", "suites/quick/relu32", "quick/digits.gin::relu32")]
    [('', 'relu32'), ('suites/quick', 'relu32'), ('quick/digits.gin', 'relu32')]
    """
    if node := _GIN_NODE.fullmatch(text) or _TEST_NODE.fullmatch(text):
        return node[1] or "", node[2]
    place, _, name = text.rpartition("/")
    return place, name


def case_name(text: str) -> str:
    """Returns a case's name from any spelling that lobench or pytest prints: one of `names_of` for a case of that name.

    >>> [case_name(text) for text in ("relu32", "suites/quick/relu32", "digits.gin:relu32")]
    ['relu32', 'quick/relu32', 'digits.relu32']
    >>> [case_name(text) for text in ("suites/quick/digits.gin::relu32", "quick/test_quick.py::test_digits[relu32]")]
    ['quick/digits.relu32', 'quick/relu32']
    """
    place, name = split_case(text)
    path = PurePath(place)
    if path.suffix == ".gin":
        path, name = path.parent, f"{path.stem}.{name}"
    return f"{path.name}/{name}" if path.name else name


def names_of(suite: str, file: str, *names: str) -> tuple[str, ...]:
    """Returns all that people may call a case: `relu32`, `digits.relu32`, `quick/relu32` and `quick/digits.relu32`.

    Args:
      file: Of the case, without `.gin`; "" where nobody knows it.
      names: Its own in that file; then what a store calls it, where that is another one.
    """
    short = dict.fromkeys((names[0], *([f"{file}.{names[0]}"] if file else ()), *names[1:]))
    return (*short, *(f"{suite}/{name}" for name in short))


def axis_text(value: AxisValue) -> str:
    """Returns how names of cases say a value: `8`, `0.001`, `relu`, and `32x32` for a tuple."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
