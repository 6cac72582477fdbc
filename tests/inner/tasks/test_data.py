import shutil
from pathlib import Path

import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.tasks import data

SHOWN = texts_of("inner")

NAMES = [line.split()[1] for line in (Path(data.__file__).parent / "SHA256SUMS").read_text().splitlines()]


def test_every_file_of_the_folder_has_a_sum_and_a_notice():
    folder = Path(data.__file__).parent
    files = {path.name for path in folder.iterdir() if path.is_file()} - {"__init__.py", "NOTICE", "SHA256SUMS"}
    assert files == set(NAMES)
    titles = {line for line in (folder / "NOTICE").read_text().splitlines() if not line.startswith(" ")}
    assert files <= titles


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_and_cannot_be_written_into(name):
    if name.endswith(".txt.gz"):
        assert data.load_text(name.removesuffix(".txt.gz"))
        return
    arrays = data.load_arrays(name.removesuffix(".npz"))
    assert arrays is data.load_arrays(name.removesuffix(".npz"))
    for array in arrays.values():
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


def test_mnist_has_500_of_each_digit():
    mnist = data.load_arrays("mnist5k")
    assert (mnist["image"].shape, mnist["image"].dtype) == ((5000, 784), np.uint8)
    assert np.bincount(mnist["label"]).tolist() == [500] * 10


def test_a_damaged_file_is_one_clear_error(tmp_path, monkeypatch):
    folder = tmp_path / "a folder"
    shutil.copytree(Path(data.__file__).parent, folder)
    monkeypatch.setattr(data, "_FOLDER", folder)
    path = folder / "photos.npz"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    expected = SHOWN["a-folder-photos-npz-the"]
    with pytest.raises(ConfigError, match=expected):
        data.load_arrays.__wrapped__("photos")
    path.unlink()
    with pytest.raises(ConfigError, match=SHOWN["got-no-file"]):
        data.load_arrays.__wrapped__("photos")
