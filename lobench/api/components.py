"""Components by name: source, readers, admission policy, executor, sinks."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from numbers import Integral
from pathlib import Path
from typing import Any

from lobench.api.settings import LOCAL_EXECUTORS, WatchSettings, min_workers, num_workers
from lobench.core.admission import AdmissionPolicy
from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.containment import contain_plugins, convert_plugin_errors
from lobench.core.errors import LobenchError, PluginError, PluginFailure, UsageError
from lobench.core.subject import RequestedSubject
from lobench.core.wording import describe_value, headline
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.checkpoints.readers import load_readers
from lobench.engine.checkpoints.whole_files import opaque_readers
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.import_path import prepare_import_path
from lobench.engine.config.scopes import scopes_of_subjects
from lobench.engine.config.suite import require_cases, takes_any_checkpoint
from lobench.engine.paths import path_exists
from lobench.engine.store.database import access_advice, refused_ownership
from lobench.engine.store.delivery import Deliverer
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.states import state_folder
from lobench.engine.workers.child_python import cache_folder
from lobench.engine.workers.pool import WorkerConfig
from lobench.hookspecs import (
    CheckpointReader,
    CheckpointSource,
    Executor,
    ResultSink,
    SinkContext,
    SourceContext,
    Unfinished,
)
from lobench.plugins import CASE_WORKER, COMMAND_WORKER, EXECUTOR_RESULTS, PluginManager, load_plugins

__all__ = [
    "WatchComponents",
    "absolute_location",
    "components_of",
    "make_deliverer",
    "make_sinks",
    "plugins_of",
    "readers_for",
    "worker_config",
]


_POLICIES = "lobench_admission_policies"
_SOURCES = "lobench_checkpoint_sources"
_EXECUTORS = "lobench_executors"


def _is_list_of(kind: type, value: object) -> bool:
    return isinstance(value, Sequence) and all(isinstance(entry, kind) for entry in value)


def _are_positions(value: object) -> bool:
    return _is_list_of(Integral, value)


_SOURCE_RESULTS: Mapping[str, Callable[[Any], bool]] = {
    "poll": partial(_is_list_of, SeenCheckpoint),
    "pending": lambda result: (
        isinstance(result, Mapping) and all(isinstance(entry, Unfinished) for entry in result.values())
    ),
}
_POLICY_RESULTS: Mapping[str, Callable[[Any], bool]] = {
    "admit": lambda result: isinstance(result, tuple) and len(result) == 2 and all(map(_are_positions, result))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchComponents:
    """Plugin components of a watch."""

    manager: PluginManager
    readers: Mapping[str, CheckpointReader]
    make_source: Callable[[], CheckpointSource]
    policy: AdmissionPolicy
    make_executor: Callable[[WorkerConfig, Connection], Executor]


def components_of(settings: WatchSettings, progress: WatchProgress) -> WatchComponents:
    """Returns the components that the settings of a watch name.

    Raises:
      UsageError: No plugin declares a name.
      PluginError: Two plugins declare one name, or a component cannot be created.
    """
    manager = plugins_of(settings.suites, progress)
    manager.usable_declarations("lobench_metrics")  # workers compute them; problems with one are logged below
    policy, _, argument = settings.checkpoints.partition(":")
    make_policy = manager.find(_POLICIES, policy, kind="admission policy", where="--checkpoints").make_guarded
    make_source = manager.find(_SOURCES, settings.source, kind="source").make_guarded
    executor, _, executor_argument = settings.executor.partition(":")
    if executor in LOCAL_EXECUTORS and executor_argument:
        raise UsageError(
            "this executor takes no argument", got=f"--executor {settings.executor}", next_step=f"--executor {executor}"
        )
    make_executor = manager.find(_EXECUTORS, executor, kind="executor").make_guarded
    require_cases(*settings.suites)
    readers = readers_for(
        settings.suites, manager, allow_pickle=settings.allow_pickle, complete_when=settings.complete_when
    )
    context = SourceContext(location=absolute_location(settings.location), readers=readers)
    for broken_plugin in manager.broken:
        progress.log(f"plugin {broken_plugin}; going on")
    return WatchComponents(
        manager=manager,
        readers=readers,
        make_source=partial(
            make_source,
            context,
            where=f"--source {settings.source}",
            hook=_SOURCES,
            results=_SOURCE_RESULTS,
            passes=(OSError,),
        ),
        policy=make_policy(
            argument, where=f"--checkpoints {settings.checkpoints}", hook=_POLICIES, results=_POLICY_RESULTS
        ),
        make_executor=partial(
            make_executor, where=f"--executor {settings.executor}", hook=_EXECUTORS, results=EXECUTOR_RESULTS
        ),
    )


def readers_for(
    suites: Sequence[str], manager: PluginManager, *, allow_pickle: bool, complete_when: str = ""
) -> Mapping[str, CheckpointReader]:
    """Returns the readers of checkpoints by name. Suites of commands and ordinary tests accept any format."""
    if takes_any_checkpoint(*suites):
        if Path(complete_when).is_absolute():
            expected = "a pattern of paths in a checkpoint's folder, such as DONE or '**/*.finished'"
            raise UsageError("--complete-when", got=complete_when, expected=expected)
        return opaque_readers(complete_when)
    if complete_when:
        raise UsageError(
            "--complete-when is of suites of commands and ordinary tests alone; readers of thetas see their ends",
            got=complete_when,
        )
    return load_readers(manager, allow_pickle=allow_pickle)


def absolute_location(location: str) -> str:
    """Returns a run's location for the record, independent of the working directory."""
    return location if not location or "://" in location else os.path.abspath(location)


def worker_config(
    settings: WatchSettings,
    manager: PluginManager,
    store: Path,
    *,
    with_tests: bool = False,
    requests: Sequence[RequestedSubject] = (),
) -> WorkerConfig:
    """Returns the configuration of workers.

    Called at the first checkpoint, because the trainer has written its `config.gin` by then.

    Args:
      settings: Settings of the watch.
      manager: Plugin manager.
      store: Folder of the store.
      with_tests: Whether ordinary tests are cases.
      requests: Subjects that are evaluated besides those of a source.
    """
    layers = gin_layers_at(settings.location, manager, gin_files=settings.gin_files, gin_params=settings.gin_params)
    serve = CASE_WORKER if settings.suites else COMMAND_WORKER
    return WorkerConfig(
        arguments=tuple(str(Path(suite).resolve()) for suite in settings.suites),
        layers=replace(layers, import_folders=settings.import_folders, scopes=scopes_of_subjects(requests)).relocated(
            Path.cwd()
        ),
        serve=serve,
        log_folder=store / "logs",
        compilation_cache=cache_folder(store).absolute(),
        state_folder=state_folder(store).absolute(),
        max_cores=None if settings.workers == "auto" else num_workers(settings.workers),
        min_cores=min_workers(settings.workers),
        argument=settings.executor.partition(":")[2],
        address=settings.ray_address,
        insecure=settings.insecure,
        with_tests=with_tests,
    )


def make_deliverer(
    settings: WatchSettings, manager: PluginManager, ledger: Ledger, store: Path, progress: WatchProgress
) -> Deliverer:
    """Returns the deliverer of a ledger's events to the sinks of a watch.

    Raises:
      UsageError: A sink is unknown.
      PluginError: A sink cannot be set up.
    """
    sinks = make_sinks(settings, manager, store)

    def log(consequence: str, sink: str, error: BaseException) -> None:
        progress.log(f"sink {sink!r}: {headline(error)}; {consequence}")

    def log_unwritten(sink: str, problem: str) -> None:
        progress.log(f"sink {sink!r}: {problem}; all numbers are in the ledger: `lobench results --store {store}`")

    return Deliverer(
        ledger,
        sinks,
        partial(log, "trying again"),
        on_close_error=partial(log, "while it was closed"),
        on_unwritten=log_unwritten,
    )


def make_sinks(settings: WatchSettings, manager: PluginManager, store: Path) -> dict[str, ResultSink]:
    """Returns the sinks of a watch, by address.

    Raises:
      UsageError: A sink is unknown.
      PluginError: A sink cannot be set up.
    """
    suites = tuple(str(Path(suite).absolute()) for suite in settings.suites)
    context = SinkContext(store=store.absolute(), name=settings.watch_name, suites=suites)
    return {address: _make_sink(address, manager, context) for address in settings.sinks}


def _make_sink(address: str, manager: PluginManager, context: SinkContext) -> ResultSink:
    name, _, argument = address.partition(":")
    factory = manager.find("lobench_result_sinks", name, kind="sink").load()

    def setup_error(error: BaseException) -> PluginError:
        kind = PluginError if isinstance(error, Exception) else PluginFailure  # it may refuse the user's argument
        got = headline(error)
        next_step = ""
        if isinstance(error, PermissionError) and (refusal_text := refused_ownership(error, context.store)):
            got = f"{got}: {refusal_text}"
            next_step = access_advice(context.store)
        return kind("cannot be set up", where=f"sink {address!r}", got=got, next_step=next_step)

    with convert_plugin_errors(setup_error, LobenchError):
        sink: ResultSink = factory(replace(context, argument=argument))
        destination = getattr(sink, "destination", "")  # a property that may fail
        bool(getattr(sink, "keeps_first", False)), bool(getattr(sink, "shows_state", False))
    missing_methods = [method for method in ("deliver", "close") if not callable(getattr(sink, method, None))]
    if missing_methods:
        problem = "the factory returned something else"
        expected = f"an object with {missing_methods[0]}()"
        raise PluginFailure(problem, where=f"sink {address!r}", got=describe_value(sink), expected=expected)
    if not isinstance(destination, str):
        got = describe_value(destination)
        raise PluginFailure("destination is not a text", where=f"sink {address!r}", got=got)
    return sink


def plugins_of(suites: Iterable[str], progress: WatchProgress) -> PluginManager:
    """Returns the installed plugins and those in the conftest files of suites.

    A chief does not collect the suites, so it imports these files itself for their sinks and observers.
    """
    manager = load_plugins()
    for suite in suites:
        path = Path(suite).resolve()
        file = (path if path_exists(path, kind="folder") else path.parent) / "conftest.py"
        if not path_exists(file, kind="file"):
            continue
        prepare_import_path(file.parent)
        spec = importlib.util.spec_from_file_location(f"lobench_conftest_{abs(hash(file))}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            with contain_plugins():
                spec.loader.exec_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a plugin boundary; the workers report it too)
            progress.log(f"{file} cannot be imported: {headline(error)}; its hooks are ignored")
            continue
        manager.register_conftest(module)
    return manager
