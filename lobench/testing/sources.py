"""Contract of checkpoint sources: a plugin's test module subclasses `SourceContract` and makes checkpoints.

class TestMySource(SourceContract):
    factory = "mypackage.sources:MySource"

    def location(self, folder):
        return f"myscheme://{folder}"

    def publish(self, folder, index):
        ...
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from etils import epath

from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.lazy import loaded
from lobench.engine.checkpoints.readers import load_readers
from lobench.hookspecs import CheckpointReader, CheckpointSource, SourceContext, Unfinished
from lobench.plugins import load_plugins
from lobench.testing.watches import NAME, watch_with

__all__ = ["SourceContract"]


class SourceContract:
    """Tests that every checkpoint source must pass.

    Attributes:
      factory: "module:attribute", as in the source's declaration.
      num_polls: Number of polls after which complete checkpoints must be found. Two if the source needs one poll to
        detect changes.
    """

    factory: ClassVar[str]
    num_polls: ClassVar[int] = 2

    @abstractmethod
    def publish(self, folder: Path, index: int) -> None:
        """Makes checkpoint `index` (1, 2, ...) appear, complete, in the location of `folder`.

        Calls with increasing indices make checkpoints that sort in this order. `folder` exists.
        """

    def begin(self, folder: Path, index: int) -> None:
        """Makes an incomplete checkpoint `index`, as left by a trainer while writing. `publish` completes it later."""
        pytest.skip("the source's checkpoints appear at once")

    def remove(self, folder: Path, index: int) -> None:
        """Removes checkpoint `index`, like a trainer that keeps only the last few."""
        pytest.skip("the source's checkpoints stay")

    def location(self, folder: Path) -> str:
        """Returns the text that a user would write for CKPT_DIR."""
        return str(folder)

    def readers(self) -> Mapping[str, CheckpointReader]:
        return load_readers(load_plugins(), allow_pickle=False)

    def open(self, folder: Path) -> CheckpointSource:
        context = SourceContext(location=self.location(folder), readers=self.readers())
        source: CheckpointSource = loaded(self.factory)(context)
        return source

    def poll_repeatedly(self, source: CheckpointSource) -> list[SeenCheckpoint]:
        return [checkpoint for _ in range(self.num_polls) for checkpoint in source.poll()]

    def test_it_says_how_often_it_wants_to_be_asked(self, tmp_path: Path) -> None:
        assert self.open(tmp_path).poll_seconds > 0

    def test_where_nothing_is_yet_nothing_is_found_and_later_it_is(self, tmp_path: Path) -> None:
        folder = tmp_path / "later"
        source = self.open(folder)
        assert self.poll_repeatedly(source) == []
        folder.mkdir()
        assert self.poll_repeatedly(source) == []
        self.publish(folder, 1)
        assert len(self.poll_repeatedly(source)) == 1

    def test_each_checkpoint_is_found_once_and_in_order(self, tmp_path: Path) -> None:
        source = self.open(tmp_path)
        for index in (1, 2, 3):
            self.publish(tmp_path, index)
        checkpoints = self.poll_repeatedly(source)
        assert len(checkpoints) == len({checkpoint.uri for checkpoint in checkpoints}) == 3
        indices = [checkpoint.index for checkpoint in checkpoints if checkpoint.index is not None]
        assert indices == sorted(indices)
        self.publish(tmp_path, 10)
        checkpoints += self.poll_repeatedly(source)
        assert len({checkpoint.uri for checkpoint in checkpoints}) == len(checkpoints) == 4
        assert self.poll_repeatedly(source) == []

    def test_twelve_at_once_are_found_in_the_order_in_which_they_were_written(self, tmp_path: Path) -> None:
        """The order is by number, not by text: 9 comes before 10."""
        one_by_one = self.open(tmp_path)
        expected: list[SeenCheckpoint] = []
        for index in range(1, 13):
            self.publish(tmp_path, index)
            new = self.poll_repeatedly(one_by_one)
            assert len(new) == 1, f"of checkpoint {index} alone it finds {new}"
            expected += new
        assert self.poll_repeatedly(self.open(tmp_path)) == expected
        indices = [checkpoint.index for checkpoint in expected]
        assert indices in (list(range(1, 13)), [None] * 12)

    def test_what_it_returns_has_the_types_of_the_interface(self, tmp_path: Path) -> None:
        source = self.open(tmp_path)
        self.publish(tmp_path, 1)
        (checkpoint,) = self.poll_repeatedly(source)
        assert isinstance(checkpoint, SeenCheckpoint)
        assert (
            isinstance(checkpoint.uri, str) and isinstance(checkpoint.run, str) and checkpoint.reader in self.readers()
        )
        assert all(isinstance(unfinished, Unfinished) for unfinished in source.pending().values())

    def test_a_watch_takes_all_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "published").mkdir()
        for index in (9, 10, 11):
            self.publish(tmp_path / "published", index)
        expected = [checkpoint.uri for checkpoint in self.poll_repeatedly(self.open(tmp_path / "published"))]
        watched_store = watch_with(
            tmp_path,
            "lobench_checkpoint_sources",
            self.factory,
            self.location(tmp_path / "published"),
            source=NAME,
            needs_theta=False,  # theta may belong to any optimizer
        )
        assert [subject.uri for subject in watched_store.sightings] == expected
        assert [subject.uri for subject in watched_store.finished] == expected, watched_store.lines

    def test_what_it_finds_its_reader_reads(self, tmp_path: Path) -> None:
        self.publish(tmp_path, 1)
        (checkpoint,) = self.poll_repeatedly(self.open(tmp_path))
        reader = self.readers()[checkpoint.reader]
        assert reader.read(epath.Path(checkpoint.uri)).leaves

    def test_what_is_being_written_is_found_when_it_is_complete(self, tmp_path: Path) -> None:
        source = self.open(tmp_path)
        self.begin(tmp_path, 1)
        assert self.poll_repeatedly(source) == [], "a checkpoint was taken that was not complete"
        assert source.pending(), "a checkpoint that is being written is not pending"
        assert all(unfinished.reason for unfinished in source.pending().values()), "a pending checkpoint has no reason"
        self.publish(tmp_path, 1)
        (checkpoint,) = self.poll_repeatedly(source)
        assert checkpoint.uri not in source.pending(), "a checkpoint that was taken is still pending"

    def test_what_disappears_is_no_error_and_hides_nothing(self, tmp_path: Path) -> None:
        source = self.open(tmp_path)
        self.publish(tmp_path, 1)
        source.poll()
        self.remove(tmp_path, 1)
        self.publish(tmp_path, 2)
        indices = {checkpoint.index for checkpoint in self.poll_repeatedly(source)}
        assert indices <= {1, 2, None} and indices - {1}

    def test_a_new_source_finds_everything_that_is_there(self, tmp_path: Path) -> None:
        """A restarted watch knows from its ledger which checkpoints are done. The source need not know."""
        for index in (1, 2):
            self.publish(tmp_path, index)
        first_poll = self.poll_repeatedly(self.open(tmp_path))
        assert self.poll_repeatedly(self.open(tmp_path)) == first_poll
