"""Honest experiments contradict nothing: scripts, their searches, and methods whose files are not in the bundle."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from curve_scripts import NUMPY
from left_behind import traceless
from report_store import make_baseline
from shown import texts_of
from tiny import ONE_CASE, make_suite

from lobench.analysis.scores.baseline_file import Baseline
from lobench.core.result import Curves
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.store.ledger import Ledger
from lobench.tools.audit.audit import Audit, audit

SHOWN = texts_of("audit")

_SCRIPTS = """
Experiment.num_sessions = 2
mine/Method.command = "python train.py --seed {session} --lr {lr} --out {out}"
mine/Method.curves = "{out}/curves.jsonl"
mine/Method.until_step = 40
mine/Method.search = @random()
mine/Method.num_trials = 2
mine/Method.report_sessions = 1
mine/lr = @rate/Real()
rate/Real.low = 0.01
rate/Real.high = 1.0
plain/Method.command = "python train.py --seed {session} --lr 0.1 --out {out}"
plain/Method.curves = "{out}/curves.jsonl"
plain/Method.until_step = 40
"""
_METRIC = """
from lobench.hookspecs import Declaration

def lobench_metrics():
    return [Declaration(name="ratio", factory=":ratio", summary="", metric_directions={"train/ratio": "min"})]

def ratio(curves):
    rows = curves.metrics["train/loss"].tolist()
    return {"train/ratio": [row[-1] / row[0] for row in rows]}
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a script, and of a search over another one."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "train.py").write_text(NUMPY)
    (folder / "scripts.gin").write_text(_SCRIPTS)
    done = lobench("run", "scripts.gin", "--store", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "store"


def _audited(store: Path, folder: Path) -> Audit:
    assert lobench("publish", store, "--output", folder / "b.lobench").returncode == 0
    return audit(folder / "b.lobench", sample="0")


def test_audit_of_scripts_and_of_their_search_contradicts_nothing(
    scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file = tmp_path / "here" / "scripts.gin"  # has the name of the experiment
    own_file.parent.mkdir()
    own_file.write_text("mine")
    monkeypatch.chdir(own_file.parent)
    assert _audited(scripts, tmp_path).contradictions == ()
    assert own_file.read_text() == "mine" and list(own_file.parent.iterdir()) == [own_file]


@pytest.mark.parametrize(
    ("method", "message"), [("mine", SHOWN["its-results-give"]), ("plain", SHOWN["session-of-a-command-has"])]
)
def test_audit_after_change_of_a_scripts_fitness_names_it(
    scripts: Path, tmp_path: Path, method: str, message: str
) -> None:
    store = tmp_path / "store"
    shutil.copytree(scripts, store)
    with sqlite3.connect(store / "ledger.sqlite") as db:
        db.execute("UPDATE trials SET fitness = 7.0 WHERE method = ? AND number = 1", [method])
    db.close()
    (found,) = _audited(store, tmp_path).contradictions
    assert f"trial 1 of '{method}'" in found.what and message in found.what


def test_read_experiment_of_another_machine_needs_none_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "e.gin").write_text(
        "import lobench.inner.tasks.quadratic\n"
        "bowl/Case.task = @Quadratic()\n"
        "kept/Method.checkpoint = 'gone/theta.npz'\n"
        "kept/Case.learned_optimizer = @LearnableSGD()\n"
        "logged/Method.curves = 'gone/*.csv'\n"
    )
    methods = read_experiment(tmp_path / "e.gin", is_elsewhere=True).experiment.methods
    assert [(one.name, one.kind) for one in methods] == [("kept", "checkpoint"), ("logged", "curves")]


def test_audit_makes_the_metrics_of_a_suites_conftest_again(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    (suite / "conftest.py").write_text(_METRIC)
    (tmp_path / "e.gin").write_text('import tiny_tasks\nExperiment.suites = ["tiny"]\nsgd/Method.optimizer = @sgd()\n')
    assert lobench("run", "e.gin", "--store", "store", cwd=tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "store/ledger.sqlite") as db:
        ((number, payload),) = db.execute("SELECT id, payload FROM evaluations").fetchall()
        curves = Curves.from_payload(payload)
        values = np.array(curves.metrics["train/ratio"])
        values[0, 0] /= 2
        curves = dataclasses.replace(curves, metrics={**curves.metrics, "train/ratio": values.data})
        db.execute("UPDATE evaluations SET payload = ? WHERE id = ?", [curves.to_payload(), number])
    db.close()
    assert lobench("publish", tmp_path / "store", "--output", tmp_path / "b.lobench").returncode == 0
    with traceless():
        found = audit(tmp_path / "b.lobench")
    (checked,) = found.evaluations
    assert checked.verdict == "differs" and SHOWN["train-ratio-of-seed-0"] in checked.why
    assert not any("metric" in one for one in found.not_auditable)


def test_a_baseline_that_was_tuned_after_the_search_accuses_nobody(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, ONE_CASE)
    (tmp_path / "x.gin").write_text(
        'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 1\ntuned/Method.optimizer = @sgd()\n'
        "tuned/Method.search = @grid()\ntuned/Method.report_sessions = 0\ntuned/sgd.learning_rate = @r/Discrete()\n"
        "r/Discrete.values = [0.01, 0.1]\n"
    )
    done = lobench("run", "x.gin", "--store", "store", "--executor", "inline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with Ledger.open(tmp_path / "store", read_only=True) as ledger:
        problem = next(iter(ledger.evaluations())).case.problem
    (path,) = make_baseline(tmp_path / "other").glob("baselines/*.json")
    baseline = Baseline.load(path)
    case = dataclasses.replace(next(iter(baseline.cases.values())), problem=problem)
    (suite / "baselines").mkdir()
    dataclasses.replace(baseline, cases={"tiny.gin:a": case}).save(suite / "baselines" / path.name)
    findings = _audited(tmp_path / "store", tmp_path)
    assert findings.contradictions == ()
    with sqlite3.connect(tmp_path / "store" / "ledger.sqlite") as db:
        db.execute("UPDATE trials SET fitness = fitness + 1 WHERE number = 1")
    (found,) = _audited(tmp_path / "store", tmp_path).contradictions
    assert SHOWN["its-results-give"] in str(found) and " or " in str(found)
