"""Options and output of `lobench audit`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.output import call_with_progress, emit, format_option, show

__all__ = ["audit"]


@click.command(
    epilog="""\b
Examples:
  lobench audit results.lobench
  lobench audit results.lobench --sample 5% --beacon "drand 5216384 9f0c..."
  lobench audit results.lobench --sample 20 --beacon "..." --allowed-signers signers --format json

Exit codes: 0, 1 something contradicts itself or differs, 2 usage, or not a bundle."""
)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--sample",
    default="100%",
    show_default=True,
    help="Share or number of evaluations to repeat, such as 5% or 20; 0: none.",
)
@click.option("--beacon", default="", help="Public text, unknown when the root was published, that draws the sample.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(min=1), help="Evaluations at once.")
@click.option(
    "--allowed-signers",
    type=click.Path(exists=True, path_type=Path),
    help="File of allowed signers, as for `ssh-keygen -Y verify`; other bundles are refused.",
)
@format_option("text", "json", name="output_format", prints={"audit": "lobench.tools.audit.audit_output:AuditRecord"})
def audit(
    bundle: Path, sample: str, beacon: str, workers: int, allowed_signers: Path | None, output_format: str
) -> None:
    """Check a bundle, and repeat evaluations drawn by a public beacon.

    First, the records of the bundle are checked against each other: its root, the plan, the card, each field of each
    case, labels, hashes of thetas and of the suites' files. Then evaluations are repeated. The verdict names all claims
    that cannot be checked.

    The same program on the same class of processor gives the same bits, or the result differs. The result of another
    program is compared with trainings here whose parameters are perturbed in the last place: a result is consistent if
    it is as near as these. The command runs the Python code of the suites in the bundle: use a container for bundles of
    people that you do not trust.
    """
    from lobench.tools.audit.audit import audit as run_audit
    from lobench.tools.audit.audit_output import audit_record, audit_text

    audit_result = call_with_progress(
        run_audit, bundle, sample=sample, beacon=beacon, workers=workers, allowed_signers=allowed_signers
    )
    emit("audit", audit_record(audit_result)) if output_format == "json" else show(audit_text(audit_result))
    if not audit_result.is_passed:
        raise click.exceptions.Exit(ExitCode.VERDICT)
