"""Edited code of cases that are commands, and of ordinary tests: which commands of lobench evaluate again."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import lobench_here, pytest_session
from tiny import write_checkpoint

from lobench.engine.store.ledger import Ledger

FILES = {
    "suite/eval.gin": """
        Case.num_seeds = 1
        Case.primary_metric = "valid/loss"
        Case.curves = "{out}/metrics.json"
        lm/Case.command = "python score.py {checkpoint} {out}"
        lm/Case.files = ["rates.json"]
        """,
    "suite/score.py": '''
        """Scores a checkpoint."""
        import json, pathlib, sys
        from near import loss

        FACTOR = 2.0  # of the loss

        def value(rate, offset=0.0):
            """The loss."""
            return FACTOR * loss(rate) + offset

        rate = json.loads(pathlib.Path(__file__).with_name("rates.json").read_text())["rate"]
        pathlib.Path(sys.argv[2], "metrics.json").write_text(json.dumps({"valid/loss": value(rate)}))
        ''',
    "suite/near.py": "from far import SCALE\n\n\ndef loss(rate):\n    return SCALE * rate\n",
    "suite/far.py": "SCALE = 1.0\n",
    "suite/rates.json": '{"rate": 0.5}\n',
    "suite/test_plain.py": """
        from limits import HIGHEST

        def test_size(checkpoint, record, offset):
            record("size", 1.0 + offset)  # of the file
            assert HIGHEST > 0
        """,
    "suite/limits.py": "HIGHEST = 1.0\n",
    "conftest.py": "import pytest\n\n\n@pytest.fixture\ndef offset():\n    return 0.0\n",
}

Edit = tuple[str, str, str, set[str]]  # file, text, the text in its place, and the cases that are evaluated again

EDITS: dict[str, Edit] = {
    "constant": ("suite/score.py", "FACTOR = 2.0", "FACTOR = 3.0", {"lm"}),
    "default argument": ("suite/score.py", "offset=0.0", "offset=0.5", {"lm"}),
    "helper two imports away": ("suite/far.py", "1.0", "1.5", {"lm"}),
    "file of Case.files": ("suite/rates.json", "0.5", "0.25", {"lm"}),
    "ordinary test": ("suite/test_plain.py", "HIGHEST > 0", "HIGHEST > 0.5", {"size"}),
    "module of an ordinary test": ("suite/limits.py", "1.0", "2.0", {"size"}),
    "conftest fixture in the folder above": ("conftest.py", "return 0.0", "return 0.5", {"lm", "size"}),
    "comment": ("suite/score.py", "# of the loss", "# of each loss", set()),
    "docstring": ("suite/score.py", '"""The loss."""', '"""Returns the loss."""', set()),
    "comment of an ordinary test": ("suite/test_plain.py", "# of the file", "# in bytes", set()),
    "unrelated file": ("suite/other.py", "", "X = 1\n", set()),
}


def make_world(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    (folder / "run").mkdir()
    for step in (1, 2):
        write_checkpoint(folder / "run" / f"theta_{step}.npz", -float(step))
    experiment = 'Experiment.suites = ["suite"]\nExperiment.num_sessions = 1\n'
    (folder / "experiment.gin").write_text(f'{experiment}one/Method.checkpoint = "run/theta_1.npz"\n')
    return folder


def edit(folder: Path, name: str) -> set[str]:
    """Makes an edit. Returns the cases that it changes."""
    file, before, after, cases = EDITS[name]
    text = (folder / file).read_text(encoding="utf-8") if before else ""
    assert before in text
    (folder / file).write_text(text.replace(before, after) if before else after, encoding="utf-8")
    return cases


def num_stored(store: Path) -> int:
    if not (store / "ledger.sqlite").is_file():
        return 0
    with Ledger.open(store, read_only=True) as ledger:
        return ledger.num_evaluations()


def _watch(folder: Path) -> Path:
    done = lobench_here("watch", "run", "--suite", "suite", "--once", "--checkpoints", "all", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run" / "lobench_results" / "suite"


def _pytest(folder: Path) -> Path:
    given = ("--lobench-checkpoint", "run/theta_1.npz", "--lobench-reuse", "--lobench-store", "store")
    done = pytest_session("suite", "-q", *given, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "store"


def _compare(folder: Path) -> Path:
    done = lobench_here("compare", "run/theta_1.npz", "run/theta_2.npz", "--suite", "suite", cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return folder / ".lobench" / "compare" / "suite"


def _run(folder: Path) -> Path:
    done = lobench_here("run", "experiment.gin", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / ".lobench" / "experiment"


COMMANDS: dict[str, tuple[Callable[[Path], Path], int, set[str]]] = {  # with the number of subjects, and the cases
    "watch": (_watch, 2, {"lm", "size"}),
    "pytest": (_pytest, 1, {"lm", "size"}),
    "compare": (_compare, 2, {"lm", "size"}),
    "run": (_run, 1, {"lm"}),  # experiments have no ordinary tests
}


# A watch and pytest have all edits. The others find out in the same way as a watch which code made a result.
LIKE_WATCH = ("compare", "run")


def steps_of(command: str) -> list[list[str]]:
    """Returns edits, by the calls of a command that follow them: those without an effect are followed by one."""
    effective = [name for name in EDITS if EDITS[name][-1]]
    without_effect = [name for name in EDITS if not EDITS[name][-1]]
    if command in LIKE_WATCH:
        effective = [name for index, name in enumerate(effective) if index % 3 == LIKE_WATCH.index(command)]
    return [*([name] for name in effective), without_effect]


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=[] if one == "pytest" else [pytest.mark.long]) for one in COMMANDS]
)
def test_command_after_edit_evaluates_commands_and_ordinary_tests_again_that_the_edit_reaches(
    tmp_path: Path, command: str
) -> None:
    call, num_subjects, cases = COMMANDS[command]
    folder, found = make_world(tmp_path), dict[str, tuple[int, int]]()
    store = call(folder)
    assert num_stored(store) == len(cases) * num_subjects
    assert num_stored(call(folder)) == len(cases) * num_subjects, "unchanged code"
    for names in steps_of(command):
        before = num_stored(store)
        expected = len(set[str]().union(*(edit(folder, name) for name in names)) & cases) * num_subjects
        call(folder)
        found[" and ".join(names)] = num_stored(store) - before, expected
    assert found == {name: (expected, expected) for name, (_, expected) in found.items()}
