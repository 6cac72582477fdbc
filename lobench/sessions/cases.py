"""A case by its name in suites, known from their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lobench.core.case import CaseSpec
from lobench.core.errors import SuiteError, suggestion
from lobench.engine.config.files_around import files_of_suite
from lobench.engine.config.suite import specs_in

__all__ = ["specs_called", "specs_of"]


def specs_of(suites: Sequence[str]) -> list[CaseSpec]:
    """Returns all cases that the suites' files hold, in order."""
    files = {file for suite in suites for file in files_of_suite(Path(suite).resolve()) if file.suffix == ".gin"}
    return [spec for file in sorted(files) for spec in specs_in(file)]


def specs_called(name: str, suites: Sequence[str], specs: Sequence[CaseSpec] | None = None) -> list[CaseSpec]:
    """Returns the cases of a name: `relu32`, `quick/relu32`, or with its file's, `digits.relu32`.

    Args:
      specs: All that the suites hold, where they are read already.
    Raises:
      SuiteError: there is none.
    """
    specs = specs_of(suites) if specs is None else specs
    found = [spec for spec in specs if name in _names(spec)]
    if not found:
        names = dict.fromkeys(spec.name for spec in specs)
        raise SuiteError(
            f"no case {name!r}",
            where=", ".join(suites),
            expected=f"one of {', '.join(names)}" if names else "a scope that binds Case.task",
            next_step=suggestion(name, [each for spec in specs for each in _names(spec)]),
        )
    return found


def _names(spec: CaseSpec) -> list[str]:
    short = [spec.name, f"{Path(spec.path).stem}.{spec.name}"]
    return [*short, *(f"{spec.suite}/{each}" for each in short)]
