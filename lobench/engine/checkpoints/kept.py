"""Thetas of a run that can still be read: from their own place, or from a copy that the store keeps."""

from __future__ import annotations

from pathlib import Path

from lobench.engine.checkpoints.spool import holds_theta

__all__ = ["kept_copies", "kept_copy", "readable_place"]


def kept_copies(store: Path) -> Path:
    """Returns the folder of a store's copies of checkpoints: `HASH/NAME` for each."""
    return store / "alarm" / "kept"


def kept_copy(store: Path, uri: str, sha256: str) -> Path:
    """Returns the place of the copy of a checkpoint, which need not be there."""
    return kept_copies(store) / sha256[:16] / Path(uri).name


def readable_place(store: Path, uri: str, sha256: str) -> str | None:
    """Returns a place at which the theta of a digest can be read now; None if there is none.

    A file at the checkpoint's own place may hold another theta, if a trainer has overwritten it.

    Args:
      store: Of the watch, which may keep a copy.
      uri: The checkpoint's own place.
    """
    places = [uri, str(kept_copy(store, uri, sha256))]
    return next((place for place in places if holds_theta(place, sha256) is not False), None)
