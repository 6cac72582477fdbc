"""Runs a page as its reader would: its files are written, its commands run, in order, in one folder.

    ```python title="mysuite/valley.py"      a file, or more of it; one of gin is read as lobench reads it
    ```bash                                  commands; one that fails ends the page
    ```text                                  what the commands above it say; `...` alone is any number of lines
    ```python                                a program
    ```json, toml, yaml                      parsed

A command that compares or gates runs twice. The second call, which finds the stored results of the first, must print
the same and exit with the same code.

Other blocks are refused, and so are indented ones, so that no block of a page goes without a test. pip's lines do here
what they would do: what a page installs from a folder is found through its entry points, and lobench is installed.

A tutorial is followed in processes, to the letter. Other pages have a `Story`: what their reader has already, what of
them is not run, and why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from commands import Done
from left_behind import traceless
from reader import Reader, environment
from reference import ROOT

__all__ = ["Block", "Story", "blocks_of", "commands_of", "decision", "follow", "path_of"]

_FENCE = re.compile(r"^```([\w-]*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^|\n)\n {4}(?! *[-*] )(\S.*)")
_VARIES = re.compile(r"~?[+-]?\d[\d.,e+-]*|[▁-█]+")  # from one kind of processor to another, or with the clock
_DECIDES = re.compile(r"(?:\w+=\S* )*(?:lobench compare|pytest\b.*--lobench-against)\b")
_VERDICTS = re.compile(r"\b(?:PASS|REGRESSED|INCONCLUSIVE)\b|\(sha256 \w+\)")
_SET_UP = ("python3 -m venv .venv", "source .venv/bin/activate")
_READ = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
_OF_PLUGINS = re.compile(r"^(?:Evolve|Study|Table)\.", re.MULTILINE)  # read by a command of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page; `title` is the file that it is, if it is one."""

    language: str
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How a page is followed that is no tutorial.

    Attributes:
      left_out: By the beginning of a command, or of another block, why it is not run. A reason that begins with an
        option, `--check: it takes an hour`, has the command run with it.
      exits: By the beginning of a command, its exit code where the page says that it is not 0.
      instead: By name, text of files that stand in the place of the page's.
      defaults: Options of commands where the page says nothing, by command: `{"tune": {"sessions": 2}}`.
    """

    left_out: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def path_of(page: str) -> Path:
    """Returns where a page is: `README.md`, or what is below docs/."""
    return ROOT / page if page == "README.md" else ROOT / "docs" / page


def blocks_of(page: str) -> list[Block]:
    """Returns the blocks of a page in order; one that is indented, or not fenced as above, fails."""
    text = path_of(page).read_text()
    rest = _FENCE.sub("", text)
    assert "```" not in rest, f"{page}: a block is not fenced as tests/pages.py says: {rest.partition('```')[2][:80]!r}"
    indented = _INDENTED.search(rest)
    assert not indented, f"{page}: a block is indented; fence it, and name its language: {indented and indented[1]}"
    return [Block(language=language, title=title, text=body) for language, title, body in _FENCE.findall(text)]


def commands_of(script: str) -> list[str]:
    """Returns the commands of a block of bash: a line, a continued line, a loop, a function."""
    found, pending = [], ""
    for line in script.splitlines():
        pending += line + "\n"
        if not re.sub(r"^\s*#.*$", "", pending, flags=re.MULTILINE).strip():
            pending = ""
        elif not line.endswith("\\") and _is_whole(pending):
            found.append(re.sub(r"\\\n\s*", " ", pending.strip()))
            pending = ""
    assert not pending, f"bash does not know an end of {pending!r}"
    return found


@functools.cache
def _is_whole(command: str) -> bool:
    if not re.search(r"[({'\"]|^(?:for|if|while|case)\b", command):
        return True
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True, check=False).returncode == 0


def follow(page: str, folder: Path, story: Story | None = None) -> str:
    """Does what a page says; returns all that its commands said."""
    follower = _Follower(page, folder, story)
    for block in blocks_of(page):
        follower.take(block)
    unused = [] if story is None else sorted(story.left_out.keys() - follower.left_out)
    assert not unused, f"{page} has nothing that begins with {unused}"
    return "\n".join(follower.output)


class _Follower:
    def __init__(self, page: str, folder: Path, story: Story | None) -> None:
        self._page, self._folder, self._story = page, folder, story
        self._reader = Reader(folder, story.defaults if story is not None else {})
        self._written: set[str] = set()
        self.output, self.left_out = [""], set[str]()

    def take(self, block: Block) -> None:
        """Does what a block says."""
        if block.title:
            self._write(block)
        elif block.language == "bash":
            self._run(block.text)
        elif self._reason(block.text):
            return
        elif block.language == "text":
            missing = _missing(block.text, self.output[-1])
            assert not missing, f"{self._page} shows {missing!r}; it said:\n{self.output[-1]}"
        elif block.language == "python" and self._story is not None:
            done = self._reader.program(block.text, self._page)
            self.output.append(done.stdout + done.stderr)
        elif block.language == "python":
            self._process(["python", "-c", block.text])
        elif block.language in _READ:
            _READ[block.language](block.text)
        else:
            what = f"a block of {block.language or 'no language'!r}"
            raise AssertionError(f"{self._page}: no test knows what to do with {what}: {block.text}")

    def _write(self, block: Block) -> None:
        path = self._folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self._story.instead.get(block.title, block.text) if self._story is not None else block.text
        before = path.read_text() + "\n" if block.title in self._written else ""
        path.write_text(before + text)
        self._written.add(block.title)
        if block.language in _READ:
            _READ[block.language](text)
        elif block.language == "python":
            compile(block.text, block.title, "exec")
        elif block.language == "gin" and self._story is not None and path.name != "config.gin":
            _read_gin(path, self._folder)

    def _run(self, script: str) -> None:
        if self._story is None:
            self._process(["bash", "-euo", "pipefail", "-c", _without_pip(script, self._folder)])
            first = self.output[-1]
            for command in filter(_DECIDES.match, commands_of(script)):
                again = self._process(["bash", "-euo", "pipefail", "-c", command])
                self.output.pop()
                missing = [line for line in decision(command, again) if line not in first]
                assert not missing, f"{self._page}: again\n{command}\n{missing}\n{first}"
            return
        output = ""
        for command in commands_of(script):
            reason = self._reason(command)
            option = re.match(r"(--[\w-]+): ", reason)
            if reason and option is None:
                _is_there(command)
                continue
            done = self._reader.command(f"{command.partition(' #')[0]} {option[1]}" if option else command)
            output += done.stdout + done.stderr
            expected = next((code for name, code in self._story.exits.items() if command.startswith(name)), 0)
            assert done.returncode == expected, f"{self._page}:\n{command}\n{done.stdout}{done.stderr}"
            if _DECIDES.match(command):
                self._decides_again(command, done)
        self.output.append(output)

    def _decides_again(self, command: str, first: Done) -> None:
        """Runs a command that compares or gates once more, with the same end."""
        again = self._reader.command(command)
        assert again.returncode == first.returncode, f"{self._page}: again\n{command}\n{again.stdout}{again.stderr}"
        pair = [decision(command, done.stdout) for done in (first, again)]
        assert pair[0] and pair[0] == pair[1], f"{self._page}: again\n{command}\n{first.stdout}\n{again.stdout}"

    def _reason(self, text: str) -> str:
        """Returns why a command or a block is left out, or ""."""
        for beginning, reason in self._story.left_out.items() if self._story is not None else ():
            if text.lstrip().startswith(beginning):
                self.left_out.add(beginning)
                return reason
        return ""

    def _process(self, command: list[str]) -> str:
        """Runs a command in a process, keeps all that it says, and returns its standard output."""
        env = environment(self._folder)  # `env` finds python in its PATH
        done = subprocess.run(["env", *command], cwd=self._folder, env=env, capture_output=True, text=True, check=False)
        self.output.append(done.stdout + done.stderr)
        assert done.returncode == 0, f"{self._page}:\n{command[-1]}\n{self.output[-1]}"
        return done.stdout


def decision(command: str, output: str) -> list[str]:
    """Returns the lines of an output that every call of the command repeats: a comparison's all, a gate's verdicts."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines if "compare" in command else sorted(filter(_VERDICTS.search, lines))


def _is_there(command: str) -> None:
    """Of what is not run, the files of the checkout that it names are there."""
    for name in re.findall(r"(?<![\w/.-])(?:\./)?((?:ci|examples|benchmarks|docs|tests|plugins)/[\w./-]+)", command):
        assert (ROOT / name).exists(), f"{command!r} names {name}, which is not there"


def _read_gin(path: Path, folder: Path) -> None:
    """Reads a file as lobench would: what is an experiment's, or else each of its cases, bound."""
    from lobench.engine.config.bound import bind_case
    from lobench.engine.config.experiment.file import is_experiment, read_experiment
    from lobench.engine.config.layers import Layers
    from lobench.engine.config.suite import specs_in
    from lobench.engine.config.syntax import parse_file
    from lobench.plugins import load_plugins

    if _OF_PLUGINS.search(path.read_text()):
        return
    with traceless(), contextlib.chdir(folder):
        if is_experiment(parse_file(path)):
            read_experiment(path)
            return
        modules = tuple(load_plugins().gin_modules())
        specs = specs_in(path)
        assert specs, f"{path.name} holds no case"
        for spec in specs:
            assert not bind_case(spec, Layers(gin_modules=modules)).problems


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


def _missing(shown: str, output: str) -> str | None:
    """Returns the first line of a page's block that the commands did not say, in its order; numbers may differ."""
    lines = iter(_plain(output).splitlines())
    for line in _plain(shown).splitlines():
        if line != "..." and not any(line == each for each in lines):
            return line
    return None


def _plain(text: str) -> str:
    """Returns lines in which every number and every drawing is N, and every gap one space."""
    return "\n".join(" ".join(_VARIES.sub("N", line).split()) for line in text.splitlines() if line.strip())
