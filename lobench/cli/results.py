"""Options and output of `lobench results`."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path

import click

from lobench.cli.output import emit_text, format_option

__all__ = ["results"]

_EXPORTS = ("csv", "parquet", "every-eval-ever")


@click.command(
    epilog="""\b
Examples:
  lobench results --store runs/today/lobench_results/quick
  lobench results --store runs/today/lobench_results/quick --evaluations --case 'relu*' --sort test
  lobench results --store runs/today/lobench_results/quick --format json --curves > results.json
  lobench results --store runs/today/lobench_results/quick --format parquet --output results.parquet
  lobench results --store .lobench/experiment --cases
  lobench results --store .lobench/experiment --metric test/accuracy
  lobench results --store runs --history
  lobench results --store runs/study --history --patch 3 --output dirty.patch"""
)
@click.option("--store", required=True, type=click.Path(path_type=Path), help="Result store.")
@format_option(
    *("table", "json", "csv", "parquet", "every-eval-ever"),
    help="csv and parquet have a row for each checkpoint, case, seed and metric; `lobench schema` describes json; "
    "every-eval-ever writes a file for each checkpoint or optimizer into the folder --output.",
    prints={
        "results": "lobench.report.tables.result_records:ResultRecords",
        "results.methods": "lobench.report.tables.method_table:MethodRecords",
        "results.history": "lobench.report.tables.history_tables:HistoryRecords",
    },
)
@click.option("--output", type=click.Path(path_type=Path), help="File to write (default: standard output).")
@click.option("--curves", is_flag=True, help="With json: the whole curves, [seed][evaluation].")
@click.option("--cases", is_flag=True, help="Print a table of methods and cases, as --by method does.")
@click.option("--evaluations", is_flag=True, help="Print a row for each evaluation; implied by --case and --sort.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Show this metric too, such as test/accuracy or one of a task's own, by case; with --evaluations as a column. "
    "Repeatable.",
)
@click.option("--case", "pattern", default="*", help="Only cases of this name, or SUITE/NAME; * and ? match.")
@click.option(
    "--sort",
    type=click.Choice(["case", "step", "train", "test", "best", "diverged", "wall"]),
    help="With --evaluations: the order of rows (default: case).",
)
@click.option(
    "--by", type=click.Choice(["method"]), help="Print a table of methods and cases, with the settings of each method."
)
@click.option("--experiment", help="With --by: show the methods of this experiment (default: the last one that ran).")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Show all rows. With --cases or --by: everything in the store, not only an experiment's methods.",
)
@click.option(
    "--table", type=click.Path(path_type=Path), help="With --by: gin file of `Table.*`, as of `lobench report`."
)
@click.option("--history", is_flag=True, help="List experiments and runs by date, of every store in or below --store.")
@click.option(
    "--patch",
    type=int,
    metavar="ID",
    help="With --history: print the patch of an experiment's dirty tree, for `git apply`.",
)
def results(
    store: Path,
    kind: str,
    output: Path | None,
    curves: bool,
    cases: bool,
    evaluations: bool,
    metrics: tuple[str, ...],
    pattern: str,
    sort: str | None,
    by: str | None,
    experiment: str | None,
    every: bool,
    table: Path | None,
    history: bool,
    patch: int | None,
) -> None:
    """Rank the methods or checkpoints of a store, or export its evaluations; a watch may be writing to it."""
    gc.disable()  # all data lives until the process exits; collection took 4% of the time
    from lobench.cli.results_output import (
        by_method_text,
        export,
        export_every_eval_ever,
        history_text,
        ranked_text,
        records_text,
        table_text,
        written,
    )
    from lobench.core.errors import UsageError
    from lobench.report.tables.text import wrapped

    def write(content: str | bytes | Iterable[str]) -> None:
        if output is None:
            click.echo(content, nl=False) if isinstance(content, bytes) else emit_text(content)
            return
        with written(output):
            if isinstance(content, bytes):
                output.write_bytes(content)
                return
            with output.open("w", encoding="utf-8", newline="") as file:
                file.writelines([content] if isinstance(content, str) else content)

    if history and (kind in _EXPORTS or pattern != "*"):
        what = f"--format {kind}" if pattern == "*" else "--case"
        raise UsageError(f"--history has no {what}", expected="--history alone, or with --format json")
    if metrics and (history or (kind != "table" and not (cases or by))):
        raise UsageError("--metric is of tables", expected="json, csv and parquet have all metrics of an evaluation")
    evaluations = evaluations or pattern != "*" or sort is not None
    cases = cases or (bool(metrics) and not evaluations)
    if cases and by is None:
        by = "method"
    if by is None and (experiment is not None or table is not None):
        raise UsageError("--experiment and --table are of a table of methods", expected="--cases beside them")
    if by is not None and (evaluations or sort is not None):
        raise UsageError("--cases and --by method have no --evaluations and no --sort")
    if by is not None and (history or curves or kind in _EXPORTS or pattern != "*"):
        raise UsageError("--by method has no --history, --curves, --case, csv or parquet", expected="--format json")
    if patch is not None:
        if kind == "json":
            raise UsageError("--patch prints a patch, not JSON", expected="--patch without --format")
        if not history:
            raise UsageError("--patch needs --history")
        from lobench.analysis.comparisons.run_history import patch_of

        write(patch_of(store, patch))
        return
    if kind == "every-eval-ever":
        if pattern != "*":
            raise UsageError("--format every-eval-ever has no --case")
        export_every_eval_ever(store, output)
        return
    if kind in _EXPORTS:
        export(store, kind, output, pattern)
        return
    if by is None and not history and kind == "json":
        gc.enable()  # no data is kept, and the JSON encoder leaves a cycle per record
        with records_text(store, pattern, curves=curves) as parts:
            write(parts)
        return
    if by is not None:
        text = by_method_text(store, kind, experiment, every=every, table=table, metrics=metrics)
    elif history:
        text = history_text(store, kind)
    elif not evaluations:
        text = ranked_text(store, every=every)
    else:
        text = table_text(store, pattern, sort=sort or "case", metrics=metrics)
    write((wrapped(text) if kind == "table" else text) + "\n")
