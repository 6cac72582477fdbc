"""`lobench score`."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["score"]


@click.command(
    epilog="""\b
Examples:
  lobench score evaluations.csv.gz --targets workload_targets.json
  lobench score evaluations.csv --targets workload_targets.json --format json"""
)
@click.argument("logs", metavar="LOGS.csv[.gz]", type=click.Path(path_type=Path))
@click.option("--targets", "targets_file", required=True, type=click.Path(path_type=Path), help="Targets, JSON.")
@click.option("--format", "kind", type=click.Choice(["table", "json"]), default="table", show_default=True)
def score(logs: Path, targets_file: Path, kind: str) -> None:
    """AlgoPerf score from logs: submission, study, workload, trial, global_step, time, val_metric."""
    from lobench.analysis.algoperf import score_log
    from lobench.analysis.algoperf_files import read_log, read_targets
    from lobench.report.scores import scores_json, scores_table

    targets = read_targets(targets_file)
    found = score_log(read_log(logs, targets), targets)
    click.echo(scores_json(found, targets) if kind == "json" else scores_table(found, targets))
