"""Decision log of the chief: one file per run in the store's folder `decisions/`, with a limit on their total size.

Only `lobench doctor --replay` reads it. If it cannot be written, the run continues without it.
"""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.planner.log import LoggedStep, PlannerStart, read_start, read_step
from lobench.core.wording import cause
from lobench.engine.group_files import open_to_group

__all__ = ["DecisionLog", "log_files", "read_decisions"]

_MAX_BYTES = 16 << 20  # limit of all logs together
_MAX_START_BYTES = 4 << 20  # limit of one start's log, which ends there
_WRITE_SECONDS = 1.0
_GZIP_WBITS = 31  # zlib's name for its own format with gzip's header
_FULL_LINE = "full"


class DecisionLog:
    """Writes the log of one run, compressed, once a second. A kill loses the events of the last second.

    Args:
      store: Folder of the store.
      start: Arguments of the planner.
      take: Returns the steps since its last call.
      log: Called once with a message if the log cannot be written.
      max_bytes: Largest total size of all logs. The oldest are removed first.
      max_start_bytes: Size at which this run's log ends.
    """

    def __init__(
        self,
        store: Path,
        start: PlannerStart,
        take: Callable[[], Iterable[LoggedStep]],
        *,
        log: Callable[[str], None],
        max_bytes: int = _MAX_BYTES,
        max_start_bytes: int = _MAX_START_BYTES,
    ) -> None:
        self._folder = store / "decisions"
        self._start = start
        self._take_steps = take
        self._log = log
        self._max_bytes = max_bytes
        self._max_start_bytes = max_start_bytes
        self._path: Path | None = None
        self._packer = zlib.compressobj(level=1, wbits=_GZIP_WBITS)
        self._num_bytes = 0
        self._has_stopped = False
        self._next_write = -math.inf

    def write(self, *, is_last: bool = False) -> None:
        """Writes the steps since the last call, at most once a second unless `is_last`."""
        now = time.monotonic()
        if now < self._next_write and not is_last:
            return
        self._next_write = now + _WRITE_SECONDS
        lines = [step.to_line() for step in self._take_steps()]
        if self._has_stopped or not lines:
            return
        try:
            self._append(lines)
        except OSError as error:
            self._has_stopped = True
            self._log(f"decisions are not logged any more: {self._folder}: {cause(error)}")

    def _append(self, lines: list[str]) -> None:
        if self._path is None:
            self._path = self._start_log()
            lines = [self._start.to_line(), *lines]
        if self._num_bytes > self._max_start_bytes:
            lines, self._has_stopped = [f'"{_FULL_LINE}"'], True
        text = "".join(f"{line}\n" for line in lines).encode()
        data = self._packer.compress(text) + self._packer.flush(zlib.Z_SYNC_FLUSH)
        with self._path.open("ab") as file:
            if not self._num_bytes:
                open_to_group(self._path)
            file.write(data)
        self._num_bytes += len(data)

    def _start_log(self) -> Path:
        """Removes old logs to make room, and returns the path of this run's log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        starts = log_files(self._folder.parent)
        number = max(starts, default=0) + 1
        free_bytes = self._max_bytes - self._max_start_bytes
        for old_number in sorted(starts, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                free_bytes -= starts[old_number].stat().st_size
                if free_bytes < 0:
                    starts[old_number].unlink()
        return self._folder / f"{number:06d}.jsonl.gz"


def log_files(store: Path) -> dict[int, Path]:
    """Returns the logs of a store by the number of their start."""
    paths = (store / "decisions").glob("*.jsonl.gz")
    return {int(name): path for path in paths if (name := path.name.partition(".")[0]).isdecimal()}


def read_decisions(path: Path) -> tuple[PlannerStart, Iterator[LoggedStep]]:
    """Reads the log of one start. If its writer was killed, it ends with the last complete step.

    Raises:
      StoreError: The file is not a log, or is damaged. Also raised while the steps are iterated.
    """
    try:
        lines = zlib.decompressobj(wbits=_GZIP_WBITS).decompress(path.read_bytes()).decode().split("\n")[:-1]
        if not lines:
            raise ValueError("it is empty")
        return read_start(lines[0]), _read_steps(path, lines[1:])
    except (OSError, ValueError, zlib.error) as error:
        raise _damaged_error(path, error) from error


def _read_steps(path: Path, lines: list[str]) -> Iterator[LoggedStep]:
    for line in lines:
        if line == f'"{_FULL_LINE}"':
            return
        try:
            yield read_step(line)
        except ValueError as error:
            raise _damaged_error(path, error) from error


def _damaged_error(path: Path, error: Exception) -> StoreError:
    return StoreError("a log of decisions cannot be read", where=str(path), got=str(error))
