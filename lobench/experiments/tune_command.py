"""Options and output of `lobench tune`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import fields
from pathlib import Path

import click

from lobench.api.settings import TuneSettings, WatchSettings
from lobench.cli.options import options_of
from lobench.cli.output import emit, format_option

__all__ = ["tune"]


@click.command(
    epilog="""\b
Examples:
  lobench tune suites/quick/digits.gin --optimizer adam
  lobench tune suites/quick --optimizer adamw --search random --num-trials 20 \\
    --vary 'learning_rate = Real(1e-4, 1e-1, scale="log")' --vary 'weight_decay = [0.0, 0.01, 0.1]'
  lobench tune suites/quick --optimizer adam --print > adam.gin
  lobench tune suites/quick --optimizer adam --race --sessions 24

Exit codes: those of `lobench run`."""
)
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@options_of(TuneSettings)
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Tune on these cases only; repeatable.")
@click.option("--store", default="", help="Result store (default: .lobench/tune-OPTIMIZER).")
@click.option("--print", "is_printed", is_flag=True, help="Print the experiment for this folder, and run nothing.")
@click.option(
    "--check", is_flag=True, help="Train nothing; plan as the run does, and print missing evaluations and their cost."
)
@click.option("--offline", is_flag=True, help="With --check: start no worker either, and print the skipped checks.")
@format_option(
    "text",
    "json",
    prints={
        "tune": "lobench.experiments.records:TuneRecord",
        "tune.plan": "lobench.experiments.records:TunePlanRecord",
        "tune.print": "lobench.experiments.records:TunePrintRecord",
    },
)
@options_of(
    WatchSettings, "workers", "executor", "ray_address", "gin_params", "max_core_hours", "retry_errors", "keep_results"
)
def tune(
    suites: tuple[str, ...], store: str, is_printed: bool, check: bool, offline: bool, kind: str, **options: object
) -> None:
    """Tune an optimizer on suites: run an experiment with one method, print it as gin, and keep it in the store.

    With --race each setting is a method: see `lobench compare --race`.

    `lobench run STORE/experiment.gin --store STORE` continues it (with --case, if given); a file of your own can have
    several methods.
    """
    from lobench.engine.config.shipped import find_suite
    from lobench.engine.config.suite import specs_called
    from lobench.engine.store.database import StoreLock
    from lobench.engine.store.first_use import restored_if_refused
    from lobench.experiments.command import run_experiment
    from lobench.experiments.run import RunSettings
    from lobench.experiments.tune import experiment_text, tune_file
    from lobench.plugins import load_plugins

    tune_options = {field.name: options.pop(field.name) for field in fields(TuneSettings) if field.name in options}
    settings = TuneSettings(suites=suites, **tune_options)  # type: ignore[arg-type]  # checked by click
    manager = load_plugins()
    gin_params: tuple[str, ...] = options.pop("gin_params")  # type: ignore[assignment]  # checked by click
    text = experiment_text(settings, Path(), manager, gin_params)
    click.echo(text, nl=False)
    ran_as = ("tune", {"gin": text}) if kind == "json" else None
    if is_printed:
        if ran_as is not None:
            emit("tune.print", ran_as[1])
        return
    click.echo()
    sys.stdout.flush()
    specs_called((), *(str(find_suite(suite)) for suite in suites))
    store_path = Path(store or f".lobench/{settings.name}")
    if not check and (store_path / StoreLock.FILE).exists():
        StoreLock(store_path, settings.name).release()  # StoreBusy, before the file of a search that runs is replaced
    with tempfile.TemporaryDirectory() as nowhere, restored_if_refused(store_path / "experiment.gin"):
        path = tune_file(settings, Path(nowhere) if check else store_path, manager, gin_params)
        run_settings = RunSettings(experiment=str(path), store=str(store_path), **options)  # type: ignore[arg-type]  # checked by click
        run_experiment(run_settings, check=check, offline=offline, ran_as=ran_as)
