"""Two runs that are watched one after another into one store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, watch_here

SHOWN = texts_of("watch")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Returns the suite, and two runs with checkpoints of the same steps."""
    suite = make_suite(tmp_path, ONE_CASE)
    return suite, make_run(tmp_path / "a", -2.0, -1.5), make_run(tmp_path / "b", -4.0, -3.0)


def test_watch_of_a_second_run_in_a_store_leaves_the_first_out(folders: tuple[Path, Path, Path]) -> None:
    suite, first, second = folders
    options = ("--checkpoints", "all", "--store", str(first.parent / "store"))
    assert watch_here(first, suite, "--once", *options).returncode == 0
    output = watch_here(second, suite, "--until-step", "2", *options)
    assert output.returncode == 0 and "outer step 2" in output.stdout
    assert SHOWN["resuming-checkpoints-already-evaluated"] not in output.stdout
    worst, best = [line for line in output.stdout.splitlines() if re.match(r"outer step \d+: ", line)]
    assert texts_of("report")["the-best-so-far"] not in worst
    assert "(outer step 1, " in best
    (answer,) = [line for line in output.stdout.splitlines() if SHOWN["best-of-2-checkpoints"] in line]
    assert answer.startswith("b/run/theta_2.npz "), "the run alone, whose names are those in the store"
    assert (
        SHOWN["resuming-checkpoints-already-evaluated"] + "2 of 2"
        in watch_here(second, suite, "--once", *options).stdout
    )
