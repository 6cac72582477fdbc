"""Runs a page of docs/ as its reader would: its files are written, its commands run, in order, in one folder.

    ```python title="mysuite/valley.py"      a file
    ```bash                                  commands; one that fails ends the page
    ```text                                  what the commands above it say; `...` alone is any number of lines
    ```python                                a program

Other blocks are refused, so that no block of a page goes without a test. pip's lines do here what they would do: what a
page installs from a folder is found through its entry points, and lobench is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from reference import ROOT

__all__ = ["Block", "blocks_of", "follow"]

_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_VARIES = re.compile(r"[+-]?\d[\d.,e+-]*|[▁-█]+")  # from one kind of processor to another, or with the clock
_SET_UP = ("python3 -m venv .venv", "source .venv/bin/activate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; `title` is the file that it is, if it is one."""

    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """Returns the blocks of docs/PAGE in order."""
    found = _FENCE.findall((ROOT / "docs" / page).read_text())
    return [Block(language=language, title=title, text=text) for language, title, text in found]


def follow(page: str, folder: Path) -> str:
    """Does what a page says; returns all that its commands said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] = str(folder / ".installed")
    said = [""]
    for block in blocks_of(page):
        if block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text)
        elif block.language == "text":
            missing = _missing(block.text, said[-1])
            assert not missing, f"{page} shows {missing!r}; it said:\n{said[-1]}"
        elif block.language in ("bash", "python"):
            script = _without_pip(block.text, folder) if block.language == "bash" else block.text
            command = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
            done = subprocess.run([*command, script], cwd=folder, env=environment, capture_output=True, text=True)
            said.append(done.stdout + done.stderr)
            assert done.returncode == 0, f"{page}:\n{script}\n{said[-1]}"
        else:
            raise AssertionError(f"{page}: no test knows what to do with a block of {block.language!r}: {block.text}")
    return "\n".join(said)


def _without_pip(script: str, folder: Path) -> str:
    kept = []
    for line in script.splitlines():
        if line.startswith("pip install"):
            _install(line.split()[-1], folder)
        elif line not in _SET_UP:
            kept.append(line)
    return "\n".join(kept)


def _install(name: str, folder: Path) -> None:
    """Puts a package of the page where Python finds it, with its entry points, as pip would."""
    if not (folder / name).is_dir():
        assert name.startswith("lobench"), f"{name} is not what a reader of lobench's pages installs"
        return
    project = tomllib.loads((folder / name / "pyproject.toml").read_text())["project"]
    packed = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information = folder / ".installed" / packed
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items())
        for group, each in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("\n".join(points))
    for package in tomllib.loads((folder / name / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]:
        (folder / ".installed" / package).symlink_to(folder / name / package)


def _missing(shown: str, said: str) -> str | None:
    """Returns the first line of a page's block that the commands did not say, in its order; numbers may differ."""
    lines = iter(_plain(said).splitlines())
    for line in _plain(shown).splitlines():
        if line != "..." and not any(line == each for each in lines):
            return line
    return None


def _plain(text: str) -> str:
    """Returns lines in which every number and every drawing is N, and every gap one space."""
    return "\n".join(" ".join(_VARIES.sub("N", line).split()) for line in text.splitlines() if line.strip())
