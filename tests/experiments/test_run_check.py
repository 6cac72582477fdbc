"""`lobench run --check` starts nothing and says what is planned; what is wrong is one line and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from commands import lobench as run
from commands import lobench_here as lobench
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, watch, write_checkpoint

from lobench.api import dry_run
from lobench.engine.workers.pool import LocalPool
from lobench.engine.workers.protocol import FROM_WORKER, Described

SHOWN = texts_of("run")

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 3
adam/Method.optimizer = @adam()
adam/Method.label = "Adam"
mine/Method.command = "python train.py {session} {folder}"
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path / "x.gin"


def test_a_plan_is_said_and_nothing_is_made(experiment: Path) -> None:
    store = experiment.parent / "store"
    done = lobench("run", experiment, "--check", "--store", store, "--workers", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == SHOWN["adam-2-evaluations-0-of"]
    assert lines[1].startswith(SHOWN["mine-3-trainings-and-6"])
    assert lines[2] == SHOWN["methods-x-2-cases-8"].format(store=store)
    assert lines[3] == SHOWN["estimated-time-unknown-for-tiny"]
    assert not store.exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "adm"], SHOWN["unknown-method-adm-expected-one"]),
        (["--gin-param", "adam/Case.num_inner_steps = 3"], SHOWN["binds-case-num-inner-steps"]),
        (["--gin-param", "Experiment.num_session = 3"], SHOWN["did-you-mean-num-sessions"]),
    ],
)
def test_what_is_wrong_is_one_line(experiment: Path, options: list[str], expected: str) -> None:
    done = lobench("run", experiment, "--check", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


def test_check_and_dry_run_with_the_inline_executor_start_no_process(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> NoReturn:
        raise AssertionError("a process")

    monkeypatch.setattr(LocalPool, "start", start)
    inline = ("--executor", "inline")
    done = lobench("run", experiment, "--check", "--method", "adam", *inline)
    assert done.returncode == 0 and "2 of 2 evaluations" in done.stdout, done.stdout + done.stderr
    folder = experiment.parent
    done = watch(make_run(folder, -1.0), folder / "tiny", "--dry-run", *inline)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("of_answer", "of_call", "expected"), [(400.0, 0.0, ""), (0.0, 700.0, SHOWN["was-not-bound-got-nothing"])]
)
def test_check_waits_for_each_method_for_some_time_and_names_the_one_that_took_longer(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, of_answer: float, of_call: float, expected: str
) -> None:
    now, steps = [0.0], [0.0]

    def monotonic() -> float:
        now[0] += steps[0]
        return now[0]

    def from_bytes(content: bytes) -> object:
        message = FROM_WORKER.from_bytes(content)
        if isinstance(message, Described):
            now[0] += of_answer
            steps[0] = of_call
        return message

    experiment.write_text(EXPERIMENT + "sgd/Method.optimizer = @sgd()\nlion/Method.optimizer = @lion()\n")
    monkeypatch.setattr(dry_run, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(dry_run, "FROM_WORKER", SimpleNamespace(from_bytes=from_bytes))
    done = lobench("run", experiment, "--check", "--executor", "inline")
    assert done.returncode == (2 if expected else 0), done.stderr
    assert expected in done.stderr


WRONG = """
Experiment.suites = ["tiny"]
good/Method.optimizer = @sgd()
bad/Method.optimizer = @adam()
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("worse/Method.optimizer = @adamm()", SHOWN["unknown-name-adamm-did-you"]),
        ("bad/adam.learning_rat = 0.1", SHOWN["adam-has-no-parameter-learning"]),
        ("bad/Case.phases = 2\nbad/adam.learning_rate = [0.1, 0.01, 0.001]\nExperiment.fixed = []", "phases"),
        ('bad/adam.learning_rat = @rate/Real()\nrate/Real.low = 0.1\nrate/Real.high = 1.0\n'
         'bad/Method.search = @random()\nbad/Method.num_trials = 2', SHOWN["adam-has-no-parameter-learning"]),
        ("mine/Method.command = 'cp theta.npz {folder}'\nmine/Case.learned_optimizer = @LearnableSDG()",
         SHOWN["unknown-name-learnablesdg-did-you"]),
        ("Case.num_inner_steps = 'ten'", SHOWN["case-num-inner-steps-got"]),
        ("bad/adam.learning_rate = 'fast'", SHOWN["case-a-adam-learning-rate"]),
        ("Case.primary_metric = 'test/los'", SHOWN["case-primary-metric-got-test"]),
        ("Bowl.dimm = 3", SHOWN["binding-bowl-dimm-3-bowl"]),
        ("import no_such_module", SHOWN["cannot-import-no-such-module"]),
    ],
)  # fmt: skip
def test_what_the_run_would_refuse_is_refused(experiment: Path, lines: str, expected: str) -> None:
    experiment.write_text(WRONG + lines + "\n")
    done = lobench("run", experiment, "--check", "--store", experiment.parent / "store")
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    names = ("good", "bad", "worse", "mine")
    assert expected in done.stderr and any(repr(name) in done.stderr for name in names), done.stderr
    assert done.stderr.count("\n") == 1 and not (experiment.parent / "store").exists()
    ran = lobench("run", experiment, "--workers", "1", "--store", experiment.parent / "ran")
    # The methods that can be evaluated are.
    others_run = ran.returncode == 3
    assert (ran.returncode == 2 or others_run) and expected in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    if "Real()" not in lines and not others_run:  # the run binds the point that it draws
        assert ran.stderr.strip().splitlines()[-1].split("': ", 1)[1] == done.stderr.strip().split("': ", 1)[1]
    if "adamm" in lines:
        offline = lobench("run", experiment, "--check", "--offline", "--store", experiment.parent / "store")
        output = SHOWN["not-checked-without-a-worker"]
        assert offline.returncode == 0 and offline.stdout.splitlines()[-1] == output


LEARNED = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
given/Method.checkpoint = "theta.npz"
given/Case.learned_optimizer = @LearnableSGD()
mine/Method.command = "cp theta.npz {folder}"
mine/Case.learned_optimizer = @LearnableSGD()
"""


def recorded(folder: Path, *options: str) -> list[str]:
    done = lobench("run", "x.gin", "--check", "--workers", "2", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [line.partition(" (")[0] for line in done.stdout.splitlines() if ": " in line and "core-seconds" not in line]


def test_what_is_missing_is_what_the_same_run_would_compute(experiment: Path) -> None:
    folder = experiment.parent
    experiment.write_text(LEARNED)
    write_checkpoint(folder / "theta.npz", -1.0)
    done = lobench("run", "x.gin", "--workers", "1", "--executor", "inline", cwd=folder)
    assert "done: 2 of 2 evaluations" in done.stdout  # both sessions bring the theta that is given
    assert recorded(folder) == [
        SHOWN["given-2-evaluations-2-of"],
        SHOWN["mine-2-trainings-and-2"],
        SHOWN["methods-x-2-cases-0"],
    ]
    # A binding of a theta's own, and of a case: the names are as they were.
    assert recorded(folder, "--gin-param", "given/LearnableSGD.initial_lr = 0.5")[0].endswith(SHOWN["of-them-recorded"])
    with (folder / "tiny" / "tiny.gin").open("a") as suite:
        suite.write("a/Case.num_inner_steps = 20\n")
    assert recorded(folder)[:2] == [
        SHOWN["given-2-evaluations-1-of"],
        SHOWN["mine-2-trainings-and-2-evaluations"],
    ]


SEARCHED = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
{method}
tuned/Method.search = @grid()
tuned/{path} = @Discrete()
tuned/Discrete.values = [0.01, 0.3]
"""
OF_THETA = 'tuned/Method.checkpoint = "theta.npz"\ntuned/Case.learned_optimizer = @LearnableSGD()'


@pytest.mark.parametrize(
    ("method", "path"),
    [("tuned/Method.optimizer = @sgd()", "sgd.learning_rate"), (OF_THETA, "LearnableSGD.initial_lr")],
)
def test_of_a_search_the_missing_fresh_seeds_are_those_that_the_same_run_would_compute(
    experiment: Path, method: str, path: str
) -> None:
    folder = experiment.parent
    write_checkpoint(folder / "theta.npz", -1.0)
    (folder / "tiny" / "tiny.gin").write_text(ONE_CASE)
    experiment.write_text(SEARCHED.format(method=method, path=path))
    assert "done: 3 of 3 evaluations" in lobench("run", "x.gin", cwd=folder).stdout
    # What the suite has anyhow is another search with the same results, and fresh seeds may be added to any.
    for line, num_missing, total in (("Case.eval_every = 5", 0, 3), ("tuned/Method.report_sessions = 3", 1, 4)):
        options = ("--gin-param", line)
        plan = lobench("run", "x.gin", "--check", *options, cwd=folder).stdout
        assert SHOWN["of-evaluations-are-missing"].format(missing=num_missing, total=total) in plan, plan
        ran = lobench("run", "x.gin", *options, cwd=folder).stdout.splitlines()[-1]
        assert ("nothing new" in ran) == (num_missing == 0), ran


def test_a_binding_that_nothing_reads_is_said_where_the_store_knows_the_method(experiment: Path) -> None:
    folder = experiment.parent
    experiment.write_text(LEARNED.partition("mine/")[0])
    write_checkpoint(folder / "theta.npz", -1.0)
    lobench("run", "x.gin", "--workers", "1", "--executor", "inline", cwd=folder)
    done = lobench("run", "x.gin", "--check", "--gin-param", "given/LearnableSGD.initial_l = 0.5", cwd=folder)
    assert done.returncode == 2 and SHOWN["did-you-mean-initial-lr"] in done.stderr


def test_a_store_that_cannot_be_read_is_said_and_not_taken_for_an_empty_one(experiment: Path) -> None:
    store = experiment.parent / "store"
    store.mkdir()
    (store / "ledger.sqlite").write_text("no database" * 99)
    done = lobench("run", experiment, "--check", "--store", store)
    assert (done.returncode, done.stdout) == (2, "") and SHOWN["file-is-not-a-database"] in done.stderr


RULE = """
import optax
from lobench import configurable

@configurable
def rule(rate=0.1):
    return optax.sgd(1.0 * rate)
"""
SCRIPT = """
import json, sys
out, rate, session = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
with open(out + "/log.jsonl", "w") as file:
    for step in (0, 10):
        file.write(json.dumps({"step": step, "val/loss": (1.0 + session) / (1 + rate * step)}) + "\\n")
"""
RULE_SEARCH = """
import rule
Experiment.suites = ["tiny"]
Experiment.num_sessions = 1
mine/Method.optimizer = @rule()
mine/Method.search = @grid()
mine/rule.rate = @rates/Discrete()
rates/Discrete.values = [0.1, 0.2]
"""
SCRIPT_SEARCH = """
Experiment.num_sessions = 1
mine/Method.command = "python rule.py {out} {rate} {session}"
mine/Method.curves = "{out}/log.jsonl"
mine/Method.until_step = 10
mine/Method.search = @grid()
mine/rate = @rates/Discrete()
rates/Discrete.values = [0.1, 0.2]
"""


@pytest.mark.parametrize(("code", "text"), [(RULE, RULE_SEARCH), (SCRIPT, SCRIPT_SEARCH)], ids=["optimizer", "script"])
def test_check_after_an_edit_counts_the_trials_that_a_run_makes_again(tmp_path: Path, code: str, text: str) -> None:
    make_suite(tmp_path, ONE_CASE)
    (tmp_path / "rule.py").write_text(code)
    (tmp_path / "x.gin").write_text(text)

    executor = () if code == SCRIPT else ("--executor", "inline")

    def num_missing(*options: str) -> int:
        done = run("run", "x.gin", "--store", "store", *executor, *options, "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return int(json.loads(done.stdout)["num_missing"]) if options else 0

    num_missing()
    assert num_missing("--check") == 0
    (tmp_path / "rule.py").write_text(code.replace("1.0", "3.0"))
    assert num_missing("--check") == 3, "two trials, and the best on fresh seeds"
