"""Options and output of `lobench results`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from lobench.cli.options import OutputPath, options_of
from lobench.cli.output import emit_text, format_option
from lobench.core.settings_field import option

__all__ = ["results"]

_EXPORTS = ("csv", "parquet", "every-eval-ever")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsSettings:
    """Options of `lobench results` that choose what it prints, under the same names."""

    curves: bool = option(False, "With json: the whole curves, [seed][evaluation].")
    cases: bool = option(False, "Print a table of methods and cases, as --by method does.")
    evaluations: bool = option(False, "Print a row for each evaluation; implied by --case and --sort.")
    metrics: tuple[str, ...] = option(
        (),
        "Show this metric too, such as test/accuracy or one of a task's own, by case; with --evaluations as a column. "
        "Repeatable.",
        flag="--metric",
        metavar="NAME",
    )
    pattern: str = option("*", "Only cases of this name, or SUITE/NAME; * and ? match.", flag="--case")
    sort: str | None = option(
        None,
        "With --evaluations: the order of rows (default: case).",
        choices=("case", "step", "train", "test", "best", "diverged", "wall"),
    )
    by: str | None = option(
        None, "Print a table of methods and cases, with the settings of each method.", choices=("method",)
    )
    experiment: str | None = option(
        None, "With --by: show the methods of this experiment (default: the last one that ran)."
    )
    include_all: bool = option(
        False,
        "Show all rows. With --cases or --by: everything in the store, not only an experiment's methods.",
        flag="--all",
    )
    table: Path | None = option(None, "With --by: gin file of `Table.*`, as in `lobench report`.")
    history: bool = option(False, "List experiments and runs by date, of every store in or below --store.")
    patch: int | None = option(
        None,
        "With --history: print the patch of an experiment's dirty tree, for `git apply`.",
        metavar="ID",
    )

    def with_implied_options(self, output_format: str) -> ResultsSettings:
        """Returns the options with implied options set.

        Args:
          output_format: Format of the output.
        Raises:
          UsageError: Options exclude each other.
        """
        from lobench.core.errors import UsageError

        has_pattern = self.pattern != "*"
        if self.history and (output_format in _EXPORTS or has_pattern):
            flag = "--case" if has_pattern else f"--format {output_format}"
            raise UsageError(f"--history has no {flag}", expected="--history alone, or with --format json")
        if self.metrics and (self.history or (output_format != "table" and not (self.cases or self.by))):
            raise UsageError(
                "--metric is of tables", expected="json, csv and parquet have all metrics of an evaluation"
            )
        evaluations = self.evaluations or has_pattern or self.sort is not None
        by = self.by
        if self.cases or (self.metrics and not evaluations):
            by = "method"
        if by is None and (self.experiment is not None or self.table is not None):
            raise UsageError("--experiment and --table are of a table of methods", expected="--cases beside them")
        flags_by_use = {
            "--evaluations": self.evaluations,
            "--sort": self.sort is not None,
            "--case": has_pattern,
            "--history": self.history,
            "--curves": self.curves,
            f"--format {output_format}": output_format in _EXPORTS,
        }
        if by is not None and (unusable_flag := next(filter(flags_by_use.get, flags_by_use), "")):
            table_flag = "--cases" if self.cases else "--by method" if self.by is not None else "--metric"
            raise UsageError(f"{table_flag} has no {unusable_flag}", expected=f"{table_flag} without it")
        if self.patch is not None and output_format == "json":
            raise UsageError("--patch prints a patch, not JSON", expected="--patch without --format")
        if self.patch is not None and not self.history:
            raise UsageError("--patch needs --history")
        if output_format == "every-eval-ever" and has_pattern:
            raise UsageError("--format every-eval-ever has no --case")
        return replace(self, evaluations=evaluations, by=by)


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
    name="output_format",
    help="csv and parquet have a row for each checkpoint, case, seed and metric; `lobench schema` describes json; "
    "every-eval-ever writes a file for each checkpoint or optimizer into the folder --output.",
    prints={
        "results": "lobench.report.tables.result_records:ResultRecords",
        "results.methods": "lobench.report.tables.method_table:MethodRecords",
        "results.history": "lobench.report.tables.history_tables:HistoryRecords",
    },
)
@click.option("--output", type=OutputPath(is_printed=True), help="File to write (default: standard output).")
@options_of(ResultsSettings)
def results(store: Path, output_format: str, output: Path | None, **options: Any) -> None:
    """Rank the methods or checkpoints of a store, or export its evaluations; a watch may be writing to it."""
    from lobench.cli.results_output import (
        atomic_output,
        csv_chunks,
        evaluations_text,
        export_every_eval_ever,
        export_parquet,
        history_text,
        json_chunks,
        method_table_text,
        store_ranking_text,
    )
    from lobench.report.tables.text import wrap_lines

    def write(content: str | bytes | Iterable[str]) -> None:
        if output is None:
            click.echo(content, nl=False) if isinstance(content, bytes) else emit_text(content)
            return
        with atomic_output(output) as path:
            if isinstance(content, bytes):
                path.write_bytes(content)
                return
            with path.open("w", encoding="utf-8", newline="") as file:
                file.writelines([content] if isinstance(content, str) else content)

    settings = ResultsSettings(**options).with_implied_options(output_format)
    if settings.patch is not None:
        from lobench.analysis.comparisons.run_history import patch_of

        write(patch_of(store, settings.patch))
        return
    if output_format == "every-eval-ever":
        export_every_eval_ever(store, output)
        return
    if output_format == "parquet":
        export_parquet(store, output, settings.pattern)
        return
    if output_format == "csv":
        with csv_chunks(store, settings.pattern) as chunks:
            if output is None:
                sys.stdout.writelines(chunks)  # `click.echo` would leave out escape sequences
            else:
                write(chunks)
        return
    if settings.by is None and not settings.history and output_format == "json":
        with json_chunks(store, settings.pattern, curves=settings.curves) as chunks:
            write(chunks)
        return
    if settings.by is not None:
        text = method_table_text(
            store,
            output_format,
            settings.experiment,
            include_all=settings.include_all,
            table=settings.table,
            metrics=settings.metrics,
        )
    elif settings.history:
        text = history_text(store, output_format)
    elif not settings.evaluations:
        text = store_ranking_text(store, include_all=settings.include_all)
    else:
        text = evaluations_text(store, settings.pattern, sort=settings.sort or "case", metrics=settings.metrics)
    write((wrap_lines(text) if output_format == "table" else text) + "\n")
