"""What `lobench watch` is made of: names become objects, a run becomes an exit code."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from etils import epath

from lobench.cli.dry_run import dry_run
from lobench.cli.suites import require_suite
from lobench.cli.watch_ending import exit_code
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError, PluginError, UsageError
from lobench.core.headline import headline
from lobench.core.planner import Policy
from lobench.core.result import Outcome
from lobench.engine.checkpoints.readers import load_checkpoint, load_readers, reader_for
from lobench.engine.checkpoints.source import GivenSource
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.contract import WatchOptions
from lobench.engine.chief.loop import Watch
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite_files import SuiteFiles, forget_modules
from lobench.engine.store.delivery import Deliverer, exits_raise
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.devices import devices_here
from lobench.engine.workers.pool import Executor, WorkerConfig
from lobench.hookspecs import CheckpointReader, CheckpointSource, ResultSink, SinkContext, SourceContext
from lobench.plugins import PluginManager, load_plugins
from lobench.report.live import ReportSink
from lobench.report.progress import ShownProgress, make_progress

__all__ = ["WatchCommand", "checkpoint_at", "default_store", "run_watch"]

_HERE = ("local", "inline")  # executors whose workers are processes of this machine


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCommand:
    """The options of `lobench watch`, as given."""

    location: str
    suites: tuple[str, ...]
    workers: str
    store: str
    name: str = ""
    executor: str = "local"
    ray_address: str = ""
    insecure: bool = False
    checkpoints: str = "all"
    sinks: tuple[str, ...] = ()
    quiet: bool = False
    report: bool = False
    source: str = "directory"
    gin_files: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    once: bool = False
    until_step: int | None = None
    idle_timeout: float | None = None
    together: int = 1
    max_core_hours: float | None = None
    dry_run: bool = False
    retry_errors: bool = False
    allow_pickle: bool = False
    experiment: str = ""
    trial: str = ""
    session: str = ""


@dataclass(slots=True)
class _Before:
    """What earlier rounds of a watch did: a round ends where its suite was edited."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    core_seconds: float = 0.0
    num_rounds: int = 0


def run_watch(command: WatchCommand, checkpoints: Sequence[str] = ()) -> int:
    """Runs a watch and returns its exit code.

    Args:
      checkpoints: Paths of the only checkpoints to evaluate; none: those that the source finds.
    Raises:
      LobenchError: usage, an unwritable or busy store, a suite that cannot be collected.
    """
    before = _Before()
    with exits_raise():
        while (code := _run_round(command, checkpoints, before)) is None:
            before.num_rounds += 1
    return code


def checkpoint_at(command: WatchCommand) -> Checkpoint | None:
    """Returns the checkpoint that the location is now; None where no reader takes it for one: a run's folder, say.

    Raises:
      CheckpointError: it cannot be read.
    """
    manager = load_plugins()
    _register_conftests(command.suites, manager, make_progress(sys.stdout))
    if reader_for(epath.Path(command.location), load_readers(manager, allow_pickle=command.allow_pickle)) is None:
        return None
    return load_checkpoint(command.location, manager, allow_pickle=command.allow_pickle)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the plugins have for a command."""

    manager: PluginManager
    readers: Mapping[str, CheckpointReader]
    source: CheckpointSource
    policy: Policy
    make_executor: Callable[[WorkerConfig, Connection], Executor]


def _run_round(command: WatchCommand, checkpoints: Sequence[str], before: _Before) -> int | None:
    """Runs a watch with the suite as it is now; returns its exit code, or None where the suite was edited."""
    for suite in command.suites:
        require_suite(suite)
    progress = make_progress(sys.stdout, quiet=command.quiet)
    if before.num_rounds:
        forget_modules(command.suites)
    found = _find(command, checkpoints, progress)
    max_cores = _workers(command.workers)
    if not _wait_for(command, progress):
        return 130
    name = command.name or Path(command.suites[0]).resolve().stem
    store = Path(command.store) if command.store else default_store(command.location, name)
    if command.dry_run:
        # Machines elsewhere may be wider than this one.
        widest = max_cores if command.executor == "local" or command.workers != "auto" else math.inf
        config = _worker_config(command, found.manager, store)
        dry_run(config, store, max_cores=max_cores, widest=widest, say=progress.say)
        return 0
    with (
        contextlib.closing(Ledger.open(store, name=name, on_problem=progress.say)) as ledger,
        contextlib.closing(_deliverer(command, found.manager, ledger, store, name, progress)) as deliverer,
    ):
        progress.say(f"watching {command.location}; results: {store}")
        options = _options(command, max_cores, before, frozenset(checkpoints) or None)
        with progress:
            ending = _watch(command, found, store, ledger, deliverer, progress, options).run()
        before.outcomes.update(ending.outcomes)
        before.core_seconds += ending.core_seconds
        if ending.suite_changed and not ending.interrupted and not ending.over_budget:
            return None
        return exit_code(command, replace(ending, outcomes=before.outcomes), found.source, progress, store)


def _find(command: WatchCommand, checkpoints: Sequence[str], progress: ShownProgress) -> _Found:
    manager = load_plugins()
    for broken in manager.broken:
        progress.say(f"plugin {broken.name!r} ({broken.distribution}) does not import: {broken.cause}; going on")
    _register_conftests(command.suites, manager, progress)
    if command.quiet:
        from lobench.report.checkpoint_lines import CheckpointLines  # imports scipy

        manager.register(CheckpointLines(command.suites, progress.say), name="lobench-checkpoint-lines")
    manager.declarations("lobench_metrics")  # workers compute them; two of one name are an error before they start
    policy, _, argument = command.checkpoints.partition(":")
    make_policy = manager.find("lobench_admission_policies", policy, kind="admission policy").make
    make_source = manager.find("lobench_checkpoint_sources", command.source, kind="source").load()
    readers = load_readers(manager, allow_pickle=command.allow_pickle)
    source = make_source(SourceContext(location=command.location, readers=readers))
    return _Found(
        manager=manager,
        readers=readers,
        source=GivenSource(checkpoints, readers) if checkpoints else source,
        policy=make_policy(argument, where=f"--checkpoints {command.checkpoints}"),
        make_executor=manager.find("lobench_executors", command.executor, kind="executor").load(),
    )


def _deliverer(
    command: WatchCommand, manager: PluginManager, ledger: Ledger, store: Path, name: str, progress: ShownProgress
) -> Deliverer:
    sinks = _sinks(command.sinks, manager, SinkContext(store=store.absolute(), name=name))
    if command.report:
        sinks["report"] = ReportSink(store, command.suites)

    def say(then: str, sink: str, error: BaseException) -> None:
        progress.say(f"sink {sink!r}: {headline(error)}; {then}")

    return Deliverer(ledger, sinks, partial(say, "trying again"), on_close_error=partial(say, "while it was closed"))


def _watch(
    command: WatchCommand,
    found: _Found,
    store: Path,
    ledger: Ledger,
    deliverer: Deliverer,
    progress: ShownProgress,
    options: WatchOptions,
) -> Watch:
    return Watch(
        ledger=ledger,
        spool=Spool(store / "spool"),
        source=found.source,
        readers=found.readers,
        make_executor=partial(_make_executor, found.make_executor, command, found.manager, store),
        policy=found.policy,
        max_cores=_workers(command.workers),
        max_gpus=(len(devices_here(os.environ)) or math.inf) if command.executor == "local" else math.inf,
        deliverer=deliverer,
        manager=found.manager,
        progress=progress,
        suite=SuiteFiles(command.suites, command.gin_files, command.location),
        options=options,
    )


def _options(
    command: WatchCommand, max_cores: int, before: _Before, only: frozenset[str] | None = None
) -> WatchOptions:
    hours = command.max_core_hours
    return WatchOptions(
        once=command.once,
        until_step=command.until_step,
        idle_timeout=command.idle_timeout,
        together=command.together,
        elsewhere=command.executor not in _HERE,
        replan=not before.num_rounds,
        retry_errors=command.retry_errors and not before.num_rounds,
        only=only,
        spare_cores=max(_num_cores() - max_cores, 0) if command.executor == "local" else 0,
        max_core_hours=None if hours is None else hours - before.core_seconds / 3600,
        experiment=command.experiment,
        trial=command.trial,
        session=command.session,
    )


def _make_executor(
    factory: Callable[[WorkerConfig, Connection], Executor],
    command: WatchCommand,
    manager: PluginManager,
    store: Path,
    wakeup: Connection,
) -> Executor:
    """Called at the first checkpoint: by then the trainer has written its config.gin."""
    return factory(_worker_config(command, manager, store), wakeup)


def _worker_config(command: WatchCommand, manager: PluginManager, store: Path) -> WorkerConfig:
    return WorkerConfig(
        arguments=tuple(str(Path(suite).resolve()) for suite in command.suites),
        layers=_layers(command, manager),
        log_folder=store / "logs",
        compilation_cache=(store / "xla_cache").absolute(),
        max_cores=None if command.workers == "auto" else _workers(command.workers),
        address=command.ray_address,
        insecure=command.insecure,
    )


def _wait_for(command: WatchCommand, progress: ShownProgress) -> bool:
    """Waits until the location exists; says so, once. With `--once` it must exist already."""
    path = epath.Path(command.location)
    if path.exists():
        return True
    if command.once or command.dry_run:
        raise UsageError(
            "there is nothing here", where=command.location, next_step="without --once, watch waits for it"
        )
    progress.say(f"{command.location} does not exist yet; waiting for it")
    try:
        while not path.exists():
            time.sleep(0.5)
    except KeyboardInterrupt:
        return False
    return True


def _workers(text: str) -> int:
    if text == "auto":
        return _num_cores()
    if not text.isdecimal() or int(text) < 1:
        raise UsageError("--workers", got=repr(text), expected="a number >= 1, or auto")
    return int(text)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_store(location: str, name: str) -> Path:
    """Returns CKPT_DIR/lobench_results/NAME where that is local, writable and the user's own, else .lobench/NAME.

    A store of an earlier version, CKPT_DIR/lobench/NAME, is gone on with.
    """
    if "://" not in location:
        folder = Path(location)
        folder = folder if folder.is_dir() and not (folder / "_CHECKPOINT_METADATA").exists() else folder.parent
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            earlier = folder / "lobench" / name
            return earlier if (earlier / "ledger.sqlite").is_file() else folder / "lobench_results" / name
    return Path(".lobench") / name


def _layers(command: WatchCommand, manager: PluginManager) -> Layers:
    trainer_config = None
    if "://" not in command.location:
        location = Path(command.location).absolute()
        candidates = [location / "config.gin"] if location.is_dir() else []
        candidates.append(location.parent / "config.gin")
        trainer_config = next((str(path) for path in candidates if path.is_file()), None)
    return Layers(
        trainer_config=trainer_config,
        gin_files=tuple(str(Path(path).absolute()) for path in command.gin_files),
        gin_params=command.gin_params,
        gin_modules=tuple(manager.declarations("lobench_gin_modules")),
    )


def _sinks(addresses: tuple[str, ...], manager: PluginManager, context: SinkContext) -> dict[str, ResultSink]:
    sinks: dict[str, ResultSink] = {}
    for address in addresses:
        name, _, argument = address.partition(":")
        factory = manager.find("lobench_result_sinks", name, kind="sink").load()
        try:
            sink = factory(SinkContext(store=context.store, argument=argument, name=context.name))
            getattr(sink, "destination", "")  # may have to be made
        except LobenchError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError("cannot be set up", where=f"sink {address!r}", got=headline(error)) from error
        sinks[address] = sink
    return sinks


def _register_conftests(suites: tuple[str, ...], manager: PluginManager, progress: ShownProgress) -> None:
    """Imports the suites' conftest files: a chief collects nothing, and their sinks and observers count here too."""
    for suite in suites:
        path = Path(suite).resolve()
        file = (path if path.is_dir() else path.parent) / "conftest.py"
        if not file.is_file():
            continue
        spec = importlib.util.spec_from_file_location(f"lobench_conftest_{abs(hash(file))}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            with exits_raise():
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a plugin boundary; the workers report it too)
            progress.say(f"{file} does not import: {headline(error)}; its hooks do not take part")
            continue
        manager.register_conftest(module)
