"""Options and output of `lobench baseline`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import click

from lobench.api.settings import BaselineSettings
from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import options_of
from lobench.cli.output import emit, format_option

__all__ = ["BaselineRecord", "StaleRecord", "baseline"]


class BaselineRecord(TypedDict):
    """`lobench baseline`: the files of the baselines."""

    files: list[Path]


class StaleRecord(TypedDict):
    """JSON output of `lobench baseline --check`: stale and missing baselines."""

    problems: Annotated[list[str], "One line for each problem. Empty if all baselines are up to date."]


@click.command(
    epilog="""\b
Examples:
  lobench baseline quick
  lobench baseline suites/mine
  lobench baseline suites/quick --optimizer adam --optimizer nadamw
  lobench baseline suites/quick --optimizer adamw --grid algoperf
  lobench baseline suites/quick --optimizer prodigy --grid defaults
  lobench baseline suites/quick --search auto_ic_grid --num-trials 40 --vary 'b1 = [0.5, 0.9, 0.95]' \\
    --vary 'learning_rate = Real(1e-5, 1.0, scale="log", num_values=5)'
  lobench baseline suites/quick --check

Exit codes: 0 all fresh, 1 with --check: some are stale or missing, 2 usage."""
)
@click.argument("suites", nargs=-1, required=True, metavar="SUITE...")
@options_of(BaselineSettings)
@format_option(
    "text",
    "json",
    prints={
        "baseline": f"{__name__}:BaselineRecord",
        "baseline.check": f"{__name__}:StaleRecord",
    },
)
@click.option("--check", is_flag=True, help="Tune nothing; print stale and missing baselines.")
def baseline(suites: tuple[str, ...], check: bool, kind: str, **options: Any) -> None:
    """Tune baselines on the cases of SUITE, and write them to SUITE/baselines. Baselines that are up to date stay.

    A change of Case.scale or Case.minimum trains nothing. For a file of an older lobench the best points are evaluated
    again, and the grid is kept if it would be trained in the same way now.
    """
    from lobench.engine.config.shipped import find_suite
    from lobench.experiments.baseline import baseline as make
    from lobench.experiments.baseline import problems_in
    from lobench.report.live.progress import PlainProgress

    if not check:
        files = make(suites, progress=PlainProgress(sys.stdout), **options)
        if kind == "json":
            emit("baseline", BaselineRecord(files=files))
        return
    settings = BaselineSettings(**options)
    problems = [line for suite in suites for line in problems_in(find_suite(suite), settings)]
    for line in problems:
        click.echo(line)
    if not problems:
        click.echo("all baselines are up to date")
    if kind == "json":
        emit("baseline.check", StaleRecord(problems=problems))
    sys.exit(ExitCode.VERDICT if problems else ExitCode.OK)
