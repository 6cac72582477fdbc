"""Comparison of results apart from the values of their curves: metrics, steps, directions, costs and films."""

from __future__ import annotations

from collections.abc import Iterator

from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.engine.store.ledger import EvaluationRow
from lobench.tools.audit.findings import Unaudited

__all__ = ["common_metrics", "other_film", "other_form", "unaudited_of"]

_EQUAL = ("seeds", "eval_steps", "log_steps", "num_params")
_OF_MACHINES = ("metric ", "the time of a gradient step")  # beginnings of problems that depend on the machine


def common_metrics(claim: Curves, ours: Curves) -> list[str]:
    """Returns the metrics that both results have."""
    return sorted(claim.metrics.keys() & ours.metrics.keys())


def other_form(claim: Curves, ours: Curves) -> str | None:
    """Returns the first difference of two results other than in their values; None if there is none.

    Metrics, lengths, steps, seeds, directions, bindings and the kept state are compared.
    """
    elsewhere = _metrics_of_missing_plugins(claim, ours)
    added = {*(ours.added or ()), *elsewhere}
    if made_up := set(claim.added or ()) - claim.metrics.keys():
        return f"it names metrics of plugins that it does not have: {', '.join(sorted(made_up))}"
    if names := (claim.metrics.keys() ^ ours.metrics.keys()) - added:
        return f"it has other metrics: {', '.join(sorted(names))}"
    for name in _EQUAL:
        if getattr(claim, name) != getattr(ours, name):
            return f"it has other {name.replace('_', ' ')}"
    if any(claim.metrics[name].shape != ours.metrics[name].shape for name in common_metrics(claim, ours)):
        return "its curves have other lengths"
    claimed_directions = {name: way for name, way in claim.directions.items() if name not in elsewhere}
    our_directions = {name: way for name, way in ours.directions.items() if name in claim.metrics}
    if claimed_directions != our_directions:
        name = min(
            name
            for name in {**claimed_directions, **our_directions}
            if claimed_directions.get(name) != our_directions.get(name)
        )
        return f"it records that {claimed_directions.get(name)} {name} is better, here it is {our_directions.get(name)}"
    if claim.added is not None and set(claim.added) - elsewhere != set(ours.added or ()) & claim.metrics.keys():
        return "it names other metrics as made by plugins"
    return _other_origin(claim, ours) or _other_cost(claim, ours)


def _metrics_of_missing_plugins(claim: Curves, ours: Curves) -> set[str]:
    """Returns the metrics that were computed by plugins that are not installed here."""
    return {name for name in claim.added or () if name not in ours.metrics}


def _other_origin(claim: Curves, ours: Curves) -> str | None:
    if sorted(claim.provenance.bindings.splitlines()) != sorted(ours.provenance.bindings.splitlines()):
        return "it records other bindings than it has"
    if claim.provenance.optimizer != ours.provenance.optimizer:
        return f"it records the optimizer {claim.provenance.optimizer!r}, here it is {ours.provenance.optimizer!r}"
    claimed_problems, our_problems = (
        [line for line in curves.problems if not line.startswith(_OF_MACHINES)] for curves in (claim, ours)
    )
    return "it records other problems" if claimed_problems != our_problems else None


def _other_cost(claim: Curves, ours: Curves) -> str | None:
    if claim.cost is None or ours.cost is None:
        return None  # an older lobench did not measure
    pairs = [(claim.cost, ours.cost)]
    if claim.cost.gradient is not None and ours.cost.gradient is not None:
        pairs.append((claim.cost.gradient, ours.cost.gradient))
    for claimed_cost, our_cost in pairs:
        for name in ("state_bytes", "num_together"):
            if getattr(claimed_cost, name) != getattr(our_cost, name):
                return (
                    f"its recorded cost is {name} {getattr(claimed_cost, name)}, here it is {getattr(our_cost, name)}"
                )
    return None


def other_film(claim: Curves, ours: Curves) -> str | None:
    """Describes the difference between the films of two results with equal bits; None if equal."""
    if (claim.film is None) != (ours.film is None):
        return "only one of the two evaluations has a film"
    if claim.film is None or ours.film is None:
        return None
    if claim.film.header() != ours.film.header() or claim.film.frames.tobytes() != ours.film.frames.tobytes():
        return "its film is another one than here"
    return None


def unaudited_of(row: EvaluationRow, claim: Curves, ours: Curves) -> Iterator[Unaudited]:
    """Yields the names of claims of a result that were not repeated."""
    for name in sorted(_metrics_of_missing_plugins(claim, ours)):
        is_primary = ", by which it is ranked" if name == row.case.primary_metric else ""
        yield Unaudited(f"metric {name} of {row.case.suite}/{row.case.name}{is_primary}")
    if claim.cost is None or claim.added is None:
        yield Unaudited("costs and metrics of plugins, which an older lobench did not write")
    version = Program.of(ours.provenance).version
    if row.program.version != version:
        yield Unaudited(f"results of version {row.program.version} of the inner program, which here is {version}")
    if claim.provenance.together:
        yield Unaudited("places among checkpoints that were computed together", is_usual=True)
    if any(line.startswith(_OF_MACHINES) for line in claim.problems):
        yield Unaudited("problems of plugins' metrics", is_usual=True)
    if claim.film is not None and any(
        claim.metrics[name].tobytes() != ours.metrics[name].tobytes() for name in common_metrics(claim, ours)
    ):
        yield Unaudited(f"the film of {row.case.suite}/{row.case.name}")
