"""Directory source: finds complete checkpoints in a folder by polling."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from etils import epath

from lobench.core.checkpoint import SeenCheckpoint, index_in_name
from lobench.core.wording import cause
from lobench.engine.checkpoints.files import exists, is_folder, is_settled, settling_seconds, size_and_mtime
from lobench.engine.checkpoints.folder_listing import FolderListing
from lobench.engine.checkpoints.readers import reader_name_for
from lobench.engine.retries import is_transient, patience_seconds
from lobench.hookspecs import CheckpointReader, SourceContext, Unfinished

__all__ = ["DirectorySource", "NoSource"]

_FORBIDDEN_STAMP = (-1, 0.0)  # stamp of a file that this user may not access
_IGNORED_PREFIXES = (".", "_", "lobench")
_PARAMS_FILE = re.compile(r"params_\d+")
_TEMPORARY_MARKERS = ("_tmp", ".tmp", ".orbax-checkpoint-tmp", ".partial", ".done")


class DirectorySource:
    """Source of the checkpoints in a folder, or of a single checkpoint.

    Args:
      context: Location and readers.
      is_folder: Returns whether a path is a folder of runs although a reader recognizes it: the name `trial_7` could be
        that of an orbax step.
      clock: Monotonic clock in seconds; tests replace it.
    Attributes:
      listed_paths: Paths in the folder that may matter, as of the last poll.
      poll_seconds: Seconds between polls: 1 on this machine, 10 on a remote store.
    """

    def __init__(
        self,
        context: SourceContext,
        is_folder: Callable[[epath.Path], bool] = lambda path: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = epath.Path(context.location)
        self._readers = context.readers
        self._is_folder = is_folder
        self._clock = clock
        is_remote = "://" in context.location
        self.listed_paths: list[epath.Path] = []
        self._listing = None if is_remote else FolderListing(context.location, self._is_wanted)
        self.poll_seconds = 10.0 if is_remote else 1.0
        self._yielded_stamps: dict[str, tuple[int, float]] = {}
        self._previous_stamps: dict[str, tuple[int, float]] = {}
        self._pending: dict[str, Unfinished] = {}
        self._previous_failures: dict[str, float] = {}
        self._failing_since: dict[str, float] = {}  # by path: time since which it is inaccessible
        # By path of an incomplete checkpoint: its stamp, and the time since which the stamp is unchanged.
        self._incomplete_stamps: dict[str, tuple[tuple[int, float], float]] = {}

    def pending(self) -> Mapping[str, Unfinished]:
        return dict(self._pending)

    def poll(self) -> Sequence[SeenCheckpoint]:
        self._pending, failing = {}, self._failing_since
        self._failing_since = {}
        self._previous_failures = failing
        checkpoints = [
            checkpoint for path in self._list_paths() if (checkpoint := self._check_or_record_failure(path)) is not None
        ]
        return sorted(
            checkpoints,
            key=lambda checkpoint: (
                checkpoint.index is None,
                checkpoint.index or 0,
                checkpoint.written_at,
                checkpoint.uri,
            ),
        )

    def _list_paths(self) -> list[epath.Path]:
        try:
            return self._candidate_paths()
        except OSError as error:
            self._record_failure(self._path, error)
            return []

    def _record_failure(self, path: epath.Path, error: OSError) -> None:
        """Records that a path is inaccessible. A path that does not exist any more is ignored."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return
        name = str(path)
        now = self._clock()
        failing_since = self._failing_since[name] = self._previous_failures.get(name, now)
        is_awaited = is_transient(error, retries_forbidden=False) and now - failing_since <= patience_seconds(error)
        self._pending[name] = Unfinished(reason=cause(error), is_awaited=is_awaited)

    def _candidate_paths(self) -> list[epath.Path]:
        """Returns the paths that may be checkpoints: the location itself, or paths in it.

        A run's folder may have the name of a checkpoint (`run_3`, `2024`), so its contents decide.
        """
        self.listed_paths, reader_of_location = [], self._reader_name_for(self._path)
        if not is_folder(self._path):
            return [self._path] if reader_of_location is not None and exists(self._path) else []
        if reader_of_location is not None and self._readers[reader_of_location].is_complete(self._path):
            return [self._path]
        names = None if self._listing is None else self._listing.names()
        self.listed_paths = [*self._path.iterdir()] if names is None else [self._path / name for name in names]
        candidates = _without_trainer_states([path for path in self.listed_paths if _is_candidate(path.name)])
        is_run = reader_of_location is None or any(map(self._reader_name_for, candidates))
        return candidates if is_run else [self._path]

    def _is_wanted(self, name: str) -> bool:
        """Returns whether a file may be a checkpoint, or determines which other files are."""
        is_read = reader_name_for(self._path / name, self._readers) is not None
        return _is_candidate(name) and (is_read or _PARAMS_FILE.fullmatch(name) is not None)

    def _reader_name_for(self, path: epath.Path) -> str | None:
        name = reader_name_for(path, self._readers)
        return None if name is None or self._is_folder(path) else name

    def _check_or_record_failure(self, path: epath.Path) -> SeenCheckpoint | None:
        try:
            return self._check_path(path)
        except OSError as error:
            self._record_failure(path, error)
            return None

    def _check_path(self, path: epath.Path) -> SeenCheckpoint | None:
        reader_name = self._reader_name_for(path)
        if reader_name is None:
            return None
        reader = self._readers[reader_name]
        name = str(path)
        try:
            stamp = size_and_mtime(path)
        except PermissionError:
            stamp = _FORBIDDEN_STAMP  # reading it reports the error
        if self._yielded_stamps.get(name) == stamp:
            return None
        last_stamp, self._previous_stamps[name] = self._previous_stamps.get(name), stamp
        is_done = stamp == _FORBIDDEN_STAMP or epath.Path(f"{name}.done").exists()
        if reader.in_place and last_stamp != stamp and not is_done:
            reason = "it may still be written: its size or time changed since the last look"
            self._pending[name] = Unfinished(reason=reason, is_awaited=True)
            return None
        is_complete, is_awaited = stamp == _FORBIDDEN_STAMP, False
        if not is_complete:
            is_complete, is_awaited = self._readiness(reader, path, stamp, is_done=is_done)
        if not is_complete:
            reason = "it may still be written" if is_awaited else "half-written"
            reason += ": its end is missing, or a file that marks it as complete"
            self._pending[name] = Unfinished(reason=reason, is_awaited=is_awaited)
            return None
        self._yielded_stamps[name] = stamp
        return SeenCheckpoint(uri=name, reader=reader_name, index=index_in_name(path.name), written_at=stamp[1])

    def _readiness(
        self, reader: CheckpointReader, path: epath.Path, stamp: tuple[int, float], *, is_done: bool
    ) -> tuple[bool, bool]:
        """Returns whether to read a checkpoint, and if not, whether it may still become complete.

        A truncated file that has not grown for a while is read, so that its reader reports the error.
        """
        try:
            if reader.is_complete(path):
                return True, False
        except OSError as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise
            return is_transient(error), False  # reading it reports the error, and is repeated
        if not reader.in_place:
            return False, not is_settled(path)
        now = self._clock()
        last_stamp, unchanged_since = self._incomplete_stamps.get(str(path), (stamp, now))
        self._incomplete_stamps[str(path)] = stamp, (unchanged_since if last_stamp == stamp else now)
        has_settled = is_done or now - self._incomplete_stamps[str(path)][1] > settling_seconds(path)
        return has_settled, not has_settled


class NoSource:
    """Source without checkpoints, for runs whose subjects are all given."""

    poll_seconds = 0.05  # pause between polls of other arrivals

    def poll(self) -> Sequence[SeenCheckpoint]:
        return ()

    def pending(self) -> Mapping[str, Unfinished]:
        return {}


def _is_candidate(name: str) -> bool:
    return not name.startswith(_IGNORED_PREFIXES) and not any(marker in name for marker in _TEMPORARY_MARKERS)


def _without_trainer_states(paths: list[epath.Path]) -> list[epath.Path]:
    """Returns paths without the states of google/learned_optimization's trainer.

    That trainer writes theta as `params_N`, and its own state next to it as `checkpoint_N`. It writes `params_0` first.
    In a folder without `params_N`, `checkpoint_N` may be a theta of another trainer.
    """
    if not any(_PARAMS_FILE.fullmatch(path.name) for path in paths):
        return paths
    return [path for path in paths if not re.fullmatch(r"checkpoint_\d+", path.name)]
