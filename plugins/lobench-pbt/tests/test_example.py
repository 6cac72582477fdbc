"""The example's script says at once what went wrong, where the whole of it takes too long for a test."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from shown import texts_of

SHOWN = texts_of("pbt")

SCRIPT = Path(__file__).parents[3] / "examples" / "pbt" / "close_the_loop.py"


def test_a_controller_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """As with a study that it refuses; the script's own limit is half an hour."""
    spec = importlib.util.spec_from_file_location("close_the_loop", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.HERE = tmp_path
    (tmp_path / "pbt_trainer.py").touch()
    (tmp_path / "study.gin").write_text("Study.population = 0\n")
    folder = tmp_path / "pbt_0"
    folder.mkdir()
    with pytest.raises(SystemExit, match=SHOWN["controller-did-not-happen-has"]):
        script.run_study(folder, "tournament", 0, "", {})
    assert "Study.population" in (folder / "log.txt").read_text()
