"""Comparisons whose outcome is known: the recorded curves of the reference task."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from case_infos import case_info
from commands import lobench
from reference import reference_curves

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

CASE = case_info("digits_ref", suite="reference", node_id="n", num_inner_steps=500, num_seeds=2)


def recorded_store(store: Path, *names: str) -> None:
    """A store of the recorded curves of optimizers on the reference task; their positions are their outer steps."""
    ledger = Ledger.open(store)
    for step, name in enumerate(names, 1):
        position = ledger.record_sighting(
            Subject.of_checkpoint(Checkpoint(uri=name, sha256=f"{step:064x}", outer_step=step))
        )
        ledger.record_admission(position, "admitted")
        seeds = reference_curves()[name]
        train = np.asarray([seed["train_loss_every25"] for seed in seeds], np.float32)
        test = train.copy()  # of the test loss its end alone is recorded; untrained the two are alike
        test[:, -1] = [seed["final_test_loss"] for seed in seeds]
        curves = Curves(
            seeds=(0, 1),
            metrics={"train/loss": memoryview(train), "test/loss": memoryview(test)},
            eval_steps=(*range(0, 500, 25), 500),
            diverged_at=(-1, -1),
        )
        key = EvaluationKey(
            checkpoint_sha256=f"{step:064x}",
            optimizer_hash="o",
            case_identity=CASE.identity,
            seed_block=SeedBlock(start=0, size=2),
            program_version="recorded",
        )
        ledger.record_evaluation(key, CASE, Outcome.PASSED, curves=curves)
        ledger.finish_checkpoint(position, programs=["recorded"], case_keys=[CASE.key])
    ledger.close()


def test_curriculum_is_better_on_the_recorded_curves_and_the_same_is_never_worse(tmp_path: Path) -> None:
    recorded_store(tmp_path, "dm", "dm_cl")
    done = lobench("compare", "1", "2", "--store", tmp_path, "--format", "json")
    (found,) = json.loads(done.stdout)
    effect = found["metrics"]["train/loss"]
    assert effect["difference"]["mean"] > 0.1 and effect["probability_of_improvement"]["mean"] == 1.0
    assert done.returncode == 0 and found["verdict"] != "REGRESSED"
    assert lobench("compare", "2", "2", "--store", tmp_path).returncode == 0
