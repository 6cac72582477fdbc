"""A journal that cannot be read is said in one line; an ordinary one keeps what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from lobench_evolve.journal import RunJournal, read_generations
from shown import texts_of

from lobench import StoreError, UsageError

SHOWN = texts_of("evolve")

IDENTITY = {"seed": "1"}


def test_what_was_added_is_there_after_a_restart(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path, IDENTITY)
    journal.add_block(0, "population", 1, b"\0\0\x80\x3f")
    journal.begin_state(0, b"state")
    journal.close()
    again = RunJournal(tmp_path, IDENTITY)
    assert [(block.block, block.fitness) for block in again.stored_blocks(0, "population")] == [(1, (1.0,))]
    assert again.state() == (0, b"state")
    again.close()
    with pytest.raises(UsageError, match=SHOWN["got-seed-is-2-and"]):
        RunJournal(tmp_path, {"seed": "2"})


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / "evolve.sqlite").write_bytes(b"no database" * 100)
    for read in (lambda: RunJournal(tmp_path, IDENTITY), lambda: read_generations(tmp_path)):
        with pytest.raises(StoreError, match=SHOWN["evolve-sqlite-cannot-use-the"]) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_run_without_results_may_begin_again_otherwise(tmp_path: Path) -> None:
    """Such as one whose configuration was wrong in what only a worker sees."""
    journal = RunJournal(tmp_path, {"settings": "a"})
    journal.begin_state(0, b"state")
    journal.close()
    again = RunJournal(tmp_path, {"settings": "b"})
    assert again.state() is None
    again.begin_state(0, b"other")
    again.check({"settings": "b"})
    assert again.state() == (0, b"other")
    again.add_block(0, "population", 0, b"")
    with pytest.raises(UsageError, match=SHOWN["settings-is-a-and-was"]):
        again.check({"settings": "a"})
    again.close()


def test_what_differs_is_shown_however_long_the_values_are(tmp_path: Path) -> None:
    journal = RunJournal(tmp_path, {"settings": "x" * 500 + "first_n: 1"})
    journal.add_block(0, "population", 0, b"")
    with pytest.raises(UsageError, match=SHOWN["got-settings-is-first-n"]):
        journal.check({"settings": "x" * 500 + "first_n: 2"})
    journal.close()
