"""Exceptions of lobench. A message has the problem, its place, the value found, the valid values and the next step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = [
    "CheckpointError",
    "CheckpointGone",
    "ConfigError",
    "LobenchError",
    "PickleRefused",
    "PluginError",
    "PluginFailure",
    "ReaderFailure",
    "StoreBusy",
    "StoreError",
    "SuiteError",
    "ThetaMismatch",
    "UsageError",
    "suggestion",
    "with_parts",
]


class LobenchError(Exception):
    """Root of all errors that lobench raises deliberately.

    Args:
      what: The problem, as one clause.
      where: File, case, plugin or path with the error.
      got: Value found.
      expected: Values that would be valid.
      next_step: Advice on what to do now.

    >>> raise lobench.LobenchError("the store is busy", where="results", next_step="wait")
    Traceback (most recent call last):
    lobench.core.errors.LobenchError: results: the store is busy; wait
    """

    def __init__(self, what: str, *, where: str = "", got: str = "", expected: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.got = got
        self.expected = expected
        self.next_step = next_step
        message = f"{where}: {what}" if where else what
        if got:
            message += f"; got {got}"
        if expected:
            message += f"; expected {expected}"
        if next_step:
            message += f"; {next_step}"
        super().__init__(message)


_E = TypeVar("_E", bound=LobenchError)


class UsageError(LobenchError):
    """The command line or an argument is wrong (exit code 2).

    >>> str(lobench.UsageError("no such case", got="'relu3'", next_step="did you mean 'relu32'?"))
    "no such case; got 'relu3'; did you mean 'relu32'?"
    """


class ConfigError(LobenchError):
    """gin text is wrong: syntax, an unknown name, a value of the wrong kind.

    >>> str(lobench.ConfigError("unknown name", where="x.gin:3", got="adamm"))
    'x.gin:3: unknown name; got adamm'
    """


class SuiteError(LobenchError):
    """A suite holds no case, or its cases contradict each other.

    >>> str(lobench.SuiteError("the suite has no case", where="suites/empty"))
    'suites/empty: the suite has no case'
    """


class CheckpointError(LobenchError):
    """A checkpoint cannot be read: truncated, not an array, an unknown format.

    >>> str(lobench.CheckpointError("the file is cut off", where="theta_3.npz"))
    'theta_3.npz: the file is cut off'
    """


class CheckpointGone(CheckpointError):
    """A checkpoint was deleted before it was copied.

    >>> str(CheckpointGone("the checkpoint was deleted", where="theta_3.npz"))
    'theta_3.npz: the checkpoint was deleted'
    """


class PickleRefused(CheckpointError):
    """A checkpoint is a pickle, which can run code when it is loaded.

    >>> str(PickleRefused("a pickle can run code", where="theta.pkl"))
    'theta.pkl: a pickle can run code'
    """


class ThetaMismatch(CheckpointError):
    """Theta's leaves differ from the structure that the optimizer declares.

    >>> str(lobench.ThetaMismatch("a leaf is missing", got="w", expected="w, b"))
    'a leaf is missing; got w; expected w, b'
    """


class StoreError(LobenchError):
    """The result store cannot be read or written.

    >>> lobench.open_results("nowhere")
    Traceback (most recent call last):
    lobench.core.errors.StoreError: ...
    """


class StoreBusy(StoreError):
    """Another chief writes this store.

    >>> str(StoreBusy("another chief writes this store", where="results"))
    'results: another chief writes this store'
    """


class PluginError(LobenchError):
    """A plugin failed; the message names plugin, hook and cause.

    >>> str(PluginError("the sink failed", got="KeyError: 'loss'"))
    "the sink failed; got KeyError: 'loss'"
    """


class PluginFailure(PluginError):
    """A plugin's code raised an exception or returned a value of the wrong type while a command ran (exit code 3)."""


class ReaderFailure(PluginFailure, CheckpointError):
    """A plugin's reader raised an exception or returned a value of the wrong type, so a checkpoint cannot be read."""


def with_parts(error: LobenchError, kind: type[_E], **parts: str) -> _E:
    """Returns an error of another class with the same parts, of which the given ones are replaced.

    Args:
      error: Error with the other parts.
      kind: Class of the new error.
      parts: New parts, by the arguments of `LobenchError`.
    """
    old_parts = {"where": error.where, "got": error.got, "expected": error.expected, "next_step": error.next_step}
    return kind(error.what, **{**old_parts, **parts})


def suggestion(name: str, known_names: Iterable[str]) -> str:
    """Returns advice if a known name is similar, such as "did you mean 'x'?"; "" if none is similar.

    A name that differs only in case is preferred: `Adam` suggests `adam`, not `NNAdam`. Next comes a name with the same
    words and further ones between them.

    >>> suggestion("adm", ["adam", "sgd"])
    "did you mean 'adam'?"
    >>> suggestion("num_steps", ["num_seeds", "num_inner_steps"])
    "did you mean 'num_inner_steps'?"
    """
    import difflib  # here, because the import takes a millisecond and is seldom needed

    names = list(known_names)
    matches = [candidate for candidate in names if candidate == name] or [
        candidate for candidate in names if candidate.casefold() == name.casefold()
    ]
    name_words = set(name.casefold().split("_"))
    matches = matches or [
        candidate for candidate in names if len(name_words) > 1 and name_words < set(candidate.casefold().split("_"))
    ]
    names_by_lower_case = {candidate.casefold(): candidate for candidate in reversed(names)}
    suggestions = matches or difflib.get_close_matches(name, names, n=1)
    suggestions = suggestions or [
        names_by_lower_case[candidate]
        for candidate in difflib.get_close_matches(name.casefold(), list(names_by_lower_case), n=1)
    ]
    return f"did you mean {suggestions[0]!r}?" if suggestions else ""
