"""Options and output of `lobench score`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.output import emit, format_option, show
from lobench.core.errors import UsageError

__all__ = ["score"]


@click.command(
    epilog="""\b
Examples:
  lobench score evaluations.csv.gz --targets workload_targets.json
  lobench score evaluations.csv --targets workload_targets.json --format json
  lobench score evaluations.csv --targets workload_targets.json --rules 0.6 --self-tuning
  lobench score curves.csv --normaliser velo_speedup_over_multiple_baselines.json.gz"""
)
@click.argument("logs", metavar="LOGS.csv[.gz]", type=click.Path(path_type=Path))
@click.option(
    "--targets",
    "targets_file",
    type=click.Path(path_type=Path),
    help="Score AlgoPerf logs with the workload targets in this JSON file.",
)
@click.option(
    "--rules",
    "version",
    type=click.Choice(["0.5", "0.6"]),
    help="With --targets: version of AlgoPerf's rules (default: the version of the targets).",
)
@click.option(
    "--self-tuning",
    is_flag=True,
    help="With --targets: apply the rules of the self-tuning track.",
)
@click.option(
    "--normaliser",
    type=click.Path(path_type=Path),
    help="Score VeLO curves with the tuned baselines in this JSON[.gz] file.",
)
@format_option(
    "table",
    "json",
    name="output_format",
    prints={
        "score.algoperf": "lobench.tools.score.score_output:AlgoPerfRecord",
        "score.velo": "lobench.tools.score.score_output:VeloRecord",
    },
)
def score(
    logs: Path,
    targets_file: Path | None,
    normaliser: Path | None,
    version: str | None,
    self_tuning: bool,
    output_format: str,
) -> None:
    """Compute AlgoPerf's or VeLO's published score from logs.

    With --targets, the score is AlgoPerf's. The logs have the columns submission, study, workload, trial, global_step,
    time and val_metric.

    With --normaliser, the score is VeLO's: the speed-up over tuned baselines. The logs have the columns task, seed,
    step and loss.
    """
    if (targets_file is None) == (normaliser is None):
        raise UsageError(
            "--targets and --normaliser: give one of them",
            next_step="--targets FILE scores logs of AlgoPerf, --normaliser FILE those of VeLO",
        )
    if normaliser is not None:
        if version is not None or self_tuning:
            raise UsageError("--rules and --self-tuning are AlgoPerf's", expected="--targets")
        _velo(logs, normaliser, output_format)
    elif targets_file is not None:
        _algoperf(logs, targets_file, version, self_tuning, output_format)


def _velo(logs: Path, normaliser: Path, output_format: str) -> None:
    from lobench.tools.score.score_output import velo_record, velo_table
    from lobench.tools.score.velo import read_curves, read_normaliser

    scores = read_curves(logs, read_normaliser(normaliser))
    emit("score.velo", velo_record(scores)) if output_format == "json" else show(velo_table(scores))


def _algoperf(logs: Path, targets_file: Path, version: str | None, self_tuning: bool, output_format: str) -> None:
    from lobench.analysis.scores.algoperf import RULES, score_log
    from lobench.analysis.scores.algoperf_files import read_log, read_targets
    from lobench.tools.score.score_output import scores_record, scores_table

    targets = read_targets(targets_file)
    rules = RULES.get(version or targets.version)
    if self_tuning:
        if rules is None:
            expected = f"--rules {' or '.join(RULES)}"
            raise UsageError("whose --self-tuning?", where=str(targets_file), got=targets.version, expected=expected)
        rules = rules.for_self_tuning()
    scores = score_log(read_log(logs, targets), targets, rules)
    if output_format == "json":
        emit("score.algoperf", scores_record(scores, rules))
    else:
        show(scores_table(scores, rules))
