"""The built-in readers keep the readers' contract."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from lobench.testing.readers import ReaderContract


class TestNpz(ReaderContract):
    factory = "lobench.engine.checkpoints.readers:NpzReader"
    missing_dtypes = ("bfloat16",)  # numpy writes it as two bytes without a meaning

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        np.savez(folder / "theta_3.npz", **leaves)  # type: ignore[arg-type]
        return folder / "theta_3.npz"


class TestSafetensors(ReaderContract):
    factory = "lobench.engine.checkpoints.readers:SafetensorsReader"

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        save_file(dict(leaves), folder / "theta_3.safetensors")
        return folder / "theta_3.safetensors"


class TestPickle(ReaderContract):
    factory = "lobench.engine.checkpoints.readers:PickleReader"
    allow_pickle = True
    knows_no_end = True

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        (folder / "theta_3.pkl").write_bytes(pickle.dumps(dict(leaves)))
        return folder / "theta_3.pkl"
