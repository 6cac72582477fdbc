"""`lobench run`: what is missing is computed, what is there is not; real workers, real ledgers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from commands import Done, lobench
from forked import python
from shown import texts_of
from tiny import ONE_CASE, PATIENCE, content, killed_chief, make_suite, write_checkpoint

from lobench.analysis.store.methods import read_snapshots
from lobench.core.experiment import SessionMember
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("run")

SUITE = 'Experiment.suites = ["tiny"]\n'
EXPERIMENT = f"""{SUITE}
Experiment.num_sessions = 2
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
learned/Method.checkpoint = "theta.npz"
learned/Case.learned_optimizer = @LearnableSGD()
"""
ADAM = "adam/Method.optimizer = @adam()\n"

# `python train.py KIND SESSION FOLDER`: writes how often it ran, and what a trainer of that kind writes.
TRAINER = """
import os, sys
import numpy as np
kind, session, folder = sys.argv[1:4]
CONFIGS = {"unbound": "Case.learned_optimizer = @NoSuch()\\n", "garbled": "Case. = (\\n"}
with open(f"ran-{kind}-{session}", "a") as file:
    file.write("x")
with open(os.path.join(folder, "config.gin"), "w") as file:
    file.write(CONFIGS.get(kind, "Case.learned_optimizer = @LearnableSGD()\\n"))
for step in (1, 2):
    path = os.path.join(folder, f"theta_{step}.npz")
    np.savez(path, log_lr=np.float32(-2.0 - 0.1 * step - int(session)))
    open(path + ".done", "w").close()
"""


def run(folder: Path, *options: str, file: str = "x.gin") -> Done:
    return lobench("run", folder / file, "--workers", "1", "--executor", "inline", *options, cwd=folder)


def ranking(folder: Path) -> str:
    """Returns the answer and the table of `lobench results`."""
    done = lobench("results", "--store", folder / "store")
    assert done.returncode == 0, done.stderr
    return "\n\n".join(done.stdout.split("\n\n")[:2])


def num_new(done: Done) -> int:
    """Returns how many evaluations a run computed, as its last line says."""
    assert done.returncode in (0, 3), done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("done: "), done.stdout
    return 0 if "nothing new" in last else int(last.split(", ")[1].split(" passed")[0])


def members(store: Path, name: str) -> list[SessionMember]:
    """Returns the members of the form of an experiment that was run last."""
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        return ledger.memberships([form.id for form in ledger.experiments() if form.name == name][-1])


def sessions(found: list[SessionMember]) -> set[tuple[str, int, str]]:
    return {(one.method, one.session, str(one.evaluation.block)) for one in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    write_checkpoint(tmp_path / "theta.npz", -2.0)
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def test_methods_sessions_and_experiments_add_exactly_what_is_missing(folder: Path) -> None:
    store = folder / "store"
    (folder / "tiny" / "tiny.gin").write_text(ONE_CASE)
    assert num_new(run(folder, "--store", "store")) == 2
    assert num_new(run(folder, "--store", "store")) == 0
    first = members(store, "x")
    assert sessions(first) == {(method, session, "0+2") for method in ("sgd", "learned") for session in (0, 1)}

    (folder / "x.gin").write_text(EXPERIMENT + ADAM)
    assert num_new(run(folder, "--store", "store")) == 1
    assert set(first) < set(members(store, "x"))

    more = ("--store", "store", "--gin-param", "Experiment.num_sessions = 3")
    assert num_new(run(folder, *more)) == 3
    assert ("adam", 2, "2+1") in sessions(members(store, "x")) and len(members(store, "x")) == 3 * 3

    (folder / "x.gin").write_text(EXPERIMENT)  # a method less, and a session less
    assert num_new(run(folder, "--store", "store")) == 0
    assert set(members(store, "x")) == set(first)

    (folder / "y.gin").write_text(EXPERIMENT.split("learned/")[0] + ADAM)
    assert num_new(run(folder, "--store", "store", file="y.gin")) == 0
    shared = {one for one in members(store, "y") if one.method == "sgd"}
    assert shared == {one for one in first if one.method == "sgd"} and len(members(store, "y")) == 4


def test_a_run_of_a_part_keeps_the_results_of_unchanged_methods_in_the_tables(folder: Path) -> None:
    sgd = EXPERIMENT.split("learned/")[0]
    (folder / "x.gin").write_text(sgd)
    run(folder, "--store", "store")
    (folder / "x.gin").write_text(sgd + ADAM)
    assert num_new(run(folder, "--store", "store", "--method", "adam", "--case", "a")) == 1
    assert Counter(one.method for one in members(folder / "store", "x")) == {"sgd": 4, "adam": 2}

    (folder / "x.gin").write_text(sgd.replace("learning_rate = 0.1", "learning_rate = 0.2") + ADAM)
    assert num_new(run(folder, "--store", "store", "--method", "adam", "--case", "b")) == 1
    assert Counter(one.method for one in members(folder / "store", "x")) == {"adam": 4}, "sgd has another rate"
    assert SHOWN["outside-the-experiments-last-run"] in lobench("results", "--store", folder / "store").stdout


def test_method_on_one_of_two_cases_has_as_many_seeds_a_case_as_one_on_both(folder: Path) -> None:
    gin = folder / "tiny" / "tiny.gin"
    gin.write_text(gin.read_text() + "b/Case.num_seeds = 3\n")
    (folder / "x.gin").write_text(f"{SUITE}sgd/Method.optimizer = @sgd()\n{ADAM}")
    assert num_new(run(folder, "--store", "store", "--method", "sgd")) == 2
    assert num_new(run(folder, "--store", "store", "--method", "adam", "--case", "a")) == 1
    (part,) = read_snapshots(folder / "store")
    assert [len(subject.cells) for subject in part.subjects] == [2, 1] and part.num_seeds_line() == ""


def test_live_lines_count_neither_results_of_edited_code_nor_blocks_of_another_experiment(folder: Path) -> None:
    sgd = EXPERIMENT.partition("learned/")[0]
    (folder / "x.gin").write_text(sgd)
    run(folder, "--store", "store")
    (folder / "y.gin").write_text(sgd.replace("num_sessions = 2", "num_sessions = 3"))
    assert num_new(run(folder, "--store", "store", file="y.gin")) == 2, "a block of three seeds"
    tasks = folder / "tiny" / "tiny_tasks.py"
    tasks.write_text(tasks.read_text() + "\nSCALE = 2.0\n")
    done = run(folder, "--store", "store")
    counts = re.findall(r"^sgd: (\d) of 2 evaluations", done.stdout, re.MULTILINE)
    assert counts == ["1", "2"], done.stdout


# Says behind all else what a run has imported: `python -c IMPORTS run x.gin`.
IMPORTS = """
import atexit, sys
from lobench.cli import main
sys.argv[0] = "lobench"
atexit.register(lambda: print("imported:", *sorted({"jax", "optax", "pandas", "tiny_tasks"} & sys.modules.keys())))
main()
"""


def test_the_finished_experiment_needs_no_worker_and_no_jax_however_its_cases_cut_the_seeds(folder: Path) -> None:
    gin = folder / "tiny" / "tiny.gin"
    gin.write_text(gin.read_text() + "Case.seed_block = 1\n")
    words = [sys.executable, "-c", IMPORTS, "run", "x.gin", "--workers", "1", "--store", "store"]
    assert num_new(run(folder, "--store", "store")) == 8
    for _ in range(2):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0 and SHOWN["done-8-of-8-evaluations"] in done.stdout, done.stdout
        assert done.stdout.splitlines()[-1] == "imported:" and not list(folder.glob("store/logs/*"))


@pytest.mark.parametrize("name", ["a", "tiny/a", "tiny.a", "tiny/tiny.a"])
def test_cases_by_name_are_run_now_and_the_others_at_another_call(name: str, folder: Path) -> None:
    (folder / "x.gin").write_text(EXPERIMENT.split("learned/")[0])
    done = run(folder, "--store", "store", "--case", name)
    assert done.returncode == 0, done.stderr
    assert {one.evaluation.block.size for one in members(folder / "store", "x")} == {2}
    with contextlib.closing(Ledger.open(folder / "store", read_only=True)) as ledger:
        assert [row.case.name for row in ledger.evaluations()] == ["a"]
    planned = [run(folder, "--store", "store", "--check", *options).stdout for options in ((), ("--case", name))]
    assert SHOWN["method-x-2-cases-1"] in planned[0]
    assert SHOWN["method-x-1-case-0"] in planned[1]
    wrong = run(folder, "--store", "store", "--check", "--case", "tiny.aa")
    assert (
        wrong.returncode == 2
        and SHOWN["no-case-tiny-aa-expected"] in wrong.stderr
        and SHOWN["did-you-mean-tiny-a"] in wrong.stderr
    )


def test_a_chief_that_is_killed_again_and_again_ends_with_the_ledger_of_an_undisturbed_run(folder: Path) -> None:
    assert num_new(run(folder, "--store", "undisturbed")) == 4
    words = ["run", str(folder / "x.gin"), "--workers", "1", "--store", "killed"]
    for number, after in (("4", "0"), ("13", "1")):
        done = killed_chief(number, after, *words, "--executor", "inline", cwd=folder)
        assert done.returncode == -9, done.stdout + done.stderr
    with contextlib.closing(Ledger.open(folder / "killed", read_only=True)) as ledger:
        num_cases_by_subject = Counter(row.key.checkpoint_sha256 for row in ledger.evaluations())
    finished = {sha256 for sha256, num_cases in num_cases_by_subject.items() if num_cases == 2}
    in_tables = {one.evaluation.sha256 for one in members(folder / "killed", "x")}
    assert in_tables <= finished and len(in_tables) == 1, "a method is in tables once it has all its evaluations"
    assert run(folder, "--store", "killed").returncode == 0
    assert content(folder / "killed") == content(folder / "undisturbed")
    assert members(folder / "killed", "x") == members(folder / "undisturbed", "x")


def test_imports_find_modules_beside_the_experiments_file(folder: Path) -> None:
    place = folder / "elsewhere" / "deep"
    place.mkdir(parents=True)
    (place / "rates.py").write_text("from lobench import configurable\n\n@configurable\ndef slow():\n    return 0.01\n")
    methods = "s/Method.optimizer = @sgd()\ns/sgd.learning_rate = @slow()\n"
    (place / "i.gin").write_text(f'import rates\nExperiment.suites = ["../../tiny"]\n{methods}')
    assert num_new(run(folder, "--store", "store", file="elsewhere/deep/i.gin")) == 2


def test_checkpoints_whose_config_cannot_be_bound_end_their_command_alone(folder: Path) -> None:
    kinds = "".join(
        f'{kind}/Method.command = "python train.py {kind} {{session}} {{folder}}"\n'
        f'{kind}/Method.checkpoints = "{which}"\n'
        for kind, which in (("good", "last"), ("unbound", "all"), ("garbled", "last"))
    )
    (folder / "c.gin").write_text(f"{SUITE}Experiment.num_sessions = 1\nsgd/Method.optimizer = @sgd()\n{kinds}")
    done = run(folder, "--store", "store", file="c.gin")
    assert done.returncode == 3 and num_new(done) == 4, done.stdout + done.stderr
    assert "\nunbound-0 infeasible: " in done.stdout and SHOWN["unknown-name-nosuch"] in done.stdout
    assert "\ngarbled-0 infeasible: " in done.stdout and "\ngood-0 done\n" in done.stdout
    assert {one.method for one in members(folder / "store", "c")} == {"sgd", "good"}
    again = run(folder, "--store", "store", file="c.gin")
    assert again.returncode == 3 and num_new(again) == 0, again.stdout
    assert (folder / "ran-unbound-0").read_text() == (folder / "ran-garbled-0").read_text() == "x"
    run(folder, "--store", "store", "--retry-errors", file="c.gin")  # its cases are bound again, and nothing is trained
    assert (folder / "ran-unbound-0").read_text() == "x"

    (folder / "theta.npz").with_name("config.gin").write_text("Case.learned_optimizer = @NoSuch()\n")
    (folder / "n.gin").write_text(f'{SUITE}named/Method.checkpoint = "theta.npz"\n')
    named = run(folder, "--store", "store", file="n.gin")
    assert named.returncode == 2 and "'named'" in named.stderr, (
        "what is named in the file is mended before anything runs"
    )


def test_a_name_that_the_cases_do_not_know_is_said_before_a_command_trains(folder: Path) -> None:
    command = 'good/Method.command = "python train.py good {session} {folder}"\n'
    (folder / "c.gin").write_text(f"{SUITE}Experiment.num_sessions = 1\n{command}outer.num_steps = 3\n")
    done = run(folder, "--store", "store", file="c.gin")
    assert done.returncode == 2 and SHOWN["unknown-name-outer"] in done.stderr, done.stdout + done.stderr
    assert not (folder / "ran-good-0").exists()


# The chief interrupts itself, as Ctrl-C would, once its first result is recorded.
INTERRUPTS = """
import os, signal
sent = []
def lobench_evaluation_finished(event):
    if not sent and "INTERRUPTED" in os.environ:
        sent.append(event)
        os.kill(os.getpid(), signal.SIGINT)
"""
# A shell's background job ignores SIGINT, and so would its children.
UNDISTURBED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


def test_ctrl_c_shows_what_is_there_and_the_same_command_goes_on(folder: Path) -> None:
    (folder / "tiny" / "conftest.py").write_text(INTERRUPTS)
    words = ("-c", UNDISTURBED, "run", "x.gin", "--workers", "1", "--store", "store")
    done = python(*words, cwd=folder, timeout=PATIENCE, env={**os.environ, "INTERRUPTED": "1"})
    assert done.returncode == 130, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.endswith(SHOWN["of-4-evaluations-the-same"]) and SHOWN["press-ctrl-c-again"] in done.stdout
    num_done = int(last.split()[0])
    assert 1 <= num_done < 4 and re.search(SHOWN["of-2-evaluations-score-left"], done.stdout)
    assert ranking(folder) in done.stdout

    rest = run(folder, "--store", "store")
    assert num_new(rest) == 4 - num_done and f"{num_done} of 4" not in rest.stdout
    assert ranking(folder) in rest.stdout and SHOWN["of-2-evaluations-score"] in rest.stdout


def test_methods_that_bind_their_own_phases_are_rows_of_one_table_and_live_lines_say_its_scores(folder: Path) -> None:
    """Each has its own form of the case, which was each its own scale, and only the last form was in the table."""
    methods = {"slow": (0.02, 2), "fast": (0.2, 5)}
    bindings = "".join(
        f"{name}/Method.optimizer = @sgd()\n{name}/sgd.learning_rate = {rate}\n"
        f"{name}/Case.phases = [@{name}1/Phase(), @{name}2/Phase()]\n"
        f"{name}1/Phase.num_inner_steps = {first}\n{name}2/Phase.num_inner_steps = {10 - first}\n"
        for name, (rate, first) in methods.items()
    )
    (folder / "x.gin").write_text(f"{SUITE}Experiment.num_sessions = 3\nExperiment.fixed = []\n{bindings}")
    done = run(folder, "--store", "store", "--case", "tiny.a")
    assert done.returncode == 0, done.stderr
    live = re.findall(r"^(slow|fast): 1 of 1 evaluations, score (\S+ \[\S+ \S+\])", done.stdout, re.M)
    table = dict(re.findall(r"^ +\d  (slow|fast) .*? (\S+ \[\S+ \S+\]) ", done.stdout, re.M))
    assert table.keys() == methods.keys() and table["fast"].startswith("1.000") and table["slow"] < "0.5", done.stdout
    assert {name for name, _ in live} == methods.keys() and live[-1][1] == table[live[-1][0]]
    (part,) = read_snapshots(folder / "store")  # nothing is left as a result of no experiment
    assert part.experiment and len(part.subjects) == 2


def test_experiments_with_equal_cases_share_what_the_store_holds_of_them(folder: Path) -> None:
    """A case of an experiment is what is bound, whichever file it stands in."""
    (folder / "tiny_tasks.py").write_text((folder / "tiny" / "tiny_tasks.py").read_text())
    case = "import tiny_tasks\nCase.num_inner_steps = 4\nCase.num_seeds = 2\nown/Case.task = @Bowl()\n"
    (folder / "x.gin").write_text(f"{case}sgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 0.1\n")
    (folder / "copy.gin").write_text(f"{case}same/Method.optimizer = @sgd()\nsame/sgd.learning_rate = 0.1\n")
    (folder / "other.gin").write_text(f"{case}own/Bowl.dim = 2\nsgd/Method.optimizer = @sgd()\n")
    assert num_new(run(folder, "--store", "store")) == 1
    assert num_new(run(folder, "--store", "store", file="copy.gin")) == 0
    assert num_new(run(folder, "--store", "store", file="other.gin")) == 1
    # A module of the same name that lies elsewhere is another one.
    (folder / "elsewhere").mkdir()
    for name in ("tiny_tasks.py", "x.gin"):
        (folder / "elsewhere" / name).write_text((folder / name).read_text())
    assert num_new(run(folder, "--store", "store", file="elsewhere/x.gin")) == 1
    shipped = "Case.num_inner_steps = 4\nown/Case.task = @Quadratic()\nsgd/Method.optimizer = @sgd()\n"
    for name in ("shipped.gin", "elsewhere/shipped.gin"):
        (folder / name).write_text(shipped)
        assert num_new(run(folder, "--store", "store", file=name)) == (0 if "/" in name else 1)


def test_an_experiment_that_includes_anothers_cases_shares_what_the_store_holds_of_them(folder: Path) -> None:
    """And what it changes of a case makes that another one."""
    (folder / "tiny_tasks.py").write_text((folder / "tiny" / "tiny_tasks.py").read_text())
    case = "import tiny_tasks\nCase.num_inner_steps = 4\nCase.num_seeds = 2\n"
    case += "own/Case.task = @Bowl()\nb/Case.task = @Bowl()\n"
    (folder / "x.gin").write_text(f"{case}sgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 0.1\n")
    for name, more in (("y", ADAM), ("z", "Bowl.dim = 2\n")):
        (folder / f"{name}.gin").write_text(f'include "x.gin"\n{more}')
    assert num_new(run(folder, "--store", "store")) == 2
    assert num_new(run(folder, "--store", "store", file="y.gin")) == 2  # adam's alone
    first, second = ({one.evaluation for one in members(folder / "store", name)} for name in ("x", "y"))
    assert first < second
    assert num_new(run(folder, "--store", "store", file="z.gin")) == 2
