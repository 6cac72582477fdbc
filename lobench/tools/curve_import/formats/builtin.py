"""Declarations of the formats of `lobench import`."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_import_formats"]

_FORMATS = {
    "tidy": (
        "tables:tidy",
        "csv, TSV, JSON or parquet with method, case, seed, step, metric, value, or a column for each metric",
    ),
    "lobench": ("records:lobench_records", "`lobench results --format json --curves`"),
    "wandb-chart": ("wandb:chart", "the csv of a chart of W&B"),
    "wandb-history": ("wandb:history", "W&B's `run.history()` as csv or parquet"),
    "wandb-run": ("wandb:run", "W&B's own file of a run, run-ID.wandb, or a folder of them"),
    "tensorboard": ("tensorboard:events", "a folder of event files"),
    "tensorboard-csv": ("tensorboard:page_csv", "a csv of TensorBoard's page"),
    "mlflow": ("mlflow:store", "a folder of MLflow's file store, or its mlflow.db"),
    "trackio": ("trackio:database", "a project's database of trackio, PROJECT.db"),
    "algoperf": ("records:algoperf", "AlgoPerf's evaluations, with --targets"),
    "nanogpt": ("nanogpt:logs", "a log of modded-nanogpt, or a folder of them"),
    "sb3-monitor": ("tables:monitor", "a monitor.csv of stable-baselines3: returns of episodes by environment step"),
    "items": (
        "item_files:items",
        "JSON lines, a JSON list or CSV with the values of items: item, and a column for each metric",
    ),
    "inspect": ("item_files:inspect", "a log of inspect_ai"),
    "lm-eval": ("item_files:lm_eval", "samples_TASK_DATE.jsonl of lm-evaluation-harness"),
}


@hookimpl
def lobench_import_formats() -> Iterable[Declaration]:
    return [
        Declaration(name=name, factory=f"lobench.tools.curve_import.formats.{factory}", summary=summary)
        for name, (factory, summary) in _FORMATS.items()
    ]
