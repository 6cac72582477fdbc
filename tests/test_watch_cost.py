"""`lobench watch --dry-run` and `--max-core-hours`, with real workers."""

from __future__ import annotations

from pathlib import Path

from forked import python
from shown import texts_of
from tiny import ONE_CASE, TASKS, content, make_run, make_suite, results, watch

SHOWN = texts_of("watch")

SLOW = """
@configurable
class Slow(Bowl):
    def init(self, key):
        time.sleep(0.7)
        return super().init(key)
"""


def test_a_watch_tells_its_cost_and_ends_cleanly_at_its_limit(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path), make_run(tmp_path, -3.0), tmp_path / "store"
    options = ("--workers", "1", "--store", str(store))

    before = watch(run, suite, *options, "--dry-run")
    assert before.returncode == 0, before.stderr
    assert SHOWN["a-checkpoint-2-evaluations"] in before.stdout
    assert before.stdout.count("estimated") == 2
    assert not store.exists()

    # The first evaluation uses the limit up: what runs ends, and nothing else begins.
    limited = watch(run, suite, *options, "--once", "--max-core-hours", "1e-9")
    assert limited.returncode == 4, limited.stderr
    assert SHOWN["max-core-hours-1e-09"] in limited.stdout
    assert len(results(store)) == 1

    between = watch(run, suite, *options, "--dry-run")
    assert between.stdout.count("recorded") == between.stdout.count("estimated") == 1

    rest = watch(run, suite, *options, "--once")
    assert rest.returncode == 0, rest.stderr
    whole = watch(run, suite, "--workers", "1", "--once", "--store", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    assert content(store) == content(tmp_path / "whole")


CHIEF_THAT_COUNTS = """
import sys
from lobench.cli import main
from lobench.engine.chief import loop as watch
turns, wait = 0, watch.Chief._wait
def counted(self, timeout):
    global turns
    turns += 1
    wait(self, timeout)
watch.Chief._wait = counted
try:
    main()
finally:
    print("turns", turns)
"""


def test_the_chief_sleeps_while_the_last_cases_run(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE, "c/Case.task = @Slow()\n"), make_run(tmp_path, -3.0)
    (suite / "tiny_tasks.py").write_text(TASKS + SLOW)
    done = python("-c", CHIEF_THAT_COUNTS, "watch", run, "--suite", suite, "--once", "--workers", "1")
    assert done.returncode == 0, done.stderr
    # Some turns for the start, polls and events; without a rest there are hundreds of thousands a second.
    assert 3 < int(done.stdout.rsplit("turns ", 1)[1]) < 1000


def test_a_dry_run_of_a_suite_that_cannot_be_collected_says_so(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, extra="c/Case.task = @Nowhere()\n"), make_run(tmp_path, -3.0)
    done = watch(run, suite, "--dry-run")
    assert done.returncode == 2
    assert "Nowhere" in done.stderr
