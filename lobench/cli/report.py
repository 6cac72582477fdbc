"""`lobench report`."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["report"]

_FORMATS = ("html", "text", "latex", "png", "pdf")


@click.command(
    epilog="""\b
Examples:
  lobench report --store runs/today/lobench_results/quick --output report.html
  lobench report --store runs/today/lobench_results/quick --baseline suites/quick --output report.html
  lobench report --store runs/today/lobench_results/quick --format text
  lobench report --store runs/today/lobench_results/quick --format latex --output table.tex --precision 3
  lobench report --store runs/today/lobench_results/quick --format pdf --output figures"""
)
@click.option("--store", required=True, type=click.Path(path_type=Path), help="Result store; it may be in use.")
@click.option("--output", type=click.Path(path_type=Path), help="File; for png and pdf a folder; text needs none.")
@click.option("--format", "kind", type=click.Choice(_FORMATS), default="html", show_default=True)
@click.option(
    "--baseline",
    "baselines",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Suite, or a file of its baselines; may be given again (default: the suites that the store names).",
)
@click.option("--precision", default=3, show_default=True, type=click.IntRange(1, 8), help="With latex: digits.")
def report(store: Path, output: Path | None, kind: str, baselines: tuple[Path, ...], precision: int) -> None:
    """Write a report of a store: a web page in one file, its verdict as text, a LaTeX table, or a paper's figures."""
    from lobench.analysis.findings import findings_of
    from lobench.core.errors import UsageError

    if output is None and kind != "text":
        raise UsageError(f"{kind} is not for a terminal", next_step="give --output, or --format text")
    findings = findings_of(store, baselines or None)
    if output is None or kind == "text":
        from lobench.cli.results_output import written
        from lobench.report.verdict import verdict_text

        text = verdict_text(findings)
        if output is None:
            click.echo(text)
        else:
            with written(output):
                output.write_text(text + "\n", encoding="utf-8")
        return
    paths = [output]
    if kind == "html":
        from lobench.report.page import write_page

        write_page(findings, output)
    elif kind == "latex":
        from lobench.report.latex import write_latex

        write_latex(findings, output, precision=precision)
    else:
        from lobench.report.figures import write_figures

        paths = write_figures(findings, output, kind)
    for path in paths:
        click.echo(f"{path}: {path.stat().st_size / 1000:,.0f} kB")
