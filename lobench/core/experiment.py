"""Experiment: methods x cases x sessions, and the evaluations that it consists of."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lobench.core.case import OPTIMIZER_FIELDS, CaseInfo, SeedBlock
from lobench.core.history import EvaluationId
from lobench.core.number_checks import DEVICE_SHARE, integer_text, is_device_share, is_integer
from lobench.core.search.space import Parameter, Value

__all__ = [
    "METHOD_KINDS",
    "Experiment",
    "Method",
    "Race",
    "Search",
    "SessionBlocks",
    "SessionMember",
    "expected_value_text",
    "is_fixed",
    "session_blocks",
    "session_members",
]

# A method sets one field of these names. A script is a command with curves.
MethodKind = Literal["optimizer", "checkpoint", "command", "curves", "script"]
METHOD_KINDS: tuple[MethodKind, ...] = tuple(kind for kind in get_args(MethodKind) if kind != "script")

_HASH_DIGITS = 8
_BLOCKS = re.compile(r"(?:Case\.first_seed = (\d+)\n)?Case\.block_sizes = \(([\d, ]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Search of a method: `Method.search = @tpe/optuna()`, with the keyword `tpe/optuna.sampler = "tpe"`."""

    name: str
    keywords: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Rules of a race: `Experiment.race = @race()`, with the keyword `race.margin = 0.02`.

    Attributes:
      rounds: Largest number of rounds.
      block: Number of seeds in a round.
      margin: The race ends once no remaining method can be better than the leader by more than this score.
      alpha: Probability, over the whole race, of dropping any method in favour of one that is not better.
      first_seed: First seed of all cases. None: that of each case.
    """

    rounds: int
    block: int = 2
    margin: float = 0.0
    alpha: float = 0.05
    first_seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of an experiment: `adam/Method.optimizer = @adam()` is the method `adam`.

    A method has one of `optimizer`, `checkpoint`, `command` and `curves`; a script has both `command` and `curves`.
    gin binds each field by its name, so that the fields are not grouped.

    Attributes:
      name: gin scope of the method.
      optimizer: Text of an optimizer without theta, such as `@adam()`.
      checkpoint: Path of a checkpoint, relative to the experiment's file.
      command: Command that meta-trains and writes checkpoints, or a script that writes curves. `{session}` is replaced
        by the seed, `{folder}` or `{out}` by the output folder, `{gin}` by a gin file of the method's bindings, and
        `{NAME}` by the value bound to NAME in the method's scope.
      checkpoints: Which checkpoints of a command are evaluated, "last" or "all".
      curves: Pattern of files with curves, relative to the experiment's file, followed by `#METHOD` if the files have
        several methods. For a script, the file that it writes, such as `{out}/curves.jsonl`.
      metrics: Metrics to import from curves, as NAME or NAME=AS: `val_loss=test/loss`.
      pattern, case_from, method_from, seed_from: For curves, as the options of `lobench import`.
      paired_seeds: For curves, whether equal seed numbers are equal random draws in all files that set this.
      last_counts: For curves, whether the last value counts if a run has a step twice.
      until_step: For curves, the step at which they end. None: that of their case.
      python: Python of another environment that has the optimizer, relative to the experiment's file. "": the present
        environment.
      label: Name in tables. "": the name.
      knobs: Settings of an optimizer or a checkpoint that an ablation varies, each a line of gin in the method's scope,
        or several separated by semicolons. The method itself is evaluated without them.
      files: Further files on which the results of a command depend, as patterns relative to the experiment's file:
        `"lib/*.py"`.
      code: Fingerprint of the script and files of a command. None: the store has results from before fingerprints.
      bindings: gin lines of the method's scope that are bound over the cases, without the scope.
      trainer_bindings: All gin lines of the method's scope, which are the content of `{gin}`.
      num_cpus, num_gpus: Cores and devices that a command uses.
      search: Search that proposes values for `space`. None: the method has no search.
      space: Parameters to search, by the gin path of their binding, in the order of the file.
      num_trials: Number of trials. None: all points of a grid.
      wave: Number of trials that are proposed together. None: the number of the machine's slots when the search begins.
      median_stopping: Fraction of the training at which trials below the median stop. None: no trial stops.
      report_sessions: Number of fresh seeds on which the best trial is evaluated. None: the number of each case.
        0: it is not evaluated again.
    """

    name: str = ""
    optimizer: str = ""
    checkpoint: str = ""
    command: str = ""
    checkpoints: str = "last"
    curves: str = ""
    metrics: Sequence[str] = ()
    pattern: str = ""
    case_from: str = ""
    method_from: str = ""
    seed_from: Sequence[str] = ()
    paired_seeds: bool = False
    until_step: int | None = None
    last_counts: bool = False
    python: str = ""
    label: str = ""
    files: Sequence[str] = ()
    code: str | None = ""
    knobs: Sequence[str] = ()
    bindings: tuple[str, ...] = ()
    trainer_bindings: tuple[str, ...] = ()
    num_cpus: int = 1
    num_gpus: float = 0.0
    search: Search | None = None
    space: tuple[Parameter, ...] = ()
    num_trials: int | None = None
    wave: int | None = None
    median_stopping: float | None = None
    report_sessions: int | None = None

    @property
    def kind(self) -> MethodKind:
        if self.command and self.curves:
            return "script"
        return next((kind for kind in METHOD_KINDS if getattr(self, kind)), "command")

    @property
    def title(self) -> str:
        return self.label or self.name

    def trial_label(self, number: int | str) -> str:
        """Returns the label of a trial's subject: `adam trial 7`."""
        return f"{self.title} trial {number}"

    @property
    def entry(self) -> str:
        """The entry as written in the file: optimizer, path, command or pattern."""
        if self.kind == "script":
            return f"{self.command}; {self.curves}"
        entry: str = getattr(self, self.kind)
        return entry

    @property
    def values(self) -> dict[str, str]:
        """Values bound in the scope, as text for a command line, by gin path: `{lr}` for `mine/lr = 0.1`."""
        pairs = (line.partition(" = ") for line in self.trainer_bindings)
        return {path: _unquoted(value) for path, _, value in pairs}

    @property
    def subject(self) -> str:
        """The part of the entry that identifies the method's evaluations."""
        return "\n".join((self.kind, self.entry, *sorted(self.trainer_bindings)))

    @property
    def folder_name(self) -> str:
        """Name of the folder of a command's sessions.

        It depends on the method's bindings, values and code, and on the command with absolute paths shortened to their
        last parts. A trial `mine/3` has the folder of `mine` with the values of the trial.
        """
        subject = self.subject if self.code is None else self.subject.replace(self.entry, _without_folders(self.entry))
        code = f"-{self.code[:_HASH_DIGITS]}" if self.code else ""
        return f"{self.name.partition('/')[0]}-{hashlib.sha256(subject.encode()).hexdigest()[:_HASH_DIGITS]}{code}"

    def with_values(self, values: Mapping[str, Value]) -> Method:
        """Returns the method of a trial: without a search, and with values in place of the parameters to search.

        Args:
          values: Values by gin path. A parameter without a value is inactive, and its binding is removed.
        """
        paths = {parameter.path for parameter in self.space}

        def with_trial_values(lines: Iterable[str]) -> tuple[str, ...]:
            pairs = [(line.partition(" = ")[0], line) for line in lines]
            return tuple(
                f"{path} = {values[path]!r}" if path in paths else line
                for path, line in pairs
                if path not in paths or path in values
            )

        return replace(
            self,
            bindings=with_trial_values(self.bindings),
            trainer_bindings=with_trial_values(self.trainer_bindings),
            search=None,
            space=(),
            num_trials=None,
            wave=None,
            median_stopping=None,
            report_sessions=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Methods x cases x sessions.

    Attributes:
      name: Name of the experiment and of its store.
      suites: Absolute paths of suite folders and gin files.
      methods: Methods to compare.
      num_sessions: Number of seeds of every case, for all methods. None: that of each case.
      first_session: First seed.
      fixed: Patterns of bindings that must not differ between methods. `Case.*` stands for all bindings that a case
        reaches, except those of its optimizer.
      race: Rules by which methods drop out. None: every method is trained on all seeds.
    """

    name: str = ""
    suites: Sequence[str] = ()
    methods: tuple[Method, ...] = ()
    num_sessions: int | None = None
    first_session: int = 0
    fixed: Sequence[str] = ("Case.*",)
    race: Race | None = None

    @property
    def sessions(self) -> range | None:
        """Seeds of the experiment. None: those of each case."""
        if self.num_sessions is None:
            return None
        return range(self.first_session, self.first_session + self.num_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBlocks:
    """Consecutive seed blocks, bound as `Case.first_seed` and `Case.block_sizes`.

    Attributes:
      first_seed: First seed. None: that of each case.
      widths: Number of seeds of each block.
    """

    first_seed: int | None
    widths: tuple[int, ...]

    @property
    def bindings(self) -> tuple[str, ...]:
        first_seed_lines = () if self.first_seed is None else (f"Case.first_seed = {self.first_seed}",)
        return *first_seed_lines, f"Case.block_sizes = {self.widths!r}"

    @classmethod
    def parse_last_lines(cls, lines: Sequence[str]) -> tuple[SessionBlocks | None, tuple[str, ...]]:
        """Parses the seed blocks from the last one or two gin lines, as written by `bindings`.

        Returns:
          The blocks and the lines before them. (None, all lines) if the last lines bind no blocks.
        """
        for count in (2, 1):
            match = _BLOCKS.fullmatch("\n".join(lines[-count:]))
            if match is not None:
                first_seed_text, widths = match.groups()
                sizes = tuple(map(int, re.findall(r"\d+", widths)))
                first_seed = None if first_seed_text is None else int(first_seed_text)
                return cls(first_seed=first_seed, widths=sizes), tuple(lines[:-count])
        return None, tuple(lines)

    def apply_to(self, case: CaseInfo, own_bindings: Sequence[str]) -> CaseInfo:
        """Returns a case with the experiment's seed blocks. A case with fixed seeds is not changed.

        Args:
          own_bindings: gin lines of a subject, which take precedence over the blocks.
        """
        if case.fixed_seeds:
            return case
        if self.first_seed is not None and not any(line.startswith("Case.first_seed") for line in own_bindings):
            case = replace(case, first_seed=self.first_seed)
        if not any(line.startswith("Case.block_sizes") for line in own_bindings):
            case = replace(case, block_sizes=self.widths, num_seeds=sum(self.widths))
        return case


def session_blocks(sessions: range, stored_blocks: Iterable[SeedBlock]) -> SessionBlocks:
    """Returns the blocks of an experiment's seeds. Blocks that are already stored are kept whole.

    Seeds 0 to 4 are one block. If 5 to 9 are added, they become a second block, and the first is found in the ledger.
    If only 3 seeds are asked for afterwards, the stored block of five contains them, and nothing is computed.

    Args:
      sessions: Seeds of the experiment.
      stored_blocks: Seed blocks that are stored.
    """
    kept_blocks: list[SeedBlock] = []
    for block in sorted(set(stored_blocks), key=lambda block: (-block.size, block.start)):
        is_wanted = _overlap(block.seeds, sessions)
        if is_wanted and not any(_overlap(block.seeds, kept_block.seeds) for kept_block in kept_blocks):
            kept_blocks.append(block)
    kept_blocks.sort()
    first_seed = min([sessions.start, *(block.start for block in kept_blocks[:1])])
    widths, position = [], first_seed
    for block in kept_blocks:
        if block.start > position:
            widths.append(block.start - position)
        widths.append(block.size)
        position = block.start + block.size
    if position < sessions.stop:
        widths.append(sessions.stop - position)
    return SessionBlocks(first_seed=first_seed, widths=tuple(widths))


def _overlap(seeds: range, other_seeds: range) -> bool:
    return seeds.start < other_seeds.stop and other_seeds.start < seeds.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMember:
    """One session of a method on a case, and the evaluation that contains it."""

    method: str
    trial: int
    session: int
    evaluation: EvaluationId


def session_members(
    method: str, sha256: str, cases: Iterable[CaseInfo], sessions: range | None, *, trial: int = 0
) -> Iterator[SessionMember]:
    """Yields the sessions for which a method's subject needs a result, with their evaluations.

    Args:
      method: Name of the method.
      sha256: Hash of the method's subject.
      cases: Cases with the bindings of the method.
      sessions: Seeds of the experiment. None: all seeds of a case.
      trial: Number of the trial, for a method with a search.
    """
    for case in cases:
        for block in case.blocks():
            evaluation = EvaluationId(sha256, case.key, block)
            for seed in block.seeds:
                if sessions is None or seed in sessions:
                    yield SessionMember(method=method, trial=trial, session=seed, evaluation=evaluation)


def _without_folders(command: str) -> str:
    """Returns a command with absolute paths shortened to their last parts, so that it is the same on every machine.

    >>> _without_folders("/opt/env/bin/python train.py --data=/data/mnist --out {out}")
    'python train.py --data=mnist --out {out}'
    """
    return re.sub(r"(?<![^\s='\"])/[^\s'\";]*", lambda match: match[0].rstrip("/").rpartition("/")[2], command)


def _unquoted(value: str) -> str:
    """Returns the gin text of a value, without the quotes of a string."""
    try:
        literal = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return literal if isinstance(literal, str) else value


def is_fixed(selector: str, parameter: str, reached_names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Returns whether methods are not allowed to bind `selector.parameter`.

    Args:
      selector: gin name of the configurable; `my_package.Case` is not lobench's.
      parameter: Name of its parameter.
      reached_names: Names of configurables that a case reaches, except its optimizer's.
      patterns: `Experiment.fixed`.
    """
    name = selector.rsplit(".", 1)[-1]
    is_case_class = selector in ("Case", "lobench.Case")
    is_case = is_case_class and parameter not in OPTIMIZER_FIELDS
    for pattern in patterns:
        if pattern == "Case.*":
            if is_case or selector in reached_names or name in reached_names:
                return True
        elif fnmatch.fnmatchcase(f"{name}.{parameter}", pattern) and not (is_case_class and not is_case):
            return True
    return False


def expected_value_text(name: str, value: Any) -> str:
    """Returns a description of the values allowed for a field of `Experiment` or `Method`; "" if `value` is valid."""
    if name in ("paired_seeds", "last_counts"):
        return "" if isinstance(value, bool) else "True or False"
    if name in ("suites", "fixed", "metrics", "knobs", "files") or (name == "seed_from" and not isinstance(value, str)):
        is_valid = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return "" if is_valid else "a list of texts"
    if name in ("num_sessions", "first_session", "num_cpus", "num_trials", "wave", "report_sessions", "until_step"):
        lowest = 0 if name in ("first_session", "report_sessions") else 1
        return "" if is_integer(value, at_least=lowest) else integer_text(lowest)
    if name == "median_stopping":
        return "" if isinstance(value, float) and 0 < value < 1 else "a share between 0 and 1"
    if name == "num_gpus":
        return "" if is_device_share(value) else DEVICE_SHARE
    if name == "checkpoints":
        return "" if value in ("last", "all") else "'last' or 'all'"
    return "" if isinstance(value, str) and value.strip() else "a text"
