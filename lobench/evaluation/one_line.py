"""An exception as one line."""

from __future__ import annotations

from lobench.core.errors import LobenchError

__all__ = ["one_line"]


def one_line(error: BaseException) -> str:
    """Returns an exception's first line with its class, and the next one where the first only announces it.

    jax says "... must have equal types, but they differ:", and below which of them do; gin adds lines on where it was.
    """
    text = str(error) if isinstance(error, LobenchError) else f"{type(error).__name__}: {error}"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [repr(error)]
    announces = lines[0].endswith(":") and len(lines) > 1
    return f"{lines[0]} {lines[1]}" if announces else lines[0]
