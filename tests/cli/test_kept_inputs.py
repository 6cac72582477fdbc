"""`--output` never replaces what a command reads, nor the database of a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import lobench
from report_store import make_store
from shown import texts_of

SHOWN = texts_of("lobench")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    make_store(folder)
    assert lobench("publish", folder / "store", "--output", folder / "results.lobench").returncode == 0
    return folder


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("publish", "store"), "store/ledger.sqlite"),
        (("publish", "results.lobench"), "results.lobench"),
        (("results", "--store", "store", "--format", "json"), "store/ledger.sqlite"),
        (("results", "--store", "results.lobench", "--format", "csv"), "./results.lobench"),
        (("report", "--store", "results.lobench", "--format", "text"), "results.lobench"),
    ],
)
def test_output_over_what_a_command_reads_is_refused(folder: Path, words: tuple[str, ...], output: str) -> None:
    before = (folder / output).read_bytes()
    done = lobench(*words, "--output", output, cwd=folder)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and SHOWN["name-another-file"] in done.stderr
    assert (folder / output).read_bytes() == before
