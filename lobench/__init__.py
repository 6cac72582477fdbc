"""lobench: pytest for learned optimizers.

Public names for suites and notebooks. `lobench.extend` has further names for plugins. Each name is loaded on first use,
so that `import lobench` imports neither jax nor pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lobench.core.lazy import on_first_use

if TYPE_CHECKING:
    from lobench.analysis.tables.frames import CaseCurves, StoredResults, open_results
    from lobench.api.compare import compare
    from lobench.api.evaluate import evaluate
    from lobench.api.load_optimizer import load_optimizer
    from lobench.api.race import race
    from lobench.api.wait import wait_for_evaluations
    from lobench.api.watch import watch
    from lobench.core.case import Case
    from lobench.core.errors import (
        CheckpointError,
        ConfigError,
        LobenchError,
        StoreError,
        SuiteError,
        ThetaMismatch,
        UsageError,
    )
    from lobench.core.phases import Phase
    from lobench.core.result import Outcome
    from lobench.engine.config.suite import cases
    from lobench.evaluation.result import Result
    from lobench.experiments.baseline import baseline
    from lobench.experiments.run import run
    from lobench.inner.configurable import configurable
    from lobench.inner.extra_inputs.optimizer_side import with_extra_inputs
    from lobench.inner.optimizer import LearnedOptimizer
    from lobench.inner.schedules.schedule import Schedule
    from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily
    from lobench.inner.tasks.multitask import MultiTask
    from lobench.tools.ablate.ablate import ablate
    from lobench.tools.alarm.alarm import alarm
    from lobench.tools.best.best import best
    from lobench.tools.bisect.bisect import bisect
    from lobench.tools.curve_import.imports import import_curves
    from lobench.tools.falsify.falsify import falsify
    from lobench.tools.keep.keep import keep

__version__ = "0.1.0"

__all__ = [
    "ArrayDataset",
    "Case",
    "CaseCurves",
    "CheckpointError",
    "ConfigError",
    "Datasets",
    "IteratorDataset",
    "LearnedOptimizer",
    "LobenchError",
    "MultiTask",
    "Outcome",
    "Phase",
    "Result",
    "SampledDataset",
    "Schedule",
    "StoreError",
    "StoredResults",
    "SuiteError",
    "Task",
    "TaskFamily",
    "ThetaMismatch",
    "UsageError",
    "ablate",
    "alarm",
    "baseline",
    "best",
    "bisect",
    "cases",
    "compare",
    "configurable",
    "evaluate",
    "falsify",
    "import_curves",
    "keep",
    "load_optimizer",
    "open_results",
    "race",
    "run",
    "wait_for_evaluations",
    "watch",
    "with_extra_inputs",
]

__getattr__ = on_first_use(__name__)


def __dir__() -> list[str]:
    return __all__
