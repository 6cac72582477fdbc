"""The command `lobench compare`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import BoundedNumber
from lobench.cli.output import emit, format_option, logged_aside

__all__ = ["compare"]


@click.command(
    epilog="""\b
A, B and C are:
  a store, or a run's folder with one store below it: its last checkpoint
  STORE@NAME, or with --store NAME alone: a label, a scope of its experiment, the gin text of an optimizer, the path
    of a checkpoint or its end, an outer step, the start of a sha256. The methods of the experiment that was run
    last come first, as its table has them.
  with --suite, what is evaluated now: a checkpoint, an optimizer ('adam(); adam.learning_rate = 0.01'), or a NAME;
    gin bindings for it alone follow a semicolon: 'celo.msgpack; Case.learned_optimizer = @Celo()'

\b
Examples:
  lobench compare runs/yesterday/lobench_results/quick runs/today/lobench_results/quick
  lobench compare 100 200 --store runs/today/lobench_results/quick
  lobench compare SGD 'Adam, tuned' --store .lobench/experiment
  lobench compare muon soap --store runs/imported --target val/loss=3.28
  lobench compare dm.npz dm_cl.npz --suite suites/digits --gin-param 'Case.learned_optimizer = @L2ODM()'

Exit codes: 0, 1 one of B, C, ... regressed against A (with --strict: or it is undecided), 2 usage."""
)
@click.argument("subjects", nargs=-1, required=True, metavar="A B [C ...]")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Where A, B, ... are; with --suite, where evaluations go and are kept (default: .lobench/compare/SUITE).",
)
@click.option("--suite", "suites", multiple=True, help="Evaluate checkpoints and optimizers on it; may be given again.")
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Suite, or file of baselines, that says what 1 on the scale is (default: the --suite's, or that of the "
    "suites which the stores name, below this folder).",
)
@click.option("--metric", "metrics", multiple=True, help="Default: the primary metric, train/loss and test/loss.")
@click.option(
    "--margin",
    default=None,
    type=BoundedNumber(0, 3),
    help="Harm to the score that the gate tolerates (default: 0.05 on a log scale, 0.02 on a linear one).",
)
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    type=BoundedNumber(0.0001, 0.5),
    help="Chance of a false alarm; intervals are of level 1 - alpha.",
)
@click.option(
    "--max-diverged",
    default=1.0,
    type=BoundedNumber(0, 1),
    help="PASS rules out that a larger share of B's seeds diverges, as 0.1 (default: the bound is printed, no more).",
)
@click.option(
    "--target",
    metavar="[METRIC=]VALUE",
    help="After how many steps is either there? Of the primary metric if none is said.",
)
@click.option("--strict", is_flag=True, help="An undecided gate is exit code 1 too.")
@format_option("table", "json", prints={"compare": "lobench.report.tables.comparison:ComparisonRecords"})
@click.option("--workers", default="auto", show_default=True, help="With --suite: worker processes.")
@click.option("--gin-file", "gin_files", multiple=True, help="With --suite: gin file bound over the suite's own.")
@click.option("--gin-param", "gin_params", multiple=True, help="With --suite: gin binding over everything else.")
def compare(subjects: tuple[str, ...], strict: bool, kind: str, **options: object) -> None:
    """Is B better than A, on which cases, by how much, and is that noise? The gate's verdict is the exit code."""
    from lobench.api.compare import compare as compared
    from lobench.report.tables.comparison import comparison_records, comparison_text

    found = logged_aside(compared, *subjects, **options)
    if kind == "json":
        emit("compare", comparison_records(found.pairs, scale=found.scale, steps=found.steps))
    else:
        click.echo(comparison_text(found.pairs, scale=found.scale, steps=found.steps))
    bad = {"REGRESSED", "INCONCLUSIVE"} if strict else {"REGRESSED"}
    sys.exit(ExitCode.VERDICT if bad.intersection(found.verdicts()) else ExitCode.OK)
