"""The page of the sinks, followed to the letter: a watch with all three, read back and imported."""

from __future__ import annotations

from pathlib import Path

from imported import held
from left_out import STORIES
from pages import follow


def test_a_watch_with_all_three_sinks(tmp_path: Path) -> None:
    output = follow("sinks.md", tmp_path, STORIES["sinks.md"])
    assert "learned-optimizers" in output
    found = {case: curves for (_, case, _), curves in held(tmp_path / "imported").items()}
    assert found["imported/valley"] == found["imported/of_wandb"]
    assert [step for step, _ in found["imported/valley"]["small/valley/train/loss"]] == [10, 20]
    assert len(list((tmp_path / "today/lobench_results/small/tensorboard").glob("events.*"))) == 1
