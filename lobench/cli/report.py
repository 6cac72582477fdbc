"""Options and output of `lobench report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lobench.cli.options import OutputPath, baseline_option, experiment_options, options_of
from lobench.cli.output import emit_text, format_option, json_text, not_printed, warn
from lobench.core.settings_field import option, settings_from

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary
    from lobench.analysis.tables.table import TableSpec
    from lobench.report.tables.latex import Numbers

__all__ = ["report"]

_FOLDER_FORMATS = ("png", "pdf")
_FORMATS = ("html", "text", "json", "latex", "png", "pdf", "appendix", "badge")
_FORMATS_BY_SUFFIX = {  # possible formats by suffix; the first one is the default
    **dict.fromkeys((".html", ".htm"), ("html",)),
    ".tex": ("latex", "appendix"),
    ".txt": ("text",),
    ".json": ("json",),
    ".md": ("appendix", "text"),
    ".svg": ("badge",),
    ".pdf": ("pdf",),
    ".png": ("png",),
}
_FORMATS_WITH_NOTES = ("html", "text", "latex")
_PRINTED_FORMATS = ("text", "json", "latex", "appendix", "badge")  # formats allowed without --output


@dataclass(frozen=True, slots=True, kw_only=True)
class LatexSettings:
    """Options of a LaTeX table, under the same names."""

    width: str = option("", r"With latex: split the table to this width: \linewidth, \textwidth, or 3.3in.")
    numbers: Numbers = option("plain", "With latex: format of numbers.", choices=("plain", "siunitx"))
    precision: int = option(3, "With latex: number of digits.", least=1, most=8)


@click.command(
    epilog="""\b
Examples:
  lobench report --store runs/today/lobench_results/quick --output report.html
  lobench report --store runs/today/lobench_results/quick --baseline suites/quick --output report.html
  lobench report --store runs/today/lobench_results/quick --format text
  lobench report --store runs/today/lobench_results/quick --format latex --output table.tex --precision 3
  lobench report --store .lobench/experiment --format latex --width '\\linewidth' --output table.tex
  lobench report --store .lobench/experiment --format latex --table table.gin --output table.tex
  lobench report --store runs/today/lobench_results/quick --format pdf --output figures
  lobench report --store .lobench/experiment --method SGD --method 'Adam, tuned' --format text
  lobench report --store .lobench/experiment --format appendix --output appendix.tex
  lobench report --store .lobench/experiment --figure search --format png --output figures"""
)
@click.option(
    "--store", required=True, type=click.Path(path_type=Path), help="Result store; a watch may be writing to it."
)
@click.option(
    "--output",
    type=OutputPath(is_printed=True),
    help="File to write; a folder for png and pdf. Without it, text, json, latex, appendix and badge are printed.",
)
@format_option(
    *_FORMATS,
    name="output_format",
    help="json: the verdict, see `lobench schema`; badge: an SVG; appendix: Markdown, or LaTeX in a .tex.",
    prints={"report": "lobench.cli.command_records:ReportRecord"},
)
@baseline_option
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    help="gin file with `Table.*`: the methods, metrics, groups and names of the table.",
)
@click.option(
    "--figure",
    metavar="NAME",
    help="With html, png, pdf: only these figures: outer, scores, profiles, curves, tasks, matrix, search, a plugin's.",
)
@click.option(
    "--method",
    "selected_methods",
    multiple=True,
    help="Only this method or checkpoint, by label, scope, gin text, path or outer step; repeatable.",
)
@experiment_options
@options_of(LatexSettings)
def report(
    store: Path,
    output: Path | None,
    output_format: str,
    baselines: tuple[Path, ...],
    table: Path | None,
    figure: str | None,
    selected_methods: tuple[str, ...],
    **options: Any,
) -> None:
    """Write a report of a store: a web page in one file, its verdict as text, a LaTeX table, or a paper's figures."""
    from lobench.analysis.comparisons.summary import Summary, summary_of
    from lobench.analysis.store.methods import read_methods, select_subjects
    from lobench.analysis.tables.table import read_table
    from lobench.core.errors import UsageError

    latex = settings_from(LatexSettings, options)
    output_format = _report_format(output_format, output)
    if output is None and output_format not in _PRINTED_FORMATS:
        raise not_printed(output_format, "FOLDER" if output_format in _FOLDER_FORMATS else "FILE, or --format text")
    if figure is not None and output_format in _PRINTED_FORMATS:
        raise UsageError(
            f"{output_format} has no charts", next_step="give --format html, png or pdf, or leave --figure out"
        )
    spec = read_table(table) if table is not None else None
    snapshot = read_methods(store, options["experiment"] or None, include_all=options["every"], summarized=True)
    summary = summary_of(store, baselines or None, snapshot=snapshot)
    # Omitted methods still define the scale.
    summary = Summary(select_subjects(summary.snapshot, selected_methods), summary.scales)
    if output_format not in _FORMATS_WITH_NOTES:
        warn(summary.snapshot.edited_code_line())
    if output is None or output_format in _PRINTED_FORMATS:
        from lobench.cli.results_output import atomic_output
        from lobench.report.tables.text import wrap_lines

        if output_format == "appendix":
            from lobench.report.tables.appendix import appendix_latex, appendix_markdown

            text = (appendix_latex if output is not None and output.suffix == ".tex" else appendix_markdown)(summary)
        elif output_format == "badge":
            from lobench.report.page.badge import badge_svg

            text = badge_svg(summary)
        elif output_format == "latex":
            from lobench.report.tables.latex import latex_table

            text = latex_table(summary, spec, precision=latex.precision, width=latex.width, numbers=latex.numbers)
        else:
            text = _verdict_output(summary, spec, output_format, latex.precision) + "\n"
            # A table of methods has the line.
            if output_format == "text" and (line := summary.snapshot.edited_code_line()) not in text:
                text += f"{line}\n"
        if output is None:
            emit_text(wrap_lines(text) if output_format == "text" else text)
            return
        with atomic_output(output) as file:
            file.write_text(text, encoding="utf-8")
        paths = [output]
    elif output_format == "html":
        from lobench.report.page.page import write_page

        write_page(summary, output, spec, figure)
        paths = [output]
    else:
        from lobench.analysis.tables.tabulate import summary_for_table
        from lobench.report.charts.figures import write_figures

        paths = write_figures(summary_for_table(summary, spec) if spec else summary, output, output_format, figure)
    for path in paths:
        click.echo(f"{path}: {path.stat().st_size / 1000:,.0f} kB")


def _report_format(requested_format: str, output: Path | None) -> str:
    """Returns the format of a report: the requested one, or that of the file's name.

    Raises:
      UsageError: The suffix of the file belongs to another format, or is unknown.
    """
    from lobench.core.errors import UsageError

    if output is None or output.is_dir() or (requested_format in _FOLDER_FORMATS and not output.suffix):
        return requested_format
    is_given = click.get_current_context().get_parameter_source("output_format") is ParameterSource.COMMANDLINE
    formats = _FORMATS_BY_SUFFIX.get(output.suffix.lower(), ())
    if formats and formats[0] in _FOLDER_FORMATS:
        name = formats[0]
        raise UsageError(
            f"--format {name} writes a file for each figure",
            where=str(output),
            expected=f"--format {name} --output FOLDER",
        )
    if not is_given and formats:
        return formats[0]
    if (formats and requested_format not in formats) or (not is_given and output.suffix):
        raise UsageError(
            f"a report of format {requested_format} has another suffix",
            where="--output",
            got=str(output),
            expected=" or ".join(
                sorted(suffix for suffix, formats in _FORMATS_BY_SUFFIX.items() if requested_format in formats)
            ),
        )
    return requested_format


def _verdict_output(summary: Summary, spec: TableSpec | None, output_format: str, precision: int) -> str:
    """Returns the verdict, and the table of methods if there are several, as text or as JSON."""
    from lobench.analysis.tables.table import TableSpec
    from lobench.analysis.tables.tabulate import tabulate
    from lobench.cli.command_records import verdict_record
    from lobench.report.tables.method_table import method_records, method_text
    from lobench.report.tables.verdict import verdict_text

    text = verdict_text(summary)
    shows_table = spec is not None or summary.snapshot.groups.has_several_methods
    table = tabulate(summary, spec or TableSpec(costs=True), digits=precision) if shows_table else None
    if output_format == "json":
        return json_text("report", verdict_record(summary, method_records(table) if table is not None else []))
    return text if table is None else f"{text}\n\n{method_text(table)}"
