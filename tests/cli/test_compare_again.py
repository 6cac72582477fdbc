"""`lobench compare` called again: the same reference, verdict and exit code, whatever the first call stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commands import lobench_here as lobench
from imported import curve, write_csv
from shown import texts_of
from stores import add
from tiny import make_run, make_suite

from lobench import import_curves
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("compare")

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
    assert re.search(SHOWN["reference-theta-1-npz-sha256"], done.stdout, re.MULTILINE), done.stdout


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores of checkpoints, and one of imports."""
    folder = tmp_path_factory.mktemp("stores")
    for place, level in enumerate((0.5, 0.4, 0.8), 1):
        finals = [level + 0.01 * seed for seed in range(6)]
        for store in ("one", "two"):
            add(folder / store, 100 * place, {"a": {"train/loss": finals}, "b": {"train/loss": finals}})
    add(folder / "one", 0, {"a": {"train/loss": [0.3] * 6}, "b": {"train/loss": [0.3] * 6}}, optimizer="adam()")
    rows = [
        row
        for method, level in (("adam", 3.27), ("muon", 3.2), ("late", 3.4))
        for seed in range(4)
        for row in curve(method, seed, [4.0, level + 0.001 * seed])
    ]
    import_curves(write_csv(folder / "x.csv", rows), store=folder / "imported", metrics=["val_loss"])
    return folder


COMMANDS = {
    "steps": ("100", "200", "--store", "one"),
    "worse": ("100", "300", "--store", "one"),
    "several": ("100", "200", "300", "--store", "one", "--strict"),
    "stores": ("two", "one"),
    "a store and a name": ("two@100", "one@300"),
    "an optimizer": ("adam()", "200", "--store", "one"),
    "a target": ("100", "200", "--store", "one", "--target", "0.45"),
    "imports": ("adam", "muon", "--store", "imported"),
    "imports, as one group": ("adam", "late", "--store", "imported", "--seed-means"),
    "track 3": ("muon", "--store", "imported", "--rule", "track3"),
    "track 3, pairs": ("adam", "muon", "--store", "imported", "--rule", "track3", "--strict"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_comparison_of_stored_results_three_times_in_a_row_is_the_same(stores: Path, name: str) -> None:
    found = [lobench("compare", *COMMANDS[name], "--format", "json", cwd=stores) for _ in range(3)]
    assert found[0].returncode in (0, 1) and found[0].stdout, found[0].stderr
    assert found == found[:1] * 3


def test_optimizers_and_a_race_three_times_in_a_row_have_the_same_verdict(place: Path) -> None:
    slow, fast = "sgd(); sgd.learning_rate = 0.0001", "sgd(); sgd.learning_rate = 0.1"
    found = calls(place, fast, slow, "--store", "optimizers")
    assert found == found[:1] * 3 and found[0][:2] == (1, "REGRESSED"), found
    words = ("compare", "--race", fast, slow, "--suite", place / "tiny", "--store", "race", "--workers", "1")
    ended = [lobench(*words, "--seeds", "4", "--format", "json", cwd=place) for _ in range(3)]
    assert ended[0].returncode == 0, ended[0].stderr
    races = [json.loads(done.stdout) for done in ended]
    kept = [{key: race[key] for key in race if key not in ("num_new", "seconds")} for race in races]
    assert kept == kept[:1] * 3
