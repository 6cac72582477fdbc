"""Options and output of `lobench keep`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.api.settings import WatchSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import options_of
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.keep.keep_settings import KeepSettings

__all__ = ["keep"]

_EXIT_CODES = {"keep": ExitCode.OK, "discard": ExitCode.VERDICT, "undecided": ExitCode.BUDGET}


@click.command(
    epilog="""\b
Examples:
  lobench keep --command 'python train.py --seed {seed} --out {out}' --metric val_loss --against git:main
  lobench keep --command 'python train.py {seed} {out}' --metric val_bpb --minimize --against git:HEAD~1 \\
      --candidate git:HEAD --link data
  lobench keep --command 'python train.py --lr 0.02 --seed {seed} --out {out}' \\
      --against-command 'python train.py --lr 0.01 --seed {seed} --out {out}' --metric val_loss
  lobench keep --log
  lobench keep --log --measure 8

Exit codes: 0 keep; 1 discard; 2 usage; 3 a run had an error; 4 undecided."""
)
@click.option("--command", "command_line", help="Command that trains with one seed; {seed} and {out} are filled in.")
@click.option("--metric", help="Metric that decides, by its last value.")
@click.option("--maximize/--minimize", "maximize", default=None, help="Direction of the metric, if it is not known.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path(".lobench/keep"),
    show_default=True,
    help="Folder of runs and decisions. All decisions of a store share one error rate.",
)
@options_of(KeepSettings)
@options_of(WatchSettings, "executor", "ray_address", "insecure")
@click.option("--log", "is_log", is_flag=True, help="List the decisions of the store and the chain of kept changes.")
@click.option(
    "--measure",
    type=click.IntRange(min=2),
    metavar="N",
    help="With --log: measure the total improvement of the chain on N fresh seeds.",
)
@format_option(
    "text",
    "json",
    name="output_format",
    prints={
        "keep": "lobench.tools.keep.keep_output:KeepRecord",
        "keep.log": "lobench.tools.keep.keep_output:KeepLogRecord",
    },
)
def keep(
    command_line: str | None,
    metric: str | None,
    store: Path,
    is_log: bool,
    measure: int | None,
    output_format: str,
    **options: object,
) -> None:
    """Keep or discard a change of a script.

    Candidate and incumbent run on the same seeds, in alternating order, until the answer is known. Runs and decisions
    are in the store: a second call repeats none of them. All candidates of a store, however they were chosen, share one
    false discovery rate.
    """
    from lobench.tools.keep.keep import MeasuredTotal, measure_total, read_decisions
    from lobench.tools.keep.keep import keep as run_keep
    from lobench.tools.keep.keep_output import kept_record, kept_text, log_record, log_text

    if measure is not None and not is_log:
        raise click.UsageError("--measure needs --log")
    if is_log:
        worker_options = {name: options[name] for name in ("workers", "executor", "ray_address", "insecure")}
        if measure is None:
            measured_total = MeasuredTotal(decisions=read_decisions(store))
        else:
            measured_total = call_with_progress(measure_total, store, num_seeds=measure, **worker_options)
        emit("keep.log", log_record(measured_total)) if output_format == "json" else show(log_text(measured_total))
        raise click.exceptions.Exit(ExitCode.ERROR if measured_total.error else ExitCode.OK)
    if not command_line or not metric:
        raise click.UsageError(f"missing option '{'--metric' if command_line else '--command'}'")
    outcome = call_with_progress(run_keep, command_line, metric=metric, store=store, **options)
    emit("keep", kept_record(outcome)) if output_format == "json" else show(kept_text(outcome))
    decision_answer = outcome.decision.answer
    code = ExitCode.ERROR if decision_answer is None else _EXIT_CODES[decision_answer.value]
    raise click.exceptions.Exit(code)
