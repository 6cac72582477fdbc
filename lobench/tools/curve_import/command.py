"""Options and output of `lobench import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.api.settings import ImportSettings
from lobench.cli.options import options_of
from lobench.cli.output import emit, format_option, show

__all__ = ["import_curves"]


@click.command(
    "import",
    epilog="""\b
Formats, detected from the content:
  csv, TSV, JSON (gzipped or not), parquet: columns method, case, seed, step,
    metric, value; or a column for each --metric
  a folder of such files: the paths below it name the runs
  stable-baselines3: monitor.csv
  W&B: the csv of a chart, or the output of run.history()
  TensorBoard: a folder of event files, or the csv of its page
  MLflow: a folder of its file store
  modded-nanogpt: a log, or a folder of logs
  AlgoPerf: its csv, with --targets
  items of a data set: {"item": "q17", "correct": 1}; logs of inspect_ai;
    samples of lm-evaluation-harness
  lobench: the output of `lobench results --format json --curves`

\b
Examples:
  lobench import curves.csv --store runs/mine
  lobench import runs.csv --column seed=run --metric val_loss --method adam --case wikitext --store runs/mine
  lobench import wandb_export.csv --method mine --case wikitext --store runs/mine
  lobench import tb_logs --pattern '(?P<method>.+)-s(?P<seed>[0-9]+)' --metric val/loss --store runs/mine
  lobench import runs --pattern '(?P<method>.+)_s(?P<seed>[0-9]+)/metrics.jsonl' --metric val_loss --store runs/mine
  lobench import train.jsonl --method mine --case wikitext --seed 0 --metric val_loss --store runs/mine
  lobench import wandb --case-from config.problem --seed-from config.seed --metric val/loss --store runs/mine
  lobench import logs/muon logs/soap --case gpt2 --until-step soap=3125 --store runs/mine
  lobench compare adam mine --store runs/mine

Exit codes: 0, 2 usage: nothing was written.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="Store to import into; created if needed."
)
@options_of(ImportSettings)
@format_option("table", "json", name="output_format", prints={"import": "lobench.tools.curve_import.imports:Imported"})
def import_curves(files: tuple[str, ...], store: Path, output_format: str, **options: Any) -> None:
    """Import curves from other programs into a store, as subjects for compare, report and results.

    A second import of the same files adds nothing. If anything is wrong, nothing is written.
    """
    from lobench.tools.curve_import.imports import import_curves as run_import

    printed_notes: list[str] = []

    def log(note: str) -> None:
        printed_notes.append(note)
        click.echo(note, err=True)

    result = run_import(*files, store=store, log=log, **options)
    emit("import", result) if output_format == "json" else show(result.describe(printed_notes))
