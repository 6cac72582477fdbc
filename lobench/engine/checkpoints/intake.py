"""Checkpoint intake: reads checkpoints that a source finds, and stores their thetas in the spool."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from etils import epath

from lobench.core.checkpoint import Checkpoint, SeenCheckpoint, index_in_name
from lobench.core.errors import (
    CheckpointError,
    CheckpointGone,
    ConfigError,
    LobenchError,
    PickleRefused,
    StoreError,
)
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject, Variant
from lobench.core.wording import counted, counted_with_verb
from lobench.engine.checkpoints.files import times_of_files
from lobench.engine.checkpoints.leftovers import find_leftovers
from lobench.engine.checkpoints.places import checkpoint_path
from lobench.engine.checkpoints.readers import reader_name_for
from lobench.engine.checkpoints.spool import Spool, files_fingerprint, holds_theta
from lobench.engine.retries import RetryPauses, is_short_of_files, is_transient, patience_seconds, retried
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.reader import PASSED_OVER_PREFIX
from lobench.engine.store.restarts import RESTARTED_EVENT, Restart
from lobench.engine.store.series import has_step_in_name, series_of
from lobench.hookspecs import CheckpointReader, CheckpointSource

__all__ = ["Intake", "skipped_line"]

_DISK_PAUSES = {"first": 0.1, "longest": 30.0}  # seconds between attempts, after a transient error
_CONTENT_PAUSES = {"first": 5.0, "longest": 600.0}  # seconds between attempts, after other errors
_POLL_SECONDS = 0.5  # longest time for which copying checkpoints delays results, deadlines and signals
_RECOVER_SECONDS = 10.0  # longest transaction of a start, since others that lock the ledger wait 30 s
_GONE_SECONDS = 30.0  # pause before a theta whose file is gone is looked for again
_MANY_RESTARTS = 3  # restarts in one folder after which the watch asks whether two trainers write to it
_MAX_LINES = 3  # number of logged lines on checkpoints that are gone when a watch starts


@dataclasses.dataclass(slots=True)
class _Retry:
    """Checkpoint that could not be read, and is retried.

    Attributes:
      checkpoint: Checkpoint as it was found.
      pauses: Pauses between the attempts.
      is_awaited: Whether the watch waits for it before it ends, because the error is recent and may be transient.
    """

    checkpoint: SeenCheckpoint
    pauses: RetryPauses
    is_awaited: bool = True


@dataclasses.dataclass(slots=True)
class _UnboundCheckpoints:
    """Checkpoints of a run that wait for a change of its `config.gin`.

    Attributes:
      reason: Error message.
      variant: Bindings with which no case can be evaluated; None if the file cannot be parsed.
      checkpoints: Checkpoints by path.
    """

    reason: str
    variant: Variant | None
    checkpoints: dict[str, SeenCheckpoint] = dataclasses.field(default_factory=dict)


class Intake:
    """Reads each checkpoint once, stores its theta in the spool, and records the sighting.

    A checkpoint that cannot be read is retried with growing pauses until the watch ends. A disk error is reported only
    if it lasts. If the `config.gin` of a run is invalid, its checkpoints wait; the file is read again at each poll.

    Args:
      ledger: Ledger opened for writing.
      spool: Copies of thetas.
      source: Finds checkpoints.
      readers: Checkpoint readers by name.
      log: Called with a line for each checkpoint that cannot be read.
      only_newest: Whether to read only the newest readable checkpoint of those found in one poll, and skip the others.
        Files without a number in their names (`latest.npz`) are a separate series, with the same rule.
      clock: Monotonic clock in seconds, by which pauses are measured.
      run_variant: Returns the bindings of a checkpoint that the source found, by its path.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        spool: Spool,
        source: CheckpointSource,
        readers: Mapping[str, CheckpointReader],
        log: Callable[[str], None],
        only_newest: bool = False,
        clock: Callable[[], float] = time.monotonic,
        run_variant: Callable[[str], Variant] = lambda uri: Variant(),
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._spool = spool
        self._source = source
        self._readers = readers
        self._log = log
        self._known_events = {(kind, detail.get("uri"), detail.get("message")) for kind, detail in ledger.events()}
        self._only_newest = only_newest
        self._run_variant = run_variant
        # By series: path of the newest found checkpoint if it was read before and has not changed, else "".
        self._series_with_newest: dict[tuple[str, str, bool], str] = {}
        self._read_newest: dict[tuple[str, str, bool], Subject] = {}  # by series: newest checkpoint read in this poll
        self._highest_indices: dict[tuple[str, str], int] | None = None  # see `_highest_current_indices`
        self._logged_lines: set[tuple[str, str]] = set()  # logged in this start
        self._found_checkpoints: deque[SeenCheckpoint] = deque()
        self._skipped_uris: list[str] = []
        # By run and folder: the newest checkpoint that cannot be read, with the reason.
        self._unreadable_checkpoints: dict[tuple[str, str], tuple[SeenCheckpoint, str]] = {}
        self._unbound_checkpoints: dict[tuple[str, str], _UnboundCheckpoints] = {}  # by run and folder
        self._last_read: dict[tuple[str, str], int] = {}  # highest index read, by run and folder
        self._fingerprints = ledger.fingerprints()  # fingerprints of checkpoints that earlier starts have read
        self._retries: dict[str, _Retry] = {}  # by path
        self._next_look_times: dict[str, float] = {}  # by theta without a file: time of the next look
        # By path: checkpoints of this poll that were read to tell whether a new run began, with their fingerprints.
        self._early_reads: dict[str, tuple[Checkpoint, str]] = {}
        self._num_restarts: Counter[str] = Counter()  # by folder
        self._copied_uris: set[str] = set()  # paths whose files were written again in this start, with the same theta
        self._collected_lines: list[str] | None = None  # lines that are logged together
        self._reported_paths: set[str] = set()  # paths of checkpoints whose error was reported
        self._released_thetas: dict[str, int] = {}  # unneeded thetas, with `Ledger.num_transactions` at their release

    def has_pending(self) -> bool:
        """Returns whether checkpoints may still become complete, or retries are awaited."""
        is_retried = any(retry.is_awaited for retry in self._retries.values())
        return is_retried or any(unfinished.is_awaited for unfinished in self._source.pending().values())

    def recover(self, unfinished: Collection[Subject], *, keep: Iterable[Subject] = ()) -> None:
        """Removes unneeded thetas from the spool, and copies missing ones again.

        Args:
          unfinished: Subjects whose thetas are needed now.
          keep: Subjects whose thetas are kept for later runs of the watch.
        """
        self._spool.remove_leftovers({subject.sha256 for subject in (*unfinished, *keep)})
        pending_subjects = deque(unfinished)
        with self._limiting_lines():
            while pending_subjects:
                deadline = time.monotonic() + _RECOVER_SECONDS
                with self._synced_transaction():
                    self.fetch_theta(pending_subjects.popleft())
                    while pending_subjects and time.monotonic() < deadline:
                        self.fetch_theta(pending_subjects.popleft())

    def with_current_configs(self, sightings: Mapping[int, Subject]) -> dict[int, Subject]:
        """Returns the sightings that are valid for the current `config.gin` of each run below the folder.

        After an edit of the file, a checkpoint is a new subject: it gets a new sighting that replaces the former one.
        If the file is invalid, the sightings of its run are left out. Sightings of a deleted run are not changed.
        """
        subjects = dict(sightings)
        run_sightings = {
            position: subject
            for position, subject in subjects.items()
            if subject.has_theta and subject.run and not subject.variant.bindings
        }
        last_sightings = {sighting.uri: sighting for sighting in run_sightings.values()}
        for last_sighting in last_sightings.values():
            try:
                variant = self._run_variant(last_sighting.uri)
            except ConfigError:  # the next poll reports it
                for position, sighting in run_sightings.items():
                    if sighting.uri == last_sighting.uri:
                        subjects.pop(position, None)
                self._fingerprints.pop(last_sighting.uri, None)
                continue
            if not variant.key and not _may_exist(last_sighting.uri):
                variant = last_sighting.variant
            same_theta_sightings = {
                position: sighting
                for position, sighting in run_sightings.items()
                if (sighting.uri, sighting.sha256) == (last_sighting.uri, last_sighting.sha256)
            }
            for position, sighting in same_theta_sightings.items():
                if sighting.variant != variant:
                    del subjects[position]
            if all(sighting.variant != variant for sighting in same_theta_sightings.values()):
                subject = dataclasses.replace(last_sighting, variant=variant)
                subjects[self._ledger.record_sighting(subject)] = subject
        return dict(sorted(subjects.items()))

    def admit_given(self, request: RequestedSubject) -> tuple[int, Subject] | None:
        """Records a given subject, and returns its position and the subject; None for a checkpoint that cannot be read.

        A checkpoint that an earlier run has read is read again only if it has changed.
        """
        if isinstance(request, Subject):
            return self._ledger.record_sighting(request), request
        seen_checkpoint = self._seen_checkpoint_at(request.uri)
        if seen_checkpoint is None:
            return None
        recorded_checkpoint = self._recorded_checkpoint(seen_checkpoint)
        if recorded_checkpoint is not None and request.sha256 not in ("", recorded_checkpoint.sha256):
            recorded_checkpoint = None  # it must be read to compare its theta
        if recorded_checkpoint is None:
            with self._synced_transaction():
                return self._admit(seen_checkpoint, request)
        subject = request.to_subject(recorded_checkpoint)
        position = self._ledger.record_sighting(subject, on_restart=lambda restart: self._log_restart(restart, subject))
        return position, subject

    def _seen_checkpoint_at(self, uri: str) -> SeenCheckpoint | None:
        """Returns the checkpoint at a path or URL. If it cannot be found, logs the reason and returns None."""
        error = CheckpointError("no reader knows it", where=uri, next_step="see `lobench list readers`")
        try:
            path = checkpoint_path(uri)
            reader = reader_name_for(path, self._readers)
            if reader is not None:
                return SeenCheckpoint(uri=uri, reader=reader, index=index_in_name(path.name))
        except CheckpointError as missing_error:
            error = missing_error
        self._record_incident("unreadable", SeenCheckpoint(uri=uri, reader=""), error)
        return None

    def _recorded_checkpoint(self, seen_checkpoint: SeenCheckpoint) -> Checkpoint | None:
        """Returns the recorded checkpoint at a path, if it has not changed since it was read; else None."""
        with contextlib.suppress(CheckpointError):
            if self._is_recorded_unchanged(seen_checkpoint):
                sightings_of_path = [
                    sighting
                    for sighting in self._ledger.sightings().values()
                    if sighting.uri == seen_checkpoint.uri and sighting.has_theta
                ]
                return sightings_of_path[-1].checkpoint if sightings_of_path else None
        return None

    def fetch_theta(self, subject: Subject) -> bool:
        """Returns whether the spool has a subject's theta, after copying it again if it is missing."""
        if not subject.has_theta or self.has_copy(subject.sha256):
            return True
        if self._clock() < self._next_look_times.get(subject.sha256, -math.inf):
            return False
        readable_sighting = self._readable_sighting(subject)
        seen_checkpoint = self._seen_checkpoint_at(readable_sighting.uri)
        if seen_checkpoint is not None:
            seen_checkpoint = dataclasses.replace(
                seen_checkpoint, run=readable_sighting.run, generation=readable_sighting.generation
            )
            with self._synced_transaction():
                request = GivenCheckpoint(
                    uri=readable_sighting.uri,
                    variant=readable_sighting.variant,
                    label=readable_sighting.label,
                    sha256=readable_sighting.sha256,
                )
                self._admit(seen_checkpoint, request, is_fetched=True)
        is_there = self.has_copy(subject.sha256)
        if not is_there and not any(
            _may_exist(sighting.uri) for sighting in self._ledger.sightings(subject.sha256).values()
        ):
            self._next_look_times[subject.sha256] = self._clock() + _GONE_SECONDS
        return is_there

    def _readable_sighting(self, subject: Subject) -> Subject:
        """Returns the first readable sighting of a subject's theta, preferably the subject itself.

        If no sighting is readable, returns the subject.
        """
        sightings = [*self._ledger.sightings(subject.sha256).values()]
        if all(sighting.uri == subject.uri for sighting in sightings):
            return subject
        return next(
            (sighting for sighting in (subject, *sightings) if holds_theta(sighting.uri, sighting.sha256)), subject
        )

    def has_copy(self, sha256: str) -> bool:
        return self._spool.has_copy(sha256)

    @property
    def unread_reasons(self) -> dict[str, str]:
        """Reasons why the newest checkpoint of a run could not be read or never became complete, by path."""
        last_indices: dict[str, int] = {}
        for (_, folder), index in self._last_read.items():
            last_indices[folder] = max(index, last_indices.get(folder, -1))
        unread_reasons = {
            uri: f"{uri}: {unfinished.reason}"
            for uri, unfinished in self._source.pending().items()
            if not unfinished.is_awaited
            and (index_in_name(checkpoint_path(uri).name) or 0) > last_indices.get(_parent(uri), -1)
        }
        return unread_reasons | {
            seen_checkpoint.uri: reason
            for folder, (seen_checkpoint, reason) in self._unreadable_checkpoints.items()
            if (seen_checkpoint.index or 0) > self._last_read.get(folder, -1)
        }

    @property
    def unbound_reasons(self) -> dict[str, str]:
        """Reasons why runs were not evaluated with their `config.gin`, by folder."""
        return {folder: unbound.reason for (_, folder), unbound in self._unbound_checkpoints.items()}

    def awaited_reasons(self) -> dict[str, str]:
        """Reasons why checkpoints are incomplete, by path, for those that the watch waits for before it ends."""
        return {uri: unfinished.reason for uri, unfinished in self._source.pending().items() if unfinished.is_awaited}

    @property
    def num_unprocessed(self) -> int:
        """Number of checkpoints that the source has found and `poll` has not processed yet."""
        return len(self._found_checkpoints)

    @property
    def may_find_newer(self) -> bool:
        """Whether checkpoints that `poll` has not processed yet may be newer than the processed ones."""
        return any(
            _series_of(seen_checkpoint) not in self._series_with_newest for seen_checkpoint in self._found_checkpoints
        )

    def poll(self) -> tuple[int, list[tuple[int, Subject]]]:
        """Processes checkpoints that the source finds, for at most about 0.5 s. Further calls continue.

        Returns:
          Number of processed checkpoints; and positions and subjects of the checkpoints that could be read.
        """
        if not self._found_checkpoints:
            for checkpoint, _ in self._early_reads.values():  # skipped, so that nothing needs their thetas
                self.release_theta(checkpoint.sha256)
            self._early_reads.clear()
            new_checkpoints = self._without_leftovers(self._source.poll())
            for seen_checkpoint in new_checkpoints:
                self._retries.pop(seen_checkpoint.uri, None)  # it was written again
            found_checkpoints = [*self._due_checkpoints(), *new_checkpoints]
            if self._only_newest:  # `_admit_next` takes from the end, so numbered checkpoints come last
                found_checkpoints.sort(key=lambda seen_checkpoint: seen_checkpoint.index is not None)
            self._found_checkpoints.extend(found_checkpoints)
            self._series_with_newest.clear()
            self._read_newest.clear()
            self._highest_indices = None
        deadline = time.monotonic() + _POLL_SECONDS
        num_processed = 0
        sightings = []
        with self._synced_transaction() if self._found_checkpoints else contextlib.nullcontext():
            while self._found_checkpoints and (not num_processed or time.monotonic() < deadline):
                num_processed += 1
                sighting = self._admit_next()
                if sighting is not None:
                    sightings.append(sighting)
                    if self._only_newest:
                        break  # evaluate it before looking at the others
            if not self._found_checkpoints:
                self._log_skipped()
        return num_processed, sightings

    def _without_leftovers(self, checkpoints: Sequence[SeenCheckpoint]) -> Sequence[SeenCheckpoint]:
        """Leaves out checkpoints of a former run that no watch has read. Those that were read are left out silently."""
        restarts = self._ledger.current_restarts
        first_uris = restarts.paths_that_begin_runs()
        leftovers = find_leftovers(checkpoints, lambda checkpoint: self._shows_new_run(checkpoint, first_uris))
        unread_leftovers: dict[str, list[str]] = {}  # by the checkpoint that shows them
        for uri, new_checkpoint in list(leftovers.items()):
            position = restarts.last_position(uri)
            if position is None:
                unread_leftovers.setdefault(new_checkpoint.uri, []).append(uri)
            elif restarts.is_of_new_run(position) and uri not in self._early_reads:  # unchanged
                del leftovers[uri]
        for new_uri, uris in unread_leftovers.items():
            reason = f"older than {new_uri}, with which a new run began in this folder"
            self._log(f"left out: {_uris_text(uris)} ({reason}; `touch` what belongs to it)")
        return [checkpoint for checkpoint in checkpoints if checkpoint.uri not in leftovers]

    def _shows_new_run(self, seen_checkpoint: SeenCheckpoint, first_uris: Collection[str] = ()) -> bool:
        """Returns whether a known file has, at its outer step or a lower one, other content than a former run wrote.

        An unchanged one shows the new run if it is its first checkpoint; `first_uris` are the paths of those.
        """
        restarts = self._ledger.current_restarts
        position = restarts.last_position(seen_checkpoint.uri)
        if position is None:
            return False
        try:
            if self._is_recorded_unchanged(seen_checkpoint):
                return seen_checkpoint.uri in first_uris
            if seen_checkpoint.uri not in self._early_reads:
                self._early_reads[seen_checkpoint.uri] = self._read_into_spool(seen_checkpoint, None)
            checkpoint, _ = self._early_reads[seen_checkpoint.uri]
        except LobenchError:
            return False  # reading it again reports the error
        sighting = restarts.subject_at(position)
        return checkpoint.sha256 != sighting.sha256 and checkpoint.outer_step <= sighting.outer_step

    def _due_checkpoints(self) -> list[SeenCheckpoint]:
        """Returns the checkpoints to retry now, oldest first."""
        now = self._clock()
        if self._only_newest:
            for retry in list(self._retries.values()):
                if (retry.checkpoint.index or 0) < self._last_read.get(_run_and_folder(retry.checkpoint), -1):
                    del self._retries[retry.checkpoint.uri]  # a newer checkpoint was read
        due_checkpoints = [retry.checkpoint for retry in self._retries.values() if retry.pauses.is_due(now)]
        for folder, unbound in list(self._unbound_checkpoints.items()):
            try:
                if all(self._run_variant(uri) == unbound.variant for uri in unbound.checkpoints):
                    continue
            except ConfigError as error:
                if str(error) == unbound.reason:
                    continue
            due_checkpoints += unbound.checkpoints.values()
            del self._unbound_checkpoints[folder]
        return sorted(due_checkpoints, key=lambda seen_checkpoint: seen_checkpoint.index or 0)

    @contextlib.contextmanager
    def _limiting_lines(self) -> Iterator[None]:
        """Collects log lines of the body, then logs the first few of them and the number of further lines."""
        lines = self._collected_lines = list[str]()
        try:
            yield
        finally:
            self._collected_lines = None
            for line in lines[:_MAX_LINES]:
                self._log(line)
            if (num_more := len(lines) - _MAX_LINES) > 0:
                self._log(f"and {counted(num_more, 'checkpoint')} more, which `lobench results --evaluations` lists")

    @contextlib.contextmanager
    def _synced_transaction(self) -> Iterator[None]:
        """Commits the body's sightings together, after syncing their thetas in the spool to the disk."""
        with self._ledger.transaction():
            yield
            self._spool.sync()

    def _admit_next(self) -> tuple[int, Subject] | None:
        if not self._only_newest:
            return self._admit(self._found_checkpoints.popleft())
        seen_checkpoint = self._found_checkpoints.pop()
        newest_uri = self._series_with_newest.get(series := _series_of(seen_checkpoint))
        if newest_uri is not None and not self._is_of_new_run(seen_checkpoint, newest_uri):
            self._skip_superseded(seen_checkpoint)
            return None
        sighting = self._admit(seen_checkpoint)
        with contextlib.suppress(CheckpointError):
            if sighting is not None:
                self._series_with_newest[series] = ""
                self._read_newest[series] = sighting[1]
            elif (
                _is_valid_unicode(seen_checkpoint.uri)
                and self._is_recorded_unchanged(seen_checkpoint)
                and not self._is_of_former_run(seen_checkpoint)
            ):
                self._series_with_newest[series] = seen_checkpoint.uri
        return sighting

    def _is_of_new_run(self, seen_checkpoint: SeenCheckpoint, newest_uri: str) -> bool:
        """Returns whether a checkpoint below the newest one was written again by a trainer that began again."""
        with contextlib.suppress(CheckpointError):
            return (
                bool(newest_uri and self._fingerprints.get(seen_checkpoint.uri))
                and not self._is_recorded_unchanged(seen_checkpoint)
                and self._is_written_after(seen_checkpoint.uri, newest_uri)
            )
        return False

    def _is_of_former_run(self, seen_checkpoint: SeenCheckpoint) -> bool:
        """Returns whether an unchanged checkpoint is newer than those of a run that began again in the folder."""
        if seen_checkpoint.index is None or not self._ledger.current_restarts.superseded_positions:
            return False
        highest_index = self._highest_current_indices().get(_run_and_folder(seen_checkpoint))
        return highest_index is not None and seen_checkpoint.index > highest_index

    def _highest_current_indices(self) -> dict[tuple[str, str], int]:
        """Returns the highest index among the current checkpoints of each run and folder, computed once in a poll.

        Checkpoints that the poll reads change nothing: they are the newest of their folder then.
        """
        if self._highest_indices is None:
            self._highest_indices = {}
            for subject in self._ledger.current_restarts.current_checkpoints():
                index = index_in_name(epath.Path(subject.uri).name)
                if index is not None:
                    folder = subject.run, _parent(subject.uri)
                    self._highest_indices[folder] = max(index, self._highest_indices.get(folder, index))
        return self._highest_indices

    def _is_written_after(self, uri: str, other_uri: str) -> bool:
        """Returns whether a checkpoint was written again after another one, which is still as it was read.

        If the other one was written again too, as in a copy of the folder, the times tell nothing.
        """
        fingerprints = self._ledger.fingerprints()
        old_fingerprint = fingerprints.get(uri, "").removeprefix(PASSED_OVER_PREFIX)
        try:
            path, other_path = checkpoint_path(uri), checkpoint_path(other_uri)
            return (
                bool(old_fingerprint)
                and other_uri not in self._copied_uris
                and files_fingerprint(path) != old_fingerprint
                and files_fingerprint(other_path) == fingerprints.get(other_uri, "").removeprefix(PASSED_OVER_PREFIX)
                and min(times_of_files(path)) > max(times_of_files(other_path))
            )
        except (CheckpointError, OSError, ValueError):  # one is gone, inaccessible or an empty folder
            return False

    def _is_recorded_unchanged(self, seen_checkpoint: SeenCheckpoint) -> bool:
        """Returns whether an earlier run has read or skipped a checkpoint that has not changed since."""
        last_fingerprint = self._fingerprints.get(seen_checkpoint.uri, "").removeprefix(
            PASSED_OVER_PREFIX if self._only_newest else ""
        )
        return bool(last_fingerprint) and last_fingerprint == files_fingerprint(checkpoint_path(seen_checkpoint.uri))

    def _skip_superseded(self, seen_checkpoint: SeenCheckpoint) -> None:
        """Records that a checkpoint is superseded by a newer one. It is only read to tell whether a new run began."""
        with contextlib.suppress(CheckpointError):
            if _is_valid_unicode(seen_checkpoint.uri) and not self._is_recorded_unchanged(seen_checkpoint):
                self._record_restart_shown_by(seen_checkpoint)
                self._ledger.record_fingerprint(
                    seen_checkpoint.uri, PASSED_OVER_PREFIX + files_fingerprint(checkpoint_path(seen_checkpoint.uri))
                )
                self._skipped_uris.append(seen_checkpoint.uri)

    def _record_restart_shown_by(self, skipped_checkpoint: SeenCheckpoint) -> None:
        """Records a restart in place that a skipped checkpoint shows, if the newest one has a step of its own."""
        restarts = self._ledger.current_restarts
        newest = self._read_newest.get(_series_of(skipped_checkpoint))
        position = restarts.last_position(skipped_checkpoint.uri)
        if newest is None or position is None or position in restarts.superseded_positions:
            return
        former_sighting = restarts.subject_at(position)
        if series_of(former_sighting) == series_of(newest) and self._shows_new_run(skipped_checkpoint):
            self._ledger.record_sighting(
                newest,
                restarts_from=self._first_changed_step(newest),
                on_restart=lambda restart: self._log_restart(restart, former_sighting),
            )

    def _log_skipped(self) -> None:
        if self._skipped_uris:
            uris, self._skipped_uris = self._skipped_uris[::-1], []
            reported_uris = {uri for kind, uri, _ in self._known_events if kind in ("expired", "unreadable")}
            cleared_uris = [uri for uri in uris if uri in reported_uris]
            self._known_events = {event for event in self._known_events if event[1] not in cleared_uris}
            cleared_field = {"cleared": cleared_uris} if cleared_uris else {}
            self._ledger.record_event("skipped", first=uris[0], last=uris[-1], count=len(uris), **cleared_field)
            self._log(skipped_line(uris))

    def release_theta(self, sha256: str) -> None:
        """Marks a theta as no longer needed."""
        self._released_thetas[sha256] = self._ledger.num_transactions()

    def remove_released(self, needed_hashes: Collection[str]) -> None:
        """Removes the files of released thetas, except needed ones.

        On a network file system a file is removed only after the store's own file has its release, because a restart
        may continue from that file and need the theta again.
        """
        for sha256, release_id in list(self._released_thetas.items()):
            if sha256 in needed_hashes:
                del self._released_thetas[sha256]
            elif self._ledger.is_published(release_id):
                self._spool.remove_copy(sha256)
                del self._released_thetas[sha256]

    def _admit(
        self, seen_checkpoint: SeenCheckpoint, request: GivenCheckpoint | None = None, *, is_fetched: bool = False
    ) -> tuple[int, Subject] | None:
        """Reads a checkpoint and records its sighting.

        Returns None if the checkpoint cannot be read, or if the source found it and it is known already.

        Args:
          seen_checkpoint: Checkpoint to read.
          request: Request of an explicitly given checkpoint. None: the source has found it.
          is_fetched: Whether the checkpoint was read before. If another theta is at its path now, None is returned,
            because the source will find that theta.
        """
        if not _is_valid_unicode(seen_checkpoint.uri):
            printable_uri = seen_checkpoint.uri.encode("utf-8", "backslashreplace").decode()
            error = CheckpointError("its name is not UTF-8 text", where=printable_uri, next_step="rename it")
            self._record_incident("unreadable", dataclasses.replace(seen_checkpoint, uri=printable_uri), error)
            return None
        try:
            if request is None and self._is_recorded_unchanged(seen_checkpoint):
                self._record_read(seen_checkpoint)
                return None
            given_checkpoint = request or GivenCheckpoint(
                uri=seen_checkpoint.uri, variant=self._run_variant(seen_checkpoint.uri)
            )
            if request is None:
                early_read = self._early_reads.pop(seen_checkpoint.uri, None)
                checkpoint, stamp = early_read or self._read_into_spool(seen_checkpoint, None)
            else:  # retried now, since given checkpoints are not retried later
                checkpoint, stamp = retried(lambda: self._read_into_spool(seen_checkpoint, request), clock=self._clock)
            subject = given_checkpoint.to_subject(checkpoint)
            restarts_from = self._restart_step(subject) if request is None else None
            first_of_new_run = self._ledger.current_restarts.superseded_by(subject)
            has_returned = (
                request is None
                and first_of_new_run is not None
                and self._is_written_after(subject.uri, first_of_new_run.uri)
            )
        except ConfigError as error:
            if request is not None:
                raise
            self._wait_for_config(seen_checkpoint, None, error)
        except _ThetaChanged as error:
            if not is_fetched:
                self._record_incident("expired", seen_checkpoint, error)
        except CheckpointGone as error:
            if self._retries.pop(seen_checkpoint.uri, None) is None or seen_checkpoint.uri not in self._reported_paths:
                self._record_incident("expired", seen_checkpoint, error)
        except StoreError as error:
            has_given_up = (
                self._retry_or_give_up(seen_checkpoint, error) if is_transient(error, retries_forbidden=False) else True
            )
            if request is not None or has_given_up:
                raise
        except CheckpointError as error:
            if request is not None or self._retry_or_give_up(seen_checkpoint, error):
                self._record_incident("unreadable", seen_checkpoint, error)
                last_unread = self._unreadable_checkpoints.get(_run_and_folder(seen_checkpoint))
                if request is None and (
                    last_unread is None or (last_unread[0].index or 0) <= (seen_checkpoint.index or 0)
                ):
                    self._unreadable_checkpoints[_run_and_folder(seen_checkpoint)] = seen_checkpoint, str(error)
        else:
            self._record_read(seen_checkpoint)
            is_copied = self._ledger.current_restarts.has_sighting(subject) and restarts_from is None
            (self._copied_uris.add if is_copied else self._copied_uris.discard)(subject.uri)
            position = self._ledger.record_sighting(
                subject,
                stamp,
                restarts_from=restarts_from,
                has_returned=has_returned,
                on_restart=lambda restart: self._log_restart(restart, subject),
            )
            if not has_step_in_name(subject.uri):
                subject = self._ledger.sightings(subject.sha256)[position]
            return position, subject
        return None

    def wait_for_configs(self, subjects: Iterable[Subject], why: LobenchError) -> int:
        """Postpones found checkpoints until the `config.gin` of their runs changes; returns their number."""
        num_waiting = 0
        for subject in subjects:
            if (
                subject.run
                and not subject.variant.bindings
                and (seen_checkpoint := self._seen_checkpoint_at(subject.uri)) is not None
            ):
                seen_checkpoint = dataclasses.replace(seen_checkpoint, run=subject.run, generation=subject.generation)
                self._wait_for_config(seen_checkpoint, subject.variant, why)
                num_waiting += 1
        return num_waiting

    def _wait_for_config(self, seen_checkpoint: SeenCheckpoint, variant: Variant | None, error: LobenchError) -> None:
        self._record_incident("unreadable", seen_checkpoint, error)
        self._fingerprints.pop(seen_checkpoint.uri, None)
        unbound = self._unbound_checkpoints.setdefault(
            _run_and_folder(seen_checkpoint), _UnboundCheckpoints(str(error), variant)
        )
        unbound.checkpoints[seen_checkpoint.uri] = seen_checkpoint

    def _restart_step(self, subject: Subject) -> int | None:
        """Returns the first outer step that a restart in place supersedes; None without a restart.

        Every file with another theta than before belongs to the new run, even if its theta is not evaluated. A trainer
        keeps its newest checkpoint, so if that is gone, a checkpoint with a lower step belongs to another run. So does
        a checkpoint whose content is unknown, because it was passed over, if it was written again after the newest one.
        """
        later_sightings = self._ledger.current_restarts.at_or_after_step(subject)
        if not later_sightings:
            return None
        is_replaced = any(
            sighting.uri == subject.uri and sighting.sha256 != subject.sha256 for sighting in later_sightings
        )
        newest_sighting = max(later_sightings, key=lambda sighting: sighting.outer_step)
        if not is_replaced:
            last_fingerprint = self._ledger.fingerprints().get(subject.uri, "")
            was_passed_over = last_fingerprint.startswith(PASSED_OVER_PREFIX)
            if was_passed_over and last_fingerprint.endswith(files_fingerprint(checkpoint_path(subject.uri))):
                return None  # it was there before the newest one was read
            is_gone = newest_sighting.outer_step > subject.outer_step and not _may_exist(newest_sighting.uri)
            if not is_gone and not (was_passed_over and self._is_written_after(subject.uri, newest_sighting.uri)):
                return None
        return self._first_changed_step(subject)

    def _first_changed_step(self, subject: Subject) -> int:
        """Returns the lowest outer step of a subject's lineage whose file has another theta now, or the subject's."""
        fingerprints = self._ledger.fingerprints()
        lineage = self._ledger.current_restarts.current_lineage(subject)
        earlier_sightings = sorted(
            (sighting for sighting in lineage if sighting.outer_step < subject.outer_step),
            key=lambda sighting: sighting.outer_step,
        )
        return next(
            (
                sighting.outer_step
                for sighting in earlier_sightings
                if sighting.uri != subject.uri and _has_changed(sighting, fingerprints.get(sighting.uri, ""))
            ),
            subject.outer_step,
        )

    def _log_restart(self, restart: Restart, subject: Subject) -> None:
        if restart.kind == RESTARTED_EVENT:
            suffix = f" of the former one, from outer step {restart.outer_step} on,"
            count_text = counted_with_verb(restart.num_superseded, "checkpoint", suffix=suffix)
            is_replaced = any(uri == subject.uri for uri, *_ in restart.detail["superseded"])
            reason = "has other content than before" if is_replaced else "was written after those of higher steps"
            self._log(
                f"restarted: {subject.uri} (outer step {subject.outer_step}) {reason}: a new run begins, and "
                f"{count_text} left out"
            )
            folder = _parent(subject.uri)
            self._num_restarts[folder] += 1
            if self._num_restarts[folder] == _MANY_RESTARTS:
                self._log(f"{folder}: {_MANY_RESTARTS} restarts in this watch; do two trainers write to this folder?")

    def _read_into_spool(
        self, seen_checkpoint: SeenCheckpoint, request: GivenCheckpoint | None
    ) -> tuple[Checkpoint, str]:
        """Returns a checkpoint and the fingerprint of its files. Its theta is then in the spool."""
        stamp = files_fingerprint(checkpoint_path(seen_checkpoint.uri))
        checkpoint = self._spool.add(
            seen_checkpoint,
            self._readers[seen_checkpoint.reader],
            is_known=lambda sha256: sha256 == (request.sha256 if request else "") or self._ledger.has_sighting(sha256),
            arrival=lambda sha256: self._ledger.current_restarts.arrival_number(seen_checkpoint.uri, sha256),
        )
        if request is not None and request.sha256 not in ("", checkpoint.sha256):
            raise _ThetaChanged(
                "another theta lies here than the one that was chosen",
                where=request.uri,
                got=checkpoint.sha256[:12],
                expected=request.sha256[:12],
                next_step="the file was overwritten: choose again",
            )
        return checkpoint, stamp

    def _record_read(self, seen_checkpoint: SeenCheckpoint) -> None:
        self._last_read[_run_and_folder(seen_checkpoint)] = max(
            seen_checkpoint.index or 0, self._last_read.get(_run_and_folder(seen_checkpoint), -1)
        )
        if self._retries.pop(seen_checkpoint.uri, None) is not None and seen_checkpoint.uri in self._reported_paths:
            self._reported_paths.discard(seen_checkpoint.uri)
            self._log(f"it can be read now: {seen_checkpoint.uri}")

    def _retry_or_give_up(self, seen_checkpoint: SeenCheckpoint, error: LobenchError) -> bool:
        """Schedules the next attempt for a checkpoint.

        Returns whether to report its error: it is not transient, or it has lasted.
        """
        now = self._clock()
        may_recover = is_transient(error)
        retry = self._retries.get(seen_checkpoint.uri)
        if retry is not None:
            retry.pauses.record_failure(now)
        elif not isinstance(error, PickleRefused):  # a refused pickle stays refused
            pauses = RetryPauses(now, **(_DISK_PAUSES if may_recover else _CONTENT_PAUSES))
            retry = _Retry(checkpoint=seen_checkpoint, pauses=pauses)
            if may_recover and not any(other_retry.is_awaited for other_retry in self._retries.values()):
                cause_text = "waiting for a free file descriptor (`ulimit -n` allows more)"
                self._log(f"{cause_text if is_short_of_files(error) else 'trying again'}: {error}")
            self._retries[seen_checkpoint.uri] = retry
        if retry is None:
            return True
        self._fingerprints.pop(seen_checkpoint.uri, None)
        retry.is_awaited = may_recover and now - retry.pauses.first_failure_time <= patience_seconds(error)
        if not retry.is_awaited:
            self._reported_paths.add(seen_checkpoint.uri)
        return not retry.is_awaited

    def _record_incident(self, kind: str, seen_checkpoint: SeenCheckpoint, error: LobenchError) -> None:
        incident = (kind, seen_checkpoint.uri, str(error))
        if (kind, str(error)) not in self._logged_lines:
            self._logged_lines.add((kind, str(error)))
            (self._log if self._collected_lines is None else self._collected_lines.append)(f"{kind}: {error}")
        if incident not in self._known_events:
            self._known_events.add(incident)
            self._ledger.record_event(kind, uri=seen_checkpoint.uri, message=str(error))


def _run_and_folder(seen_checkpoint: SeenCheckpoint) -> tuple[str, str]:
    return seen_checkpoint.run, _parent(seen_checkpoint.uri)


def _series_of(seen_checkpoint: SeenCheckpoint) -> tuple[str, str, bool]:
    """Returns the run and folder of a checkpoint, and whether its name has a number."""
    return *_run_and_folder(seen_checkpoint), seen_checkpoint.index is not None


def _parent(uri: str) -> str:
    return str(epath.Path(uri).parent)


class _ThetaChanged(CheckpointGone):
    """Error: a path has another theta than the chosen one."""


def _may_exist(uri: str) -> bool:
    """Returns whether a path exists; True if unknown."""
    try:
        return bool(checkpoint_path(uri).exists())
    except (OSError, CheckpointError):
        return True


def _has_changed(sighting: Subject, old_fingerprint: str) -> bool:
    """Returns whether a sighting's files have another theta now; False if they are gone, or if the fingerprint is "".

    Copied files have another fingerprint and the same theta. If the theta cannot be told, the fingerprint decides.
    """
    try:
        is_rewritten = bool(old_fingerprint) and files_fingerprint(checkpoint_path(sighting.uri)) != old_fingerprint
    except CheckpointError:
        return False
    return is_rewritten and not holds_theta(sighting.uri, sighting.sha256)


def _is_valid_unicode(name: str) -> bool:
    """Returns whether a name is valid Unicode. Other names can neither be stored nor shown."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def skipped_line(uris: Sequence[str]) -> str:
    """Returns one line on checkpoints that are not evaluated. `uris` are in the order of their steps."""
    return f"skipped: {_uris_text(uris)} (not chosen; `--checkpoints all` evaluates each)"


def _uris_text(uris: Sequence[str]) -> str:
    return uris[0] if len(uris) == 1 else f"{len(uris)} checkpoints, {uris[0]} to {uris[-1]}"
