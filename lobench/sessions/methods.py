"""An experiment's methods as subjects, what a store holds of them already, and what is missing."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.case import CaseSpec, SeedBlock, seed_blocks
from lobench.core.errors import StoreError, UsageError, suggestion
from lobench.core.experiment import Experiment, Method, SessionBlocks, session_blocks
from lobench.core.subject import Given, Subject
from lobench.core.trials import FIRST_REPORT_SEED, is_over
from lobench.engine.checkpoints.given import given_checkpoint, given_optimizer
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.config.bound import number_of
from lobench.engine.config.experiment_files import ExperimentFile
from lobench.engine.config.layers import Layers
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.plugins import PluginManager
from lobench.sessions.searches import KnownTrials, PlannedSearch, known_of, planned_searches

__all__ = [
    "MethodPlan",
    "blocks_of",
    "chosen_methods",
    "given_method",
    "given_methods",
    "member_blocks",
    "optimizer_text",
    "plan_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """How much of a method is there, as far as files and the store tell.

    Attributes:
      num_planned: Evaluations.
      num_missing: Those of them that the store does not hold.
      seconds: What these take, by recorded durations of their cases.
      unknown: Cases, among these, that never ran.
      num_trainings: Sessions of a command, each with as many evaluations.
      num_trials: Of a search, at most.
      num_reported: Evaluations of the best one on fresh seeds.
    """

    method: Method
    num_planned: int
    num_missing: int
    seconds: float
    unknown: frozenset[str]
    num_trainings: int = 0
    num_trials: int = 0
    num_reported: int = 0


def chosen_methods(experiment: Experiment, names: Sequence[str]) -> tuple[Method, ...]:
    """Returns the methods that are asked for; none: all.

    Raises:
      UsageError: there is no such method.
    """
    known = {method.name: method for method in experiment.methods}
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no method {name!r}",
                where="--method",
                expected="one of " + ", ".join(known),
                next_step=suggestion(name, known),
            )
    return tuple(method for method in experiment.methods if not names or method.name in names)


def optimizer_text(method: Method) -> str:
    """Returns a method without theta as `--optimizer` and `lobench compare` take it: `adam(); adam.b1 = 0.8`."""
    return "; ".join((method.optimizer.lstrip("@"), *method.bindings))


def given_methods(methods: Sequence[Method]) -> dict[str, Given]:
    """Returns the subjects of the methods that are optimizers and checkpoints, and search nothing, by their names.

    Raises:
      ConfigError: the `config.gin` beside a checkpoint does not parse.
    """
    return {
        method.name: given_method(method, label=method.title)
        for method in methods
        if method.kind not in ("command", "curves") and method.search is None
    }


def given_method(method: Method, *, label: str, bindings: Sequence[str] = ()) -> Given:
    """Returns the subject of a method that is an optimizer or a checkpoint, and has no search.

    Args:
      bindings: Bound after the method's own.
    Raises:
      ConfigError: the `config.gin` beside a checkpoint does not parse.
    """
    if method.kind == "optimizer":
        return given_optimizer("; ".join((optimizer_text(method), *bindings)), label=label)
    return given_checkpoint(method.checkpoint, (*method.bindings, *bindings), label=label)


def blocks_of(experiment: Experiment, store: Path) -> SessionBlocks | None:
    """Returns how the sessions are cut into seed blocks, as far as the store has some already; None: as cases say."""
    if experiment.sessions is None:
        return None
    return session_blocks(experiment.sessions, _held_blocks(experiment.name, store))


def _held_blocks(name: str, store: Path) -> set[SeedBlock]:
    """Returns the seed blocks of an experiment's members, whichever of its forms they are of."""
    with _looked_at(store) as ledger:
        if ledger is None:
            return set()
        return {block for block in member_blocks(ledger, name) if block.start < FIRST_REPORT_SEED}


def member_blocks(ledger: Ledger, name: str) -> set[SeedBlock]:
    """Returns the seed blocks of all members of an experiment, those of its searches' reports too."""
    forms = [row.id for row in ledger.experiments() if row.name == name]
    return {member.evaluation.block for form in forms for member in ledger.memberships(form)}


@contextlib.contextmanager
def _looked_at(store: Path) -> Iterator[Ledger | None]:
    """Opens a ledger to look on; None where there is none, or where who opens it to write will say what is wrong."""
    try:
        ledger = Ledger.open(store, read_only=True) if (store / "ledger.sqlite").is_file() else None
    except StoreError:
        ledger = None
    try:
        yield ledger
    finally:
        if ledger is not None:
            ledger.close()


def plan_of(
    file: ExperimentFile,
    methods: Sequence[Method],
    cases: Sequence[CaseSpec],
    store: Path,
    manager: PluginManager,
    *,
    allow_pickle: bool,
) -> list[MethodPlan]:
    """Returns how much of each method is missing. Starts nothing, binds nothing and writes nothing.

    Args:
      cases: Those that are planned.
    Raises:
      CheckpointError: a checkpoint cannot be read.
    """
    searches = planned_searches(file, methods, manager)
    with _looked_at(store) as ledger:
        rows = list(ledger.evaluations()) if ledger is not None else []
        known_trials = {name: known_of(one, file, ledger) for name, one in searches.items()}
    blocks = blocks_of(file.experiment, store)
    planned = [(spec.names[-1], block) for spec in cases for block in _blocks(spec, file, blocks)]
    known = _durations(rows)
    plan = functools.partial(
        _plan,
        planned=planned,
        shown=_short_names(cases),
        rows=rows,
        known=known,
        manager=manager,
        allow_pickle=allow_pickle,
    )
    num_sessions = len(file.experiment.sessions or (0,))
    return [
        MethodPlan(method=method, num_planned=0, num_missing=0, seconds=0.0, unknown=frozenset())
        if method.kind == "curves"
        else _plan_search(method, searches[method.name], known_trials[method.name], plan, num_sessions)
        if method.search is not None
        else plan(method, num_trainings=num_sessions if method.kind == "command" else 0)
        for method in methods
    ]


def _blocks(spec: CaseSpec, file: ExperimentFile, blocks: SessionBlocks | None) -> list[SeedBlock]:
    if blocks is not None:
        return list(seed_blocks(sum(blocks.widths), None, blocks.first_seed, blocks.widths))
    return list(seed_blocks(number_of("num_seeds", spec, Layers(gin_params=file.shared)) or 1, None))


def _plan_search(
    method: Method, search: PlannedSearch, known: KnownTrials, plan: Callable[..., MethodPlan], num_sessions: int
) -> MethodPlan:
    """Returns the plan of a search: trials that nobody has proposed yet lack everything."""
    factor = num_sessions if method.kind == "command" else 0
    nothing = plan(method, num_trainings=factor, is_known=False)
    num_known = min(len(known.trials), search.num_trials)
    parts = [nothing] * (search.num_trials - num_known)
    for trial in known.trials[:num_known]:
        if is_over(trial.state):
            continue
        is_text = method.kind == "optimizer"  # of others the bindings are not in the hash
        parts.append(plan(method.with_values(trial.parameters), num_trainings=factor, is_known=is_text))
    num_stopped = sum(trial.state == "stopped" for trial in known.trials[:num_known])
    num_reported = 0 if method.report_sessions == 0 else nothing.num_planned
    parts += [nothing] if num_reported and not known.is_reported else []
    return MethodPlan(
        method=method,
        num_planned=nothing.num_planned * (search.num_trials - num_stopped) + num_reported,
        num_missing=sum(one.num_missing for one in parts),
        seconds=math.fsum(one.seconds for one in parts),
        unknown=frozenset[str]().union(*(one.unknown for one in parts)),
        num_trainings=factor * search.num_trials,
        num_trials=search.num_trials,
        num_reported=num_reported,
    )


def _plan(
    method: Method,
    *,
    planned: Sequence[tuple[str, SeedBlock]],
    shown: Mapping[str, str],
    rows: Sequence[EvaluationRow],
    known: Mapping[str, float],
    manager: PluginManager,
    allow_pickle: bool,
    num_trainings: int,
    is_known: bool = True,
) -> MethodPlan:
    """Returns the plan of one subject, or of one for each session of a command.

    Args:
      shown: What each case is called where people read it.
      is_known: Whether the store may hold some of it.
    """
    sha256 = _sha256(method, manager, allow_pickle=allow_pickle) if is_known else ""
    own = [row for row in rows if row.key.checkpoint_sha256 == sha256]
    held = {(name, row.key.seed_block) for row in own for name in row.case.names}
    missing = [one for one in planned if one not in held]
    factor = max(num_trainings, 1)
    return MethodPlan(
        method=method,
        num_planned=len(planned) * factor,
        num_missing=len(missing) * factor,
        seconds=sum(known.get(name, 0.0) for name, _ in missing) * factor,
        unknown=frozenset(shown[name] for name, _ in missing if name not in known),
        num_trainings=num_trainings,
    )


def _short_names(cases: Sequence[CaseSpec]) -> dict[str, str]:
    """Returns `quick/relu32` for `quick/digits.relu32`, where no other case is called so."""
    short = {spec.names[-1]: f"{spec.suite}/{spec.names[0]}" for spec in cases}
    counts = Counter(short.values())
    return {name: own if counts[own] == 1 else name for name, own in short.items()}


def _durations(rows: Sequence[EvaluationRow]) -> dict[str, float]:
    """Returns the mean seconds that an evaluation of a case took, by case."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        if row.payload is not None:
            head, _ = row.header()
            for name in row.case.names:
                seconds.setdefault(name, []).append(head["compile_seconds"] + head["wall_seconds"])
    return {name: sum(values) / len(values) for name, values in seconds.items()}


def _sha256(method: Method, manager: PluginManager, *, allow_pickle: bool) -> str:
    if method.kind == "command":
        return ""
    given = given_method(method, label=method.title)
    if isinstance(given, Subject):
        return given.sha256
    return load_checkpoint(given.uri, manager, allow_pickle=allow_pickle)[0].sha256
