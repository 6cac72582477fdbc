"""Options and output of `lobench history`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.cli.options import BoundedNumber, OutputPath
from lobench.cli.output import emit, format_option, show

__all__ = ["history"]


class _StorePath(click.Path):
    """Path of a store. The error for a case names the options that it belongs to."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        if not path.exists() and path.parent.suffix == ".gin" and path.parent.is_file():
            self.fail(
                f"{value!r} is a case, and not a store; write `lobench history STORE --case {path.name}`, where STORE "
                "has its results, such as .lobench",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


@click.command(
    epilog="""\b
Examples:
  lobench history nightly --case relu32 --subject 'adam(); adam.learning_rate = 0.01'
  lobench history nightly --case quick/relu32 --subject 'adam()' --output history.html

Exit codes: 0, whatever it found; 2 usage, or no such case."""
)
@click.argument("stores", nargs=-1, required=True, type=_StorePath(path_type=Path), metavar="STORE...")
@click.option("--case", required=True, help="relu32, quick/relu32 or digits.relu32.")
@click.option(
    "--subject",
    default="",
    help="Name of the subject, as in `lobench compare` (default: the only one, or the last checkpoint of each run).",
)
@click.option("--metric", default="", help="Default: the case's primary one.")
@click.option(
    "--probability",
    default=0.95,
    show_default=True,
    type=BoundedNumber(0.5, 0.9999),
    help="Probability from which a change is reported.",
)
@click.option("--output", type=OutputPath(), help="A page with the chart.")
@format_option("text", "json", name="output_format", prints={"history": "lobench.tools.history.history:HistoryRecord"})
def history(
    stores: tuple[Path, ...],
    case: str,
    subject: str,
    metric: str,
    probability: float,
    output: Path | None,
    output_format: str,
) -> None:
    """Show a case over revisions, and the revisions at which its score changed.

    For nightly runs of a library of optimizers: each STORE is a store, a bundle, or a folder with stores below it. A
    run consists of the results of one program at one revision. The scores of common seeds are compared by the rule of
    `lobench bisect`, falls and rises alike. If the program changes, for example with the version of jax, a line says
    so, because a change of the score there need not come from the revision.
    """
    from lobench.tools.history.history import history_of
    from lobench.tools.history.history_output import history_record, history_text, write_history_page

    case_history = history_of(stores, case, subject=subject, metric=metric, probability=probability)
    if output is not None:
        write_history_page(case_history, output)
    emit("history", history_record(case_history)) if output_format == "json" else show(history_text(case_history))
