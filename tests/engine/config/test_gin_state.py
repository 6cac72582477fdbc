"""Isolated gin configurations: the import path within one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from lobench.engine.config.gin_state import isolated_gin


@pytest.mark.parametrize("started_in", ["experiment", "elsewhere"])
def test_modules_of_isolated_gin_are_those_of_its_folders_wherever_the_command_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_in: str
) -> None:
    for name in ("experiment", "elsewhere", "installed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rule_of_two_places.py").write_text(f"PLACE = {name!r}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "installed"), *sys.path, str(tmp_path / started_in)])
    monkeypatch.delitem(sys.modules, "rule_of_two_places", raising=False)
    before = list(sys.path)
    with isolated_gin(str(tmp_path / "experiment")):
        assert importlib.import_module("rule_of_two_places").PLACE == "experiment"
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "rule_of_two_places")
