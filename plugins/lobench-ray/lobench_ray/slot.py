"""Actor of one slot on a node. It runs one of lobench's warm workers and passes on its messages.

The worker is a process below the actor, as on a single machine, so that it computes the same bits. The actor survives
and reports a case that kills the process or hangs outside Python.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import ray

from lobench import LobenchError
from lobench.extend import LocalPool, Parcel, WorkerConfig, headline, kind_of, marked_folder, write_whole
from lobench.hookspecs import ExecutorEvent, WorkerExited, WorkerMessage
from lobench_ray.messages import ClusterRefused, Log, WorkerPlan

__all__ = ["Slot", "node_folder", "versions"]

_PACKAGES = ("lobench", "lobench-ray", "jax", "jaxlib", "optax")  # packages that affect results
_LOG_BYTES = 65536
_KEEP_SECONDS = 86400.0  # lifetime of unused thetas, suites and logs

_MARK_SECONDS = 60.0


def versions() -> dict[str, str]:
    """Returns the versions of the packages that affect results."""
    return {package: metadata.version(package) for package in _PACKAGES}


def node_folder() -> Path:
    """Returns the user's folder on this node for received files and compiled programs.

    Raises:
      LobenchError: The folder belongs to another user.
    """
    folder = Path(tempfile.gettempdir()) / f"lobench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise LobenchError(
            "other users own or can open the node's folder", where=str(folder), next_step="remove it, or set TMPDIR"
        )
    return folder


class Slot:
    """A slot with one worker. Call `start` first, then `send` and `receive`, which may overlap."""

    def __init__(self) -> None:
        self._outgoing: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._worker = 0
        self._pool: LocalPool | None = None
        self._log = Path()
        self._used_folders: tuple[Path, ...] = ()  # folders that must stay while the worker lives

    def start(
        self,
        *,
        worker: int,
        num_cpus: int,
        num_gpus: float,
        expected: Mapping[str, str],
        plan: bytes,
        suite_archive: Sequence[ray.ObjectRef[bytes]],
    ) -> str:
        """Starts the worker.

        Args:
          worker: Number of the worker.
          num_cpus, num_gpus: Cores and devices of the worker.
          expected: `versions()` of the chief.
          plan: An encoded `WorkerPlan`.
          suite_archive: Reference to the archive of the suites, which is fetched only if this node lacks it.
        Returns:
          "", or the reason why results of this node would differ from those of the chief, as a clause.
        """
        versions_here = versions()
        if versions_here != expected:
            differing_versions = [
                f"{name} {versions_here[name]} for {expected[name]}"
                for name in expected
                if versions_here[name] != expected[name]
            ]
            return f"would give other numbers: it has {', '.join(differing_versions)}"
        root = node_folder()
        _remove_unused(root)
        worker_plan = WorkerPlan.from_bytes(plan)
        suites = root / "suites" / worker_plan.sha256
        _mark_used(suites)
        if not suites.is_dir():
            Parcel.unpack(ray.get(suite_archive[0]), suites)
        log_folder = root / "logs" / uuid.uuid4().hex
        config = WorkerConfig(
            arguments=tuple(str(suites / name) for name in worker_plan.suites),
            layers=worker_plan.layers.relocated(suites),
            serve=worker_plan.serve,
            log_folder=log_folder,
            compilation_cache=root / "xla_cache",
            file_folder=root / "theta",
            state_folder=marked_folder(worker_plan.state_folder_token),
            working_folder=worker_plan.working_folder,
            with_tests=worker_plan.with_tests,
        )
        self._worker = worker
        self._log = log_folder / f"worker-{worker}.log"
        self._used_folders = (suites, log_folder)
        # Ray kills the children of an actor with it: the keeper that ends the worker's processes is not a child.
        self._pool = LocalPool(config, has_detached_keeper=True)
        worker_started = threading.Event()
        # The thread that starts the worker must stay alive, because the worker dies with it.
        threading.Thread(
            target=self._relay_events, args=(self._pool, num_cpus, num_gpus, worker_started), daemon=True
        ).start()
        worker_started.wait()
        return ""

    def _relay_events(self, pool: LocalPool, num_cpus: int, num_gpus: float, worker_started: threading.Event) -> None:
        """Starts the worker and passes on its events until it has exited.

        The worker dies with this thread, so each error that ends the thread is reported as the worker's exit.
        """
        try:
            self._start_and_relay(pool, num_cpus, num_gpus, worker_started)
        except Exception as error:  # noqa: BLE001  (the slot lives on: without a report the chief would wait for ever)
            self._outgoing.put(WorkerExited(worker=self._worker, message=headline(error)).to_bytes())
        finally:
            worker_started.set()

    def _start_and_relay(
        self, pool: LocalPool, num_cpus: int, num_gpus: float, worker_started: threading.Event
    ) -> None:
        try:
            # The actor only sees devices that Ray has leased to it.
            pool.start(self._worker, num_cpus, num_gpus)
        except LobenchError as error:
            self._outgoing.put(ClusterRefused(message=str(error)).to_bytes())
            return
        worker_started.set()
        while True:
            events = pool.wait(_MARK_SECONDS)
            _mark_used(*self._used_folders)
            for event in events:
                if _sends_log(event):
                    self._outgoing.put(Log(worker=self._worker, tail=self._log_tail()).to_bytes())
                self._outgoing.put(event.to_bytes())
                if isinstance(event, WorkerExited):
                    return

    def _log_tail(self) -> bytes:
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._log.stat().st_size - _LOG_BYTES, 0))
                return file.read()
        except OSError:
            return b""

    def send(self, message: bytes, names: Sequence[str], files: Sequence[ray.ObjectRef[bytes]]) -> None:
        """Passes a message on to the worker. Fetches the files that it mentions if this node lacks them."""
        assert self._pool is not None
        for name, file in zip(names, files, strict=True):
            path = node_folder() / "theta" / name
            if not path.is_file():
                write_whole(path, ray.get(file))
            os.utime(path)
        self._pool.send(self._worker, message)

    def receive(self, seconds: float, progress_seconds: float) -> list[bytes]:
        """Returns messages of the worker, after at most `seconds`. An empty list shows that the slot is alive.

        Progress messages alone are delayed by `progress_seconds`, and only the last one is returned.
        """
        deadline = time.monotonic() + seconds
        progress: list[bytes] = []
        messages: list[bytes] = []
        with contextlib.suppress(queue.Empty):
            while not messages:
                message = self._outgoing.get(timeout=max(deadline - time.monotonic(), 0.0))
                if not _is_progress(message):
                    messages.append(message)
                    continue
                if not progress:
                    deadline = min(deadline, time.monotonic() + progress_seconds)
                progress = [message]
            while True:
                messages.append(self._outgoing.get_nowait())
        return [*progress, *messages]


def _sends_log(event: ExecutorEvent) -> bool:
    """Returns whether to send the worker's log after an event."""
    return isinstance(event, WorkerExited) or (isinstance(event, WorkerMessage) and kind_of(event.message) == "failed")


def _is_progress(message: bytes) -> bool:
    """Returns whether a message reports a worker's progress, so that a later report replaces it."""
    return (
        kind_of(message) == WorkerMessage.kind_name()
        and kind_of(WorkerMessage.from_bytes(message).message) == "progress"
    )


def _mark_used(*folders: Path) -> None:
    """Marks folders as used, so that they are not removed for a day."""
    for folder in folders:
        with contextlib.suppress(OSError):  # the folder may be missing, or the disk full
            os.utime(folder)


def _remove_unused(root: Path) -> None:
    """Removes thetas, suites and logs that were unused for a day. Keeps compiled programs."""
    now = time.time()
    for entry in [*root.glob("theta/*"), *root.glob("suites/*"), *root.glob("logs/*")]:
        try:
            if now - entry.stat().st_mtime <= _KEEP_SECONDS:
                continue
            if entry.is_dir():
                # Renamed first, because an existing suite counts as complete.
                shutil.rmtree(entry.rename(entry.with_name(f"tmp-{uuid.uuid4().hex}")))
            else:
                entry.unlink()
        except OSError:
            continue  # another slot of this node was first
