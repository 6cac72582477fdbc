"""What is released: equal bytes, the files that are tracked and no others, suites with names away from a checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from reference import ROOT
from shown import texts_of

import lobench
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("lobench")

BUILT_FROM = (
    "lobench",
    "suites",
    "plugins",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    ".gitignore",
)

# As `python -m build --no-isolation` does it: the wheel is made of what the sdist holds.
BUILD = """
import os, sys, tarfile, tempfile
from hatchling.build import build_sdist, build_wheel
archives, *homes = sys.argv[1:]
os.umask(int(os.environ["BUILD_UMASK"], 8))
for home in homes:
    os.chdir(home)
    sdist = build_sdist(archives)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(os.path.join(archives, sdist)) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # from 3.11.4 on
        os.chdir(os.path.join(folder, sdist.removesuffix(".tar.gz")))
        build_wheel(archives)
        os.chdir(archives)
"""

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
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as `git archive` gives them."""
    folder = tmp_path_factory.mktemp("exported")
    for name in tracked(*BUILT_FROM):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def archives_of(source: Path, folder: Path, umask: str) -> Path:
    pytest.importorskip("hatchling")
    folder.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "BUILD_UMASK": umask}
    homes = [source, *sorted(source.glob("plugins/*"))]
    done = subprocess.run(
        [sys.executable, "-c", BUILD, folder, *homes], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def archives(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sdists and wheels of a checkout in which suites have run."""
    folder = tmp_path_factory.mktemp("archives")
    shutil.copytree(exported, folder / "source")
    for junk in (
        "suites/quick/__pycache__/x.pyc",
        "suites/quick/lobench_results/x.sqlite",
        "suites/demo/.lobench/x",
        "build/x.py",
    ):
        (folder / "source" / junk).parent.mkdir(parents=True)
        (folder / "source" / junk).write_bytes(b"")
    return archives_of(folder / "source", folder / "made", umask="022")


@pytest.fixture(scope="module")
def installed(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as site-packages would be: the wheel, unpacked."""
    folder = tmp_path_factory.mktemp("site-packages")
    (wheel,) = archives.glob("lobench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


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


def check(source: Path, archives: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "ci" / "check_archives.py", source, archives]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_archives_carry_every_file_of_their_packages_and_no_other(exported: Path, archives: Path) -> None:
    done = check(exported, archives)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout == SHOWN["archives-have-the-files-of"]
    with zipfile.ZipFile(next(archives.glob("lobench-*.whl"))) as wheel:
        names = {*wheel.namelist()}
    shown = (
        "py.typed",
        "report/templates/uplot/LICENSE",
        "report/templates/app.js",
        "inner/tasks/data/mnist5k.npz",
        "suites/quick/baselines/adafactor-eight_rates.json",
    )
    assert {f"lobench/{name}" for name in shown} <= names


def test_two_builds_have_equal_bytes(exported: Path, archives: Path, tmp_path: Path) -> None:
    """Another folder, other times, another umask, files that nobody else may read."""
    shutil.copytree(exported, tmp_path / "other" / "source", copy_function=shutil.copy)
    for path in sorted((tmp_path / "other" / "source").rglob("*"), reverse=True):
        os.utime(path, (10**9, 10**9))
        path.chmod(0o700 if path.is_dir() else 0o600)
    again = archives_of(tmp_path / "other" / "source", tmp_path / "made", umask="077")
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (archives, again)
    )
    assert first == second and len(first) == 24


def test_a_release_has_the_addresses_that_it_was_given(exported: Path, tmp_path: Path) -> None:
    source = shutil.copytree(exported, tmp_path / "source")
    repository, site = "https://code.example/o/lobench", "https://lobench.example"
    command = [sys.executable, ROOT / "ci" / "addresses.py", source, repository, site, lobench.__version__]
    subprocess.run(command, check=True)
    settings = [source / "pyproject.toml", *source.glob("plugins/*/pyproject.toml")]
    for file in settings:
        urls = tomllib.loads(file.read_text())["project"]["urls"]
        assert (
            urls["Homepage"] == site and urls["Repository"] == repository and ".invalid" not in "".join(urls.values())
        )
    readme = (source / "README.md").read_text()
    assert f"({repository}/blob/v{lobench.__version__}/docs/" in readme and f"({repository}/raw/" in readme
    assert "](docs/" not in readme


def test_what_an_archive_lacks_or_has_too_much_is_named(exported: Path, archives: Path, tmp_path: Path) -> None:
    shutil.copytree(archives, tmp_path / "broken")
    (wheel,) = (tmp_path / "broken").glob("lobench_ray-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    del files["lobench_ray/slot.py"]
    files["lobench_ray/clock.py"] += b"#"
    files["lobench_ray/junk.py"] = b""
    about = f"{wheel.name.partition('-py3')[0]}.dist-info"
    files[f"{about}/METADATA"] = (
        files[f"{about}/METADATA"].replace(b"\nSummary", b"\nNoSummary").replace(b"\nVersion: ", b"\nVersion: 9.")
    )
    files[f"{about}/licenses/LICENSE"] = b"all rights reserved"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    (tmp_path / "broken" / "other.whl").write_bytes(b"")
    (sdist,) = (tmp_path / "broken").glob("lobench_wandb-*.tar.gz")
    sdist.unlink()
    done = check(exported, tmp_path / "broken")
    own = wheel.name
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        SHOWN["lobench-ray-slot-py-is"].format(own=own),
        SHOWN["lobench-ray-junk-py-is"].format(own=own),
        SHOWN["lobench-ray-clock-py-is"].format(own=own),
        SHOWN["its-metadata-have-no-summary"].format(own=own),
        SHOWN["version-9-expected-as-in"].format(own=own, version=lobench.__version__),
        SHOWN["licenses-license-is-not-the"].format(own=own),
        SHOWN["tar-gz-its-metadata-are"].format(archive=own.partition("-py3")[0]),
        SHOWN["is-missing"].format(name=sdist.name),
        SHOWN["other-whl-belongs-to-no"],
    ]


def test_whoever_cites_lobench_cites_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == lobench.__version__


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
    assert SHOWN["bare-digits-bare-gin-relu32"] in listed.stdout, listed.stderr


def test_metadata_of_each_package_names_every_licence_file_in_it() -> None:
    for folder in (ROOT, *sorted((ROOT / "plugins").glob("lobench-*"))):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        package = folder / project["name"].replace("-", "_")
        shipped = [path for path in package.rglob("*") if path.name in ("LICENSE", "NOTICE", "COPYING")]
        assert sorted(project["license-files"]) == sorted(
            ["LICENSE", *(path.relative_to(folder).as_posix() for path in shipped)]
        )
        texts = "".join(path.read_text() for path in shipped)
        marks = {
            "MIT": "MIT License",
            "BSD-3-Clause": "BSD 3-Clause",
            "PSF-2.0": "PSF License Version 2",
            "CC-BY-2.0": "Creative Commons Attribution 2.0",
        }
        found = [name for name, mark in marks.items() if mark in texts]
        assert sorted(project["license"].split(" AND ")) == sorted(["Apache-2.0", *found])
