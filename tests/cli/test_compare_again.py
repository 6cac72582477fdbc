"""`lobench compare` called again: the same reference, verdict and exit code, whatever the first call stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import lobench
from tiny import make_run, make_suite

from lobench.engine.store.ledger import Ledger

THREE = ("--gin-param", "Case.num_seeds = 3", "--workers", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite, a run with a good checkpoint, and a harmful candidate beside it."""
    folder = tmp_path_factory.mktemp("place")
    make_suite(folder)
    make_run(folder, -2.0)
    (folder / "candidate").mkdir()
    make_run(folder / "candidate", -9.0)
    (folder / "candidate" / "run" / "theta_1.npz").rename(folder / "candidate" / "run" / "theta_2.npz")
    return folder


def calls(folder: Path, *words: str) -> list[tuple[int, str, str]]:
    """Returns exit code, verdict and reference of three calls of a command."""
    found = []
    for _ in range(3):
        done = lobench("compare", *words, "--suite", folder / "tiny", *THREE, "--format", "json", cwd=folder)
        assert done.returncode in (0, 1), done.stderr
        (pair,) = json.loads(done.stdout)
        found.append((done.returncode, pair["verdict"], pair["a"]["sha256"]))
    return found


def test_a_store_is_no_reference_by_the_candidate_that_the_call_before_stored(place: Path) -> None:
    good, bad = "run/theta_1.npz", "candidate/run/theta_2.npz"
    lobench("compare", good, good, "--suite", place / "tiny", "--store", "kept", *THREE, cwd=place)
    found = calls(place, "kept", bad, "--store", "kept")
    assert found == found[:1] * 3 and found[0][:2] == (1, "REGRESSED"), found
    with Ledger.open(place / "kept", read_only=True) as ledger:
        assert len(ledger.events("gate_reference")) == 1, "the choice is recorded once"


def test_a_runs_folder_is_no_reference_by_the_candidate_in_it(place: Path) -> None:
    (place / "grown").mkdir()
    make_run(place / "grown", -2.0, -9.0)
    run = place / "grown" / "run"
    found = calls(place, "grown/run", "grown/run/theta_2.npz", "--store", "of_folder")
    make_run(place / "later", -2.5, -2.6, -2.7)
    (place / "later" / "run" / "theta_3.npz").rename(run / "theta_3.npz")
    found += calls(place, "grown/run", "grown/run/theta_2.npz", "--store", "of_folder")[:1]
    assert found == found[:1] * 4 and found[0][:2] == (1, "REGRESSED"), found


def test_the_reference_is_named_with_its_hash(place: Path) -> None:
    done = lobench(
        "compare",
        "run/theta_1.npz",
        "candidate/run/theta_2.npz",
        "--suite",
        place / "tiny",
        "--details",
        *THREE,
        cwd=place,
    )
    assert re.search(r"^reference: theta_1\.npz \(sha256 [0-9a-f]{12}\)$", done.stdout, re.MULTILINE), done.stdout
