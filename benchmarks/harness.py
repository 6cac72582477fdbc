"""Ratios of two things timed in turns, so that what disturbs one disturbs the other."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Benchmark",
    "Measurement",
    "Rounds",
    "answer_help",
    "best_of",
    "interleaved",
    "machine",
    "seconds_of",
    "table",
    "to_json",
]


def answer_help(doc: str | None) -> None:
    """Ends a script that takes plain arguments with what it says of itself, where `--help` is among them."""
    if "--help" in sys.argv[1:]:
        print(doc)
        sys.exit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What a benchmark's run says of itself.

    Attributes:
      what: One line: what over what, with the sizes that were run.
      ratios: One for each round.
      cores: Processor seconds over wall seconds of either side, where both run in one process.
      seconds: Median of either side, where both run in one process.
    """

    what: str
    ratios: Sequence[float]
    cores: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One figure.

    Attributes:
      name: For `--only`, which takes any part of it.
      target: `>= 5` or `<= 1.6`; empty where the figure stands for itself.
      measure: quick -> a ratio for each round, and what was run.
      threads: Of jax on both sides; one, as a case computes with unless it says otherwise.
    """

    name: str
    target: str
    measure: Callable[[bool], Rounds]
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What came out: the median of the rounds and their range; of a full run, or of one of `--quick`."""

    name: str
    what: str
    quick: bool
    cores: tuple[float, float] | None
    target: str
    threads: int
    ratio: float
    low: float
    high: float
    rounds: int
    reached: bool | None

    @classmethod
    def of(cls, benchmark: Benchmark, rounds: Rounds, *, quick: bool) -> Measurement:
        ratios = rounds.ratios
        ratio = statistics.median(ratios)
        reached = None
        if benchmark.target:
            relation, bound = benchmark.target.split()
            reached = bool(ratio >= float(bound) if relation == ">=" else ratio <= float(bound))
        return cls(
            name=benchmark.name,
            what=rounds.what,
            quick=quick,
            cores=rounds.cores,
            target=benchmark.target,
            threads=benchmark.threads,
            ratio=float(ratio),
            low=float(min(ratios)),
            high=float(max(ratios)),
            rounds=len(ratios),
            reached=reached,
        )


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Returns the seconds of one call."""
    started = clock()
    work()
    return clock() - started


def interleaved(
    what: str,
    first: Callable[[], object],
    second: Callable[[], object],
    rounds: int,
    *,
    by_processor_time: bool = False,
) -> Rounds:
    """Returns seconds of `first` over seconds of `second`, round by round, after a call of each that does not count."""
    first()
    second()
    walls, processors = ([], []), ([], [])
    for _ in range(rounds):
        for side, work in enumerate((first, second)):
            before = time.process_time()
            walls[side].append(seconds_of(work))
            processors[side].append(time.process_time() - before)
    cores = [sum(used) / sum(wall) for used, wall in zip(processors, walls, strict=True)]
    taken = processors if by_processor_time else walls
    ratios = [one / other for one, other in zip(*taken, strict=True)]
    seconds = [statistics.median(side) for side in taken]
    return Rounds(what=what, ratios=ratios, cores=(cores[0], cores[1]), seconds=(seconds[0], seconds[1]))


def best_of(num_runs: int, *arguments: str | Path, made: Path | None = None) -> tuple[float, float, float]:
    """Returns wall time and processor time of a command of lobench in seconds, and its most memory in MB.

    Each is the smallest of all runs. Memory is that of the command's own process.

    Args:
      made: What a run makes, and the next one must not find.
    Raises:
      CalledProcessError: The command failed.
    """
    runs = []
    for _ in range(num_runs):
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-m", "lobench.cli", *arguments], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        runs.append((time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6))
    wall, used, memory = zip(*runs, strict=True)
    return min(wall), min(used), min(memory)


def table(measurements: Sequence[Measurement]) -> str:
    """Returns the table that is printed, in Markdown so that it can be kept as it is."""
    lines = [
        "| name | ratio | range | target | run | cores used | what |",
        "| --- | ---: | --- | --- | --- | --- | --- |",
    ]
    for found in measurements:
        mark = {True: "reached", False: "not reached", None: ""}[found.reached]
        target = f"{found.target}: {mark}" if found.target else ""
        spread = f"{found.low:.2f} - {found.high:.2f} of {found.rounds}"
        run = "--quick" if found.quick else "full"
        # Both sides may have been given one core; a Python loop keeps another one busy beside it.
        cores = f"{found.cores[0]:.1f} against {found.cores[1]:.1f}" if found.cores else ""
        lines.append(f"| {found.name} | {found.ratio:.2f} | {spread} | {target} | {run} | {cores} | {found.what} |")
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
