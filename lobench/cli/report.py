"""`lobench report`."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["report"]

_FORMATS = ("html", "latex", "png", "pdf")


@click.command(
    epilog="""\b
Examples:
  lobench report --store runs/today/lobench/quick --output report.html
  lobench report --store runs/today/lobench/quick --baseline suites/quick --output report.html
  lobench report --store runs/today/lobench/quick --format latex --output table.tex --precision 3
  lobench report --store runs/today/lobench/quick --format pdf --output figures"""
)
@click.option("--store", required=True, type=click.Path(path_type=Path), help="Result store; it may be in use.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="File; for png and pdf a folder.")
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="html", show_default=True)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Suite, or a file of its baselines; may be given again (default: the suites that the store names).",
)
@click.option("--precision", default=3, show_default=True, type=click.IntRange(1, 8), help="With latex: digits.")
def report(store: Path, output: Path, kind: str, baselines: tuple[Path, ...], precision: int) -> None:
    """Write a report of a store: a web page in one file, a LaTeX table, or figures for a paper."""
    from lobench.report.gathered import gather

    paths, gathered = [output], gather(store, baselines or None)
    if kind == "html":
        from lobench.report.page import write_page

        write_page(gathered, output)
    elif kind == "latex":
        from lobench.report.latex import write_latex

        write_latex(gathered, output, precision=precision)
    else:
        from lobench.report.figures import write_figures

        paths = write_figures(gathered, output, kind)
    for path in paths:
        click.echo(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
