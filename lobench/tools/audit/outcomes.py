"""Outcomes of repeated results, by the tests and expectations of a bundle's suites."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from lobench.core.case import CaseSpec
from lobench.core.errors import LobenchError
from lobench.core.result import Curves, Outcome
from lobench.core.wording import headline
from lobench.engine.store.ledger import EvaluationRow
from lobench.evaluation.expectations import failed_expectations
from lobench.evaluation.result import Result
from lobench.tools.audit.reevaluation import RepeatableCase, find_test_functions

__all__ = ["OutcomeChecker"]

_module_numbers = itertools.count()


class OutcomeChecker:
    """Runs the tests of suites on curves. The tests run in this process, like other code of the suites.

    Args:
      folders: Folders of the suites.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._modules: dict[Path, ModuleType | str] = {}

    def outcome_of(self, row: EvaluationRow, case: RepeatableCase, curves: Sequence[Curves]) -> Outcome | str:
        """Returns the outcome that a result's test or expectations have for some curves, or why it is unknown.

        Args:
          row: The result.
          case: Case of the result.
          curves: Curves of one seed block, or of all blocks that the test saw.
        """
        if row.case.whole:
            return Outcome.PASSED  # expectations are for the whole training
        file, _, item = row.case.node_id.partition("::")
        if file.endswith(".gin") and case.test:  # the case is an item of an experiment
            test_file = find_test_functions(Path(case.spec.path).parent)[case.test]
            return self._outcome_of_test(test_file, case.test, case.spec, Result(curves))
        if file.endswith(".gin"):
            try:
                failed = failed_expectations(case.bound.expectations, Result(curves, case.bound.case))
                return Outcome.FAILED if failed else Outcome.PASSED
            except KeyError as error:
                return headline(error)
        return self._outcome_of_test(Path(file), item.partition("[")[0], case.spec, Result(curves))

    def _outcome_of_test(self, file: Path, name: str, spec: CaseSpec, result: Result) -> Outcome | str:
        path = next((path_in_suite for folder in self._folders for path_in_suite in folder.rglob(file.name)), None)
        if path is None or "::" in name:
            return f"test {name} is not in the bundle, or is a method"
        module = self._imported_module(path)
        if isinstance(module, str):
            return module
        test = getattr(module, name, None)
        pytest_marks = list(getattr(test, "pytestmark", ()))
        names = {
            pytest_mark.args[0]
            for pytest_mark in pytest_marks
            if pytest_mark.name == "parametrize" and isinstance(pytest_mark.args[0], str)
        }
        if test is None or len(pytest_marks) != len(names) or len(names) != 1:
            return f"test {name} has marks or parameters of its own"
        (argument,) = names
        if not set(inspect.signature(test).parameters) <= {argument, "evaluate"}:
            return f"test {name} asks for other fixtures than `evaluate`"
        arguments = {argument: spec, "evaluate": lambda case: result}
        return _outcome_of_call(
            test, {parameter: arguments[parameter] for parameter in inspect.signature(test).parameters}
        )

    def _imported_module(self, path: Path) -> ModuleType | str:
        if path not in self._modules:
            try:
                self._modules[path] = _import_file(path)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self._modules[path] = f"test file {path.name} cannot be imported: {headline(error)}"
        return self._modules[path]


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_lobench_audited_{next(_module_numbers)}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _outcome_of_call(test: Callable[..., object], arguments: dict[str, Any]) -> Outcome | str:
    import pytest

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            test(**arguments)
    except (AssertionError, pytest.fail.Exception):
        return Outcome.FAILED
    except pytest.skip.Exception:
        return Outcome.SKIPPED
    except KeyboardInterrupt:
        raise
    except LobenchError as error:
        return headline(error)
    except BaseException as error:  # noqa: BLE001  (what a test raises)
        return f"test {test.__name__} raises {headline(error)}"
    return Outcome.PASSED
