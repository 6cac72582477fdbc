"""A journal that cannot be read is said in one line; an ordinary one keeps what it was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from lobench_evolve.journal import Journal, read_generations

from lobench import StoreError, UsageError

IDENTITY = {"seed": "1"}


def test_what_was_added_is_there_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path, IDENTITY)
    journal.add(0, "population", 1, b"\0\0\x80\x3f")
    journal.begin_state(b"state")
    journal.close()
    again = Journal(tmp_path, IDENTITY)
    assert [(block.block, block.fitness) for block in again.blocks(0, "population")] == [(1, (1.0,))]
    assert again.state() == (0, b"state")
    again.close()
    with pytest.raises(UsageError, match="another seed"):
        Journal(tmp_path, {"seed": "2"})


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / "evolve.sqlite").write_bytes(b"no database" * 100)
    for read in (lambda: Journal(tmp_path, IDENTITY), lambda: read_generations(tmp_path)):
        with pytest.raises(StoreError, match=r"evolve.sqlite: cannot read the run's journal") as caught:
            read()
        assert "\n" not in str(caught.value)
