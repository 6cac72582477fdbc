"""Every field of every file of a bundle, changed in turn: a contradiction, or the name of what nobody can check."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from left_behind import traceless
from shown import texts_of
from tampered_fields import Tampering, evaluate_once, name_of_field, tamperings
from tiny import GIN, make_suite

from lobench.core.errors import LobenchError
from lobench.core.result import Curves
from lobench.engine.store.bundle import ResultBundle
from lobench.engine.store.evaluation_row import EvaluationRow
from lobench.tools.audit.audit import Audit
from lobench.tools.audit.audit import audit as audit_here
from lobench.tools.publish.publish import publish

SHOWN = texts_of("audit")

_GIN = GIN.replace("b/Case.task = @Bowl()\nb/Bowl.dim = 5\n", "a/expect.max_final_loss = 100.0\n")
_EXPERIMENT = """
import tiny_tasks
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
one/Method.optimizer = @sgd()
one/sgd.learning_rate = 0.1
two/Method.optimizer = @adam()
two/adam.learning_rate = 0.1
two/Method.label = "second"
three/Method.optimizer = @sgd()
three/sgd.learning_rate = @rate/Real()
rate/Real.low = 0.01
rate/Real.high = 0.5
three/Method.search = @random()
three/Method.num_trials = 2
three/Method.report_sessions = 0
"""

# One of each kind of place; the quick run has those of which each is another table.
_FIELDS = (
    "about.plan.records",
    "card.md",
    "subjects.label",
    "evaluations.case_json.scale",
    "evaluations.outcome",
    "evaluations.payload.values",
    "experiments.config",
    "trials.fitness",
    "memberships.session",
    "events.planned.label",
    *(
        pytest.param(field, marks=pytest.mark.long)
        for field in (
            "bundle.schema",
            "suites/0/tiny/tiny.gin",
            "evaluations.case_json.name",
            "evaluations.case_json.primary_metric",
            "evaluations.message",
            "evaluations.recorded_at",
            "evaluations.payload.directions",
            "evaluations.payload.num_params",
            "evaluations.payload.cost.state_bytes",
            "trials.parameters.sgd.learning_rate",
            "events.plan.cases.blocks",
            "programs.parts.jax",
        )
    ),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Path]]:
    """An experiment of two optimizers and a search on a case, its suite, and its bundle; each is evaluated once."""
    folder = tmp_path_factory.mktemp("fields")
    suite = make_suite(folder, _GIN)
    (suite / "test_tiny.py").unlink()
    (folder / "mine.gin").write_text(_EXPERIMENT)
    done = lobench("run", folder / "mine.gin", "--executor", "inline", cwd=folder)
    assert done.returncode == 0, done.stderr
    publish(folder / ".lobench/mine", folder / "honest.lobench")
    with pytest.MonkeyPatch.context() as monkeypatch:
        evaluate_once(monkeypatch, folder / "honest.lobench", suite)
        yield folder / ".lobench/mine", suite, folder / "honest.lobench"


def audit(bundle: Path, **options: Any) -> Audit:
    with traceless():
        return audit_here(bundle, **options)


def _is_caught(tampering: Tampering, output: Path) -> bool:
    try:
        tampering.write(output)
    except (sqlite3.IntegrityError, LobenchError):
        return True  # no ledger can hold it, or nothing can be published of it
    try:
        found = audit(output)
    except LobenchError:
        return True
    name = name_of_field(tampering.field)
    named = [*found.not_auditable, *found.stated]
    return not found.is_passed or bool(name and any(name in one for one in named))


def test_an_honest_bundle_of_an_experiment_passes(world: tuple[Path, Path, Path]) -> None:
    found = audit(world[2])
    assert (found.contradictions, dict(found.verdict_counts), found.not_auditable) == ((), {"identical": 4}, ())


def test_an_error_of_a_check_is_not_the_authors(
    world: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvaluationRow, "__hash__", None)  # as once, when a check put rows into a set
    with pytest.raises(RuntimeError):
        audit(world[2], sample="0")


@pytest.mark.parametrize("field", _FIELDS)
def test_a_changed_field_is_a_contradiction_or_named(
    world: tuple[Path, Path, Path], tmp_path: Path, field: str
) -> None:
    tampering = next(one for one in tamperings(world[2]) if one.field == field)
    assert _is_caught(tampering, tmp_path / "changed.lobench")


def _changed(world: tuple[Path, Path, Path], folder: Path, change: Callable[[sqlite3.Connection], None]) -> Path:
    """Returns a bundle of a store that somebody changed before it was published."""
    shutil.copytree(world[0], folder / "store")
    with closing(sqlite3.connect(folder / "store/ledger.sqlite")) as db, db:
        change(db)
    publish(folder / "store", folder / "changed.lobench", suites=[world[1]])
    return folder / "changed.lobench"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ("method = 'one'", SHOWN["why-experiment-mine-has-no"]),
        (
            "method = 'one' AND session = 0",
            SHOWN["why-experiment-mine-leaves-out"],
        ),
    ],
)
def test_audit_of_results_that_an_experiment_leaves_out_names_them(
    world: tuple[Path, Path, Path], tmp_path: Path, members: str, named: str
) -> None:
    def delete(db: sqlite3.Connection) -> None:
        db.execute(f"DELETE FROM memberships WHERE {members}")

    found = audit(_changed(world, tmp_path, delete))
    assert any(named in one for one in found.not_auditable), found.not_auditable


def test_audit_of_an_optimizer_that_is_called_a_checkpoint_names_it(
    world: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """Without a theta it would be no more than not auditable."""

    def hide(db: sqlite3.Connection) -> None:
        db.execute("UPDATE subjects SET kind = 'checkpoint' WHERE kind = 'optimizer'")

    found = audit(_changed(world, tmp_path, hide), sample="0")
    assert any(SHOWN["is-an-optimizer-and-the"] in one.what for one in found.contradictions)


def test_an_invented_metric_that_methods_are_ranked_by_differs(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    def invent(db: sqlite3.Connection) -> None:
        for number, payload, case in db.execute("SELECT id, payload, case_json FROM evaluations").fetchall():
            curves = Curves.from_payload(payload)
            values = memoryview(np.full((2, 1), 0.972, np.float32))
            curves = dataclasses.replace(
                curves, metrics={**curves.metrics, "test/accuracy": values}, added=("test/accuracy",)
            )
            case = json.dumps(json.loads(case) | {"primary_metric": "test/accuracy"})
            db.execute(
                "UPDATE evaluations SET payload = ?, case_json = ? WHERE id = ?", (curves.to_payload(), case, number)
            )

    found = audit(_changed(world, tmp_path, invent))
    assert "case" in {one.kind for one in found.contradictions}
    assert any(one.startswith(SHOWN["metric-test-accuracy-of-tiny"]) for one in found.not_auditable)


def test_seeds_that_nobody_had_planned_are_a_contradiction(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    def move(db: sqlite3.Connection) -> None:
        db.execute("UPDATE evaluations SET seed_start = 40 WHERE id = 1")

    found = audit(_changed(world, tmp_path, move), sample="0")
    assert any(SHOWN["seeds-40-41-were-not"] in one.what for one in found.contradictions)


def test_a_plan_without_its_end_is_a_contradiction_of_the_bundle(
    world: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    def cut(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM events WHERE id = (SELECT MAX(id) FROM events WHERE kind = 'planned')")

    about = json.loads(ResultBundle(world[2]).read("about.json"))
    changed = _changed(world, tmp_path, cut)
    assert json.loads(ResultBundle(changed).read("about.json"))["plan"] != about["plan"]
    assert "plan" in {one.kind for one in audit(changed, sample="0").contradictions}


def test_the_verdict_says_that_there_is_no_plan(world: tuple[Path, Path, Path], tmp_path: Path) -> None:
    changed = _changed(world, tmp_path, lambda db: db.execute("DELETE FROM events WHERE kind LIKE '%plan%'") and None)
    verdict = lobench("audit", changed, "--sample", "0").stdout.partition("root ")[0]
    assert "PASS" in verdict and SHOWN["cannot-be-audited-a-plan"] in " ".join(verdict.split())


def test_the_verdict_says_that_methods_were_planned_on_different_seeds(
    world: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    bundle = next(one for one in tamperings(world[2]) if one.field == "events.plan.cases.blocks")
    bundle.write(tmp_path / "changed.lobench")
    found = audit(tmp_path / "changed.lobench", sample="0")
    assert any(SHOWN["different-seeds"] in one for one in found.not_auditable)


def test_a_changed_file_that_no_result_reaches_is_no_contradiction(
    world: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    suite = world[1]
    (suite / "notes.md").write_text("not for others")
    (suite / "sketch.gin").write_text("half [written")
    try:
        lines: list[str] = []
        publish(world[0], tmp_path / "again.lobench", log=lines.append)
    finally:
        (suite / "notes.md").unlink()
        (suite / "sketch.gin").unlink()
    assert any(SHOWN["files-of-suite-tiny-go"] in line for line in lines)
    assert [Path(name).name for name in ResultBundle(tmp_path / "again.lobench").members_in("suites")] == [
        "tiny.gin",
        "tiny_tasks.py",
    ]
    found = audit(tmp_path / "again.lobench", sample="0")
    assert found.contradictions == ()
