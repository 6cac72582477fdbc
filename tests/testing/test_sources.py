"""The directory source keeps the sources' contract, for files written in place and for renamed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lobench.testing.sources import SourceContract


class TestFilesInPlace(SourceContract):
    factory = "lobench.engine.checkpoints.source:DirectorySource"

    def publish(self, folder: Path, index: int) -> None:
        np.savez(folder / f"theta_{index}.npz", w=np.full(3, index, np.float32))

    def begin(self, folder: Path, index: int) -> None:
        self.publish(folder, index)
        path = folder / f"theta_{index}.npz"
        path.write_bytes(path.read_bytes()[:-30])

    def remove(self, folder: Path, index: int) -> None:
        (folder / f"theta_{index}.npz").unlink()


class TestFilesWithADoneMark(TestFilesInPlace):
    num_polls = 1

    def publish(self, folder: Path, index: int) -> None:
        super().publish(folder, index)
        (folder / f"theta_{index}.npz.done").touch()

    def begin(self, folder: Path, index: int) -> None:
        np.savez(folder / f"theta_{index}.npz", w=np.full(3, index, np.float32))


class TestPopulation(TestFilesInPlace):
    """The declared source of a folder, for the trials of a population below it."""

    factory = "lobench.engine.checkpoints.population_source:PopulationSource"

    def publish(self, folder: Path, index: int) -> None:
        super().publish(self.trial(folder, index), index)

    def begin(self, folder: Path, index: int) -> None:
        path = self.trial(folder, index) / f"theta_{index}.npz"
        np.savez(path, w=np.full(3, index, np.float32))
        path.write_bytes(path.read_bytes()[:-30])

    def remove(self, folder: Path, index: int) -> None:
        super().remove(self.trial(folder, index), index)

    def trial(self, folder: Path, index: int) -> Path:
        trial = folder / f"generation_{index // 2}" / f"trial_{index}"
        trial.mkdir(parents=True, exist_ok=True)
        return trial


class TestPopulationOfOneFolder(TestFilesInPlace):
    factory = "lobench.engine.checkpoints.population_source:PopulationSource"


class TestRuns(TestPopulation):
    factory = "lobench.engine.checkpoints.population_source:RunsSource"
