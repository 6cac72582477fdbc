"""Calls of foreign functions with the arguments that they take, of those that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = ["call_offering"]

_NOT_TAKEN = re.compile(r"unexpected keyword argument '(\w+)'")


def call_offering(function: Callable[..., Any], *args: Any, **offered: Any) -> Any:
    """Calls a function with `args` and with what it takes of `offered`.

    A signature does not tell what that is: a wrapper takes any keyword and hands all of them on to a function that
    takes fewer. So it is called with everything, and again without what was refused. It must be free of side effects.

    Raises:
      Whatever the function raises otherwise.
    """
    taken = dict(offered)
    while True:
        try:
            return function(*args, **taken)
        except TypeError as error:
            refused = _NOT_TAKEN.search(str(error))
            if refused is None or refused[1] not in taken:
                raise
            del taken[refused[1]]
