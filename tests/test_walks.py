"""The walks of the page on the architecture: as long as they say, and as the code takes them."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from reference import ROOT
from tiny import make_run, make_suite

TEXT = (ROOT / "docs" / "architecture.md").read_text().partition("## Three walks")[2].partition("\n## ")[0]
WALKS = {name: text for name, _, text in (part.partition("\n") for part in TEXT.split("\n### ")[1:])}
STEP = re.compile(r"^\d+\. (?:(\w[^`\n]*): )?`([a-z_/]+\.py)`", re.MULTILINE)

# Runs lobench, and writes into the file `calls` which of its files called which.
TRACER = """
import atexit, sys, threading
calls, root = set(), sys.argv[1]
def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(root) and frame.f_code.co_name != "<module>":
        back = frame.f_back
        while back is not None and not back.f_code.co_filename.startswith(root):
            back = back.f_back
        if back is not None and back.f_code.co_name != "<module>":
            calls.add((back.f_code.co_filename[len(root):], frame.f_code.co_filename[len(root):]))
def write():
    sys.setprofile(None)
    with open("calls", "a") as file:
        file.writelines(f"{one} {other}\\n" for one, other in calls)
atexit.register(write)
sys.setprofile(note), threading.setprofile(note)
sys.argv = ["lobench", *sys.argv[2:]]
from lobench.cli import main
main()
"""

EXPERIMENT = "Experiment.suites = ['tiny']\nm/Method.optimizer = @momentum()\nm/momentum.learning_rate = "
SEARCH = "@Real()\nReal.low = 0.01\nReal.high = 0.5\nm/Method.search = @random()\nm/Method.num_trials = 2\n"
COMMANDS = {
    "An experiment's file": ["run e.gin --executor inline --store s"],
    "A search's trial": ["run e.gin --executor inline --store s"],
    "A checkpoint's result": [
        "watch run --suite tiny --once --executor inline --store s",
        "report --store s --output page.html",
    ],
}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_as_many_rooms_and_returns_as_it_says(name: str) -> None:
    rooms = [file.partition("/")[0] for _, file in STEP.findall(WALKS[name])]
    returns = sum(room != before and room in rooms[:at] for at, (before, room) in enumerate(pairwise(rooms), 1))
    output = re.search(r"(\d+) rooms, (\d+) returns", WALKS[name])
    assert output is not None and tuple(map(int, output.groups())) == (len(set(rooms)), returns)


@pytest.mark.long
@pytest.mark.parametrize("name", WALKS)
def test_each_step_of_a_walk_calls_the_next_or_returns_to_it(name: str, tmp_path: Path) -> None:
    make_suite(tmp_path)
    make_run(tmp_path, -1.0)
    (tmp_path / "e.gin").write_text(EXPERIMENT + (SEARCH if "search" in name else "0.1\n"))
    (tmp_path / "trace.py").write_text(TRACER)
    for command in COMMANDS[name]:
        words = [sys.executable, "trace.py", f"{ROOT / 'lobench'}/", *command.split()]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    calls = {tuple(line.split()) for line in (tmp_path / "calls").read_text().splitlines()}
    missing = [
        (before, file)
        for (_, before), (by, file) in pairwise(STEP.findall(WALKS[name]))
        if not by and not calls & {(before, file), (file, before)}
    ]
    assert not missing
