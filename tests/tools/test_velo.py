"""VeLO's normalised score, by its definition and by the examples that its authors' own function scored."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from reference import ROOT, reference_data
from shown import texts_of

from lobench.tools.score.velo import equivalent_steps, read_normaliser, velo_score

SHOWN = texts_of("convert")

STEPS, LOSSES = [0.0, 10.0, 20.0, 30.0, 40.0], [2.0, 1.0, 0.5, 0.5, 0.25]
ENVELOPE = (np.asarray(STEPS), np.asarray(LOSSES))


def test_losses_become_steps_of_the_envelope() -> None:
    losses = [3.0, 2.0, 1.5, 1.0, 0.5, 0.375, 0.25, 0.2, np.nan]
    assert equivalent_steps(losses, ENVELOPE).tolist() == [0, 0, 5, 10, 20, 35, 40, 40, 0]


def test_a_curve_scores_its_last_its_highest_and_its_mean() -> None:
    found = velo_score([0, 5, 10], [[2.0, 0.5, 1.25], [2.0, 0.5, 0.75]], ENVELOPE)
    assert (found.last, found.highest, found.mean) == (1.0, 2.0, 1.0)
    assert (found.last_step, found.num_seeds, found.is_bound) == (10, 2, False)
    assert velo_score([0, 5], [[2.0, 0.1], [2.0, 0.2]], ENVELOPE).is_bound
    assert velo_score([0, 5], [[2.0, np.nan], [2.0, 0.2]], ENVELOPE).last == 0.0


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "envelope.json.gz").write_bytes(gzip.compress(json.dumps({"mlp": [STEPS, LOSSES]}).encode()))
    (tmp_path / "curves.csv").write_text("Task,seed,step,loss\nmlp,0,0,2.0\nmlp,0,8,1.0\nmlp,1,0,2.0\nmlp,1,8,1.0\n")
    return tmp_path


def score(files: Path, *options: str) -> Any:
    return lobench("score", files / "curves.csv", "--normaliser", files / "envelope.json.gz", *options)


def test_the_command_shows_each_task_and_the_mean(files: Path) -> None:
    done = score(files)
    assert done.returncode == 0 and SHOWN["speed-up-over-1-task"] in done.stdout, done.stderr
    record = json.loads(score(files, "--format", "json").stdout)
    assert record["summary"]["mean"] == record["tasks"]["mlp"]["last"] == 1.25


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("task,seed,step\nmlp,0,0\n", SHOWN["lacks-the-column-loss"]),
        ("task,seed,step,loss\nmpl,0,0,1\n", SHOWN["no-normaliser-of-task-mpl"]),
        ("task,seed,step,loss\nmlp,0,0,1\nmlp,0,0,1\n", SHOWN["task-mlp-seed-0-has"]),
        ("task,seed,step,loss\nmlp,0,0,1\nmlp,0,9,1\nmlp,1,0,1\n", SHOWN["seed-1-has-no-step"]),
        ("task,seed,step,loss\nmlp,0,0,1\n", SHOWN["curve-ends-at-step-0"]),
        ("task,seed,step,loss\nmlp,0,0,soon\n", SHOWN["line-2-loss-is-no"]),
        ("task,seed,step,loss\nmlp,0,,1\n", SHOWN["step-is-not-a-number"]),
    ],
)
def test_curves_that_are_none_are_told_in_a_line(files: Path, text: str, output: str) -> None:
    (files / "curves.csv").write_text(text)
    done = score(files)
    assert done.returncode == 2 and output in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("[]", SHOWN["not-a-normaliser-got-list"]),
        ('{"a": [[0, 1], [2.0]]}', SHOWN["task-a-steps-and-losses"]),
        ('{"a": [[0, 1], [1.0, 2.0]]}', SHOWN["steps-must-increase-and-losses"]),
        ('{"a": 3}', SHOWN["task-a-not-a-normaliser"]),
        ("{", SHOWN["cannot-read-the-normaliser"]),
    ],
)
def test_a_normaliser_that_is_none_is_told_in_a_line(files: Path, content: str, output: str) -> None:
    (files / "envelope.json.gz").write_text(content)
    done = score(files)
    assert done.returncode == 2 and output in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_one_of_the_two_scores_is_asked_for(files: Path) -> None:
    done = lobench("score", files / "curves.csv")
    assert done.returncode == 2 and SHOWN["targets-and-normaliser-give-one"] in done.stderr


def test_published_envelopes_give_the_scores_of_the_authors_own_function(tmp_path: Path) -> None:
    folder = reference_data() / "velo"
    envelopes, found = (
        folder / "three_tasks.json.gz",
        json.loads((folder / "velo_examples.json").read_text())["examples"],
    )
    rows = ["task,seed,step,loss"]
    for one in found:
        for seed, losses in enumerate(one["loss_by_seed"]):
            texts = ("" if loss is None else repr(loss) for loss in losses)
            rows += [f"{one['task']},{seed},{step},{text}" for step, text in zip(one["steps"], texts, strict=True)]
    (tmp_path / "curves.csv").write_text("\n".join(rows))
    done = lobench("score", tmp_path / "curves.csv", "--normaliser", envelopes, "--format", "json")
    tasks, normalisers = json.loads(done.stdout)["tasks"], read_normaliser(envelopes)
    for one in found:
        ours = [tasks[one["task"]][name] for name in ("last", "highest", "mean")]
        assert ours == pytest.approx([one[f"adamspeedup_{name}"] for name in ("last", "max", "avg")], rel=1e-4)
        means = np.asarray(one["loss_by_seed"], float).mean(axis=0)
        steps = equivalent_steps(means, normalisers[one["task"]])
        assert steps == pytest.approx(one["adam_steps_numpy_float64"], rel=1e-4)  # its losses are rounded


def test_the_whole_file_of_125_tasks_is_read() -> None:
    folder = Path(os.environ.get("LOBENCH_REFERENCE_DATA", ROOT.parent / "shared" / "data"))
    file = folder / "velo" / "velo_speedup_over_multiple_baselines.json.gz"
    if not file.is_file():
        pytest.skip(f"the reference data are not here: {file}")
    assert len(read_normaliser(file)) == 125
