"""Reason of a worker's exit, from the end of its log."""

from __future__ import annotations

import re
import resource
from pathlib import Path

__all__ = ["exit_text", "likely_cause", "log_tail", "printable"]

_TAIL_BYTES = 1 << 16
_TAIL_LETTERS = 300
# Report of the interpreter on a crash: the stack and the loaded modules. The cause is printed before it.
_DUMP = re.compile(r"Fatal Python error: .*$", re.MULTILINE)
_INNERMOST = re.compile(r"^Current thread .*\n  File \".*\", line \d+ in (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"error|exception|bad_alloc|memory|abort|terminate|fail|cannot|space", re.IGNORECASE)


def likely_cause(log: Path, start: int = 0, *, problem: str = "") -> str:
    """Returns the line of a log that best explains why its process ended, and possible causes; "" if unknown.

    Args:
      log: Path of the log.
      start: Position at which this process's output begins.
      problem: Reason why the log cannot be written; "" if it can.
    """
    max_memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    reasons = [
        f"{log} cannot be written: {problem}" if problem else _cause_in(log, start),
        f"`ulimit -v` allows {max_memory / 2**30:.2g} GiB" if max_memory != resource.RLIM_INFINITY else "",
    ]
    return "; ".join(reason for reason in reasons if reason)


def exit_text(code: int) -> str:
    """Describes an exit code: "exited with status 1" or "killed by signal 9"."""
    return f"killed by signal {-code}" if code < 0 else f"exited with status {code}"


def printable(line: str) -> str:
    """Returns a line for display: at most 300 characters, with unprintable ones replaced."""
    return "".join(letter if letter.isprintable() else " " for letter in line)[:_TAIL_LETTERS]


def log_tail(log: Path, start: int) -> str:
    """Returns the last 64 KiB of a log's text from the offset `start` on."""
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _cause_in(log: Path, start: int) -> str:
    try:
        text = log_tail(log, start)
    except OSError:
        return ""
    dump_match = _DUMP.search(text)
    lines = [line.strip() for line in (text[: dump_match.start()] if dump_match else text).splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.search(line) and not line.startswith('File "')]
    frame_match = _INNERMOST.search(text)
    if causes or not dump_match:
        message = [*lines, *causes][-1] if lines else ""
    else:
        message = f"{dump_match[0]} in {frame_match[1]}" if frame_match else dump_match[0]
    return printable(message)
