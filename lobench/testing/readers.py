"""Contract of checkpoint readers: a plugin's test module subclasses `ReaderContract` and writes a checkpoint.

    class TestMyReader(ReaderContract):
        factory = "mypackage.readers:MyReader"

        def write(self, folder, leaves):
            path = folder / "theta_3.mine"
            mypackage.save(path, leaves)
            return path

Run as a program (`python -m lobench.testing.readers FACTORY PATH`), it reads a checkpoint and exits with 1 if that
started a jax backend. The chief reads checkpoints, and a backend in its process would take the workers' devices.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
from etils import epath

from lobench.core.errors import CheckpointError
from lobench.core.lazy import loaded
from lobench.core.result import Outcome
from lobench.hookspecs import CheckpointReader
from lobench.testing.bits import same_bits
from lobench.testing.watches import watch_with

__all__ = ["ReaderContract", "large_theta", "sample_theta"]

_DTYPES = {
    str(np.dtype(dtype)): np.dtype(dtype)
    for dtype in (
        np.float64,
        np.float16,
        ml_dtypes.bfloat16,
        np.int64,
        np.int32,
        np.uint32,
        np.int8,
        np.uint8,
        np.bool_,
    )
}


def sample_theta() -> dict[str, np.ndarray]:
    """Returns leaves by path with all kinds of values in a theta: nested, scalars, zeros, integers, NaN, infinity."""
    return {
        "decay": np.asarray(0.5, np.float32),
        "mlp/w0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "MLP/~/b0": np.zeros(3, np.float32),
        "mlp/layers/0": np.asarray([np.nan, np.inf, -0.0], np.float32),
        "num_updates": np.asarray([7], np.int32),
    }


def large_theta() -> dict[str, np.ndarray]:
    """Returns many large leaves, which reveal fixed limits and buffers in a reader; lists have more than ten items."""
    random = np.random.default_rng(0)
    layers = {f"layers/{index}/w": random.normal(size=(index + 1, 3)).astype(np.float32) for index in range(12)}
    return {**layers, "embedding": random.normal(size=(700, 173)).astype(np.float32)}


class ReaderContract:
    """Tests that every checkpoint reader must pass.

    Attributes:
      factory: "module:attribute", as in the reader's declaration.
      allow_pickle: Argument of the factory. Only readers of pickles need True.
      missing_dtypes: Names of dtypes that the format cannot store, such as `bfloat16`.
      knows_no_end: Whether half of a file looks complete until it is read, as for pickles. A watch then waits until the
        file has not changed for a while.
    """

    factory: ClassVar[str]
    allow_pickle: ClassVar[bool] = False
    missing_dtypes: ClassVar[tuple[str, ...]] = ()
    knows_no_end: ClassVar[bool] = False

    @abstractmethod
    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        """Writes theta as a trainer does, and returns the checkpoint's path. `leaves` are nested by "/"."""

    def open(self) -> CheckpointReader:
        reader: CheckpointReader = loaded(self.factory)(self.allow_pickle)
        return reader

    def test_it_says_whether_the_format_is_written_in_place(self) -> None:
        assert isinstance(self.open().in_place, bool)

    def test_what_was_written_is_recognised_complete_and_read(self, tmp_path: Path) -> None:
        reader = self.open()
        path = epath.Path(self.write(tmp_path, sample_theta()))
        assert reader.recognises(path)
        assert reader.is_complete(path)
        _assert_equal(reader.read(path).leaves, sample_theta())

    def test_many_large_leaves_are_read_in_their_places(self, tmp_path: Path) -> None:
        path = epath.Path(self.write(tmp_path, large_theta()))
        _assert_equal(self.open().read(path).leaves, large_theta())
        _assert_equal(self.open().read(path).leaves, large_theta())

    @pytest.mark.parametrize("name", _DTYPES)
    def test_dtypes_are_kept(self, tmp_path: Path, name: str) -> None:
        if name in self.missing_dtypes:
            pytest.skip(f"the format holds no {name}")
        values = np.asarray([[1.0, 0.0, 3.1415926535], [1e-3, 77.0, 2.0]])
        theta = {"w": values.astype(_DTYPES[name]), "s": np.asarray(77.0, _DTYPES[name])}
        _assert_equal(self.open().read(epath.Path(self.write(tmp_path, theta))).leaves, theta)

    def test_leaves_without_elements_are_kept(self, tmp_path: Path) -> None:
        theta = {"w": np.ones(3, np.float32), "layers/empty": np.zeros((0, 3), np.float32)}
        try:
            path = self.write(tmp_path, theta)
        except ValueError as error:
            pytest.skip(f"the format holds no empty leaf: {error}")
        _assert_equal(self.open().read(epath.Path(path)).leaves, theta)

    def test_the_outer_step_is_of_the_content(self, tmp_path: Path) -> None:
        """The number in the name does not matter. Outer step and generation are None if the content has none."""
        for step, generation in ((12, 3), (None, None), (0, 0)):
            folder = tmp_path / str(step)
            folder.mkdir()
            counters = {"outer_step": step, "generation": generation}
            leaves = {name: np.asarray(value, np.int32) for name, value in counters.items() if value is not None}
            content = self.open().read(epath.Path(self.write(folder, {"w": np.ones(3, np.float32), **leaves})))
            assert (content.outer_step, content.generation) == (step, generation)

    def test_a_checkpoint_that_was_replaced_is_read_again(self, tmp_path: Path) -> None:
        """A trainer may write each theta to the same path, and a watch has one reader from its start to its end."""
        reader = self.open()
        for theta in (sample_theta(), {"w": np.asarray([1.0, 2.0], np.float32)}, sample_theta()):
            path = self.write(tmp_path, theta)
            _assert_equal(reader.read(epath.Path(path)).leaves, theta)
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_what_was_read_stays_when_the_file_is_written_again(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, large_theta())
        leaves = self.open().read(epath.Path(path)).leaves
        for file in _files(path):
            # Written in place with the same size, so that a memory map would change.
            with file.open("r+b") as checkpoint_file:
                checkpoint_file.write(bytes(file.stat().st_size))
        _assert_equal(leaves, large_theta())

    def test_reading_changes_nothing(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, sample_theta())
        old_hashes = _hashes(path)
        self.open().is_complete(epath.Path(path))
        self.open().read(epath.Path(path))
        assert _hashes(path) == old_hashes
        assert {file.name for file in tmp_path.iterdir()} == {path.name}

    def test_the_path_may_hold_spaces_and_a_percent_sign(self, tmp_path: Path) -> None:
        folder = tmp_path / "my run 5%20"
        folder.mkdir()
        _assert_equal(self.open().read(epath.Path(self.write(folder, sample_theta()))).leaves, sample_theta())

    def test_it_is_recognised_by_name_and_kind_whatever_it_holds(self, tmp_path: Path) -> None:
        reader = self.open()
        path = self.write(tmp_path, sample_theta())
        for file in _files(path):
            file.write_bytes(b"")
        assert reader.recognises(epath.Path(path))
        (tmp_path / "notes.txt").touch()
        (tmp_path / "logs").mkdir()
        assert not reader.recognises(epath.Path(tmp_path / "notes.txt"))
        assert not reader.recognises(epath.Path(tmp_path / "logs"))

    @pytest.mark.parametrize("kept_fraction", [0.0, 0.1, 0.5, 0.9, 1.0])
    def test_cut_off_it_is_one_clear_error_and_never_another_theta(self, tmp_path: Path, kept_fraction: float) -> None:
        """Each file in turn loses its end (1.0: only its last byte)."""
        original = self.write(tmp_path, sample_theta())
        (tmp_path / "cut").mkdir()
        for index, _ in enumerate(_files(original)):
            path = _copy(original, tmp_path / "cut")
            file = _files(path)[index]
            size = file.stat().st_size
            os.truncate(file, max(min(int(kept_fraction * size), size - 1), 0))
            self._assert_refused_or_whole(path, file)

    def test_half_of_it_is_not_complete(self, tmp_path: Path) -> None:
        """A format that is renamed into place, or stores its size, never appears complete when half written."""
        path = self.write(tmp_path, large_theta())
        if path.is_dir():
            pytest.skip("a single file does not show that its folder is incomplete")
        os.truncate(path, path.stat().st_size // 2)
        if self.open().is_complete(epath.Path(path)):
            assert self.knows_no_end, (
                "half of the file is complete: is_complete() looks for its end, or knows_no_end = True"
            )

    def test_with_a_file_missing_it_is_one_clear_error_and_never_another_theta(self, tmp_path: Path) -> None:
        original = self.write(tmp_path, sample_theta())
        (tmp_path / "cut").mkdir()
        for index, _ in enumerate(_files(original)):
            path = _copy(original, tmp_path / "cut")
            file = _files(path)[index]
            file.unlink()
            self._assert_refused_or_whole(path, file)

    def _assert_refused_or_whole(self, path: Path, file: Path) -> None:
        assert isinstance(self.open().is_complete(epath.Path(path)), bool)
        try:
            content = self.open().read(epath.Path(path))
        except CheckpointError as error:
            assert path.name in str(error), f"the message does not name the checkpoint: {error}"
            assert "\n" not in str(error), f"the message is more than one line: {error}"
        else:
            assert file != path, "a damaged file was read"
            _assert_equal(content.leaves, sample_theta())

    def test_what_is_gone_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, sample_theta())
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert not self.open().is_complete(epath.Path(path))
        with pytest.raises(CheckpointError, match=path.name):
            self.open().read(epath.Path(path))

    def test_a_git_lfs_pointer_is_named_as_that(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, sample_theta())
        if path.is_dir():
            pytest.skip("the format is a directory")
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
        with pytest.raises(CheckpointError, match="Git LFS pointer"):
            self.open().read(epath.Path(path))

    def test_an_empty_theta_is_an_error(self, tmp_path: Path) -> None:
        try:
            path = self.write(tmp_path, {})
        except ValueError as error:
            pytest.skip(f"the format holds no empty theta: {error}")
        with pytest.raises(CheckpointError, match=path.name):
            self.open().read(epath.Path(path))

    def test_reading_starts_no_jax_backend(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, sample_theta())
        command = [
            sys.executable,
            "-m",
            "lobench.testing.readers",
            self.factory,
            str(path),
            str(int(self.allow_pickle)),
        ]
        # The child process must find the modules of a suite, too.
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stdout + completed.stderr

    def test_a_watch_evaluates_what_it_reads(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        run.mkdir()
        theta = {"log_lr": np.asarray(-3.0, np.float32), "outer_step": np.asarray(12, np.int32)}
        path = self.write(run, theta)
        watched_store = watch_with(
            tmp_path, "lobench_checkpoint_readers", self.factory, run, allow_pickle=self.allow_pickle
        )
        assert [(row.outcome, row.message) for row in watched_store.rows] == [(Outcome.PASSED, "")], watched_store.lines
        (subject,) = watched_store.sightings
        assert (Path(subject.uri).name, subject.outer_step) == (path.name, 12)


def _hashes(path: Path) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in _files(path)}


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _copy(path: Path, folder: Path) -> Path:
    target = folder / path.name
    if path.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(path, target)
    else:
        shutil.copyfile(path, target)
    return target


def _assert_equal(leaves: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert set(leaves) == set(expected)
    for path, leaf in expected.items():
        assert isinstance(leaves[path], np.ndarray), f"{path} is a {type(leaves[path]).__name__}, not an array"
        assert (leaves[path].shape, leaves[path].dtype) == (leaf.shape, leaf.dtype), path
        assert same_bits(leaves[path], leaf), f"{path} has other values"


def _main(factory: str, path: str, allow_pickle: str) -> int:
    loaded(factory)(allow_pickle == "1").read(epath.Path(path))
    bridge = sys.modules.get("jax._src.xla_bridge")
    return 1 if bridge is not None and bridge._backends else 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
