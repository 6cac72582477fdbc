"""Typical mistakes on command lines: one line that says what is wrong, nothing written, nothing executed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from commands import lobench
from stores import case_info, curves
from tiny import make_run, make_suite

from lobench.core.case import SeedBlock
from lobench.core.program import PROGRAM_VERSION
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

EXPERIMENT = """
Experiment.suites = ["tiny"]
a/Method.optimizer = @sgd()
a/sgd.learning_rate = 0.1
b/Method.optimizer = @adam()
"""

# A command line, and a part of the line that it gets. Inline workers save the start of a process.
MISTAKES = {
    # a path that is another thing
    "watch runs/today --suite train.py --once": "train.py: this file is not a suite; expected a folder, a .gin file",
    "watch runs/today --suite notes.txt --once": "notes.txt: this file is not a suite",
    "watch runs/today --suite tiny/tiny_tasks.py --once": "tiny/tiny_tasks.py: this file is not a suite",
    "watch runs/today --suite tinny --once": "tinny: no such suite; did you mean 'tiny'?",
    "watch runs/today --suite runs/today --once --executor inline": "the suite holds no case",
    "watch runs/tody --suite tiny --once": "runs/tody: there is nothing here",
    "watch train.py --suite tiny --once --executor inline": "train.py: no checkpoint to evaluate",
    "watch notes.txt --suite tiny --once --executor inline": "notes.txt: no checkpoint to evaluate",
    "watch runs/today --suite tiny --store notes.txt --once": "notes.txt: cannot use the result store",
    "tune train.py --optimizer adam": "train.py: this file is not a suite",
    "tune tinny --optimizer adam": "did you mean 'tiny'?",
    "tune tiny/tiny.gin/a --optimizer adam": "a case, and not a suite; give 'tiny/tiny.gin', and --case a",
    "tune tiny/tiny.gin:a --optimizer adam": "a case, and not a suite; give 'tiny/tiny.gin', and --case a",
    "baseline train.py": "train.py: this file is not a suite",
    "baseline tinny": "did you mean 'tiny'?",
    "run tiny/tiny.gin": "`lobench compare A B --suite tiny.gin`",
    "compare a points.csv": "`lobench import points.csv --store STORE`",
    "debug tiny/tiny.gin": "a suite, and not one of its cases; expected one of tiny/tiny.gin/a, tiny/tiny.gin/b",
    "run train.py": "expected `Name.parameter = value`",
    "run experimnt.gin": "experimnt.gin: cannot read the gin file",
    "best runs/tody --suite tiny": "runs/tody: no run found; did you mean 'today'?",
    "alarm runs/tody --suite tiny": "runs/tody: no run found",
    "bisect runs/tody --suite tiny --case a": "runs/tody: no run found",
    "report nothere --output x.html": "nothere: no result store found",
    "report runs/today --output x.html": "runs/today: no result store found",
    "results nothere": "nothere: no result store found",
    "publish nothere --output x.lobench": "nothere: no result store found",
    "audit notes.txt": "notes.txt: not a bundle",
    "site nothere --output site": "nothere: not a bundle",
    "import nothere.csv --store imported": "no such file",
    "debug tiny/a --checkpoint runs/tody/theta_1.npz": "no checkpoint found",
    "debug tiny/a --checkpoint notes.txt": "notes.txt: no reader knows this checkpoint",
    # a name that is not there, or of another kind
    "wach runs/today": "did you mean 'watch'?",
    "evaluate runs/today/theta_1.npz": "did you mean `lobench watch CHECKPOINT --suite SUITE --once`?",
    "list optimizer": "did you mean 'optimizers'?",
    "watch runs/today --suite tiny --sink tensorbord --once": "unknown sink 'tensorbord'",
    "watch runs/today --suite tiny --executor locl --once": "did you mean 'local'?",
    "watch runs/today --suite tiny --source dir --once": "unknown source 'dir'",
    "watch runs/today --suite tiny --checkpoints newest --once": "unknown admission policy 'newest'",
    "tune tiny --optimizer adam --search rando --num-trials 3": "did you mean 'random'?",
    "tune tiny --optimizer adamm --executor inline": "unknown name 'adamm'; did you mean 'adam'?",
    "tune tiny --optimizer Adam --executor inline": "unknown name 'Adam'; did you mean 'adam'?",
    "tune tiny --optimizer adam --vary 'learning_rat = [0.1, 0.2]' --executor inline": "did you mean 'learning_rate'?",
    "run experiment.gin --method c": "--method: unknown method 'c'; expected one of a, b",
    "run experiment.gin --case nothing": "no case 'nothing'; expected one of a, b",
    "baseline tiny --case x": "no case 'x'; expected one of a, b",
    "bisect runs/today --suite tiny --case x": "no case 'x'",
    "debug tiny/c --optimizer adam()": "no case 'c'; expected one of a, b",
    "debug a --optimizer adam()": "write SUITE/a, or add --suite SUITE",
    "results store --case nothing": "--case matches no case",
    "compare a c --store store": "nothing here is called 'c'",
    # a value of the wrong kind
    "watch runs/today --suite tiny --until-step -1 --once": "-1 is not in the range x>=0",
    "watch runs/today --suite tiny --workers 0 --once": "--workers; got '0'; expected a number >= 1, MIN:MAX, or auto",
    "watch runs/today --suite tiny --workers two --once": "--workers; got 'two'",
    "watch runs/today --suite tiny --checkpoints every:0 --once": "expected every:N with N >= 1",
    "tune tiny --optimizer adam --sessions two": "'two' is not an integer",
    "compare a b --store store --margin 5%": "'5%' is not a number",
    "import points.csv --kind csv --store imported": "tables in csv are 'tidy'",
    "compare a b --store store --alpha 5": "5.0 is not in the range",
    "report store --output out.pdf": "expected --format pdf --output FOLDER",
    "report store --output out.pdf --format html": "expected --format pdf --output FOLDER",
    "report store --output out.docx": "got out.docx; expected .htm or .html",
    "report store --output out.html --format latex": "got out.html; expected .tex",
    "tune tiny --optimizer adam --vary learning_rate": "expected a line such as",
    # gin that is nearly right
    "watch runs/today --suite tiny --gin-param Case.num_seeds:3 --once --executor inline": "'Case.num_seeds = 3'?",
    "watch runs/today --suite tiny --gin-param Case.num_sedes=3 --once --executor inline": "did you mean 'num_seeds'?",
    "watch runs/today --suite tiny --gin-file nothere.gin --once --executor inline": "cannot read the gin file",
    "debug tiny/a --optimizer adam() --gin-param 'a/Case.task = @Bowl'": "the class Bowl, not called; write @Bowl()",
    "debug tiny/a --optimizer 'sgd(0.1)'": "'sgd.PARAMETER = 0.1'",
    "run experiment.gin --gin-param 'Experiment.num_session = 1'": "did you mean 'num_sessions'?",
    # something is missing, or too much
    "watch run --suite tiny --store": "Option '--store' requires an argument; see `lobench watch --help`",
    "watch --suite tiny": "Missing argument 'CKPT_DIR'; see `lobench watch --help`",
    "watch runs/today": "Missing option '--suite'",
    "tune tiny": "Missing option '--optimizer'",
    "report": "Missing option '--store'",
    "report store": "html is not for a terminal; give --output, or --format text",
    "compare a --store store": "nothing to compare with",
    "watch runs/today --suite tiny --seeds 3 --once": "No such option '--seeds'",
    "publish store": "Missing option '--output'",
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
