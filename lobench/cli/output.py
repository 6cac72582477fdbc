"""Machine-readable output: one JSON document on standard output, everything else on standard error.

`main` opens `json_alone` around a command. Where `--format json` was asked for, all that prints (a command's text, a
suite's `print`, a child process) then goes to standard error, and `emit` alone has what standard output was. So a
command needs no second course for programs: it says its text as ever, and emits its record at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, TypeAlias, TypedDict, TypeVar

import click

from lobench.cli.exit_codes import ExitCode
from lobench.core.errors import LobenchError, StoreError
from lobench.core.json_numbers import finite_or_none
from lobench.core.wording import cause

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "ErrorCode",
    "ErrorRecord",
    "FormatOption",
    "emit",
    "emit_error",
    "emit_text",
    "format_option",
    "json_alone",
    "json_parts",
    "json_text",
    "kept_to_the_end",
    "logged_aside",
    "open_streams",
    "refused_by_system",
    "show",
    "unwritten",
]

C = TypeVar("C", bound=Callable[..., object])
T = TypeVar("T")
Record: TypeAlias = "Mapping[str, Any] | DataclassInstance"

_HELP = "json: one document on standard output, all else on standard error; `lobench schema` describes it."


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_REFUSED = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ENOSPC, errno.EDQUOT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ELOOP, errno.ENAMETOOLONG, errno.EHOSTDOWN, errno.ENOTCONN),
)


ErrorCode: TypeAlias = Literal[ExitCode.USAGE, ExitCode.ERROR, ExitCode.INTERRUPTED]


class ErrorRecord(TypedDict):
    """How a command failed, whichever it was."""

    what: Annotated[str, "What is wrong, one clause."]
    where: Annotated[str, "The file, case, plugin or path that it is about."]
    got: str
    expected: str
    next_step: str
    exit_code: ErrorCode


class FormatOption(click.Option):
    """The option `--format` of a command, with the documents that it prints.

    Attributes:
      prints: By the name of a document where the type of its record is, "module:name"; see `json_schema`.
    """

    def __init__(self, *declared: Any, prints: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*declared, **settings)
        self.prints = prints


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


def refused_by_system(error: OSError) -> LobenchError | None:
    """Returns the error of a file that the system refuses or cannot reach; None for an error of another kind.

    A file that is missing, or is a folder, is another kind: the code that looked for it reports that.
    """
    if error.errno not in _REFUSED or error.filename is None:
        return None
    next_step = "see who may read and write it: `ls -ld`" if isinstance(error, PermissionError) else ""
    return LobenchError(
        "cannot use this file or folder", where=str(error.filename), got=cause(error), next_step=next_step
    )


def format_option(*kinds: str, name: str = "kind", help: str = _HELP, prints: Mapping[str, str]) -> Callable[[C], C]:
    """Gives a command `--format`, and the choice under a name. The first one is the default.

    Args:
      prints: See `FormatOption`; `lobench schema` makes the schemas of it.
    """
    choice = click.Choice(kinds)
    return click.option(
        "--format", name, type=choice, default=kinds[0], show_default=True, help=help, cls=FormatOption, prints=prints
    )


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


def kept_to_the_end(read: T) -> T:
    """Returns what was read of a store; it is never taken apart, which takes a twentieth of a large table's time.

    It hangs on a cycle, for commands that have switched off the search for these.
    """
    cycle: list[object] = [read]
    cycle.append(cycle)
    return read


def json_text(name: str, record: Record | Sequence[Record]) -> str:
    """Returns a document: `{"schema": "lobench/NAME/1", ...}`; NaN and infinities are null.

    `lobench results` and `lobench compare` print a list; each record of it then says its schema.
    """
    return "".join(json_parts(name, record)) if isinstance(record, Sequence) else _document(name, record)


def json_parts(name: str, records: Iterable[Record]) -> Iterator[str]:
    """Yields the parts of a document that is a list, a record each: a long one is never in memory as a whole."""
    begin = "[\n "
    for record in records:
        yield begin + _document(name, record).replace("\n", "\n ")
        begin = ",\n "
    yield "[]" if begin.startswith("[") else "\n]"


def _document(name: str, record: Record) -> str:
    whole = {"schema": name if "/" in name else f"lobench/{name}/1"} | _fields(record)
    encode = _encoder()
    try:
        return encode(whole)
    except ValueError:  # looked for where there are some: records with curves take long to walk
        return encode(finite_or_none(whole))


@functools.cache
def _encoder() -> Callable[[object], str]:
    import json  # for those who print one: it is two of the seventy milliseconds of `lobench --help`

    return json.JSONEncoder(indent=1, allow_nan=False, default=_plain).encode


def _fields(record: Record) -> dict[str, Any]:
    return dict(record) if isinstance(record, Mapping) else dataclasses.asdict(record)


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def emit(name: str, record: Record | Sequence[Record]) -> None:
    """Prints a command's document. Without `--format json` on the command line (a default, a test) as any text."""
    emit_text(json_text(name, record) + "\n")


def show(text: str) -> None:
    """Prints what people read, its long lines broken at the width of the terminal."""
    from lobench.report.tables.text import wrapped

    click.echo(wrapped(text))


def emit_text(text: str | Iterable[str]) -> None:
    """Prints a document that is text already, or the parts of one; there is one at most."""
    out, _Programs.out = _Programs.out, None
    parts = [text] if isinstance(text, str) else text
    if out is None:
        for part in parts:
            click.echo(part, nl=False)
        return
    try:
        for part in parts:
            out.write(part)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError("cannot write this", where="standard output", got=cause(error)) from error


def logged_aside(session: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a session; what it tells meanwhile goes to the standard error: standard output is the record's."""
    from lobench.report.live.progress import make_progress

    with make_progress(sys.stderr) as progress:
        return session(*arguments, progress=progress, **options)


def emit_error(error: BaseException | str, exit_code: ErrorCode, *, where: str = "") -> None:
    """Prints how a command failed, where it said nothing to programs yet."""
    if _Programs.out is None:
        return
    one = error if isinstance(error, LobenchError) else LobenchError(str(error), where=where)
    record = ErrorRecord(
        what=one.what, where=one.where, got=one.got, expected=one.expected, next_step=one.next_step, exit_code=exit_code
    )
    emit("error", record)
