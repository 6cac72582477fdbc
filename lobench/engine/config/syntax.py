"""gin syntax: parses files into statements, without importing the modules that they name."""

from __future__ import annotations

import functools
import importlib.util  # noqa: F401  (gin's parser uses it without importing it)
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gin import config_parser

from lobench.core.errors import ConfigError
from lobench.core.search.space import Kind
from lobench.engine.paths import path_exists, similar_path_advice
from lobench.engine.retries import retried

__all__ = [
    "LOBENCH_NAMES",
    "Binding",
    "Import",
    "Macro",
    "Reference",
    "Statement",
    "binding_text",
    "case_scopes",
    "gin_file_text",
    "gin_text",
    "last_name",
    "leaf_values",
    "may_name_same",
    "only_bindings",
    "parse_data",
    "parse_file",
    "parse_text",
    "parse_trainer_config",
    "references_in",
    "statement_text",
]


LOBENCH_NAMES = ("Case", "Checkpoint", "Experiment", "Method", "Phase", "Suite", "expect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Reference `@scope/selector` or, if evaluated, `@scope/selector()`."""

    scoped_selector: str
    evaluate: bool

    @property
    def selector(self) -> str:
        return self.scoped_selector.rsplit("/", 1)[-1]

    @property
    def name(self) -> str:
        return last_name(self.selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """Reference to a macro, `%name`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Binding `scope/selector.parameter = value`. `where` is file and line. A macro's definition has no parameter.

    If a user's class has the name of a configurable of lobench, `name` includes its package: `my_package.Case`.
    """

    scope: str
    selector: str
    parameter: str
    value: Any
    where: str

    @property
    def name(self) -> str:
        name = last_name(self.selector)
        return self.selector if name in LOBENCH_NAMES and self.selector not in (name, f"lobench.{name}") else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    module: str
    where: str


Statement = Binding | Import
_IncludeFinder = Callable[[Path, str, str], Path]  # (folder of the including file, name, where) -> path


class _Delegate(config_parser.ParserDelegate):  # type: ignore[misc]
    def configurable_reference(self, scoped_selector: str, evaluate: bool) -> Reference:
        return Reference(scoped_selector=scoped_selector, evaluate=evaluate)

    def macro(self, name: str) -> Macro:
        return Macro(name=name)


def parse_file(path: Path) -> list[Statement]:
    """Parses a gin file and the files that it includes. Paths are relative to the including file.

    Raises:
      ConfigError: A file does not exist, is not text, has a syntax error (with file and line), or includes itself.

    >>> len(parse_file(Path("quadratic.gin")))
    3
    """
    return _parse_file(path, (), lambda folder, name, where: folder / name)


def parse_text(text: str, where: str) -> list[Statement]:
    """Parses gin text that is not from a file. `where` names it in errors.

    >>> [type(statement).__name__ for statement in parse_text("sgd.learning_rate = 0.1", "an example")]
    ['Binding']
    """
    return list(_parse_statements(text, where, None, (), lambda folder, name, where: folder / name))


def parse_trainer_config(path: Path) -> list[Statement]:
    """Parses the `config.gin` next to checkpoints, which may be of unknown origin.

    It may include files below its own folder only, because parts of other files could appear in errors and reports.

    Raises:
      ConfigError: As in `parse_file`. Also if the file, or one that it includes, is not a regular file or is elsewhere.
    """
    if not retried(path.is_file):
        raise ConfigError("cannot read the gin file", where=str(path), expected="a regular file")
    try:
        return _parse_file(path, (), functools.partial(_included_file, path.resolve().parent))
    except ConfigError as error:
        if path.is_symlink():  # its target may be another person's file, so its content is not quoted
            raise ConfigError("the file that it links to is not a gin file", where=str(path)) from error
        raise


def parse_data(text: str, where: str, *, is_file: bool = False) -> list[Statement]:
    """Parses gin text that came with a checkpoint.

    Args:
      text: gin text in the checkpoint, or content of such a file.
      where: Place in error messages.
      is_file: Whether `where` is the name of a file, so that errors include the line.
    Raises:
      ConfigError: The text has a syntax error, or includes a file.
    """
    return list(_parse_statements(text, where, Path(where) if is_file else None, (), _refuse_include))


def gin_file_text(path: Path, included_in: str = "") -> str:
    """Returns the text of a gin file. A disk that fails for a while is tried again.

    Args:
      path: Path of the file.
      included_in: File and line of the statement that includes it, for error messages.
    Raises:
      ConfigError: The file cannot be read, or is not text.
    """
    try:
        return retried(lambda: path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        next_step = f"it is included in {included_in}" if included_in else ""
        if isinstance(error, IsADirectoryError):
            folder_error = ConfigError("this is a folder", where=str(path), expected="a gin file", next_step=next_step)
            raise folder_error from error
        if isinstance(error, FileNotFoundError) and not next_step:
            next_step = similar_path_advice(path)
        raise ConfigError("cannot read the gin file", where=str(path), got=reason, next_step=next_step) from error


def _included_file(root: Path, folder: Path, name: str, where: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(root) or not path_exists(path, kind="file"):
        raise ConfigError(
            "the include is refused", where=where, got=repr(name), expected=f"a regular file in the folder {root}"
        )
    return path


def _refuse_include(folder: Path, name: str, where: str) -> Path:
    raise ConfigError(
        "the include is refused", where=where, got=repr(name), expected="`Name.parameter = number, text or bool`"
    )


def _parse_file(
    path: Path, includers: tuple[Path, ...], find_included: _IncludeFinder, included_in: str = ""
) -> list[Statement]:
    path = path.resolve()
    if path in includers:
        raise ConfigError(
            "the file includes itself", where=str(path), got=" -> ".join(includer.name for includer in includers)
        )
    return list(_parse_statements(gin_file_text(path, included_in), str(path), path, includers, find_included))


def _parse_statements(
    text: str, where: str, path: Path | None, includers: tuple[Path, ...], find_included: _IncludeFinder
) -> Iterator[Statement]:
    try:
        for statement in _gin_statements(text):
            line = f"{where}:{statement.location.line_num}" if path else where
            if isinstance(statement, config_parser.BindingStatement):
                yield Binding(
                    scope=statement.scope,
                    selector=statement.selector,
                    parameter=statement.arg_name,
                    value=statement.value,
                    where=line,
                )
            elif isinstance(statement, config_parser.ImportStatement):
                yield Import(module=statement.module, where=line)
            elif isinstance(statement, config_parser.IncludeStatement):
                file = find_included(path.parent if path else Path.cwd(), statement.filename, line)
                yield from _parse_file(file, (*includers, path) if path else includers, find_included, line)
    except SyntaxError as error:
        line_number = error.lineno
        # Earlier lines of the message are Python's own.
        message, content = error.msg.splitlines()[-1].strip(), (error.text or "").strip()
        expected, next_step = _expected_and_fix(message, content)
        got = repr(content) if content else ""
        # The text is the value of an option, as the user typed it.
        if where == got and content.startswith(_OPTIMIZER_PREFIX):
            where, got = "", repr(content.removeprefix(_OPTIMIZER_PREFIX))
        raise ConfigError(
            "gin syntax error" if expected else f"gin syntax error: {message}",
            where=f"{where}:{line_number}" if path and line_number else where,
            got=got,
            expected=expected,
            next_step=next_step,
        ) from error
    except tokenize.TokenError as error:
        line_number = error.args[1][0]
        raise ConfigError(
            "gin syntax error: a bracket or a text in triple quotes is not closed",
            where=f"{where}:{line_number}" if path else where,
        ) from error


# Beginnings of messages of gin's parser, with the expected syntax.
_EXPECTED_BY_MESSAGE = {
    "Expected file path as string.": "a file's name in quotes",
    "Couldn't parse statement": "`Name.parameter = value`",
    "Expected newline.": "a single value, and one statement a line",
    "Unexpected token.": "gin text, with lines such as `Name.parameter = value`",
    "Unable to parse value.": "a number, a text in quotes, True, False, None, a list, `@Name()` or `%macro`",
    "Failed to parse token": "a number, a text in quotes, True, False, None, a list, `@Name()` or `%macro`",
    "Malformatted scope or selector.": "`scope/Name.parameter = value`",
    "Expected ')'.": "`@Name()`, with the arguments as bindings of their own",
}

_OPTIMIZER_PREFIX = "Case.optimizer = @"

_SPACE_NAMES = tuple(kind.capitalize() for kind in Kind)


def _expected_and_fix(message: str, content: str) -> tuple[str, str]:
    """Returns the form that gin's parser expected, in gin's syntax, and the corrected text if it is obvious."""
    expected = next(
        (meaning for message_start, meaning in _EXPECTED_BY_MESSAGE.items() if message.startswith(message_start)), ""
    )
    if call_match := re.search(r"@((?:\w+/)*[\w.]+)\(([^()]+)\)", content):
        name, arguments = call_match[1], call_match[2]
        line = content.replace(f"({arguments})", "()", 1)
        bindings = [binding.strip() for binding in arguments.split(",")]
        if all(re.match(r"\w+ *=", binding) for binding in bindings):
            return expected, f"write {'; '.join([line, *(f'{name}.{binding}' for binding in bindings)])!r}"
        parameter = f"{last_name(name)}.learning_rate = {bindings[0]}"  # the first parameter of most optimizers
        # The value of an option is shown without `Case.optimizer = @`.
        if option_match := re.fullmatch(r"Case\.optimizer = @(.*\(\))", line):
            return (
                f"each parameter by its name, after {option_match[1]!r}",
                f"for example {f'{option_match[1]}; {parameter}'!r}",
            )
        return expected, f"for example {line!r} and '{parameter}'"
    if match := re.fullmatch(rf"(.*?)\s*=\s*({'|'.join(_SPACE_NAMES)})\(.*\)", content):
        parameter = match[1].rpartition(".")[2]
        space_type = match[2]
        field = "values" if space_type in ("Discrete", "Categorical") else "low"
        return (
            f"`{match[1]} = @{parameter}/{space_type}()`, with lines such as `{parameter}/{space_type}.{field} = ...`",
            "",
        )
    if statements := re.fullmatch(r"(.*=\s*@[\w./]+\(\))\s*,\s*(\w[\w./]*\s*=.*)", content):
        return (
            expected,
            f"write two statements, which `;` separates in an option: {f'{statements[1]}; {statements[2]}'!r}",
        )
    if name_and_value := re.fullmatch(r"((?:\w+/)*\w[\w.]*\.\w+)\s*:\s*([^\s:]+)", content):
        return expected, f"did you mean '{name_and_value[1]} = {name_and_value[2]}'?"
    return expected, ""


@functools.lru_cache(maxsize=16)
def _gin_statements(text: str) -> tuple[Any, ...]:
    """Returns gin's own statements. Cached, because the file is parsed once per case."""
    return tuple(config_parser.ConfigParser(text, _Delegate()))


def case_scopes(statements: Sequence[Statement]) -> list[str]:
    """Returns the scopes that bind `Case.task` or `Case.command`, in order of first appearance.

    A binding without a scope defines no case.
    """
    cases = (
        binding
        for binding in only_bindings(statements)
        if binding.name == "Case" and binding.parameter in ("task", "command")
    )
    return list(dict.fromkeys(case.scope for case in cases if case.scope))


def only_bindings(statements: Iterable[Statement]) -> list[Binding]:
    """Returns the statements that are bindings."""
    return [statement for statement in statements if isinstance(statement, Binding)]


def last_name(selector: str) -> str:
    """Returns the name in a selector without its modules: `MyLOpt` for `my_lopts.MyLOpt`."""
    return selector.rsplit(".", 1)[-1]


def may_name_same(selector: str, other: str) -> bool:
    """Returns whether two selectors may name one configurable.

    >>> may_name_same("adam", "lobench.adam"), may_name_same("lobench.adam", "mine.adam")
    (True, False)
    """
    if selector == other or last_name(selector) != last_name(other):
        return selector == other
    selector_parts = selector.split(".")
    other_parts = other.split(".")
    num_parts = min(len(selector_parts), len(other_parts))
    # With the same package, both may be names of one class: a package may export a class of one of its modules.
    return selector_parts[-num_parts:] == other_parts[-num_parts:] or selector_parts[0] == other_parts[0]


def gin_text(value: Any) -> str:
    """Returns a value in gin syntax: `@adam()`, `%rate`, `(32, 32)`."""
    if isinstance(value, Reference):
        return f"@{value.scoped_selector}{'()' if value.evaluate else ''}"
    if isinstance(value, Macro):
        return f"%{value.name}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{gin_text(key)}: {gin_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(gin_text, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(gin_text, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)


def binding_text(binding: Binding, scope: str | None = None) -> str:
    """Returns the line of a binding, in another scope if one is given."""
    scope = binding.scope if scope is None else scope
    parameter = f".{binding.parameter}" if binding.parameter else ""
    return f"{scope + '/' if scope else ''}{binding.selector}{parameter} = {gin_text(binding.value)}"


def statement_text(statement: Statement) -> str:
    """Returns the line of a statement."""
    return binding_text(statement) if isinstance(statement, Binding) else f"import {statement.module}"


def references_in(value: Any) -> Iterator[Reference | Macro]:
    """Yields the references and macros in a value, including those nested in lists and dictionaries."""
    return (item for item in leaf_values(value) if isinstance(item, Reference | Macro))


def leaf_values(value: Any) -> Iterator[Any]:
    """Yields the values nested in lists and dictionaries, including keys."""
    if isinstance(value, dict | list | tuple):
        for item in value.items() if isinstance(value, dict) else value:
            yield from leaf_values(item)
    else:
        yield value
