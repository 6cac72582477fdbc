"""Data files of the package. Each is checked against `SHA256SUMS` when it is read; NOTICE lists authors and licences.

To add a file, add a line to each of the two: `sha256sum x.npz >> SHA256SUMS`.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
from pathlib import Path

import numpy as np

from lobench.core.errors import ConfigError

__all__ = ["load_arrays", "load_text"]

_FOLDER = Path(__file__).parent


@functools.cache
def load_arrays(name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of `name`.npz, which are cached and read-only.

    Raises:
      ConfigError: The file is missing or differs from the one of the package.
    """
    with np.load(io.BytesIO(_verified_content(f"{name}.npz")), allow_pickle=False) as file:
        arrays = dict(file)
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


@functools.cache
def load_text(name: str) -> bytes:
    """Returns the content of `name`.txt.gz.

    Raises:
      ConfigError: As in `load_arrays`.
    """
    return gzip.decompress(_verified_content(f"{name}.txt.gz"))


def _verified_content(name: str) -> bytes:
    expected = {file: digest for digest, file in map(str.split, (_FOLDER / "SHA256SUMS").read_text().splitlines())}
    path = _FOLDER / name
    content = path.read_bytes() if path.is_file() else None
    got = "no file" if content is None else f"sha256 {hashlib.sha256(content).hexdigest()}"
    if content is None or got != f"sha256 {expected[name]}":
        raise ConfigError(
            "the data are not those that came with lobench",
            where=str(path),
            got=got,
            expected=f"sha256 {expected[name]}",
            next_step="pip install --force-reinstall lobench brings them back",
        )
    return content
