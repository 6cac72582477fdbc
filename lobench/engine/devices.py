"""Accelerators of this machine: which there are, without starting jax on them, and what a process gets of them."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["device_environment", "visible_devices"]

_CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
_MEMORY_FRACTION = 0.9  # of a device that several processes share, what they may take together
_QUERY_SECONDS = 20.0


@functools.cache
def visible_devices() -> tuple[str, ...]:
    """Returns the names (for CUDA_VISIBLE_DEVICES) of the devices that jax would use here; none where it would not."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not any(name in platforms for name in ("cuda", "gpu")):
        return ()
    if not any(importlib.util.find_spec(plugin) for plugin in _CUDA_PLUGINS):
        return ()
    return listed_devices(os.environ)


def listed_devices(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Returns what CUDA_VISIBLE_DEVICES lists, or else what the driver does."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        names = [name.strip() for name in listed.split(",")]
        # CUDA stops at the first name that is none.
        end = next((index for index, name in enumerate(names) if name in ("", "-1", "NoDevFiles")), len(names))
        return tuple(names[:end])
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(done.stdout.split())


def device_environment(index: int, num_processes: int, devices: Sequence[str]) -> dict[str, str]:
    """Returns the environment of one of several processes that share the devices out: one each, or a share of one.

    Args:
      index: Of the process, from 0.
      num_processes: How many there are.
      devices: Names; one at least.
    """
    sharing = -(-num_processes // len(devices))
    environment = {"CUDA_VISIBLE_DEVICES": devices[index % len(devices)]}
    if sharing > 1:
        environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY_FRACTION / sharing:.3f}"
    return environment
