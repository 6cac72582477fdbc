"""The wheel: what is tracked in lobench/ and suites/ is in it, and its suites have names away from a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from reference import ROOT

from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

BUILT_FROM = ("lobench", "suites", "setup.py", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")

ASK = """
import sys
from pathlib import Path
import lobench
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite import specs_in
found = find_suite("reference")
(spec,) = specs_in(found / "reference.gin")
print(Path(lobench.__file__).parent, found, bind_case(spec, Layers(), build=False).info.identity)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as site-packages would be: the wheel, unpacked."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("the wheel needs setuptools >= 77")
    folder = tmp_path_factory.mktemp("package")
    for name in tracked(*BUILT_FROM):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / "source" / name)
    junk = folder / "source" / "suites" / "quick" / "__pycache__" / "x.pyc"
    junk.parent.mkdir()
    junk.write_bytes(b"")
    build = "from setuptools import build_meta; build_meta.build_wheel('../wheel')"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder / "source", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def tracked(*names: str) -> list[str]:
    """Returns the project's files; those that are new and not ignored count."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names]
    try:
        listed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def run_away(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(installed)
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_carries_every_file_of_the_package_and_of_the_suites_and_no_other(installed: Path) -> None:
    expected = set(tracked("lobench")) | {f"lobench/{name}" for name in tracked("suites")}
    found = {path.relative_to(installed).as_posix() for path in (installed / "lobench").rglob("*") if path.is_file()}
    assert found == expected
    (license_file,) = installed.glob("*.dist-info/licenses/LICENSE")
    assert "Apache License" in license_file.read_text()


def test_an_installed_suite_has_a_name_and_its_cases_the_identities_of_the_checkouts(
    installed: Path, tmp_path: Path
) -> None:
    done = run_away(installed, tmp_path, "-c", ASK)
    assert done.returncode == 0, done.stderr
    (spec,) = specs_in(ROOT / "suites" / "reference" / "reference.gin")
    identity = bind_case(spec, Layers(), build=False).info.identity
    package = installed / "lobench"
    assert done.stdout.split() == [str(package), str(package / "suites" / "reference"), identity]


def test_pytest_and_the_command_line_find_installed_suites_from_an_empty_folder(
    installed: Path, tmp_path: Path
) -> None:
    collected = run_away(installed, tmp_path, "-m", "pytest", "quick", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert collected.returncode == 0 and "[rosenbrock]" in collected.stdout, collected.stdout + collected.stderr
    listed = run_away(installed, tmp_path, "-m", "lobench.cli", "list", "suites")
    assert "bare/digits_bare.gin: relu32, tanh64x2\n" in listed.stdout, listed.stderr
