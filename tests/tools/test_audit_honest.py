"""Honest bundles of unusual kinds: none is accused, and what was changed in them is found."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from commands import lobench_here as lobench
from commands import pytest_session
from left_behind import traceless
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite
from tiny import watch_here as watch

from lobench.core.subject import Subject, Variant
from lobench.engine.store.plans import PlannedSubject
from lobench.tools.audit.audit import Audit
from lobench.tools.audit.audit import audit as audit_here
from lobench.tools.audit.contradictions import label_changes

SHOWN = texts_of("audit")

_TASKS = """
import jax
from lobench import Task, configurable

@configurable
class Valley(Task):
    def init(self, key):
        return jax.random.normal(key, (2,))

    def loss(self, params, key, data):
        return params[0] ** 2 + 10.0 * params[1] ** 2
"""
_GIN = """
import valleys
Case.num_inner_steps = 4
Case.eval_every = 2
Case.num_seeds = 2
valley/Case.task = @Valley()
valley/expect.max_final_loss = 1e-6
"""
_METRIC = """
from lobench.hookspecs import Declaration

def lobench_metrics():
    return [Declaration(name="noted", factory=":noted")]

def lobench_gin_modules():
    return [Declaration(name="own names", factory="noted_names:")]

def noted(curves):
    return {"noted": curves.final("train/loss")}
"""
_RULE = """
from pathlib import Path

import lobench
import optax

@lobench.configurable
def halved(learning_rate=0.02):
    return optax.sgd(learning_rate * float((Path(__file__).parent / "factor.txt").read_text()))
"""
# `a` and `same` are one subject, which is also a trial of `tuned`; `noted` is imported only for its side effects.
_EXPERIMENT = """
import rules
import noted
Experiment.suites = ["suite"]
Experiment.num_sessions = 2
a/Method.optimizer = @sgd()
a/sgd.learning_rate = 0.01
same/Method.optimizer = @sgd()
same/Method.label = "the same, in other words"
same/sgd.learning_rate = 0.01
own/Method.optimizer = @halved()
theirs/Method.curves = "logs/*.csv"
theirs/Method.metrics = ["train/loss"]
tuned/Method.optimizer = @sgd()
tuned/sgd.learning_rate = @Discrete()
Discrete.values = [0.01, 0.02]
tuned/Method.search = @grid()
tuned/Method.report_sessions = 1
"""
_TEST = """
from lobench import cases

@cases("valley.gin")
def test_valley(case, evaluate):
    assert not evaluate(case).diverged.any()
"""


def audit(bundle: Path, **options: Any) -> Audit:
    with traceless():
        return audit_here(bundle, **options)


def _publish(store: Path, output: Path) -> Path:
    done = lobench("publish", store, "--output", output)
    assert done.returncode == 0, done.stderr
    return output


def _suite(folder: Path) -> Path:
    suite = folder / "suite"
    suite.mkdir(parents=True)
    (suite / "valleys.py").write_text(_TASKS)
    (suite / "valley.gin").write_text(_GIN)
    return suite


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of an experiment with modules and logs beside its file."""
    folder = tmp_path_factory.mktemp("experiment")
    _suite(folder)
    (folder / "rules.py").write_text(_RULE)
    (folder / "factor.txt").write_text("0.5")
    (folder / "noted.py").write_text("NOTE = 1\n")
    (folder / "logs").mkdir()
    rows = [f"theirs,valley,{seed},{step},train/loss,{9 - step - seed}" for seed in (0, 1) for step in (0, 2, 4)]
    (folder / "logs/theirs.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    (folder / "e.gin").write_text(_EXPERIMENT)
    done = lobench("run", "e.gin", "--store", "store", "--workers", "1", cwd=folder)
    assert done.returncode == 1, done.stderr  # an expectation does not hold
    return folder / "store"


def _changed(store: Path, folder: Path, *statements: str) -> Path:
    """Returns a copy of a store beside a copy of its suite, after SQL statements."""
    shutil.copytree(store.parent, folder / "changed")
    with sqlite3.connect(folder / "changed/store/ledger.sqlite") as db:
        for statement in ("DELETE FROM summaries", "DELETE FROM summary_heads", *statements):
            db.execute(statement)
    db.close()
    return folder / "changed/store"


def _whats(findings: Iterable[Any]) -> str:
    return "\n".join(f"{one.kind}: {one.what}" for one in findings)


def test_audit_of_methods_that_share_a_subject_and_of_code_beside_the_experiment_passes(
    experiment: Path, tmp_path: Path
) -> None:
    bundle = _publish(experiment, tmp_path / "b.lobench")
    names = {Path(name).name for name in zipfile.ZipFile(bundle).namelist() if name.startswith("suites/")}
    assert names == {"valley.gin", "valleys.py", "rules.py", "factor.txt", "noted.py"}
    found = audit(bundle)
    assert found.contradictions == ()
    assert (found.verdict_counts["identical"], found.verdict_counts["not auditable"]) == (4, 2)
    assert any(SHOWN["same-in-other-words"] in line for line in found.not_auditable)


def test_audit_without_the_code_beside_the_experiment_accuses_nobody(experiment: Path, tmp_path: Path) -> None:
    # As of a store that does not know where its files were.
    store = _changed(experiment, tmp_path, "UPDATE described SET files_json = '{}'")
    found = audit(_publish(store, tmp_path / "b.lobench"), sample="0")
    assert found.contradictions == ()
    assert any(SHOWN["code-that-the-bundle-does"] in line for line in found.not_auditable)


def test_audit_after_a_trial_was_removed_names_it(experiment: Path, tmp_path: Path) -> None:
    store = _changed(
        experiment,
        tmp_path,
        "DELETE FROM trials WHERE method = 'tuned' AND number = 0",
        "DELETE FROM memberships WHERE method = 'tuned' AND trial = 0",
    )
    found = audit(_publish(store, tmp_path / "b.lobench"), sample="0")
    assert SHOWN["search-tuned-of-e-counts"] in _whats(found.contradictions)


def test_audit_after_a_package_below_a_gin_file_was_edited_passes_without_an_installed_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan lists no packages below the suite's file, and the auditor lacks the code of the author's plugin.

    Another suite below has a file and a case of the same names, and another file of the suite has such a case.
    """
    suite, plugin = _suite(tmp_path), tmp_path / "plugin"
    shutil.copytree(suite, suite / "below")
    (suite / "tried.gin").write_text(_GIN.replace("= 4", "= 6"))
    code = suite / "valleys/__init__.py"
    code.parent.mkdir()
    (suite / "valleys.py").rename(code)
    kernel = code.with_name("kernel.cu")
    kernel.write_text("// one\n")
    (plugin / "noted-1.0.dist-info").mkdir(parents=True)
    (plugin / "noted-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: noted\nVersion: 1.0\n")
    (plugin / "noted-1.0.dist-info/entry_points.txt").write_text("[lobench]\nnoted = noted_metric\n")
    (plugin / "noted-1.0.dist-info/direct_url.json").write_text(
        json.dumps({"url": plugin.as_uri(), "dir_info": {"editable": True}})
    )
    (plugin / "noted_metric.py").write_text(_METRIC)
    (plugin / "noted_names.py").touch()
    command = ("compare", "sgd()", "adam()", "--suite", suite / "valley.gin", "--store", "store", "--workers", "1")
    with monkeypatch.context() as author:
        author.setenv("PYTHONPATH", str(plugin))
        author.syspath_prepend(plugin)
        lobench(*command, cwd=tmp_path)
        code.write_text(_TASKS.replace("10.0", "11.0") + '\nSOURCES = ["kernel.cu"]\n')
        lobench(*command, cwd=tmp_path)
    bundle = _publish(tmp_path / "store", tmp_path / "b.lobench")
    assert not any("tried.gin" in name for name in zipfile.ZipFile(bundle).namelist())
    found = audit(bundle)
    assert found.contradictions == ()
    assert SHOWN["results-of-code-that-was"] in found.not_auditable
    assert any(SHOWN["code-that-the-bundle-does-not"] in line for line in found.not_auditable)
    assert "kernel.cu" not in "".join(found.not_auditable)
    kernel.write_text("// two\n")
    found = audit(_publish(tmp_path / "store", tmp_path / "c.lobench"), sample="0")
    assert SHOWN["made-by-another-valleys-kernel"] in _whats(found.contradictions)


def test_audit_of_an_experiment_that_pytest_ran_passes(tmp_path: Path) -> None:
    suite = _suite(tmp_path)
    (suite / "test_valley.py").write_text(_TEST)
    (tmp_path / "e.gin").write_text(
        'Experiment.suites = ["suite"]\nExperiment.num_sessions = 2\na/Method.optimizer = @sgd()\n'
    )
    done = pytest_session("e.gin", "--lobench-store", "store", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    found = audit(_publish(tmp_path / "store", tmp_path / "b.lobench"))
    assert found.contradictions == ()
    assert found.verdict_counts["identical"] == 1


def test_audit_after_an_edit_of_another_method_in_the_file_of_the_cases_passes(tmp_path: Path) -> None:
    (tmp_path / "valleys.py").write_text(_TASKS)
    cases = _GIN.replace("valley/expect.max_final_loss = 1e-6\n", "")
    for rate in (0.1, 0.2):
        methods = f"a/Method.optimizer = @sgd()\nb/Method.optimizer = @adam()\nb/adam.learning_rate = {rate}\n"
        (tmp_path / "x.gin").write_text(cases + methods)
        assert lobench("run", tmp_path / "x.gin", "--executor", "inline", cwd=tmp_path).returncode == 0
    assert lobench("publish", ".lobench/x", "--output", "x.lobench", cwd=tmp_path).returncode == 0
    assert audit(tmp_path / "x.lobench", sample="0").contradictions == ()


def test_audit_after_edits_that_were_undone_passes(tmp_path: Path) -> None:
    """The last run finds all its results, and no run before it had its gin file."""
    suite = _suite(tmp_path)
    (tmp_path / "e.gin").write_text(
        'Experiment.suites = ["suite"]\nExperiment.num_sessions = 1\na/Method.optimizer = @sgd()\n'
    )
    task = _TASKS.replace("def init", "def __init__(self, shift=0.0):\n        self.shift = shift\n\n    def init")
    cases = _GIN.replace("valley/expect.max_final_loss = 1e-6", "other/Case.task = @Valley()")
    for factor, shift, other_shift in ((10, 0, 0), (11, 0, 0), (10, 1, 0), (10, 1, 1), (10, 0, 1)):
        (suite / "valleys.py").write_text(task.replace("10.0", f"{factor}.0"))
        shifts = f"valley/Valley.shift = {shift}.0\nother/Valley.shift = {other_shift}.0\n"
        (suite / "valley.gin").write_text(cases + shifts)
        assert lobench("run", "e.gin", cwd=tmp_path).returncode == 0
    found = audit(_publish(tmp_path / ".lobench/e", tmp_path / "b.lobench"), sample="0")
    assert found.contradictions == ()
    (note,) = found.notes  # only the bindings of the cases before the edits
    assert SHOWN["bindings-that-the-suites-files"] in note


def test_audit_after_code_and_the_cases_were_edited_together_names_the_former_results(tmp_path: Path) -> None:
    """Nobody can repeat results of the first form. They are in no table."""
    suite = _suite(tmp_path)
    (tmp_path / "e.gin").write_text(
        'Experiment.suites = ["suite"]\nExperiment.num_sessions = 1\na/Method.optimizer = @sgd()\n'
    )
    for factor, steps in ((10, 4), (11, 6)):
        (suite / "valleys.py").write_text(_TASKS.replace("10.0", f"{factor}.0"))
        cases = _GIN.replace("valley/expect.max_final_loss = 1e-6\n", "").replace("steps = 4", f"steps = {steps}")
        (suite / "valley.gin").write_text(cases)
        assert lobench("run", "e.gin", cwd=tmp_path).returncode == 0
    found = audit(_publish(tmp_path / ".lobench/e", tmp_path / "b.lobench"))
    assert found.contradictions == ()
    assert (found.verdict_counts["identical"], found.verdict_counts["not auditable"]) == (1, 1)
    assert SHOWN["results-of-former-cases"] in found.not_auditable
    (suite / "valleys.py").write_text(_TASKS.replace("10.0", "12.0"))
    found = audit(_publish(tmp_path / ".lobench/e", tmp_path / "c.lobench"), sample="0")
    assert SHOWN["made-by-another-valleys"] in _whats(found.contradictions)


def test_renamed_is_a_second_name_if_an_edited_experiment_gave_the_subject_both_labels() -> None:
    planned = [PlannedSubject(sha256=one * 64, variant="", label=one, at=0.0) for one in "ab"]
    exchanged = [
        Subject(kind="optimizer", label=label, variant=Variant(), uri="", sha256=sha * 64, outer_step=0, generation=0)
        for sha, label in ("ab", "ba")
    ]
    both = {one * 64: {"a", "b"} for one in "ab"}
    other = {"a" * 64: {"b"}, "b" * 64: {"a"}}
    assert [is_second for _, is_second in label_changes(planned, exchanged, both)] == [True, True]
    assert [is_second for _, is_second in label_changes(planned, exchanged, other)] == [False, False]


def test_audit_of_a_watch_with_wrong_bindings_that_was_corrected_passes(tmp_path: Path) -> None:
    """The wrong bindings gave errors alone, and no result in the ledger has them."""
    run, suite, store = make_run(tmp_path, -3.0), make_suite(tmp_path, ONE_CASE), tmp_path / "store"
    wrong = ("--gin-param", "Case.learned_optimizer = @MLPLOpt()", "--gin-param", "Case.num_inner_steps = 12")
    assert watch(run, suite, "--once", "--store", store, *wrong).returncode == 3
    assert watch(run, suite, "--once", "--store", store).returncode == 0
    found = audit(_publish(store, tmp_path / "b.lobench"))
    assert (found.contradictions, dict(found.verdict_counts)) == ((), {"identical": 1, "not auditable": 1})
    assert any(SHOWN["no-result-and-the-suites"] in line for line in found.not_auditable)
