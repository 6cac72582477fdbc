"""Engine run: runs the chief until it is done, and starts again if a suite was edited during the run."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from lobench.analysis.scores.baseline_places import record_suites
from lobench.api.components import WatchComponents, components_of, make_deliverer, worker_config
from lobench.api.settings import LOCAL_EXECUTORS, WatchSettings, num_cores, num_workers, unused_store, unused_store_line
from lobench.api.utilisation import UtilisationProgress
from lobench.core.containment import contain_plugins
from lobench.core.errors import CheckpointError
from lobench.core.result import Outcome
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject, is_of_any_run
from lobench.core.wording import counted, shortened_list
from lobench.engine.checkpoints.file_spool import FileSpool
from lobench.engine.checkpoints.given import has_run_configs, run_variant
from lobench.engine.checkpoints.places import absolute_location, is_below
from lobench.engine.checkpoints.population_source import runs_below
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.case_cache import RecordedCases
from lobench.engine.chief.interfaces import Arrivals, WatchPlan, WatchProgress, WatchSummary
from lobench.engine.chief.loop import Chief
from lobench.engine.chief.signals import obeying_interrupts
from lobench.engine.config.run_configs import trainer_config_at
from lobench.engine.config.suite import takes_any_checkpoint
from lobench.engine.config.suite_files import SuiteFiles, forget_modules
from lobench.engine.config.user_code import forget_edited_code
from lobench.engine.store.data_files import changed_data
from lobench.engine.store.first_use import removed_if_refused
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.child_python import unshared_cache_line
from lobench.engine.workers.devices import devices_here
from lobench.hookspecs import CheckpointReader, CheckpointSource, Executor, SourceContext

__all__ = ["LOCAL_EXECUTORS", "RunExtension", "WatchOutcome", "run_rounds"]

_FOLDER_SOURCES = ("directory", "population")  # sources whose checkpoints are below the watched location


class RunExtension(Protocol):
    """Experiment that shares a run of the engine, from the opening of the ledger to its closing.

    Attributes:
      is_outdated: Whether the code of its commands was edited since it was planned. Its run then ends.
    """

    @property
    def is_outdated(self) -> bool: ...

    def begin(self, ledger: Ledger, readers: Mapping[str, CheckpointReader], progress: WatchProgress) -> Arrivals: ...

    def end(self, ledger: Ledger, watch_plan: WatchPlan) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOutcome:
    """Summary of a finished watch.

    Attributes:
      store: Folder of the ledger.
      ending: Counts and problems, as the chief reports them.
      left_out: Reasons by path, for files that are not (yet) complete checkpoints.
      utilisation: Advice if cores or devices were idle or overloaded; "" otherwise.
      is_of_run: Returns whether a stored checkpoint is of the watched run. A store may hold other runs, too.
    """

    store: Path
    ending: WatchSummary
    left_out: Mapping[str, str]
    utilisation: str = ""
    is_of_run: Callable[[Subject], bool] = is_of_any_run


def run_rounds(
    settings: WatchSettings,
    progress: WatchProgress,
    *,
    before_first: Callable[[], None] = lambda: None,
    requests: Sequence[RequestedSubject] = (),
    has_source: bool = True,
    extension: RunExtension | None = None,
) -> WatchOutcome:
    """Runs the chief until it is done or interrupted.

    Args:
      before_first: Called once all components were found and before anything is written.
      requests: Subjects to evaluate besides those that the source finds.
      has_source: Whether checkpoints come from the source that the settings name.
      extension: Experiment that adds commands to run, and records.
    Raises:
      LobenchError: Wrong usage, a store that is busy or not writable, a suite that cannot be collected, or no
        checkpoint.
      KeyboardInterrupt: Ctrl-C was pressed before a chief ran, or between two of them.
    """
    outcomes: Counter[Outcome] = Counter()
    core_seconds, num_rounds = 0.0, 0
    suite: SuiteFiles | None = None
    is_here = settings.executor in LOCAL_EXECUTORS
    if settings.executor == "inline":  # has a single worker
        settings = replace(settings, workers=1)
    progress = measuring = UtilisationProgress(progress, devices=is_here)
    num_workers(settings.workers)
    with contextlib.ExitStack() as stack:
        stack.enter_context(obeying_interrupts())
        stack.enter_context(contain_plugins())
        while True:
            settings = settings.resolved()
            if settings.executor == "inline" and forget_edited_code():
                forget_modules(settings.suites)  # the worker is this process, which has imported them already
            if num_rounds:
                forget_modules(settings.suites)
            components = components_of(settings, progress)
            source = components.make_source() if has_source else None
            if (
                not num_rounds
                and source is not None
                and not settings.once
                and (hint := _hint_of_runs(settings, components))
            ):
                progress.log(f"no checkpoint in {settings.location}; {hint}")
            if not num_rounds:
                before_first()
                store = settings.store_folder
                is_of_run = _run_membership(settings) if has_source else is_of_any_run
                if not settings.store and settings.location:
                    earlier_store = unused_store(settings.location, settings.watch_name, store)
                    if earlier_store is not None:
                        progress.warn(unused_store_line(earlier_store, store))
                stack.enter_context(removed_if_refused(store))
            options = _round_settings(settings, core_seconds, num_rounds, has_source=has_source)
            run_config = partial(trainer_config_at, settings.location)
            suite = SuiteFiles(settings.suites, settings.gin_files, settings.location, run_config, former=suite)
            ending = _run_round(options, store, components, source, requests, progress, extension, is_of_run, suite)
            outcomes.update(ending.outcomes)
            core_seconds += ending.core_seconds
            num_rounds += 1
            is_outdated = extension is not None and extension.is_outdated
            if not ending.suite_changed or ending.interrupted or ending.over_budget or is_outdated:
                break
        left_out = {path: file.reason for path, file in source.pending().items()} if source is not None else {}
        found_any = ending.num_checkpoints or ending.unbound or ending.unread
        if not found_any and not ending.interrupted and extension is None:
            raise CheckpointError(
                "no checkpoint to evaluate",
                where=settings.location or ", ".join(subject.uri for subject in requests),
                got="; ".join(f"{path} ({reason})" for path, reason in left_out.items()),
                next_step=_hint_of_runs(settings, components)
                or "`lobench list readers` shows the formats that can be read",
            )
    ending = replace(ending, outcomes=outcomes, core_seconds=core_seconds)
    worker_count = num_workers(settings.workers)
    utilisation = measuring.advice(num_workers=worker_count, num_cores=num_cores() if is_here else worker_count)
    return WatchOutcome(store=store, ending=ending, left_out=left_out, utilisation=utilisation, is_of_run=is_of_run)


def _hint_of_runs(settings: WatchSettings, components: WatchComponents) -> str:
    """Returns a hint if subfolders of a location are runs, else "". Also "" if the location itself is a run."""
    if settings.source != "directory" or not settings.location or "://" in settings.location:
        return ""
    runs = runs_below(SourceContext(location=settings.location, readers=components.readers))
    if not runs:
        return ""
    return f"there are checkpoints in {shortened_list(runs, 3)}: --source population watches the runs below a folder"


def _round_settings(
    settings: WatchSettings, core_seconds: float, num_rounds: int, *, has_source: bool
) -> WatchSettings:
    """Returns the settings of the next round, after rounds that used `core_seconds`.

    Given subjects are compared with each other, so all of them are planned again after an edit. Checkpoints of a source
    that an earlier round finished are evaluated on the edited cases only when the watch is started again.
    """
    hours = settings.max_core_hours
    max_core_hours = None if hours is None else hours - core_seconds / 3600
    return replace(
        settings,
        elsewhere=settings.executor not in LOCAL_EXECUTORS,
        replan=not num_rounds or not has_source,
        retry_errors=settings.retry_errors and not num_rounds,
        max_core_hours=max_core_hours,
    )


def _run_round(
    settings: WatchSettings,
    store: Path,
    components: WatchComponents,
    source: CheckpointSource | None,
    requests: Sequence[RequestedSubject],
    progress: WatchProgress,
    extension: RunExtension | None,
    is_of_run: Callable[[Subject], bool],
    suite: SuiteFiles,
) -> WatchSummary:
    # Workers may have another working directory, and a plugin may leave this one.
    folder = store.absolute()
    only_checkpoints = bool(source is not None or requests) and all(
        isinstance(subject, GivenCheckpoint) for subject in requests
    )
    with_tests = extension is None and only_checkpoints
    make_config = partial(worker_config, settings, components.manager, folder, with_tests=with_tests, requests=requests)
    spool_folder = folder / "spool"
    takes_any = takes_any_checkpoint(*settings.suites)
    with (
        Ledger.open(folder, name=settings.watch_name, on_problem=progress.log) as ledger,
        contextlib.closing(make_deliverer(settings, components.manager, ledger, folder, progress)) as deliverer,
        _open_for_display(progress, ledger, settings.suites, is_of_run),
    ):
        activity = (
            f"watching {settings.location}" if source is not None else f"evaluating {counted(len(requests), 'subject')}"
        )
        activity = f"running {settings.watch_name}" if extension is not None else activity
        progress.announce(f"{activity}; results: {store}")
        for location in (
            settings.location,
            *(subject.uri for subject in requests if isinstance(subject, GivenCheckpoint)),
        ):
            ledger.update_moved_paths(location)
        record_suites(ledger, settings.suites)
        if line := changed_data(ledger, settings.suites, settings.location):
            progress.warn(line)
        arrivals = extension.begin(ledger, components.readers, progress) if extension is not None else None

        def make_executor(wakeup: Connection) -> Executor:
            if settings.suites and (line := unshared_cache_line(store)):
                progress.warn(line)
            return components.make_executor(make_config(), wakeup)

        chief = Chief(
            ledger=ledger,
            spool=FileSpool(spool_folder, progress.log, keep_limit=settings.keep_limit * 1e9)
            if takes_any
            else Spool(spool_folder, progress.log),
            source=source,
            given=requests,
            arrivals=arrivals,
            known=RecordedCases(ledger, make_config, suite),
            readers=components.readers,
            make_executor=make_executor,
            policy=components.policy,
            max_cores=num_workers(settings.workers),
            max_gpus=(len(devices_here(os.environ)) or math.inf) if settings.executor == "local" else math.inf,
            deliverer=deliverer,
            manager=components.manager,
            progress=progress,
            suite=suite,
            options=replace(settings, with_tests=with_tests),
            run_variant=partial(run_variant, settings.location),
            has_run_configs=source is not None and has_run_configs(settings.location),
            is_of_run=is_of_run,
        )
        ending = chief.run()
        if extension is not None:
            extension.end(ledger, ending.plan)
        return ending


def _run_membership(settings: WatchSettings) -> Callable[[Subject], bool]:
    """Returns a function that tells checkpoints of the watched run from those of other runs in its store.

    A plugin's source may give its checkpoints any path, so all checkpoints of the store count.
    """
    if settings.source not in _FOLDER_SOURCES:
        return is_of_any_run
    location = absolute_location(settings.location)

    @functools.cache
    def is_folder_of_run(folder: str) -> bool:
        return is_below(folder, location)

    def is_of_run(subject: Subject) -> bool:
        is_download = "://" in location and "://" not in subject.uri
        if not subject.has_theta or is_download:
            return True
        return subject.uri == location or is_folder_of_run(subject.uri.rpartition("/")[0])

    return is_of_run


@contextlib.contextmanager
def _open_for_display(
    progress: WatchProgress, ledger: Ledger, suites: Sequence[str], is_of_run: Callable[[Subject], bool]
) -> Iterator[None]:
    """Opens the ledger for a progress display while the body runs."""
    progress.opened(ledger.open_reader, suites, is_of_run)
    try:
        yield
    finally:
        progress.closed()
