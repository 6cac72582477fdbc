"""Infinities of both signs in one metric are data: they end no command that shows them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from stores import add, case_info, curves

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.pytest_plugin.item_result import ItemResult
from lobench.pytest_plugin.recording import _summary_row
from lobench.report.live.progress import evaluation_line

SHOWN = texts_of("lobench")

FINALS = {"train/loss": [math.inf, -math.inf, 1.0], "test/loss": [-math.inf, math.inf, 1.0]}
BLOCK = SeedBlock(start=0, size=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("infinite") / "store"
    add(folder, 1, {"a": FINALS, "b": {"train/loss": [1.0, 1.0, 1.0]}})
    add(folder, 2, {"a": FINALS, "b": {"train/loss": [0.5, 0.5, 0.75]}})
    return folder


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize(
    "arguments",
    [
        ("results",),
        ("results", "--format", "json"),
        ("results", "--format", "csv"),
        ("results", "--history"),
        ("report", "--format", "text"),
        ("report", "--format", "latex", "--output", "table.tex"),
        ("report", "--format", "html", "--output", "page.html"),
    ],
)
def test_every_command_that_reads_a_store_shows_them(
    store: Path, tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = lobench(*arguments, "--store", store)
    assert done.returncode == 0, done.stderr
    if "json" in arguments:
        assert json.loads(done.stdout)[0]["metrics"]["train/loss"]["final"] is None


def test_a_comparison_shows_them(store: Path) -> None:
    done = lobench("compare", "1", "2", "--store", store)
    assert done.returncode in (0, 1) and "nan" not in done.stdout, done.stderr
    assert [line for line in done.stdout.splitlines() if "/" in line.split(" ")[0] and "/3 diverged" in line]


def test_a_watch_and_a_session_of_pytest_show_them() -> None:
    found, case = curves(FINALS), case_info("a", 3)
    subject = Subject.of_checkpoint(Checkpoint(uri="c", sha256="x", outer_step=1))
    event = EvaluationFinished(
        subject=subject, case=case, seed_block=BLOCK, outcome=Outcome.PASSED, curves=found, message=""
    )
    assert SHOWN["train-loss-nan-test-loss"] in evaluation_line(event)
    finished = ItemResult(case=case, seed_block=BLOCK, outcome=Outcome.PASSED, message="", payload=found.to_payload())
    assert _summary_row("", finished, ("train/loss", "test/loss"))[3:5] == ("nan", "nan")
