"""Cases by what people call them, known from the files of suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from lobench.core.case import CaseSpec
from lobench.core.errors import SuiteError, suggestion
from lobench.engine.config.files_around import files_below
from lobench.engine.config.suite import specs_in

__all__ = ["names_of_one", "spec_called", "specs_called", "specs_of"]


def specs_of(*suites: str | Path) -> list[CaseSpec]:
    """Returns all cases of gin files, and of all gin files in folders, in order."""
    files = dict.fromkeys(file.resolve() for suite in suites for file in _gin_files(Path(suite)))
    return [spec for file in files for spec in specs_in(file)]


def _gin_files(suite: Path) -> list[Path]:
    return sorted(file for file in files_below(suite) if file.suffix == ".gin") if suite.is_dir() else [suite]


def specs_called(names: Sequence[str], *suites: str | Path) -> list[CaseSpec]:
    """Returns the cases of names, in the suites' order; of no name all.

    A case is called `relu32`, `quick/relu32`, or with its file's name `digits.relu32` (`CaseSpec.names`); a scope that
    has axes stands for all its cells.

    Raises:
      SuiteError: there is none of a name, or none at all.
    """
    specs = specs_of(*suites)
    for name in names or ([] if specs else [""]):
        if not any(spec.is_called(name) for spec in specs):
            known = ", ".join(dict.fromkeys(spec.name for spec in specs))
            raise SuiteError(
                f"no case {name!r}" if name else "the suite holds no case",
                where=", ".join(map(str, suites)),
                expected=f"one of {known}" if specs else "a scope that binds Case.task",
                next_step=suggestion(name, [each for spec in specs for each in spec.names]),
            )
    return [spec for spec in specs if not names or any(map(spec.is_called, names))]


def spec_called(name: str | None, suite: str | Path) -> CaseSpec:
    """Returns the one case of a name; None: the one that the suite has.

    Raises:
      SuiteError: there is none, or several.
    """
    found = specs_called([] if name is None else [name], suite)
    if len(found) > 1:
        raise SuiteError(
            "which case?" if name is None else f"several cases are called {name}",
            where=str(suite),
            expected=f"one of {', '.join(f'{spec.file}.{spec.name}' for spec in found)}",
        )
    return found[0]


def names_of_one(name: str, suites: Sequence[str]) -> frozenset[str]:
    """Returns a case's name and those of its other names that no other case has: older stores do not know its file.

    Raises:
      SuiteError: there is no such case.
    """
    counts = Counter(each for spec in specs_of(*suites) for each in spec.names)
    found = specs_called([name], *suites)
    return frozenset({name, *(each for spec in found for each in spec.names if counts[each] == 1)})
