"""Exploded seeds are taken as diverged ones by every command that decides: real trainings of both kinds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import lobench_here, pytest_session
from tiny import TASKS, make_run, make_suite

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]  # real trainings by every command, twice

TRAP = '''
@configurable
class Trap(Task):
    """Loss of a dish. Once a seed with a low mark is near the minimum, its loss is `lost`."""
    def __init__(self, *, lost, share=0.3, dim=3):
        self.lost, self.share, self.dim = float(lost), share, dim
    def init(self, key):
        place, mark = jax.random.split(key)
        return {"place": jax.random.normal(place, (self.dim,)), "mark": jax.random.uniform(mark)}
    def loss(self, params, key, data):
        loss = jnp.sum(params["place"] ** 2 + 0.2 * params["place"] ** 4)
        is_lost = (params["mark"] < self.share) & (loss < 0.1)
        return jnp.where(is_lost, self.lost, loss)
'''
GIN = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 8
Case.eval_every = 5
Trap.lost = "{lost}"
a/Suite.role = "meta_train"
a/Case.task = @Trap()
b/Suite.role = "meta_test"
b/Case.task = @Trap()
b/Trap.dim = 5
"""
STUDY = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 8
tuned/Method.optimizer = @sgd()
tuned/Method.search = @grid()
tuned/sgd.learning_rate = @Discrete()
Discrete.values = [0.0001, 0.01, 0.1, 0.15]
slow/Method.optimizer = @sgd()
slow/sgd.learning_rate = 0.001
middling/Method.optimizer = @sgd()
middling/sgd.learning_rate = 0.03
fast/Method.optimizer = @sgd()
fast/sgd.learning_rate = 0.12
"""
SLOW, FAST = "sgd(); sgd.learning_rate = 0.0001", "sgd(); sgd.learning_rate = 0.1"
ONE, TWO, THREE = (f"run/theta_{step}.npz" for step in (1, 2, 3))
WATCHED = ("--store", "run/lobench_results/tiny")
GATED = ("--lobench-store", "run/lobench_results/tiny", "--lobench-reuse")  # what the watch has evaluated

COMMANDS: dict[str, tuple[str, ...]] = {
    "watch": ("watch", "run", "--suite", "tiny", "--once", "--checkpoints", "all"),
    "run": ("run", "study.gin", "--store", "study"),
    "compare": ("compare", "1", "2", "3", *WATCHED),
    "compare, at most 10%": ("compare", "3", "2", *WATCHED, "--max-diverged", "0.1", "--strict"),
    "compare, one group": ("compare", "slow", "fast", "--store", "study", "--seed-means"),
    "race": ("compare", "--race", SLOW, FAST, "--suite", "tiny", "--seeds", "16"),
    "alarm": ("alarm", "run", "--suite", "tiny", "--alarm", "regress,overfit"),
    "best": ("best", "run", "--suite", "tiny", "--top", "2"),
    "bisect": ("bisect", "run", "--suite", "tiny", "--case", "a", "--most", "4"),
    "ablate": ("ablate", SLOW, FAST, "--suite", "tiny", "--seeds", "8"),
    "budget": ("budget", "study"),
    "bold": ("results", "--store", "study", "--by", "method"),
    "baseline": ("baseline", "tiny", "--horizon-factor", "1"),
    "compare, tuned": ("compare", "1", "2", "3", *WATCHED),
    "score": ("results", *WATCHED, "--by", "method"),
}
GATES = {"gate": (TWO, ONE), "gate, turned": (ONE, TWO), "gate, alike": (THREE, TWO)}
# Numbers of seeds that were lost in one of the two ways, and what depends on the clock or on the binding of `lost`.
DIFFERENT = {"diverged", "exploded", "at", "case"}
# Tables print the loss at which a seed exploded.
FINALS = {"mean", "lower", "upper", "interval", "searched"}


def ends_of(folder: Path, lost: str) -> dict[str, Any]:
    """Runs every command in a folder whose trap is `lost`, and returns exit codes with what they decided."""
    suite = make_suite(folder, GIN.format(lost=lost))
    (suite / "tiny_tasks.py").write_text(TASKS + TRAP)
    make_run(folder, -9.0, -2.0, -1.9)
    (folder / "study.gin").write_text(STUDY)
    found: dict[str, Any] = {}
    for name, words in COMMANDS.items():
        options = () if words[0] in ("watch", "run", "baseline") else ("--format", "json")
        done = lobench_here(*words, *options, cwd=folder)
        assert done.returncode in (0, 1), (name, done.stderr, done.stdout)
        found[name] = (done.returncode, decided(json.loads(done.stdout) if options else None))
    for name, (candidate, reference) in GATES.items():
        words = ["tiny", "--rootdir", str(folder), "--lobench-checkpoint", candidate, "--lobench-against", reference]
        stored = ("--lobench-store", name) if name == "gate, turned" else GATED  # it evaluates both itself
        done = pytest_session(*words, *stored, f"--junitxml={name}.xml", cwd=folder)
        assert done.returncode in (0, 1), (name, done.stderr, done.stdout)
        properties = re.findall(r'name="(lobench_gate\w*)" value="([^"]*)"', (folder / f"{name}.xml").read_text())
        found[name] = (done.returncode, properties)
    return found


def decided(record: Any) -> Any:
    """Returns a record without the values that may differ."""
    if isinstance(record, list):
        return [decided(one) for one in record]
    if not isinstance(record, dict):
        return record
    is_loss = "bold" in record and record["case"] != "mean score"
    return {
        key: decided(value) for key, value in record.items() if key not in DIFFERENT and not (is_loss and key in FINALS)
    }


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, Any]]:
    """How the commands ended, with seeds that explode and with the same seeds diverging, at one path."""
    folder, found = tmp_path_factory.mktemp("place") / "place", {}
    for lost in ("1e6", "nan"):
        found[lost] = ends_of(folder, lost)
        shutil.rmtree(folder)
    return found


@pytest.mark.parametrize("name", [*COMMANDS, *GATES])
def test_a_command_decides_the_same_of_exploded_and_of_diverged_seeds(
    ends: Mapping[str, dict[str, Any]], name: str
) -> None:
    assert ends["1e6"][name] == ends["nan"][name]


def test_half_of_the_seeds_of_a_side_are_lost_and_commands_decide_by_them(ends: Mapping[str, dict[str, Any]]) -> None:
    found = {name: record for name, (_, record) in ends["1e6"].items()}
    pairs = {name: [pair["metrics"]["train/loss"] for pair in found[name]] for name in found if "compare" in name}
    for name, (first, *_) in pairs.items():
        gates = [case["gate"] for case in first["cases"].values()]
        assert all(gate["diverged_b"] == 4 for gate in gates), name
    assert [pair["effect"] for pair in pairs["compare"]] == ["mixed", "mixed"]
    assert [pair["verdict"] for pair in found["compare, at most 10%"]] == ["REGRESSED"]
    assert found["bisect"]["broken"]["outer_step"] == 2 and found["bisect"]["fall"]["score"] < 0, "more seeds diverge"
    assert {value for _, value in found["gate, turned"]} == {"REGRESSED"}
    assert sum(one["bold"] for one in found["bold"]) > 0
