"""What the documents show runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from commands import lobench
from reference import ROOT
from tiny import make_suite


def test_five_minutes_to_your_own_suite(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    files = re.findall(r"`mysuite/(\S+)`:\n\n```\w*\n(.*?)```", text, re.DOTALL)
    assert [name for name, _ in files] == ["mytask.py", "valley.gin", "test_valley.py"]
    for name, content in files:
        (tmp_path / "mysuite").mkdir(exist_ok=True)
        (tmp_path / "mysuite" / name).write_text(content)
    command = re.search(r"```bash\npytest (mysuite .*?)\n```", text)
    assert command is not None
    done = subprocess.run(
        f"{sys.executable} -m pytest -p no:cacheprovider {command[1]}",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_notebook_example(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import lobench\n.*?)```", (ROOT / "docs" / "suites.md").read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code + "print(result)"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("Result(seeds="), done.stderr


def test_every_command_has_help_with_examples_or_options() -> None:
    names = (
        "run",
        "tune",
        "watch",
        "import",
        "results",
        "compare",
        "best",
        "bisect",
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
    command = [sys.executable, "-X", "importtime", "-c", "import lobench.cli"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in loaded.splitlines() if "|" in line}
    assert "click" in modules
    assert not modules & {"jax", "pandas", "numpy", "pytest", "gin"}


def test_the_files_that_the_page_for_contributors_names_are_there() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text()
    named = re.findall(r"`((?:lobench|tests|plugins|docs|ci|benchmarks)/[^`*]*)`", text)
    assert len(named) > 20
    # NAME is what is to be added; its folder is there. The page of the rooms is linked, and checked with every link.
    missing = [name for name in named if not (ROOT / name if "NAME" not in name else (ROOT / name).parent).exists()]
    assert not missing


def test_the_job_of_the_gates_page_knows_its_options_and_its_baselines_are_fresh(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "gates.md").read_text()
    (job,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert "lobench baseline suites/quick --check" in job
    check = [sys.executable, "-m", "lobench.cli", "baseline", "suites/quick", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (command,) = re.findall(r"- run: >\n\s+pytest (.*?)\n    -", job, re.DOTALL)
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


def test_the_search_of_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "experiments.md").read_text()
    _, gin = re.findall(r"```gin\n(.*?)```", text, re.DOTALL)
    (tmp_path / "search.gin").write_text(gin)
    words = [sys.executable, "-m", "lobench.cli", "run", "search.gin", "--workers", "1"]
    check = subprocess.run([*words, "--check"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Adam, tuned: 5 trials, 6 evaluations (1 of them of the best on fresh seeds)" in check.stdout, check.stderr
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Adam, tuned: trial \d of 5 is the best, fitness \S+: adam.learning_rate = ", done.stdout)
    assert re.search(r"Adam, tuned +\S+ \[\S+ \S+ \S+ \(s\)", done.stdout), done.stdout


def test_the_case_and_the_environment_of_the_page_on_control_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "control.md").read_text()
    (gin,) = re.findall(r"```gin\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "walk.py").write_text(code + "\n\nimport gin\n\ngin.register(Walk, module='walk')\n")
    (tmp_path / "control.gin").write_text(
        gin.replace("@Catch()", "@Walk()").replace("catch/Catch.rows = 5\n", "import walk\n")
    )
    (words,) = re.findall(r"    pytest (control.gin .*)\n", text)
    command = f"{sys.executable} -m pytest -p no:cacheprovider {words} --lobench-store store"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    (found,) = json.loads(lobench("results", "--store", tmp_path / "store", "--format", "json").stdout)
    assert found["metrics"]["train/return"]["final"] > 0.8 and found["metrics"]["train/success"]["final"] > 0.8


def test_the_experiment_of_the_page_is_one(tmp_path: Path) -> None:
    from lobench.engine.config.experiment_files import read_experiment

    text = (ROOT / "docs" / "experiments.md").read_text()
    gin, _ = re.findall(r"```gin\n(.*?)```", text, re.DOTALL)
    (tmp_path / "experiment.gin").write_text(gin)
    (tmp_path / "suites").symlink_to(ROOT / "suites")
    (tmp_path / "theta").mkdir()
    (tmp_path / "theta" / "celo.msgpack").touch()
    experiment = read_experiment(tmp_path / "experiment.gin").experiment
    assert [method.kind for method in experiment.methods] == ["optimizer", "checkpoint", "command"]
    shipped = read_experiment(ROOT / "examples" / "experiment" / "experiment.gin").experiment
    assert [method.title for method in shipped.methods] == ["Adam", "SGD with momentum", "Celo", "ours"]


def test_the_search_of_the_documents_is_one_file_and_one_entry_point(tmp_path: Path) -> None:
    """It is listed, called with what gin would bind of it, and keeps the contract."""
    search, contract = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "searches.md").read_text(), re.DOTALL)
    (tmp_path / "halton.py").write_text(search)
    (tmp_path / "test_halton.py").write_text(contract)
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
    assert re.search(r"halton +a quasi-random sequence +\[halton\]", listed), listed
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


def test_the_page_of_schedules_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "schedules.md").read_text()
    for content in re.findall(r"```gin\n(.*?)```", text, re.DOTALL):
        (tmp_path / content.split()[1]).write_text(content)
    (own,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "own.py").write_text(own)
    (tmp_path / "own.gin").write_text("import own\n" + (tmp_path / "rounds.gin").read_text())
    command = [sys.executable, "-m", "lobench.cli", "run", "rates.gin", "--executor", "inline"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(name in done.stdout for name in ("fixed", "cosine", "reduced")), done.stdout
    code = (
        "import lobench\n"
        "result = lobench.evaluate('rounds.gin', optimizer='sgd(); sgd.learning_rate = 0.01')\n"
        "print(result.metrics['train/loss'].shape)\n"
        "rate = 'sgd(); sgd.learning_rate = @square_root(); square_root.peak = 0.01'\n"
        "print(lobench.evaluate('own.gin', optimizer=rate).diverged.any())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["(4, 2)", "False"], done.stderr
    names = re.findall(r"^\| `(\w+)\(", text, re.MULTILINE)
    command = [sys.executable, "-m", "lobench.cli", "list", "schedules"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert sorted(names) == [line.split()[0] for line in listed.splitlines()]


def test_the_stream_of_the_page_runs_and_its_matrix_is_drawn(tmp_path: Path) -> None:
    from lobench.analysis.findings import findings_of
    from lobench.report.figures import write_figures
    from lobench.report.page import render_page

    text = (ROOT / "docs" / "continual.md").read_text()
    (gin,) = re.findall(r"```gin\n(.*?)```", text, re.DOTALL)
    (tmp_path / "stream.gin").write_text(gin)
    (command,) = re.findall(r"    pytest (stream.gin .*)", text)
    command = f"{sys.executable} -m pytest -q -p no:cacheprovider {command} --lobench-store store"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    findings = findings_of(tmp_path / "store")
    page = render_page(findings, figure="matrix")
    assert page.count('class="square"') == 25 and "after task" in page
    (figure,) = write_figures(findings, tmp_path, "png", "matrix")
    assert figure.name == "matrix.png" and figure.stat().st_size > 10_000
