"""Accelerators of this machine: which there are, without starting jax on them, and what a process gets of them."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["DeviceLeases", "device_environment", "listed_devices", "visible_devices"]

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


class DeviceLeases:
    """Who holds which device of this machine, whole ones or shares of one.

    Args:
      devices: Names; where there are none, workers find what they find.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._free = dict.fromkeys(devices, 1.0)
        self._held: dict[int, dict[str, float]] = {}

    def lease(self, worker: int, num_gpus: float) -> dict[str, str]:
        """Returns the environment of a worker that may use so many devices; without one it stays on the CPU.

        Shares go where they fill a device up best. Where none has as much left, the worker gets what the freest has.
        """
        if not self._free:
            return {}
        if num_gpus <= 0:
            return {"JAX_PLATFORMS": "cpu"}
        share = min(num_gpus, 1.0)
        fitting = sorted(self._free, key=lambda name: (self._free[name] < share - 1e-9, abs(self._free[name] - share)))
        names = fitting[: math.ceil(num_gpus)]
        held = self._held[worker] = {name: min(share, self._free[name]) for name in names}
        for name, part in held.items():
            self._free[name] -= part
        environment = {"CUDA_VISIBLE_DEVICES": ",".join(names)}
        if min(held.values()) < 1:
            environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY_FRACTION * min(held.values()):.3f}"
        return environment

    def release(self, worker: int) -> None:
        for name, part in self._held.pop(worker, {}).items():
            self._free[name] += part
