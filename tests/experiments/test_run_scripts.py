"""Scripts as methods of an experiment: real processes that write curves, real kills of the chief, real stops."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import lobench
from curve_scripts import NUMPY, SEARCH
from shown import texts_of
from tiny import content, killed_chief, make_suite, results

from lobench.engine.store.experiments import Membership, TrialRow
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("run")


def run(folder: Path, *options: str, file: str = "x.gin", store: str = "store", code: int = 0, workers: int = 2) -> str:
    """Runs with a chief in this process and workers of their own."""
    done = lobench("run", file, "--store", store, "--workers", str(workers), *options, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def looked_at(store: Path) -> Any:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        yield ledger, ledger.experiments()[-1].id


def trials(store: Path) -> list[TrialRow]:
    with looked_at(store) as (ledger, form):
        return ledger.trials(form)


def members(store: Path) -> list[Membership]:
    with looked_at(store) as (ledger, form):
        return ledger.memberships(form)


def finals(store: Path) -> dict[tuple[str, int], float]:
    """Returns the last value of each member."""
    with looked_at(store) as (ledger, form):
        rows = {(row.key.checkpoint_sha256, row.key.seed_block): row for row in ledger.evaluations()}
        found = {}
        for one in ledger.memberships(form):
            curves = rows[one.evaluation.sha256, one.evaluation.block].curves
            found[one.method, one.session] = curves.final("val/loss")[0]
        return found


def script(folder: Path, text: str, gin: str) -> None:
    (folder / "train.py").write_text(text)
    (folder / "x.gin").write_text(gin)


def no_process_has(text: str) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if text in " ".join(process.cmdline()):
                return False
    return True


def test_a_search_over_scripts_that_is_killed_twice_is_that_of_an_undisturbed_run(tmp_path: Path) -> None:
    script(tmp_path, NUMPY, SEARCH)
    run(tmp_path, store="undisturbed")
    for commit, after in (("9", "0"), ("30", "1")):
        words = ["run", "x.gin", "--workers", "2", "--store", "killed"]
        done = killed_chief(commit, after, *words, cwd=tmp_path)
        assert done.returncode == -9, done.stdout + done.stderr
    run(tmp_path, store="killed")
    found = [row for row in trials(tmp_path / "killed") if row.method == "mine"]
    assert len(found) == 8 and {row.state for row in found} == {"done", "stopped"}
    assert sum(row.state == "stopped" for row in found) >= 4
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed")
    assert set(members(tmp_path / "killed")) == set(members(tmp_path / "undisturbed"))
    assert no_process_has(str(tmp_path / "killed"))


# What a session does is output by its number; each writes beside what an earlier start has left there.
ODD = """
import json, os, sys
out, seed = sys.argv[1], int(sys.argv[2])
path = os.path.join(out, "curves.jsonl")
def row(step, value):
    return json.dumps({"step": step, "metric": "val/loss", "value": value}) + "\\n"
rows = "".join(row(step, 8 / (step + 1)) for step in range(0, 31, 10))
if seed == 0:                       # writes nothing
    sys.exit()
if seed == 1:                       # fails after it has written
    rows += "no more data\\n"
if seed == 2:                       # diverges, and ends there
    rows = row(0, 8.0) + row(10, float("nan"))
if seed == 3:                       # rubbish, and a line that a kill has cut, both before what counts
    rows = "Warning: slow\\n" + row(0, 8.0)[:20] + "\\n" + "[1, 2]\\n\\x00\\n" + rows
if seed == 4:                       # begins again: what it repeats counts the second time
    rows = row(0, 1.0) + row(10, 1.0) + rows
if seed == 5:                       # the last line has no end
    rows = rows[:-1]
if seed == 6:                       # ends before the step that is asked for
    rows = row(0, 8.0) + row(20, 4.0)
with open(path, "w") as file:
    file.write(rows)
if seed == 1:
    sys.exit("it broke")
"""
ODD_GIN = """
Experiment.num_sessions = 7
odd/Method.command = "python train.py {out} {session}"
odd/Method.curves = "{out}/curves.jsonl"
odd/Method.metrics = ["val/loss"]
odd/Method.until_step = 30
"""


def test_what_scripts_write_and_how_they_end_is_said_and_loses_nothing_of_the_others(tmp_path: Path) -> None:
    script(tmp_path, ODD, ODD_GIN)
    output = run(tmp_path, "--executor", "inline", code=3)
    assert "odd-0 infeasible: " in output and SHOWN["curves-jsonl-it-wrote-no"] in output
    assert SHOWN["odd-1-failed-exited-with"] in output
    assert SHOWN["lines-are-not-json-objects"] in output
    assert "odd-6 infeasible: " in output and SHOWN["run-has-no-value-at"] in output
    found = finals(tmp_path / "store")
    assert sorted(session for _, session in found) == [2, 3, 4, 5]
    assert [found["odd", session] for session in (3, 4, 5)] == pytest.approx([8 / 31] * 3)
    (record,) = [one for one in results(tmp_path / "store") if one["seeds"] == [2]]
    assert record["diverged"] == [True] or record["diverged"] == 1
    assert "done: 4 of" in output and "4 passed" in output
    again = run(tmp_path, "--executor", "inline", code=3)
    assert SHOWN["nothing-new"] in again and "starts: " not in again
    # Another step to end at: files that are there are read again, and nothing runs.
    (tmp_path / "x.gin").write_text(ODD_GIN.replace("= 30", "= 20"))
    read_again = run(tmp_path, "--executor", "inline", code=3)
    assert "starts: " not in read_again and finals(tmp_path / "store")["odd", 3] == pytest.approx(8 / 21)
    retried = run(tmp_path, "--executor", "inline", "--retry-errors", code=3)
    assert "odd-1 starts: " in retried and "odd-6 starts: " not in retried, "its file is what is asked for now"
    assert finals(tmp_path / "store")["odd", 6] == 4.0


LACKING = """
import json, os, sys
out, seed, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if seed == 2 and mode == "failed":
    sys.exit("it broke")
with open(os.path.join(out, "curves.jsonl"), "w") as file:
    for step in range(0, 31, 10):
        value = 8 / (step + 1) + 0.01 * seed - (mode != "whole") * 0.1 * (step > 0)
        if seed == 2 and mode == "short" and step == 30:
            break
        if seed == 2 and mode == "null" and step == 30:
            value = None  # as JavaScript and orjson write NaN
        file.write(json.dumps({"step": step, "val/loss": value}) + "\\n")
"""


def test_a_session_without_a_result_is_a_missing_seed_and_null_is_nan(tmp_path: Path) -> None:
    gin = "Experiment.num_sessions = 5\n"
    for name in ("whole", "failed", "short", "null"):
        gin += f'{name}/Method.command = "python train.py {{out}} {{session}} {name}"\n'
        gin += f'{name}/Method.curves = "{{out}}/curves.jsonl"\n{name}/Method.until_step = 30\n'
        gin += f'{name}/Method.paired_seeds = True\n{name}/Method.metrics = ["val/loss"]\n'
    script(tmp_path, LACKING, gin)
    text = run(tmp_path, code=3)
    assert re.search(r"^ +- +(failed|short) ", text, re.M), "a method that lacks a seed is not ranked"
    assert "(4 of 5 seeds)" in lobench("results", "--store", "store", "--cases", cwd=tmp_path).stdout
    found = lobench("results", "--store", "store", "--by", "method", "--format", "json", cwd=tmp_path)
    records = json.loads(found.stdout)
    assert {one["method"]: one["missing"] for one in records} == {"whole": 0, "failed": 1, "short": 1, "null": 0}
    assert not any(one["bold"] for one in records if one["missing"])
    assert {one["method"] for one in records if one["diverged"]} == {"null"}
    for name, why in (("failed", "1 failed"), ("short", "1 infeasible")):
        done = lobench("compare", "whole", name, "--store", "store", cwd=tmp_path)
        assert "INCONCLUSIVE" in done.stdout and "PASS" not in done.stdout and f"({why})" in done.stdout, done.stdout
    done = lobench("compare", "whole", "null", "--store", "store", cwd=tmp_path)
    assert SHOWN["diverged-or-exploded-1-of"] in done.stdout
    appendix = lobench("report", "--store", "store", "--format", "appendix", cwd=tmp_path).stdout
    for line in (
        "failed**: 1 of 5 seeds without a result on imported/task: 1 failed",
        "short**: 1 of 5 seeds",
        ", 5 seeds, by",
    ):
        assert line in appendix, appendix
    assert "its name contains" not in appendix


# At half of its steps a bad trial, and a process that it has started, write on and on.
ENDLESS = """
import glob, json, os, signal, subprocess, sys, time
out, rate = sys.argv[1], float(sys.argv[2])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
with open(os.path.join(out, "curves.jsonl"), "a", buffering=1) as file:
    def write(step, value):
        file.write(json.dumps({"step": step, "metric": "val/loss", "value": value}) + "\\n")
    if rate < 0.5:
        loop = "import sys, time\\nwhile True:\\n time.sleep(.01); open(sys.argv[1], 'a').write('{}')"
        child = os.path.join(out, "child")
        subprocess.Popen([sys.executable, "-c", loop, child])
        while not os.path.exists(child) or not os.path.getsize(child):  # it may be stopped at step 50
            time.sleep(0.01)
    for step in range(0, 51, 10):
        write(step, 8 / (1 + rate * step))
    while rate < 0.5:
        time.sleep(0.01)
        write(60, 1e-9)
    for step in range(60, 101, 10):
        write(step, 8 / (1 + rate * step))
for _ in range(300):  # goes on until nobody writes there any more: that the run has ended ends nothing yet
    sizes = [os.path.getsize(path) for path in glob.glob(os.path.join(out, "../../mine-*/0/child"))]
    time.sleep(0.3)
    if sizes and sizes == [os.path.getsize(path) for path in glob.glob(os.path.join(out, "../../mine-*/0/child"))]:
        sys.exit()
sys.exit("it writes on and on")
"""
ENDLESS_GIN = """
Experiment.num_sessions = 1
mine/Method.command = "python train.py {out} {train.rate}"
mine/Method.curves = "{out}/curves.jsonl"
mine/Method.until_step = 100
mine/Method.search = @grid()
mine/Method.wave = 2
mine/Method.median_stopping = 0.5
mine/Method.report_sessions = 0
mine/train.rate = @rate/Discrete()
rate/Discrete.values = [0.1, 1.0]
"""


def test_a_stopped_script_is_ended_with_what_it_started_and_what_it_writes_then_counts_for_nothing(
    tmp_path: Path,
) -> None:
    script(tmp_path, ENDLESS, ENDLESS_GIN)
    assert SHOWN["trials-2-trainings-and-2"] in run(tmp_path, "--check")
    output = run(tmp_path)
    assert re.search(SHOWN["mine-0-of-2-trials"], output), output
    stopped, done = (row for row in trials(tmp_path / "store") if row.method == "mine")
    assert (stopped.state, done.state) == ("stopped", "done") and stopped.fitness is None
    assert "after 50%, below" in stopped.note and SHOWN["mine-trial-1-of-2"] in output
    assert no_process_has(str(tmp_path / "store"))
    (child,) = (tmp_path / "store").glob("commands/*/0/child")
    size = child.stat().st_size
    time.sleep(0.1)
    assert child.stat().st_size == size > 0
    assert {one.trial for one in members(tmp_path / "store")} == {1}
    parts = [one for one in results(tmp_path / "store", "--curves") if " to 50%" in one["label"]]
    assert {tuple(one["eval_steps"]) for one in parts} == {(0, 10, 20, 30, 40, 50)}
    assert SHOWN["of-1-evaluation-nothing-new"] in run(tmp_path)
    # The values of the best, written out, are the same script: nothing runs.
    written = ENDLESS_GIN.replace("@rate/Discrete()", "1.0").replace("mine/Method.median_stopping = 0.5\n", "")
    kept = [
        line
        for line in written.splitlines()
        if not any(word in line for word in ("search", "wave", "Discrete", "report"))
    ]
    (tmp_path / "x.gin").write_text("\n".join(kept))
    assert "starts: " not in run(tmp_path) and len(members(tmp_path / "store")) == 1


BOTH_CASES = """
import json, sys
with open(sys.argv[1] + "/c.jsonl", "w") as file:
    for case in "ab":
        for step in (0, 5, 10):
            row = {"step": step, "case": case, "metric": "train_loss", "value": 1 / (step + 1)}
            file.write(json.dumps(row) + "\\n")
"""


def test_scripts_stand_beside_what_lobench_trains_and_are_read_as_they_grow(tmp_path: Path) -> None:
    make_suite(tmp_path)
    gin = 'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 2\nsgd/Method.optimizer = @sgd()\n'
    gin += 'mine/Method.command = "python train.py {out}"\nmine/Method.curves = "{out}/c.jsonl"\n'
    script(tmp_path, BOTH_CASES, gin)
    done = run(tmp_path, "--executor", "inline")
    assert "(imported)" not in done and "mine" in done and "sgd" in done
    for options in ([], ["--format", "json"], ["--format", "csv"]):
        listed = lobench("results", "--store", tmp_path / "store", *options).stdout
        assert "mine" in listed and "(imported)" not in listed
    assert "4 of 2" not in done
    found = {(one.method, one.session, one.evaluation.case_key.split(":")[0]) for one in members(tmp_path / "store")}
    assert len([one for one in found if one[0] == "mine"]) == 4
    assert {one[2] for one in found if one[0] == "mine"} == {one[2] for one in found if one[0] == "sgd"}


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        ("--lr {lr}", "--lr {rate}", SHOWN["unknown-placeholder"]),
        ("{out}/curves.jsonl", "curves.jsonl", SHOWN["its-curves-do-not-say"]),
        ("--out {out}", "--out x", SHOWN["its-command-does-not-say"]),
        ("mine/Method.until_step = 40\n", "", SHOWN["nothing-defines-how-long-it"]),
        ("--lr {lr} ", "", SHOWN["nothing-reads"]),
        (
            "mine/Method.wave",
            "mine/Method.checkpoints = 'all'\nmine/Method.wave",
            SHOWN["nothing-reads-mine-method-checkpoints"],
        ),
    ],
)
def test_what_is_wrong_with_a_script_is_said_before_anything_runs(
    tmp_path: Path, old: str, new: str, output: str
) -> None:
    assert old in SEARCH
    script(tmp_path, NUMPY, SEARCH.replace(old, new))
    words = run(tmp_path, code=2).strip().splitlines()
    assert output in words[-1] and len(words) == 1, words


EDITED_BY_A_SESSION = """
import json, pathlib, sys
import level
with open(pathlib.Path(sys.argv[1]) / "curves.jsonl", "w") as file:
    for step in range(3):
        file.write(json.dumps({"step": step, "val/loss": level.VALUE / (1 + step)}) + "\\n")
"""
THREE_SESSIONS = """
Experiment.num_sessions = 3
mine/Method.command = "python train.py {out}"
mine/Method.curves = "{out}/curves.jsonl"
mine/Method.until_step = 2
"""


def test_sessions_that_start_after_an_edit_are_of_the_edited_code_and_none_else_is(tmp_path: Path) -> None:
    edit = 'if (next := pathlib.Path("level.next")).exists(): next.replace("level.py")\n'
    script(tmp_path, EDITED_BY_A_SESSION + edit, THREE_SESSIONS)
    (tmp_path / "level.py").write_text("VALUE = 3.0\n")
    (tmp_path / "level.next").write_text("VALUE = 30.0\n")
    text = run(tmp_path, workers=1)
    assert text.count(SHOWN["level-py-has-changed-restarting"]) == 1
    assert SHOWN["level-py-was-edited-while"] in text
    assert SHOWN["mine-1-result-was-made-by"] in text
    assert finals(tmp_path / "store") == {("mine", session): 10.0 for session in range(3)}
    assert re.search(r"^mine: score 1\.000 .*\n(.*\n)*the score 1 is the mean of mine,", text, re.MULTILINE), text
    ends = re.findall(r"^mine: 3 of 3 evaluations.*", text, re.MULTILINE)
    assert len(ends) == 1 and "running" not in ends[0], text
    assert SHOWN["nothing-new"] in run(tmp_path)
    (tmp_path / "level.py").write_text("VALUE = 3.0\n")
    assert "2 passed" in run(tmp_path)  # that of the first session, which ran before the edit, is there
    assert finals(tmp_path / "store") == {("mine", session): 1.0 for session in range(3)}


def test_run_of_a_command_that_writes_its_own_code_ends(tmp_path: Path) -> None:
    edit = 'pathlib.Path("level.py").write_text(f"VALUE = {level.VALUE + 3}\\n")\n'
    script(tmp_path, EDITED_BY_A_SESSION + edit, THREE_SESSIONS)
    (tmp_path / "level.py").write_text("VALUE = 3.0\n")
    text = run(tmp_path, workers=1)
    assert text.count(SHOWN["level-py-has-changed-restarting"]) == 2
    assert len(finals(tmp_path / "store")) == 3


def test_check_reports_data_files_that_changed_and_leaves_them_to_the_run(tmp_path: Path) -> None:
    text = 'open("rates.json").read()\n'
    script(tmp_path, EDITED_BY_A_SESSION + text, THREE_SESSIONS.replace("num_sessions = 3", "num_sessions = 1"))
    (tmp_path / "level.py").write_text("VALUE = 3.0\n")
    (tmp_path / "rates.json").write_text("1")
    assert SHOWN["data-file"] not in run(tmp_path)
    (tmp_path / "rates.json").write_text("2")
    assert SHOWN["data-file-changed"] in run(tmp_path, "--check")
    assert SHOWN["data-file-changed"] in run(tmp_path, "--check", "--offline")
    assert SHOWN["data-file-changed"] in run(tmp_path)
    assert SHOWN["data-file"] not in run(tmp_path, "--check")
