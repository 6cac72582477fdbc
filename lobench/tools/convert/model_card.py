"""Model card of an exported checkpoint: a README.md with the evaluations that the ledgers hold of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.store.snapshot import read_store
from lobench.api.resolve import find_training_setup
from lobench.core.subject import optimizer_bindings
from lobench.core.wording import counted
from lobench.engine.checkpoints.given import given_checkpoint
from lobench.engine.checkpoints.spool import checkpoint_sha256
from lobench.engine.store.bundle import has_ledger, split_store_and_name
from lobench.report.tables.text import code_block, interval_cell, markdown_line, markdown_table

__all__ = ["CARD", "ExportedCheckpoint", "model_card"]

CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCheckpoint:
    """A checkpoint to export, with its name in the card.

    Attributes:
      location: Path or URL of the checkpoint.
      sha256: Hash of theta, under which stores hold its evaluations.
      optimizer: Class of its optimizer.
      bindings: gin statements that override the `config.gin`.
      config: Content of the `config.gin` that a watch bound, or else of the `config.gin` next to the checkpoint, with
        the files that it includes; "" without a `config.gin`.
      stores: Stores that may hold evaluations of it.
    """

    location: str
    sha256: str
    optimizer: str
    bindings: tuple[str, ...]
    config: str
    stores: tuple[Path, ...]

    @classmethod
    def find(cls, text: str, name: str, optimizer: str, stores: Sequence[Path]) -> ExportedCheckpoint:
        """Finds a checkpoint by its path or as `STORE@NAME`.

        Args:
          text: The path or name.
          name: Class of its optimizer.
          optimizer: The class with its settings, if the user gave it: "ELO(step_mult=0.1)".
          stores: Stores to look into. (): that of the name, or those in `lobench_results` next to the checkpoint.
        """
        training_setup = find_training_setup(text, "checkpoint", None)
        config = training_setup.trainer_config
        if config is None:
            config = given_checkpoint(training_setup.checkpoint).variant.trainer_config or ""
        store_path = split_store_and_name(text)[0]
        bindings = optimizer_bindings(optimizer, "learned_optimizer") if optimizer else ()
        store_paths = (
            [Path(store_path)]
            if has_ledger(store_path)
            else sorted(Path(training_setup.checkpoint).parent.glob("lobench_results/*"))
        )
        return cls(
            location=training_setup.checkpoint,
            sha256=checkpoint_sha256(training_setup.checkpoint),
            optimizer=name,
            bindings=(*training_setup.gin_params, *bindings),
            config=config,
            stores=tuple(stores) or tuple(path for path in store_paths if has_ledger(path)),
        )


def model_card(exported: ExportedCheckpoint, usage: str) -> str:
    """Returns the card in Markdown, with the front matter of the Hugging Face hub.

    The numbers are those of `lobench report`: scores are means over seeds with 95% intervals.

    Args:
      exported: The checkpoint.
      usage: Instructions to load the export, in Markdown.
    Raises:
      StoreError: One of the stores cannot be read.
    """
    name = Path(exported.location).name
    bindings = exported.bindings
    config = [line for line in exported.config.splitlines() if line not in bindings]  # the last binding counts
    sections = [
        "---\ntags:\n- learned-optimizer\n- lobench\n---",
        f"# {markdown_line(exported.optimizer)}, {markdown_line(name)}",
        f"A learned optimizer, exported by lobench. sha256 of theta: `{exported.sha256}`",
        usage,
        "## Bindings",
        code_block("\n".join([*config, *bindings]) or "# none: the defaults", "gin"),
        "## Evaluations",
    ]
    evaluations = [section for store in exported.stores for section in _evaluations_in(store, exported.sha256)]
    sections += evaluations or ["No store with evaluations of this theta was found; `--store` names one."]
    return "\n\n".join(sections) + "\n"


def _evaluations_in(store: Path, sha256: str) -> list[str]:
    """Returns a section for each variant of a checkpoint in a store."""
    summary = summary_of(store, snapshot=read_store(store, summarized=True))
    return [
        _variant_section(summary, subject)
        for subject, stored_subject in enumerate(summary.snapshot.subjects)
        if stored_subject.subject.has_theta and stored_subject.subject.sha256 == sha256
    ]


def _variant_section(summary: Summary, subject: int) -> str:
    stored_subject = summary.snapshot.subjects[subject]
    rows = [("case", "inner steps", "seeds", "diverged", "metric", "final mean", "score", "case's hash")]
    for case, info in enumerate(summary.snapshot.cases):
        if (case_summary := summary.case_finding(subject, case, None)) is not None:
            metric = summary.metric_of(case, "primary")
            steps = str(info.num_inner_steps)
            seeds = str(case_summary.num_seeds)
            diverged = str(case_summary.num_diverged)
            final = f"{case_summary.final_means.get(metric, float('nan')):.4g}"
            score = interval_cell(case_summary.scores.get("primary"))
            case_name = f"{info.suite}/{info.name}"
            rows.append((case_name, steps, seeds, diverged, metric, final, score, info.identity[:12]))
    headline = summary.mean_score(subject, "primary")
    mean = f"Mean score: {interval_cell(headline.interval)} over {counted(headline.num_cases, 'case')}"
    scale = f"{summary.scale_label}; intervals are of 95%, over seeds"
    revisions = ", ".join(sorted(filter(None, stored_subject.git_revisions)))
    variant = (
        code_block("\n".join(stored_subject.subject.variant.bindings), "gin")
        if stored_subject.subject.variant.bindings
        else ""
    )
    revisions_text = f"Code of the evaluations: git {markdown_line(revisions)}." if revisions else ""
    heading = f"### {markdown_line(stored_subject.label)}"
    return "\n\n".join(
        filter(None, [heading, f"{mean} ({markdown_line(scale)}).", variant, markdown_table(rows), revisions_text])
    )
