"""Provenance of results: host, versions, git revision."""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path

from lobench.core.result import Provenance
from lobench.engine.config.origin import git_state
from lobench.engine.workers.devices import known_device

__all__ = ["provenance", "versions_here"]

_PACKAGES = ("lobench", "jax", "jaxlib", "optax", "numpy")


@functools.cache
def versions_here() -> dict[str, str]:
    """Returns the installed versions of what results hang on."""
    from importlib import metadata  # with a parser of mail, which who reads a store needs not

    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def provenance(*, bindings: str, device: str, folder: Path) -> Provenance:
    """Returns the provenance of a result made in this process; `folder` is the suite's."""
    revision, dirty = git_state(str(folder))
    return Provenance(
        host=socket.gethostname(),
        device=known_device(device),
        versions=versions_here(),
        git_revision=revision,
        git_dirty=dirty,
        bindings=bindings,
        worker=str(os.getpid()),
    )
