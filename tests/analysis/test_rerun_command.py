"""The command that repeats a number: run with what pytest takes."""

from __future__ import annotations

import shlex

import pytest
from shown import texts_of
from stores import case_info

from lobench.analysis.store.rerun_command import seed_options, subject_options
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.subject import Subject, Variant

SHOWN = texts_of("analysis")


def test_subjects_are_named_as_pytest_takes_them() -> None:
    assert subject_options(Subject.of_optimizer("adam(); adam.b1 = 0.8")) == SHOWN["lobench-optimizer-adam-adam-b1"]
    checkpoint = Checkpoint(uri="/runs/my run/theta_3.npz", sha256="3", outer_step=3)
    celo = Subject.of_checkpoint(checkpoint, Variant(bindings=("Case.learned_optimizer = @Celo()",)))
    assert shlex.split(subject_options(celo)) == [
        "--lobench-checkpoint", "/runs/my run/theta_3.npz", "--lobench-gin-param", "Case.learned_optimizer = @Celo()"
    ]  # fmt: skip
    assert subject_options(Subject.of_imported("adam")) == ""


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([(0, 4)], []),
        ([], []),
        ([(0, 2), (2, 2)], ["Case.first_seed = 0", "Case.block_sizes = (2, 2,)"]),
        ([(4, 6)], ["Case.first_seed = 4", "Case.block_sizes = (6,)"]),
        ([(0, 4), (8, 2)], ["Case.first_seed = 8", "Case.block_sizes = (2,)"]),
    ],
)
def test_seeds_are_named_where_the_case_does_not(blocks: list[tuple[int, int]], expected: list[str]) -> None:
    found = seed_options(case_info("a"), [SeedBlock(start=start, size=size) for start, size in blocks])
    assert [word for word in shlex.split(found) if word != "--lobench-gin-param"] == expected
