"""`lobench` alone says what a folder holds and the next command; and a shell completes its words."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from report_store import make_store
from shown import texts_of

from lobench.cli.first_look import first_look

SHOWN = texts_of("lobench")

QUICK = Path(__file__).parents[2] / "suites" / "quick"


def test_an_empty_folder_has_the_help(tmp_path: Path) -> None:
    done = lobench(cwd=tmp_path)
    assert done.returncode == 2 and done.stdout.startswith("Usage:")


def test_what_is_there_is_named_with_a_command(tmp_path: Path) -> None:
    (tmp_path / ".lobench").mkdir()
    make_store(tmp_path).rename(tmp_path / ".lobench" / "my store")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "theta_1.npz").touch()
    (tmp_path / "suite").symlink_to(QUICK)
    (tmp_path / "curves.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "compare.gin").write_text("Experiment.methods = []\n")
    done = lobench(cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        SHOWN["lobench-my-store-is-a"],
        SHOWN["lobench-view-lobench-my-store"],
        SHOWN["compare-gin-is-an-experiment"],
        SHOWN["lobench-run-compare-gin"],
        SHOWN["suite-is-a-suite"],
        SHOWN["pytest-suite-collect-only-q"],
        SHOWN["runs-is-a-run-s"],
        SHOWN["lobench-watch-runs-suite-suite"],
        SHOWN["curves-csv-may-be-curves"],
        SHOWN["lobench-import-curves-csv-store"],
        "",
        SHOWN["lobench-help-lists-all-commands"],
    ]
    results = done.stdout.splitlines()[1].partition("# or: lobench ")[2]
    assert lobench(*shlex.split(results), cwd=tmp_path).returncode == 0


def test_runs_suites_and_stores_two_folders_below_are_named(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "today"
    run.mkdir(parents=True)
    (run / "theta_1.npz").touch()
    for place in (run / "lobench_results", tmp_path / ".lobench" / "compare"):
        place.mkdir(parents=True)
        make_store(place).rename(place / "small")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "quick").symlink_to(QUICK)
    assert first_look(tmp_path)[::2] == [
        SHOWN["lobench-compare-small-is-a"],
        SHOWN["runs-today-lobench-results-small"],
        SHOWN["suites-quick-is-a-suite"],
        SHOWN["runs-today-is-a-run"],
    ]


def test_inside_a_store_a_suite_and_a_run(tmp_path: Path) -> None:
    assert first_look(make_store(tmp_path))[0] == SHOWN["is-a-store-of-results"]
    assert first_look(QUICK)[0] == SHOWN["is-a-suite"]
    (tmp_path / "run" / "checkpoint_10").mkdir(parents=True)
    assert first_look(tmp_path / "run")[0] == SHOWN["is-a-run-s-folder"]


def test_rubbish_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "up").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.gin")
    (tmp_path / "bytes.gin").write_bytes(b"\xff\x00" * 100)
    (tmp_path / "-n\n\x1b[31m.csv").touch()
    lines = first_look(tmp_path)
    assert all(line.isprintable() for line in lines) and "./-n" in lines[1]
    assert first_look(tmp_path / "nowhere") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    run = [sys.executable, "-c", "import sys; sys.argv[0] = 'lobench'; from lobench.cli import main; main()"]
    environment = dict(os.environ, _LOBENCH_COMPLETE=f"{shell}_source")
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "_LOBENCH_COMPLETE" in done.stdout, done.stderr
    environment = dict(os.environ, _LOBENCH_COMPLETE=f"{shell}_complete", COMP_WORDS="lobench rep", COMP_CWORD="1")
    if shell == "fish":
        environment |= {"COMP_WORDS": "lobench rep", "COMP_CWORD": "rep"}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "report" in done.stdout, done.stderr
