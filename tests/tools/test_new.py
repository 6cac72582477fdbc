"""`lobench new`: what it writes works as it stands, whatever it is called; what it refuses it leaves alone."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from reader import environment as variables
from shown import texts_of
from tiny import make_run, make_suite

from lobench.tools.new.new import KINDS

SHOWN = texts_of("new")

# A name in two words, one that has the template's in it, one that is short, one with a digit, one in capitals.
NAMES = {"suite": "my_skeleton_2", "task": "X", "optimizer": "MyLOpt", "sink": "_".join("abc"), "plugin": "odd_one"}


def in_shell(command: str, folder: Path, **environment: str) -> str:
    """Runs a command as a person would in a folder of their own, and returns what it said."""
    words = {**variables(folder), **environment}
    done = subprocess.run(command, shell=True, cwd=folder, env=words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("plugin", "skill")])
def test_the_next_command_that_it_says_passes_its_tests(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "a home with blanks"
    home.mkdir()
    done = lobench("new", kind, NAMES[kind], "--format", "json", cwd=home)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found["files"]) == sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())
    assert not any("keleton" in (home / path).read_text() for path in found["files"] if kind != "suite")
    output = in_shell(found["next_command"] + " -q -p no:cacheprovider", home)
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) >= {"suite": 2, "task": 8, "optimizer": 8, "sink": 8}[kind]


def test_a_plugin_is_installed_found_and_keeps_its_contract(tmp_path: Path) -> None:
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("the wheel needs setuptools >= 77")
    assert lobench("new", "plugin", NAMES["plugin"], cwd=tmp_path).returncode == 0
    site = tmp_path / "site"
    install = f"{shlex.quote(sys.executable)} -m pip install -q --no-deps --no-build-isolation --no-index"
    in_shell(f"{install} --target site ./lobench-odd-one", tmp_path)
    assert (site / "lobench_odd_one" / "plugin.py").is_file()
    listed = in_shell("lobench plugins", tmp_path, PYTHONPATH=str(site))
    assert SHOWN["odd-one-lobench-metrics"] in f"\n{listed}"
    tested = in_shell("pytest -q -p no:cacheprovider lobench-odd-one", tmp_path, PYTHONPATH=str(site))
    assert "10 passed" in tested, tested


def test_a_task_and_a_sink_go_into_a_suite_that_is_there(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5)
    assert lobench("new", "sink", "final", "--into", suite).returncode == 0
    words = ["watch", run, "--suite", suite, "--store", tmp_path / "store", "--once", "--executor", "inline"]
    watched = lobench(*words, "--sink", "final", cwd=tmp_path)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    with sqlite3.connect(tmp_path / "store" / "final.sqlite") as db:
        columns = "case_name, outcome, CAST(loss AS REAL) < 10"
        rows = db.execute(f"SELECT DISTINCT {columns} FROM losses ORDER BY case_name").fetchall()
    assert rows == [("a", "passed", 1), ("b", "passed", 1)]


@pytest.mark.parametrize(
    "name",
    [
        "class",
        "None",
        "my-task",
        "2nd",
        "",
        "../x",
        "a/b",
        "a.b",
        "a b",
        "a\nb",
        "naïve",
        "_x",
        "-x",
        "x" * 61,
        "test_x",
    ]
    + ["conftest", "$(touch x)", "\x1b[31mred", "'; rm -rf /", "\u202eevil", "lobench"],
)
def test_a_name_that_cannot_be_one_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    done = lobench("new", "suite", "--", name, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and list(tmp_path.iterdir()) == []
    (line,) = done.stderr.splitlines()
    assert line.startswith(SHOWN["lobench-this-cannot-be-the"]) and line.isprintable() and line.isascii()


@pytest.mark.parametrize(
    ("kind", "name", "output"),
    [
        ("task", "json", SHOWN["module-of-this-name-is"]),
        ("sink", "numpy", SHOWN["module-of-this-name-is-installed"]),
        ("sink", "report", SHOWN["plugin-has-this-name-already"]),
        ("suite", "quick", SHOWN["lobench-has-a-suite-of"]),
        ("task", "quadratic", SHOWN["gin-has-this-name-already"]),
        ("task", "Case", SHOWN["gin-has-this-name-already-got"]),
        ("optimizer", "celo", SHOWN["gin-has-this-name-already-got-celo"]),
        ("task", "datasets", SHOWN["python-or-the-skeleton-has"]),
        ("plugin", "list", SHOWN["python-or-the-skeleton-has-this"]),
        ("sink", "value_error", SHOWN["python-or-the-skeleton-has-this-name"]),
        ("plugin", "flax", SHOWN["module-of-this-name-is-installed-got"]),
    ],
)
def test_a_name_that_would_hide_something_is_refused(kind: str, name: str, output: str, tmp_path: Path) -> None:
    done = lobench("new", kind, name, cwd=tmp_path)
    assert done.returncode == 2 and output in done.stderr and list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_and_nothing_stays_of_what_fails(tmp_path: Path) -> None:
    for place in ("folder", "file", "link"):
        {"folder": Path.mkdir, "file": Path.touch, "link": lambda path: path.symlink_to("nowhere")}[place](
            tmp_path / place
        )
        done = lobench("new", "suite", place, cwd=tmp_path)
        assert done.returncode == 2 and done.stderr == (SHOWN["lobench-this-exists-already-take"].format(place=place))
    suite = make_suite(tmp_path)
    (suite / "conftest.py").write_text("mine = 1\n")
    before = sorted(suite.iterdir())
    done = lobench("new", "sink", "final", "--into", suite)
    assert done.returncode == 2 and SHOWN["conftest-py-this-exists-already"] in done.stderr
    assert sorted(suite.iterdir()) == before and (suite / "conftest.py").read_text() == "mine = 1\n"
    done = lobench("new", "task", "mine", "--into", tmp_path / "nowhere")
    assert done.returncode == 2 and SHOWN["into-is-not-a-folder"] in done.stderr


def test_it_says_what_can_be_begun() -> None:
    done = lobench("new", "sinc", "x")
    assert done.returncode == 2 and SHOWN["did-you-mean-sink"] in done.stderr
    assert SHOWN["lobench-new-plugin-mine"] in lobench("new", "--help").stdout


def test_suite_of_commands_evaluates_its_example_with_the_next_command(tmp_path: Path) -> None:
    done = lobench("new", "suite", "evals", "--command", cwd=tmp_path)
    assert done.returncode == 0 and SHOWN["next-lobench-watch-evals-example"] in done.stdout
    done = lobench("watch", "evals/example", "--suite", "evals", "--once", cwd=tmp_path)
    assert done.returncode == 0 and "done: 2 passed" in done.stderr + done.stdout
    done = lobench("new", "task", "mine", "--command", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["command-applies-to-a-suite"] in done.stderr


def test_suite_of_tests_evaluates_its_example_with_the_next_command(tmp_path: Path) -> None:
    done = lobench("new", "suite", "evals", "--test", cwd=tmp_path)
    assert done.returncode == 0 and SHOWN["next-lobench-watch-evals-example"] in done.stdout
    done = lobench("watch", "evals/example", "--suite", "evals", "--once", cwd=tmp_path)
    assert done.returncode == 0 and "done: 2 passed" in done.stderr + done.stdout
    done = lobench("new", "suite", "other", "--test", "--command", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["command-and-test-exclude-each"] in done.stderr


def test_skill_is_written_into_a_folder_and_names_options_and_exit_codes_of_keep(tmp_path: Path) -> None:
    done = lobench("new", "skill", "agents/skills/lobench-keep", cwd=tmp_path)
    path = tmp_path / "agents/skills/lobench-keep/SKILL.md"
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert re.match(SHOWN["name-lobench-keep-description"], text)
    described = lobench("keep", "--help").stdout
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--seed", "--out"}
    assert {"--against", "--log", "--measure"} <= options
    assert all(option in described for option in options)
    assert set(re.findall(r"^\| (\d) \|", text, re.M)) == {"0", "1", "2", "3", "4"}
    again = lobench("new", "skill", "agents/skills/lobench-keep", cwd=tmp_path)
    assert again.returncode == 2 and SHOWN["this-exists-already"] in again.stderr and path.read_text() == text
    on_file = lobench("new", "skill", path, cwd=tmp_path)
    assert on_file.returncode == 2 and SHOWN["this-is-a-file-not-a-folder"] in on_file.stderr
