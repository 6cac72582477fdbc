"""Cases of a suite from its gin files: by file, by name, and as pytest collects them."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.case import Case, CaseSpec, split_case_path
from lobench.core.errors import ConfigError, LobenchError, SuiteError, UsageError, suggestion
from lobench.engine.config.axes import axis_combinations
from lobench.engine.config.command_case import commands_in
from lobench.engine.config.python_cases import gin_file_of_tests, specs_of_python_cases, with_axis_combinations
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite_files import files_below
from lobench.engine.config.syntax import case_scopes, parse_file
from lobench.engine.paths import path_exists
from lobench.engine.retries import retried

if TYPE_CHECKING:
    import pytest

__all__ = [
    "cases",
    "find_case",
    "gin_files_of",
    "gin_files_of_tests",
    "names_of_case",
    "require_cases",
    "single_spec_called",
    "specs_called",
    "specs_in",
    "specs_of_suites",
    "takes_any_checkpoint",
    "test_specs_of",
]

_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")  # pytest's default `python_files`


def specs_in(path: Path) -> list[CaseSpec]:
    """Returns the cases of a gin file in order, without importing the modules that it names.

    Raises:
      ConfigError: The file cannot be read, or has a syntax error.

    >>> [spec.scope for spec in specs_in(Path("quadratic.gin"))]
    ['small']
    """
    path = path.resolve()
    root = path.parent.parent
    statements = parse_file(path)
    return [
        CaseSpec(path=str(path), scope=scope, root=str(root), cell=cell)
        for scope in case_scopes(statements)
        for cell in axis_combinations(statements, scope)
    ]


def specs_of_suites(*suites: str | Path) -> list[CaseSpec]:
    """Returns all cases of gin files, of the gin files in folders, and those that tests name in Python, in order.

    Only pytest knows the values of cases in Python. Cases given as a dictionary (`@cases(**found)`) are left out.
    """
    test_files = dict.fromkeys(file.resolve() for suite in suites for file in _test_files_of(Path(suite)))
    return [
        *(spec for file in _gin_files_of_suites(suites) for spec in specs_in(file)),
        *(spec for file in test_files for spec in _python_case_specs(file)),
    ]


def _python_case_specs(file: Path) -> list[CaseSpec]:
    """Returns the cases that `@cases(name=...)` names in a test file, without their gin text.

    The file is imported only if a case has axes, because their values are part of the names.
    """
    try:
        tree = _syntax_tree(file)
    except OSError:
        return []  # pytest reports it when it collects the file
    if tree is None:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    cases_calls = [node for node in calls if getattr(node.func, "id", getattr(node.func, "attr", "")) == "cases"]
    names = dict.fromkeys(keyword.arg for node in cases_calls for keyword in node.keywords if keyword.arg is not None)
    path = str(gin_file_of_tests(file))
    specs = [CaseSpec(path=path, scope=name, root=str(file.parent.parent)) for name in names]
    if any(keyword.arg == "axes" for call in calls for keyword in call.keywords):
        return [cell_spec for spec in specs for cell_spec in with_axis_combinations(spec)]
    return specs


def test_specs_of(*suites: str | Path) -> list[CaseSpec]:
    """Returns the ordinary tests of suites, without their parameters. Files are parsed, not imported."""
    files = dict.fromkeys(file.resolve() for suite in suites for file in _test_files_of(Path(suite)))
    return [
        CaseSpec(path=str(file), scope=name, root=str(file.parent.parent))
        for file in files
        for name in _ordinary_test_names(file)
    ]


def _ordinary_test_names(file: Path) -> list[str]:
    """Returns the names of a file's tests that take no case of a gin file, such as `test_loss` or `TestLM::test_loss`.

    The names begin as pytest expects by default.
    """
    if (tree := _syntax_tree(file)) is None:
        return []
    pending_nodes: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    names = []
    while pending_nodes:
        group, node = pending_nodes.pop(0)
        if isinstance(node, ast.ClassDef):
            pending_nodes = [*((f"{group}{node.name}::", child) for child in node.body), *pending_nodes]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if all(argument.arg != "case" for argument in arguments):
                names.append(f"{group}{node.name}")
    return list(dict.fromkeys(names))


def _gin_files_of_suites(suites: Iterable[str | Path]) -> list[Path]:
    return list(dict.fromkeys(file.resolve() for suite in suites for file in gin_files_of(Path(suite))))


def takes_any_checkpoint(*suites: str | Path) -> bool:
    """Returns whether suites have cases, and all are commands or ordinary tests, which read checkpoints themselves.

    Such suites evaluate no learned optimizer. Files are parsed, not imported.
    """
    try:
        gin_files = _gin_files_of_suites(suites)
        if (are_commands := _all_cases_are_commands(gin_files)) is False:
            return False
        test_files = [file for suite in suites for file in _test_files_of(Path(suite))]
        return all(map(_has_ordinary_tests, test_files)) and bool(are_commands or test_files)
    except (LobenchError, OSError):
        return False  # a worker reports it


def require_cases(*suites: str | Path) -> None:
    """Refuses suites without a case and without a test. Files are parsed, not imported.

    Otherwise a suite of commands with a mistake would look like a suite that trains, and a watch would wait for thetas.

    Raises:
      SuiteError: There are neither cases nor tests.
      ConfigError: A gin file does not parse.
    """
    if suites and not any(map(_may_have_tests, map(Path, suites))):
        specs_called((), *suites)


def _may_have_tests(suite: Path) -> bool:
    """Returns whether a suite has a Python file with tests, or a conftest, which may collect any file."""
    if _test_files_of(suite):
        return True
    modules = [file for file in files_below(suite) if file.suffix == ".py"] if path_exists(suite, kind="folder") else []
    if any(file.name == "conftest.py" for file in modules):
        return True
    return any("def test" in retried(partial(file.read_text, "utf-8", "replace")) for file in modules)


def _all_cases_are_commands(gin_files: Iterable[Path]) -> bool | None:
    """Returns whether all cases of gin files are commands; None if there are no cases."""
    parsed_files = [parse_file(file) for file in gin_files]
    are_commands = [
        scope in commands_in(statements) for statements in parsed_files for scope in case_scopes(statements)
    ]
    return all(are_commands) if are_commands else None


def _has_ordinary_tests(file: Path) -> bool:
    """Returns whether a file has only ordinary tests, which train nothing.

    Its tests then use neither a gin file with tasks nor the fixture `evaluate` without a gin file.
    """
    if (tree := _syntax_tree(file)) is None:
        return True
    named_files = _gin_files_in(tree, file.parent)
    gin_files = [path for path in named_files if path.is_file()]
    if _all_cases_are_commands(gin_files) is False:
        return False
    uses_evaluate = any(isinstance(node, ast.arg) and node.arg == "evaluate" for node in ast.walk(tree))
    return bool(gin_files) or not uses_evaluate


def gin_files_of(suite: Path) -> list[Path]:
    """Returns the gin files of a folder, in order, or the file itself."""
    if path_exists(suite, kind="folder"):
        return sorted(file for file in files_below(suite) if file.suffix == ".gin")
    return [suite] if suite.suffix != ".py" else []


def _test_files_of(suite: Path) -> list[Path]:
    """Returns the files of tests in a folder, in order, or the file itself."""
    if path_exists(suite, kind="folder"):
        return sorted(file for file in files_below(suite) if _TEST_FILE.fullmatch(file.name))
    return [suite] if suite.suffix == ".py" else []


def specs_called(names: Sequence[str], *suites: str | Path, with_tests: bool = False) -> list[CaseSpec]:
    """Returns the cases with given names, in the suites' order. Without names, returns all cases.

    A case is called `relu32`, `quick/relu32`, or with its file's name `digits.relu32` (`CaseSpec.names`). The name of a
    scope with axes means all its cells, and the name of a test all its parameters.

    Args:
      names: Names of cases.
      suites: Folders and files.
      with_tests: Whether ordinary tests count as cases. Parameters of a test, as in `test_loss[long]`, are not checked,
        because only pytest knows them.
    Raises:
      SuiteError: No case has a given name, or the suites have no cases.

    >>> [spec.scope for spec in specs_called(["small"], "quadratic.gin")]
    ['small']
    """
    specs = specs_of_suites(*suites)
    tests = test_specs_of(*suites) if with_tests else []
    specs_by_name = {name: [*_specs_called(name, specs), *_tests_called(name, tests)] for name in names}
    all_specs = [*specs, *tests]
    for name in [name for name in names if not specs_by_name[name]] or ([] if all_specs else [""]):
        case_names = ", ".join(dict.fromkeys(spec.name for spec in all_specs))
        expected = f"one of {case_names}" if all_specs else "a scope that binds Case.task or Case.command"
        raise SuiteError(
            f"no case {name!r}" if name else "the suite holds no case",
            where=", ".join(map(str, suites)),
            expected=expected,
            next_step=suggestion(name, [name for spec in all_specs for name in spec.names]),
        )
    if not names:
        return all_specs
    test_specs = dict.fromkeys(
        spec for specs_of_name in specs_by_name.values() for spec in specs_of_name if spec.is_test
    )
    return [*(spec for spec in specs if any(map(spec.has_name, names))), *test_specs]


def _specs_called(name: str, specs: Iterable[CaseSpec]) -> list[CaseSpec]:
    return [spec for spec in specs if spec.has_name(name)]


def _tests_called(name: str, tests: Iterable[CaseSpec]) -> list[CaseSpec]:
    """Returns the tests that a name such as `test_loss[relu32]` means, with the parameters in its brackets."""
    function, bracket, parameters = name.partition("[")
    return [replace(test, scope=f"{test.scope}{bracket}{parameters}") for test in _specs_called(function, tests)]


def single_spec_called(name: str | None, suite: str | Path) -> CaseSpec:
    """Returns the case with a given name, or the only case of a suite if the name is None.

    Raises:
      SuiteError: No case, or more than one, has this name.
    """
    specs = specs_called([] if name is None else [name], suite)
    if len(specs) > 1:
        raise SuiteError(
            "which case?" if name is None else f"several cases are called {name}",
            where=str(suite),
            expected=f"one of {', '.join(f'{spec.file}.{spec.name}' for spec in specs)}",
        )
    return specs[0]


def find_case(text: str, suite: str = "") -> tuple[Path, CaseSpec]:
    """Returns the suite and the case that a text names, in any spelling that lobench prints.

    Args:
      text: `relu32` with a suite; `quick/relu32`, `quick/digits.gin::relu32` or `digits.gin:relu32` without one.
      suite: Path of a suite, or name of a shipped one.
    Raises:
      UsageError: The suite does not exist, or neither argument names one.
      SuiteError: No case, or more than one, has this name.
    """
    suite_text, name = split_case_path(text)
    if suite:
        path = find_suite(suite)
        return path, single_spec_called(text, path)
    if Path(text).suffix == ".gin" and Path(text).is_file():
        names = ", ".join(f"{text}/{spec.name}" for spec in specs_of_suites(text))
        raise UsageError("this is a suite, and not one of its cases", where=text, expected=f"one of {names}")
    file, _, _ = name.partition(".")
    if not suite_text and file != name:  # digits.relu32: a case of digits.gin, or of a suite called digits
        suite_text, name = (f"{file}.gin", name) if Path(f"{file}.gin").is_file() else (file, name)
    if not suite_text:
        raise UsageError(f"which suite has the case {text!r}?", next_step=f"write SUITE/{text}, or add --suite SUITE")
    # Tables name a suite by its folder, which may be the working directory.
    if suite_text == Path.cwd().name and not Path(suite_text).exists():
        suite_text = "."
    path = find_suite(suite_text)
    try:
        return path, single_spec_called(name, path)
    except ConfigError as error:
        if not path.is_dir() or not error.where.startswith(str(path.resolve())):
            raise
        advice = f"every .gin file of the suite {str(path)!r} is read to find {name!r}; FILE.gin/{name} reads only FILE"
        raise ConfigError(
            error.what,
            where=error.where,
            got=error.got,
            expected=error.expected,
            next_step="; ".join(filter(None, (error.next_step, advice))),
        ) from error


def names_of_case(name: str, suites: Sequence[str]) -> frozenset[str]:
    """Returns a name of a case or ordinary test and its unambiguous other names, by which older stores may know it.

    Raises:
      SuiteError: No case has this name.
    """
    specs = specs_called([name], *suites, with_tests=True)
    all_specs = {*specs_of_suites(*suites), *test_specs_of(*suites), *specs}
    counts = Counter(name for spec in all_specs for name in spec.names)
    return frozenset({name, *(name for spec in specs for name in spec.names if counts[name] == 1)})


def cases(path: str | Path | None = None, /, **named: Case) -> pytest.MarkDecorator:
    """Parametrizes a test with the cases of a gin file, or with cases in Python.

    Example:
        relu = lobench.Case(task=DigitsMLP(hidden_sizes=(32,)), num_inner_steps=500)

        @cases(relu32=relu, wide=relu.replace(task=DigitsMLP(hidden_sizes=(256,))))
        def test_mine(case, evaluate): ...

    Args:
      path: Path of the gin file, relative to the calling file. Each scope that binds `Case.task` or `Case.command` is a
        case.
      named: Cases by name, in place of a file. In `test_mine.py` they have the identity of cases of `mine.gin`.
    Returns:
      A `pytest.mark.parametrize` of the argument `case`. The ids are the scopes, or the cells of a scope that has axes.

    >>> lobench.cases("quadratic.gin").args[0]
    'case'
    """
    import pytest  # not at the top, because a chief reads suites without running tests

    caller_file = sys._getframe(1).f_code.co_filename  # `inspect.stack` looks at every imported module
    file = Path(caller_file) if path is None else Path(caller_file).parent / path
    try:
        if (path is None) != bool(named):
            raise SuiteError(
                "cases", where=caller_file, expected="the path of a gin file, or cases by name, one of them"
            )
        specs = specs_of_python_cases(file, named) if path is None else specs_in(file)
    except LobenchError as error:
        # pytest shows this exception without a traceback.
        raise pytest.Collector.CollectError(str(error)) from error
    if not specs:
        raise pytest.Collector.CollectError(
            f"{file}: the file holds no case; expected a scope that binds Case.task or Case.command"
        )
    return pytest.mark.parametrize("case", specs, ids=[spec.name for spec in specs])


def gin_files_of_tests(folder: Path) -> set[Path]:
    """Returns the gin files that a folder's `test_*.py` files name in strings. The tests are parsed, not run."""
    gin_files: set[Path] = set()
    for file in folder.glob("test_*.py"):
        try:
            tree = _syntax_tree(file)
        except OSError:
            continue  # pytest reports it when it collects the file
        if tree is not None:
            gin_files |= _gin_files_in(tree, folder)
    return gin_files


def _syntax_tree(file: Path) -> ast.Module | None:
    """Returns the syntax tree of a test file; None if it does not parse, which pytest reports when it collects it.

    Raises:
      OSError: The file cannot be read.
    """
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return None


def _gin_files_in(tree: ast.AST, folder: Path) -> set[Path]:
    """Returns the gin files that strings of a syntax tree name, relative to a folder."""
    names = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {(folder / name).resolve() for name in names if isinstance(name, str) and name.endswith(".gin")}
