"""The scripts of CI: what `ci/test` asks of pytest, and what `.ci/run` makes of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from reference import ROOT
from shown import texts_of

import lobench.inner.optimizers

SHOWN = texts_of("lobench")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose set-up is done and whose python says what it is asked."""
    (tmp_path / "ci").mkdir()
    shutil.copy(ROOT / "ci" / "test", tmp_path / "ci" / "test")
    (tmp_path / "ci" / "setup.sh").write_text(f"set -euo pipefail\nexport PATH={tmp_path}/bin:$PATH\n")
    (tmp_path / "bin").mkdir()
    for name, script in {
        "nproc": "echo $CORES",
        "python": '[ "$2" = compileall ] || echo "$PYTEST_XDIST_AUTO_NUM_WORKERS: $(printf "[%s]" "$@")"',
    }.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def ci_test(checkout: Path, *arguments: str, cores: int = 2) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        ["bash", checkout / "ci" / "test", *arguments],
        env={**environment, "CORES": str(cores)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("cores", "processes"), [(1, 2), (2, 3), (15, 16), (200, 16)])
def test_it_runs_one_process_more_than_there_are_cores(checkout: Path, cores: int, processes: int) -> None:
    pytest_words = f"{processes}: [-m][pytest][-n][auto][--dist][loadfile]"
    assert ci_test(checkout, "--all", cores=cores) == pytest_words
    assert ci_test(checkout, cores=cores) == SHOWN["m-not-long"].format(pytest_words=pytest_words)


def test_arguments_of_its_user_come_last_and_win(checkout: Path) -> None:
    output = ci_test(checkout, "-n", "0", "tests/core", "-k", "one or other")
    assert output == SHOWN["m-pytest-n-auto-dist"]


def test_what_takes_long_is_there_and_the_fast_run_says_how_much_is_left() -> None:
    named = [line for line in (ROOT / "tests" / "long.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(named) == len(set(named)) > 50
    optimizers = " ".join(lobench.inner.optimizers.__all__)
    for line in named:
        path, name, *_ = line.partition("[")[0].split("::")  # of a class it may be its base that has the test
        made_of = rf"\b{name.removeprefix('Test')}\b"  # contracts of all that is shipped are made of names
        text = (ROOT / path).read_text() + optimizers * path.endswith("/test_optimizers.py")
        assert re.search(rf"^(def|class) {name}\b|{made_of}", text, re.M), line
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "tests/test_headlines.py", "--collect-only"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert SHOWN["tests-and-classes-of-tests"].format(count=len(named)) in done.stdout


@pytest.fixture
def integrated(tmp_path: Path) -> Path:
    """A repository with `.ci/run`, whose tests and linters end as a variable of the environment says."""
    for name in ("ci", ".ci", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    scripts = {"ci/test": '[ "$2" = --version ] || { echo "=== 3 passed in 1s ==="; exit $TESTED; }'}
    scripts |= {f".venv/bin/{name}": "" for name in ("chromium", "ruff", "lint-imports")}
    scripts[".venv/bin/mypy"] = "echo types; exit $TYPED"
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    subprocess.run("git init -q . && git add -A", shell=True, cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(("tested", "typed"), [(0, 0), (1, 0), (0, 1)])
def test_it_fails_where_a_test_or_a_linter_does_and_says_both(integrated: Path, tested: int, typed: int) -> None:
    path = f"{integrated}/.venv/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", integrated / ".ci" / "run"],
        env={**os.environ, "PATH": path, "TESTED": str(tested), "TYPED": str(typed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == bool(tested or typed), done.stdout + done.stderr
    assert "types" in done.stdout and done.stdout.splitlines()[-1] == "=== 3 passed in 1s ==="


def test_the_workflow_calls_ci_run_alone_on_each_python_and_both_ends_of_the_dependencies() -> None:
    """What a host runs is what anybody runs; the file has no step of its own."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    matrix = {(one["python"], one["dependencies"]) for one in job["strategy"]["matrix"]["include"]}
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert {python for python, _ in matrix} == {
        text.rpartition(" ")[2] for text in classifiers if re.search(r":: 3\.\d+$", text)
    }
    assert {kind for _, kind in matrix} == set(
        re.findall(r"^(\w+)\) constraints", (ROOT / "ci" / "setup.sh").read_text(), re.M)
    )


def test_the_workflow_of_a_release_builds_as_anybody_does_and_uploads_without_a_password() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    tag, build, *_ = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert '"$GITHUB_REF_NAME" = "v$(' in tag and build == SHOWN["ci-release-archives"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and "secrets." not in text


def test_the_lowest_versions_are_those_of_lobench_and_of_each_plugin(tmp_path: Path) -> None:
    """Extras for contributors have none; of two packages' versions the higher one counts."""
    command = [sys.executable, ROOT / "ci" / "lowest.py"]
    lowest = dict(line.split("==") for line in subprocess.check_output(command, text=True).split())
    for file in (ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")):
        text = file.read_text().partition("\ndependencies = [")[2].partition("\n]")[0]
        for name, version in re.findall(r'"([\w-]+)(?:\[.*?\])?>=([\d.]+)', text):
            assert name == "lobench" or lowest[name.lower().replace("_", "-")] >= version, name
    assert {"jax", "starlette", "torch", "ray"} < {*lowest} and not {"lobench", "mypy", "flax"} & {*lowest}

    shutil.copytree(ROOT / "ci", tmp_path / "ci")
    for folder, needs in {
        ".": '"a>=1.10", "b[x]>=2,<3"',
        "plugins/p": '"lobench>=1", "a>=1.9", "setuptools<82"',
    }.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        extras = '[project.optional-dependencies]\nview = ["V_w>=4"]\ndev = ["d>=1"]\n'
        (tmp_path / folder / "pyproject.toml").write_text(f"[project]\ndependencies = [{needs}]\n{extras}")
    printed = subprocess.check_output([sys.executable, tmp_path / "ci" / "lowest.py"], text=True)
    assert printed.split() == ["a==1.10", "b==2", "v-w==4"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", SHOWN["no-folder-for-the-archives"]),
        ("out newest", SHOWN["newest-is-no-environment"]),
        ("ci", SHOWN["ci-is-not-empty"]),
        ("out none", SHOWN["commit-is-built-and-these"]),
    ],
)
def test_a_release_is_made_of_a_commit_into_an_empty_folder(tmp_path: Path, words: str, problem: str) -> None:
    shutil.copytree(ROOT / "ci", tmp_path / "ci", ignore=shutil.ignore_patterns("__pycache__"))
    commit = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm a"
    subprocess.run(commit, shell=True, cwd=tmp_path, check=True)
    with (tmp_path / "ci" / "release").open("a") as file:
        file.write("# changed\n")
    done = subprocess.run(f"ci/release {words}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (
        (done.returncode, done.stdout) == (2, "")
        and problem in done.stderr
        and SHOWN["usage-ci-release-folder"] in done.stderr
    )
    assert len(done.stderr.splitlines()) == 1


def test_hooks_before_a_commit_are_the_linters_of_ci() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["entry"].partition(" ")[0].removeprefix(".venv/bin/") for hook in repo["hooks"]}
    lint = (ROOT / ".ci" / "run").read_text().partition("lint() {")[2].partition("\n}")[0]
    assert repo["repo"] == "local" and {line.split()[0] for line in lint.strip().splitlines()} <= hooks


def test_a_template_of_a_defect_asks_for_the_doctor_and_the_container_is_the_one_of_the_docs() -> None:
    defect = (ROOT / ".github" / "ISSUE_TEMPLATE" / "defect.md").read_text()
    assert SHOWN["lobench-doctor"] in defect
    for template in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"):
        assert {"name", "about"} <= {*yaml.safe_load(template.read_text().split("---")[1])}
    built = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["build"]
    assert (ROOT / ".devcontainer" / built["dockerfile"]).resolve() == ROOT / "Containerfile"
