"""Session arguments: values of lobench's options, and suites by name.

pytest determines root and ini file before it loads plugins. At that time PATH in `--lobench-checkpoint PATH` looks like
a test folder. pytest would then choose the common ancestor of PATH and the suite, such as `/`, as the root: node ids
would differ, and the suite's ini file would not be read. Therefore the session restarts with
`--lobench-checkpoint=PATH`, before it imports a conftest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lobench.core.errors import UsageError
from lobench.engine.config.shipped import find_suite, shipped_suite
from lobench.pytest_plugin.options import FLAGS_WITH_VALUE

__all__ = ["join_option_paths", "prepare_restart", "restart", "take_named_suites"]

_SUBJECTS = ("lobench_checkpoint", "lobench_optimizer")
_RESTART_ARGUMENTS = pytest.StashKey[list[str]]()


def join_option_paths(args: Sequence[str]) -> list[str]:
    """Joins each value that is an existing path to its option, because pytest would take the path for a suite.

    >>> join_option_paths(["--lobench-checkpoint", "/", "quick"])
    ['--lobench-checkpoint=/', 'quick']
    """
    arguments: list[str] = []
    for arg in args:
        if arguments and arguments[-1] in FLAGS_WITH_VALUE and not arg.startswith("-") and _exists(arg):
            arguments[-1] += f"={arg}"
        else:
            arguments.append(arg)
    return arguments


def prepare_restart(config: pytest.Config, args: list[str]) -> None:
    """Prepares a restart if one is needed: this session then imports no conftest and parses no further arguments.

    A worker of pytest-xdist never restarts. It has the controller's arguments, and a folder named in them (such as the
    store) may have been created since. `config.workerinput` is not available so early.
    """
    original_args = [str(arg) for arg in config.invocation_params.args]
    joined_args = join_option_paths(original_args)
    if joined_args != original_args and "PYTEST_XDIST_WORKER" not in os.environ:
        config.stash[_RESTART_ARGUMENTS] = joined_args
        config.known_args_namespace.noconftest = True
        args.clear()


def restart(config: pytest.Config) -> int | pytest.ExitCode | None:
    """Runs the replacement of this session, if there is one, and returns its exit code."""
    joined_args = config.stash.get(_RESTART_ARGUMENTS, None)
    if joined_args is None:
        return None
    return pytest.main(joined_args, plugins=list(config.invocation_params.plugins or ()))


def take_named_suites(config: pytest.Config) -> None:
    """Replaces names of lobench's own suites by their paths: `quick`, and `digits/mlp.gin::relu32` too.

    A folder of that name in the working directory takes precedence.

    pytest chose its root before, from the working directory. So the ini file of the working directory applies, and
    results are stored below it and not in an installed package.

    Raises:
      UsageError: A checkpoint or optimizer is given, and a suite does not exist.
    """
    if config.option.pyargs:
        return
    folder = config.invocation_params.dir
    for index, argument in enumerate(config.args):
        name, separator, case_part = str(argument).partition("::")
        if (folder / name).exists():
            continue
        shipped_path = shipped_suite(name)
        if shipped_path is not None:
            config.args[index] = f"{shipped_path}{separator}{case_part}"
        elif len(Path(name).parts) == 1 and any(config.getoption(option) for option in _SUBJECTS):
            try:
                find_suite(name, folder)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from None


def _exists(text: str) -> bool:
    try:
        return Path(text.split("::")[0]).exists()
    except (OSError, ValueError):  # the argument is no valid path
        return False
