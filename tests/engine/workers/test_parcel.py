"""What is sent to other machines: all that the same suite finds here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import LobenchError
from lobench.engine.config.bound import Layers
from lobench.engine.workers.parcel import Parcel

SHOWN = texts_of("workers")


def write(file: Path, text: str = "x = 1\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Folder of a suite, which lies in a project, which lies in the test's folder."""
    write(tmp_path / "project/suites/quick/a.gin")
    return tmp_path / "project/suites/quick"


def unpacked(parcel: Parcel, folder: Path) -> Path:
    Parcel.unpack(parcel.data, folder)
    return folder


def test_a_gin_file_named_by_a_path_with_two_dots_is_found_elsewhere(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write(tmp_path / "runs/today/config.gin", "Case.num_seeds = 7\n")
    monkeypatch.chdir(suite.parent)
    named = str(Path("../../runs/today").absolute() / "config.gin")
    layers = Layers(trainer_config=named, gin_files=(named,))
    parcel = Parcel.pack([str(suite)], [named])
    there = layers.relative_to(parcel.base).relocated(unpacked(parcel, tmp_path / "node/suites/sha"))
    for file in (there.trainer_config, *there.gin_files):
        assert file is not None
        assert Path(file).read_text() == config.read_text()


def test_what_a_suites_gin_file_includes_from_outside_is_sent(suite: Path, tmp_path: Path) -> None:
    write(suite / "a.gin", "include '../../common/base.gin'\n")
    write(tmp_path / "project/common/base.gin", "include 'more.gin'\n")
    write(tmp_path / "project/common/more.gin", "Case.num_seeds = 7\n")
    parcel = Parcel.pack([str(suite)], [])
    there = unpacked(parcel, tmp_path / "node") / parcel.inside(suite)
    assert (there / "../../common/more.gin").read_text() == "Case.num_seeds = 7\n"


def test_what_a_trainers_config_includes_from_outside_is_not_sent(suite: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "runs/config.gin", "include 'more.gin'\ninclude '../secret'\ninclude 'link'\n")
    write(tmp_path / "runs/more.gin", f"include '{tmp_path}/secret'\n")
    secret = write(tmp_path / "secret", "root:x:0:0\n")
    (tmp_path / "runs/link").symlink_to(secret)
    there = unpacked(Parcel.pack([str(suite)], [], str(config)), tmp_path / "node")
    names = {path.name for path in there.rglob("*")}
    assert {"config.gin", "more.gin"} <= names and not {"secret", "link"} & names


def test_linked_folders_are_sent_with_what_is_in_them(suite: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/data/numbers.csv", "1,2\n")
    (suite / "data").symlink_to(tmp_path / "elsewhere/data")
    (tmp_path / "elsewhere/data/up").symlink_to(suite)  # a circle
    parcel = Parcel.pack([str(suite)], [])
    there = unpacked(parcel, tmp_path / "node") / parcel.inside(suite)
    assert (there / "data/numbers.csv").read_text() == "1,2\n"
    assert not (there / "data/up").exists()


def test_what_is_too_large_is_refused_before_it_is_read(suite: Path) -> None:
    """A sparse file: nobody has the memory to read it."""
    write(suite / "huge.bin")
    os.truncate(suite / "huge.bin", 2**43)
    with pytest.raises(LobenchError, match=r"huge\.bin 8388608"):
        Parcel.pack([str(suite)], [])


def test_a_name_that_is_no_text_is_one_clear_line(suite: Path) -> None:
    try:
        (suite / os.fsdecode(b"caf\xe9.csv")).write_text("1")
    except OSError:
        pytest.skip("needs a file system that takes names that are not UTF-8")
    with pytest.raises(LobenchError, match=SHOWN["quick-caf-dce9-csv-a"]) as refused:
        Parcel.pack([str(suite)], [])
    assert str(refused.value).isascii()


def test_modules_beside_an_experiments_file_travel_and_its_other_files_do_not(tmp_path: Path) -> None:
    suite, folder = tmp_path / "suites" / "tiny", tmp_path / "study"
    for place in (suite, folder, folder / ".lobench"):
        place.mkdir(parents=True)
    (suite / "tiny.gin").write_text("a/Case.task = @Bowl()\n")
    (folder / "rates.py").write_text("fast = 1.0\n")
    (folder / "large.bin").write_bytes(b"x")
    (folder / ".lobench" / "kept.py").write_text("")
    parcel = Parcel.pack([str(suite)], [], None, [str(folder)])
    Parcel.unpack(parcel.data, tmp_path / "there")
    place = tmp_path / "there" / parcel.inside(folder)
    assert [file.name for file in place.iterdir()] == ["rates.py"]
    assert Layers(import_folders=(str(folder),)).relative_to(parcel.base).relocated(tmp_path / "there") == Layers(
        import_folders=(str(place),)
    )
