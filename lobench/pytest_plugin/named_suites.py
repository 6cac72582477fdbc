"""`pytest quick`: lobench's own suites by name, from anywhere; a folder of that name in the working directory wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from lobench.core.errors import UsageError
from lobench.engine.config.shipped import find_suite, shipped_suite

__all__ = ["take_named_suites"]

_SUBJECTS = ("lobench_checkpoint", "lobench_optimizer")


def take_named_suites(config: pytest.Config) -> None:
    """Puts their paths in the place of names among the session's arguments: `digits/mlp.gin::relu32` too.

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
