"""Declares the sink and the command."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_cli_commands", "lobench_result_sinks"]


@hookimpl
def lobench_result_sinks() -> Iterable[Declaration]:
    summary = "fitness for a population's controller; pbt:HOST:PORT[,study=S][,token_file=F][,ca=F]"
    return [Declaration(name="pbt", factory="lobench_pbt.sink:PbtSink", summary=summary)]


@hookimpl
def lobench_cli_commands() -> Iterable[Declaration]:
    return [Declaration(name="pbt", factory="lobench_pbt.cli:pbt", summary="Population based training.")]
