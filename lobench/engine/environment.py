"""Temporary environment variables of this process. Several threads may set the same variable at the same time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping

__all__ = ["environment_with"]

_LOCK = threading.Lock()
_NUM_USERS: dict[str, int] = {}
_ORIGINAL_VALUES: dict[str, str | None] = {}  # original values of variables with users


@contextlib.contextmanager
def environment_with(values: Mapping[str, str], *, as_defaults: bool = False) -> Iterator[None]:
    """Sets environment variables while the body runs, for libraries that have no other settings.

    If several bodies that set a variable run at the same time, the last one to end restores the original value. Other
    libraries and later child processes must not see lobench's values.

    Args:
      values: Values by name.
      as_defaults: Whether existing values are kept.

    >>> with environment_with({"WANDB_SILENT": "true"}):
    ...     os.environ["WANDB_SILENT"]
    'true'
    """
    with _LOCK:
        for name, value in values.items():
            if not _NUM_USERS.setdefault(name, 0):
                _ORIGINAL_VALUES[name] = os.environ.get(name)
            _NUM_USERS[name] += 1
            os.environ[name] = os.environ.get(name, value) if as_defaults else value
    try:
        yield
    finally:
        with _LOCK:
            for name in values:
                _NUM_USERS[name] -= 1
                if not _NUM_USERS[name] and (old_value := _ORIGINAL_VALUES.pop(name)) is not None:
                    os.environ[name] = old_value
                elif not _NUM_USERS[name]:
                    os.environ.pop(name, None)
