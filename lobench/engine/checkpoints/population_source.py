"""Population source: many meta-training runs in one folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from etils import epath

from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.wording import cause
from lobench.engine.checkpoints.places import path_of
from lobench.engine.checkpoints.source import DirectorySource
from lobench.hookspecs import SourceContext, Unfinished

__all__ = ["PopulationSource", "RunsSource"]

_MEMBER = re.compile(r"(generation|trial|attempt)_\d+")
_SETTLED_SECONDS = 2.0  # coarser than any file system's clock
_DEEPEST = 4


@dataclass(slots=True)
class _Folder:
    """One folder.

    Attributes:
      inside: Folders to descend into.
      noticed: Its mtime at the last look, and since when it has been this, by a clock that nobody sets.
      looked_at: Its mtime when all in it was found and complete; None while it must be looked into.
      problem: Why it could not be looked into the last time; "" where it could.
    """

    source: DirectorySource
    run: str
    generation: int | None
    inside: list[epath.Path] = field(default_factory=list)
    noticed: tuple[float | None, float] = (None, 0.0)
    looked_at: float | None = None
    problem: str = ""


class PopulationSource:
    """The checkpoints of a folder, and of those below it that are named as a population's: `generation_2/trial_7`.

    The run of a checkpoint is the path between the location and it, without `generation_N` and `attempt_N`; its
    generation is that of its content, else N. A folder in which nothing changes costs one look at its time a poll.

    Attributes:
      poll_seconds: As a folder's.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context, self._root = context, path_of(context.location)
        self._is_local = "://" not in context.location
        root = _Folder(self._source(self._root), "", None)
        self._folders: dict[tuple[str, ...], _Folder] = {(): root}
        self.poll_seconds = root.source.poll_seconds

    def pending(self) -> Mapping[str, Unfinished]:
        """Returns folders that cannot be read, too."""
        found = {path: why for folder in self._folders.values() for path, why in folder.source.pending().items()}
        problems = {parts: folder.problem for parts, folder in self._folders.items() if folder.problem}
        return found | {str(self._root.joinpath(*parts)): Unfinished(reason=why) for parts, why in problems.items()}

    def poll(self) -> Sequence[SeenCheckpoint]:
        visited: set[tuple[str, ...]] = set()
        seen = list(self._visit(self._root, (), visited))
        self._folders = {parts: folder for parts, folder in self._folders.items() if parts in visited}
        return seen

    def _is_folder(self, path: epath.Path) -> bool:
        """Says whether to descend into it."""
        return _MEMBER.fullmatch(path.name) is not None and path.is_dir()

    def _visit(
        self, path: epath.Path, parts: tuple[str, ...], visited: set[tuple[str, ...]]
    ) -> Iterator[SeenCheckpoint]:
        """Yields what is new in a folder, then in those below it: generations and trials in their numbers' order."""
        visited.add(parts)
        folder = self._folders.get(parts)
        if folder is None:
            folder = self._folders[parts] = _Folder(self._source(path), _run_name(parts), _generation(parts))
        changed_at = self._changed_at(path) if parts else None
        if changed_at is None or changed_at != folder.looked_at:
            try:
                seen, folder.problem = folder.source.poll(), ""
            except OSError as error:
                if not parts:
                    raise
                # Gone since its name was read, or not ours to read: other trials' are found all the same.
                folder.source, folder.problem, folder.inside = self._source(path), cause(error), []
                return
            for checkpoint in seen:
                yield dataclasses.replace(checkpoint, run=folder.run, generation=folder.generation)
            folder.inside = self._inside(folder.source) if len(parts) < _DEEPEST else []
            if folder.noticed[0] != changed_at:
                folder.noticed = changed_at, time.monotonic()
            is_settled = changed_at is not None and time.monotonic() - folder.noticed[1] > _SETTLED_SECONDS
            folder.looked_at = changed_at if is_settled and not folder.source.pending() else None
        for child in folder.inside:
            yield from self._visit(child, (*parts, child.name), visited)

    def _source(self, path: epath.Path) -> DirectorySource:
        return DirectorySource(dataclasses.replace(self._context, location=str(path)), self._is_folder)

    def _changed_at(self, path: epath.Path) -> float | None:
        if not self._is_local:
            return None  # folders of a remote store have no times
        try:
            return float(path.stat().mtime)
        except OSError:
            return None

    def _inside(self, source: DirectorySource) -> list[epath.Path]:
        """Returns the folders to descend into."""
        inside = []
        for child in source.inside:
            with contextlib.suppress(OSError):  # the source reports it
                if self._is_folder(child) and not self._leads_up(child):
                    inside.append(child)
        return sorted(inside, key=_number)

    def _leads_up(self, child: epath.Path) -> bool:
        """Says whether it is a link to a folder that it lies in, whose checkpoints would be found again below it."""
        if not self._is_local or not os.path.islink(child):
            return False
        real: str = os.path.realpath(child)
        return str(os.path.commonpath([real, os.path.realpath(child.parent)])) == real


class RunsSource(PopulationSource):
    """The same for folders of any name: each that holds checkpoints is a run, and its path is the run's name."""

    def _is_folder(self, path: epath.Path) -> bool:
        if path.name.startswith((".", "_", "lobench")) or not path.is_dir():
            return False
        readers = [reader for reader in self._context.readers.values() if reader.recognises(path)]
        return not any(reader.is_complete(path) for reader in readers)


def _run_name(parts: tuple[str, ...]) -> str:
    return "/".join(part for part in parts if not part.startswith(("generation_", "attempt_")))


def _generation(parts: tuple[str, ...]) -> int | None:
    numbers = [part.removeprefix("generation_") for part in parts if part.startswith("generation_")]
    return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else None


def _number(path: epath.Path) -> tuple[int, str]:
    found = re.search(r"\d+$", path.name)
    return (int(found[0]) if found else 0, path.name)
