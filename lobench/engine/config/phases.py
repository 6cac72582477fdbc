"""Phases of a case. Each is bound as the case with the phase's scope over it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gin
import gin.config

from lobench.core.case import OPTIMIZER_FIELDS, Case
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.number_checks import integer_text, is_integer
from lobench.core.phases import Phase, prefix_sha256s, task_sequence
from lobench.core.wording import cause, headline
from lobench.engine.config.arguments import OptimizerSettings, settings_of
from lobench.engine.config.case_code import reachable_modules, reachable_texts
from lobench.engine.config.gin_state import (
    BINDINGS,
    CONFIGURABLES,
    bindings_in,
    bindings_reached_from,
    enclosing_scopes,
)
from lobench.engine.config.syntax import last_name

__all__ = [
    "BoundPhase",
    "bind_phases",
    "construction_errors",
    "optimizer_lines",
    "optimizer_lines_of_phases",
    "plain_value",
    "prefix_hashes",
    "with_phases",
    "without_optimizers",
]

_PHASE = gin.external_configurable(Phase, name="Phase", module="lobench")
_SEQUENCE = gin.external_configurable(task_sequence, name="task_sequence", module="lobench")
_CASE = "lobench.Case"
_PHASE_NAME = "lobench.Phase"
_SEQUENCE_NAME = "lobench.task_sequence"
# Configurables that a phase's scope may bind, but that are not read by its optimizer.
_NON_OPTIMIZER_SELECTORS = (_CASE, _PHASE_NAME, "gin.macro")
_CONTAINER_TYPES = re.compile(r"Sequence|list|tuple|Iterable|Collection|Mapping|dict|PyTree", re.IGNORECASE)
_SCALAR_TYPES = re.compile(r"\b(float|int|bool|str|Rate|Scalar\w*)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPhase:
    """A phase with its values.

    Attributes:
      phase: The phase, with defaults filled in. Its optimizer is None unless it was built.
      case_lines: Lines of the case about this phase.
      is_of_task: Whether it is one of a stream's tasks (`task_sequence`), and so part of the problem.
      optimizer_lines: Bindings reached from its optimizer.
      settings: Real-valued settings among these.
      modules: Modules that define the optimizer.
      texts: Strings in these bindings.
    """

    phase: Phase
    case_lines: tuple[str, ...]
    optimizer_lines: tuple[str, ...]
    settings: OptimizerSettings
    is_of_task: bool = False
    modules: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()

    def prefix_lines(self, index: int) -> list[str]:
        """Returns the lines that determine the bits of this phase, given the phases before."""
        phase = self.phase
        handover = [phase.opt_state or "", phase.schedule] if index else []
        return [str(phase.num_inner_steps), *handover, *self.optimizer_lines]


def bind_phases(scope: str, where: str, paths: Sequence[str], *, num_inner_steps: Any, build: bool) -> list[BoundPhase]:
    """Returns the phases of a case in gin's present configuration; [] if there is a single one.

    Args:
      scope: Scope of the case.
      where: Place in error messages.
      paths: Folders from which modules can be imported while an optimizer is created.
      num_inner_steps: Inner steps of the case, for phases given by a list of values.
      build: Whether optimizers are created.
    Raises:
      ConfigError: `Case.phases` is empty or invalid, or a phase has no steps.
    """
    bound_value = bindings_in(scope, _CASE).get("phases", ())
    is_sequence = (
        isinstance(bound_value, gin.config.ConfigurableReference)
        and bound_value.configurable.selector == _SEQUENCE_NAME
    )
    references = () if is_sequence else plain_value(bound_value)
    if not isinstance(references, list | tuple) or not all(_is_phase(value) for value in references):
        raise ConfigError(
            "Case.phases",
            where=where,
            got=repr(references),
            expected="a list such as [@warm/Phase(), @cool/Phase()], or @task_sequence()",
        )
    scopes = ["/".join(reference.scopes) for reference in references]
    lists_by_setting = _lists_by_setting(scope)
    if not scopes and not lists_by_setting and not is_sequence:
        return []
    if is_sequence:
        phases = _phases_of_sequence(bound_value, scope, num_inner_steps, where)
        scopes = [""] * len(phases)
    elif not scopes:
        num_phases = len(next(iter(lists_by_setting.values())))
        steps = _steps_per_phase(num_inner_steps, lists_by_setting, where)
        phases = [{"num_inner_steps": steps}] * num_phases
        scopes = [""] * num_phases
    else:
        phases = [
            _values_of_phase(reference, phase_scope or scope)
            for reference, phase_scope in zip(references, scopes, strict=True)
        ]
    bound_phases: list[BoundPhase] = []
    previous_optimizer = ""
    for index, (phase_scope, bindings) in enumerate(zip(scopes, phases, strict=True)):
        phase_label = f"{where}: phase {index + 1} of {len(scopes)}" + (f" ({phase_scope!r})" if phase_scope else "")
        with _phase_bindings(scope, phase_scope, bindings, index, len(scopes), phase_label):
            optimizer_bindings = {
                name: value for name, value in bindings_in(scope, _CASE).items() if name in OPTIMIZER_FIELDS
            }
            optimizer_text = ", ".join(
                f"{name} {_optimizer_name(value)}" for name, value in sorted(optimizer_bindings.items())
            )
            default_opt_state = "keep" if optimizer_text == previous_optimizer else "reset"
            phase = _checked_phase(bindings, phase_label, default_opt_state=default_opt_state)
            previous_optimizer = optimizer_text
            lines = optimizer_lines(scope)
            modules = reachable_modules(scope, _CASE, OPTIMIZER_FIELDS)
            texts = reachable_texts(scope, _CASE, OPTIMIZER_FIELDS)
            settings = settings_of(scope, lines, paths)
            if build:
                built_phase = _built_phase(scope, optimizer_bindings, phase_label)
                phase = dataclasses.replace(
                    phase, optimizer=built_phase.optimizer, learned_optimizer=built_phase.learned_optimizer
                )
        phase_lines = [f"{name} = {bindings[name]!r}" for name in sorted(bindings) if name not in OPTIMIZER_FIELDS]
        case_lines = [f"{_CASE}.phases[{index}].{line}" for line in phase_lines] if references or is_sequence else []
        bound_phases.append(
            BoundPhase(
                phase=phase,
                case_lines=tuple(case_lines),
                optimizer_lines=tuple(lines),
                settings=settings,
                is_of_task=is_sequence,
                modules=frozenset(modules),
                texts=frozenset(texts),
            )
        )
    return bound_phases


def optimizer_lines(scope: str) -> list[str]:
    """Returns the bindings reached from a case's optimizer, as canonical lines without the case's scope.

    The scope is removed so that equal optimizers of two cases are equal.
    """
    lines = [*bindings_reached_from(scope, _CASE, OPTIMIZER_FIELDS)[0]]
    # The part of a checkpoint that is theta also belongs to the identity of the optimizer.
    if "learned_optimizer" in bindings_in(scope, _CASE):
        lines += [
            f"lobench.Checkpoint.{name} = {value!r}" for name, value in bindings_in(scope, "lobench.Checkpoint").items()
        ]
    return sorted(line.removeprefix(f"{scope}/") for line in lines)


def with_phases(case: Case, phases: Sequence[BoundPhase]) -> Case:
    """Returns the case with its phases: with the sum of their steps, and the optimizer of the first."""
    if not phases:
        return case
    case_phases = tuple(phase.phase for phase in phases)
    learned_optimizer = next(
        (phase.learned_optimizer for phase in case_phases if phase.learned_optimizer is not None), None
    )
    optimizer = None if learned_optimizer is not None else case_phases[0].optimizer
    return dataclasses.replace(
        case,
        phases=case_phases,
        num_inner_steps=sum(phase.num_inner_steps or 0 for phase in case_phases),
        learned_optimizer=learned_optimizer,
        optimizer=optimizer,
    )


def optimizer_lines_of_phases(phases: Sequence[BoundPhase]) -> list[str]:
    """Returns the bindings reached from the optimizers of all phases.

    Phases with the same bindings as the first phase add nothing.
    """
    first_lines = phases[0].optimizer_lines
    other_lines = [
        (index, phase.optimizer_lines) for index, phase in enumerate(phases) if phase.optimizer_lines != first_lines
    ]
    return [*first_lines, *(f"phases[{index}]: {line}" for index, lines in other_lines for line in lines)]


def prefix_hashes(
    case: Case,
    task_lines: Sequence[str],
    optimizer_lines: Sequence[str],
    phases: Sequence[BoundPhase],
    codes: Sequence[str] = (),
) -> tuple[str, ...]:
    """Returns for each phase the identity of the training up to its end, independent of the case's name.

    Args:
      case: Case.
      task_lines: Bindings of the task.
      optimizer_lines: Bindings of the optimizer, for a case with a single phase.
      phases: Phases.
      codes: Fingerprints of the user's code; "" without such code.
    """
    fields = ("num_tasks", "eval_every", "log_every", "eval_batches", "sessions", "num_lanes", "num_cpus", "num_gpus")
    common_lines = [*task_lines, *(f"{name} = {getattr(case, name)!r}" for name in fields)]
    common_lines += [f"code = {code}" for code in codes if code]
    lines = [phase.prefix_lines(index) for index, phase in enumerate(phases)]
    return prefix_sha256s(common_lines, lines or [[str(case.num_inner_steps), *optimizer_lines]])


@contextlib.contextmanager
def without_optimizers(scope: str) -> Iterator[None]:
    """Removes the bindings of a case's optimizer and phases while the body runs.

    Each phase creates its own optimizer.
    """
    with _restored_config():
        _unbind(scope, *OPTIMIZER_FIELDS, "phases")
        yield


def plain_value(value: Any) -> Any:
    """Returns the value of a macro, None for other references, and other values unchanged."""
    if isinstance(value, gin.config.ConfigurableReference):
        if value.configurable.selector == "gin.macro":
            return plain_value(BINDINGS.get(("/".join(value.scopes), "gin.macro"), {}).get("value"))
        return None
    return value


@contextlib.contextmanager
def _phase_bindings(
    scope: str, phase_scope: str, bindings: dict[str, Any], index: int, count: int, where: str
) -> Iterator[None]:
    """While the body runs, the whole case has the bindings of a phase.

    They are the bindings of the phase's scope, and the item at `index` of each list with a value for each phase.
    """
    with _restored_config():
        if phase_scope and phase_scope != scope:
            _check_changes_no_task(scope, phase_scope, where)
            for ancestor in enclosing_scopes(phase_scope)[1:]:
                for (bound_scope, selector), parameters in list(BINDINGS.items()):
                    if bound_scope == ancestor and selector not in _NON_OPTIMIZER_SELECTORS:
                        BINDINGS.setdefault((scope, selector), {}).update(parameters)
        if optimizer_bindings := {name: bindings[name] for name in OPTIMIZER_FIELDS if name in bindings}:
            _unbind(scope, *OPTIMIZER_FIELDS)
            BINDINGS.setdefault((scope, _CASE), {}).update(optimizer_bindings)
        for (reached_scope, selector, name), values in _lists_by_setting(scope).items():
            if len(values) != count:
                raise ConfigError(
                    f"{last_name(selector)}.{name} has {len(values)} values, one for each phase",
                    where=where,
                    got=repr(values),
                    expected=f"{count}, as there are phases",
                )
            for ancestor in enclosing_scopes(reached_scope):
                parameters = BINDINGS.get((ancestor, selector), {})
                if name in parameters:
                    parameters[name] = values[index]
        yield


def _unbind(scope: str, *names: str) -> None:
    """Removes bindings of some of a case's parameters, in its scope and in enclosing scopes."""
    for ancestor in enclosing_scopes(scope):
        for name in names:
            BINDINGS.get((ancestor, _CASE), {}).pop(name, None)


@contextlib.contextmanager
def _restored_config() -> Iterator[None]:
    saved_bindings = {key: dict(parameters) for key, parameters in BINDINGS.items()}
    try:
        yield
    finally:
        BINDINGS.clear()
        BINDINGS.update(saved_bindings)


def _lists_by_setting(scope: str) -> dict[tuple[str, str, str], Sequence[Any]]:
    """Returns lists bound to settings of the optimizer that take a single value, by scope, name and parameter.

    A parameter that accepts a list keeps it (`MLPLOpt.hidden_sizes = [32, 32]`): its default is not a single value, and
    its type allows a list or is not given.
    """
    _, reached_selectors = bindings_reached_from(scope, _CASE, OPTIMIZER_FIELDS)
    return {
        (reached_scope, selector, name): value
        for reached_scope, selector in sorted(reached_selectors)
        for name, value in bindings_in(reached_scope, selector).items()
        if isinstance(value, list) and value and _takes_one_value(selector, name)
    }


def _takes_one_value(selector: str, name: str) -> bool:
    """Returns whether a parameter is declared to take a single number, name or schedule."""
    parameter = inspect.signature(CONFIGURABLES.get_match(selector).wrapped).parameters.get(name)
    if parameter is None:
        return False
    annotation = "" if parameter.annotation is inspect.Parameter.empty else str(parameter.annotation)
    if _CONTAINER_TYPES.search(annotation):
        return False
    return isinstance(parameter.default, bool | int | float | str) or bool(_SCALAR_TYPES.search(annotation))


def _phases_of_sequence(reference: Any, scope: str, num_inner_steps: Any, where: str) -> list[dict[str, Any]]:
    """Returns the values of the phases of a `task_sequence`."""
    sequence_bindings = bindings_in("/".join(reference.scopes) or scope, _SEQUENCE_NAME)
    values = {"num_tasks": None, "num_inner_steps": None} | {
        name: plain_value(value) for name, value in sequence_bindings.items()
    }
    count, steps = values["num_tasks"], values["num_inner_steps"]
    if not is_integer(count):
        got = "nothing" if count is None else repr(count)
        raise ConfigError(
            "task_sequence.num_tasks", where=where, got=got, expected="the stream's number of tasks, >= 1"
        )
    if steps is None:
        problem = f"Case.num_inner_steps are shared by {count} tasks"
        got = repr(num_inner_steps)
        advice = "or bind task_sequence.num_inner_steps, those of each task"
        steps = _steps_per_part(num_inner_steps, count, problem, where=where, got=got, next_step=advice)
    phases = task_sequence(num_tasks=count, num_inner_steps=steps)
    return [{"num_inner_steps": phase.num_inner_steps, "opt_state": phase.opt_state} for phase in phases]


def _steps_per_phase(num_inner_steps: Any, lists: dict[tuple[str, str, str], Sequence[Any]], where: str) -> int:
    (_, selector, name), values = next(iter(lists.items()))
    problem = f"{last_name(selector)}.{name} has {len(values)} values, each for a phase of equal length"
    got = f"Case.num_inner_steps = {num_inner_steps!r}"
    advice = "or bind Case.phases, whose lengths may differ"
    return _steps_per_part(num_inner_steps, len(values), problem, where=where, got=got, next_step=advice)


def _steps_per_part(num_inner_steps: Any, count: int, problem: str, **error_parts: str) -> int:
    """Returns the number of steps of each of several equal parts of a case, or raises ConfigError."""
    if not isinstance(num_inner_steps, int) or num_inner_steps < count or num_inner_steps % count:
        raise ConfigError(problem, expected=f"a multiple of {count}", **error_parts)
    return num_inner_steps // count


def _check_changes_no_task(scope: str, phase_scope: str, where: str) -> None:
    """Raises ConfigError if a phase binds a parameter of the task. Phases may only change the optimizer's settings."""
    _, reached_selectors = bindings_reached_from(scope, _CASE, ("task",))
    task_selectors = {selector for _, selector in reached_selectors}
    for (bound_scope, selector), parameters in BINDINGS.items():
        if bound_scope == phase_scope and selector in task_selectors and parameters:
            name = next(iter(parameters))
            raise ConfigError(
                f"{phase_scope}/{last_name(selector)}.{name} is a setting of the task",
                where=where,
                expected="settings of the optimizer: the task is the same in all phases",
            )


def _checked_phase(bindings: dict[str, Any], where: str, *, default_opt_state: str) -> Phase:
    """Returns a `Phase` without its optimizer, after checking its values.

    Raises:
      ConfigError: The number of steps is missing or invalid, or another value is unknown.
    """
    values = {name: plain_value(value) for name, value in bindings.items() if name not in OPTIMIZER_FIELDS}
    phase = Phase(**values)
    steps = phase.num_inner_steps
    if not is_integer(steps):
        got = "" if steps is None else repr(steps)
        raise ConfigError(
            "Phase.num_inner_steps" + (" is not bound" if steps is None else ""),
            where=where,
            got=got,
            expected=f"{integer_text()}: each phase has its own length",
        )
    if phase.opt_state not in (None, "keep", "reset"):
        raise ConfigError("Phase.opt_state", where=where, got=repr(phase.opt_state), expected="'keep' or 'reset'")
    if phase.schedule not in ("new", "continue"):
        raise ConfigError("Phase.schedule", where=where, got=repr(phase.schedule), expected="'new' or 'continue'")
    return dataclasses.replace(phase, opt_state=phase.opt_state or default_opt_state)


def _built_phase(scope: str, optimizer_bindings: dict[str, Any], where: str) -> Phase:
    for ancestor in enclosing_scopes(scope):
        BINDINGS.pop((ancestor, _PHASE_NAME), None)
    BINDINGS[scope, _PHASE_NAME] = optimizer_bindings
    with construction_errors("the optimizer", where), gin.config_scope(scope):
        phase = _PHASE()
    assert isinstance(phase, Phase)
    return phase


@contextlib.contextmanager
def construction_errors(built_object: str, where: str) -> Iterator[None]:
    """Turns exceptions of gin, or of a constructor that it calls, into a one-line ConfigError."""
    try:
        yield
    except LobenchError as error:
        # gin raises a subclass of the exception, whose message has a second line with the place in gin.
        raise ConfigError(cause(error), where=where) from error
    except (Exception, SystemExit) as error:  # `sys.exit` in a constructor, too
        raise ConfigError(f"cannot build {built_object}", where=where, got=headline(error)) from error


def _is_phase(value: Any) -> bool:
    """Returns whether a value is a reference to `Phase` or to a subclass with other defaults."""
    if not isinstance(value, gin.config.ConfigurableReference):
        return False
    wrapped_class = value.configurable.wrapped
    return isinstance(wrapped_class, type) and issubclass(wrapped_class, Phase)


def _values_of_phase(reference: Any, scope: str) -> dict[str, Any]:
    """Returns the values of a phase: its bindings, over the defaults of its class."""
    default_phase = reference.configurable.wrapped()
    plain_phase = Phase()
    names = [field.name for field in dataclasses.fields(Phase)]
    bound_values = {
        name: getattr(default_phase, name)
        for name in names
        if getattr(default_phase, name) != getattr(plain_phase, name)
    }
    return bound_values | bindings_in(scope, reference.configurable.selector)


def _optimizer_name(value: Any) -> str:
    """Returns the name of the optimizer that a reference names, without its scope."""
    return str(value.configurable.selector) if isinstance(value, gin.config.ConfigurableReference) else repr(value)
