"""Checkpoint intake: from a source's finding to theta in the spool, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from etils import epath

from lobench.core.checkpoint import Checkpoint, SeenCheckpoint
from lobench.core.errors import (
    CheckpointError,
    CheckpointGone,
    ConfigError,
    LobenchError,
    PickleRefused,
    StoreError,
)
from lobench.core.subject import Given, GivenCheckpoint, Subject, Variant
from lobench.core.wording import counted
from lobench.engine.checkpoints.files import index_in_name
from lobench.engine.checkpoints.places import path_of
from lobench.engine.checkpoints.readers import reader_for
from lobench.engine.checkpoints.spool import Spool, fingerprint
from lobench.engine.retries import Pauses, is_short_of_files, is_transient, patience_seconds, retried
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.restarts import RESTARTED, Restart
from lobench.hookspecs import CheckpointReader, CheckpointSource

__all__ = ["Intake", "skipped_line"]

_DISK_PAUSES = {"first": 0.1, "longest": 30.0}  # seconds between two readings, after an error that may pass
_CONTENT_PAUSES = {"first": 5.0, "longest": 600.0}  # after another one
_POLL_SECONDS = 0.5  # for so long results, deadlines and signals wait while a run's many checkpoints are copied
_PASSED_OVER = "passed over "  # before the fingerprint of what was found and not read


@dataclasses.dataclass(slots=True)
class _Retry:
    """A checkpoint that could not be read, and is read again.

    Attributes:
      is_awaited: The error may pass, and has not lasted for long: a run that ends waits for it.
    """

    seen: SeenCheckpoint
    pauses: Pauses
    is_awaited: bool = True


@dataclasses.dataclass(slots=True)
class _Unbound:
    """Checkpoints of a run that wait until its `config.gin` is another one.

    Attributes:
      variant: The bindings that no case can be evaluated with; None if they cannot be read.
      seen: The checkpoints by their places.
    """

    why: str
    variant: Variant | None
    seen: dict[str, SeenCheckpoint] = dataclasses.field(default_factory=dict)


class Intake:
    """Copies each checkpoint once, reads it, and records the sighting.

    A checkpoint that cannot be read is read again after growing pauses, as long as the watch runs. An error of the disk
    is reported as unreadable only if it lasts. If the `config.gin` of a run is wrong, its checkpoints wait: the file is
    read again at each poll.

    Args:
      log: Takes a line for each checkpoint that cannot be read.
      clock: Seconds of a clock that nobody sets; pauses are measured with it.
      run_variant: Returns the bindings of a checkpoint that the source found, by its place.
      only_newest: Of what the source finds at once, read the last that can be read, and pass over what is older.
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
        self._ledger, self._spool, self._source, self._readers, self._log = ledger, spool, source, readers, log
        self._known_events = {(kind, detail.get("uri"), detail.get("message")) for kind, detail in ledger.events()}
        self._only_newest, self._run_variant = only_newest, run_variant
        self._newest: set[tuple[str, str]] = set()  # runs and folders whose newest of those found is there
        self._logged: set[tuple[str, str]] = set()  # since this start
        self._found: deque[SeenCheckpoint] = deque()
        self._passed_over: list[str] = []
        self._unread: dict[tuple[str, str], tuple[SeenCheckpoint, str]] = {}  # the newest that could not be, and why
        self._unbound: dict[tuple[str, str], _Unbound] = {}  # by run and folder
        self._last_read: dict[tuple[str, str], int] = {}  # by run and folder: the highest index
        self._fingerprints = ledger.fingerprints()  # of what was read before this start
        self._retries: dict[str, _Retry] = {}  # by the checkpoint's place
        self._reported: set[str] = set()  # places of checkpoints whose error counted
        self._released: dict[str, int] = {}  # thetas that nothing needs any more, since a place in the ledger

    def pending(self) -> bool:
        """Whether something may still be written; what is half-written for good is not meant."""
        is_retried = any(retry.is_awaited for retry in self._retries.values())
        return is_retried or any(found.is_awaited for found in self._source.pending().values())

    def recover(self, unfinished: Collection[Subject], *, keep: Iterable[Subject] = ()) -> None:
        """Clears the spool of what nothing needs, and copies again what it should hold and does not.

        Args:
          keep: Whose thetas stay, too: they are not this start's, but a later one's.
        """
        self._spool.sweep({subject.sha256 for subject in (*unfinished, *keep)})
        for subject in unfinished:
            self.fetch(subject)

    def with_todays_configs(self, sightings: Mapping[int, Subject]) -> dict[int, Subject]:
        """Returns the sightings that count with the `config.gin` of each run below the folder as it is now.

        After an edit a checkpoint is another subject: it gets a sighting of its own, and the former one is left out. If
        the file is wrong, those of its run are left out.
        Those of a run that was removed stay as they are.
        """
        found = dict(sightings)
        of_runs = {at: one for at, one in found.items() if one.has_theta and one.run and not one.variant.bindings}
        last = {one.uri: one for one in of_runs.values()}
        for seen in last.values():
            try:
                variant = self._run_variant(seen.uri)
            except ConfigError:  # the next poll reports it
                for at, one in of_runs.items():
                    if one.uri == seen.uri:
                        found.pop(at, None)
                self._fingerprints.pop(seen.uri, None)
                continue
            if not variant.key and not _exists(seen.uri):
                variant = seen.variant
            same = {at: one for at, one in of_runs.items() if (one.uri, one.sha256) == (seen.uri, seen.sha256)}
            for at, one in same.items():
                if one.variant != variant:
                    del found[at]
            if all(one.variant != variant for one in same.values()):
                subject = dataclasses.replace(seen, variant=variant)
                found[self._ledger.record_sighting(subject)] = subject
        return dict(sorted(found.items()))

    def give(self, given: Given) -> tuple[int, Subject] | None:
        """Takes what somebody names; returns None for a checkpoint that cannot be read.

        One that an earlier start has read, and that lies there as it was then, is not read again.
        """
        if isinstance(given, Subject):
            return self._ledger.record_sighting(given), given
        seen = self._seen_at(given.uri)
        if seen is None:
            return None
        before = self._checkpoint_before(seen)
        if before is not None and given.sha256 not in ("", before.sha256):
            before = None  # reading it tells whether it is the one that is meant
        if before is None:
            with self._recording():
                return self._take(seen, given)
        subject = given.read_as(before)
        position = self._ledger.record_sighting(subject, on_restart=lambda restart: self._log_restart(restart, subject))
        return position, subject

    def _seen_at(self, uri: str) -> SeenCheckpoint | None:
        """Returns what is named by its place; None, and says why, where it cannot be fetched or no reader knows it."""
        error = CheckpointError("no reader knows it", where=uri, next_step="see `lobench list readers`")
        try:
            path = path_of(uri)
            reader = reader_for(path, self._readers)
            if reader is not None:
                return SeenCheckpoint(uri=uri, reader=reader, index=index_in_name(path.name))
        except CheckpointError as missing:
            error = missing
        self._incident("unreadable", SeenCheckpoint(uri=uri, reader=""), error)
        return None

    def _checkpoint_before(self, seen: SeenCheckpoint) -> Checkpoint | None:
        """Returns the checkpoint that lies at a place, where it was read before and is as it was then."""
        with contextlib.suppress(CheckpointError):
            if self._is_known(seen):
                at = [one for one in self._ledger.sightings().values() if one.uri == seen.uri and one.has_theta]
                return at[-1].checkpoint if at else None
        return None

    def fetch(self, subject: Subject) -> bool:
        """Says whether the spool holds a subject's theta, after copying it again from its place where it does not."""
        if not subject.has_theta or self.holds(subject.sha256):
            return True
        seen = self._seen_at(subject.uri)
        if seen is not None:
            seen = dataclasses.replace(seen, run=subject.run, generation=subject.generation)
            with self._recording():
                self._take(seen, dataclasses.replace(_given(subject), sha256=subject.sha256), is_fetched=True)
        return self.holds(subject.sha256)

    def holds(self, sha256: str) -> bool:
        return self._spool.holds(sha256)

    @property
    def unread(self) -> dict[str, str]:
        """By its place, why the newest checkpoint of a run could not be read, or never became complete."""
        last_read: dict[str, int] = {}
        for (_, folder), index in self._last_read.items():
            last_read[folder] = max(index, last_read.get(folder, -1))
        left_out = {
            uri: f"{uri}: {found.reason}"
            for uri, found in self._source.pending().items()
            if not found.is_awaited and (index_in_name(path_of(uri).name) or 0) > last_read.get(_parent(uri), -1)
        }
        return left_out | {
            seen.uri: why
            for folder, (seen, why) in self._unread.items()
            if (seen.index or 0) > self._last_read.get(folder, -1)
        }

    @property
    def unbound(self) -> dict[str, str]:
        """By its folder, why a run was not evaluated with its `config.gin`."""
        return {folder: unbound.why for (_, folder), unbound in self._unbound.items()}

    def awaited(self) -> dict[str, str]:
        """Returns by its place why a checkpoint is not complete that a run which ends waits for."""
        return {uri: found.reason for uri, found in self._source.pending().items() if found.is_awaited}

    @property
    def backlog(self) -> int:
        """Checkpoints that the source has found and that `poll` has not come to yet."""
        return len(self._found)

    @property
    def is_choosing(self) -> bool:
        """Whether what `poll` has not come to yet may be newer than what it has taken."""
        return any(_folder(seen) not in self._newest for seen in self._found)

    def poll(self) -> tuple[int, list[tuple[int, Subject]]]:
        """Takes what the source finds, for a while: the rest is taken by the next calls.

        Returns:
          How many checkpoints it took, and those of them that could be read, by position.
        """
        if not self._found:
            new = self._source.poll()
            for seen in new:
                self._retries.pop(seen.uri, None)  # it was written again
            self._found.extend(self._due())
            self._found.extend(new)
            self._newest.clear()
        deadline, num_taken, taken = time.monotonic() + _POLL_SECONDS, 0, []
        with self._recording() if self._found else contextlib.nullcontext():
            while self._found and (not num_taken or time.monotonic() < deadline):
                num_taken += 1
                sighting = self._take_next()
                if sighting is not None:
                    taken.append(sighting)
                    if self._only_newest:
                        break  # the others can wait until it is under way
            if not self._found:
                self._log_passed_over()
        return num_taken, taken

    def _due(self) -> list[SeenCheckpoint]:
        """Returns the checkpoints that are read again now, oldest first."""
        now = self._clock()
        if self._only_newest:
            for retry in list(self._retries.values()):
                if (retry.seen.index or 0) < self._last_read.get(_folder(retry.seen), -1):
                    del self._retries[retry.seen.uri]  # a newer one was read
        due = [retry.seen for retry in self._retries.values() if retry.pauses.is_due(now)]
        for folder, unbound in list(self._unbound.items()):
            try:
                if all(self._run_variant(uri) == unbound.variant for uri in unbound.seen):
                    continue
            except ConfigError as error:
                if str(error) == unbound.why:
                    continue
            due += unbound.seen.values()
            del self._unbound[folder]
        return sorted(due, key=lambda seen: seen.index or 0)

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """Commits the body's sightings together, once the spool has their thetas on the disk."""
        with self._ledger.transaction():
            yield
            self._spool.sync()

    def _take_next(self) -> tuple[int, Subject] | None:
        if not self._only_newest:
            return self._take(self._found.popleft())
        seen = self._found.pop()
        if _folder(seen) in self._newest:
            self._pass_over(seen)
            return None
        sighting = self._take(seen)
        with contextlib.suppress(CheckpointError):
            if sighting is not None or (_is_text(seen.uri) and self._is_known(seen)):
                self._newest.add(_folder(seen))
        return sighting

    def _is_known(self, seen: SeenCheckpoint) -> bool:
        """Says whether an earlier start has read it, or passed it over, as it is now."""
        before = self._fingerprints.get(seen.uri, "").removeprefix(_PASSED_OVER if self._only_newest else "")
        return bool(before) and before == fingerprint(path_of(seen.uri))

    def _pass_over(self, seen: SeenCheckpoint) -> None:
        """Remembers a checkpoint that a newer one makes needless, without reading it."""
        with contextlib.suppress(CheckpointError):
            if _is_text(seen.uri) and not self._is_known(seen):
                self._ledger.remember(seen.uri, _PASSED_OVER + fingerprint(path_of(seen.uri)))
                self._passed_over.append(seen.uri)

    def _log_passed_over(self) -> None:
        if self._passed_over:
            uris, self._passed_over = self._passed_over[::-1], []
            self._ledger.record_event("skipped", first=uris[0], last=uris[-1], count=len(uris))
            self._log(skipped_line(uris))

    def release(self, sha256: str) -> None:
        """Says that nothing needs a theta any more."""
        self._released[sha256] = self._ledger.place()

    def discard(self, needed: Collection[str]) -> None:
        """Drops released thetas, once a restart would know that they are not needed."""
        for sha256, place in list(self._released.items()):
            if sha256 in needed:
                del self._released[sha256]
            elif self._ledger.is_published(place):
                self._spool.discard(sha256)
                del self._released[sha256]

    def _take(
        self, seen: SeenCheckpoint, given: GivenCheckpoint | None = None, *, is_fetched: bool = False
    ) -> tuple[int, Subject] | None:
        """Returns a sighting; None for what cannot be read, and, unless it is given, for what was read before.

        Args:
          is_fetched: Whether it was read before. If another theta lies there now, the source finds that one.
        """
        if not _is_text(seen.uri):
            shown = seen.uri.encode("utf-8", "backslashreplace").decode()
            error = CheckpointError("its name is no UTF-8 text", where=shown, next_step="rename it")
            self._incident("unreadable", dataclasses.replace(seen, uri=shown), error)
            return None
        try:
            if given is None and self._is_known(seen):
                self._note_read(seen)
                return None
            found = given or GivenCheckpoint(uri=seen.uri, variant=self._run_variant(seen.uri))
            if given is None:
                checkpoint, mark = self._read(seen, None)
            else:  # nothing comes back to it later
                checkpoint, mark = retried(lambda: self._read(seen, given), clock=self._clock)
            _check_theta(checkpoint, given)
            subject = found.read_as(checkpoint)
            restarts_from = self._restarts_from(seen, subject) if given is None else None
        except ConfigError as error:
            if given is not None:
                raise
            self._wait_for_config(seen, None, error)
        except _OtherTheta as error:
            if not is_fetched:
                self._incident("expired", seen, error)
        except CheckpointGone as error:
            if self._retries.pop(seen.uri, None) is None or seen.uri not in self._reported:
                self._incident("expired", seen, error)
        except StoreError as error:
            is_over = self._is_over(seen, error) if is_transient(error, may_forbid=False) else True
            if given is not None or is_over:
                raise
        except CheckpointError as error:
            if given is not None or self._is_over(seen, error):
                self._incident("unreadable", seen, error)
                before = self._unread.get(_folder(seen))
                if given is None and (before is None or (before[0].index or 0) <= (seen.index or 0)):
                    self._unread[_folder(seen)] = seen, str(error)
        else:
            self._note_read(seen)
            position = self._ledger.record_sighting(
                subject,
                mark,
                restarts_from=restarts_from,
                on_restart=lambda restart: self._log_restart(restart, subject),
            )
            return position, subject
        return None

    def wait_for_configs(self, subjects: Iterable[Subject], why: LobenchError) -> int:
        """Has checkpoints that the source found wait for another `config.gin` of their runs; returns how many do."""
        num_waiting = 0
        for subject in subjects:
            if subject.run and not subject.variant.bindings and (seen := self._seen_at(subject.uri)) is not None:
                seen = dataclasses.replace(seen, run=subject.run, generation=subject.generation)
                self._wait_for_config(seen, subject.variant, why)
                num_waiting += 1
        return num_waiting

    def _wait_for_config(self, seen: SeenCheckpoint, variant: Variant | None, why: LobenchError) -> None:
        self._incident("unreadable", seen, why)
        self._fingerprints.pop(seen.uri, None)
        unbound = self._unbound.setdefault(_folder(seen), _Unbound(str(why), variant))
        unbound.seen[seen.uri] = seen

    def _restarts_from(self, seen: SeenCheckpoint, subject: Subject) -> int | None:
        """Returns the outer step from which on a restart in place supersedes what was seen; None if there is none.

        The files tell more than the ledger: each that has changed since it was read is of the new run, although it may
        never be read. And a trainer keeps its newest checkpoint, so that a lower step after the newest has gone is of
        another run.
        """
        ahead = self._ledger.ahead_of(subject)
        if not ahead:
            return None
        is_replaced = any(one.uri == subject.uri and one.sha256 != subject.sha256 for one in ahead)
        newest = max(ahead, key=lambda one: one.outer_step)
        if not is_replaced:
            was_passed_over = self._fingerprints.get(seen.uri, "").startswith(_PASSED_OVER)
            is_gone = newest.outer_step > subject.outer_step and not _exists(newest.uri)
            if was_passed_over or not is_gone:
                return None
        fingerprints = self._ledger.fingerprints()
        changed = [
            one.outer_step
            for one in self._ledger.run_of(subject)
            if one.uri != subject.uri and _has_changed(one.uri, fingerprints.get(one.uri, ""))
        ]
        return min([subject.outer_step, *changed])

    def _log_restart(self, restart: Restart, subject: Subject) -> None:
        if restart.kind == RESTARTED:
            left_out = counted(restart.num_superseded, "checkpoint")
            self._log(
                f"restarted: {subject.uri} (outer step {subject.outer_step}) has other content than before: a new run "
                f"begins, and {left_out} of the former one, from outer step {restart.outer_step} on, are left out"
            )

    def _read(self, seen: SeenCheckpoint, given: GivenCheckpoint | None) -> tuple[Checkpoint, str]:
        """Returns a checkpoint, whose theta the spool has then, and the fingerprint of its files."""
        mark = fingerprint(path_of(seen.uri))
        checkpoint = self._spool.take(
            seen,
            self._readers[seen.reader],
            is_known=lambda sha256: sha256 == (given.sha256 if given else "") or self._ledger.has_seen(sha256),
            arrival=lambda sha256: self._ledger.arrival(seen.uri, sha256),
        )
        return checkpoint, mark

    def _note_read(self, seen: SeenCheckpoint) -> None:
        self._last_read[_folder(seen)] = max(seen.index or 0, self._last_read.get(_folder(seen), -1))
        if self._retries.pop(seen.uri, None) is not None and seen.uri in self._reported:
            self._reported.discard(seen.uri)
            self._log(f"it can be read now: {seen.uri}")

    def _is_over(self, seen: SeenCheckpoint, error: LobenchError) -> bool:
        """Plans the next attempt at a checkpoint, and returns whether its error counts: it cannot pass, or it lasts."""
        now, may_pass = self._clock(), is_transient(error)
        retry = self._retries.get(seen.uri)
        if retry is not None:
            retry.pauses.failed(now)
        elif not isinstance(error, PickleRefused):  # its content is no accident
            pauses = Pauses(now, **(_DISK_PAUSES if may_pass else _CONTENT_PAUSES))
            retry = _Retry(seen=seen, pauses=pauses)
            if may_pass and not any(other.is_awaited for other in self._retries.values()):
                why = "waiting for a free file descriptor (`ulimit -n` allows more)"
                self._log(f"{why if is_short_of_files(error) else 'trying again'}: {error}")
            self._retries[seen.uri] = retry
        if retry is None:
            return True
        self._fingerprints.pop(seen.uri, None)
        retry.is_awaited = may_pass and now - retry.pauses.since <= patience_seconds(error)
        if not retry.is_awaited:
            self._reported.add(seen.uri)
        return not retry.is_awaited

    def _incident(self, kind: str, seen: SeenCheckpoint, error: LobenchError) -> None:
        incident = (kind, seen.uri, str(error))
        if (kind, str(error)) not in self._logged:
            self._logged.add((kind, str(error)))
            self._log(f"{kind}: {error}")
        if incident not in self._known_events:
            self._known_events.add(incident)
            self._ledger.record_event(kind, uri=seen.uri, message=str(error))


def _folder(seen: SeenCheckpoint) -> tuple[str, str]:
    return seen.run, _parent(seen.uri)


def _parent(uri: str) -> str:
    return str(epath.Path(uri).parent)


class _OtherTheta(CheckpointGone):
    """Another theta lies at a place than the one that is meant."""


def _given(subject: Subject) -> GivenCheckpoint:
    return GivenCheckpoint(uri=subject.uri, variant=subject.variant, label=subject.label)


def _check_theta(checkpoint: Checkpoint, given: GivenCheckpoint | None) -> None:
    """Raises _OtherTheta if another theta lies at a place than the one that is meant."""
    if given is not None and given.sha256 and given.sha256 != checkpoint.sha256:
        raise _OtherTheta(
            "another theta lies here than the one that was chosen",
            where=given.uri,
            got=checkpoint.sha256[:12],
            expected=given.sha256[:12],
            next_step="the file was overwritten: choose again",
        )


def _exists(uri: str) -> bool:
    """Whether there is something at a place; True if that is not known."""
    try:
        return bool(path_of(uri).exists())
    except (OSError, CheckpointError):
        return True


def _has_changed(uri: str, before: str) -> bool:
    """Whether files have changed since they had a fingerprint; False if they are gone, or had none."""
    try:
        return bool(before) and fingerprint(path_of(uri)) != before.removeprefix(_PASSED_OVER)
    except CheckpointError:
        return False


def _is_text(name: str) -> bool:
    """A name that the system gave and that is no text can neither be stored nor shown."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def skipped_line(uris: Sequence[str]) -> str:
    """Returns one line on checkpoints that are not evaluated, however many; they are in the order of their steps."""
    named = uris[0] if len(uris) == 1 else f"{len(uris)} checkpoints, {uris[0]} to {uris[-1]}"
    return f"skipped: {named} (--checkpoints chose others)"
