"""Metric: a name, `<split>/<metric>`, and a declared direction."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping

from lobench.core.errors import ConfigError, LobenchError, UsageError, suggestion

__all__ = [
    "EVALUATED_SPLITS",
    "Direction",
    "UnknownDirection",
    "direction_of",
    "directions_by_metric",
    "final_columns",
    "how_to_declare",
    "is_named_loss",
    "is_of_batch",
    "metric_name",
    "split_name",
    "stored_spelling",
    "unknown_metric",
    "usual_direction",
]

EVALUATED_SPLITS = ("inner_valid", "outer_valid", "test")  # splits that exist only with evaluations


class Direction(enum.StrEnum):
    """Direction in which a metric improves.

    >>> Direction("max") is Direction.MAX
    True
    """

    MIN = "min"
    MAX = "max"


_SPLITS = {
    "train": "train", "training": "train", "test": "test", "val": "val", "valid": "val", "validation": "val",
    "eval": "val", "dev": "val",
}  # fmt: skip
_NAME_WITH_SPLIT = re.compile(rf"({'|'.join(_SPLITS)})[ _./-]+(.+)", re.IGNORECASE)

# Directions of metrics that need no declaration, in every split.
_KNOWN_DIRECTIONS = {"loss": Direction.MIN, "accuracy": Direction.MAX}
_LOSS = re.compile(r"(.*[^a-z])?loss|loss/.*", re.IGNORECASE)
_ERROR_NAMES = "bpb|bpc|cer|error|error_rate|mae|mse|nll|perplexity|ppl|rmse|wer"
_USUAL_NAMES = {
    Direction.MIN: re.compile(rf"{_LOSS.pattern}|(.*[^a-z])?({_ERROR_NAMES})", re.IGNORECASE),
    Direction.MAX: re.compile(r"(.*[^a-z])?acc(uracy)?|acc(uracy)?/.*", re.IGNORECASE),
}


class UnknownDirection(LobenchError):
    """The direction of a metric is needed and has not been declared."""

    def __init__(self, metric: str, *, where: str = "") -> None:
        self.metric = metric
        super().__init__(f"the direction of {metric} is not declared", where=where, next_step=how_to_declare(metric))


def direction_of(metric: str, declared_directions: Mapping[str, Direction]) -> Direction | None:
    """Returns the direction of a metric; None if it is neither declared nor known.

    Args:
      metric: Full name of the metric.
      declared_directions: Directions by full name of the metric.
    """
    return declared_directions.get(metric) or _KNOWN_DIRECTIONS.get(metric.rpartition("/")[2])


def usual_direction(metric: str) -> Direction | None:
    """Returns the direction that other programs' names imply: losses and errors improve downwards, accuracies upwards.

    Example: `val/box_loss`, `val_bpb` and TensorBoard's `Loss/test` improve downwards, `val/top5_acc` upwards.
    """
    return next((direction for direction, names in _USUAL_NAMES.items() if names.fullmatch(metric)), None)


def is_named_loss(metric: str) -> bool:
    """Returns whether a metric is a loss by its name, such as `val/box_loss`."""
    return _LOSS.fullmatch(metric) is not None


def is_of_batch(metric: str) -> bool:
    """Returns whether a metric is of single training batches (`batch/loss`), with a value per log step."""
    return metric.startswith("batch/")


def metric_name(name: str) -> str:
    """Returns lobench's name of a metric: `val_loss` is `val/loss`, `validation/acc` is `val/accuracy`."""
    match = _NAME_WITH_SPLIT.fullmatch(name.strip())
    if match is None:
        return name.strip().replace("batch/", "per_batch/")
    base_name = match[2].strip()
    return f"{_SPLITS[match[1].lower()]}/{'accuracy' if base_name.lower() == 'acc' else base_name}"


def split_name(name: str) -> str:
    """Returns lobench's name of a split, such as "val" for "validation"; "" for an unknown split."""
    return _SPLITS.get(name.lower(), "")


def stored_spelling(name: str, known_metrics: Iterable[str]) -> str:
    """Returns the known metric with this name, or else the one whose name differs only in spelling.

    Example: `val_acc` and `val/acc` mean the stored `val/accuracy`. An unknown name is returned unchanged.
    """
    names = sorted(known_metrics)
    if name in names:
        return name
    return next((metric for metric in names if metric_name(metric) == metric_name(name)), name)


def unknown_metric(name: str, known_metrics: Iterable[str], *, where: str = "") -> UsageError:
    """Returns the error for a metric that no subject has. It suggests a similar one, preferably of the train split.

    >>> unknown_metric("loss", ["test/loss", "train/loss"]).next_step
    "did you mean 'train/loss'?"
    """
    names = sorted(known_metrics)
    candidates = [metric for metric in (f"train/{name}", f"test/{name}") if metric in names]
    advice = f"did you mean {candidates[0]!r}?" if candidates else suggestion(name, names)
    return UsageError(
        "no subject has this metric", where=where, got=repr(name), expected=", ".join(names), next_step=advice
    )


def how_to_declare(metric: str) -> str:
    """Returns advice on how to declare the direction of a metric."""
    name = metric.rpartition("/")[2]
    return (
        f'declare it: `metric_directions = {{"{name}": "max"}}` (or "min") in the task, or in the Declaration of the '
        "plugin whose metric it is; evaluations made before do not know it"
    )


def directions_by_metric(declared: object, metrics: Iterable[str], *, where: str) -> dict[str, Direction]:
    """Returns the directions of metrics by their full names.

    Args:
      declared: Mapping to "min" or "max". `return` applies to every split, `test/return` to one.
      metrics: Full names of the metrics.
      where: Location of the declaration, for error messages.
    Raises:
      ConfigError: `declared` is not such a mapping.
    """
    if not isinstance(declared, Mapping):
        got = type(declared).__name__
        raise ConfigError("metric_directions is not a mapping", where=where, got=got, expected='{"return": "max"}')
    directions_by_name: dict[str, Direction] = {}
    for name, value in declared.items():
        if value not in list(Direction):
            raise ConfigError(
                f"metric_directions[{name!r}] is not a direction",
                where=where,
                got=repr(value),
                expected="'min' or 'max'",
            )
        directions_by_name[str(name)] = Direction(value)
    directions = {
        metric: directions_by_name.get(metric) or directions_by_name.get(metric.rpartition("/")[2])
        for metric in metrics
    }
    return {metric: direction for metric, direction in directions.items() if direction is not None}


def final_columns(primary_metrics: Iterable[str], added_metrics: Iterable[str] = ()) -> dict[str, str]:
    """Returns the final values that a table of evaluations shows, by metric, with the titles of their columns.

    They are the losses of train and test, the primary metric of each case, and the metrics of plugins. Example: cases
    whose primary metric is `val/loss` have a third column, `val/loss final`.

    Args:
      added_metrics: Metrics that plugins computed from the others.
    """
    titles = {"train/loss": "train final", "test/loss": "test final"}
    titles |= {name: f"{name} final" for name in sorted({*primary_metrics} - titles.keys())}
    return titles | {name: name for name in sorted({*added_metrics} - titles.keys())}
