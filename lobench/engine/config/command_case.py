"""Cases that are commands: detection, relevant gin text, and placeholders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lobench.core.case import OPTIMIZER_FIELDS, Case, CaseSpec
from lobench.core.errors import ConfigError, suggestion
from lobench.core.metric import directions_by_metric
from lobench.engine.config.command_files import check_no_shell_syntax
from lobench.engine.config.gin_state import BINDINGS, enclosing_scopes
from lobench.engine.config.parsed_layers import ParsedLayers
from lobench.engine.config.python_cases import case_statements
from lobench.engine.config.syntax import (
    Binding,
    Import,
    Reference,
    Statement,
    only_bindings,
    references_in,
)

__all__ = [
    "NON_COMMAND_FIELDS",
    "check_command",
    "check_task",
    "commands_in",
    "is_command",
    "layers_of_command",
    "macros_of",
    "placeholders_in",
    "reads_checkpoint",
]

_COMMAND_NAMES = ("Case", "expect", "Suite")  # names that a command's case reads
_TRAINING_FIELDS = (
    "task", "learned_optimizer", "optimizer", "num_inner_steps", "phases", "num_tasks", "sessions", "num_lanes",
    "eval_every", "log_every", "eval_batches", "save_every", "keep_state", "time_gradient", "stop_after",
)  # fmt: skip
# Fields that are not part of a command's identity: settings of trainings and limits. A command runs for one seed at a
# time, so the number and grouping of seeds do not change its results.
NON_COMMAND_FIELDS = (*_TRAINING_FIELDS, "num_seeds", "seed_block", "timeout_seconds")
_MACRO = "gin.macro"
_DEFAULT_CASE = Case()


def is_command(spec: CaseSpec) -> bool:
    """Returns whether a case is a command. Imports nothing.

    Raises:
      ConfigError: The file cannot be read, or has a syntax error.
    """
    return _command_of(spec) is not None


def reads_checkpoint(spec: CaseSpec) -> bool:
    """Returns whether a command has the placeholder of a checkpoint, so that the user has to name one."""
    command = _command_of(spec)
    return not isinstance(command, str) or "{checkpoint}" in command


def _command_of(spec: CaseSpec) -> Any:
    return None if spec.is_test else commands_in(case_statements(spec)).get(spec.scope)


def commands_in(statements: Iterable[Statement]) -> dict[str, Any]:
    """Returns the values of `Case.command` of a file by scope."""
    bindings = only_bindings(statements)
    return {
        binding.scope: binding.value for binding in bindings if (binding.name, binding.parameter) == ("Case", "command")
    }


def layers_of_command(parsed_layers: ParsedLayers) -> ParsedLayers:
    """Returns the layers without settings that commands ignore: modules, optimizers, tasks, and configurations of runs.

    A file without imports has only commands. It is kept as it is, so that all of its names are checked.
    """
    is_mixed = any(isinstance(statement, Import) for statement in parsed_layers.case)
    case = list(_command_bindings(parsed_layers.case)) if is_mixed else parsed_layers.case
    overrides = list(_command_bindings(parsed_layers.overrides))
    return replace(
        parsed_layers,
        plugin_modules=[],
        trainer=[],
        trainer_comments=[],
        checkpoint_bindings=[],
        case=case,
        overrides=overrides,
    )


def _command_bindings(statements: Sequence[Statement]) -> Iterator[Binding]:
    for binding in only_bindings(statements):
        is_read = not binding.parameter or (
            binding.name in _COMMAND_NAMES and binding.parameter not in OPTIMIZER_FIELDS
        )
        if is_read and not any(isinstance(reference, Reference) for reference in references_in(binding.value)):
            yield binding


def macros_of(scope: str) -> dict[str, Any]:
    """Returns the values of macros in a scope and the scopes around it, by name. Inner scopes take precedence."""
    macros: dict[str, Any] = {}
    for outer_scope in enclosing_scopes(scope):
        prefix = f"{outer_scope}/" if outer_scope else ""
        for (name, selector), parameters in BINDINGS.items():
            macro_name = name.removeprefix(prefix)
            if (
                selector == _MACRO
                and name.startswith(prefix)
                and macro_name
                and "/" not in macro_name
                and "value" in parameters
            ):
                macros[macro_name] = parameters["value"]
    return macros


def placeholders_in(text: str) -> list[str]:
    """Returns the names in the braces of a text: `{checkpoint}`, `{width}`."""
    return re.findall(r"\{(\w+)\}", text)


def check_command(case: Case, bound: Iterable[str], where: str) -> None:
    """Raises ConfigError if a command, or a setting of its case, is invalid.

    Args:
      case: The case.
      bound: Fields of `Case` that its own scope binds.
      where: Place of the case.
    """
    for name in ("command", "curves"):
        value = getattr(case, name)
        if not isinstance(value, str) or not value.strip():
            expected = "a line such as 'python eval.py --checkpoint {checkpoint} --out {out}'"
            expected = (
                expected if name == "command" else "the file that the command writes, such as '{out}/metrics.jsonl'"
            )
            raise ConfigError(f"Case.{name}", where=where, got=repr(value), expected=expected)
    if "out" not in placeholders_in(case.curves):
        raise ConfigError(
            "Case.curves: another evaluation would write to the same file",
            where=where,
            got=repr(case.curves),
            expected="a file in the folder of the evaluation, such as '{out}/metrics.jsonl'",
        )
    try:
        shlex.split(case.command)
    except ValueError as error:
        raise ConfigError("Case.command is not a command", where=where, got=f"{case.command!r}: {error}") from error
    check_no_shell_syntax(case.command, "Case.command", where)
    files = case.files
    if not isinstance(files, list | tuple) or not all(isinstance(file, str) for file in files):
        raise ConfigError("Case.files", where=where, got=repr(files), expected="patterns such as ('lib/*.py',)")
    directions_by_metric(case.metric_directions, [case.primary_metric], where=where)
    if case.seed_block not in (None, 1):
        got = repr(case.seed_block)
        raise ConfigError("Case.seed_block", where=where, got=got, expected="1: a command evaluates one seed")
    if unread_names := [name for name in bound if name in _TRAINING_FIELDS]:
        raise ConfigError(
            f"Case.{unread_names[0]} has no meaning for a command",
            where=where,
            next_step="leave it out, or bind Case.task instead of Case.command",
        )


def check_task(case: Case, where: str) -> None:
    """Raises ConfigError if a case with a task has settings of a command."""
    for name in ("command", "curves", "files", "metric_directions", "replicates"):
        if (value := getattr(case, name)) and value != getattr(_DEFAULT_CASE, name):
            if name == "command":
                raise ConfigError("the case has a Case.task and a Case.command", where=where, expected="one of them")
            advice = suggestion(name, ["command"])
            raise ConfigError(
                f"Case.{name} only applies to a case with Case.command, and this one has Case.task",
                where=where,
                next_step=advice,
            )
