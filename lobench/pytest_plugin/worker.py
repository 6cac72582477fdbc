"""Warm worker: a pytest session whose run loop takes jobs from the chief.

It collects the suites once and then runs items repeatedly, so that compiled programs, imports and session fixtures are
kept. It ends with its chief: a thread reads the pipe and ends the process when the pipe is closed, also during a job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import queue
import sys
from collections.abc import Generator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lobench.core.errors import LobenchError
from lobench.core.result import Outcome
from lobench.core.wording import headline
from lobench.engine.config.user_code import (
    computed_fingerprints,
    differing_parts_run,
    edited_files,
    united_fingerprint,
)
from lobench.engine.paths import hash_in_copy_path, path_exists
from lobench.engine.retries import is_transient, retried, retried_briefly
from lobench.engine.store.states import StateAccess
from lobench.engine.workers.channel import ChiefEnd
from lobench.engine.workers.command import CommandRunner
from lobench.engine.workers.last_words import likely_cause
from lobench.engine.workers.protocol import (
    TO_WORKER,
    Command,
    Configure,
    Describe,
    Described,
    Exit,
    Failed,
    Job,
    JobResult,
    Progress,
    Ready,
    Remark,
    StopCommand,
    ToWorker,
)
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import CURRENT_JOB, LAYERS, ON_PROGRESS, STATES, TESTS_ARE_CASES, ItemResult

if TYPE_CHECKING:
    from lobench.pytest_plugin.variants import VariantCases

__all__ = ["serve"]

# Disables the user's plugins that would interfere in a worker: parallel workers, reruns, cache.
_LAST_ARGUMENTS = ("-n0", "-p", "no:rerunfailures", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:timeout")
# Arguments in another program's process, which writes to the terminal itself. At the end, pytest would look for garbage
# among all objects of the process, which may be millions.
_GUEST_ARGUMENTS = ("-p", "no:terminal", "-p", "no:unraisableexception", "-s")
_EDITED_QUESTION = "was a gin file of the suite or of the run edited meanwhile?"
_OTHER_CODE_MESSAGE = "its worker has run other code than the worker that described the cases"


class _Idle(pytest.Item):
    """Dummy `nextitem` of the session, so that pytest tears down everything but session fixtures between jobs."""

    def runtest(self) -> None:
        raise AssertionError("the idle item is never run")


def _disk_error(report: pytest.CollectReport) -> BaseException | None:
    """Returns the error of a collection if it may be temporary, such as an error of a disk."""
    call = getattr(report, "call", None)
    error = call.excinfo.value if call is not None and call.excinfo is not None else None
    return error if is_transient(error, retries_forbidden=False) else None


class _DiskFailure(Exception):
    """An item had an error because a disk failed for a moment. The item's error is the `__cause__`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.__cause__ = error


class WorkerLoop:
    """pytest plugin that replaces the run loop."""

    def __init__(self, chief: ChiefEnd[ToWorker], configure: Configure) -> None:
        self._chief, self._configure = chief, configure
        self._requests: queue.Queue[ToWorker | None] = queue.Queue()
        self._reports: list[pytest.TestReport] = []
        self._commands = CommandRunner()
        self._lease = 0
        self._cases: VariantCases | None = None
        self._disk_error: BaseException | None = None
        self._retried_collectors: set[pytest.Collector] = set()
        self.errors: list[str] = []  # errors of the collection
        self.is_ready = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[LAYERS], config.stash[TESTS_ARE_CASES] = self._configure.layers, self._configure.with_tests
        config.stash[ON_PROGRESS] = self._send_progress
        if self._configure.state_folder:
            config.stash[STATES] = StateAccess(folder=Path(self._configure.state_folder), log=self._send_remark)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Retries the collection of a folder or file while its disk fails.

        This includes the suite's parent folder, which pytest collects too.
        """
        report = yield
        if collector in self._retried_collectors or _disk_error(report) is None:
            return report
        self._retried_collectors.add(collector)

        def collect() -> None:
            nonlocal report
            report = collector.ihook.pytest_make_collect_report(collector=collector)
            if error := _disk_error(report):
                raise _DiskFailure(error)

        with contextlib.suppress(_DiskFailure):  # the report has the error
            retried(collect, retries_forbidden=False)
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            # After an infinite recursion the last line is only pytest's remark; the error is before it.
            lines = [line for line in report.longreprtext.strip().splitlines() if not line.startswith("!!!")]
            self.errors.append(f"{report.nodeid}: {lines[-1] if lines else 'collection failed'}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # Imported here, because it makes jax read its settings, which a conftest.py may change.
        from lobench.pytest_plugin.variants import VariantCases

        items = [item for item in session.items if case_of(item) is not None]
        if self.errors or not items:
            problems = tuple(dict.fromkeys(self.errors))
            self._chief.send(Failed(messages=problems or (_no_cases_message(session.config.args),)))
            return True
        self._cases = VariantCases(items)
        self.is_ready = True
        self._chief.send(Ready())
        self._chief.listen(self._handle_message)
        idle_item = _Idle.from_parent(session, name="idle")
        # Nobody reads the source lines of pytest's own style, which take half a second for a deep stack.
        session.config.option.tbstyle = "native"
        while (request := self._requests.get()) is not None:
            match request:
                case Job():
                    companions = tuple((uri, self._local_path(path)) for uri, path in request.companions)
                    theta_path = self._local_path(request.theta_path)
                    job = dataclasses.replace(request, theta_path=theta_path, companions=companions)
                    self._chief.send(self._run_job(job, idle_item))
                case Command():
                    self._chief.send(self._commands.run(request))
                case Describe():
                    self._describe_cases(request)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _handle_message(self, message: ToWorker | None) -> None:
        """Handles a message from the chief while an item may be running."""
        if isinstance(message, StopCommand):
            self._commands.stop(message.lease)
        else:
            self._requests.put(None if isinstance(message, Exit) else message)

    def _describe_cases(self, request: Describe) -> None:
        from lobench.pytest_plugin.variants import files_of_cases

        assert self._cases is not None
        variant_cases = self._cases.of(request.variant)
        problems = variant_cases.problems or (self._cases.problems_of_training(request) if request.is_traced else ())
        if problems:
            self._chief.send(Failed(messages=problems, variant_key=request.variant.key))
            return
        fingerprints = computed_fingerprints(variant_cases.cases)
        united_code = united_fingerprint(fingerprints.values())
        files = files_of_cases(self._configure.arguments, self._configure.layers, united_code.files)
        self._chief.send(
            Described(
                variant_key=request.variant.key,
                cases=variant_cases.cases,
                files=files,
                missing=tuple(sorted(united_code.missing_files)),
                code_files=tuple(sorted(united_code.files)),
                listed=dict(united_code.folder_listings),
                data=tuple(sorted(united_code.data_files)),
                codes={code_id: fingerprint.parts for code_id, fingerprint in fingerprints.items()},
                edited=tuple(edited_files(united_code)),
            )
        )

    def _local_path(self, path: str) -> str:
        """Returns the path on this machine of a file named in a message."""
        folder = self._configure.file_folder
        return str(Path(folder) / Path(path).name) if folder and path and not hash_in_copy_path(path) else path

    def _run_job(self, job: Job, idle_item: pytest.Item) -> JobResult:
        assert self._cases is not None
        failed_result = partial(JobResult, lease=job.lease, outcome=Outcome.ERROR, replace=True)
        variant_cases = self._cases.of(job.variant)
        item = variant_cases.items.get(job.case_key)
        if item is None:
            # This worker has read other files than the worker that described the cases.
            line = "; ".join(variant_cases.problems) or f"its worker has no such case: {_EDITED_QUESTION}"
            return failed_result(message=line, other_gin=True)
        case = next(case for case in variant_cases.cases if case.key == job.case_key)
        code = united_fingerprint(computed_fingerprints([case]).values())
        if job.code and case.code != job.code:
            return failed_result(message=_OTHER_CODE_MESSAGE, other_code=dict(code.parts))
        item.config.stash[CURRENT_JOB] = job
        self._lease = job.lease
        try:
            self._run_item(item, idle_item)
        except BaseException as error:
            # The state of this session is unknown, so let the chief replace the worker.
            self._chief.send(failed_result(message=headline(error)))
            raise
        if edited_parts := differing_parts_run(case):
            return failed_result(message=_OTHER_CODE_MESSAGE, other_code={**code.parts, **edited_parts})
        if _is_bound_otherwise(item, job):
            return failed_result(message=f"its worker has bound another case: {_EDITED_QUESTION}", other_gin=True)
        item_result = self._reported_result()
        if item_result is None:
            # The case could not be described, for example because its files changed since the collection.
            texts = [report.longreprtext.strip() for report in self._reports if report.failed]
            line = texts[0].splitlines()[-1] if texts and texts[0] else "the item ended without a report"
            return failed_result(message=line)
        return JobResult(
            lease=job.lease, outcome=item_result.outcome, message=item_result.message, payload=item_result.payload
        )

    def _run_item(self, item: pytest.Item, idle_item: pytest.Item) -> None:
        """Runs an item, and again if it had an error because a disk failed for a moment."""

        def run() -> None:
            item.user_properties.clear()
            item._report_sections.clear()
            # A hook that raised has ended the run before the item was torn down.
            item.session._setupstate.teardown_exact(idle_item)
            if isinstance(item, pytest.Function):
                item._initrequest()
            self._reports, self._disk_error = [], None
            item.ihook.pytest_runtest_protocol(item=item, nextitem=idle_item)
            item_result = self._reported_result()
            if self._disk_error is not None and (item_result is None or item_result.outcome is Outcome.ERROR):
                raise _DiskFailure(self._disk_error)

        with contextlib.suppress(_DiskFailure):  # the reports have the error
            retried_briefly(run)

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        if call.excinfo is not None and is_transient(call.excinfo.value, retries_forbidden=False):
            self._disk_error = call.excinfo.value

    def _reported_result(self) -> ItemResult | None:
        """Returns the result in the item's reports, or None. A failing teardown makes a passed item an error."""
        results = [
            ItemResult.from_bytes(record) for report in self._reports for record in getattr(report, "lobench", [])
        ]
        if not results:
            return None
        item_result = results[0]
        failed_teardowns = [report for report in self._reports if report.when == "teardown" and report.failed]
        if failed_teardowns and item_result.outcome is Outcome.PASSED:
            lines = failed_teardowns[0].longreprtext.strip().splitlines()
            message = f"teardown: {lines[-1] if lines else 'failed'}"
            return dataclasses.replace(item_result, outcome=Outcome.ERROR, message=message)
        return item_result

    def _send_remark(self, line: str) -> None:
        self._chief.send(Remark(line=line))

    def _send_progress(self, step: int) -> None:
        self._chief.send(Progress(lease=self._lease, step=step))


def _is_bound_otherwise(item: pytest.Item, job: Job) -> bool:
    """Returns whether an item trained another case than the job's, or none, for example after an edit of a gin file.

    The gin files are read once to describe the cases, and again when a case is first trained.
    """
    from lobench.pytest_plugin.items import case_info, is_trained, runners_of, test_name

    spec = case_of(item)
    assert spec is not None
    try:
        if is_trained(spec):  # runners import jax
            bound_case = runners_of(item.config, job.variant).in_process.cached_bound_case(spec, test_name(item))
            if bound_case is not None:
                return bound_case.info.key != job.case_key
        return case_info(item, job.variant).key != job.case_key
    except LobenchError:
        return True


def serve(connection: Connection, configure: Configure, *, owns_process: bool) -> None:
    """Runs one worker on a connection until it receives the request to exit; see `Configure.serve`."""
    chief = ChiefEnd(connection, TO_WORKER, owns_process=owns_process)
    loop = WorkerLoop(chief, configure)
    arguments = [*configure.arguments, *(() if owns_process else _GUEST_ARGUMENTS), *_LAST_ARGUMENTS]

    def run_session() -> int:
        exit_code = pytest.main(arguments, plugins=[loop])  # raises if it cannot look at a conftest.py
        reason = (
            " ".join(_session_end_messages(exit_code, configure)) if exit_code == pytest.ExitCode.USAGE_ERROR else ""
        )
        if "file or directory not found" in reason and all(map(path_exists, configure.arguments)):
            raise _DiskFailure(OSError(errno.EIO, reason))  # pytest takes any error of a look for a missing file
        return exit_code

    exit_code = retried(run_session, retries_forbidden=False)
    expected_codes = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.TESTS_FAILED)
    if exit_code not in expected_codes and not loop.is_ready:  # otherwise the job that broke the session was reported
        chief.send(Failed(messages=tuple(loop.errors) or _session_end_messages(exit_code, configure)))


def _no_cases_message(suites: Sequence[object]) -> str:
    expected = "expected a .gin file with a scope that binds Case.task, or tests"
    return f"{', '.join(map(str, suites))}: the suite holds no case; {expected}; `lobench list suites` shows examples"


def _session_end_messages(code: int, configure: Configure) -> tuple[str, ...]:
    """Returns messages on a session that ended before it had collected anything."""
    with contextlib.suppress(OSError, ValueError):  # closed stream, or full disk
        sys.stdout.flush()
    log_line = likely_cause(Path(configure.log), configure.log_start) if configure.log else ""
    return tuple(filter(None, (f"the worker's pytest session ended with {pytest.ExitCode(code).name}", log_line)))
