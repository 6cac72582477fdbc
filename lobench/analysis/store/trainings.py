"""Names of the trainings of curves. Curves with a common name share a training, or its randomness.

See `lobench.analysis.store.case_groups` for the rules.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from lobench.core.curve_summary import CurveSummary
from lobench.core.result import Curves

__all__ = ["ITEM_DRAWS", "LOBENCH_SEEDS", "trainings_of"]

LOBENCH_SEEDS = "lobench"  # draws of seeds that lobench trained
ITEM_DRAWS = "items"  # draws of the items of a data set, which are the same for every subject

# Kinds of files with runs of a logger. Stores of older lobench versions have only the run.
_LOGGERS = ("wandb-chart", "wandb-history", "wandb-run", "tensorboard", "tensorboard-csv", "mlflow", "nanogpt")


def trainings_of(curves: Iterable[Curves | CurveSummary]) -> frozenset[str]:
    """Returns the names of the trainings of curves; empty if they share none with any other curves."""
    names = [*map(_training_names, curves)]
    return names[0] if len(names) == 1 else frozenset().union(*names)


def _training_names(curves: Curves | CurveSummary) -> frozenset[str]:
    origin = curves.origin.imported
    if not origin:
        return _single_training(curves.training)
    names = set[str]()
    draws = origin.get("draws", "")
    if draws and draws != LOBENCH_SEEDS:
        names.add(f"seeds of {draws}")
    if training := origin.get("training", ""):
        names.add(training)
    elif origin.get("kind", "") in _LOGGERS:
        names.add(f"{origin.get('file', '')}: {origin.get('run', '')}")
    return frozenset(names)


@functools.lru_cache(maxsize=1024)  # thousands of curves share a few names
def _single_training(training: str) -> frozenset[str]:
    return frozenset(filter(None, [training]))
