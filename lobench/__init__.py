"""lobench: pytest for learned optimizers.

The public names are loaded when they are first used, so that `import lobench` imports neither jax nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lobench.analysis.intervals import Interval, stratified_t_mean
    from lobench.core.case import Case, CaseInfo, SeedBlock
    from lobench.core.checkpoint import Checkpoint, CheckpointContent, SeenCheckpoint
    from lobench.core.errors import (
        CheckpointError,
        CheckpointGone,
        ConfigError,
        LobenchError,
        PickleRefused,
        PluginError,
        StoreError,
        SuiteError,
        ThetaMismatch,
    )
    from lobench.core.result import Curves, Outcome
    from lobench.engine.checkpoint_files import content_of, flatten, reading
    from lobench.engine.gin_config import Layers
    from lobench.engine.parcel import Parcel
    from lobench.engine.pool import Executor, LocalPool, Message, WorkerConfig
    from lobench.engine.result import Result
    from lobench.engine.suite import cases
    from lobench.evaluation.notebook import evaluate
    from lobench.hookspecs import hookimpl
    from lobench.inner.configurable import configurable
    from lobench.inner.optimizer import LearnedOptimizer
    from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily

__version__ = "0.1.0"

_HOMES = {
    "lobench.analysis.intervals": ("Interval", "stratified_t_mean"),
    "lobench.core.case": ("Case", "CaseInfo", "SeedBlock"),
    "lobench.core.checkpoint": ("Checkpoint", "CheckpointContent", "SeenCheckpoint"),
    "lobench.core.errors": (
        "CheckpointError",
        "CheckpointGone",
        "ConfigError",
        "LobenchError",
        "PickleRefused",
        "PluginError",
        "StoreError",
        "SuiteError",
        "ThetaMismatch",
    ),
    "lobench.core.result": ("Curves", "Outcome"),
    "lobench.hookspecs": ("hookimpl",),
    "lobench.inner.configurable": ("configurable",),
    "lobench.inner.optimizer": ("LearnedOptimizer",),
    "lobench.engine.checkpoint_files": ("content_of", "flatten", "reading"),
    "lobench.engine.gin_config": ("Layers",),
    "lobench.engine.parcel": ("Parcel",),
    "lobench.engine.pool": ("Executor", "LocalPool", "Message", "WorkerConfig"),
    "lobench.engine.result": ("Result",),
    "lobench.inner.task": ("ArrayDataset", "Datasets", "IteratorDataset", "SampledDataset", "Task", "TaskFamily"),
    "lobench.evaluation.notebook": ("evaluate",),
    "lobench.engine.suite": ("cases",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrayDataset",
    "Case",
    "CaseInfo",
    "Checkpoint",
    "CheckpointContent",
    "CheckpointError",
    "CheckpointGone",
    "ConfigError",
    "Curves",
    "Datasets",
    "Executor",
    "Interval",
    "IteratorDataset",
    "Layers",
    "LearnedOptimizer",
    "LobenchError",
    "LocalPool",
    "Message",
    "Outcome",
    "Parcel",
    "PickleRefused",
    "PluginError",
    "Result",
    "SampledDataset",
    "SeedBlock",
    "SeenCheckpoint",
    "StoreError",
    "SuiteError",
    "Task",
    "TaskFamily",
    "ThetaMismatch",
    "WorkerConfig",
    "cases",
    "configurable",
    "content_of",
    "evaluate",
    "flatten",
    "hookimpl",
    "reading",
    "stratified_t_mean",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'lobench' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
