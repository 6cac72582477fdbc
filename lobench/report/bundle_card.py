"""Card of a bundle in Markdown, made from its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.scores.baseline_file import find_baselines
from lobench.analysis.store.methods import read_snapshots
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.wording import counted
from lobench.engine.config.origin import files_of_patch
from lobench.engine.store.ledger import Ledger
from lobench.report.tables.appendix import appendix_markdown
from lobench.report.tables.method_table import method_text
from lobench.report.tables.text import code_block
from lobench.report.tables.verdict import verdict_text

__all__ = ["card_of", "folders_with_baselines", "patch_files_of"]

_NOT_SHOWN = (
    "Whether the tasks represent yours: the results are of these cases, these budgets and these seeds.",
    "Whether anything else was tried: runs in other stores, or before the plan was written, are not included.",
    "Whether the author computed the results: `lobench audit` repeats evaluations that a public beacon draws.",
    "Times on other machines than those that are named.",
)
_MARK = (
    "Numbers of the author, which had not been reproduced when this was written: `lobench audit` shows which of them "
    "come out here. Times, machines and versions cannot be audited."
)


def card_of(store: Path, baselines: Sequence[Path], left_out: Sequence[str], patch_files: Sequence[str]) -> str:
    """Returns the card of a store, with a part for each experiment and one for results outside of experiments.

    Args:
      store: Folder of the store, or a bundle.
      baselines: Folders of suites whose own baselines define the scale.
      left_out: A line for each part that is missing in the bundle.
      patch_files: Files of the patches of uncommitted changes in the bundle.
    """
    snapshots = read_snapshots(store)
    parts = ["# What this bundle claims", _MARK]
    is_split = len(snapshots) > 1
    if is_split:
        names = [snapshot.experiment.name for snapshot in snapshots if snapshot.experiment.name]
        unused_note = ", then results that none of them uses" * (len(names) < len(snapshots))
        parts.append(
            f"It holds {counted(len(names), 'experiment')}: {', '.join(f'`{name}`' for name in names)}{unused_note}."
        )
    for snapshot in snapshots:
        if is_split:
            name = snapshot.experiment.name
            parts.append(f"## Experiment `{name}`" if name else "## Results of no experiment")
        parts += _parts_of(store, snapshot, baselines, level=2 + is_split)
    parts += ["## Left out", "\n".join(f"- {line}" for line in left_out) or "Nothing, according to the ledger."]
    if patch_files:
        text = "The ledger has the patch of uncommitted changes in these files:"
        parts += ["## Uncommitted changes in it", text, "\n".join(f"- `{name}`" for name in patch_files)]
    parts += ["## What it does not show", "\n".join(f"- {line}" for line in _NOT_SHOWN)]
    return "\n\n".join(parts) + "\n"


def _parts_of(store: Path, snapshot: Snapshot, baselines: Sequence[Path], *, level: int) -> list[str]:
    """Returns the verdict, the scores and the appendix of a part of a store. Their headings have the given level."""
    summary = summary_of(store, baselines, snapshot=snapshot)
    bundle_summary = Summary(dataclasses.replace(summary.snapshot, store=Path("this bundle")), summary.scales)
    scores = [f"{'#' * level} Scores", code_block(method_text(tabulate(summary)))]
    return [code_block(verdict_text(bundle_summary)), *scores, appendix_markdown(summary, level).strip()]


def patch_files_of(ledger: Ledger) -> list[str]:
    """Returns the files in a ledger's patches of uncommitted changes."""
    patches = [
        experiment.revision.patch for experiment in ledger.experiments() if experiment.revision.patch is not None
    ]
    return sorted({name for patch in patches for name in files_of_patch(patch)})


def folders_with_baselines(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders of suites with baselines, sorted by name."""
    with_baseline = [folder for folder in folders if find_baselines(folder)]
    return sorted(with_baseline, key=lambda folder: (folder.name, str(folder)))
