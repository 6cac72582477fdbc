"""Declares the sink."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_result_sinks"]


@hookimpl
def lobench_result_sinks() -> Iterable[Declaration]:
    factory = "lobench_trackio.sink:TrackioSink"
    return [Declaration(name="trackio", factory=factory, summary="runs of trackio; trackio[:PROJECT][,run=NAME]")]
