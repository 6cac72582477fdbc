"""Names with control characters: every line of an output stays one line, and no terminal is steered."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex
import unicodedata
from pathlib import Path

import pytest
from commands import lobench
from stores import add
from tiny import make_run, make_suite, watch

from lobench.engine.store.ledger import Ledger

ODD = "a\rb\nc\x1b[2J\x85\u2028d"
SHOWN = r"a\rb\nc\x1b[2J\x85\u2028d"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "store"
    for step, final in ((1, 1.0), (2, 0.5)):
        losses = {"train/loss": [final, final + 0.01], "test/loss": [final, final]}
        add(folder, step, {ODD: losses, "a\rb": losses}, uri=f"run/{ODD}{step}", revision=ODD)
    ledger = Ledger.open(folder)
    ledger.record_event("gate", against=ODD, verdict="PASS", margin=0.02, alpha=0.05, cases=[{"verdict": "PASS"}])
    ledger.record_event("unreadable", uri=ODD, message=f"{ODD}: no checkpoint")
    ledger.close()
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("results", "--store", "{store}"),
        ("results", "--store", "{store}", "--history"),
        ("compare", "1", "2", "--store", "{store}"),
        ("report", "--store", "{store}", "--format", "text"),
    ],
)
def test_a_table_in_a_terminal_has_printable_lines(store: Path, arguments: tuple[str, ...]) -> None:
    done = lobench(*(argument.format(store=store) for argument in arguments))
    assert done.returncode == 0 and SHOWN in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
    assert len(done.stdout.splitlines()) == done.stdout.count("\n"), "no name ends a line"


def test_a_page_holds_no_character_that_steers(store: Path, tmp_path: Path) -> None:
    done = lobench("report", "--store", store, "--output", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_bytes().decode()
    hidden = {letter for letter in page if unicodedata.category(letter) in ("Cc", "Zl", "Zp")} - {"\n", "\t"}
    assert not hidden and r"c\x1b[2J" in page


def test_dollars_of_a_name_are_no_formula_in_a_figure(tmp_path: Path) -> None:
    for step in (1, 2):
        add(tmp_path / "store", step, {r"a$\foo$\b" + ODD: {"train/loss": [1.0 / step, 0.5]}}, uri=r"run/$\bar$")
    done = lobench("report", "--store", tmp_path / "store", "--format", "png", "--output", tmp_path / "figures")
    assert done.returncode == 0 and list((tmp_path / "figures").glob("*.png"))


def test_csv_and_json_hold_the_name_as_it_is(store: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(lobench("results", "--store", store, "--format", "csv").stdout, newline="")))
    assert {row["case"] for row in rows} == {ODD, "a\rb"} and len(rows) == 16
    records = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert {record["case"]["name"] for record in records if record["seeds"]} == {ODD, "a\rb"}


def test_commands_that_are_printed_can_be_pasted_where_folders_have_blanks(tmp_path: Path) -> None:
    home = tmp_path / "my home"
    suite, run = make_suite(home), make_run(home, -1.0)
    output = watch(run, suite, "--once").stdout
    page = home / "page.html"
    assert lobench("report", "--store", run / "lobench_results/tiny", "--output", page).returncode == 0
    (found,) = re.findall(r"`(lobench results [^`]+)`", output)
    shown, _ = re.findall("<code>(lobench .*?)</code>", page.read_text())
    for command in (found, html.unescape(shown)):
        assert lobench(*shlex.split(command)[1:], cwd=home).returncode == 0, command
