"""Series of checkpoints: which sightings form one curve over outer steps.

The checkpoints of a folder whose names differ only in numbers are one series. The contents of a file without a step in
its name and content (`latest.npz`) are numbered 0, 1, 2, ... as they arrive. If there are no other checkpoints in the
folder, they are a series with these numbers as steps. Next to `theta_100.npz`, the numbers are not outer steps.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from lobench.core.checkpoint import index_in_name, is_named_by_step
from lobench.core.subject import Subject
from lobench.engine.config.run_configs import is_population_folder

__all__ = [
    "ArrivalNumbers",
    "CheckpointRun",
    "CheckpointSeries",
    "has_step_in_name",
    "names_of_series",
    "numbered_by_arrival",
    "run_of",
    "series_of",
    "watched_folder_of",
]

_NUMBER = re.compile(r"\d+")


class CheckpointSeries(NamedTuple):
    """Checkpoints that form one curve over outer steps.

    Attributes:
      run: Name of the run.
      generation: Generation of the checkpoints.
      names: Path of the files, with a star for each number in the file's name: `today/theta_*.npz`.
      variant: Key of the variant.
    """

    run: str
    generation: int
    names: str
    variant: str

    def is_beside(self, other_series: CheckpointSeries) -> bool:
        """Returns whether both are in the same folder of the same run."""
        folders = self.names.rpartition("/")[0], other_series.names.rpartition("/")[0]
        return folders[0] == folders[1] and other_series._replace(names=self.names) == self


def series_of(subject: Subject) -> CheckpointSeries:
    return CheckpointSeries(subject.run, subject.generation, names_of_series(subject.uri), subject.variant.key)


def names_of_series(uri: str) -> str:
    """Returns the path of the checkpoints of a series, with a star for each number in the name: `today/theta_*.npz`."""
    folder, name = _folder_and_name(uri)
    return f"{folder}{_NUMBER.sub('*', name)}"


def has_step_in_name(uri: str) -> bool:
    """Returns whether the name of a checkpoint contains a step, as `theta_100.npz` and `100` do."""
    return index_in_name(_folder_and_name(uri)[1]) is not None


class CheckpointRun(NamedTuple):
    """Run of checkpoints, in a store that may hold runs of several folders.

    Attributes:
      name: Name of the run, as its source gave it; "" without a name.
      folder: Folder of the run, with a slash at its end. Two runs of a store with the same name have different ones.
      generation: Generation of the checkpoints.
    """

    name: str
    folder: str
    generation: int


@functools.lru_cache(maxsize=16_384)
def run_of(subject: Subject) -> CheckpointRun:
    """Returns the run of a checkpoint.

    The folder of a run with a name is the one of that name above the checkpoint; "" if there is none, and the name
    alone counts. A run without a name has the folder of the checkpoint. If that folder is named by a step
    (`run_1/step_10/theta.npz`), it is the checkpoint's own, and the run has the folder above.
    """
    folder, _ = _folder_and_name(subject.uri)
    if name := subject.run.rpartition("/")[2]:
        start = f"/{folder}".rfind(f"/{name}/")
        folder = folder[: start + len(name) + 1] if start >= 0 else ""
    else:
        outer_folder, folder_name = _folder_and_name(folder)
        folder = outer_folder if is_named_by_step(folder_name) else folder
    return CheckpointRun(subject.run, folder, subject.generation)


@functools.lru_cache(maxsize=16_384)
def watched_folder_of(subject: Subject) -> str:
    """Returns the folder whose checkpoints a watch evaluates with the same bindings.

    It is the run's folder, or the one of its population: `pop/` of `pop/generation_2/trial_7/1.npz`, whose run is
    `trial_7`. "" if the run has a name, and no folder has it.
    """
    run = run_of(subject)
    folder = run.folder
    for _ in filter(None, run.name.split("/")):
        folder, _ = _folder_and_name(folder)
    while is_population_folder(Path(folder)):
        folder, _ = _folder_and_name(folder)
    return folder


class ArrivalNumbers:
    """Finds contents whose outer step is only the number of their arrival, in folders of checkpoints with outer steps.

    Contents that arrived before the first checkpoint with a number in its name are excluded, so that the result for a
    sighting does not depend on later sightings. They come first in any order.

    Attributes:
      positions: Positions of such contents among the sightings added with their positions.
      last_position: Last position that was added; -1 if none was.
    """

    def __init__(self) -> None:
        self.positions = set[int]()
        self.last_position = -1
        self._folders = set[tuple[str, str]]()  # runs and folders with a checkpoint that has a number in its name
        self._steps: dict[tuple[str, str], dict[int, None]] = {}  # steps of a file without a number, by run and path
        self._files_with_steps = set[tuple[str, str]]()  # files without a number whose contents have steps

    def add_new(self, sightings: Mapping[int, Subject]) -> None:
        """Adds sightings by position, in order, and leaves out those that were added before."""
        for position, subject in sightings.items():
            if position > self.last_position:
                self.last_position = position
                if self.add(subject):
                    self.positions.add(position)

    def add(self, subject: Subject) -> bool:
        """Adds the next sighting, and returns whether its outer step is only the number of its arrival."""
        if not subject.has_theta:
            return False
        folder = (subject.run, _folder_and_name(subject.uri)[0])
        file = (subject.run, subject.uri)
        if has_step_in_name(subject.uri):
            self._folders.add(folder)
            return False
        steps = self._steps.setdefault(file, {})
        if subject.outer_step not in steps and subject.outer_step != len(steps):
            self._files_with_steps.add(file)
        steps[subject.outer_step] = None
        return folder in self._folders and file not in self._files_with_steps


def numbered_by_arrival(sightings: Mapping[int, Subject]) -> frozenset[int]:
    """Returns the positions of sightings whose outer steps are only numbers of arrival; see `ArrivalNumbers`."""
    arrival_numbers = ArrivalNumbers()
    arrival_numbers.add_new(dict(sorted(sightings.items())))
    return frozenset(arrival_numbers.positions)


@functools.lru_cache(maxsize=16_384)  # a viewer asks for all checkpoints of a large store each time that it grows
def _folder_and_name(uri: str) -> tuple[str, str]:
    """Returns the folder of a checkpoint, with a slash at its end, and its name."""
    folder, slash, name = uri.rstrip("/").rpartition("/")
    return f"{folder}{slash}", name
