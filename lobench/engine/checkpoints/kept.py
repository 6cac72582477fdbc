"""Readable thetas of a run: at a path where the theta was seen, or in a copy that the store keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lobench.engine.checkpoints.spool import holds_theta

__all__ = ["kept_copies_folder", "kept_copy_path", "readable_location"]


def kept_copies_folder(store: Path) -> Path:
    """Returns the folder of a store's copies of checkpoints: `HASH/NAME` for each."""
    return store / "alarm" / "kept"


def kept_copy_path(store: Path, uri: str, sha256: str) -> Path:
    """Returns the path of a store's copy of a checkpoint, which need not exist."""
    return kept_copies_folder(store) / sha256[:16] / Path(uri).name


def readable_location(store: Path, uri: str, sha256: str, *, other_paths: Iterable[str] = ()) -> str | None:
    """Returns a path at which the theta with a hash can be read now, or None.

    The file at the checkpoint's own path may have another theta, if a trainer has overwritten it.

    Args:
      store: Store of the watch, which may have a copy.
      uri: Path or URL of the checkpoint.
      sha256: Hash of the theta.
      other_paths: Other paths at which the theta was seen, such as that of `latest.npz`.
    """
    paths = dict.fromkeys([uri, *other_paths, str(kept_copy_path(store, uri, sha256))])
    return next((path for path in paths if holds_theta(path, sha256) is not False), None)
