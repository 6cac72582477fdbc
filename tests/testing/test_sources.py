"""The directory source keeps the sources' contract, for files written in place and for renamed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lobench.testing.sources import SourceContract


class TestFilesInPlace(SourceContract):
    factory = "lobench.engine.source:DirectorySource"

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
