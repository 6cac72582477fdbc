"""Text of a failed expectation: curves as rows of bars, and the final value of each seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lobench.core.case import CaseInfo
from lobench.core.result import Curves
from lobench.drawing.curves import evenly_spaced_indices, sparkline
from lobench.report.tables.text import text_table

__all__ = ["curve_lines"]

_MOST_METRICS = 3
_MOST_SEEDS = 12
_MOST_BARS = 32


def curve_lines(case: CaseInfo, blocks: Sequence[Curves], message: str = "") -> list[str]:
    """Returns a line for each relevant metric: its mean curve, and the final values of seeds.

    For example `train/loss  █▆▄▂▁  2.31 to 0.412; by seed  0: 0.398  1: 0.426  2: diverged at step 120`.

    Args:
      case: The case.
      blocks: Curves of its seed blocks.
      message: Failed expectation. Metrics named in it are shown besides the primary one.
    """
    metric_names = [name for block in blocks[:1] for name in block.metrics if not name.startswith("batch/")]
    relevant = [case.primary_metric, *(name for name in sorted(metric_names) if name in message)]
    names = [name for name in dict.fromkeys(relevant) if all(name in block.metrics for block in blocks)][:_MOST_METRICS]
    return text_table([(name, _metric_line(name, blocks)) for name in names], width=0).splitlines()


def _metric_line(name: str, blocks: Sequence[Curves]) -> str:
    curve = np.concatenate([np.asarray(block.metrics[name], np.float64) for block in blocks]).mean(axis=0)
    bars = sparkline(curve[evenly_spaced_indices(len(curve), _MOST_BARS)])
    replicates = [
        (replicate, f"{value:.4g}" if diverged_step < 0 else f"diverged at step {diverged_step}", value)
        for block in blocks
        for replicate, value, diverged_step in zip(
            block.items or block.seeds, block.final(name), block.diverged_at, strict=True
        )
    ]
    replicate_texts = [f"{replicate}: {text}" for replicate, text, _ in replicates[:_MOST_SEEDS]]
    if unlisted := [value for *_, value in replicates[_MOST_SEEDS:]]:
        finite = [value for value in unlisted if math.isfinite(value)]
        replicate_texts.append(
            f"{len(unlisted)} more" + (f" from {min(finite):.4g} to {max(finite):.4g}" if finite else "")
        )
    kind = "item" if any(block.items for block in blocks) else "seed"
    return f"{bars}  {curve[0]:.4g} to {curve[-1]:.4g}; by {kind}  {'  '.join(replicate_texts)}"
