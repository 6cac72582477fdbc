"""A case over revisions: planted changes are found, and equal bits and new programs are no change."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from shown import texts_of
from stores import add

from lobench.core.errors import UsageError
from lobench.tools.history.history import CaseHistory, history_of

SHOWN = texts_of("history")


def nightly(folder: Path, finals: Sequence[float], *, noise: float = 0.02, programs: Sequence[str] = ()) -> Path:
    """Writes a store for each night: eight seeds around a final loss."""
    rng = np.random.default_rng(0)
    for night, final in enumerate(finals):
        losses = (final * np.exp(noise * rng.standard_normal(8))).tolist()
        program = programs[night] if programs else "1"
        revision = f"{night:040x}"
        add(
            folder / f"night{night:03d}",
            0,
            {"a": {"train/loss": losses}, "b": {"train/loss": losses}},
            optimizer="adam()",
            revision=revision,
            program_version=program,
        )
    return folder


def changes(found: CaseHistory) -> list[tuple[int, bool]]:
    return [(change.run_index, change.size > 0) for change in found.changes]


def test_a_fall_and_a_rise_are_found_where_they_were_planted(tmp_path: Path) -> None:
    found = history_of([nightly(tmp_path, [0.5] * 8 + [0.8] * 8 + [0.4] * 8)], "a")
    assert changes(found) == [(8, False), (16, True)]
    assert len(found.runs) == 24


def test_a_history_without_a_change_has_none(tmp_path: Path) -> None:
    assert changes(history_of([nightly(tmp_path, [0.5] * 20)], "a")) == []


def test_equal_bits_are_no_change_whatever_the_program(tmp_path: Path) -> None:
    nightly(tmp_path, [0.5] * 10, noise=0.0, programs=["1"] * 5 + ["2"] * 5)
    found = history_of([tmp_path], "a")
    assert changes(found) == []
    assert found.new_programs == [5]


def test_two_seeds_of_equal_scores_have_no_interval(tmp_path: Path) -> None:
    add(tmp_path, 0, {"a": {"train/loss": [0.51234567] * 2}}, optimizer="adam()")
    (run,) = history_of([tmp_path], "a").runs
    assert math.isfinite(run.score.mean) and math.isnan(run.score.lower)


def test_a_new_program_is_a_line_and_named_at_a_change(tmp_path: Path) -> None:
    nightly(tmp_path, [0.5] * 8 + [0.9] * 8, programs=["1"] * 8 + ["2"] * 8)
    done = lobench("history", tmp_path, "--case", "s/a", "--output", tmp_path / "history.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n-- ") == 2
    assert SHOWN["and-so-is-the-program"] in done.stdout
    page = (tmp_path / "history.html").read_text()
    assert "<svg" in page and "<script" not in page
    record = json.loads(lobench("history", tmp_path, "--case", "a", "--format", "json").stdout)
    assert [one["run"] for one in record["changes"]] == [8]
    assert record["changes"][0]["is_new_program"] is True


@pytest.mark.parametrize(("case", "subject"), [("c", ""), ("a", "sgd()")])
def test_what_is_not_there_is_named(tmp_path: Path, case: str, subject: str) -> None:
    with pytest.raises(UsageError, match=SHOWN["no-case-is-called-expected"]):
        history_of([nightly(tmp_path, [0.5, 0.5])], case, subject=subject)


def test_one_run_is_a_history_too(tmp_path: Path) -> None:
    assert changes(history_of([nightly(tmp_path, [0.5])], "a")) == []
    assert lobench("history", tmp_path, "--case", "a").returncode == 0


def with_divergers(folder: Path, finals: Sequence[float], share: float, *, from_night: int = 0) -> Path:
    """Writes nights of which a share of the seeds diverged from one night on."""
    rng = np.random.default_rng(1)
    for night, final in enumerate(finals):
        losses = final * np.exp(0.02 * rng.standard_normal(8))
        losses[rng.random(8) < share * (night >= from_night)] = np.nan
        add(
            folder / f"night{night:03d}",
            0,
            {"a": {"train/loss": losses.tolist()}},
            optimizer="adam()",
            revision=f"{night:040x}",
            program_version="1",
        )
    return folder


def test_a_fall_among_rare_divergers_is_found_where_it_was_planted(tmp_path: Path) -> None:
    found = history_of([with_divergers(tmp_path, [0.5] * 8 + [0.54] * 8, 0.12)], "a")
    assert changes(found) == [(8, False)]
    assert found.changes[0].lost[0] + found.changes[0].lost[2] > 5


def test_more_seeds_that_diverge_are_a_fall(tmp_path: Path) -> None:
    found = history_of([with_divergers(tmp_path, [0.5] * 16, 0.7, from_night=8)], "a")
    assert [(change.run_index, change.is_rise) for change in found.changes] == [(8, False)]
    before, _, after, all_after = found.changes[0].lost
    assert before == 0 and after > all_after / 2
    assert SHOWN["diverged-or-exploded-0-of"] in lobench("history", tmp_path, "--case", "a").stdout


def test_rare_divergers_alone_are_no_change(tmp_path: Path) -> None:
    assert changes(history_of([with_divergers(tmp_path, [0.5] * 16, 0.1)], "a")) == []


def test_history_of_several_subjects_without_a_choice_is_refused_with_their_names(tmp_path: Path) -> None:
    """Two unchanged methods, of which another one is the last each night: nothing fell."""
    rng = np.random.default_rng(0)
    finals = {"adam()": 0.3, "sgd()": 0.9}
    for night in range(8):
        names = list(finals) if night % 2 else list(finals)[::-1]
        for name in names:
            losses = (finals[name] * np.exp(0.02 * rng.standard_normal(8))).tolist()
            store = tmp_path / f"night{night}"
            add(store, 0, {"a": {"train/loss": losses}}, optimizer=name, revision=f"{night:040x}")
    done = lobench("history", tmp_path, "--case", "a")
    assert done.returncode == 2 and not done.stdout, done.stdout
    assert SHOWN["several-subjects"] in done.stderr
    assert "'adam()', 'sgd()'" in done.stderr and "--subject" in done.stderr
    for name in finals:
        found = history_of([tmp_path], "a", subject=name)
        assert {run.subject for run in found.runs} == {name} and len(found.runs) == 8 and changes(found) == []
    found = history_of([tmp_path], "a", subject="adam")  # as `lobench compare` reads it
    assert {run.subject for run in found.runs} == {"adam()"} and len(found.runs) == 8


def test_history_by_a_metric_that_no_run_has_names_those_that_there_are(tmp_path: Path) -> None:
    for night in range(2):
        add(tmp_path / f"night{night}", 0, {"a": {"train/loss": [0.3, 0.4]}}, revision=f"{night:040x}")
    with pytest.raises(UsageError, match=SHOWN["no-subject-has-this-metric"]):
        history_of([tmp_path], "a", metric="loss")


def test_history_of_nights_with_different_optimizers_is_refused(tmp_path: Path) -> None:
    for night, name in enumerate(("adam()", "sgd()")):
        add(tmp_path / f"night{night}", 0, {"a": {"train/loss": [0.3, 0.4]}}, optimizer=name, revision=f"{night:040x}")
    with pytest.raises(UsageError, match=SHOWN["several-subjects"]):
        history_of([tmp_path], "a")


def test_history_of_watched_runs_takes_the_last_checkpoint_of_each(tmp_path: Path) -> None:
    for night in range(3):
        for step in (10, 20 + night):
            losses = {"a": {"train/loss": [0.3 + 1 / step, 0.4 + 1 / step]}}
            add(tmp_path / f"night{night}", step, losses, uri=f"run{night}/theta_{step}.npz", revision=f"{night:040x}")
    found = history_of([tmp_path], "a")
    assert [run.subject for run in found.runs] == ["theta_20.npz", "theta_21.npz", "theta_22.npz"]


def test_history_finds_a_fall_that_rare_divergers_would_hide(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for night in range(16):
        losses = (0.3 * (1.0 if night < 8 else 1.3) * np.exp(0.05 * rng.standard_normal(8))).tolist()
        losses[rng.integers(8)] = float("nan") if night % 3 == 0 else losses[0]
        add(tmp_path / f"night{night:02d}", 0, {"a": {"train/loss": losses}}, optimizer="a()", revision=f"{night:040x}")
    assert changes(history_of([tmp_path], "a")) == [(8, False)]
