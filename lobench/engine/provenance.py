"""Where results come from: host, versions, git revision."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from lobench.core.result import Provenance

__all__ = ["provenance"]

_PACKAGES = ("lobench", "jax", "jaxlib", "optax", "numpy")


@functools.cache
def _git(folder: str) -> tuple[str, bool]:
    """Returns the revision of the checkout that the folder is in, and whether tracked files differ from it."""
    try:
        revision = _run_git(folder, "rev-parse", "HEAD")
        return revision, bool(_run_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "", False


def _run_git(folder: str, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


@functools.cache
def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def provenance(*, bindings: str, device: str, folder: Path) -> Provenance:
    """Returns the provenance of a result made in this process; `folder` is the suite's."""
    revision, dirty = _git(str(folder))
    return Provenance(
        host=socket.gethostname(),
        device=device,
        versions=_versions(),
        git_revision=revision,
        git_dirty=dirty,
        bindings=bindings,
        worker=str(os.getpid()),
    )
