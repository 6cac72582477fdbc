"""Options of `lobench watch` that run `lobench alarm` in a second process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import click

from lobench.cli.exit_codes import ExitCode

__all__ = ["add_to"]

# Options that the watch and the alarms share.
_SHARED_OPTIONS = ("name", "store", "executor", "ray_address", "insecure", "allow_pickle")
_REPEATED_OPTIONS = {"suites": "--suite", "sinks": "--sink", "gin_files": "--gin-file", "gin_params": "--gin-param"}


def add_to(watch: click.Command) -> None:
    """Adds `--alarm` and `--on-alarm` to the command."""
    original_callback = watch.callback
    assert original_callback is not None
    alarm_help = "Follow the run with `lobench alarm`: regress, overfit or stall; an alarm makes the exit code 1."
    watch.params += [
        click.Option(["--alarm"], default="", metavar="KIND[,KIND]", help=alarm_help),
        click.Option(["--on-alarm"], default="", metavar="COMMAND", help="Shell command to run on an alarm."),
    ]

    def with_alarms(alarm: str, on_alarm: str, **options: Any) -> None:
        if on_alarm and not alarm:
            raise click.UsageError("--on-alarm needs --alarm: regress, overfit or stall")
        if not alarm or options.get("dry_run"):
            original_callback(**options)
            return
        from lobench.tools.alarm.rule import parse_kinds

        parse_kinds([alarm])  # raises before anything is trained
        with _alarm_process(_alarm_command(alarm, on_alarm, options)) as alarm_exit_code:
            code: str | int | None = ExitCode.OK
            try:
                original_callback(**options)
            except SystemExit as error:
                code = error.code
        sys.exit(alarm_exit_code() if code in (None, ExitCode.OK) else code)

    watch.callback = with_alarms


def _alarm_command(alarm: str, on_alarm: str, options: dict[str, Any]) -> list[str]:
    arguments = [
        sys.executable,
        "-m",
        "lobench.cli",
        "alarm",
        options["location"],
        "--until-input-ends",
        "--alarm",
        alarm,
    ]
    for name in _SHARED_OPTIONS:
        value = options.get(name)
        flag = f"--{name.replace('_', '-')}"
        arguments += [flag] * (value is True) or ([flag, str(value)] if value else [])
    arguments += [
        argument
        for name, flag in _REPEATED_OPTIONS.items()
        for value in options.get(name, ())
        for argument in (flag, value)
    ]
    if options.get("executor") == "local":
        arguments += ["--workers", "1"]  # the watch has the other cores
    return arguments + (["--on-alarm", on_alarm] if on_alarm else [])


@contextlib.contextmanager
def _alarm_process(command: list[str]) -> Iterator[Callable[[], int]]:
    """Runs `lobench alarm` next to the body, and waits for it at the end. Yields a function that returns its exit code.

    The standard input of the process is closed when the watch ends, for whatever reason. If the process ends early,
    a line is printed, and the watch continues without alarms.
    """
    from lobench.engine.store.network import READS_LOCAL_COPY

    environment = {**os.environ, READS_LOCAL_COPY: str(os.getpid())}  # the store's file on a network disk lags
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, env=environment)
    assert child.stdin is not None
    body_ended = threading.Event()

    def report_early_end() -> None:
        code = child.wait()
        if not body_ended.is_set():
            line = f"--alarm: its process ended early, with exit code {code}; the watch goes on without alarms"
            click.echo(line, err=True)

    waiter = threading.Thread(target=report_early_end, daemon=True)
    waiter.start()
    try:
        yield lambda: child.returncode if child.returncode >= 0 else ExitCode.ERROR
    finally:
        body_ended.set()
        child.stdin.close()
        waiter.join()
