"""Experiment: methods x cases x sessions, and the evaluations that are its members."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lobench.core.case import OPTIMIZER_FIELDS, CaseInfo, SeedBlock
from lobench.core.history import EvaluationId
from lobench.core.search.space import Parameter, Value

__all__ = [
    "METHOD_KINDS",
    "CommandState",
    "Experiment",
    "Method",
    "Race",
    "Search",
    "SessionBlocks",
    "SessionMember",
    "is_fixed",
    "members",
    "problem_of",
    "session_blocks",
]

# A method has one field of these names, but for a script, which is a command that has curves besides.
Kind = Literal["optimizer", "checkpoint", "command", "curves", "script"]
METHOD_KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "script")
CommandState = Literal["waiting", "running", "done", "failed", "infeasible", "stopped"]

_HASHED = 8
_BLOCKS = re.compile(r"(?:Case\.first_seed = (\d+)\n)?Case\.block_sizes = \(([\d, ]*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What proposes trials: `Method.search = @tpe/optuna()`, with `tpe/optuna.sampler = "tpe"` among its keywords."""

    name: str
    keywords: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a race is decided by: `Experiment.race = @race()`, with `race.margin = 0.02` among its keywords.

    Attributes:
      block: Seeds of a round.
      rounds: At most.
      margin: The race ends where no method that is left can be better than the leader by more than this on the score.
      alpha: Chance that any method is thrown out for one that is no better, over the whole race.
      first_seed: Of all cases; None: each case's own.
    """

    rounds: int
    block: int = 2
    margin: float = 0.0
    alpha: float = 0.05
    first_seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What is compared: `adam/Method.optimizer = @adam()` is the method `adam`.

    Attributes:
      name: The gin scope.
      optimizer: Text of an optimizer without theta, `@adam()`.
      checkpoint: Path of a checkpoint, relative to the experiment's file.
      command: A meta-training whose checkpoints are evaluated, or a script that writes curves; `{session}`, `{folder}`
        (or `{out}`) and `{gin}` stand for the seed, the folder that it writes into and a gin file of the method's own
        bindings, `{NAME}` for the value that is bound to NAME in its scope.
      checkpoints: Which of a command's are evaluated: the "last" or "all".
      curves: Pattern of files of curves that were made elsewhere, relative to the experiment's file; behind a `#` which
        of their methods it is, where they have several. Of a script, what it writes: `{out}/curves.jsonl`.
      metrics: Of curves: what a file calls metrics, and what they are here, `val_loss=test/loss`.
      pattern, case_from, method_from, seed_from: Of curves: as the options of `lobench import`.
      paired_seeds: Of curves: their seeds are the same draws in all files that say so.
      last_counts: Of curves: of a step that a run has twice the last value counts.
      until_step: Of curves: the step at which they end; None: at that of their case.
      python: Of an optimizer that another environment has, the path of that one's Python, relative to the experiment's
        file; "": lobench's own.
      label: What tables say; "": the name.
      knobs: Of an optimizer or a checkpoint: settings whose worth an ablation finds, each a line of gin in the method's
        scope, or several behind semicolons. The method itself is without them.
      files: Of a command: further files whose content makes its results, as patterns relative to the experiment's file;
        `"lib/*.py"`.
      code: Fingerprint of a command's script and files; None: the store has results of it from before there were any.
      bindings: gin lines of the method's scope that are bound over the cases, without the scope.
      trainer_bindings: All of them; what `{gin}` holds.
      num_cpus, num_gpus: What a command takes of the machine while it runs.
      search: What proposes values where spaces stand; None where all values are there.
      space: The spaces by the gin path of their binding, in the order of the file. Their lines are among the bindings.
      num_trials: How many trials; None: as many as a grid has.
      wave: How many are proposed at once; None: as many as the machine has slots when the search begins.
      median_stopping: Share of the training after which a trial ends that is below the median there; None: none does.
      report_sessions: Fresh seeds that the best trial is evaluated on; None: as many as each case has; 0: none.
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
    def kind(self) -> Kind:
        if self.command and self.curves:
            return "script"
        return next((kind for kind in METHOD_KINDS if getattr(self, kind)), "command")

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def named(self) -> str:
        """The text, path, command or pattern that says what it is."""
        if self.kind == "script":
            return f"{self.command}; {self.curves}"
        named: str = getattr(self, self.kind)
        return named

    @property
    def values(self) -> dict[str, str]:
        """What its scope binds, as a command line has it, by its path: `{lr}` of `mine/lr = 0.1`."""
        pairs = (line.partition(" = ") for line in self.trainer_bindings)
        return {path: _as_word(value) for path, _, value in pairs}

    @property
    def subject(self) -> str:
        """What its evaluations depend on, as far as the file says it."""
        return "\n".join((self.kind, self.named, *sorted(self.trainer_bindings)))

    @property
    def folder_name(self) -> str:
        """The folder of a command's sessions: a changed method or script has another one, and the trial `mine/3` that
        of `mine` with its values. Of absolute paths in the command only the last part counts."""
        subject = self.subject if self.code is None else self.subject.replace(self.named, _without_folders(self.named))
        code = f"-{self.code[:_HASHED]}" if self.code else ""
        return f"{self.name.partition('/')[0]}-{hashlib.sha256(subject.encode()).hexdigest()[:_HASHED]}{code}"

    def with_values(self, values: Mapping[str, Value]) -> Method:
        """Returns a trial: the method without a search, its values where the spaces stand, as a file would say them.

        Args:
          values: By path; a space that has none is not active, and its binding goes.
        """
        paths = {parameter.path for parameter in self.space}

        def written(lines: Iterable[str]) -> tuple[str, ...]:
            named = [(line.partition(" = ")[0], line) for line in lines]
            return tuple(
                f"{path} = {values[path]!r}" if path in paths else line
                for path, line in named
                if path not in paths or path in values
            )

        return replace(
            self,
            bindings=written(self.bindings),
            trainer_bindings=written(self.trainer_bindings),
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
      name: Of the store and of the history.
      suites: Folders and gin files of cases, absolute.
      num_sessions: Seeds of every case, the same for every method; None: each case's own.
      first_session: The first of them.
      fixed: Patterns of what may not differ between methods; `Case.*` is all that a case reaches but its optimizer.
      race: Who is trained on which of them; None: every method on all.
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
        """The seeds that count; None: each case's own."""
        if self.num_sessions is None:
            return None
        return range(self.first_session, self.first_session + self.num_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBlocks:
    """Seed blocks one after another: `Case.first_seed` and `Case.block_sizes`.

    Attributes:
      first_seed: None: each case's own.
    """

    first_seed: int | None
    widths: tuple[int, ...]

    @property
    def bindings(self) -> tuple[str, ...]:
        first = () if self.first_seed is None else (f"Case.first_seed = {self.first_seed}",)
        return *first, f"Case.block_sizes = {self.widths!r}"

    @classmethod
    def split_off(cls, lines: Sequence[str]) -> tuple[SessionBlocks | None, tuple[str, ...]]:
        """Takes its bindings off the end of lines of gin; returns None for them where they are not there."""
        for count in (2, 1):
            found = _BLOCKS.fullmatch("\n".join(lines[-count:]))
            if found is not None:
                first, widths = found.groups()
                sizes = tuple(map(int, re.findall(r"\d+", widths)))
                return cls(first_seed=None if first is None else int(first), widths=sizes), tuple(lines[:-count])
        return None, tuple(lines)

    def cut(self, case: CaseInfo, own: Sequence[str]) -> CaseInfo:
        """Returns a case as it is with these bindings, whatever blocks it was bound with before.

        Args:
          own: Lines of gin that beat these: what a subject binds stays.
        """
        if self.first_seed is not None and not any(line.startswith("Case.first_seed") for line in own):
            case = replace(case, first_seed=self.first_seed)
        if not any(line.startswith("Case.block_sizes") for line in own):
            case = replace(case, block_sizes=self.widths, num_seeds=sum(self.widths))
        return case


def session_blocks(sessions: range, held: Iterable[SeedBlock]) -> SessionBlocks:
    """Cuts sessions into blocks; what an experiment's evaluations hold already stays as it is, and is never cut.

    Sessions 0..4 are one block. Where 5..9 are added, they are a second one: the first is found in the ledger. Where 3
    sessions are left, the block of five holds them, and nothing is computed.
    """
    kept: list[SeedBlock] = []
    for block in sorted(set(held), key=lambda block: (-block.size, block.start)):
        is_wanted = _overlap(block.seeds, sessions)
        if is_wanted and not any(_overlap(block.seeds, other.seeds) for other in kept):
            kept.append(block)
    kept.sort()
    first = min([sessions.start, *(block.start for block in kept[:1])])
    widths, position = [], first
    for block in kept:
        if block.start > position:
            widths.append(block.start - position)
        widths.append(block.size)
        position = block.start + block.size
    if position < sessions.stop:
        widths.append(sessions.stop - position)
    return SessionBlocks(first_seed=first, widths=tuple(widths))


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMember:
    """A session of a method on a case, and the evaluation that holds it."""

    method: str
    trial: int
    session: int
    evaluation: EvaluationId


def members(
    method: str, sha256: str, cases: Iterable[CaseInfo], sessions: range | None, *, trial: int = 0
) -> Iterator[SessionMember]:
    """Yields what a method's subject has to have an outcome of, session by session.

    Args:
      sha256: Of the method's subject.
      cases: As they are under the method's bindings.
      sessions: Seeds that count; None: all of a case's.
    """
    for case in cases:
        for block in case.blocks():
            evaluation = EvaluationId(sha256, case.key, block)
            for seed in block.seeds:
                if sessions is None or seed in sessions:
                    yield SessionMember(method=method, trial=trial, session=seed, evaluation=evaluation)


def _without_folders(command: str) -> str:
    """Returns a command with absolute paths cut to their last parts, so that it is the same on every machine.

    >>> _without_folders("/opt/env/bin/python train.py --data=/data/mnist --out {out}")
    'python train.py --data=mnist --out {out}'
    """
    return re.sub(r"(?<![^\s='\"])/[^\s'\";]*", lambda found: found[0].rstrip("/").rpartition("/")[2], command)


def _as_word(value: str) -> str:
    """Returns gin's text of a value without the quotes of a text."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return found if isinstance(found, str) else value


def is_fixed(selector: str, parameter: str, reached: Iterable[str], patterns: Iterable[str]) -> bool:
    """Says whether a method may not bind `selector.parameter`.

    Args:
      reached: Names that a case reaches, its optimizer's excepted.
      patterns: `Experiment.fixed`.
    """
    name = selector.rsplit(".", 1)[-1]
    is_case = name == "Case" and parameter not in OPTIMIZER_FIELDS
    for pattern in patterns:
        if pattern == "Case.*":
            if is_case or name in reached:
                return True
        elif fnmatch.fnmatchcase(f"{name}.{parameter}", pattern) and not (name == "Case" and not is_case):
            return True
    return False


def problem_of(name: str, value: Any) -> str:
    """Returns what a value of `Experiment` or `Method` should have been; "" where it is right."""
    if name in ("paired_seeds", "last_counts"):
        return "" if isinstance(value, bool) else "True or False"
    if name in ("suites", "fixed", "metrics", "knobs", "files") or (name == "seed_from" and not isinstance(value, str)):
        is_right = isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
        return "" if is_right else "a list of texts"
    if name in ("num_sessions", "first_session", "num_cpus", "num_trials", "wave", "report_sessions", "until_step"):
        lowest = 0 if name in ("first_session", "report_sessions") else 1
        return "" if type(value) is int and value >= lowest else f"an integer >= {lowest}"
    if name == "median_stopping":
        return "" if isinstance(value, float) and 0 < value < 1 else "a share between 0 and 1"
    if name == "num_gpus":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_right = is_number and math.isfinite(value) and (0 <= value <= 1 or (value > 1 and float(value).is_integer()))
        return "" if is_right else "a share of one device, or a whole number"
    if name == "checkpoints":
        return "" if value in ("last", "all") else "'last' or 'all'"
    return "" if isinstance(value, str) and value.strip() else "a text"
