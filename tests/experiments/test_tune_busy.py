"""`lobench tune` on a store that another search writes."""

from __future__ import annotations

from pathlib import Path

from commands import lobench
from shown import texts_of
from tiny import make_suite

from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("tune")


def test_tune_on_a_busy_store_leaves_the_experiment_of_the_search_that_runs(tmp_path: Path) -> None:
    make_suite(tmp_path)
    with Ledger.open(tmp_path / "store", name="first"):
        (tmp_path / "store" / "experiment.gin").write_text("of the first\n")
        done = lobench("tune", "tiny", "--optimizer", "sgd", "--num-trials", "2", "--store", "store", cwd=tmp_path)
    assert done.returncode == 2 and SHOWN["another-chief-writes-this-store"] in done.stderr, done.stderr
    assert (tmp_path / "store" / "experiment.gin").read_text() == "of the first\n"
