"""flax's and orbax's readers keep the readers' contract."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp

from lobench.testing.readers import ReaderContract
from lobench.testing.sources import SourceContract


def nested(leaves: Mapping[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *folders, name = path.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = leaf
    return tree


class TestMsgpack(ReaderContract):
    factory = "lobench_flax.msgpack_reader:MsgpackReader"

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        (folder / "theta_3.msgpack").write_bytes(flax.serialization.to_bytes(nested(leaves)))
        return folder / "theta_3.msgpack"


class TestOrbax(ReaderContract):
    factory = "lobench_flax.orbax_reader:OrbaxReader"
    test_a_git_lfs_pointer_is_named_as_that = None  # a pointer stands for a file, and the format is a directory
    test_an_empty_theta_is_an_error = None  # orbax writes none

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(folder / "3", nested(leaves))
        checkpointer.wait_until_finished()
        return folder / "3"


class TestDirectoryOfOrbax(SourceContract):
    factory = "lobench.engine.checkpoints.source:DirectorySource"
    num_polls = 1  # a directory is renamed into place

    def publish(self, folder: Path, index: int) -> None:
        self.remove(folder, index)
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(folder / str(index), {"w": np.full(3, index, np.float32)})
        checkpointer.wait_until_finished()

    def begin(self, folder: Path, index: int) -> None:
        """A directory with its metadata and without its commit, as on a store that cannot rename."""
        self.publish(folder, index)
        (folder / str(index) / "commit_success.txt").unlink(missing_ok=True)  # orbax writes it since 0.12
        (folder / str(index) / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1}')

    def remove(self, folder: Path, index: int) -> None:
        shutil.rmtree(folder / str(index), ignore_errors=True)
