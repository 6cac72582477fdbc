"""Machine-readable output: one JSON document on standard output, everything else on standard error.

`main` opens `json_alone` around a command. Where `--format json` was asked for, all that prints (a command's text, a
suite's `print`, a child process) then goes to standard error, and `emit` alone has what standard output was. So a
command needs no second course for programs: it says its text as ever, and emits its record at the end.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from lobench.core.errors import LobenchError, StoreError
from lobench.core.json_numbers import finite_or_none
from lobench.core.wording import cause

__all__ = [
    "emit",
    "emit_error",
    "emit_text",
    "format_option",
    "json_alone",
    "json_text",
    "open_streams",
    "told_aside",
    "unwritten",
]

C = TypeVar("C", bound=Callable[..., object])
T = TypeVar("T")
Record = Mapping[str, Any]

_HELP = "json: one document on standard output, all else on standard error; `lobench schema` describes it."


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _Programs:
    """Where a document for programs goes; None: nobody asked for one, or it is there already."""

    out: TextIO | None = None


def open_streams() -> None:
    """Opens the null device as each standard stream that is closed: a file would get its number, and what is printed.

    For example `lobench watch ... >&-`.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  (to the end)


def unwritten(error: OSError) -> StoreError | None:
    """Returns what a disk that takes no more of standard output means to people; None of any other error."""
    if error.errno not in _FULL or error.filename is not None:
        return None
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is not written yet goes nowhere
    return StoreError("cannot write this", where="standard output", got=cause(error))


def format_option(*kinds: str, name: str = "kind", help: str = _HELP) -> Callable[[C], C]:
    """Gives a command `--format`, and the choice under a name. The first one is the default."""
    return click.option("--format", name, type=click.Choice(kinds), default=kinds[0], show_default=True, help=help)


@contextlib.contextmanager
def json_alone(arguments: Sequence[str]) -> Iterator[bool]:
    """Keeps standard output for the document, where the arguments ask for one; yields whether they do."""
    if not _asks(arguments):
        yield False
        return
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(_kept_apart(sys.stdout))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        _Programs.out = out
        stack.callback(setattr, _Programs, "out", None)
        yield True


def _asks(arguments: Sequence[str]) -> bool:
    """Says so from the words alone: also a command line that is wrong is answered in JSON."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if {"--help", "-h", "--version"}.intersection(words):
        return False
    return "--format=json" in words or ("--format", "json") in itertools.pairwise(words)


@contextlib.contextmanager
def _kept_apart(out: TextIO) -> Iterator[TextIO]:
    """Yields what writes where `out` does; descriptor 1, which children inherit, is standard error meanwhile."""
    try:
        is_first = out.fileno() == 1
    except (OSError, io.UnsupportedOperation):
        is_first = False
    if not is_first:
        yield out
        return
    out.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    file = open(kept, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  (a reader that went, or a full disk, shows at the close)
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()
        os.dup2(kept, 1)
        os.close(kept)


def json_text(name: str, record: Record | Sequence[Record]) -> str:
    """Returns a document: `{"schema": "lobench/NAME/1", ...}`; NaN and infinities are null.

    `lobench results` and `lobench compare` print a list; each record of it then says its schema.
    """
    said = {"schema": name if "/" in name else f"lobench/{name}/1"}
    whole: Any = said | dict(record) if isinstance(record, Mapping) else [said | dict(each) for each in record]
    try:
        return json.dumps(whole, indent=1, allow_nan=False, default=_plain)
    except ValueError:  # looked for where there are some: ten thousand records with curves take seconds to walk
        return json.dumps(finite_or_none(whole), indent=1, allow_nan=False, default=_plain)


def _plain(value: object) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def emit(name: str, record: Record | Sequence[Record]) -> None:
    """Prints a command's document. Without `--format json` on the command line (a default, a test) as any text."""
    emit_text(json_text(name, record) + "\n")


def emit_text(text: str) -> None:
    """Prints a document that is text already; there is one at most."""
    out, _Programs.out = _Programs.out, None
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write(text)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError("cannot write this", where="standard output", got=cause(error)) from error


def told_aside(session: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a session; what it tells meanwhile goes to the standard error: standard output is the record's."""
    from lobench.report.live.progress import make_progress

    with make_progress(sys.stderr) as progress:
        return session(*arguments, progress=progress, **options)


def emit_error(error: BaseException | str, exit_code: int, *, where: str = "") -> None:
    """Prints how a command failed, where it said nothing to programs yet."""
    if _Programs.out is None:
        return
    said = {"what": str(error), "where": where, "got": "", "expected": "", "next_step": ""}
    if isinstance(error, LobenchError):
        said = {name: getattr(error, name) for name in said}
    emit("error", {**said, "exit_code": int(exit_code)})
