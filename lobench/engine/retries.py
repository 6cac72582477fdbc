"""Retries of file operations that fail temporarily, as on network disks."""

from __future__ import annotations

import errno
import math
import re
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["RetryPauses", "is_short_of_files", "is_transient", "patience_seconds", "retried", "retried_briefly"]

_Value = TypeVar("_Value")

_NO_FILE_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE))
_FORBIDDEN_ERRNOS = frozenset((errno.EACCES, errno.EPERM))
_ERROR_NAMES = (
    # Temporary errors of disks and networks.
    *("ESTALE", "EIO", "EREMOTEIO", "ETIMEDOUT", "ETIME", "EAGAIN", "EINTR", "EBUSY", "ENOLCK", "EDEADLK", "ENXIO"),
    *("ENODEV", "ENOMEM", "ENOBUFS", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOLINK"),
    *("ECOMM", "ENONET", "EPROTO", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "ENOTCONN", "ESHUTDOWN", "EPIPE"),
    *("EREMCHG", "ENOKEY", "EKEYEXPIRED"),  # the last two are about Kerberos tickets
)
_TRANSIENT_ERRNOS = (
    frozenset(getattr(errno, name) for name in _ERROR_NAMES if hasattr(errno, name))
    | _NO_FILE_ERRNOS
    | _FORBIDDEN_ERRNOS
)
_OS_ERROR = re.compile(r"\bOS error (\d+)\b")  # as in messages of tensorstore
_BRIEF_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds


def is_transient(error: BaseException | None, *, retries_forbidden: bool = True) -> bool:
    """Returns whether an operation that failed with this error may succeed if it is repeated.

    Args:
      error: Exception. Its system error numbers, and those of its causes, are checked.
      retries_forbidden: Whether a missing permission counts as transient: on a network disk it may pass. False for
        files that lobench writes.
    """
    error_numbers = _error_numbers(error)
    if not retries_forbidden:
        error_numbers -= _FORBIDDEN_ERRNOS
    return not error_numbers.isdisjoint(_TRANSIENT_ERRNOS)


def is_short_of_files(error: BaseException | None) -> bool:
    """Returns whether the cause of an exception is that this process or the machine has no file descriptors left."""
    return not _error_numbers(error).isdisjoint(_NO_FILE_ERRNOS)


def _error_numbers(error: BaseException | None) -> set[int]:
    """Returns the system's error numbers of an exception and its causes."""
    error_numbers = set[int]()
    visited_ids = set[int]()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        if isinstance(error, OSError) and error.errno is not None:
            error_numbers.add(error.errno)
        elif isinstance(error, ConnectionError | TimeoutError):
            error_numbers.add(errno.ETIMEDOUT)  # raised by a library, without a number
        else:
            error_numbers.update(int(number) for number in _OS_ERROR.findall(str(error)))
        error = error.__cause__ or error.__context__
    return error_numbers


def patience_seconds(error: BaseException) -> float:
    """Returns how many seconds a transient error is retried.

    A missing permission is rarely temporary, so it is retried for a shorter time.
    """
    if is_short_of_files(error):
        return 60.0
    return 5.0 if _error_numbers(error) & _FORBIDDEN_ERRNOS else 30.0


def retried(
    action: Callable[[], _Value],
    *,
    retries_forbidden: bool = True,
    most_seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _Value:
    """Calls an action, again after transient errors with growing pauses, and returns its value.

    The time limit starts at the first error, because a call on a network disk may take a minute before it fails.

    Args:
      action: Function to call.
      retries_forbidden: As in `is_transient`.
      most_seconds: Upper bound of `patience_seconds`.
      clock: Clock in seconds; tests replace it.
      sleep: Function that pauses; tests replace it.
    Raises:
      Exception: The last error of the action: it is not transient, or the time is up.
    """
    failed_at, pause = math.nan, _FIRST_PAUSE
    while True:
        try:
            return action()
        except Exception as error:
            now = clock()
            failed_at = now if math.isnan(failed_at) else failed_at
            is_out_of_patience = now - failed_at > min(patience_seconds(error), most_seconds)
            if is_out_of_patience or not is_transient(error, retries_forbidden=retries_forbidden):
                raise
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def retried_briefly(action: Callable[[], _Value]) -> _Value:
    """Calls `retried` with a limit of 5 s; a missing permission is not retried.

    Use it for files that are checked again later, or that may be missing.
    """
    return retried(action, retries_forbidden=False, most_seconds=_BRIEF_SECONDS)


class RetryPauses:
    """Growing pauses between attempts at an operation, for a caller that does other work in between.

    Args:
      now: Time of the first failure, by the caller's clock.
      first: Seconds of the first pause. Each further one is twice as long.
      longest: Upper bound of a pause, in seconds.
    Attributes:
      first_failure_time: Time of the first failure.
    """

    def __init__(self, now: float, *, first: float, longest: float) -> None:
        self.first_failure_time, self._pause, self._max_pause = now, first, longest
        self._next_at = now + first

    def is_due(self, now: float) -> bool:
        return now >= self._next_at

    def record_failure(self, now: float) -> None:
        """Records that another attempt failed."""
        self._pause = min(2 * self._pause, self._max_pause)
        self._next_at = now + self._pause
