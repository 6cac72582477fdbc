"""The grids that baselines are tuned over."""

from __future__ import annotations

from pathlib import Path

import pytest

from lobench.analysis.scores.baseline_grids import algoperf_grid, grid_from_file, named_grid, velo_grid
from lobench.core.errors import ConfigError


def test_velo_has_fifteen_learning_rates() -> None:
    rates = [point["learning_rate"] for point in velo_grid().points]
    assert len(rates) == 15
    assert rates[:4] == [1e-7, 3e-7, 1e-6, 3e-6]
    assert rates[-3:] == [0.1, 0.3, 1.0]


def test_algoperf_has_three_studies_of_five_points_in_its_space() -> None:
    grid = algoperf_grid()
    assert grid.studies == (0,) * 5 + (1,) * 5 + (2,) * 5
    for point in grid.points:
        assert 1e-4 <= point["learning_rate"] <= 1e-2
        assert 0.5 <= point["b1"] <= 0.98
        assert 5e-3 <= point["weight_decay"] <= 1
    assert len({point["learning_rate"] for point in grid.points}) == 15
    assert algoperf_grid() == grid


def test_a_grid_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('[{"learning_rate": 0.1}, {"learning_rate": 0.3}]')
    assert named_grid(str(path)).name == "mine"
    assert grid_from_file(path).points[1] == {"learning_rate": 0.3}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '[{"a": 1}, {"b": 1}]', '[{"a": "x"}]'])
def test_what_is_no_grid_is_one_clear_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.json"):
        grid_from_file(path)
