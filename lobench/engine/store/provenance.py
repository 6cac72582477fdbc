"""Provenance of results: host, versions, git revision."""

from __future__ import annotations

import functools
import os
import re
import socket
from pathlib import Path

from lobench.core.result import Provenance
from lobench.engine.config.origin import git_state
from lobench.engine.workers.devices import device_description

__all__ = ["provenance", "versions_here"]

_PACKAGES = ("lobench", "jax", "jaxlib", "optax", "numpy")
_SETTINGS_OF_JAX = {  # settings that change numbers, with jax's defaults
    "JAX_DEBUG_INFS": "0",
    "JAX_DEBUG_NANS": "0",
    "JAX_DEFAULT_MATMUL_PRECISION": "default",
    "JAX_DEFAULT_PRNG_IMPL": "threefry2x32",
    "JAX_DISABLE_JIT": "0",
    "JAX_ENABLE_X64": "0",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    "JAX_RANDOM_SEED_OFFSET": "0",
    "JAX_THREEFRY_PARTITIONABLE": "1",
    "NVIDIA_TF32_OVERRIDE": "",
}
_SWITCHES = {
    **dict.fromkeys(("y", "yes", "t", "true", "on"), "1"),
    **dict.fromkeys(("n", "no", "f", "false", "off"), "0"),
}
_CHANGES_NUMBERS = re.compile(r"--xla_(cpu_(enable_)?fast_math|cpu_fast_math_\w+|allow_excess_precision)")


def versions_here() -> dict[str, str]:
    """Returns the installed versions of packages that affect results, and the environment's settings of jax."""
    versions = dict(_installed_versions())
    if "jax" in versions and (settings := _settings_of_jax()):
        versions["jax"] += f" with {', '.join(settings)}"
    return versions


@functools.cache
def _installed_versions() -> dict[str, str]:
    from importlib import metadata  # slow to import, and not needed for reading a store

    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _settings_of_jax() -> list[str]:
    """Returns environment settings that change numbers, such as `JAX_ENABLE_X64=1`. Does not import jax."""
    settings = []
    for name, default in _SETTINGS_OF_JAX.items():
        text = os.environ.get(name, "").strip().lower()
        value = _SWITCHES.get(text, text)
        if text and value != default:
            settings.append(f"{name}={value}")
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if _CHANGES_NUMBERS.match(flag)]
    return [*settings, *sorted(flags)]


def provenance(*, bindings: str, device: str, folder: Path) -> Provenance:
    """Returns the provenance of a result made in this process.

    Args:
      bindings: Gin bindings of the evaluation.
      device: Device as jax describes it.
      folder: Folder of the suite, whose git state is recorded.
    """
    revision, dirty = git_state(str(folder))
    return Provenance(
        host=socket.gethostname(),
        device=device_description(device),
        versions=versions_here(),
        git_revision=revision,
        git_dirty=dirty,
        bindings=bindings,
        worker=str(os.getpid()),
    )
