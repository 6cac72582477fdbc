"""Comparison of results apart from the values of their curves: metrics, steps, directions, costs and films."""

from __future__ import annotations

from collections.abc import Iterator

from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.engine.store.ledger import EvaluationRow
from lobench.tools.audit.findings import Unaudited

__all__ = ["common_metrics", "film_difference", "form_difference", "unrepeated_claims"]

_EQUAL_FIELDS = ("seeds", "eval_steps", "log_steps", "num_params")
_MACHINE_PROBLEMS = ("metric ", "the time of a gradient step")  # beginnings of problems that depend on the machine


def common_metrics(claimed: Curves, repeated: Curves) -> list[str]:
    """Returns the metrics that both results have."""
    return sorted(claimed.metrics.keys() & repeated.metrics.keys())


def form_difference(claimed: Curves, repeated: Curves) -> str | None:
    """Returns the first difference of two results other than in their values; None if there is none.

    Metrics, lengths, steps, seeds, directions, bindings and the kept state are compared.
    """
    missing_plugin_metrics = _metrics_of_missing_plugins(claimed, repeated)
    plugin_metrics = {*(repeated.added or ()), *missing_plugin_metrics}
    if invented_metrics := set(claimed.added or ()) - claimed.metrics.keys():
        return f"it names metrics of plugins that it does not have: {', '.join(sorted(invented_metrics))}"
    if names := (claimed.metrics.keys() ^ repeated.metrics.keys()) - plugin_metrics:
        return f"it has other metrics: {', '.join(sorted(names))}"
    for name in _EQUAL_FIELDS:
        if getattr(claimed, name) != getattr(repeated, name):
            return f"it has other {name.replace('_', ' ')}"
    if any(claimed.metrics[name].shape != repeated.metrics[name].shape for name in common_metrics(claimed, repeated)):
        return "its curves have other lengths"
    claimed_directions = {name: way for name, way in claimed.directions.items() if name not in missing_plugin_metrics}
    our_directions = {name: way for name, way in repeated.directions.items() if name in claimed.metrics}
    if claimed_directions != our_directions:
        name = min(
            name
            for name in {**claimed_directions, **our_directions}
            if claimed_directions.get(name) != our_directions.get(name)
        )
        return f"it records that {claimed_directions.get(name)} {name} is better, here it is {our_directions.get(name)}"
    if (
        claimed.added is not None
        and set(claimed.added) - missing_plugin_metrics != set(repeated.added or ()) & claimed.metrics.keys()
    ):
        return "it names other metrics as made by plugins"
    return _origin_difference(claimed, repeated) or _cost_difference(claimed, repeated)


def _metrics_of_missing_plugins(claimed: Curves, repeated: Curves) -> set[str]:
    """Returns the metrics that were computed by plugins that are not installed here."""
    return {name for name in claimed.added or () if name not in repeated.metrics}


def _origin_difference(claimed: Curves, repeated: Curves) -> str | None:
    if sorted(claimed.provenance.bindings.splitlines()) != sorted(repeated.provenance.bindings.splitlines()):
        return "it records other bindings than it has"
    if claimed.provenance.optimizer != repeated.provenance.optimizer:
        return (
            f"it records the optimizer {claimed.provenance.optimizer!r}, here it is {repeated.provenance.optimizer!r}"
        )
    if claimed.provenance.bound_defaults not in ("", repeated.provenance.bound_defaults):  # "" of an older lobench
        return "it records other settings that are bound to their defaults"
    claimed_problems, our_problems = (
        [line for line in curves.problems if not line.startswith(_MACHINE_PROBLEMS)] for curves in (claimed, repeated)
    )
    return "it records other problems" if claimed_problems != our_problems else None


def _cost_difference(claimed: Curves, repeated: Curves) -> str | None:
    if claimed.cost is None or repeated.cost is None:
        return None  # an older lobench did not record a measurement
    pairs = [(claimed.cost, repeated.cost)]
    if claimed.cost.gradient is not None and repeated.cost.gradient is not None:
        pairs.append((claimed.cost.gradient, repeated.cost.gradient))
    for claimed_cost, our_cost in pairs:
        for name in ("state_bytes", "num_together"):
            if getattr(claimed_cost, name) != getattr(our_cost, name):
                return (
                    f"its recorded cost is {name} {getattr(claimed_cost, name)}, here it is {getattr(our_cost, name)}"
                )
    return None


def film_difference(claimed: Curves, repeated: Curves) -> str | None:
    """Describes the difference between the films of two results with equal bits; None if equal."""
    if (claimed.film is None) != (repeated.film is None):
        return "only one of the two evaluations has a film"
    if claimed.film is None or repeated.film is None:
        return None
    if (
        claimed.film.header() != repeated.film.header()
        or claimed.film.frames.tobytes() != repeated.film.frames.tobytes()
    ):
        return "its film is another one than here"
    return None


def unrepeated_claims(row: EvaluationRow, claimed: Curves, repeated: Curves) -> Iterator[Unaudited]:
    """Yields the names of claims of a result that were not repeated."""
    for name in sorted(_metrics_of_missing_plugins(claimed, repeated)):
        is_primary = ", by which it is ranked" if name == row.case.primary_metric else ""
        yield Unaudited(f"metric {name} of {row.case.suite}/{row.case.name}{is_primary}")
    if claimed.cost is None or claimed.added is None:
        yield Unaudited("costs and metrics of plugins, which an older lobench did not write")
    version = Program.of(repeated.provenance).version
    if row.program.version != version:
        yield Unaudited(f"results of version {row.program.version} of the inner program, which here is {version}")
    if claimed.provenance.together:
        yield Unaudited("places among checkpoints that were computed together", is_usual=True)
    if any(line.startswith(_MACHINE_PROBLEMS) for line in claimed.problems):
        yield Unaudited("problems of plugins' metrics", is_usual=True)
    if claimed.film is not None and any(
        claimed.metrics[name].tobytes() != repeated.metrics[name].tobytes()
        for name in common_metrics(claimed, repeated)
    ):
        yield Unaudited(f"the film of {row.case.suite}/{row.case.name}")
