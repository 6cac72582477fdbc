"""Search for the `config.gin` files of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from lobench.engine.checkpoints.given import given_checkpoint, run_variant
from lobench.engine.config.run_configs import config_chain, trainer_config_at


def written(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.gin").write_text(f"Case.name_{len(name)} = 1\n")


@pytest.mark.parametrize(
    ("configs", "place", "expected"),
    [
        (["run"], "run/theta_1.npz", ["run"]),
        (["run"], "run", ["run"]),
        (["runs", "runs/one"], "runs/one/theta_1.npz", ["runs", "runs/one"]),
        (["runs"], "runs/one", ["runs"]),
        (["project", "project/runs/one"], "project/runs/one/theta_1.npz", ["project/runs/one"]),
        (["run"], "run/generation_0/trial_1/attempt_0/theta_1.npz", ["run"]),
        (
            ["run", "run/generation_0/trial_1"],
            "run/generation_0/trial_1/theta_1.npz",
            ["run", "run/generation_0/trial_1"],
        ),
        ([], "run/theta_1.npz", []),
    ],
)
def test_config_chain_is_of_adjacent_folders_and_of_a_populations(
    tmp_path: Path, configs: list[str], place: str, expected: list[str]
) -> None:
    written(tmp_path, *configs)
    folder = (tmp_path / place).parent if place.endswith(".npz") else tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    config = trainer_config_at(str(tmp_path / place))
    found = config_chain(config) if config is not None else []
    assert [one.parent.relative_to(tmp_path).as_posix() for one in found] == expected


def test_config_chain_leaves_out_the_config_of_a_project(tmp_path: Path) -> None:
    written(tmp_path, "project", "project/run")
    (tmp_path / "project" / "pyproject.toml").touch()
    assert len(config_chain(tmp_path / "project" / "run" / "config.gin")) == 1


def test_checkpoint_by_path_has_the_bindings_that_a_watch_of_its_folder_of_runs_gives_it(tmp_path: Path) -> None:
    written(tmp_path, "runs", "runs/one")
    theta = tmp_path / "runs" / "one" / "theta_1.npz"
    theta.touch()
    variant = run_variant(str(tmp_path / "runs"), str(theta))
    assert variant == given_checkpoint(str(theta)).variant
    assert variant.trainer_config is not None and variant.trainer_config.count("Case.name") == 2
