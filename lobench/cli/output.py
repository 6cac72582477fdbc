"""Machine-readable output: one JSON document on standard output, everything else on standard error.

`main` opens `json_stdout` around a command. With `--format json`, all prints (a command's text, `print` in a suite, a
child process) then go to standard error, and only `emit` writes to standard output. So a command prints its text as
usual, and emits its record at the end.
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
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.json_numbers import finite_or_none
from lobench.core.wording import cause, one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "ErrorCode",
    "ErrorRecord",
    "FormatOption",
    "call_with_progress",
    "emit",
    "emit_error",
    "emit_text",
    "format_option",
    "full_disk_error",
    "json_parts",
    "json_stdout",
    "json_text",
    "not_printed",
    "open_streams",
    "refused_file_error",
    "show",
    "warn",
]

C = TypeVar("C", bound=Callable[..., object])
T = TypeVar("T")
JsonRecord: TypeAlias = "Mapping[str, Any] | DataclassInstance"

_HELP = "json: one document on standard output, all else on standard error; `lobench schema` describes it."


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
_REFUSED_ERRORS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.ENOSPC, errno.EDQUOT),
    *(errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ELOOP, errno.ENAMETOOLONG, errno.EHOSTDOWN, errno.ENOTCONN),
)


ErrorCode: TypeAlias = Literal[ExitCode.USAGE, ExitCode.ERROR, ExitCode.INTERRUPTED]


class ErrorRecord(TypedDict):
    """Failure of any command."""

    what: Annotated[str, "The problem, in one clause."]
    where: Annotated[str, "File, case, plugin or path that the error is about."]
    got: str
    expected: str
    next_step: str
    exit_code: ErrorCode


class FormatOption(click.Option):
    """Option `--format` of a command, with the documents that it prints.

    Attributes:
      prints: Import path "module:name" of the record's type, by name of the document; see `json_schema`.
    """

    def __init__(self, *declarations: Any, prints: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*declarations, **settings)
        self.prints = prints


class _JsonOutput:
    """State of standard output while a command runs.

    Attributes:
      stream: File for the JSON document. None: JSON was not requested, or the document is already printed.
    """

    stream: TextIO | None = None


def open_streams() -> None:
    """Opens the null device for each closed standard stream, for example after `lobench watch ... >&-`.

    Otherwise another file would get the stream's number, and all prints.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes this number, the lowest free one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  (until the exit)


def full_disk_error(error: OSError) -> StoreError | None:
    """Returns the error to report if standard output is a file on a full or failing disk; None for other errors.

    Discards the output that is still buffered.
    """
    if error.errno not in _DISK_ERRORS or error.filename is not None:
        return None
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards unwritten output
    return StoreError("cannot write this", where="standard output", got=cause(error))


def refused_file_error(error: OSError) -> LobenchError | None:
    """Returns the error for a file that the system refuses or cannot reach; None for an error of another kind.

    A missing file, or a folder in place of a file, is reported by the code that opens it.
    """
    if error.errno not in _REFUSED_ERRORS or error.filename is None:
        return None
    next_step = "see who may read and write it: `ls -ld`" if isinstance(error, PermissionError) else ""
    return LobenchError(
        "cannot use this file or folder", where=str(error.filename), got=cause(error), next_step=next_step
    )


def format_option(*formats: str, name: str = "kind", help: str = _HELP, prints: Mapping[str, str]) -> Callable[[C], C]:
    """Decorator that adds `--format`. The first format is the default.

    Args:
      formats: Formats.
      name: Name of the command's argument.
      help: Help text.
      prints: As for `FormatOption`; `lobench schema` uses it.

    >>> @click.command()
    ... @format_option("text", "json", prints={"count": "lobench.cli.output:Record"})
    ... def command(kind):
    ...     return kind
    >>> command.main(["--format", "json"], standalone_mode=False)
    'json'
    """
    choice = click.Choice(formats)
    return click.option(
        "--format", name, type=choice, default=formats[0], show_default=True, help=help, cls=FormatOption, prints=prints
    )


def not_printed(output_format: str, expected: str = "FILE") -> UsageError:
    """Returns the error for a page, pictures or a binary file without `--output`; formats of plain text are printed."""
    return UsageError(f"--format {output_format} is not printed", next_step=f"give --output {expected}")


@contextlib.contextmanager
def json_stdout(arguments: Sequence[str]) -> Iterator[bool]:
    """Keeps standard output for the document, if the arguments request one. Yields whether they do."""
    if not _requests_json(arguments):
        yield False
        return
    with contextlib.ExitStack() as stack:
        json_stream = stack.enter_context(_reserve_stdout(sys.stdout))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        _JsonOutput.stream = json_stream
        stack.callback(setattr, _JsonOutput, "stream", None)
        yield True


def _requests_json(arguments: Sequence[str]) -> bool:
    """Returns whether JSON is requested.

    The arguments are not parsed, so that wrong command lines get JSON errors too.
    """
    option_words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    if {"--help", "-h", "--version"}.intersection(option_words):
        return False
    return "--format=json" in option_words or ("--format", "json") in itertools.pairwise(option_words)


@contextlib.contextmanager
def _reserve_stdout(out: TextIO) -> Iterator[TextIO]:
    """Yields a file that writes to `out`. Meanwhile descriptor 1, which children inherit, is standard error."""
    try:
        is_descriptor_1 = out.fileno() == 1
    except (OSError, io.UnsupportedOperation):
        is_descriptor_1 = False
    if not is_descriptor_1:
        yield out
        return
    out.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    reserved_stdout = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  (closing it may raise)
    try:
        yield reserved_stdout
    finally:
        with contextlib.suppress(OSError):
            reserved_stdout.close()
        os.dup2(descriptor, 1)
        os.close(descriptor)


def json_text(name: str, record: JsonRecord | Sequence[JsonRecord]) -> str:
    """Returns a document `{"schema": "lobench/NAME/1", ...}` as JSON, with null for NaN and infinities.

    `lobench results` and `lobench compare` print a list, in which each record has its schema.
    """
    return "".join(json_parts(name, record)) if isinstance(record, Sequence) else _document(name, record)


def json_parts(name: str, records: Iterable[JsonRecord]) -> Iterator[str]:
    """Yields the parts of a document that is a list, one per record, so that a long list is never in memory."""
    separator = "[\n "
    for record in records:
        yield separator + _document(name, record).replace("\n", "\n ")
        separator = ",\n "
    yield "[]" if separator.startswith("[") else "\n]"


def _document(name: str, record: JsonRecord) -> str:
    document = {"schema": name if "/" in name else f"lobench/{name}/1"} | _record_fields(record)
    encode = _encoder()
    try:
        return encode(document)
    except ValueError:  # only if needed, since records with curves are slow to walk
        return encode(finite_or_none(document))


@functools.cache
def _encoder() -> Callable[[object], str]:
    import json  # only if needed: it takes 2 of the 70 ms of `lobench --help`

    return json.JSONEncoder(indent=1, allow_nan=False, default=_plain_value).encode


def _record_fields(record: JsonRecord) -> dict[str, Any]:
    return dict(record) if isinstance(record, Mapping) else dataclasses.asdict(record)


def _plain_value(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")


def emit(name: str, record: JsonRecord | Sequence[JsonRecord]) -> None:
    """Prints a command's JSON document on standard output, whether or not the command line has `--format json`.

    >>> emit("doctor", {"checks": []})
    {
     "schema": "lobench/doctor/1",
     "checks": []
    }
    """
    emit_text(json_text(name, record) + "\n")


def show(text: str) -> None:
    """Prints text for people, with long lines broken at the width of the terminal."""
    from lobench.report.tables.text import wrap_lines

    click.echo(wrap_lines(text))


def warn(line: str) -> None:
    """Prints a line on standard error, for formats without lines for people; nothing if the line is empty."""
    if line:
        click.echo(one_line(line), err=True)


def emit_text(text: str | Iterable[str]) -> None:
    """Prints a document given as text or as parts. A command prints at most one."""
    json_stream, _JsonOutput.stream = _JsonOutput.stream, None
    chunks = [text] if isinstance(text, str) else text
    if json_stream is None:
        for chunk in chunks:
            click.echo(chunk, nl=False)
        return
    try:
        for chunk in chunks:
            json_stream.write(chunk)
        json_stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError("cannot write this", where="standard output", got=cause(error)) from error


def call_with_progress(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a function with a progress display on standard error, because standard output is for the record."""
    from lobench.report.live.progress import make_progress

    with make_progress(sys.stderr) as progress:
        return function(*arguments, progress=progress, **options)


def emit_error(error: BaseException | str, exit_code: ErrorCode, *, where: str = "") -> None:
    """Prints the error as a JSON document, unless a document is already printed."""
    if _JsonOutput.stream is None:
        return
    lobench_error = error if isinstance(error, LobenchError) else LobenchError(str(error), where=where)
    record = ErrorRecord(
        what=lobench_error.what,
        where=lobench_error.where,
        got=lobench_error.got,
        expected=lobench_error.expected,
        next_step=lobench_error.next_step,
        exit_code=exit_code,
    )
    emit("error", record)
