"""Options and output of `lobench keep`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.api.settings import WatchSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import BoundedNumber, options_of
from lobench.cli.output import emit, format_option, logged_aside, show

__all__ = ["keep"]

_CODES = {"keep": ExitCode.OK, "discard": ExitCode.VERDICT, "undecided": ExitCode.BUDGET}


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
@click.option("--against", help="Incumbent: git:REV, or a folder.")
@click.option("--candidate", default=".", show_default=True, help="Changed files: a folder, or git:REV.")
@click.option("--against-command", default="", help="Command of the incumbent (default: the candidate's).")
@click.option("--metric", help="Metric that decides, by its last value.")
@click.option("--maximize/--minimize", "maximize", default=None, help="Direction of the metric, if it is not known.")
@click.option("--curves", default="{out}/metrics.jsonl", show_default=True, help="File that the command writes.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default=Path(".lobench/keep"),
    show_default=True,
    help="Folder of runs and decisions. All decisions of a store share one error rate.",
)
@click.option(
    "--margin", type=BoundedNumber(0, None), default=0.0, show_default=True, help="Improvement that keep requires."
)
@click.option(
    "--max-seeds",
    type=click.IntRange(min=3),
    default=32,
    show_default=True,
    help="Largest number of fresh seeds.",
)
@click.option(
    "--screen",
    type=click.IntRange(min=3),
    default=3,
    show_default=True,
    help="Number of shared seeds, which can only discard.",
)
@click.option("--max-core-hours", type=BoundedNumber(0, None, min_open=True), help="Largest cost of the decision.")
@click.option(
    "--fdr",
    type=BoundedNumber(0.001, 0.5),
    default=0.1,
    show_default=True,
    help="Expected share of changes without an improvement among those kept, over all decisions of the store.",
)
@click.option(
    "--environment",
    multiple=True,
    metavar="NAME",
    help="Environment variable that changes results; repeatable.",
)
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="PATH",
    help="Ignored path that runs need; repeatable.",
)
@click.option("--description", default="", help="Description of the change, for the log.")
@click.option(
    "--timeout", "timeout_seconds", type=BoundedNumber(0, None, min_open=True), default=86400.0, metavar="SECONDS",
    help="Time limit of one run (default: a day).",
)  # fmt: skip
@click.option("--cpus", "num_cpus", type=click.IntRange(min=1), default=1, show_default=True, help="Cores of one run.")
@click.option(
    "--gpus", "num_gpus", type=BoundedNumber(0, None), default=0.0, show_default=True, help="Devices of one run."
)
@click.option("--workers", default="1", show_default=True, help="Runs at the same time; with 2, both sides of a pair.")
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
    prints={
        "keep": "lobench.tools.keep.decision_records:KeepRecord",
        "keep.log": "lobench.tools.keep.decision_records:KeepLogRecord",
    },
)
def keep(
    command_line: str | None,
    against: str | None,
    metric: str | None,
    store: Path,
    is_log: bool,
    measure: int | None,
    kind: str,
    **options: object,
) -> None:
    """Keep or discard a change of a script.

    Candidate and incumbent run on the same seeds, in alternating order, until the answer is known. Runs and decisions
    are in the store: a second call repeats none of them. All candidates of a store, however they were chosen, share one
    false discovery rate.
    """
    from lobench.tools.keep.decision_records import log_record, record_of
    from lobench.tools.keep.keep import MeasuredTotal, kept_log, measure_total
    from lobench.tools.keep.keep import keep as kept
    from lobench.tools.keep.keep_output import kept_text, log_text

    if measure is not None and not is_log:
        raise click.UsageError("--measure needs --log")
    if is_log:
        shared = {name: options[name] for name in ("workers", "executor", "ray_address", "insecure")}
        if measure is None:
            measured = MeasuredTotal(decisions=kept_log(store))
        else:
            measured = logged_aside(measure_total, store, num_seeds=measure, **shared)
        emit("keep.log", log_record(measured)) if kind == "json" else show(log_text(measured))
        raise click.exceptions.Exit(ExitCode.ERROR if measured.error else ExitCode.OK)
    if not command_line or not metric:
        raise click.UsageError(f"missing option '{'--metric' if command_line else '--command'}'")
    found = logged_aside(kept, command_line, against=against or "", metric=metric, store=store, **options)
    emit("keep", record_of(found)) if kind == "json" else show(kept_text(found))
    answer = found.decision.answer
    code = ExitCode.ERROR if answer is None else _CODES[answer.value]
    raise click.exceptions.Exit(code)
