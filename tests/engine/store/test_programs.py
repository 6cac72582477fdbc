"""What fixes bits is in the key: stores of before that open, go on, and say what they do not know."""

from __future__ import annotations

import dataclasses
import socket
import sqlite3
from pathlib import Path

import pytest
from case_infos import case_info
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.program import ELSEWHERE, PROGRAM_VERSION, Program, describe_programs
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.programs import ExpectedProgram, program_here
from lobench.engine.workers.devices import instruction_set

SHOWN = texts_of("store")

CASE = case_info("a", identity="i")
BLOCK = SeedBlock(start=0, size=1)
CURVES = Curves(seeds=(0,), metrics={}, eval_steps=(), diverged_at=(-1,))
VERSIONS = {"jax": "0.7.0", "jaxlib": "0.7.0"}
HERE = Provenance(host=socket.gethostname(), device="cpu: cpu x 2", versions=VERSIONS)


def key_of(sha256: str, version: str) -> EvaluationKey:
    return EvaluationKey(
        checkpoint_sha256=sha256,
        optimizer_hash="o",
        case_identity="i",
        seed_block=BLOCK,
        program_version=version,
    )


def record(ledger: Ledger, sha256: str, version: str, provenance: Provenance | None) -> None:
    curves = None if provenance is None else dataclasses.replace(CURVES, provenance=provenance)
    ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri=sha256, sha256=sha256, outer_step=1)))
    key = key_of(sha256, version)
    outcome = Outcome.ERROR if curves is None else Outcome.PASSED
    ledger.record_evaluation(key, CASE, outcome, curves=curves)


def old_store(folder: Path, **provenances: Provenance | None) -> Path:
    """A store as an older lobench left it: its keys have a number alone, and it has no table of programs."""
    ledger = Ledger.open(folder)
    for sha256, provenance in provenances.items():
        record(ledger, sha256, PROGRAM_VERSION, provenance)
    ledger.close()
    with sqlite3.connect(folder / "ledger.sqlite") as database:
        database.execute("DROP TABLE programs")
        database.execute("DROP TABLE expectations")
    database.close()
    return folder


def programs(store: Path, *, read_only: bool) -> dict[str, Program]:
    ledger = Ledger.open(store, read_only=read_only)
    found = {row.key.checkpoint_sha256: row.program for row in ledger.evaluations()}
    keys = {row.key.checkpoint_sha256: row.key.program_version for row in ledger.evaluations()}
    alone = {sha256: [row.program for row in ledger.evaluations(sha256)] for sha256 in found}
    ledger.close()
    assert alone == {sha256: [program] for sha256, program in found.items()}
    assert keys == {sha256: program.key for sha256, program in found.items()}
    return found


@pytest.mark.parametrize("read_only", [True, False])
def test_an_old_store_counts_as_what_its_provenance_says(tmp_path: Path, read_only: bool) -> None:
    elsewhere = dataclasses.replace(HERE, host="another machine")
    gpu = dataclasses.replace(elsewhere, device="gpu: NVIDIA H200", together="2 of 4")
    store = old_store(tmp_path, here=HERE, there=elsewhere, gpu=gpu, error=None)
    known = Program(jax="0.7.0", jaxlib="0.7.0", device=f"cpu: {instruction_set()}")
    assert programs(store, read_only=read_only) == {
        "here": known,
        "there": dataclasses.replace(known, device=""),
        "gpu": dataclasses.replace(known, device="gpu: NVIDIA H200", together=4),
        "error": Program(),
    }
    assert SHOWN["unknown-device"] in str(dataclasses.replace(known, device=""))
    assert str(Program(version="1")) == SHOWN["unknown-program-version-1"]


def test_a_row_without_curves_counts_as_made_like_the_others(tmp_path: Path) -> None:
    found = programs(old_store(tmp_path, here=HERE, error=None), read_only=False)
    assert found["error"] == found["here"]


def test_a_migrated_store_goes_on(tmp_path: Path) -> None:
    today = dataclasses.replace(HERE, versions={"jax": program_here().jax, "jaxlib": program_here().jaxlib})
    store = old_store(tmp_path, here=today, there=dataclasses.replace(today, host="another machine"))
    ledger = Ledger.open(store)
    history = ledger.history(ledger.accepted_programs(ExpectedProgram().all_programs()))
    assert {evaluation.sha256 for evaluation in history.recorded} == {"here"}
    assert len(list(ledger.evaluations())) == 2
    ledger.close()


def test_what_a_chief_expected_leads_to_what_it_turned_out_to_be(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    expected, real = (
        ExpectedProgram(is_elsewhere=True).of(0),
        dataclasses.replace(program_here(), device="cpu: x86-64-v2"),
    )
    assert expected.device == ELSEWHERE
    ledger.record_evaluation(
        key_of("x", real.key), CASE, Outcome.PASSED, curves=CURVES, program=real, expected=expected
    )
    assert ledger.accepted_programs([expected]) == {expected.key, real.key}
    assert ledger.accepted_programs([program_here()]) == {program_here().key}
    assert [row.program for row in ledger.evaluations()] == [real]
    ledger.close()


def test_what_computes_fewer_at_once_was_expected_all_the_same(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path)
    here = program_here()
    cut, together = dataclasses.replace(here, at_once=2), dataclasses.replace(here, together=8, at_once=1)
    for program in (here, cut, together):
        # As pytest records it: without what was expected.
        ledger.record_evaluation(key_of("x", program.key), CASE, Outcome.PASSED, curves=CURVES, program=program)
    assert len({here.key, cut.key, together.key}) == 3
    assert ledger.accepted_programs([here]) == {here.key, cut.key}
    assert ledger.accepted_programs(ExpectedProgram(together=8).all_programs()) >= {here.key, cut.key, together.key}
    assert ledger.accepted_programs([dataclasses.replace(here, jax="0.1")]).isdisjoint({here.key, cut.key})
    ledger.close()


def test_an_old_store_and_a_migrated_copy_of_it_are_one(tmp_path: Path) -> None:
    stores = [old_store(tmp_path / name, here=HERE, error=None) for name in ("old", "new")]
    Ledger.open(stores[1]).close()
    for order in (stores, stores[::-1]):
        target = tmp_path / f"both-{order[0].name}"
        found = merge_stores(order, target)
        assert [(one.taken, one.known, one.conflicts) for one in found] == [(2, 0, ()), (0, 2, ())]
        assert len({program.key for program in programs(target, read_only=True).values()}) == 1


def test_several_programs_are_said_in_one_line() -> None:
    one = Program(jax="0.7.0", jaxlib="0.7.0", device="cpu: x86-64-v3")
    assert describe_programs({one, dataclasses.replace(one, at_once=2)}) == ""  # as two cases of a suite are
    other = dataclasses.replace(one, jax="0.7.1", together=4)
    assert describe_programs([one]) == ""
    assert describe_programs([one, other]) == (
        SHOWN["results-of-2-programs-which"].format(program_version=PROGRAM_VERSION)
    )
    assert len({one.key, other.key, dataclasses.replace(one, device="")}) == 3


def test_instruction_sets_by_what_the_processor_says(tmp_path: Path) -> None:
    v2 = "sse4_1 sse4_2 ssse3 popcnt"
    v3 = f"{v2} avx2 bmi1 bmi2 f16c fma movbe"
    for flags, expected in (("sse2", "x86-64"), (v2, "x86-64-v2"), (v3, "x86-64-v3"), (f"{v3} avx512f", "x86-64-v3")):
        file = tmp_path / f"cpuinfo {len(flags)}"
        file.write_text(f"processor : 0\nflags\t\t: fpu {flags}\n")
        if instruction_set().startswith("x86-64"):
            assert instruction_set(file) == expected
