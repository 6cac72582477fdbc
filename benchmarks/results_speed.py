"""How long `lobench results` takes on a store of many evaluations with curves.

`python benchmarks/results_speed.py [EVALUATIONS]` makes the store, and prints the best of five for each command (of
fewer than 1,000 evaluations: one run): wall time, and processor time, which says the same on a machine that others use;
and the ratio to `lobench --help`.
"""

from __future__ import annotations

import sys
import tempfile
from array import array
from pathlib import Path
from random import Random

from harness import answer_help, best_of

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

__all__ = ["main", "make_store"]

NUM_CASES, NUM_SEEDS, NUM_EVALS = 25, 4, 21


def make_store(store: Path, num_evaluations: int) -> None:
    """Writes a store as a watch of 25 cases leaves it: four seeds, 21 evaluations, losses and accuracies."""
    draw = Random(0)
    provenance = Provenance(host="host", device="cpu", versions={"jax": "0.10.2"}, bindings="Case.x = 1\n" * 40)
    ledger = Ledger.open(store, name="benchmark")
    with ledger.transaction():
        for number in range(num_evaluations // NUM_CASES):
            sha256 = f"{number:064x}"
            checkpoint = Checkpoint(uri=f"runs/theta_{number}.npz", sha256=sha256, outer_step=number * 10)
            position = ledger.record_sighting(Subject.of_checkpoint(checkpoint))
            ledger.set_admission(position, "admitted")
            for case in range(NUM_CASES):
                info = _case(case)
                key = EvaluationKey(
                    checkpoint_sha256=sha256,
                    optimizer_hash=info.optimizer_hash,
                    case_identity=info.identity,
                    seed_block=SeedBlock(start=0, size=NUM_SEEDS),
                    program_version="1",
                )
                ledger.record_evaluation(key, info, Outcome.PASSED, curves=_curves(draw, provenance))
            keys = [_case(case).key for case in range(NUM_CASES)]
            ledger.finish_checkpoint(position, programs=["1"], case_keys=keys)
    ledger.close()


def _case(number: int) -> CaseInfo:
    return CaseInfo(
        identity=f"{number:064d}",
        optimizer_hash="o" * 64,
        suite="bench",
        name=f"case{number}",
        node_id=f"bench/test_bench.py::test_bench[case{number}]",
        num_inner_steps=1000,
        num_seeds=NUM_SEEDS,
        seed_block=None,
    )


def _curves(draw: Random, provenance: Provenance) -> Curves:
    metrics = {}
    for name in ("train/loss", "outer_valid/loss", "test/loss", "train/accuracy", "test/accuracy"):
        values = array("f", [draw.random() / (1 + i % NUM_EVALS) for i in range(NUM_SEEDS * NUM_EVALS)])
        metrics[name] = memoryview(values).cast("B").cast("f", (NUM_SEEDS, NUM_EVALS))
    return Curves(
        seeds=tuple(range(NUM_SEEDS)),
        metrics=metrics,
        eval_steps=tuple(range(0, 50 * NUM_EVALS, 50)),
        diverged_at=(-1,) * NUM_SEEDS,
        wall_seconds=1.0,
        num_params=2410,
        provenance=provenance,
    )


def main(num_evaluations: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        make_store(store, num_evaluations)
        size = (store / "ledger.sqlite").stat().st_size / 2**20
        print(f"{num_evaluations} evaluations with curves, {size:.0f} MiB")
        print("| command | wall | processor | times `lobench --help` |")
        print("| --- | --- | --- | --- |")
        num_runs = 5 if num_evaluations >= 1000 else 1
        wall, baseline = best_of(num_runs, "--help")
        print(f"| lobench --help | {wall:.2f} s | {baseline:.2f} s | 1.0 |")
        arguments = ("results", "--store", str(store))
        for options in (
            (),
            ("--history",),
            ("--by", "method"),
            ("--format", "json"),
            ("--format", "json", "--curves"),
            ("--format", "csv"),
        ):
            wall, seconds = best_of(num_runs, *arguments, *options)
            name = " ".join(("lobench results", *options))
            print(f"| {name} | {wall:.2f} s | {seconds:.2f} s | {seconds / baseline:.1f} |", flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
