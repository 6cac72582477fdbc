"""Series of checkpoints: files without a step beside checkpoints with steps."""

from __future__ import annotations

import pytest

from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject
from lobench.engine.store.series import numbered_by_arrival


def checkpoint(uri: str, step: int, run: str = "") -> Subject:
    return Subject.of_checkpoint(Checkpoint(uri=uri, sha256=f"{uri}{step}", outer_step=step, run=run))


@pytest.mark.parametrize(
    "seen, by_arrival",
    [
        ([("r/latest.npz", 0), ("r/latest.npz", 1)], []),  # alone in the folder
        ([("r/theta_10.npz", 10), ("r/latest.npz", 0), ("r/theta_20.npz", 20), ("r/latest.npz", 1)], [1, 3]),
        ([("r/latest.npz", 0), ("r/theta_10.npz", 10), ("r/latest.npz", 1)], [2]),  # the first one came first
        ([("r/10", 10), ("r/latest.msgpack", 10), ("r/20", 20), ("r/latest.msgpack", 20)], []),  # the content has steps
        ([("r/theta_10.npz", 10), ("s/latest.npz", 0)], []),
        ([("r/theta_10.npz", 10), ("r/adam2.npz", 0)], [1]),
    ],
)
def test_contents_have_the_number_of_their_arrival_beside_checkpoints_with_steps(
    seen: list[tuple[str, int]], by_arrival: list[int]
) -> None:
    assert sorted(numbered_by_arrival(dict(enumerate(checkpoint(*one) for one in seen)))) == by_arrival


def test_runs_of_one_folder_are_apart() -> None:
    seen = [checkpoint("r/theta_10.npz", 10, run="a"), checkpoint("r/latest.npz", 0, run="b")]
    assert not numbered_by_arrival(dict(enumerate(seen)))
