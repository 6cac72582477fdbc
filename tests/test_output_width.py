"""Every line that a command prints fits the terminal: of few and many methods, with long names and wide characters.

The commands are those of `lobench --help`, so that a new one needs an entry here.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from commands import lobench
from rich.cells import cell_len
from stores import add

from lobench.cli.group import own_commands

READS = {  # commands that read a store, and what they print of it
    "results": ["results STORE", "results STORE --cases", "results STORE --evaluations", "results STORE --history"],
    "compare": ["compare A B --store STORE", "compare A B --store STORE --details"],
    "report": ["report STORE --format text"],
    "suite": ["suite STORE"],
    "history": ["history STORE --case s/短い名前 --subject A"],
    "publish": ["publish STORE --output OUT/x.lobench --no-thetas"],
    "merge": ["merge STORE --output OUT/merged"],
    "doctor": ["doctor --store STORE"],
    "list": ["list", "list suites", "list optimizers", "list parameters quick/relu32", "list metrics"],
    "plugins": ["plugins"],
    "schema": ["schema"],
}
ELSEWHERE = {  # commands that train, or read something else than a store; `tests/cli/test_help.py` has their help
    *("watch", "run", "tune", "baseline", "view", "best", "bisect", "ablate", "falsify", "keep", "alarm", "budget"),
    *("debug", "audit", "site", "import", "convert", "score", "new"),
}
NAMES = [
    "adam(); adam.learning_rate = 0.001; adam.b1 = 0.9; adam.b2 = 0.999; adam.eps = 1e-12",
    "sgd(); 学習率の長い名前 = 1",
]


def make_store(folder: Path, num_methods: int) -> list[str]:
    """Writes a store, and returns the names of its first two methods."""
    names = [*NAMES, *(f"sgd(); sgd.learning_rate = {place / 64}" for place in range(num_methods - len(NAMES)))]
    cases = ["短い名前", "a_case_with_a_name_that_somebody_found_helpful", *"bcde"]
    for place, name in enumerate(names):
        finals = {
            case: {"train/loss": [1e-5 * 1.3**place * 7**at * (1 + seed) for seed in range(3)], "test/loss": [0.1] * 3}
            for at, case in enumerate(cases)
        }
        add(folder, 0, finals, optimizer=name, sha256=f"{place:064d}")
    return names[:2]


def test_each_command_is_listed_once() -> None:
    assert sorted([*READS, *ELSEWHERE]) == sorted(own_commands())


@pytest.mark.parametrize(("width", "num_methods"), [(80, 40), (100, 2), (160, 2)])
def test_output_fits_the_terminal(
    num_methods: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make_store(tmp_path / "store", num_methods)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    wide = []
    for line in [line for lines in READS.values() for line in lines]:
        known = {"STORE": "store", "OUT": str(tmp_path), "A": a, "B": b}
        words = [known.get(word, word.replace("OUT", str(tmp_path))) for word in shlex.split(line)]
        done = lobench(*words)
        is_refused = words[0] == "suite" and num_methods == 2  # too few methods
        assert done.returncode in ((2,) if is_refused else (0, 1)), (line, done.stderr)
        wide += [(line, each) for each in done.stdout.splitlines() if cell_len(each) > width and is_breakable(each)]
    assert not wide, "\n".join(f"{line}: {each}" for line, each in wide)


def is_breakable(line: str) -> bool:
    """Returns whether a line has more than one word: paths, hashes and commands stay whole, to be copied."""
    return len(line.split()) > 1 and "`" not in line
