"""Session arguments: values of lobench's options, and suites by name.

pytest chooses root and ini file before it loads plugins. Of `--lobench-checkpoint PATH` it does not know then that PATH
belongs to an option, takes it for a test folder, and chooses the common ancestor of both: `/`, say, with node ids of
its own and without the suite's ini file. So the session begins anew, with `--lobench-checkpoint=PATH`, before a
conftest is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lobench.core.errors import UsageError
from lobench.engine.config.shipped import find_suite, shipped_suite
from lobench.pytest_plugin.options import WITH_VALUE

__all__ = ["joined", "prepare_restart", "restart", "take_named_suites"]

_SUBJECTS = ("lobench_checkpoint", "lobench_optimizer")
_JOINED = pytest.StashKey[list[str]]()


def joined(args: Sequence[str]) -> list[str]:
    """Returns the arguments with each value that is a path that exists joined to its option."""
    found: list[str] = []
    for arg in args:
        if found and found[-1] in WITH_VALUE and not arg.startswith("-") and _exists(arg):
            found[-1] += f"={arg}"
        else:
            found.append(arg)
    return found


def prepare_restart(config: pytest.Config, args: list[str]) -> None:
    """Empties this session, which imports no conftest and parses nothing more, if another one is to take its place.

    A worker of pytest-xdist stays as it is: its arguments are the controller's, and a folder of theirs (the store, say)
    may exist by now that did not then. `config.workerinput` does not tell so early.
    """
    given = [str(arg) for arg in config.invocation_params.args]
    anew = joined(given)
    if anew != given and "PYTEST_XDIST_WORKER" not in os.environ:
        config.stash[_JOINED] = anew
        config.known_args_namespace.noconftest = True
        args.clear()


def restart(config: pytest.Config) -> int | pytest.ExitCode | None:
    """Runs the session that takes this one's place, if there is one, and returns its exit code."""
    anew = config.stash.get(_JOINED, None)
    if anew is None:
        return None
    return pytest.main(anew, plugins=list(config.invocation_params.plugins or ()))


def take_named_suites(config: pytest.Config) -> None:
    """Puts the paths of lobench's own suites in the place of their names: `quick`, and `digits/mlp.gin::relu32` too.

    A folder of that name in the working directory wins.

    pytest has chosen its root by then. It is that of the working directory, whose ini file counts, and below which
    results are stored: an installed package is no place for them.

    Raises:
      UsageError: something is to be evaluated on a suite that is not there.
    """
    if config.option.pyargs:
        return
    folder = config.invocation_params.dir
    for index, argument in enumerate(config.args):
        name, separator, rest = str(argument).partition("::")
        if (folder / name).exists():
            continue
        shipped = shipped_suite(name)
        if shipped is not None:
            config.args[index] = f"{shipped}{separator}{rest}"
        elif len(Path(name).parts) == 1 and any(config.getoption(option) for option in _SUBJECTS):
            try:
                find_suite(name, folder)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from None


def _exists(text: str) -> bool:
    try:
        return Path(text.split("::")[0]).exists()
    except (OSError, ValueError):  # too long for a name, or no name
        return False
