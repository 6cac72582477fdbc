"""Typical mistakes on command lines: one line that says what is wrong, nothing written, nothing executed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import case_info, curves
from tiny import make_run, make_suite

from lobench.core.case import SeedBlock
from lobench.core.program import PROGRAM_VERSION
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("lobench")

EXPERIMENT = """
Experiment.suites = ["tiny"]
a/Method.optimizer = @sgd()
a/sgd.learning_rate = 0.1
b/Method.optimizer = @adam()
"""

COMMAND = """
m/Case.command = "python train.py {checkpoint} {seed} {out}"
m/Case.curves = "{out}/m.json"
m/Case.primary_metric = "loss"
"""
# A command line, and a part of the line that it gets. Inline workers save the start of a process.
MISTAKES = {
    # a path that is another thing
    "watch runs/today --suite train.py --once": SHOWN["train-py-this-file-is"],
    "watch runs/today --suite tiny/tiny_tasks.py --once": SHOWN["tiny-tiny-tasks-py-this"],
    "watch runs/today --suite tinny --once": SHOWN["tinny-no-such-suite-did"],
    "watch runs/today --suite runs/today --once --executor inline": SHOWN["suite-holds-no-case"],
    "watch runs/tody --suite tiny --once": SHOWN["runs-tody-no-such-file"],
    "watch train.py --suite tiny --once --executor inline": SHOWN["train-py-no-checkpoint-to"],
    "watch runs/today --suite tiny --store notes.txt --once": SHOWN["notes-txt-cannot-use-the"],
    "tune train.py --optimizer adam": SHOWN["train-py-this-file-is-not"],
    "tune tinny --optimizer adam": SHOWN["did-you-mean-tiny"],
    "tune tiny/tiny.gin/a --optimizer adam": SHOWN["case-and-not-a-suite"],
    "run tiny/tiny.gin": SHOWN["lobench-compare-a-b-suite"],
    "compare a points.csv": SHOWN["lobench-import-points-csv-store"],
    "debug tiny/tiny.gin": SHOWN["suite-and-not-one-of"],
    "run train.py": SHOWN["expected-name-parameter-value"],
    "run experimnt.gin": SHOWN["experimnt-gin-cannot-read-the"],
    "best runs/tody --suite tiny": SHOWN["runs-tody-no-run-found"],
    "bisect runs/tody --suite tiny --case a": SHOWN["runs-tody-no-run-found-2"],
    "report nothere --output x.html": SHOWN["nothere-no-result-store-found"],
    "audit notes.txt": SHOWN["notes-txt-not-a-bundle"],
    "site nothere --output site": SHOWN["nothere-not-a-bundle"],
    "import nothere.csv --store imported": SHOWN["no-such-file"],
    "debug tiny/a --checkpoint runs/tody/theta_1.npz": SHOWN["no-checkpoint-found"],
    "debug tiny/a --checkpoint notes.txt": SHOWN["notes-txt-no-reader-knows"],
    # a name that is not there, or of another kind
    "wach runs/today": SHOWN["did-you-mean-watch"],
    "evaluate runs/today/theta_1.npz": SHOWN["did-you-mean-lobench-watch"],
    "list optimizer": SHOWN["did-you-mean-optimizers"],
    "watch runs/today --suite tiny --sink tensorbord --once": SHOWN["unknown-sink-tensorbord"],
    "watch runs/today --suite tiny --executor locl --once": SHOWN["did-you-mean-local"],
    "watch runs/today --suite tiny --source dir --once": SHOWN["unknown-source-dir"],
    "watch runs/today --suite tiny --checkpoints newest --once": SHOWN["checkpoints-unknown-admission-policy"],
    "tune tiny --optimizer adam --search rando --num-trials 3": SHOWN["did-you-mean-random"],
    "tune tiny --optimizer adamm --executor inline": SHOWN["unknown-name-adamm-did-you"],
    "tune tiny --optimizer adam --vary 'learning_rat = [0.1, 0.2]' --executor inline": SHOWN[
        "did-you-mean-learning-rate"
    ],
    "run experiment.gin --method c": SHOWN["method-unknown-method-c-expected"],
    "run experiment.gin --case nothing": SHOWN["no-case-nothing-expected-one"],
    "watch runs/today --suite tiny --case x --once": SHOWN["no-case-x-expected-one"],
    "debug tiny/c --optimizer adam()": SHOWN["no-case-c-expected-one"],
    "debug a --optimizer adam()": SHOWN["write-suite-a-or-add"],
    "results store --case nothing": SHOWN["case-matches-no-case"],
    "compare a c --store store": SHOWN["nothing-here-is-called-c"],
    # a value of the wrong kind
    "watch runs/today --suite tiny --until-step -1 --once": SHOWN["is-not-in-the-range"],
    "watch runs/today --suite tiny --workers 0 --once": SHOWN["workers-got-0-expected-a"],
    "watch runs/today --suite tiny --workers two --once": SHOWN["workers-got-two"],
    "watch runs/today --suite tiny --checkpoints every:0 --once": SHOWN["expected-every-n-with-n"],
    "tune tiny --optimizer adam --sessions two": SHOWN["two-is-not-an-integer"],
    "compare a b --store store --margin 5%": SHOWN["is-not-a-number"],
    "import points.csv --kind csv --store imported": SHOWN["tables-in-csv-are-tidy"],
    "compare a b --store store --alpha 5": SHOWN["is-not-in-the-range-2"],
    "report store --output out.pdf": SHOWN["expected-format-pdf-output-folder"],
    "report store --output out.docx": SHOWN["got-out-docx-expected-htm"],
    "report store --output out.html --format latex": SHOWN["got-out-html-expected-tex"],
    "tune tiny --optimizer adam --vary learning_rate": SHOWN["expected-a-line-such-as"],
    # gin that is nearly right
    "watch runs/today --suite tiny --gin-param Case.num_seeds:3 --once --executor inline": "'Case.num_seeds = 3'?",
    "watch runs/today --suite tiny --gin-param Case.num_sedes=3 --once --executor inline": SHOWN[
        "did-you-mean-num-seeds"
    ],
    "watch runs/today --suite tiny --gin-file nothere.gin --once --executor inline": SHOWN["cannot-read-the-gin-file"],
    "debug tiny/a --optimizer adam() --gin-param 'a/Case.task = @Bowl'": SHOWN["class-bowl-not-called-write"],
    "debug tiny/a --optimizer 'sgd(0.1)'": "'sgd(); sgd.learning_rate = 0.1'",
    "run experiment.gin --gin-param 'Experiment.num_session = 1'": SHOWN["did-you-mean-num-sessions"],
    # commands that came later
    "keep --command 'python train.py {seed} {out}'": SHOWN["missing-option-metric"],
    "keep --command 'python train.py {sed} {out}' --metric loss": SHOWN["command-has-no-seed"],
    "keep --command 'python train.py {seed} {out}' --metric loss": SHOWN["no-incumbent-against-git-rev"],
    "keep --command 'python train.py {seed} {out}' --metric loss --against nothere": SHOWN["nothere-no-such-folder"],
    "keep --command 'python train.py {seed} {out}' --metric loss --against git:HEAD": SHOWN["not-in-a-git-repository"],
    "keep --log": SHOWN["no-decisions-here"],
    "convert notes.txt --to pylo --output out": SHOWN["notes-txt-no-reader-knows"],
    "convert runs/today/theta_1.npz --to pylow --output out": SHOWN["pylow-is-not-one-of"],
    "convert runs/tody/theta_1.npz --to algoperf --output out": SHOWN["runs-tody-theta-1-npz"],
    "new skil out": SHOWN["did-you-mean-skill"],
    "new skill notes.txt": SHOWN["notes-txt-this-is-a"],
    "results store --format every-eval-ever": SHOWN["expected-output-with-a-folder"],
    "results store --format every-eval-ever --output tiny": SHOWN["expected-output-with-a-folder"],
    "publish store --output x.lobench --croissant tiny": SHOWN["expected-a-folder-that-is"],
    "publish store --output x.lobench --license MIT": SHOWN["license-is-of-the-data"],
    "watch runs/today --suite tiny --once --keep-limit -3": SHOWN["3-0-is-not-in"],
    "watch runs/today --suite tiny --once --complete-when DONE": SHOWN["complete-when-is-of-suites"],
    "watch runs/today --suite lm.gin --once --complete-when /tmp/DONE": SHOWN["got-tmp-done-expected-a"],
    "watch runs/today --suite lm.gin --once --gin-param 'm/Case.replicates = \"item\"' --executor inline": SHOWN[
        "case-replicates-got-item-expected"
    ],
    "watch runs/today --suite lm.gin --once --gin-param 'm/Case.task = @Bowl()' --executor inline": SHOWN[
        "case-task-has-no-meaning"
    ],
    "watch runs/today --suite tiny --once --gin-param 'a/Case.command = \"python train.py\"' --executor inline": SHOWN[
        "the-case-has-a-case"
    ],
    "watch runs/today --suite tiny --once --executor slurm:mem": SHOWN["executor-slurm-needs-a-number"],
    "import points.csv --store imported --kind inspct": SHOWN["did-you-mean-inspect"],
    # something is missing, or too much
    "watch run --suite tiny --store": SHOWN["option-store-requires-an-argument"],
    "watch --suite tiny": SHOWN["missing-argument-ckpt-dir-see"],
    "watch runs/today": SHOWN["missing-option-suite"],
    "tune tiny": SHOWN["missing-option-optimizer"],
    "report": SHOWN["missing-option-store"],
    "report store": SHOWN["html-is-not-printed"],
    "compare a --store store": SHOWN["nothing-to-compare-with"],
    "watch runs/today --suite tiny --seeds 3 --once": SHOWN["no-such-option-seeds"],
    "tune tiny -k a": SHOWN["did-you-mean-case"],
    "run experiment.gin --sessions 3": "Experiment.num_sessions = ",
    "run experiment.gin --gin-param 'Experiment.num_seedz = 1'": SHOWN["did-you-mean-num-sessions-seeds"],
    "history tiny/tiny.gin/a": "--case a",
    "keep -- python train.py": "--command '",
    "publish store": SHOWN["missing-option-output"],
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory: a suite, a run, an experiment, a store, and a script that nobody may run."""
    folder = tmp_path_factory.mktemp("desk")
    make_suite(folder)
    make_run(folder / "runs", -3.0, -2.0).rename(folder / "runs" / "today")
    (folder / "train.py").write_text("open('executed', 'w').write('x')\n")
    (folder / "notes.txt").write_text("hello\n")
    (folder / "points.csv").write_text("seed,step,loss\n0,1,0.5\n")
    (folder / "experiment.gin").write_text(EXPERIMENT)
    (folder / "lm.gin").write_text(COMMAND)
    with Ledger.open(folder / "store") as ledger:
        for text in ("a", "b"):
            subject = Subject.of_optimizer(f"{text}()", label=text)
            ledger.record_sighting(subject)
            case = case_info("x", suite="tiny")
            block = SeedBlock(start=0, size=4)
            key = EvaluationKey.of(subject.sha256, case, block, PROGRAM_VERSION)
            ledger.record_evaluation(key, case, Outcome.PASSED, curves=curves({"train/loss": [1.0, 1.1, 0.9, 1.0]}))
    return folder


def files_below(folder: Path) -> dict[Path, bytes]:
    """Returns all files and folders with the content of files; without locks and logs of a store that was there."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts and not path.name.startswith(("ledger.sqlite-", "chief.lock"))
    }


@pytest.mark.parametrize("line", MISTAKES)
def test_command_line_with_a_typical_mistake_is_refused_in_one_line(desk: Path, line: str) -> None:
    before = files_below(desk)
    done = lobench(*shlex.split(line), cwd=desk)
    (message,) = [text for text in done.stderr.splitlines() if not text.startswith(("replaying", "evaluating"))]
    assert message.startswith("lobench: ") and MISTAKES[line] in message
    assert done.returncode == 2 and "Traceback" not in done.stdout
    assert files_below(desk) == before
    assert not list(desk.rglob("executed"))
