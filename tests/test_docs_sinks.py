"""The page of the sinks, followed to the letter: a watch with all three, read back and imported."""

from __future__ import annotations

import json
import re
from pathlib import Path

from commands import lobench
from pages import follow


def test_a_watch_with_all_three_sinks(tmp_path: Path) -> None:
    said = follow("sinks.md", tmp_path)
    assert re.search(r"learned-optimizers", said)
    rows = json.loads(lobench("results", "--store", tmp_path / "imported", "--format", "json", "--curves").stdout)
    found = {row["case"]["name"]: (row["eval_steps"], list(row["curves"].values())) for row in rows}
    assert found["valley"] == found["of_wandb"]
    assert found["valley"][0] == [10, 20]
    assert len(list((tmp_path / "today/lobench_results/small/tensorboard").glob("events.*"))) == 1
