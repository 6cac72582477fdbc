"""Public names for plugins, besides `lobench.hookspecs` (hooks) and `lobench.testing` (contracts).

Plugins import only `lobench`, `lobench.extend`, `lobench.hookspecs` and `lobench.testing`. All other modules of lobench
are internal and may change. Each name is loaded on first use, as in `lobench` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lobench.core.lazy import on_first_use

if TYPE_CHECKING:
    from lobench.analysis.comparisons.event_numbers import Group, Number, numbers_of, run_label
    from lobench.analysis.comparisons.run_sink import RunSink, SinkRun, kept_id, of_another_training
    from lobench.analysis.comparisons.summary import Summary
    from lobench.analysis.stats.intervals import Interval, metric_mean, stratified_t_mean
    from lobench.cli.output import emit, format_option
    from lobench.core import schedule
    from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
    from lobench.core.checkpoint import Checkpoint, CheckpointContent, SeenCheckpoint
    from lobench.core.codec import Codec, Message, kind_of
    from lobench.core.errors import CheckpointGone, PickleRefused, PluginError, StoreBusy, suggestion
    from lobench.core.json_numbers import finite_or_none
    from lobench.core.metric import Direction
    from lobench.core.population.population import (
        Member,
        Objective,
        Pool,
        Selection,
        better,
        front,
        oriented,
        rank,
        weighted,
    )
    from lobench.core.result import Curves
    from lobench.core.search.search import Grid, Trial, grid_values, trials_left
    from lobench.core.search.seeded_draws import Draws, fold
    from lobench.core.search.space import Kind, Parameter, Rule, Scale, Space, Value, check_parameters
    from lobench.core.subject import Subject, Variant
    from lobench.core.wording import cause, counted, headline
    from lobench.drawing.svg import Chart, Series
    from lobench.engine.checkpoints.files import content_of, flatten, is_settled, reading
    from lobench.engine.checkpoints.spool import checkpoint_sha256, holds_theta
    from lobench.engine.config.bound import bind_case
    from lobench.engine.config.layers import Layers
    from lobench.engine.config.suite import specs_called, specs_in
    from lobench.engine.config.syntax import parse_file, parse_text
    from lobench.engine.environment import environment_with
    from lobench.engine.group_files import open_to_group
    from lobench.engine.store.database import (
        StoreLock,
        database_errors,
        newer_schema,
        open_to_read,
        open_to_write,
        schema_version,
        transaction,
        write_ahead,
    )
    from lobench.engine.store.states import leave_mark, marked_folder
    from lobench.engine.whole_file import sync, write_whole
    from lobench.engine.workers.channel import Channel, ChiefEnd
    from lobench.engine.workers.entry import run_worker
    from lobench.engine.workers.parcel import Parcel
    from lobench.engine.workers.pool import LocalPool, WorkerConfig
    from lobench.engine.workers.process import WorkerProcess
    from lobench.engine.workers.protocol import Configure, Exit
    from lobench.evaluation.runner import claim_for
    from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
    from lobench.inner.backend import compiler_options, device_description
    from lobench.inner.host_call import host_call
    from lobench.inner.schedules.schedule import LossSchedule
    from lobench.inner.theta import leaf_paths
    from lobench.plugins import PluginManager, load_plugins
    from lobench.report.charts.sections import Figure, Section
    from lobench.report.page.templates import charts_html, plain_page, table_html
    from lobench.report.tables.text import text_table
    from lobench.tools.curve_import.file_kind import FileKind
    from lobench.tools.curve_import.formats.wandb_log import wandb_rows
    from lobench.tools.curve_import.points import CurveRequest, CurveRun, Points, RequestedMetrics, named_run

# fmt: off
__all__ = [
    "CaseInfo", "CaseSpec", "Channel", "Chart", "Checkpoint", "CheckpointContent", "CheckpointGone", "ChiefEnd",
    "Codec", "Configure", "CurveRequest", "CurveRun", "Curves", "Direction", "Draws", "Exit", "Figure", "FileKind",
    "Grid", "Group", "Interval", "Kind", "Layers", "LocalPool", "LossSchedule", "Member", "Message", "Number",
    "Objective", "Parameter", "Parcel", "PickleRefused", "PluginError", "PluginManager", "Points", "Pool",
    "RequestedMetrics", "Rule", "RunSink", "Scale", "Section", "SeedBlock", "SeenCheckpoint", "Selection", "Series",
    "SinkRun", "Space", "StoreBusy", "StoreLock", "Subject", "Summary", "Trial", "Value", "Variant", "WorkerConfig",
    "WorkerProcess", "as_learned_optimizer", "as_stepper", "as_task", "better", "bind_case", "cause", "charts_html",
    "check_parameters", "checkpoint_sha256", "claim_for", "compiler_options", "content_of", "counted",
    "database_errors", "device_description", "emit", "environment_with", "finite_or_none", "flatten", "fold",
    "format_option", "front", "grid_values", "headline", "holds_theta", "host_call", "is_settled", "kept_id", "kind_of",
    "leaf_paths", "leave_mark", "load_plugins", "marked_folder", "metric_mean", "named_run", "newer_schema",
    "numbers_of", "of_another_training", "open_to_group", "open_to_read", "open_to_write", "oriented", "parse_file",
    "parse_text", "plain_page", "rank", "reading", "run_label", "run_worker", "schedule", "schema_version",
    "specs_called", "specs_in", "stratified_t_mean", "suggestion", "sync", "table_html", "text_table", "transaction",
    "trials_left", "wandb_rows", "weighted", "write_ahead", "write_whole",
]
# fmt: on

__getattr__ = on_first_use(__name__)


def __dir__() -> list[str]:
    return __all__
