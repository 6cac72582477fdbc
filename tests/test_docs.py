"""What the documents say besides their blocks, which tests/test_docs_pages.py runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from pages import blocks_of
from reference import ROOT
from shown import texts_of
from tiny import make_suite

from lobench.cli.exit_codes import ExitCode

SHOWN = texts_of("docs")


def test_the_command_line_imports_neither_jax_nor_pandas() -> None:
    command = [sys.executable, "-X", "importtime", "-c", "import lobench.cli.group"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in loaded.splitlines() if "|" in line}
    assert "click" in modules
    assert not modules & {"jax", "pandas", "numpy", "pytest", "gin"}


def test_exit_codes_of_the_page_are_those_of_the_commands() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "automation.md").read_text(), re.MULTILINE)
    assert rows == [(str(int(code)), code.meaning) for code in ExitCode]


def test_files_that_pages_name_are_there() -> None:
    """A page may name the end of a path alone: `chief/loop.py`."""
    known = {"submission.py", "algoperf/spec.py"}  # of AlgoPerf: the file that an export writes, and its interface
    for folder in ("lobench", "tests", "plugins", "docs", "benchmarks", "ci", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            names = path.relative_to(ROOT).parts
            known |= {"/".join(names[start:]) for start in range(len(names))}
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text())
        missing = {name for name in named if name not in known and not name.startswith("my")}
        assert missing <= {f"{name}.py" for name in sys.stdlib_module_names}, page.name


def test_the_job_of_the_gates_page_knows_its_options_and_its_baselines_are_fresh(tmp_path: Path) -> None:
    (job,) = [block.text for block in blocks_of("gates.md") if block.language == "yaml"]
    assert SHOWN["lobench-baseline-suites-quick-check"] in job
    check = [sys.executable, "-m", "lobench.cli", "baseline", "suites/quick", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (command,) = re.findall(r"- run: >\n\s+pytest (.*?)\n +- uses", job, re.DOTALL)
    for name in ("candidate", "released"):
        (tmp_path / f"{name}.npz").touch()
    words = (
        command.replace("checkpoints/", f"{tmp_path}/")
        .replace("-n auto", "")
        .replace("gate.xml", f"{tmp_path}/gate.xml")
        .split()
    )
    collect = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *words]
    done = subprocess.run(collect, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0 and "[relu32]" in done.stdout, done.stdout + done.stderr


def test_the_search_of_the_documents_is_one_file_and_one_entry_point(tmp_path: Path) -> None:
    """It is listed, called with what gin would bind of it, and keeps the contract."""
    for block in blocks_of("searches.md"):
        if block.title.endswith(".py"):
            (tmp_path / block.title).write_text(block.text)
    info = tmp_path / "halton-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halton\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lobench]\nhalton = halton\n")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        return done.stdout + done.stderr

    listed = run("-m", "lobench.cli", "list", "searches")
    assert re.search(SHOWN["halton-a-quasi-random-sequence"], listed), listed
    tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert re.search(r"[1-9]\d+ passed", tested) and "failed" not in tested, tested
    found = "from lobench.plugins import load_plugins as load; found = load().find"
    found += "('lobench_search_strategies', 'halton', kind='search').make"
    assert "Halton(skip=20)" in run("-c", f"{found}; print(found(where='e.gin', skip=20))")
    expected = "e.gin: 'halton' takes no 'skp'; expected one of skip; did you mean 'skip'?"
    assert expected in run("-c", f"{found}; found(where='e.gin', skp=20)")

    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(
        "Experiment.suites = ['tiny']\nfound/Method.optimizer = @momentum()\nfound/Method.search = @halton()\n"
        "found/Method.num_trials = 3\nhalton.skip = 20\nfound/momentum.learning_rate = @Real()\n"
        "Real.low = 1e-3\nReal.high = 0.5\nReal.scale = 'log'\n"
    )
    done = run("-m", "lobench.cli", "run", "x.gin", "--store", "store", "--executor", "inline")
    assert "3 of 3 trials" in done, done
