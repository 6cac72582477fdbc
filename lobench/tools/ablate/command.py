"""Options and output of `lobench ablate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lobench.cli.options import evaluation_options, options_of
from lobench.cli.output import call_with_progress, emit, format_option, show
from lobench.tools.ablate.ablate_settings import AblateSettings

__all__ = ["ablate"]


@click.command(
    epilog="""\b
Examples:
  lobench ablate 'adam()' 'adam(); adam.learning_rate = 0.01; adam.b1 = 0.8; adam.eps = 1e-6' --suite quick
  lobench ablate old tuned --store runs/tuning --suite quick --margin 0.02
  lobench ablate 'theta.npz' 'theta.npz; LSTMOptimizer.scale = 0.1' --suite quick --format json
  lobench ablate experiment.gin                          # the method that lists knobs, or its two methods
  lobench ablate experiment.gin --method plain --method tuned

Exit codes: 0; 2 usage, or an evaluation gave no result."""
)
@click.argument("a", metavar="A|EXPERIMENT.gin")
@click.argument("b", required=False)
@click.option("--suite", "suites", multiple=True, help="Suite to compare A and B on; repeatable.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    help="Method of the experiment: A, then B; or the one whose knobs are tested (default: the one that has knobs, or "
    "both of two).",
)
@options_of(AblateSettings)
@click.option("--baseline", "baselines", multiple=True, help="As in `lobench compare`.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Store for the evaluations (default: .lobench/ablate/SUITE, or .lobench/ablate/EXPERIMENT).",
)
@evaluation_options
@format_option(
    "text", "json", name="output_format", prints={"ablate": "lobench.tools.ablate.ablate_output:AblateRecord"}
)
def ablate(a: str, b: str | None, output_format: str, **options: Any) -> None:
    """Find which of the settings that differ between A and B matter, and what each is worth.

    A and B are given here, or listed by an experiment: two of its methods, or one method and its knobs
    (`adam/Method.knobs = ["adam.b1 = 0.8", "adam.eps = 1e-6"]`).

    From B, settings are removed as long as the rest is equivalent to B; this gives the smallest set. From A, the
    setting that gains most is added first. The table shows what each setting gains alone, and what B loses without it.
    """
    from lobench.tools.ablate.ablate import ablate as run_ablate
    from lobench.tools.ablate.ablate_output import ablate_record, ablate_text

    result = call_with_progress(run_ablate, a, b, **options)
    emit("ablate", ablate_record(result)) if output_format == "json" else show(ablate_text(result))
