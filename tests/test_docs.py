"""What the documents say besides their blocks, which tests/test_docs_pages.py runs."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from commands import lobench
from pages import blocks_of
from reference import ROOT
from shown import texts_of
from tiny import make_suite

SHOWN = texts_of("docs")


def test_every_command_has_help_with_examples_or_options() -> None:
    names = (
        "run",
        "tune",
        "watch",
        "import",
        "results",
        "compare",
        "ablate",
        "alarm",
        "best",
        "bisect",
        "falsify",
        "keep",
        "debug",
        "merge",
        "score",
        "report",
        "view",
        "baseline",
        "list",
        "plugins",
        "new",
        "schema",
        "doctor",
    )
    for command in names:
        assert "Usage:" in lobench(command, "--help").stdout
    assert "Examples:" in lobench("--help").stdout


def test_the_command_line_imports_neither_jax_nor_pandas() -> None:
    command = [sys.executable, "-X", "importtime", "-c", "import lobench.cli.group"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in loaded.splitlines() if "|" in line}
    assert "click" in modules
    assert not modules & {"jax", "pandas", "numpy", "pytest", "gin"}


def test_the_files_that_the_page_for_contributors_names_are_there() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    named = re.findall(r"`((?:lobench|tests|plugins|docs|ci|benchmarks)/[^`*]*)`", text)
    assert len(named) > 20
    # NAME is what is to be added; its folder is there. The page of the rooms is linked, and checked with every link.
    missing = [name for name in named if not (ROOT / re.sub(r"[^/]*NAME.*", "", name)).exists()]
    assert not missing


def test_files_that_pages_and_docstrings_name_are_there() -> None:
    """A file that moves is looked for where it was: a page names a folder's file, a docstring the file beside it."""
    text = {path: path.read_text() for path in ROOT.glob("docs/*.md")}
    text[ROOT / "README.md"] = (ROOT / "README.md").read_text()
    for path in (ROOT / "lobench").rglob("*.py"):
        text[path] = ast.get_docstring(ast.parse(path.read_text())) or ""
    folders = ("lobench", "tests", "plugins", "docs", "benchmarks", "ci", "examples")
    known = {part for folder in folders for path in (ROOT / folder).rglob("*.py") for part in _ends(path)}
    known |= {f"{name}.py" for name in sys.stdlib_module_names}
    known |= {"submission.py", "algoperf/spec.py"}  # of AlgoPerf: the file that an export writes, and its interface
    missing = []
    for path, output in text.items():
        named = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", output)
        missing += [(path.name, name) for name in named if name not in known and not name.startswith("my")]
    assert not missing


def _ends(path: Path) -> Iterator[str]:
    """Yields all that a path may be called for short: `chief/loop.py`."""
    names = path.relative_to(ROOT).parts
    yield from ("/".join(names[start:]) for start in range(len(names)))


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
