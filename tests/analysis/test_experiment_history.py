"""Experiments by date: what was run at which revision, and how its dirty tree comes back."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add, case_info
from tiny import make_suite

from lobench.analysis.comparisons.run_history import experiment_history
from lobench.core.case import SeedBlock
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId
from lobench.engine.config.origin import Revision, revision_of
from lobench.engine.store.codes import METHOD_CODE_EVENT
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("analysis")

PROGRAM = "3-x"
CONFIG = """
adam/Method.optimizer = @adam()
adam/Method.label = "Adam"
sgd/Method.optimizer = @sgd()
part/Method.optimizer = @lion()
"""


def git(folder: Path, *arguments: str, text: bytes | None = None) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, input=text, capture_output=True, check=True).stdout.decode().strip()


def add_experiment(store: Path, name: str, revision: Revision, methods: dict[str, str], config: str = CONFIG) -> int:
    """Adds an experiment whose methods have the evaluations of these hashes, on the cases that there are."""
    with contextlib.closing(Ledger.open(store)) as ledger:
        form = ledger.record_experiment(name, config, revision=revision, versions={})
        members = [
            SessionMember(
                method=method,
                trial=0,
                session=seed,
                evaluation=EvaluationId(sha256, case_info(case).key, SeedBlock(start=0, size=2)),
            )
            for method, sha256 in methods.items()
            for case in ("a", "b")
            for seed in (0, 1)
        ]
        ledger.add_memberships(form, members, programs=[PROGRAM])
        return form


@pytest.fixture
def store(tmp_path: Path) -> Path:
    store = tmp_path / "runs" / "study"
    for sha256, finals in {"1": [0.5, 0.6], "2": [1.0, 1.1], "3": [0.1, 0.1]}.items():
        cases = {"a": {"train/loss": finals}, "b": {"train/loss": finals}}
        if sha256 == "3":
            cases.pop("b")
        add(store, 0, cases, sha256=sha256, uri=f"theta_{sha256}.npz", program_version=PROGRAM)
    return store


def test_each_form_is_a_line_with_its_revision_methods_and_best(store: Path) -> None:
    add_experiment(store, "first", Revision(commit="a" * 40), {"adam": "1", "sgd": "2"})
    dirty = Revision(commit="b" * 40, is_dirty=True, patch=b"x" * 1234, patch_sha256="p", note="not tracked: 'my.py'")
    second = add_experiment(store, "first", dirty, {"sgd": "2", "part": "3"})
    with contextlib.closing(Ledger.open(store)) as ledger:
        ledger.record_experiment("", "", revision=Revision(), versions={})  # a label and no experiment
    done = lobench("results", "--store", store.parent, "--history")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:6] == ["date", "store", "experiment", "id", "revision", "patch"]
    first, last = (line.split() for line in lines[1:3])
    assert first[3:10] == ["first", "1", "aaaaaaaaaaaa", "-", "Adam,", "sgd", "4"], first
    assert last[3:8] == ["first", "2", "bbbbbbbbbbbb+", "1,234", "B"], last
    found = [one for one in json.loads(history(store, "--format", "json")) if one["kind"] == "experiment"]
    assert [(one["name"], one["methods"], one["best"]) for one in found] == [
        ("first", ["Adam", "sgd"], "Adam"),
        ("first", ["sgd", "part"], "part"),  # over the one case that both have, as tables say it
    ]
    assert found[1]["id"] == second and found[1]["num_evaluations"] == 3 and found[0]["score"]["mean"] > 0
    assert SHOWN["first-id-2-not-tracked"] in done.stdout and SHOWN["patch-id"] in done.stdout
    runs = [one for one in json.loads(history(store, "--format", "json")) if one["kind"] == "run"]
    assert len(runs) == 1 and runs[0]["num_evaluations"] == 5, "the runs are there as ever"


def test_former_code_of_a_command_has_its_place_on_the_scale_of_the_history(tmp_path: Path) -> None:
    for sha256, code, final in (("1", "a" * 16, 0.1), ("2", "b" * 16, 0.5)):
        losses = {"train/loss": [final, final]}
        uri = f"imported:mine-01234567-{code:.8}-9fa0"
        add(tmp_path, 0, {"a": losses, "b": losses}, sha256=sha256, uri=uri, program_version=PROGRAM)
        with contextlib.closing(Ledger.open(tmp_path)) as ledger:
            ledger.record_event(METHOD_CODE_EVENT, method="mine", code=code, is_old=False)
        config = f'mine/Method.command = "x"\nmine/Method.curves = "y"\n# {code}'
        add_experiment(tmp_path, "x", Revision(), {"mine": sha256}, config)
    former, present = (version.score for version in experiment_history([tmp_path]))
    assert former is not None and present is not None
    assert former.mean == pytest.approx(1) and present.mean < 0.6


def history(store: Path, *options: str) -> str:
    done = lobench("results", "--store", store, "--history", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_dirty_tree_comes_back_from_its_patch(store: Path, tmp_path: Path) -> None:
    tree, clean = tmp_path / "tree", tmp_path / "clean"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "my_optimizers.py").write_text("rate = 0.1\n")
    (tree / "theta.bin").write_bytes(bytes(range(256)))
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "first")
    (tree / "my_optimizers.py").write_text("rate = 0.3\n")
    (tree / "theta.bin").write_bytes(bytes(range(255, -1, -1)))
    dirty = add_experiment(store, "mine", revision_of(tree), {"adam": "1"})
    (tree / "my_optimizers.py").write_text("rate = 0.5\n")
    other = add_experiment(store, "mine", revision_of(tree), {"adam": "1"})
    assert dirty != other, "another tree is another form"
    git(tmp_path, "clone", "-q", str(tree), str(clean))
    patch = tmp_path / "out" / "dirty.patch"
    history(store, "--patch", str(dirty), "--output", str(patch))
    git(clean, "apply", str(patch))
    assert (clean / "my_optimizers.py").read_text() == "rate = 0.3\n"
    assert (clean / "theta.bin").read_bytes() == bytes(range(255, -1, -1))


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--history", "--patch", "7"), SHOWN["no-such-experiment-got-7"]),
        (("--history", "--patch", "1"), SHOWN["experiment-has-no-patch-got"]),
        (("--patch", "1"), SHOWN["patch-needs-history"]),
    ],
)
def test_a_patch_that_is_not_there(store: Path, arguments: tuple[str, ...], output: str) -> None:
    add_experiment(store, "first", Revision(commit="a" * 40), {"adam": "1"})
    done = lobench("results", "--store", store, *arguments)
    assert done.returncode == 2 and output in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    above = lobench("results", "--store", store.parent, "--history", "--patch", "1")
    assert above.returncode == 2 and SHOWN["patch-needs-one-store"] in above.stderr


def test_two_experiments_of_one_store_have_one_scale_in_report_compare_and_results(tmp_path: Path) -> None:
    """The second experiment's methods end far above the first one's best: every view has the store's best mean as 1."""
    make_suite(tmp_path)
    (tmp_path / "one.gin").write_text(
        'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 3\n'
        "fast/Method.optimizer = @sgd()\nfast/sgd.learning_rate = 0.3\n"
    )
    (tmp_path / "two.gin").write_text(
        'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 3\n'
        "slow/Method.optimizer = @sgd()\nslow/sgd.learning_rate = 0.003\n"
        "slower/Method.optimizer = @sgd()\nslower/sgd.learning_rate = 0.001\n"
    )
    for file in ("one.gin", "two.gin"):
        done = lobench("run", file, "--store", "store", "--workers", "1", "--executor", "inline", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(
        lobench("results", "--store", "store", "--by", "method", "--format", "json", cwd=tmp_path).stdout
    )
    score = {one["method"]: one["mean"] for one in records if one["case"] == "mean score"}
    compared = lobench("compare", "slower", "slow", "--store", "store", "--format", "json", cwd=tmp_path)
    (pair,) = json.loads(compared.stdout)
    difference = next(iter(pair["metrics"].values()))["difference"]["mean"]
    assert difference == pytest.approx(score["slow"] - score["slower"], abs=1e-6) and difference < 0.5
    report = lobench("report", "--store", "store", "--format", "text", cwd=tmp_path).stdout
    shown = re.search(r"difference (\S+) \[", report)
    assert shown is not None and float(shown[1]) == pytest.approx(difference, abs=1e-3), report
    assert SHOWN["score-1-is-the-mean"] in report
    assert SHOWN["score-1-is-the-mean-of"] in pair["scale"]
    results = lobench("results", "--store", "store", "--by", "method", cwd=tmp_path).stdout
    assert SHOWN["best-mean-that-is-stored"] in results and SHOWN["of-all-methods-here"] not in results


def test_an_experiment_without_results_in_a_store_with_others_is_not_called_an_empty_store(tmp_path: Path) -> None:
    add(tmp_path / "store", 0, {"a": {"train/loss": [0.5, 0.6]}}, optimizer="adam()")
    with contextlib.closing(Ledger.open(tmp_path / "store")) as ledger:
        ledger.record_experiment("none", CONFIG, revision=Revision(), versions={})
    done = lobench("report", "--store", tmp_path / "store", "--format", "text")
    assert done.returncode == 2 and SHOWN["holds-others-all-shows-them"] in done.stderr, done.stdout + done.stderr
    assert "adam" in lobench("report", "--store", tmp_path / "store", "--format", "text", "--all").stdout
