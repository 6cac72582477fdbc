"""10,000 evaluations, 300 checkpoints and 200 methods: what `results`, `report` and `import` take.

Usage: python benchmarks/many_evaluations.py [EVALUATIONS]

The store is written here: the checkpoints of a run and methods that stand alone (fewer of both for fewer evaluations),
on 20 cases, 4 seeds, 41 points a curve, train and test, all by code that its author has not edited. What is imported
is a tidy csv of as many evaluations: 10 cases, 5 seeds, 41 points, one metric. The best of five for each command (of
fewer than 1,000 or more than 20,000: one run): wall time, processor time, which says nearly the same on a machine that
others use, its ratio to `lobench --help`, and the most memory; starting Python is included.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from harness import answer_help, best_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import report_store

from lobench.core.case import SeedBlock
from lobench.core.code import join_code
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

__all__ = ["NUM_CASES", "add_method", "make_store"]

NUM_CASES = 20
_RUN = 0.6  # of the subjects: the checkpoints of a run, beside methods that stand alone
_STEPS = range(0, 1001, 25)
_CODE = join_code("1f" * 8, "2a" * 8)


def make_store(folder: Path, evaluations: int) -> Path:
    """Writes a store of checkpoints and methods, as many as give so many evaluations."""
    report_store.STEPS = tuple(_STEPS)
    subjects = evaluations // NUM_CASES
    checkpoints = round(_RUN * subjects)
    store = report_store.make_store(folder, num_checkpoints=checkpoints, num_cases=NUM_CASES)
    draw = np.random.default_rng(1)
    with Ledger.open(store) as ledger, ledger.transaction():
        ledger.connection.execute("UPDATE evaluations SET code = ?", (_CODE,))
        for method in range(subjects - checkpoints):
            add_method(ledger, f"adam(); adam.learning_rate = {10 ** (-4 + method / 50):.6g}", draw)
    return store


def add_method(ledger: Ledger, optimizer: str, draw: np.random.Generator) -> None:
    """Evaluates a method on all cases of the store."""
    names = [*(f"case{index}" for index in range(NUM_CASES - 1)), report_store.NASTY]
    subject = Subject.of_optimizer(optimizer)
    ledger.record_admission(ledger.record_sighting(subject), "admitted")
    for case in map(report_store.case_info, names):
        curves = report_store.curves(float(draw.uniform(0.1, 1.0)), draw)
        program = Program.of(curves.provenance)
        key = EvaluationKey(
            checkpoint_sha256=subject.sha256,
            optimizer_hash=optimizer,
            case_identity=case.identity,
            seed_block=SeedBlock(start=0, size=report_store.SEEDS),
            program_version=program.key,
            code=_CODE,
        )
        ledger.record_evaluation(key, case, Outcome.PASSED, curves=curves, program=program)


def write_csv(path: Path, evaluations: int) -> None:
    """Writes curves as another program logs them: 10 cases and 5 seeds of each method."""
    draw, drop = np.random.default_rng(0), np.exp(-np.arange(len(_STEPS)) / len(_STEPS))
    with path.open("w") as file:
        file.write("method,case,seed,step,metric,value\n")
        for number in range(evaluations):
            name = f"method{number // 50},case{number // 5 % 10},{number % 5}"
            losses = 2.3 * drop ** draw.uniform(0.5, 2) + 0.01 * draw.standard_normal(len(_STEPS))
            file.writelines(
                f"{name},{step},val/loss,{loss:.6f}\n" for step, loss in zip(_STEPS, losses.tolist(), strict=True)
            )


def main() -> None:
    evaluations = int(sys.argv[1]) // NUM_CASES * NUM_CASES if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = make_store(folder, evaluations)
        table = folder / "curves.csv"
        imported = folder / "imported"
        report = folder / "report.html"
        write_csv(table, evaluations)
        print(f"{evaluations:,} evaluations")
        print("| command | wall | processor | times `lobench --help` | memory |")
        print("| --- | --- | --- | --- | --- |")
        num_runs = 5 if 1000 <= evaluations <= 20_000 else 1
        wall, baseline, memory = best_of(num_runs, "--help")
        print(f"| lobench --help | {wall:.2f} s | {baseline:.2f} s | 1.0 | {memory:.0f} MB |")
        for shown, arguments, made in (
            ("results", ("results", "--store", store), None),
            ("results --history", ("results", "--store", store, "--history"), None),
            ("results --by method", ("results", "--store", store, "--by", "method"), None),
            ("results --format json", ("results", "--store", store, "--format", "json"), None),
            ("results --format csv", ("results", "--store", store, "--format", "csv"), None),
            ("report", ("report", "--store", store, "--output", report), None),
            ("import", ("import", table, "--store", imported), imported),
        ):
            wall, seconds, memory = best_of(num_runs, *arguments, made=made)
            ratio = seconds / baseline
            print(f"| lobench {shown} | {wall:.2f} s | {seconds:.2f} s | {ratio:.0f} | {memory:.0f} MB |", flush=True)
        print(f"the report has {report.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    answer_help(__doc__)
    main()
