"""A metric that rises, or of which nobody says whether it does: nowhere is its direction guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import lobench
from left_behind import traceless
from shown import texts_of
from stores import add

import lobench as package
from lobench.analysis.store.snapshot import read_store
from lobench.core.metric import Direction, UnknownDirection
from lobench.tools.best.best import rank_checkpoints

SHOWN = texts_of("lobench")

LOW, HIGH = [2.1, 2.2, 2.0, 2.3], [5.0, 5.1, 5.3, 5.2]
DECLARE = SHOWN["declare-it-metric-directions-return"]

SUITE = """
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class Agent(Task):
    metric_directions = {"return": "max"}
    def init(self, key):
        return jax.random.normal(key, (3,))
    def loss_with_state_and_aux(self, params, state, key, data):
        loss = jnp.sum(params**2)
        return loss, state, {"return": -loss, "regret": loss}
"""


@pytest.fixture(params=[True, False], ids=["declared", "undeclared"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bool]:
    """The second checkpoint has the higher return."""
    directions = {"train/return": "max"} if request.param else None
    for step, values in ((1, LOW), (2, HIGH)):
        finals = {"train/loss": values, "train/return": values}
        add(tmp_path, step, {"a": finals}, primary_metric="train/return", directions=directions)
    return tmp_path, request.param


def test_compare_goes_by_what_is_declared_or_says_that_nothing_is(store: tuple[Path, bool]) -> None:
    path, declared = store
    done = lobench("compare", "1", "2", "--store", path)
    row = done.stdout.partition("\n\n")[0]
    asked = lobench("compare", "1", "2", "--store", path, "--metric", "train/return")
    if declared:
        assert "better" in row and "PASS" in row and DECLARE not in done.stdout and asked.returncode == 0
    else:
        assert "INCONCLUSIVE" in row and SHOWN["no-score-on-train-return"].format(declare=DECLARE) in done.stdout
        assert asked.returncode == 2 and DECLARE in asked.stderr and len(asked.stderr.splitlines()) == 1


def test_the_best_checkpoint_is_the_one_that_is_better(store: tuple[Path, bool]) -> None:
    path, declared = store
    for metric in ("", "train/return"):
        if declared:
            ranked = rank_checkpoints(read_store(path), [str(path)], metric)[2]
            assert [one.subject.checkpoint.outer_step for one in ranked] == [2, 1]
        else:
            with pytest.raises(UnknownDirection, match=SHOWN["direction-of-train-return-is"]):
                rank_checkpoints(read_store(path), [str(path)], metric)


def test_best_values_and_bold_are_of_the_declared_direction(store: tuple[Path, bool]) -> None:
    path, declared = store
    table = lobench("results", "--store", path, "--evaluations").stdout
    record = json.loads(lobench("results", "--store", path, "--format", "json").stdout)[1]
    metric = record["metrics"]["train/return"]
    assert lobench("report", "--store", path, "--format", "latex", "--output", path / "t.tex").returncode == 0
    latex = (path / "t.tex").read_text()
    row = next(line for line in latex.splitlines() if line.startswith(r"\quad a"))
    text = lobench("report", "--store", path, "--format", "text").stdout
    if declared:
        assert metric["best"] == pytest.approx(5.15) and metric["direction"] == "max" and DECLARE not in table
        assert r"\mathbf{5.15}" in row and r"\mathbf{2.15}" not in row
        assert SHOWN["score-on-train-return-outer"] in text and DECLARE not in text + latex
    else:
        assert metric["best"] is None and metric["direction"] is None and metric["final"] == pytest.approx(5.15)
        assert SHOWN["no-best-of-train-return"].format(declare=DECLARE) in table
        assert "mathbf" not in row and SHOWN["no-bold-of-train-return"].format(declare=DECLARE) in latex
        assert SHOWN["no-score-on-train-return-and"].format(declare=DECLARE) in text and "2: n/a" in text


def test_what_a_task_declares_is_stored_with_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent_tasks.py").write_text(SUITE)
    lines = ("import agent_tasks", "Case.num_inner_steps = 4", "Case.num_seeds = 2", "a/Case.task = @Agent()")
    (tmp_path / "agents.gin").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    with traceless():
        result = package.evaluate("agents.gin", case="a", optimizer="sgd()")
    assert result.best("train/return") == pytest.approx(-result.best("train/loss"))
    with pytest.raises(UnknownDirection, match=SHOWN["direction-of-train-regret-is"]):
        result.best("train/regret")
    (block,) = result.blocks
    again = type(block).from_payload(block.to_payload())
    assert again.directions == {"train/return": Direction.MAX} and again.best("train/return") == block.best(
        "train/return"
    )
