"""lobench: pytest for learned optimizers.

The public names are loaded when they are first used, so that `import lobench` imports neither jax nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lobench.analysis.frames import CaseCurves, StoredResults, open_results
    from lobench.analysis.intervals import Interval, stratified_t_mean
    from lobench.core.case import Case, CaseInfo, CaseSpec, SeedBlock
    from lobench.core.checkpoint import Checkpoint, CheckpointContent, SeenCheckpoint
    from lobench.core.draws import Draws, fold
    from lobench.core.errors import (
        CheckpointError,
        CheckpointGone,
        ConfigError,
        LobenchError,
        PickleRefused,
        PluginError,
        StoreBusy,
        StoreError,
        SuiteError,
        ThetaMismatch,
        UsageError,
    )
    from lobench.core.metric import Direction
    from lobench.core.population import Member, Objective, Pool, Selection, better, oriented, rank, weighted
    from lobench.core.result import Curves, Outcome
    from lobench.engine.checkpoints.files import content_of, flatten, is_settled, reading
    from lobench.engine.checkpoints.spool import checkpoint_sha256
    from lobench.engine.config.bound import bind_case
    from lobench.engine.config.layers import Layers
    from lobench.engine.config.suite import cases, specs_in
    from lobench.engine.config.syntax import parse_file, parse_text
    from lobench.engine.workers.channel import Channel
    from lobench.engine.workers.parcel import Parcel
    from lobench.engine.workers.pool import Executor, LocalPool, Message, WorkerConfig
    from lobench.engine.workers.protocol import decode, encode
    from lobench.evaluation.notebook import evaluate
    from lobench.evaluation.result import Result
    from lobench.evaluation.runner import claim_for
    from lobench.hookspecs import hookimpl
    from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
    from lobench.inner.backend import claim_backend, compiler_options, device_description
    from lobench.inner.configurable import configurable
    from lobench.inner.optimizer import LearnedOptimizer
    from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily
    from lobench.inner.theta import leaf_paths
    from lobench.plugins import load_plugins

__version__ = "0.1.0"

_HOMES = {
    "lobench.analysis.frames": ("CaseCurves", "StoredResults", "open_results"),
    "lobench.analysis.intervals": ("Interval", "stratified_t_mean"),
    "lobench.core.case": ("Case", "CaseInfo", "CaseSpec", "SeedBlock"),
    "lobench.core.checkpoint": ("Checkpoint", "CheckpointContent", "SeenCheckpoint"),
    "lobench.core.errors": (
        "CheckpointError",
        "CheckpointGone",
        "ConfigError",
        "LobenchError",
        "PickleRefused",
        "PluginError",
        "StoreBusy",
        "StoreError",
        "SuiteError",
        "ThetaMismatch",
        "UsageError",
    ),
    "lobench.core.draws": ("Draws", "fold"),
    "lobench.core.metric": ("Direction",),
    "lobench.core.population": (
        "Member",
        "Objective",
        "Pool",
        "Selection",
        "better",
        "oriented",
        "rank",
        "weighted",
    ),
    "lobench.core.result": ("Curves", "Outcome"),
    "lobench.hookspecs": ("hookimpl",),
    "lobench.inner.configurable": ("configurable",),
    "lobench.inner.optimizer": ("LearnedOptimizer",),
    "lobench.engine.workers.channel": ("Channel",),
    "lobench.engine.checkpoints.files": ("content_of", "flatten", "is_settled", "reading"),
    "lobench.engine.config.bound": ("bind_case",),
    "lobench.engine.config.layers": ("Layers",),
    "lobench.engine.config.syntax": ("parse_file", "parse_text"),
    "lobench.engine.workers.protocol": ("decode", "encode"),
    "lobench.engine.workers.parcel": ("Parcel",),
    "lobench.engine.workers.pool": ("Executor", "LocalPool", "Message", "WorkerConfig"),
    "lobench.inner.adapters": ("as_learned_optimizer", "as_stepper", "as_task"),
    "lobench.inner.backend": ("claim_backend", "compiler_options", "device_description"),
    "lobench.inner.theta": ("leaf_paths",),
    "lobench.plugins": ("load_plugins",),
    "lobench.evaluation.result": ("Result",),
    "lobench.engine.checkpoints.spool": ("checkpoint_sha256",),
    "lobench.inner.task": ("ArrayDataset", "Datasets", "IteratorDataset", "SampledDataset", "Task", "TaskFamily"),
    "lobench.evaluation.notebook": ("evaluate",),
    "lobench.evaluation.runner": ("claim_for",),
    "lobench.engine.config.suite": ("cases", "specs_in"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ArrayDataset",
    "Case",
    "CaseCurves",
    "CaseInfo",
    "CaseSpec",
    "Channel",
    "Checkpoint",
    "CheckpointContent",
    "CheckpointError",
    "CheckpointGone",
    "ConfigError",
    "Curves",
    "Datasets",
    "Direction",
    "Draws",
    "Executor",
    "Interval",
    "IteratorDataset",
    "Layers",
    "LearnedOptimizer",
    "LobenchError",
    "LocalPool",
    "Member",
    "Message",
    "Objective",
    "Outcome",
    "Parcel",
    "PickleRefused",
    "PluginError",
    "Pool",
    "Result",
    "SampledDataset",
    "SeedBlock",
    "SeenCheckpoint",
    "Selection",
    "StoreBusy",
    "StoreError",
    "StoredResults",
    "SuiteError",
    "Task",
    "TaskFamily",
    "ThetaMismatch",
    "UsageError",
    "WorkerConfig",
    "as_learned_optimizer",
    "as_stepper",
    "as_task",
    "better",
    "bind_case",
    "cases",
    "checkpoint_sha256",
    "claim_backend",
    "claim_for",
    "compiler_options",
    "configurable",
    "content_of",
    "decode",
    "device_description",
    "encode",
    "evaluate",
    "flatten",
    "fold",
    "hookimpl",
    "is_settled",
    "leaf_paths",
    "load_plugins",
    "open_results",
    "oriented",
    "parse_file",
    "parse_text",
    "rank",
    "reading",
    "specs_in",
    "stratified_t_mean",
    "weighted",
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
