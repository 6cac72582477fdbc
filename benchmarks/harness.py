"""Ratios of two things timed in turns, so that what disturbs one disturbs the other."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Benchmark", "Measurement", "interleaved", "machine", "seconds_of", "table", "to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One figure.

    Attributes:
      name: For `--only`, which takes any part of it.
      what: One line: what over what.
      target: `>= 5` or `<= 1.6`; empty where the figure stands for itself.
      measure: quick -> a ratio for each round.
      threads: Of jax on both sides; one, as a case computes with unless it says otherwise.
    """

    name: str
    what: str
    target: str
    measure: Callable[[bool], Sequence[float]]
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What came out: the median of the rounds and their range."""

    name: str
    what: str
    target: str
    threads: int
    ratio: float
    low: float
    high: float
    rounds: int
    reached: bool | None

    @classmethod
    def of(cls, benchmark: Benchmark, ratios: Sequence[float]) -> Measurement:
        ratio = statistics.median(ratios)
        reached = None
        if benchmark.target:
            relation, bound = benchmark.target.split()
            reached = bool(ratio >= float(bound) if relation == ">=" else ratio <= float(bound))
        return cls(
            name=benchmark.name,
            what=benchmark.what,
            target=benchmark.target,
            threads=benchmark.threads,
            ratio=float(ratio),
            low=float(min(ratios)),
            high=float(max(ratios)),
            rounds=len(ratios),
            reached=reached,
        )


def seconds_of(work: Callable[[], object]) -> float:
    """Returns the seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interleaved(first: Callable[[], object], second: Callable[[], object], rounds: int) -> list[float]:
    """Returns seconds of `first` over seconds of `second`, round by round, after a call of each that does not count."""
    first()
    second()
    return [seconds_of(first) / seconds_of(second) for _ in range(rounds)]


def table(measurements: Sequence[Measurement]) -> str:
    """Returns the table that is printed, in Markdown so that it can be kept as it is."""
    lines = ["| name | ratio | range | target | threads | what |", "| --- | ---: | --- | --- | ---: | --- |"]
    for found in measurements:
        mark = {True: "reached", False: "not reached", None: ""}[found.reached]
        target = f"{found.target}: {mark}" if found.target else ""
        spread = f"{found.low:.2f} - {found.high:.2f} of {found.rounds}"
        lines.append(f"| {found.name} | {found.ratio:.2f} | {spread} | {target} | {found.threads} | {found.what} |")
    return "\n".join(lines)


def machine() -> dict[str, str]:
    """Returns what a figure hangs on: processor, cores, load, versions, commit."""
    import jax
    import numpy as np

    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return {
        "processor": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "commit": commit.stdout.strip(),
    }


def to_json(measurements: Sequence[Measurement], about: dict[str, str]) -> str:
    """Returns machine and measurements as JSON."""
    return json.dumps({"machine": about, "results": [dataclasses.asdict(found) for found in measurements]}, indent=2)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
