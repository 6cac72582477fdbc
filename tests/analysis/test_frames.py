"""What notebooks get from a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shown import texts_of
from stores import add

import lobench
from lobench.core.errors import UsageError
from lobench.core.result import Outcome
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("analysis")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    losses = {"train/loss": [1.0, 0.5], "test/loss": [1.5, 1.25]}
    add(tmp_path, 1, {"a": losses, "b": {"train/loss": [0.5, np.nan]}, "c": Outcome.ERROR})
    add(tmp_path, 1, {"a": {"train/loss": [0.75, 0.25]}}, start=2)
    add(tmp_path, 2, {"a": losses})
    return tmp_path


def test_tidy_a_row_for_each_checkpoint_case_seed_and_metric(store: Path) -> None:
    frame = lobench.open_results(store).frame()
    train = frame[(frame.metric == "train/loss") & (frame.case == "a") & (frame.outer_step == 1)]
    assert train.seed.tolist() == [0, 1, 2, 3] and train.value.tolist() == [1.0, 0.5, 0.75, 0.25]
    assert frame.groupby(["case", "outer_step"]).size().to_dict() == {
        ("a", 1): 6,
        ("a", 2): 4,
        ("b", 1): 2,
        ("c", 1): 4,
    }
    diverged = frame[(frame.case == "b") & (frame.seed == 1)].iloc[0]
    assert np.isnan(diverged.value) and diverged.diverged_at == 7 and diverged.best == 2.0
    assert frame[frame.case == "c"].outcome.unique().tolist() == ["error"]
    assert frame.groupby("case").value.mean()["a"] == pytest.approx(0.95)


def test_evaluations_with_their_provenance(store: Path) -> None:
    frame = lobench.open_results(store).evaluations()
    assert len(frame) == 5 and set(frame.git_revision.dropna()) == {"r1"}
    assert frame.set_index("case").loc["c", "message"] == SHOWN["it-hung"]
    assert str(frame.recorded_at.dtype).startswith("datetime64") and frame.diverged.sum() == 1


def test_curves_are_arrays_with_seed_blocks_joined(store: Path) -> None:
    found = lobench.open_results(store)
    (curves,) = found.curves("train/loss", case="s/a", outer_step=1)
    assert curves.values.shape == (4, 3) and curves.values.dtype == np.float32
    assert curves.steps.tolist() == [0, 5, 10] and curves.seeds.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(curves.values[3], np.float32([2, 1.125, 0.25]))
    assert len(found.curves("train/loss")) == 3
    assert [c.checkpoint.outer_step for c in found.curves("test/loss", checkpoint="theta_2.npz")] == [2]
    assert "5 evaluations, 2 checkpoints, 3 cases" in repr(found)


def test_curves_of_a_seed_are_those_of_its_later_evaluation(tmp_path: Path) -> None:
    """Another inner program, and blocks of another width that overlap: one entry, each seed once."""
    identities = {"a": "one"}
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 1.0, 1.0]}}, identities=identities, program_version="9")
    add(tmp_path, 1, {"a": {"train/loss": [0.5, np.nan]}}, identities=identities, program_version="10")
    add(tmp_path, 1, {"a": {"train/loss": [0.25, 0.75]}}, start=1, identities=identities, program_version="10")
    add(tmp_path, 1, {"a": Outcome.TIMEOUT}, identities=identities, program_version="11")
    (curves,) = lobench.open_results(tmp_path).curves("train/loss")
    assert curves.seeds.tolist() == [0, 1, 2] and curves.values[:, -1].tolist() == [0.5, 0.25, 0.75]
    assert curves.diverged_at.tolist() == [-1, -1, -1]


def test_curves_frame_seeds_that_end_at_different_steps_keeps_all_of_their_steps(tmp_path: Path) -> None:
    rows = [
        f"adam,c,{seed},{step},loss,{3 - seed - step / 10}" for seed, last in ((0, 5), (1, 2)) for step in range(last)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    lobench.import_curves(tmp_path / "a.csv", store=tmp_path / "store")
    found = lobench.open_results(tmp_path / "store")
    frame = found.curves_frame("loss")
    assert frame.groupby("seed").step.max().to_dict() == {0: 4, 1: 1}
    np.testing.assert_allclose(frame.value, [3.0, 2.9, 2.8, 2.7, 2.6, 2.0, 1.9])
    assert found.curves("loss")[0].steps.tolist() == [0, 1]


def test_no_store_is_one_clear_line(store: Path) -> None:
    with pytest.raises(lobench.StoreError, match=SHOWN["no-result-store-found"]):
        lobench.open_results(store / "none")
    with pytest.raises(lobench.StoreError, match=SHOWN["store-is-a-folder"]):
        lobench.open_results(store / "ledger.sqlite")


def test_a_metric_that_nothing_has_is_named_with_the_nearest(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5]}})
    stored = lobench.open_results(tmp_path)
    with pytest.raises(UsageError, match=SHOWN["no-evaluation-has-a-metric"]):
        stored.curves("train/los")
    assert stored.curves("train/loss", case="none") == []
    Ledger.open(tmp_path / "empty").close()
    assert lobench.open_results(tmp_path / "empty").curves("train/los") == []
