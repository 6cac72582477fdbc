"""Devices of workers: assignment of GPUs, which must precede the start of jax, and descriptions of CPUs."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lobench.core.errors import UsageError

__all__ = [
    "DeviceLeases",
    "cpu_class",
    "device_description",
    "devices_here",
    "equal_shares",
    "instruction_set",
    "set_blas_variables",
]

# Feature levels of x86-64 (System V psABI), highest first. XLA's code for a CPU depends on them.
_LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v2": {"sse4_1", "sse4_2", "ssse3", "popcnt"},
}
_CPU = "cpu: cpu"  # jax's description of any CPU
_USABLE_FRACTION = 0.9  # fraction of a device's memory; the driver and each process's context need the rest


def devices_here(environment: Mapping[str, str], driver: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Returns the devices in CUDA_VISIBLE_DEVICES, or else the numbers of all devices of the driver."""
    visible_devices = environment.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is None:
        return [str(number) for number in range(len(list(driver.glob("*"))))]
    devices: list[str] = []
    for name in (part.strip() for part in visible_devices.split(",")):
        if not name or name == "-1":  # CUDA ignores entries after the first invalid one
            break
        devices.append(name)
    return devices


class DeviceLeases:
    """Shares of devices by worker. On a machine without devices, the environment is not changed.

    Args:
      devices: Names of the devices, as in CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._free_shares = dict.fromkeys(devices, 1.0)
        self._leases: dict[int, dict[str, float]] = {}

    def lease(self, worker: int, num_gpus: float) -> dict[str, str]:
        """Assigns devices to a worker, and returns the environment variables to set for it.

        A share is taken from the fullest device with enough room. If no device has enough room, it is taken from the
        emptiest device, and may be smaller than requested. Whole devices are taken from the emptiest ones.

        Args:
          worker: Number of the worker.
          num_gpus: Share of a device, or number of devices.
        Raises:
          UsageError: The machine has too few devices, or the number is above 1 and not an integer.
        """
        if not num_gpus:
            return {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"} if self._free_shares else {}
        if num_gpus > len(self._free_shares) or (num_gpus > 1 and not float(num_gpus).is_integer()):
            raise UsageError(
                "Case.num_gpus",
                got=f"{num_gpus:g}",
                expected=f"a share of one, or a whole number up to the {len(self._free_shares)} of this machine",
                next_step="--executor ray uses other machines",
            )
        devices_by_load = sorted(self._free_shares, key=lambda device: -self._free_shares[device])
        if num_gpus <= 1:
            fitting_devices = [device for device in devices_by_load if self._free_shares[device] >= num_gpus - 1e-9]
            leased_devices = (
                [min(fitting_devices, key=self._free_shares.__getitem__)] if fitting_devices else devices_by_load[:1]
            )
        else:
            leased_devices = devices_by_load[: int(num_gpus)]
        share = min(num_gpus, 1.0, *(self._free_shares[device] for device in leased_devices))
        self._leases[worker] = dict.fromkeys(leased_devices, share)
        for device in leased_devices:
            self._free_shares[device] -= share
        return _environment(sorted(leased_devices, key=list(self._free_shares).index), share)

    def release(self, worker: int) -> None:
        for device, share in self._leases.pop(worker, {}).items():
            self._free_shares[device] = min(self._free_shares[device] + share, 1.0)


def equal_shares(devices: Sequence[str], count: int) -> list[dict[str, str]]:
    """Returns the environment variables of `count` processes, each with a device or an equal share of a device."""
    if not devices or count < 2:
        return [{}] * count
    num_sharing = [len(range(index % len(devices), count, len(devices))) for index in range(count)]
    return [_environment([devices[index % len(devices)]], 1 / number) for index, number in enumerate(num_sharing)]


def _environment(devices: Sequence[str], share: float) -> dict[str, str]:
    environment = {"CUDA_VISIBLE_DEVICES": ",".join(devices)}
    if share < 1:
        environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_USABLE_FRACTION * share:.3f}"
    return environment


@functools.cache
def instruction_set(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns this machine's instruction set: `x86-64-v3`, for example, or the name of its architecture."""
    machine = platform.machine() or "cpu"
    if machine.lower() not in ("x86_64", "amd64"):
        return machine
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "x86-64"
    flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    required_flags: set[str] = set()
    level_name = "x86-64"
    for level, features in reversed(_LEVELS.items()):
        required_flags |= features
        if not required_flags <= flags:
            break
        level_name = level
    return level_name


def set_blas_variables(num_cpus: int) -> None:
    """Sets OpenBLAS variables that affect the bits of LAPACK's results, unless the user has set them.

    Call it before importing scipy.

    On a CPU, jax computes eigenvectors and QR with scipy. By default, OpenBLAS chooses kernels for the exact processor
    (a Zen and a Xeon with equal instructions differ), and uses as many threads in each worker as the machine has cores.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(num_cpus))
    if instruction_set() in ("x86-64-v3", "x86-64-v4"):
        os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")  # kernels that all these processors can run


def cpu_class() -> str:
    """Returns the instructions that XLA uses here: this machine's instruction set, and XLA's limit if one is set.

    For example `x86-64-v4, at most AVX2` with `XLA_FLAGS=--xla_cpu_max_isa=AVX2`. Such a limit changes bits of results.
    """
    limits = re.findall(r"--xla_cpu_max_isa=(\w+)", os.environ.get("XLA_FLAGS", ""))
    return f"{instruction_set()}, at most {limits[-1]}" if limits else instruction_set()


def device_description(device: str) -> str:
    """Returns jax's description of this process's device. For a CPU, the instruction set is added."""
    return device.replace(_CPU, f"cpu: {cpu_class()}", 1) if device.startswith(_CPU) else device
