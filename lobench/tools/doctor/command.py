"""Options and output of `lobench doctor`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.output import emit, format_option, show
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.wording import convert_errors, counted

__all__ = ["DoctorRecord", "ReplayRecord", "doctor"]


class CheckRecord(TypedDict):
    name: str
    is_ok: bool
    found: str


class DoctorRecord(TypedDict):
    """`lobench doctor`: results of the checks."""

    checks: list[CheckRecord]


class ReplayRecord(TypedDict):
    """`lobench doctor --replay`: decisions of a watch, and whether they would be the same today."""

    store: Path
    start: int
    num_starts: int
    begun_at: float
    num_events: int
    differs_at: int | None
    decisions: list[str]


_NEEDED_BYTES = 1_000_000  # bytes, of a few programs
_DEVICES_CODE = "import jax; print(jax.__version__, ', '.join(str(device) for device in jax.devices()))"


@click.command()
@click.option("--store", type=click.Path(path_type=Path), help="Check that this store can be used.")
@click.option("--config", type=click.Path(path_type=Path), help="Check that this gin file parses.")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="STORE",
    help="Replay the decisions of the last watch into this store with their reasons, and check nothing else.",
)
@click.option("--start", type=int, help="With --replay: number of the start to replay (default: the last one).")
@format_option(
    "text",
    "json",
    name="output_format",
    prints={
        "doctor": f"{__name__}:DoctorRecord",
        "doctor.replay": f"{__name__}:ReplayRecord",
    },
)
def doctor(store: Path | None, config: Path | None, replay: Path | None, start: int | None, output_format: str) -> None:
    """Check jax's devices, plugins, store and configuration; exit code 3 if something is wrong."""
    if replay is not None:
        record, is_well = _replay(replay, start)
        name_and_record: tuple[str, ReplayRecord | DoctorRecord] = "doctor.replay", record
    else:
        checks = [_run_check(name, check) for name, check in _checks(store, config)]
        name_and_record = ("doctor", DoctorRecord(checks=checks))
        is_well = all(check["is_ok"] for check in checks)
    if output_format == "json":
        emit(*name_and_record)
    sys.exit(ExitCode.OK if is_well else ExitCode.ERROR)


def _run_check(name: str, check: Callable[[], str]) -> CheckRecord:
    """Runs a check, prints its result and returns it."""
    try:
        is_ok = True
        text = check()
    except LobenchError as error:
        is_ok = False
        text = str(error)
    show(f"{'ok   ' if is_ok else 'wrong'}  {name}: {text}")
    return {"name": name, "is_ok": is_ok, "found": text}


def _checks(store: Path | None, config: Path | None) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "jax", _check_jax
    yield "plugins", _check_plugins
    yield "compiled programs", _check_programs
    if store is not None:
        yield "store", lambda: _check_store(store)
    if config is not None:
        yield "config", lambda: _check_config(config)


def _replay(store: Path, number: int | None) -> tuple[ReplayRecord, bool]:
    """Prints the decisions of one run with their reasons.

    Returns the record, and whether all decisions are equal today.
    """
    from lobench.core.planner.planner_replay import Replay
    from lobench.engine.chief.decisions import log_files, read_decisions

    starts = log_files(store)
    if not starts:
        raise UsageError("no log of decisions", where=str(store), next_step="name the store of a watch: --replay STORE")
    number = max(starts) if number is None else number
    if number not in starts:
        known_numbers = ", ".join(map(str, sorted(starts)))
        raise UsageError(f"no log of start {number}", where=str(store), expected=f"one of {known_numbers}")
    initial_state, steps = read_decisions(starts[number])
    time_text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(initial_state.at))
    num_known = len(initial_state.history.recorded)
    history_text = f"{counted(initial_state.max_cores, 'core')}, {counted(num_known, 'outcome')} known before"
    click.echo(f"start {number} of {max(starts)}, {time_text}: {history_text}")
    replay = Replay(initial_state)
    lines = list[str]()
    for line in replay.lines(steps):
        lines.append(line)
        click.echo(line)
    if replay.differs_at is None:
        click.echo(f"{replay.num_steps} events; the replay decides on each as was decided then")
    else:
        click.echo(f"event {replay.differs_at}: then something else was decided; was it another version of lobench?")
    record: ReplayRecord = {
        "store": store,
        "start": number,
        "num_starts": max(starts),
        "begun_at": initial_state.at,
        "num_events": replay.num_steps,
        "differs_at": replay.differs_at,
        "decisions": lines,
    }
    return record, replay.differs_at is None


def _check_jax() -> str:
    # In a separate process, because a broken driver may crash it.
    process = subprocess.run([sys.executable, "-P", "-c", _DEVICES_CODE], capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        got = lines[-1] if lines else f"exit status {process.returncode}"
        raise LobenchError("jax finds no device", got=got)
    return process.stdout.strip()


def _check_plugins() -> str:
    from lobench.hookspecs import HookSpecs
    from lobench.plugins import load_plugins

    manager = load_plugins()
    if manager.broken:
        causes = "; ".join(f"{plugin.name} ({plugin.distribution}): {plugin.cause}" for plugin in manager.broken)
        raise LobenchError("plugins that do not import", got=causes, next_step="reinstall or uninstall them")
    declaring_hooks = [name for name in vars(HookSpecs) if name.startswith("lobench_") and name.endswith("s")]
    for hook in declaring_hooks:
        for declaration in manager.declarations(hook).values():
            declaration.load()
    return ", ".join(name for name, _ in manager.plugins())


def _check_programs() -> str:
    """Returns how many programs the user's folder holds.

    Raises:
      LobenchError: The folder cannot be written, so each command has to compile its programs again.
    """
    from lobench.engine.workers.child_python import user_cache_folder, wanted_cache_folder

    folder = wanted_cache_folder()
    advice = "set LOBENCH_CACHE_DIR to a folder that can be written and has room"
    with convert_errors(OSError, LobenchError, "compiled programs cannot be kept", where=folder, next_step=advice):
        if user_cache_folder() is None:
            raise PermissionError(errno.EACCES, "the folder cannot be written", str(folder))
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_NEEDED_BYTES))
        sizes = [path.stat().st_size for path in folder.glob("jit_*-cache")]
    return f"{counted(len(sizes), 'program')}, {sum(sizes) / 1e6:.1f} MB in {folder}"


def _check_store(store: Path) -> str:
    from lobench.engine.store.ledger import Ledger
    from lobench.engine.store.network import file_system_type, is_on_network_disk
    from lobench.engine.store.schema import store_errors

    with Ledger.open(store, read_only=True) as ledger:
        # Without the ledger's lock, because a watch may be writing.
        with store_errors(store), tempfile.TemporaryFile(dir=store) as file:
            file.write(bytes(4096))
        if not os.access(store / "ledger.sqlite", os.W_OK):
            raise StoreError("the ledger can be read and not written", where=str(store / "ledger.sqlite"))
        kind = "network" if is_on_network_disk(store) else "local"
        where = f"{kind} file system ({file_system_type(store) or 'type unknown'})"
        kinds = Counter(subject.kind for subject in ledger.sightings().values())
        counts = {
            "checkpoint": kinds["checkpoint"],
            "optimizer": kinds["optimizer"],
            "experiment": sum(1 for experiment in ledger.experiments() if experiment.config),
        }
        counts_text = [counted(count, name) for name, count in counts.items() if count or name == "checkpoint"]
        counts_text.append(counted(sum(1 for _ in ledger.evaluations()), "evaluation"))
        return ", ".join([*counts_text, where])


def _check_config(config: Path) -> str:
    from lobench.engine.config.syntax import case_scopes, parse_trainer_config

    statements = parse_trainer_config(config)
    return f"{counted(len(statements), 'statement')}, cases: {', '.join(case_scopes(statements)) or 'none'}"
