"""`lobench baseline`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["baseline"]


@click.command(
    epilog="""\b
Examples:
  lobench baseline suites/quick
  lobench baseline suites/quick --optimizer adam --optimizer nadamw
  lobench baseline suites/quick --optimizer adamw --grid algoperf
  lobench baseline suites/quick --check

Exit codes: 0 all fresh, 1 with --check: some are stale or missing, 2 usage."""
)
@click.argument("suites", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="SUITE...")
@click.option("--optimizer", "optimizers", multiple=True, default=("adam",), help="Name in gin; may be given again.")
@click.option("--grid", default="velo", show_default=True, help="velo, algoperf, or a JSON file of points.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=2), help="Seeds of every point.")
@click.option("--horizon-factor", default=10, show_default=True, type=click.IntRange(min=1), help="Times the budget.")
@click.option("--case", "cases", multiple=True, help="Only this scope; may be given again.")
@click.option("--force", is_flag=True, help="Make again what is fresh.")
@click.option("--check", is_flag=True, help="Make nothing; say what is stale or missing.")
def baseline(
    suites: tuple[Path, ...],
    optimizers: tuple[str, ...],
    grid: str,
    seeds: int,
    horizon_factor: int,
    cases: tuple[str, ...],
    force: bool,
    check: bool,
) -> None:
    """Tune baselines on the cases of SUITE and keep them beside it, in SUITE/baselines; what is fresh stays.

    A change of Case.scale or Case.minimum, and a file that lacks where its seeds began, need step 0 alone.
    """
    from lobench.sessions.baseline import BaselineCommand, check_baselines, make_baselines

    command = BaselineCommand(
        optimizers=optimizers,
        grid=grid,
        seeds=seeds,
        horizon_factor=horizon_factor,
        only=frozenset(cases),
        force=force,
    )
    for suite in suites:
        if check:
            problems = check_baselines(suite, command)
            for line in problems:
                click.echo(line)
            if problems:
                sys.exit(1)
        else:
            make_baselines(suite, command, click.echo)
