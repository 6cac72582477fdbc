"""Edited code: which commands evaluate again after which edits."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import lobench_here
from edited_world import (
    COMMANDS,
    EDITS,
    TORCH_EDITS,
    edit,
    make_world,
    notebook_losses,
    num_trained,
    run_text,
    watch_text,
)
from forked import ALL, python
from shown import texts_of
from tiny import make_run, make_suite, watch_here, write_checkpoint

from lobench.analysis.tables.frames import open_results
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("lobench")

WITHOUT_EFFECT = ("comment", "docstring", "script's comment", "torch class's comment", "unrelated file")
OF_ONE_COMMAND = {
    "script": ("script", "script's helper in Method.files", "script's comment"),
    "torch": TORCH_EDITS,
    "torch by pytest": TORCH_EDITS[:1],
}
CHEAP = (
    ("run", "helper two imports away"),
    ("run", "comment and docstring and unrelated file"),
    ("script", "script"),
    ("watch", "default argument"),
)


# `run` and `pytest` have all edits. `watch` and `compare` find edited code as `run` does, so each has the first edit
# and half of the others. `best` evaluates twice and has only the first.
LIKE_RUN = ("watch", "compare")
EVALUATES_TWICE = "best"


def edits_of(command: str) -> list[str]:
    """Returns edits, those without an effect as one: `comment and docstring`."""
    others = {name for names in OF_ONE_COMMAND.values() for name in names}
    names = OF_ONE_COMMAND.get(command, [name for name in EDITS if name not in others])
    if command in (*LIKE_RUN, EVALUATES_TWICE):
        effective = [name for name in names[1:] if name not in WITHOUT_EFFECT]
        further = effective[LIKE_RUN.index(command) :: len(LIKE_RUN)] if command in LIKE_RUN else []
        kept = {names[0], *further, *WITHOUT_EFFECT}
        names = [name for name in names if name in kept]
    without_effect = " and ".join(filter(WITHOUT_EFFECT.__contains__, names))
    return [*(name for name in names if name not in WITHOUT_EFFECT), *filter(None, [without_effect])]


def params() -> list[object]:
    return [
        pytest.param(command, name, marks=[] if (command, name) in CHEAP else [pytest.mark.long])
        for command in COMMANDS
        for name in edits_of(command)
    ]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders in which a command ran, by the command; each is made when a test asks for it."""
    return {}


@pytest.mark.parametrize(("command", "name"), params())
def test_command_after_edit_evaluates_again_what_the_code_makes(
    evaluated: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, command: str, name: str
) -> None:
    if "torch" in name:
        pytest.importorskip("lobench_torch", reason=NO_TORCH)
    if command not in evaluated:
        folder = make_world(tmp_path_factory.mktemp(command))
        assert num_trained(folder, command) > 0
        assert num_trained(folder, command) == 0, "unchanged code"
        evaluated[command] = folder
    for one in name.split(" and "):
        edit(evaluated[command], one)  # over the edits before it
    assert (num_trained(evaluated[command], command) > 0) == (name.split(" and ")[0] not in WITHOUT_EFFECT)
    if name == "constant":
        assert num_trained(evaluated[command], command) == 0, "evaluated once"


NO_TORCH = "lobench-torch is not installed: `ci/test --all` installs it"
OF_NOTEBOOK = {
    "helper": ["helper two imports away", "package instead of a module"],
    "several": ["constant", "default argument", "task", "data function", "module named in a text", "comment"],
    "torch": ["torch class"],
}


@pytest.mark.parametrize(
    "names", ["helper", *(pytest.param(each, marks=pytest.mark.long) for each in ("several", "torch"))]
)
def test_notebook_after_each_edit_in_its_session_has_todays_values(tmp_path: Path, names: str) -> None:
    if names == "torch":
        pytest.importorskip("lobench_torch", reason=NO_TORCH)
    edits = OF_NOTEBOOK[names]
    losses = notebook_losses(make_world(tmp_path), *edits)
    for name, before, after in zip(edits, losses, losses[1:], strict=False):
        assert (before != after) == (name not in WITHOUT_EFFECT), name


INLINE = """
import sys
from pathlib import Path
import lobench
for factor in ("1.0", "0.0"):
    text = Path("suite/rules.py").read_text()
    Path("suite/rules.py").write_text(text.replace("FACTOR = 1.0", f"FACTOR = {factor}"))
    frame = lobench.run("experiment.gin", executor="inline", workers=1).frame()
    print(frame[frame["metric"] == "train/loss"]["value"].tolist())
"""


def test_inline_run_after_edit_in_one_process_trains_with_todays_code(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    done = python("-c", INLINE, cwd=folder, env={**os.environ, **ALL})
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()[-2:]
    assert before != after


def test_run_keeps_results_of_other_code_once_they_were_accepted(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    assert num_trained(folder, "run") == 1
    edit(folder, "constant")
    assert SHOWN["made-by-other-code-rules"] in run_text(folder, "--keep-results")
    assert num_trained(folder, "run") == 0
    edit(folder, "default argument")
    assert SHOWN["result-was-made-by-other"] in run_text(folder)


def test_optimizer_after_an_edit_is_on_the_scale_of_a_fresh_store_without_its_former_code(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    methods = "b/Method.optimizer = @signs()\nb/signs.learning_rate = 0.05\nsigns/signs.learning_rate = {rate}\n"
    text = (folder / "experiment.gin").read_text() + methods
    # The second run has no method with the rate that was the best with the former code.
    for rate, factor in ((0.3, "2.0"), (0.02, "1.0")):
        rules = folder / "suite" / "rules.py"
        rules.write_text(re.sub(r"FACTOR = [\d.]+", f"FACTOR = {factor}", rules.read_text()))
        (folder / "experiment.gin").write_text(text.format(rate=rate))
        assert lobench_here("run", "experiment.gin", cwd=folder).returncode == 0
    assert lobench_here("run", "experiment.gin", "--store", "fresh", cwd=folder).returncode == 0
    found = [
        json.loads(lobench_here("compare", "signs", "b", "--store", store, "--format", "json", cwd=folder).stdout)
        for store in (".lobench/experiment", "fresh")
    ]
    assert found[0] == found[1]


# The file `deep.next` takes the place of `deep.py`, whose scale of 0 is no training.
EDIT = """
import os
from pathlib import Path
NEXT = Path(__file__).with_name("deep.next")
if NEXT.exists() and NEXT.with_name("{when}").exists():
    NEXT.rename(NEXT.with_name("deep.py"))
"""
DIE_ONCE = """
import os
from pathlib import Path
DIED = Path(__file__).with_name("died")
if not DIED.exists():
    DIED.touch()
    os._exit(9)
"""


def make_world_that_is_edited(folder: Path, *, before_import: bool, when: str) -> Path:
    make_world(folder)
    (folder / "suite" / "deep.next").write_text("SCALE = 0.0\n")
    rules, edits = folder / "suite" / "rules.py", EDIT.format(when=when)
    text = rules.read_text()
    rules.write_text(edits + text if before_import else text + edits)
    return folder


def is_trained(folder: Path, store: str) -> list[bool]:
    """Returns of each evaluation of a store, in their order, whether its loss has changed."""
    with Ledger.open(folder / store, read_only=True) as ledger:
        rows = list(ledger.evaluations(all_codes=True))
    losses = [np.asarray(row.curves.metrics["train/loss"]) for row in rows if row.curves is not None]
    return [bool((loss[:, 0] != loss[:, -1]).all()) for loss in losses]


def test_run_in_which_a_module_is_edited_after_its_import_has_results_of_today(tmp_path: Path) -> None:
    folder = make_world_that_is_edited(tmp_path, before_import=False, when="deep.next")
    assert SHOWN["deep-py-has-changed-restarting"] in run_text(folder)
    assert is_trained(folder, ".lobench/experiment") == [False]
    assert num_trained(folder, "run") == 0


EDIT_BEFORE_THE_SECOND = """
    from pathlib import Path
    folder = Path(__file__).parent
    if (folder / "first").exists() and (folder / "read.next").exists():
        (folder / "read.next").rename(folder / "read.py")
    (folder / "first").touch()
"""


def test_run_in_which_a_file_that_code_reads_is_edited_has_all_methods_of_the_same_code(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    (folder / "suite" / "read.py").write_text("SCALE = 1.0\n")
    (folder / "suite" / "read.next").write_text("SCALE = 0.0\n")
    rules, test = folder / "suite" / "rules.py", folder / "suite" / "test_bowl.py"
    read = "    import runpy\n    factor = runpy.run_path('suite/read.py')['SCALE']\n    def update("
    text = rules.read_text().replace("    def update(", read).replace("* FACTOR", "* factor")
    rules.write_text(text)
    body = "level):" + EDIT_BEFORE_THE_SECOND.rstrip()
    test.write_text(test.read_text().replace("level):", body))
    with (folder / "experiment.gin").open("a") as file:
        file.write("second/Method.optimizer = @signs()\nsecond/signs.learning_rate = 0.2\n")
    text = run_text(folder)
    assert SHOWN["read-py-has-changed-restarting"] in text
    assert is_trained(folder, ".lobench/experiment") == [True, False, False]  # of the first method both
    assert num_trained(folder, "run") == 0


def test_job_of_a_worker_that_imported_edited_code_is_given_back(tmp_path: Path) -> None:
    folder = make_world_that_is_edited(tmp_path, before_import=True, when="died")
    test = folder / "suite" / "test_bowl.py"
    body = "".join(f"    {line}\n" for line in DIE_ONCE.strip().splitlines())
    test.write_text(test.read_text().replace("    assert", f"{body}    assert"))
    assert SHOWN["deep-py-has-changed-restarting"] in run_text(folder)
    assert is_trained(folder, ".lobench/experiment") == [False]
    assert num_trained(folder, "run") == 0


def test_pytest_session_in_which_a_module_is_edited_records_the_code_that_ran(tmp_path: Path) -> None:
    folder = make_world_that_is_edited(tmp_path, before_import=False, when="deep.next")
    assert num_trained(folder, "pytest") == 1
    assert num_trained(folder, "pytest") == 1
    assert is_trained(folder, ".lobench/suite") == [True, False]
    assert num_trained(folder, "pytest") == 0


def test_watch_with_config_edited_between_two_cases_trains_both_with_the_same_bindings(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    config, tasks = folder / "run" / "config.gin", folder / "suite" / "tasks.py"
    (folder / "config.next").write_text(config.read_text() + "Scaled.initial_lr = 0.5\n")
    edit = f"import os\n        if os.path.exists({str(folder / 'config.next')!r}):\n"
    edit += f"            os.rename({str(folder / 'config.next')!r}, {str(config)!r})\n        "
    tasks.write_text(tasks.read_text().replace("self.center = center", f"{edit}self.center = center"))
    with (folder / "suite" / "bowl.gin").open("a") as file:
        file.write("second/Case.task = @Bowl()\n")
    text = watch_text(folder)
    assert text.count(SHOWN["config-gin-has-changed-restarting"]) == 1, text
    with Ledger.open(folder / "run" / "lobench_results" / "suite", read_only=True) as ledger:
        rows = list(ledger.evaluations())
    assert {row.case.name for row in rows} == {"bowl", "second"}
    edited: dict[str, set[bool]] = {}  # by the optimizer's hash
    for row in rows:
        assert row.curves is not None, row.message
        bindings = row.curves.provenance.bindings
        edited.setdefault(row.case.optimizer_hash, set()).add("initial_lr = 0.5" in bindings)
    assert all(len(values) == 1 for values in edited.values()), edited


@pytest.fixture(scope="module")
def edited_watch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Suite and run of a watch whose task was edited afterwards: now the smaller one of two learning rates is best."""
    folder = tmp_path_factory.mktemp("watch")
    suite, run = make_suite(folder), make_run(folder, -3.0, -1.5)
    assert watch_here(run, suite, "--once", "--checkpoints", "all").returncode == 0
    tasks = suite / "tiny_tasks.py"
    tasks.write_text(tasks.read_text().replace("jnp.sum(params**2)", "10.0 * jnp.sum(params**2)"))
    return suite, run


@pytest.mark.parametrize(
    "words",
    [
        ("results",),
        ("results", "--evaluations"),
        ("results", "--format", "json"),
        ("results", "--format", "csv"),
        ("results", "--cases", "--format", "json"),
        ("report",),
        ("report", "--format", "text"),
        ("report", "--format", "json"),
        ("report", "--format", "appendix"),
        ("report", "--format", "badge"),
        ("publish",),
        ("compare",),
        ("alarm",),
        ("results", "--history"),
        ("history",),
    ],
    ids=" ".join,
)
def test_reader_after_an_edit_says_which_results_other_code_made(
    edited_watch: tuple[Path, Path], words: tuple[str, ...]
) -> None:
    suite, run = edited_watch
    store = run / "lobench_results" / suite.name
    options: dict[str, tuple[str | Path, ...]] = {
        "compare": ("1", "2", "--store", store),
        "alarm": (run, "--suite", suite),
        "history": (store, "--case", "a"),
        "publish": (store, "--output", run / "bundle.lobench"),
        "report": ("--store", store, *(() if "--format" in words else ("--output", run / "page.html"))),
    }
    done = lobench_here(*words, *options.get(words[0], ("--store", store)))
    text = done.stdout + done.stderr + ((run / "page.html").read_text() if words == ("report",) else "")
    assert SHOWN["made-by-other-code-tiny-tasks"] in (
        done.stdout if "text" in words else done.stderr if "--format" in words else text
    ), text
    if words == ("alarm",):
        assert done.returncode == 3, text  # nothing is left to compare


def test_reader_of_a_moved_project_finds_the_edited_code_and_none_says_so_without_the_code(
    edited_watch: tuple[Path, Path], tmp_path: Path
) -> None:
    suite, run = edited_watch
    moved = shutil.copytree(suite.parent, tmp_path / "moved")
    store = moved / run.name / "lobench_results" / suite.name
    hidden = suite.rename(suite.with_name("hidden"))
    try:
        assert SHOWN["made-by-other-code-tiny-tasks"] in lobench_here("results", "--store", store).stdout
        (moved / suite.name).rename(moved / "hidden")
        assert SHOWN["made-by-other-code-tiny-tasks"] not in lobench_here("results", "--store", store).stdout
    finally:
        hidden.rename(suite)


def test_reader_after_an_edit_of_a_script_says_that_other_code_made_its_curves(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    assert lobench_here("run", "script.gin", cwd=folder).returncode == 0
    options = ("--store", ".lobench/script")
    assert SHOWN["made-by-other-code"] not in lobench_here("results", *options, cwd=folder).stdout
    edit(folder, "script's comment")
    assert SHOWN["made-by-other-code"] not in lobench_here("results", *options, cwd=folder).stdout
    edit(folder, "script")
    for more in ((), ("--cases",)):
        done = lobench_here("results", *options, *more, cwd=folder)
        assert SHOWN["result-was-train-py"] in done.stdout, done.stdout


def test_json_results_of_a_script_and_of_its_former_code_differ_in_code_and_changed_files(tmp_path: Path) -> None:
    folder = make_world(tmp_path)
    assert lobench_here("run", "script.gin", cwd=folder).returncode == 0
    edit(folder, "script")
    assert lobench_here("run", "script.gin", cwd=folder).returncode == 0
    done = lobench_here("results", "--store", ".lobench/script", "--format", "json", cwd=folder)
    former, present = sorted(json.loads(done.stdout), key=lambda record: record["recorded_at"])
    assert former["label"] == present["label"]
    assert former["changed_files"] == ["train.py"] and present["changed_files"] == []
    assert former["code"] and present["code"] and former["code"] != present["code"]


def test_json_results_of_an_edited_task_name_the_changed_file(edited_watch: tuple[Path, Path]) -> None:
    suite, run = edited_watch
    done = lobench_here("results", "--store", run / "lobench_results" / suite.name, "--format", "json")
    records = json.loads(done.stdout)
    assert records and all(record["code"] and record["changed_files"] == ["tiny_tasks.py"] for record in records)


def test_results_in_python_after_an_edit_warn_of_those_that_other_code_made(edited_watch: tuple[Path, Path]) -> None:
    suite, run = edited_watch
    with pytest.warns(UserWarning, match=SHOWN["made-by-other-code-tiny-tasks"]) as warned:
        open_results(run / "lobench_results" / suite.name)
    assert warned[0].filename == __file__


def test_watch_that_ranks_results_of_other_code_says_so(edited_watch: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(edited_watch[0].parent, tmp_path, dirs_exist_ok=True)
    suite, run = (tmp_path / path.name for path in edited_watch)
    write_checkpoint(run / "theta_3.npz", -2.0)
    done = watch_here(run, suite, "--once", "--checkpoints", "latest", "--case", "a")
    assert done.returncode == 0, done.stderr
    assert SHOWN["made-by-other-code-next-start"] in done.stdout.partition("is the best of")[2], done.stdout


def test_best_and_bisect_after_an_edit_use_no_result_that_other_code_made(edited_watch: tuple[Path, Path]) -> None:
    suite, run = edited_watch
    options = ("--suite", suite, "--workers", "1")
    done = lobench_here("best", run, "--top", "1", *options)
    assert SHOWN["results-of-other-code-evaluating-again"] in done.stderr, done.stdout + done.stderr
    assert "theta_1.npz" in done.stdout.splitlines()[0], done.stdout
    done = lobench_here("bisect", run, "--case", "a", "--most", "2", *options)
    assert SHOWN["results-of-other-code-are-not-used"] in done.stderr, done.stderr
    assert SHOWN["all-of-them-new"] in done.stdout, done.stdout
