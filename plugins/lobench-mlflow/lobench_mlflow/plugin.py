"""Declares the sink."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_result_sinks"]


@hookimpl
def lobench_result_sinks() -> Iterable[Declaration]:
    factory = "lobench_mlflow.sink:MlflowSink"
    return [Declaration(name="mlflow", factory=factory, summary="metrics of MLflow; mlflow[:DIR or URI][,run=ID]")]
