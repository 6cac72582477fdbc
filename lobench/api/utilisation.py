"""Utilisation monitor: use of cores and devices while an evaluation runs."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading

from lobench.core.case import CaseInfo
from lobench.core.subject import Subject
from lobench.core.utilisation import CoreUse, utilisation_line
from lobench.engine.chief.interfaces import ForwardingProgress, WatchProgress
from lobench.hookspecs import EvaluationFinished

__all__ = ["UtilisationProgress"]

_EVERY_SECONDS = 5.0
_ANSWER_SECONDS = 5.0  # timeout of one query
_QUERY = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


class UtilisationProgress(ForwardingProgress):
    """Progress that passes all events on, and adds up the use of cores and devices.

    Args:
      inner: Progress that receives the events.
      devices: Whether to sample the use of this machine's devices from the first case on that uses a device. Set only
        if workers run on this machine.
    """

    def __init__(self, inner: WatchProgress, *, devices: bool) -> None:
        super().__init__(inner)
        self._uses: dict[str, CoreUse] = {}
        self._devices = _Devices() if devices else None

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None:
        if case.num_gpus > 0 and self._devices is not None:
            self._devices.start_sampling()
        self._inner.evaluation_leased(lease, subject, case)

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None:
        # A subject recorded twice was computed once.
        if event.curves is not None and lease is not None:
            self._add(event.case, event.curves.wall_seconds, event.curves.cpu_seconds)
        self._inner.evaluation_finished(event, lease)

    def _add(self, case: CaseInfo, wall_seconds: float, cpu_seconds: float) -> None:
        name = f"{case.suite}/{case.name}"
        earlier_use = self._uses.get(name)
        self._uses[name] = CoreUse(
            case=name,
            num_cpus=case.num_cpus,
            num_gpus=case.num_gpus,
            wall_seconds=wall_seconds + (earlier_use.wall_seconds if earlier_use else 0.0),
            cpu_seconds=cpu_seconds + (earlier_use.cpu_seconds if earlier_use else 0.0),
        )

    def advice(self, *, num_workers: int, num_cores: int) -> str:
        """Returns advice on the number of workers or cores, or "", and ends the sampling."""
        gpu_share = self._devices.close() if self._devices is not None else None
        return utilisation_line(
            list(self._uses.values()), num_workers=num_workers, num_cores=num_cores, gpu_share=gpu_share
        )


class _Devices:
    """Thread that samples the use of devices with nvidia-smi, if it is installed."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._shares: list[float] = []

    def start_sampling(self) -> None:
        if self._thread is None and (program := shutil.which("nvidia-smi")):
            self._thread = threading.Thread(target=self._sample, args=(program,), daemon=True)
            self._thread.start()

    def close(self) -> float | None:
        self._ended.set()
        return statistics.mean(self._shares) if self._shares else None

    def _sample(self, program: str) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            try:
                completed = subprocess.run(
                    [program, *_QUERY], capture_output=True, text=True, check=True, timeout=_ANSWER_SECONDS
                )
                self._shares.append(max(float(line) for line in completed.stdout.split()) / 100)
            except subprocess.TimeoutExpired:
                continue  # the machine was busy with other work
            except (OSError, subprocess.SubprocessError, ValueError):
                return  # nvidia-smi does not work here
