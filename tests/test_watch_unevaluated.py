"""`Case.eval_batches = 0` through a watch: what is stored, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of
from tiny import make_run, make_suite, results, watch

SHOWN = texts_of("watch")


@pytest.mark.parametrize("asked", ['Case.primary_metric = "test/loss"', "expect.min_final_accuracy = 0.5"])
def test_who_asks_for_another_split_is_told_before_anything_runs(tmp_path: Path, asked: str) -> None:
    suite, run = make_suite(tmp_path, extra="Case.eval_batches = 0\n"), make_run(tmp_path, -3.0)
    store = tmp_path / "store"
    done = watch(run, suite, "--once", "--executor", "inline", "--store", str(store), "--gin-param", asked)
    assert done.returncode not in (0, 1) and "Traceback" not in done.stderr
    assert SHOWN["case-eval-batches-0-evaluates"] in done.stderr + done.stdout
    assert not store.exists() or results(store) == []
