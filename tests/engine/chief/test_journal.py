"""What a commit of the chief writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from case_infos import case_info

from lobench.core import planner
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.history import EvaluationId
from lobench.core.result import Curves, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.checkpoints.intake import Intake
from lobench.engine.checkpoints.source import NoSource
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.interfaces import WatchOptions
from lobench.engine.chief.journal import Journal
from lobench.engine.chief.subjects import Subjects
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.programs import ExpectedProgram
from lobench.engine.store.states import state_folder, state_owner

CASE = case_info("a", identity="i", num_seeds=4, seed_block=1)
CURVES = Curves(seeds=(0,), metrics={}, eval_steps=(), diverged_at=(-1,))


def record(seed: int, version: str) -> tuple[planner.Action, Curves]:
    evaluation = EvaluationId("theta", CASE.key, SeedBlock(start=seed, size=1))
    provenance = Provenance(device="cpu: x86-64-v3", versions={"jax": version, "jaxlib": version})
    curves = replace(CURVES, seeds=(seed,), provenance=provenance)
    return planner.Record(evaluation, CASE, Outcome.PASSED, 0, ""), curves


def test_results_of_one_commit_have_their_programs_and_free_their_states(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "store") as ledger:
        intake = Intake(ledger=ledger, spool=Spool(tmp_path / "spool"), source=NoSource(), readers={}, log=print)
        subjects = Subjects(intake)
        subject = Subject.of_checkpoint(Checkpoint(uri="theta", sha256="theta", outer_step=1))
        subjects.add(ledger.record_sighting(subject), subject)
        subjects.register_cases(subject.variant.key, [CASE])
        journal = Journal(ledger, WatchOptions(), subjects, SuiteFiles([]))
        states = state_folder(ledger.store)
        states.mkdir()
        for seed in range(3):
            owner = state_owner("theta", CASE.key, SeedBlock(start=seed, size=1))
            (states / f"prefix.{seed}+1.5.{owner}.safetensors").touch()
        for decision in (record(0, "0.7.0"), record(1, "0.7.1"), record(1, "0.7.1"), record(3, "0.7.0")):
            journal.add(decision)
        journal.commit()
        found = {row.key.seed_block.start: row.program.jax for row in ledger.evaluations()}
        assert found == {0: "0.7.0", 1: "0.7.1", 3: "0.7.0"}
        assert [file.name.split("+")[0] for file in states.iterdir()] == ["prefix.2"]
        assert journal.programs == ledger.accepted_programs(ExpectedProgram().all_programs())
