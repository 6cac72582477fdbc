"""Items from bare gin files: each scope that binds `Case.task` or `Case.command`, with its expectations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.result import Outcome
from lobench.core.wording import headline
from lobench.engine.config.suite import gin_files_of_tests, specs_in
from lobench.evaluation.expectations import failed_expectations
from lobench.experiments.pytest_items import ItemMember, members_of
from lobench.pytest_plugin.case_evaluator import BLOCK_VERDICT, evaluate_function
from lobench.pytest_plugin.items import expectations_of

__all__ = ["GinFile", "GinItem", "collect_gin_file"]


def collect_gin_file(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Returns a collector for a gin file that was given on the command line, or has a case that no test uses."""
    is_named = parent.session.isinitpath(path)
    if not is_named:
        if path.resolve() in gin_files_of_tests(path.parent):
            return None
        try:
            if not specs_in(path):
                return None
        except ConfigError:
            # A broken file is reported only if it was given explicitly or contains a case.
            if not re.search(r"Case\.(task|command)", path.read_text(encoding="utf-8", errors="replace")):
                return None
    collector: GinFile = GinFile.from_parent(parent, path=path)
    return collector


class GinFile(pytest.File):
    """A gin file with cases."""

    def collect(self) -> Iterable[pytest.Item]:
        try:
            specs = specs_in(self.path)
        except LobenchError as error:
            raise self.CollectError(str(error)) from error
        if not specs:
            raise self.CollectError(
                f"{self.path}: the file holds no case; expected a scope that binds "
                "Case.task or Case.command, such as `x/Case.task = @MyTask()`"
            )
        for spec in specs:
            members = members_of(self.config, self.path, spec)
            for member in members:
                yield GinItem.from_parent(self, name=f"{spec.name}[{member}]", case_spec=spec, member=member)
            if not members:
                yield GinItem.from_parent(self, name=spec.name, case_spec=spec)


class GinItem(pytest.Item):
    """One case of a bare gin file."""

    def __init__(self, *, case_spec: CaseSpec, member: ItemMember | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.case_spec, self.member = case_spec, member

    def runtest(self) -> None:
        result = evaluate_function(self)(self.case_spec)
        expectations = expectations_of(self)
        problems = failed_expectations(expectations, result)
        if self.member is not None:
            # The ledger's evaluation is of the whole block, for all sessions.
            message = headline(AssertionError("; ".join(problems))) if problems else ""
            self.stash[BLOCK_VERDICT] = (Outcome.FAILED if problems else Outcome.PASSED), message
            problems = failed_expectations(expectations, result.only(self.member.session))
        if problems:
            raise AssertionError("; ".join(problems))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, AssertionError | LobenchError):
            prefix = f"method {self.member.method.name}, session {self.member.session}: " if self.member else ""
            return f"{prefix}{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        # pytest fails to report a skipped item if its line is None.
        return self.path, 0, f"{self.path.name}: {self.name}"
