"""A store with a baseline, written through the ledger: what reports are tested on, in a moment and without jax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lobench.analysis.scores.baseline_file import Baseline, BaselineCase, BaselineTraining, GridPoint, TunedCurves
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.film import Film, Scene, Shape
from lobench.core.program import PROGRAM_VERSION
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import Delivery

NASTY = "<script>alert('x')</script>&\"quoted\""
STEPS = (0, 25, 50, 75, 100)
SEEDS = 4


def case_info(name: str, suite: str = "digits", role: str = "", headline: str = "score") -> CaseInfo:
    return CaseInfo(
        identity=f"identity of {name}",
        optimizer_hash="o",
        suite=suite,
        name=name,
        node_id=f"nowhere/{suite}.gin::{name}",
        num_inner_steps=STEPS[-1],
        num_seeds=SEEDS,
        seed_block=None,
        problem=f"problem of {name}",
        role=role,
        headline=headline,
    )


def curves(final: float, rng: np.random.Generator, *, diverges: bool = False) -> Curves:
    """Losses that fall from 2.3 to about `final`; with `diverges` the last seed is NaN from the third evaluation on."""
    ideal = np.geomspace(2.3, final, len(STEPS))
    metrics = {}
    for name, factor in (("train/loss", 1.0), ("test/loss", 1.2)):
        noise = np.exp(0.05 * rng.standard_normal((SEEDS, len(STEPS))))
        values = (ideal * factor * noise).astype(np.float32)
        values[:, 0] = 2.3 * factor  # before the first step all checkpoints are alike
        if diverges:
            values[-1, 2:] = np.nan
        metrics[name] = memoryview(values)
    return Curves(
        seeds=tuple(range(SEEDS)),
        metrics=metrics,
        eval_steps=STEPS,
        diverged_at=(-1, -1, -1, 42 if diverges else -1),
        film=film() if diverges else None,
        compile_seconds=1.5,
        wall_seconds=0.25,
        num_params=10,
        provenance=Provenance(host="here", device="cpu", versions={"jax": "0"}, bindings=f"x = '{NASTY}'"),
    )


def film() -> Film:
    """A dot that goes from the left to the right in 0.2 seconds, over a line that stands."""
    shapes = (Shape(kind="dot", style="s2"), Shape(kind="line", style="s1", width=6))
    frames = np.zeros((3, 2, 4), np.float32)
    frames[:, 0], frames[:, 1] = [0.25, 0.5, 0.1, 0.0], [0.0, 0.1, 1.0, 0.1]
    frames[:, 0, 0] = 0.25, 0.5, 0.75
    return Film(scene=Scene(title="Walk", shapes=shapes, frame_seconds=0.1), frames=memoryview(frames), seed=0)


def make_store(
    folder: Path,
    *,
    num_checkpoints: int = 4,
    num_cases: int = 3,
    roles: Sequence[str] = (),
    headline: str = "score",
    former_steps: Sequence[int] = (),
) -> Path:
    """Writes a store: checkpoints that get better, a case that diverges, an evaluation that failed, names to escape.

    Args:
      former_steps: Outer steps whose results have other bindings of the optimizer than the last checkpoint's.
    """
    store, rng = folder / "store", np.random.default_rng(0)
    names = [*(f"case{index}" for index in range(num_cases - 1)), NASTY]
    given = [*roles, *[""] * num_cases]
    cases = [case_info(name, role=role, headline=headline) for name, role in zip(names, given, strict=False)]
    ledger = Ledger.open(store)
    for step in range(num_checkpoints):
        checkpoint = Checkpoint(uri=f"/runs/{NASTY}/theta_{step}.npz", sha256=f"{step:064d}", outer_step=step)
        with ledger.transaction():
            position = ledger.record_sighting(Subject.of_checkpoint(checkpoint))
            ledger.record_admission(position, "admitted")
            bindings = "former" if step in former_steps else "o"
            cases = [replace(case, optimizer_hash=bindings) for case in cases]
            for index, case in enumerate(cases):
                is_last = step == num_checkpoints - 1
                failed = is_last and index == 1
                ledger.record_evaluation(
                    _key(checkpoint, case),
                    case,
                    Outcome.FAILED if failed else Outcome.PASSED,
                    curves=curves(1.5 / (step + 1 + index), rng, diverges=is_last and index == 0),
                    message=f"AssertionError: {NASTY}" if failed else "",
                )
            keys = [case.key for case in cases]
            ledger.finish_checkpoint(position, programs=[PROGRAM_VERSION], case_keys=keys)
    ledger.close()
    return store


def deliveries_of(store: Path) -> list[Delivery]:
    """Returns what a sink of the store gets."""
    ledger = Ledger.open(store, read_only=True)
    found = list(ledger.deliveries_after(0, 10_000))
    ledger.close()
    return found


def _key(checkpoint: Checkpoint, case: CaseInfo) -> EvaluationKey:
    return EvaluationKey(
        checkpoint_sha256=checkpoint.sha256,
        optimizer_hash=case.optimizer_hash,
        case_identity=case.identity,
        seed_block=SeedBlock(start=0, size=SEEDS),
        program_version=PROGRAM_VERSION,
    )


def make_baseline(folder: Path, *, num_cases: int = 3, horizon_factor: int = 10, with_last: bool = False) -> Path:
    """Writes tuned Adam's baseline of every case of `make_store` but the last, and returns the suite's folder.

    Args:
      with_last: Of the last one too.
    """
    steps = np.asarray([*STEPS, 500, 1000])
    losses = np.geomspace(2.3, 0.2, len(STEPS)).tolist() + [0.15, 0.1]
    point = GridPoint(values={"learning_rate": 0.01}, study=0, final=losses[4], num_diverged=0)
    cases = {
        f"digits.gin:{name}": BaselineCase(
            problem=f"problem of {name}",
            training=BaselineTraining(num_inner_steps=STEPS[-1], horizon_factor=horizon_factor, eval_every=25),
            seeds=tuple(range(5)),
            grid=(point, GridPoint(values={"learning_rate": 1.0}, study=0, final=math.nan, num_diverged=5)),
            best=(0,),
            untrained={"train/loss": 2.3, "test/loss": 2.76},
            starts={"train/loss": (2.3,) * 5, "test/loss": (2.76,) * 5},
            tuned={"train/loss": (losses[4],) * 5, "test/loss": (1.2 * losses[4],) * 5},
            curves=TunedCurves(
                steps=steps,
                means={
                    name: np.asarray(losses, np.float32) * f for name, f in (("train/loss", 1.0), ("test/loss", 1.2))
                },
                envelope=np.linspace(2.3, 0.1, 512).astype(np.float32),
            ),
        )
        for name in [*(f"case{index}" for index in range(num_cases - 1)), *[NASTY] * with_last]
    }
    suite = folder / "suite"
    baseline = Baseline(optimizer="adam", protocol="velo", refresh="lobench baseline suites/digits", cases=cases)
    baseline.save(suite / "baselines" / "adam-velo.json")
    return suite
