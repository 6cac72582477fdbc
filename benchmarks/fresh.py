"""A warm fresh process: with kept executables over without, in turns.

Usage: python benchmarks/fresh.py [--quick]

Each is a process of its own, from its start to its end, with everything cached: `pytest` of one case (digits MLP,
AdafacMLPLOpt, 1,000 steps) and of the suite `quick` with 50 steps a case. `cpu` are processor seconds of the process,
which other work on the machine changes least.
"""

from __future__ import annotations

import functools
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import starting
from harness import answer_help, machine, seconds_of

_SUITE = Path(__file__).parent.parent / "suites" / "quick"


def _pytest(folder: Path, what: str, *options: str) -> None:
    given = ["--lobench-checkpoint=theta_1.npz", "--lobench-store=s"]
    given.append("--lobench-gin-param=Case.learned_optimizer = @AdafacMLPLOpt()")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", what, *given, *options],
        check=True,
        # A hit that is checked is traced all the same: here it would be one run in sixteen.
        env=starting._environment() | {"LOBENCH_EXECUTABLES": "unchecked"},
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )


def _cpu_of(work: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _row(name: str, run: Callable[..., None], rounds: int) -> str:
    walls: dict[bool, list[float]] = {True: [], False: []}
    processors: dict[bool, list[float]] = {True: [], False: []}
    for keeps in (True, True, False):  # the first makes what the others find
        run(*_flags(keeps))
    for _ in range(rounds):
        for keeps in (True, False):
            work = functools.partial(run, *_flags(keeps))
            processors[keeps].append(_cpu_of(lambda work=work, into=walls[keeps]: into.append(seconds_of(work))))
    cells = [name]
    for times in (walls, processors):
        ratios = sorted(one / other for one, other in zip(times[True], times[False], strict=True))
        cells += [f"{statistics.median(times[True]):.2f}", f"{statistics.median(times[False]):.2f}"]
        cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})")
    return "| " + " | ".join(cells) + " |"


def _flags(keeps: bool) -> list[str]:
    return [] if keeps else ["--lobench-no-executables"]


def main() -> None:
    rounds = 2 if "--quick" in sys.argv else 7
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    print("\n| process | wall s, kept | without | ratio | cpu s, kept | without | ratio |")
    print("| --- | ---: | ---: | --- | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        (folder / "digits.gin").write_text(starting._GIN)
        shutil.copytree(_SUITE, folder / "quick")
        subprocess.run([sys.executable, "-c", starting._CHECKPOINT, str(folder / "theta_1.npz")], check=True)
        print(_row("a known case", functools.partial(_pytest, folder, "digits.gin"), rounds), flush=True)
        quick = functools.partial(_pytest, folder, "quick", "--lobench-gin-param=Case.num_inner_steps = 50")
        print(_row("`pytest quick`, 6 cases", quick, rounds), flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main()
