"""The scripts of CI: what `ci/test` asks of pytest, and what `.ci/run` makes of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reference import ROOT
from shown import texts_of

SHOWN = texts_of("lobench")


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


def test_uv_settings_are_those_of_pip() -> None:
    listed = """:env:.cert='/etc/ssl/ca.crt'
global.extra-index-url='file:///srv/a file:///srv/b'
global.find-links='/opt/wheels /srv/wheels'
global.timeout='60'
"""
    sys.path.insert(0, str(ROOT / "ci"))
    try:
        from install import uv_settings
    finally:
        sys.path.remove(str(ROOT / "ci"))
    assert uv_settings(listed) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/etc/ssl/ca.crt",
        "UV_EXTRA_INDEX_URL": "file:///srv/a file:///srv/b",
        "UV_FIND_LINKS": "/opt/wheels,/srv/wheels",
    }


def test_each_name_in_the_list_of_long_tests_is_that_of_a_test(stale_long_names: list[str]) -> None:
    assert stale_long_names == []


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


@pytest.mark.parametrize(
    ("given", "built_with", "expected"),
    [
        ({}, "--enable-shared", "/usr/bin/python3.11"),
        ({}, "--enable-optimizations", "python3.11"),
        ({"PYTHON": "python3.11"}, "--enable-shared", "python3.11"),
    ],
)
def test_python_built_without_optimizations_is_replaced_unless_asked_for(
    tmp_path: Path, given: dict[str, str], built_with: str, expected: str
) -> None:
    system = subprocess.run(["/usr/bin/env", "/usr/bin/python3.11", "-c", "import ensurepip"], capture_output=True)
    if system.returncode or sys.version_info[:2] != (3, 11):
        pytest.skip("needs a Python 3.11 of the system that can make environments, and another")
    first = tmp_path / "python3.11"
    first.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys, sysconfig\n"
        f'sysconfig.get_config_vars()["CONFIG_ARGS"] = "{built_with}"\nexec(sys.argv[2])\' "$@"\n'
    )
    first.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", **given}
    chosen = subprocess.check_output([ROOT / "ci" / "python"], env=environment, text=True)
    assert chosen == f"{expected}\n"


READS_CACHE = """
import os, sys
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # modules of plugins may be rewritten
import pytest
from _pytest.assertion import rewrite
rewrite._rewrite_test = lambda *_: pytest.exit("rewrites again")
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_rewrite_asserts_writes_the_cache_that_pytest_reads(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one() -> None:\n    assert 1 + 1 == 2\n")
    for words in ((ROOT / "ci" / "rewrite_asserts.py", tmp_path), ("-c", READS_CACHE, tmp_path)):
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
