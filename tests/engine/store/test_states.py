"""Saved states as files: whose they are, what is freed, and what is said of those that are of no use."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown import texts_of

from lobench.core.case import SeedBlock
from lobench.core.history import EvaluationId
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.states import (
    BlockStates,
    leave_mark,
    marked_folder,
    remove_finished_states,
    state_folder,
    state_owner,
    sweep_states,
)

SHOWN = texts_of("store")

BLOCK = SeedBlock(start=0, size=2)
LEAVES = {"['w']": np.arange(3, dtype=np.float32), "scalar": np.asarray(2, np.float16), "none": np.zeros((0, 2), bool)}


def states(folder: Path, output: list[str] | None = None, **values: Any) -> BlockStates:
    log = (output if output is not None else []).append
    given = {"prefix_hashes": ["a", "b"], "block": BLOCK, "owner": "me", "program": "this", "where": "s/c", "log": log}
    return BlockStates(**{"folder": folder, **given, **values})


def save(folder: Path, step: int, *, phase: int = 0, is_final: bool = False, **values: Any) -> None:
    states(folder, **values).save((LEAVES, {"step": step, "phase": phase}), is_final=is_final)


def names(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".safetensors") for path in folder.iterdir())


def test_the_furthest_state_of_what_begins_alike_is_loaded_whole(tmp_path: Path) -> None:
    assert states(tmp_path / "none").load() is None
    save(tmp_path, 5)
    save(tmp_path, 9, owner="other")
    save(tmp_path, 12, prefix_hashes=["c"], owner="other")
    save(tmp_path, 14, block=SeedBlock(start=2, size=2))
    found = states(tmp_path).load()
    assert found is not None
    leaves, header = found
    assert (header["step"], header["phase"], header["made_by"]) == (9, 0, "this")
    assert leaves.keys() == LEAVES.keys()
    for name, leaf in LEAVES.items():
        assert (leaves[name].dtype, leaves[name].shape) == (leaf.dtype, leaf.shape)
        assert leaves[name].tobytes() == leaf.tobytes()


def test_a_save_takes_the_place_of_the_one_before_and_of_no_other(tmp_path: Path) -> None:
    save(tmp_path, 9, owner="other")
    mine = states(tmp_path)
    for step in (3, 6):
        mine.save((LEAVES, {"step": step, "phase": 0}), is_final=False)
    assert names(tmp_path) == ["a.0+2.6.me", "a.0+2.9.other"]
    mine.save((LEAVES, {"step": 8, "phase": 1}), is_final=True)
    assert names(tmp_path) == ["a.0+2.9.other", "b.0+2.8.kept"]


def test_what_is_truncated_gives_way_to_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 5)
    save(tmp_path, 9)
    path = tmp_path / "a.0+2.9.me.safetensors"
    whole = path.read_bytes()
    for size in (0, 4, 60, len(whole) - 1):
        path.write_bytes(whole[:size])
        output: list[str] = []
        found = states(tmp_path, output).load()
        assert found is not None and found[1]["step"] == 5
        assert not path.exists()
        (line,) = output
        assert line.startswith(SHOWN["c-seeds-0-2-the"]) and line.endswith("anew")


@pytest.mark.parametrize("place", [8, 40, -1])
def test_one_flipped_bit_is_seen(tmp_path: Path, place: int) -> None:
    save(tmp_path, 5)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    output: list[str] = []
    assert states(tmp_path, output).load() is None and len(output) == 1


def test_a_state_of_another_program_is_said_by_name_and_removed(tmp_path: Path) -> None:
    save(tmp_path, 5, prefix_hashes=["old"], program="version 2, jax 0.4")
    save(tmp_path, 7, prefix_hashes=["old"], owner="kept")
    output: list[str] = []
    assert states(tmp_path, output).load() is None
    assert output == [SHOWN["c-seeds-0-2-the-saved"]]
    assert names(tmp_path) == ["old.0+2.7.kept"]


def test_where_the_disk_takes_nothing_the_training_goes_on_and_it_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output: list[str] = []
    mine = states(tmp_path / "file", output)
    for step in (1, 2):
        mine.save((LEAVES, {"step": step, "phase": 0}), is_final=False)
    (line,) = output
    assert SHOWN["its-state-cannot-be-saved"] in line and SHOWN["going-on-without"] in line


def test_a_durable_result_frees_its_own_states(tmp_path: Path) -> None:
    for sha256 in ("theta", ""):
        save(tmp_path, 5, owner=state_owner(sha256, "case:adam", BLOCK))
    save(tmp_path, 5, owner="other")
    save(tmp_path, 6, is_final=True)
    durable = [EvaluationId("theta", "case:adam", BLOCK)]
    remove_finished_states(tmp_path, durable)
    assert names(tmp_path) == ["a.0+2.5.other", "a.0+2.6.kept"]
    remove_finished_states(tmp_path / "none", durable)


def test_a_restart_sweeps_what_is_half_written_and_no_state_that_may_be_wanted(tmp_path: Path) -> None:
    folder = state_folder(tmp_path)
    save(folder, 5)
    (folder / ".tmp-1").touch()
    mark = leave_mark(folder)
    assert marked_folder(mark) == folder
    with contextlib.closing(Ledger.open(tmp_path, name="test")) as ledger:
        sweep_states(folder, ledger.connection)
    assert names(folder) == ["a.0+2.5.me"]
    assert marked_folder(mark) is None and marked_folder("") is None
    (tmp_path / "file").touch()
    assert leave_mark(tmp_path / "file") == ""


def test_of_kept_states_there_are_as_many_as_there_is_room_for_those_used_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prefix in ("a", "b"):
        save(tmp_path, 5, prefix_hashes=[prefix], is_final=True)
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    monkeypatch.setattr("lobench.engine.store.states._MAX_KEPT_BYTES", int(2.5 * size))
    save(tmp_path, 9, prefix_hashes=["x"], owner="other")
    assert states(tmp_path, prefix_hashes=["a"]).load() is not None
    save(tmp_path, 5, prefix_hashes=["c"], is_final=True)
    assert names(tmp_path) == ["a.0+2.5.kept", "c.0+2.5.kept", "x.0+2.9.other"], "b was not gone on from"
    monkeypatch.setattr("lobench.engine.store.states._MAX_KEPT_BYTES", 0)
    save(tmp_path, 5, prefix_hashes=["d"], is_final=True)
    assert names(tmp_path) == ["d.0+2.5.kept", "x.0+2.9.other"], "the one that was asked for stays"
