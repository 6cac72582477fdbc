"""Case: one inner-training job (task, budget, metrics), one command, or one ordinary test; it is one pytest item."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeAlias

from lobench.core.code import join_code
from lobench.core.configurables import call_of, record_calls
from lobench.core.phases import Phase
from lobench.core.suite_place import SuitePlace

__all__ = [
    "COMMAND",
    "HEADLINES",
    "ITEMS",
    "OPTIMIZER_FIELDS",
    "PASSED",
    "REPLICATES",
    "ROLES",
    "SESSIONS",
    "TEST",
    "AxisPairs",
    "AxisValue",
    "Case",
    "CaseInfo",
    "CaseSpec",
    "Expectations",
    "SeedBlock",
    "Suite",
    "UnboundDefault",
    "all_case_names",
    "axis_text",
    "canonical_case_name",
    "common_replicate_noun",
    "ordinary_test_name",
    "seed_blocks",
    "split_case_path",
]

AxisValue: TypeAlias = int | float | str | tuple[int | float | str | None, ...] | None
AxisPairs: TypeAlias = tuple[tuple[str, AxisValue], ...]  # (axis, value) pairs of one case of `Case.axes`

# Role of a task for a checkpoint: used for its meta-training (or similar to such a task), for its selection, or for
# neither.
ROLES = ("meta_train", "meta_valid", "meta_test")
HEADLINES = ("score", "speedup")
SESSIONS = ("apart", "shared", "synced", "mean")
ITEMS = "items"
REPLICATES = ("seeds", ITEMS)
COMMAND = "command"  # `CaseInfo.evaluator` of a case with `Case.command`
TEST = "test"  # `CaseInfo.evaluator` of a case that is an ordinary test
PASSED = "passed"  # primary metric of a test that records none: 1.0 if it passed, 0.0 if it failed
OPTIMIZER_FIELDS = ("learned_optimizer", "optimizer")  # fields of `Case` and `Phase`
_GIN_NODE = re.compile(r"((?:.*/)?[^/:]+\.gin)::?([^:]+)")  # digits.gin:relu32, suites/quick/digits.gin::relu32
_TEST_NODE = re.compile(r"(?:(.*)/)?[^/:]+\.py(?:::\w+)+\[([^\]]+)\]")  # quick/test_quick.py::test_digits[relu32]
_ORDINARY_NODE = re.compile(r"(?:(?:.*/)?([^/:]+)/)?([^/:]+)\.py::(.+)")  # suites/lm/test_lm.py::test_loss[long]


class UnboundDefault(float):
    """Default of a real-valued parameter that no binding sets."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Case:
    """One inner-training job, or a command that evaluates a checkpoint, as bound by gin or written in Python.

    gin binds each field by its name, so that the fields are not grouped.

    Example:
        relu32/Case.task = @DigitsMLP()
        relu32/Case.num_inner_steps = 500

        perplexity/Case.command = "python eval.py --checkpoint {checkpoint} --seed {seed} --out {out}"
        perplexity/Case.curves = "{out}/metrics.jsonl"
        perplexity/Case.primary_metric = "valid/loss"

    Attributes:
      task: `Task` or `TaskFamily` to train. In Python also gin text, such as `"DigitsMLP(hidden_sizes=(32,))"`.
      learned_optimizer: `LearnedOptimizer` of the case. Usually bound by the run's `config.gin` instead.
      optimizer: optax transformation. If set, the case needs no checkpoint. In Python gin text, such as
        `"adam(learning_rate=0.01)"`.
      num_inner_steps: Number of parameter updates, at least 1.
      num_seeds: Number of seeds. The same seed numbers are used for all checkpoints and optimizers.
      first_seed: Number of the first seed. Not part of the case's identity.
      seed_block: Number of seeds that one program evaluates together. None: all of them.
      block_sizes: Sizes of consecutive seed blocks, in place of `num_seeds`: `(4, 6)` if 6 seeds were added to 4. No
        size is larger than `seed_block`. Not part of the case's identity.
      num_tasks: Number of tasks sampled from a `TaskFamily`. Task i does not depend on it. Ignored for a `Task`.
      sessions: How replicas share parameters:
        "apart": each replica trains its own (default);
        "shared": replicas update one set of parameters in turn;
        "synced": as "shared", with gradients computed on the replica's copy from its previous turn;
        "mean": one update with the mean of the replicas' gradients.
      num_lanes: Number of replicas per seed, unless `sessions` is "apart". The replicas of a seed use the random
        streams of seeds `seed * num_lanes` to `seed * num_lanes + num_lanes - 1`.
      eval_every: Inner steps between evaluations. Step 0 and the last step are always evaluated.
      log_every: Inner steps between records of the training batch before its update: `batch/loss`, and the task's
        other metrics (`batch/accuracy`). 0: none.
      eval_batches: Number of batches averaged per split in an evaluation. 0: no evaluation; `train/NAME` is then the
        mean over the training batches of the last `eval_every` steps (at step 0: the value of the first batch), and
        `train` is the only split.
      primary_metric: Metric shown first, `<split>/<metric>`.
      scale: Scale on which scores of the primary metric are computed, "log" or "linear". None: "log" for losses,
        "linear" otherwise. Not part of the case's identity: changing it re-evaluates nothing.
      minimum: Lowest possible value of the primary metric, if it is not 0. Scores measure the distance above it. Not
        part of the case's identity.
      num_cpus: Number of cores of the inner program, over which replicas are spread. Part of the identity, because it
        affects the bits.
      num_gpus: Number of devices over which replicas are spread, or a fraction of one device.
      timeout_seconds: Time limit for one seed block, including compilation.
      phases: Consecutive parts of the training, each with its own settings. `num_inner_steps` is then the sum of their
        steps. Empty: a single phase. In Python also gin text, such as `"task_sequence(num_tasks=5)"`.
      save_every: Inner steps between saved states, from which a training continues after a kill or a time limit. None:
        about once a minute. 0: never. Not part of the case's identity.
      keep_state: Whether the final state is kept, so that a case with more phases can continue from it. Not part of the
        case's identity.
      time_gradient: Whether the time of a bare gradient step is measured too, once per case and process. Not part of
        the case's identity.
      axes: Values by name, such as `{"width": [8, 32]}`. Each combination is a separate case, in which `%width` is
        bound to its value. In Python the text `"%width"` refers to it.
      stop_after: Fraction of the training after which it stops, between 0 and 1. The result ends with the last
        evaluation before. Set by median stopping (`Method.median_stopping`).
      command: Command that evaluates a checkpoint for one seed, in place of a task. It runs in the folder of the gin
        file. Placeholders: `{checkpoint}` (path of the kept copy), `{step}`, `{run}`, `{seed}`, `{out}` (an empty
        folder), `{devices}` (numbers of the worker's devices, separated by commas), and `{NAME}` for each macro of the
        case's scope, such as `perplexity/NAME = 8`.
      curves: File that the command writes, in any format of `lobench import`, or a JSON object of final values.
      files: Further files whose content belongs to the identity of a command's results, as patterns relative to the
        gin file: `("lib/*.py",)`. The scripts that the command names need not be listed.
      metric_directions: Directions of a command's metrics other than losses and accuracies: `{"bleu": "max"}`.
      replicates: Replicates of a command's evaluation: "seeds", or "items" of a data set. With "items" the command
        runs once, and `curves` is a file with a value for each item: lines such as `{"item": "q17", "correct": 1}`, or
        a CSV with a column `item`. Comparisons are paired by item, and `num_seeds` is ignored.

    >>> lobench.Case(num_inner_steps=500, num_seeds=8).eval_every
    50
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
    command: str = ""
    curves: str = ""
    files: Sequence[str] = ()
    metric_directions: Mapping[str, str] = field(default_factory=dict)
    replicates: str = "seeds"

    def replace(self, **changes: Any) -> Case:
        """Returns a case with other values, as a variant of a case in Python.

        >>> Case(num_inner_steps=500, num_seeds=4).replace(num_seeds=8).num_inner_steps
        500
        """
        call = call_of(self)
        return Case(**{**(call.kwargs if call is not None else {}), **changes})

    @property
    def end(self) -> int:
        """Step at which the training ends.

        With `stop_after`, it is one step after the last evaluation: half of 100 steps, evaluated every 20, ends at 41,
        because an evaluation precedes the step that follows it.
        """
        if self.stop_after is None:
            return self.num_inner_steps
        num_evals = max(int(self.stop_after * self.num_inner_steps) // self.eval_every, 1)
        return min(num_evals * self.eval_every + 1, self.num_inner_steps)


record_calls(Case)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SeedBlock:
    """Consecutive seeds that are evaluated together: the unit of work and of storage.

    >>> SeedBlock(start=5, size=3)
    SeedBlock(start=5, size=3)
    """

    start: int
    size: int

    def __str__(self) -> str:
        return f"{self.start}+{self.size}"

    @property
    def seeds(self) -> range:
        return range(self.start, self.start + self.size)

    @property
    def seed_range_text(self) -> str:
        """The seeds as tables show them, such as `0-3`."""
        return f"{self.start}-{self.start + self.size - 1}"

    @property
    def bindings(self) -> tuple[str, ...]:
        """gin bindings that restrict a case to this block."""
        return f"Case.first_seed = {self.start}", f"Case.block_sizes = ({self.size},)"

    def halves(self) -> tuple[SeedBlock, SeedBlock]:
        """Splits a block of at least two seeds into halves. The first half is larger by one if the size is odd."""
        if self.size < 2:
            raise ValueError(f"a block of {self.size} seed cannot be halved")
        first_size = (self.size + 1) // 2
        return SeedBlock(start=self.start, size=first_size), SeedBlock(
            start=self.start + first_size, size=self.size - first_size
        )


def seed_blocks(
    num_seeds: int, seed_block: int | None, first_seed: int = 0, block_sizes: Sequence[int] = ()
) -> Iterator[SeedBlock]:
    """Yields the blocks of a case in order; the last one may be smaller."""
    for count in block_sizes or (num_seeds,):
        size = seed_block or count
        for start in range(0, count, size):
            yield SeedBlock(start=first_seed + start, size=min(size, count - start))
        first_seed += count


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseInfo:
    """Description of a case that needs no task or optimizer object. Chief, ledger and analysis use it.

    Its fields are the keys of its JSON in stores and messages, which has no groups.

    A store omits fields that have their default. So the default of a field must never change, and the default of a new
    field must describe the cases in older stores.

    Attributes:
      identity: sha256 (hex) over the suite-relative path, scope, test name and every binding that the case reaches,
        except those of the optimizer.
      optimizer_hash: sha256 (hex) of the bindings that the optimizer reaches.
      program_hash: sha256 (16 hex digits) of the optimizer's bindings without the values of real-valued settings, which
        are arguments of the compiled program. "" in stores of older versions.
      suite: Name of the suite's folder, or of the file if it is in no suite folder.
      name: Scope of the case, preceded by the file's stem if the suite has the scope twice.
      node_id: Node id in the worker's pytest session.
      num_inner_steps, seed_block, primary_metric, scale, minimum, num_cpus, num_gpus: As in `Case`.
      timeout_seconds, first_seed, block_sizes: As in `Case`.
      num_seeds: As in `Case`; if there are `block_sizes`, their sum.
      role: Role of the case for the evaluated checkpoint, one of `ROLES`; "" if the suite has none.
      whole: Identity of the whole training if this is a part of one (`Case.stop_after`); "" otherwise.
      headline: Quantity that reports of the suite show first, one of `HEADLINES`.
      problem: sha256 (hex) of the task, its data and the number of steps. A baseline is comparable if it is equal;
        number of seeds, time limits and expectations do not count. "" in stores of older versions.
      file, own_name: File and name as in `CaseSpec`, such as `digits` and `relu32`. "" in stores of older versions.
      places: Recorded locations of the suite, the latest first. Not part of a row.
      case_code, subject_code: Fingerprints of the user's code (`lobench.core.code`) behind task and test, and behind
        the optimizer. Not part of the key. "" without such code, and in stores of older versions.
      task_code: Fingerprint of the code behind the task alone, on which a tuned baseline depends.
      evaluator: Kind of the evaluation: "" for a training by lobench, "command" for a command, "test" for an ordinary
        test.
      fixed_seeds: Whether the case is never evaluated on further seeds: an ordinary test that does not read
        `record.seeds`, a command with one seed and no placeholder `{seed}`, or a case with items.
      replicates: As in `Case`. With "items", the only seed block is `0+1`, and its curves have a row for each item.

    >>> case = lobench.open_results("results").rows[0].case
    >>> case.name, [(block.start, block.size) for block in case.blocks()]
    ('a', [(0, 3)])
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
    evaluator: str = ""
    fixed_seeds: bool = False
    replicates: str = "seeds"

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_sizes", tuple(self.block_sizes))  # JSON has no tuples

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the case; see `all_case_names`."""
        node = PurePath(self.node_id.partition("::")[0])
        file = self.file or (node.stem if node.suffix == ".gin" else "")
        own_name = self.own_name or self.name
        names = all_case_names(self.suite, file, own_name, self.name)
        function, bracket, _ = own_name.partition("[")
        if self.evaluator == TEST and bracket:  # a test's name without parameters stands for all of them
            names = (*all_case_names(self.suite, file, function), *names)
        return names

    @property
    def has_only_outcome(self) -> bool:
        """Whether the case is a test without metrics, so that only its outcome is compared."""
        return self.evaluator == TEST and self.primary_metric == PASSED

    def has_name(self, name: str) -> bool:
        """Returns whether a name, in any spelling that lobench or pytest prints, names this case."""
        spellings = {name, canonical_case_name(name)}
        if self.evaluator == TEST:
            spellings.add(ordinary_test_name(name))
        return not spellings.isdisjoint(self.names)

    @property
    def has_items(self) -> bool:
        """Whether its values belong to items of a data set rather than to seeds."""
        return self.replicates == ITEMS

    @property
    def replicate_noun(self) -> str:
        """Noun for one of its replicates: "seed" or "item"."""
        return self.replicates.removesuffix("s")

    @property
    def key(self) -> str:
        """Identity of the case and of its optimizer's bindings."""
        return f"{self.identity}:{self.optimizer_hash}"

    @property
    def code(self) -> str:
        """Both fingerprints as one text; see `join_code`."""
        return join_code(self.case_code, self.subject_code)

    @property
    def program_key(self) -> str:
        """Key of the compiled program. Cases with equal keys share one compilation."""
        return f"{self.whole or self.identity}:{self.program_hash or self.optimizer_hash}"

    @property
    def whole_training_key(self) -> str:
        """Key of the whole training, with which its parts share saved states."""
        return f"{self.whole or self.identity}:{self.optimizer_hash}"

    def blocks(self) -> list[SeedBlock]:
        return list(seed_blocks(self.num_seeds, self.seed_block, self.first_seed, self.block_sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """Expectations of a case in a `.gin` file without a test, such as `relu32/expect.max_final_loss = 0.5`.

    Attributes:
      max_final_loss: Upper bound of the final `train/loss`, averaged over seeds.
      max_final_test_loss: Upper bound of the final `test/loss`, averaged over seeds.
      min_final_accuracy: Lower bound of the final `test/accuracy`, averaged over seeds.
      max_final, min_final: Upper and lower bound of the final value of the primary metric, averaged over seeds.
      no_divergence: Whether a seed with a non-finite loss fails the case.
      margin: Loss of score that a gate tolerates on this case. None: the margin of the gate. Also used for cases with
        a test.
    """

    max_final_loss: float | None = None
    max_final_test_loss: float | None = None
    min_final_accuracy: float | None = None
    max_final: float | None = None
    min_final: float | None = None
    no_divergence: bool = False
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Settings of all cases of a gin file (`Suite.role = "meta_test"`), or of one (`relu32/Suite.role = ...`).

    Attributes:
      role: Role of the tasks for a checkpoint: one of `ROLES`, or "".
      roles: Roles for single learned optimizers, by name in gin: `{"Celo": "meta_train"}`. They override `role`.
      headline: Quantity that reports show first: "score", or "speedup" (VeLO's speedup over the envelope of tuned
        baselines, with the interquartile mean of the score).
    """

    role: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    headline: str = HEADLINES[0]

    def role_for(self, optimizer: str) -> str:
        return self.roles.get(optimizer, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSpec:
    """Place of a case in a file. Enough to collect the case without importing its task.

    Attributes:
      path: Absolute path of the `.gin` file that has the case, or would have it if it is written in Python; or of the
        `.py` file of an ordinary test.
      scope: gin scope that binds `Case.task` or `Case.command`, or the part of a test's node id after its file.
      root: Folder above the suite. The path in a case's identity is relative to it.
      cell: Combination of the values of `Case.axes`; empty if the scope has no axes.
      text: gin text of a case in Python, in place of the file, which does not exist; "" for a case of a file.

    >>> [spec.scope for spec in specs_in(Path("quadratic.gin"))]
    ['small']
    """

    path: str
    scope: str
    root: str
    cell: AxisPairs = ()
    text: str = ""

    @property
    def name(self) -> str:
        """Name of the case in its file, such as `relu32`, or `grid-width8-horizon100` with axes."""
        return "-".join((self.scope, *(f"{axis}{axis_text(value)}" for axis, value in self.cell)))

    @property
    def is_test(self) -> bool:
        """Whether the case is an ordinary test, without a case in a gin file."""
        return PurePath(self.path).suffix == ".py"

    @property
    def file(self) -> str:
        """Name of the file without its suffix."""
        return PurePath(self.path).stem

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the case; see `all_case_names`."""
        return all_case_names(self.suite, self.file, self.name)

    def has_name(self, name: str) -> bool:
        """Returns whether a name is the name of this case, or of its scope, which means all cases of the scope."""
        scope_names = all_case_names(self.suite, self.file, self.scope) if self.cell else ()
        spellings = {name, canonical_case_name(name)}
        if self.is_test:
            spellings.add(ordinary_test_name(name))
        return not spellings.isdisjoint((*self.names, *scope_names))

    @property
    def relative_path(self) -> str:
        return PurePath(self.path).relative_to(self.root).as_posix()

    @property
    def suite(self) -> str:
        """Name of the folder that contains the file, or of the file if that folder is the root."""
        relative = PurePath(self.relative_path)
        return relative.parent.name or relative.stem


def common_replicate_noun(cases: Iterable[CaseInfo]) -> str:
    """Returns the noun for the replicates of several cases: "item" if all have items, "value" if some, else "seed"."""
    nouns = {case.replicate_noun for case in cases} or {"seed"}
    return nouns.pop() if len(nouns) == 1 else "value"


def split_case_path(text: str) -> tuple[str, str]:
    """Splits a text into the path before a case's name, which may be "", and the name.

    >>> [split_case_path(text) for text in ("relu32", "suites/quick/relu32", "quick/digits.gin::relu32")]
    [('', 'relu32'), ('suites/quick', 'relu32'), ('quick/digits.gin', 'relu32')]
    """
    if node := _GIN_NODE.fullmatch(text) or _TEST_NODE.fullmatch(text):
        return node[1] or "", node[2]
    folder, _, name = text.rpartition("/")
    return folder, name


def canonical_case_name(text: str) -> str:
    """Returns a case's name from any spelling that lobench or pytest prints. It is one of `all_case_names`.

    >>> [canonical_case_name(text) for text in ("relu32", "suites/quick/relu32", "digits.gin:relu32")]
    ['relu32', 'quick/relu32', 'digits.relu32']
    >>> canonical_case_name("suites/quick/digits.gin::relu32")
    'quick/digits.relu32'
    >>> canonical_case_name("quick/test_quick.py::test_digits[relu32]")
    'quick/relu32'
    """
    folder, name = split_case_path(text)
    path = PurePath(folder)
    if path.suffix == ".gin":
        path, name = path.parent, f"{path.stem}.{name}"
    return f"{path.name}/{name}" if path.name else name


def ordinary_test_name(text: str) -> str:
    """Returns the name of an ordinary test's case from a node id of pytest. Other texts are returned unchanged.

    >>> [ordinary_test_name(text) for text in ("test_loss", "suites/lm/test_lm.py::test_loss[long]")]
    ['test_loss', 'lm/test_lm.test_loss[long]']
    """
    node = _ORDINARY_NODE.fullmatch(text)
    if node is None:
        return text
    suite, file, name = node.groups()
    return f"{suite}/{file}.{name}" if suite else f"{file}.{name}"


def all_case_names(suite: str, file: str, *names: str) -> tuple[str, ...]:
    """Returns all names of a case: `relu32`, `digits.relu32`, `quick/relu32` and `quick/digits.relu32`.

    Args:
      suite: Name of the suite.
      file: Name of the case's file without `.gin`; "" if unknown.
      names: Name of the case in that file, then its name in a store if that is different.
    """
    short_names = dict.fromkeys((names[0], *([f"{file}.{names[0]}"] if file else ()), *names[1:]))
    return (*short_names, *(f"{suite}/{name}" for name in short_names))


def axis_text(value: AxisValue) -> str:
    """Returns the text of a value in names of cases: `8`, `0.001`, `relu`, and `32x32` for a tuple."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
