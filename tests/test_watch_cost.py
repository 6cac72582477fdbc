"""`lobench watch --dry-run` and `--max-core-hours`, with real workers."""

from __future__ import annotations

from pathlib import Path

from tiny import content, make_run, make_suite, results, watch


def test_a_watch_tells_its_cost_and_ends_cleanly_at_its_limit(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    options = ("--workers", "1", "--store", str(store))

    before = watch(run, suite, *options, "--dry-run")
    assert before.returncode == 0, before.stderr
    assert "a checkpoint: 2 evaluations, " in before.stdout
    assert before.stdout.count("estimated") == 2
    assert not store.exists()

    # The first evaluation uses the limit up: what runs ends, and nothing else begins.
    limited = watch(run, suite, *options, "--once", "--max-core-hours", "1e-9")
    assert limited.returncode == 0, limited.stderr
    assert "--max-core-hours 1e-09 are used" in limited.stdout
    assert len(results(store)) == 1

    between = watch(run, suite, *options, "--dry-run")
    assert between.stdout.count("recorded") == between.stdout.count("estimated") == 1

    rest = watch(run, suite, *options, "--once")
    assert rest.returncode == 0, rest.stderr
    whole = watch(run, suite, "--workers", "1", "--once", "--store", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    assert content(store) == content(tmp_path / "whole")


def test_a_dry_run_of_a_suite_that_cannot_be_collected_says_so(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, extra="c/Case.task = @Nowhere()\n"), make_run(tmp_path, -3.0)
    done = watch(run, suite, "--dry-run")
    assert done.returncode == 2
    assert "Nowhere" in done.stderr
