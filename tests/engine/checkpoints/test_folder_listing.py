"""Names in a folder that may matter: none is missed, and foreign ones cost little."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from lobench.engine.checkpoints.folder_listing import FolderListing
from lobench.engine.checkpoints.readers import NpzReader
from lobench.engine.checkpoints.source import DirectorySource
from lobench.hookspecs import SourceContext

NAMES = ("a.npz", "b.npz", "log.txt", "sample")
CHANGES: dict[str, Callable[[Path], object]] = {
    "write": lambda path: None if path.is_dir() else path.touch(),
    "remove": lambda path: shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True),
    "folder": lambda path: None if path.exists() else path.mkdir(),
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from(NAMES), st.sampled_from([0.0, 1.0, 2.5, 4.0])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([1e-9, 1.0, 2.0, 1e9]),
)
def test_whatever_changes_is_there_as_soon_as_the_folders_time_tells_it(
    changes: list[tuple[str, str, float]], grain: float
) -> None:
    """With times as coarse as they are anywhere: at the next look after it; where they stand still, ten seconds on."""
    with tempfile.TemporaryDirectory() as name:
        folder, now = Path(name), [0.0]
        listing = FolderListing(name, lambda name: name.endswith(".npz"), clock=lambda: now[0])
        for change, name, seconds in changes:
            CHANGES[change](folder / name)
            os.utime(folder, ns=(0, int(now[0] / grain) * int(grain * 1e9)))
            found = [*listing.names()]
            truth = {path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".npz"}
            assert sorted(found) == sorted(truth) or grain > 2.0
            now[0] += seconds
        now[0] += 10.0
        truth = {path.name for path in folder.iterdir() if path.is_dir() or path.suffix == ".npz"}
        assert sorted(listing.names()) == sorted(truth)


class Counting(NpzReader):
    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()

    def recognises(self, path: epath.Path) -> bool:
        self.asked[path.name] += 1
        return super().recognises(path)


def test_foreign_files_are_asked_for_once(tmp_path: Path) -> None:
    for place in range(50):
        (tmp_path / f"sample_{place}.txt").touch()
    reader = Counting()
    source = DirectorySource(SourceContext(location=str(tmp_path), readers={"npz": reader}))
    for place in range(50, 55):
        assert source.poll() == []
        (tmp_path / f"sample_{place}.txt").touch()
    (tmp_path / "theta_1.npz").write_bytes(b"")
    source.poll()
    assert [Path(path).name for path in source.pending()] == ["theta_1.npz"], "it is seen at once"
    assert max(count for name, count in reader.asked.items() if name.startswith("sample")) == 1


def test_a_folder_that_stays_is_not_read_again_until_no_change_could_have_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, read, scandir = [0.0], list[float](), os.scandir
    monkeypatch.setattr("os.scandir", lambda folder: read.append(now[0]) or scandir(folder))
    listing = FolderListing(str(tmp_path), lambda name: True, clock=lambda: now[0])
    for second in range(20):
        now[0] = float(second)
        assert listing.names() == []
    assert read == [0.0, 1.0, 2.0, 3.0, 13.0]
