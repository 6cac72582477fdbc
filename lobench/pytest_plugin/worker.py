"""A warm worker: a pytest session of its own whose run loop takes jobs from the chief.

Started as `python -m lobench.pytest_plugin.worker FD` with one end of a socket pair. It collects the suites once, tells
the chief its cases, and then runs items again and again: compiled programs, imports and session fixtures stay.
It dies with its chief: a thread reads the pipe, and the pipe's end ends the process, in the middle of a job too.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import io
import os
import queue
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import LobenchError
from lobench.core.headline import headline
from lobench.core.result import Outcome
from lobench.engine.config.layers import Layers
from lobench.engine.workers.child_python import current_folder_last
from lobench.engine.workers.protocol import Job, decode, encode, record_of
from lobench.pytest_plugin import case_of
from lobench.pytest_plugin.finished import CURRENT_JOB, LAYERS, ON_PROGRESS, Finished

__all__ = ["main", "serve"]

_PR_SET_PDEATHSIG = 1
# A test session of the user's must not run inside a worker: no parallel workers of its own, no reruns, no cache.
_LAST_ARGUMENTS = ("-n0", "-p", "no:rerunfailures", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:timeout")


class _Idle(pytest.Item):
    """A `nextitem` at the level of the session: pytest tears down everything but session fixtures between jobs."""

    def runtest(self) -> None:
        raise AssertionError("the idle item is never run")


class _Stop(BaseException):
    """Ends the loop."""


class Loop:
    """The pytest plugin that replaces the run loop."""

    def __init__(self, connection: Connection, layers: Layers, *, exit_at_eof: bool) -> None:
        self._connection = connection
        self._layers = layers
        self._jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._exit_at_eof = exit_at_eof
        self._errors: list[str] = []
        self._reports: list[pytest.TestReport] = []
        self._lease = 0
        self._items: dict[str, pytest.Item] = {}
        self._prepare_item: Callable[..., bool] = lambda *_: False
        self._sending = threading.Lock()
        self.is_ready = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[LAYERS] = self._layers
        config.stash[ON_PROGRESS] = self._progress

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            # After an endless recursion pytest says last that it was one, and before that what and where.
            text = [line for line in report.longreprtext.strip().splitlines() if not line.startswith("!!!")]
            self._errors.append(f"{report.nodeid}: {text[-1] if text else 'collection failed'}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # Not before: what these import makes jax read its settings, which a conftest.py may have set.
        from lobench.pytest_plugin.evaluate import prepare
        from lobench.pytest_plugin.items import case_info

        self._prepare_item = prepare
        infos: list[CaseInfo] = []
        for item in session.items:
            if case_of(item) is None:
                continue  # an ordinary test
            try:
                info = case_info(item)
            except LobenchError as error:
                self._errors.append(str(error))
                continue
            if info.key not in self._items:
                self._items[info.key] = item
                infos.append(info)
            elif (other := self._items[info.key].nodeid) != item.nodeid:
                self._errors.append(f"two tests of one name evaluate one case: {other} and {item.nodeid}; rename one")
        if self._errors or not infos:
            self._send(
                "failed",
                messages=list(dict.fromkeys(self._errors))
                or ["the suite holds no case; `lobench list suites` shows some"],
            )
            return True
        self.is_ready = True
        self._send("ready", cases=[record_of(info) for info in _unique_names(infos)])
        threading.Thread(target=self._read, daemon=True).start()
        idle = _Idle.from_parent(session, name="idle")
        while (request := self._jobs.get()) is not None:
            self._run(request, idle)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _run(self, request: dict[str, Any], idle: pytest.Item) -> None:
        start, size = request["seeds"]
        job = Job(
            lease=request["lease"],
            case_key=request["case_key"],
            seed_block=SeedBlock(start=start, size=size),
            checkpoint_uri=request["checkpoint_uri"],
            theta_path=request["theta_path"],
            companions=tuple((uri, path) for uri, path in request.get("companions", ())),
        )
        item = self._items[job.case_key]
        item.user_properties.clear()
        item._report_sections.clear()
        item.config.stash[CURRENT_JOB] = job
        self._lease, self._reports = job.lease, []
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=idle)
        except BaseException as error:
            # Whatever it was, the state of this session is unknown: say so, and let the chief replace the worker.
            self._send("result", lease=job.lease, outcome=str(Outcome.ERROR), message=headline(error), replace=True)
            raise
        finished = self._finished()
        if finished is None:
            # Not even what the case is could be said: its files changed since they were collected, say.
            texts = [report.longreprtext.strip() for report in self._reports if report.failed]
            line = texts[0].splitlines()[-1] if texts and texts[0] else "the item ended without a report"
            self._send("result", lease=job.lease, outcome=str(Outcome.ERROR), message=line, replace=True)
            return
        self._send(
            "result",
            finished.payload,
            lease=job.lease,
            outcome=str(finished.outcome),
            message=finished.message,
            replace=False,
        )

    def _prepare(self, request: dict[str, Any]) -> None:
        """Runs beside a job. Whatever goes wrong here goes wrong again when the case runs, and is told then."""
        start, size = request["seeds"]
        item, block = self._items[request["case_key"]], SeedBlock(start=start, size=size)
        try:
            is_done = self._prepare_item(item, block, request["checkpoint_uri"], request["theta_path"])
        except BaseException:  # noqa: BLE001  (a plugin boundary: the tasks' and optimizers' own code)
            is_done = False
        self._send("prepared", is_done=is_done)

    def _finished(self) -> Finished | None:
        """Returns what the item's reports say, if anything; a failing teardown makes a passed item an error."""
        found = [Finished.from_record(record) for report in self._reports for record in getattr(report, "lobench", [])]
        if not found:
            return None
        finished = found[0]
        broken = [report for report in self._reports if report.when == "teardown" and report.failed]
        if broken and finished.outcome is Outcome.PASSED:
            lines = broken[0].longreprtext.strip().splitlines()
            return Finished(
                case=finished.case,
                seed_block=finished.seed_block,
                outcome=Outcome.ERROR,
                message=f"teardown: {lines[-1] if lines else 'failed'}",
                payload=finished.payload,
            )
        return finished

    def _progress(self, step: int) -> None:
        self._send("progress", lease=self._lease, step=step)

    def _send(self, kind: str, payload: bytes = b"", **values: Any) -> None:
        try:
            with self._sending:
                self._connection.send_bytes(encode(kind, payload, **values))
        except OSError:
            self._gone()

    def _read(self) -> None:
        try:
            while True:
                values, _ = decode(self._connection.recv_bytes())
                match values["kind"]:
                    case "job":
                        self._jobs.put(values)
                    case "prepare":
                        threading.Thread(target=self._prepare, args=(values,), daemon=True).start()
                    case "exit":
                        self._jobs.put(None)
                        return
        except (EOFError, OSError):
            self._gone()

    def _gone(self) -> None:
        """The chief is gone: nothing that this process could still do is wanted."""
        if self._exit_at_eof:
            os._exit(1)
        self._jobs.put(None)


def _unique_names(infos: list[CaseInfo]) -> list[CaseInfo]:
    """Adds the file's stem to names that a suite has twice, and the test's own name where that is not enough."""
    for parts in (1, 2):
        counts = Counter((info.suite, info.name) for info in infos)
        infos = [
            info if counts[info.suite, info.name] == 1 else dataclasses.replace(info, name=_long_name(info, parts))
            for info in infos
        ]
    return infos


def _long_name(info: CaseInfo, parts: int) -> str:
    file, _, test = info.node_id.partition("::")
    return f"{Path(file).stem}.{info.name if parts == 1 else test}"


def serve(connection: Connection, arguments: list[str], layers: Layers, *, exit_at_eof: bool) -> None:
    """Runs one worker on a connection until it is told to exit."""
    loop = Loop(connection, layers, exit_at_eof=exit_at_eof)
    code = pytest.main([*arguments, *_LAST_ARGUMENTS], plugins=[loop])
    fine = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED)
    if code not in fine and not loop.is_ready:  # later on, the job that broke the session has been told of already
        messages = loop._errors or [f"the worker's pytest session ended with {pytest.ExitCode(code).name}"]
        with contextlib.suppress(OSError):
            connection.send_bytes(encode("failed", messages=messages, see_log=not loop._errors))


def _die_with_parent() -> None:
    """On Linux the kernel kills this process when the chief is gone, even if it hangs outside Python."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)


def main(descriptor: int) -> None:
    """Entry of the process, whose output goes to its log already: takes its configuration as the first message."""
    _die_with_parent()
    current_folder_last()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the chief decides, whoever is sent a signal
    connection = Connection(descriptor)
    values, _ = decode(connection.recv_bytes())
    os.environ["NPROC"] = str(values["num_cpus"])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what was printed before a crash is in the log
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", values["compilation_cache"])
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    module, _, attribute = values["serve"].partition(":")
    run = getattr(importlib.import_module(module), attribute)
    run(connection, values["arguments"], Layers.from_json(values["layers"]), exit_at_eof=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
