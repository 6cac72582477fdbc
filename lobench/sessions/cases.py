"""A case by its name in suites, known from their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lobench.core.case import CaseSpec
from lobench.core.errors import SuiteError, suggestion
from lobench.engine.config.files_around import files_of_suite
from lobench.engine.config.suite import specs_in

__all__ = ["names_of_one", "specs_called", "specs_of"]


def specs_of(suites: Sequence[str]) -> list[CaseSpec]:
    """Returns all cases that the suites' files hold, in order."""
    files = {file for suite in suites for file in files_of_suite(Path(suite).resolve()) if file.suffix == ".gin"}
    return [spec for file in sorted(files) for spec in specs_in(file)]


def specs_called(name: str, suites: Sequence[str], specs: Sequence[CaseSpec] | None = None) -> list[CaseSpec]:
    """Returns the cases of a name: `relu32`, `quick/relu32`, or with its file's, `digits.relu32` (`CaseSpec.names`).

    Args:
      specs: All that the suites hold, where they are read already.
    Raises:
      SuiteError: there is none.
    """
    specs = specs_of(suites) if specs is None else specs
    found = [spec for spec in specs if name in spec.names]
    if not found:
        names = dict.fromkeys(spec.name for spec in specs)
        raise SuiteError(
            f"no case {name!r}",
            where=", ".join(suites),
            expected=f"one of {', '.join(names)}" if names else "a scope that binds Case.task",
            next_step=suggestion(name, [each for spec in specs for each in spec.names]),
        )
    return found


def names_of_one(name: str, suites: Sequence[str]) -> frozenset[str]:
    """Returns a case's name and those of its other names that no other case has: older stores do not know its file.

    Raises:
      SuiteError: there is no such case.
    """
    specs = specs_of(suites)
    counts = Counter(each for spec in specs for each in spec.names)
    found = specs_called(name, suites, specs)
    return frozenset({name, *(each for spec in found for each in spec.names if counts[each] == 1)})
