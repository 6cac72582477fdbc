"""Declares the executor."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_executors"]


@hookimpl
def lobench_executors() -> Iterable[Declaration]:
    factory = "lobench_slurm.executor:SlurmExecutor"
    return [Declaration(name="slurm", factory=factory, summary="a SLURM job per worker (slurm:partition=gpu,time=60)")]
