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
from lobench.engine.checkpoints.places import checkpoint_path
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.config.run_configs import is_population_folder
from lobench.hookspecs import SourceContext, Unfinished

__all__ = ["PopulationSource", "RunsSource", "runs_below"]

_SETTLED_SECONDS = 2.0  # coarser than any file system's clock
_MAX_DEPTH = 4


@dataclass(slots=True)
class _Folder:
    """State of a folder of a population between polls.

    Attributes:
      source: Source of the folder's checkpoints.
      run: Name of the run.
      generation: Generation of the population; None if unknown.
      nested_folders: Folders to descend into.
      last_mtime: mtime of the folder at the last poll, and the monotonic time when this was noticed.
      polled_mtime: mtime of the folder when all its checkpoints were found and complete. None: it must be read again.
      problem: Reason why the folder could not be read at the last poll; "" if it could.
    """

    source: DirectorySource
    run: str
    generation: int | None
    nested_folders: list[epath.Path] = field(default_factory=list)
    last_mtime: tuple[float | None, float] = (None, 0.0)
    polled_mtime: float | None = None
    problem: str = ""


class PopulationSource:
    """Finds checkpoints in a folder, and in folders below it that are named as in populations: `generation_2/trial_7`.

    The run of a checkpoint is the path between the location and the checkpoint, without `generation_N` and `attempt_N`.
    Its generation is that of its content, or else N. An unchanged folder costs one query of its mtime per poll.

    Args:
      context: Location and readers.
    Attributes:
      root: Path of the location.
      poll_seconds: Seconds between polls, as in `DirectorySource`.
    """

    def __init__(self, context: SourceContext) -> None:
        self._context, self.root = context, checkpoint_path(context.location)
        self._is_local = "://" not in context.location
        root = _Folder(self._make_source(self.root), "", None)
        self._folders: dict[tuple[str, ...], _Folder] = {(): root}
        self.poll_seconds = root.source.poll_seconds

    def pending(self) -> Mapping[str, Unfinished]:
        """Returns incomplete checkpoints, and folders that cannot be read, with the reasons."""
        unfinished = {
            path: checkpoint
            for folder in self._folders.values()
            for path, checkpoint in folder.source.pending().items()
        }
        problems = {subfolders: folder.problem for subfolders, folder in self._folders.items() if folder.problem}
        return unfinished | {
            str(self.root.joinpath(*subfolders)): Unfinished(reason=problem) for subfolders, problem in problems.items()
        }

    def poll(self) -> Sequence[SeenCheckpoint]:
        visited_folders: set[tuple[str, ...]] = set()
        checkpoints = list(self._visit(self.root, (), visited_folders))
        self._folders = {
            subfolders: folder for subfolders, folder in self._folders.items() if subfolders in visited_folders
        }
        return checkpoints

    def _is_folder(self, path: epath.Path) -> bool:
        """Returns whether to descend into a folder."""
        return is_population_folder(path) and path.is_dir()

    def _visit(
        self, path: epath.Path, subfolders: tuple[str, ...], visited_folders: set[tuple[str, ...]]
    ) -> Iterator[SeenCheckpoint]:
        """Yields the new checkpoints in a folder, then those in its subfolders, in the order of their numbers."""
        visited_folders.add(subfolders)
        folder = self._folders.get(subfolders)
        if folder is None:
            folder = self._folders[subfolders] = _Folder(
                self._make_source(path), _run_name(subfolders), _generation(subfolders)
            )
        changed_at = self._folder_mtime(path) if subfolders else None
        if changed_at is None or changed_at != folder.polled_mtime:
            try:
                checkpoints = folder.source.poll()
                folder.problem = ""
            except OSError as error:
                if not subfolders:
                    raise
                # The folder was removed, or is not readable. Other folders are still searched.
                folder.source, folder.problem, folder.nested_folders = self._make_source(path), cause(error), []
                return
            for checkpoint in checkpoints:
                yield dataclasses.replace(checkpoint, run=folder.run, generation=folder.generation)
            folder.nested_folders = self._nested_folders(folder.source) if len(subfolders) < _MAX_DEPTH else []
            if folder.last_mtime[0] != changed_at:
                folder.last_mtime = changed_at, time.monotonic()
            is_settled = changed_at is not None and time.monotonic() - folder.last_mtime[1] > _SETTLED_SECONDS
            folder.polled_mtime = changed_at if is_settled and not folder.source.pending() else None
        for child in folder.nested_folders:
            yield from self._visit(child, (*subfolders, child.name), visited_folders)

    def _make_source(self, path: epath.Path) -> DirectorySource:
        return DirectorySource(dataclasses.replace(self._context, location=str(path)), self._is_folder)

    def _folder_mtime(self, path: epath.Path) -> float | None:
        if not self._is_local:
            return None  # folders of a remote store have no times
        try:
            return float(path.stat().mtime)
        except OSError:
            return None

    def _nested_folders(self, source: DirectorySource) -> list[epath.Path]:
        folders = []
        for child in source.listed_paths:
            with contextlib.suppress(OSError):  # the source reports it
                if self._is_folder(child) and not self._is_link_to_ancestor(child):
                    folders.append(child)
        return sorted(folders, key=_sort_key)

    def _is_link_to_ancestor(self, child: epath.Path) -> bool:
        """Returns whether a folder is a link to a folder above it. Its checkpoints would be found twice."""
        if not self._is_local or not os.path.islink(child):
            return False
        real_path: str = os.path.realpath(child)
        return str(os.path.commonpath([real_path, os.path.realpath(child.parent)])) == real_path


class RunsSource(PopulationSource):
    """Like `PopulationSource`, but folders may have any name.

    Each folder with checkpoints is a run, named by its path.
    """

    def _is_folder(self, path: epath.Path) -> bool:
        if path.name.startswith((".", "_", "lobench")) or not path.is_dir():
            return False
        readers = [reader for reader in self._context.readers.values() if reader.recognises(path)]
        return not any(reader.is_complete(path) for reader in readers)


def runs_below(context: SourceContext) -> list[str]:
    """Returns the names of the runs in the folders below a location; [] if the location has checkpoints of its own."""
    source = RunsSource(context)
    try:
        checkpoints = source.poll()
    except OSError:
        return []
    root = source.root
    unfinished = [epath.Path(path).parent for path in source.pending()]
    runs = {checkpoint.run for checkpoint in checkpoints} | {
        str(folder.relative_to(root)) for folder in unfinished if folder.is_relative_to(root)
    }
    return [] if runs & {"", "."} else sorted(runs)


def _run_name(subfolders: tuple[str, ...]) -> str:
    return "/".join(subfolder for subfolder in subfolders if not subfolder.startswith(("generation_", "attempt_")))


def _generation(subfolders: tuple[str, ...]) -> int | None:
    generations = [
        subfolder.removeprefix("generation_") for subfolder in subfolders if subfolder.startswith("generation_")
    ]
    return int(generations[-1]) if generations and generations[-1].isdecimal() else None


def _sort_key(path: epath.Path) -> tuple[int, str]:
    match = re.search(r"\d+$", path.name)
    return (int(match[0]) if match else 0, path.name)
