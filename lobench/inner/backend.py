"""jax backend of this process: threads, compilations, devices.

On a CPU the bits of a result depend on the number of threads, which only NPROC in the environment can set, and only
before jax's backend exists. A process with a different backend must evaluate in another process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import platform
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
from jax._src import config as jax_config  # settings of this thread
from jax._src import xla_bridge  # whether a backend exists, without creating one
from jax.experimental.compilation_cache import compilation_cache

from lobench.inner.backend_guard import backend_maker

__all__ = [
    "CompilationCounter",
    "claim_backend",
    "compiler_options",
    "device_description",
    "device_peak_bytes",
    "foreign_backend_maker",
    "machine_class",
    "programs_kept_in",
    "settings_of_jax",
]

_claimed_threads: int | None = None

# XLA tunes code for the model of the processor, and results of two models with one instruction set differed in last
# bits. With this limit all processors of x86-64-v4 get the code of the first such model ("skylake-avx512"). Older
# processors are not affected, and no lower limit would give two of them the same target.
_COMMON_TARGET = {"xla_cpu_max_isa": "AVX512"}
_has_common_target = False


def claim_backend(num_cpus: int) -> bool:
    """Creates jax's backend with `num_cpus` threads unless it exists.

    Returns whether this process computes with them.

    A backend created by other code is accepted if it has NPROC=1 and one thread is requested, because the bits are then
    the same. For several threads, this function creates several devices of jax, which other code does not. Results on
    devices other than CPUs do not depend on threads.
    """
    global _claimed_threads, _has_common_target
    if xla_bridge.backends_are_initialized():
        if jax.default_backend() != "cpu":
            return True
        maker = backend_maker()
        if _claimed_threads is None and num_cpus == 1 and maker is not None and maker.nproc == "1":
            _claimed_threads = 1
        return _claimed_threads == num_cpus
    if num_cpus > 1:
        jax.config.update("jax_num_cpu_devices", num_cpus)  # type: ignore[no-untyped-call]
    given_flags, (option, option_value) = os.environ.get("XLA_FLAGS", ""), next(iter(_COMMON_TARGET.items()))
    _has_common_target = platform.machine().lower() in ("x86_64", "amd64") and option not in given_flags
    flags = f"{given_flags} --{option}={option_value}".lstrip() if _has_common_target else given_flags
    with _set_environment(NPROC=str(num_cpus), XLA_FLAGS=flags):
        jax.devices()
    _claimed_threads = num_cpus
    return True


@contextlib.contextmanager
def _set_environment(**values: str) -> Iterator[None]:
    earlier_values = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in earlier_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def foreign_backend_maker() -> str:
    """Returns a description of the code that created this process's backend; "" for `claim_backend`."""
    if _claimed_threads is not None or not xla_bridge.backends_are_initialized():
        return ""
    maker = backend_maker()
    if maker is not None:
        return maker.where
    # The backend was created before the watch began. Modules that hold arrays are the likely cause.
    earlier_modules = itertools.takewhile(
        lambda module_item: module_item[0] != backend_maker.__module__, list(sys.modules.items())
    )
    modules_with_arrays = [
        name
        for name, module in earlier_modules
        if name.partition(".")[0] != "jax"
        and any(isinstance(value, jax.Array) for value in list(vars(module).values()))
    ]
    return (
        f"a module that was imported before lobench ({', '.join(modules_with_arrays[:3]) or 'a plugin of pytest, log'})"
    )


def compiler_options() -> dict[str, Any]:
    """Returns the options of XLA that the inner program is compiled with.

    On a CPU this is LLVM's optimization level 1, unless XLA_FLAGS sets another one. A step consists of about a hundred
    short kernels. Higher levels unroll them until they no longer fit into the instruction cache together, and take half
    as long again to compile.

    >>> isinstance(compiler_options(), dict)
    True
    """
    if jax.default_backend() != "cpu":
        return {}
    # The backend already has this limit. It is repeated here to separate programs in jax's cache from those without it.
    level = "xla_backend_optimization_level"
    level_options = {} if level in os.environ.get("XLA_FLAGS", "") else {level: 1}
    return level_options | (_COMMON_TARGET if _has_common_target else {})


@contextlib.contextmanager
def programs_kept_in(folder: Path) -> Iterator[None]:
    """Makes jax store compiled programs in a folder, and load them from there, while the body runs.

    Nothing changes if the user has set jax's cache folder, or if the folder cannot be created.
    """
    names = ("compilation_cache_dir", "persistent_cache_min_compile_time_secs", "persistent_cache_min_entry_size_bytes")
    earlier_settings = {f"jax_{name}": getattr(jax.config, f"jax_{name}") for name in names}
    if earlier_settings["jax_compilation_cache_dir"] or not _make_folder(folder):
        yield
        return
    try:
        _apply_settings(dict(zip(earlier_settings, (str(folder), 0.0, -1), strict=True)))
        yield
    finally:
        _apply_settings(earlier_settings)


def _make_folder(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return True
    return False


def _apply_settings(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # jax reads the settings only once


def settings_of_jax() -> list[str]:
    """Returns the settings of jax in this thread, except those of its cache, and the devices."""
    values: Mapping[str, Any] = jax.config.values
    ignored_prefixes = (
        "jax_compilation_cache",
        "jax_persistent_cache",
        "jax_enable_compilation_cache",
        "jax_logging_level",
    )
    settings = [f"{name}={value!r}" for name, value in sorted(values.items()) if not name.startswith(ignored_prefixes)]
    context = [repr(value) for value in jax_config.trace_context() if type(value).__module__ == "builtins"]
    devices = [f"{device.platform} {device.device_kind} {device.id}" for device in jax.devices()]
    return [*settings, *context, *devices]


def device_description() -> str:
    """Returns platform and kind of the first device, with the number of threads on a CPU.

    >>> device_description().startswith("cpu")
    True
    """
    device = jax.devices()[0]
    threads = f" x {_claimed_threads}" if device.platform == "cpu" and _claimed_threads else ""
    return f"{device.platform}: {device.device_kind}{threads}"


def machine_class(num_devices: int) -> str:
    """Returns the class of machines whose times are comparable: processor model with threads, or kind of device."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return f"{_processor()} x {_claimed_threads or os.cpu_count() or 1}"
    return f"{device.device_kind} x {num_devices}"


@functools.cache
def _processor() -> str:
    """Returns the processor's model with its family and model numbers.

    Virtual machines give different processors the same name, so the numbers are needed too.
    """
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    model_numbers = "-".join(fields[name] for name in ("cpu family", "model") if name in fields)
    name = fields.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({model_numbers})" if model_numbers else name


def device_peak_bytes() -> int | None:
    """Returns the peak memory of this process's devices in bytes; None if the backend does not report it."""
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in jax.local_devices()]
    return max((peak for peak in peaks if peak is not None), default=None)


class CompilationCounter:
    """Counts programs that XLA compiled for this thread: compilations minus hits of the persistent cache."""

    def __init__(self) -> None:
        self._thread_counts = threading.local()  # jax reports in the thread that requested a program
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    @property
    def count(self) -> int:
        return getattr(self._thread_counts, "count", 0)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self._thread_counts.count = self.count + 1

    def _on_event(self, event: str, **_: Any) -> None:
        if event == "/jax/compilation_cache/cache_hits":
            self._thread_counts.count = self.count - 1
