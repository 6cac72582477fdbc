"""Every baseline that lobench ships is what `lobench baseline` would make now, as its `--check` sees it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from commands import lobench

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "suites").glob("*/baselines/*.json"))


def test_there_are_baselines() -> None:
    assert len(FILES) >= 40


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_a_shipped_baseline_is_fresh(file: Path) -> None:
    command = shlex.split(json.loads(file.read_text())["refresh"])[1:]
    found = lobench(*command, "--check", cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
