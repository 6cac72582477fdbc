"""Readers, source and spool on real files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_data
from safetensors.numpy import save_file
from shown import texts_of

from lobench.core.checkpoint import CheckpointContent, SeenCheckpoint, index_in_name, theta_sha256
from lobench.core.errors import CheckpointError, CheckpointGone, PickleRefused
from lobench.engine.checkpoints.readers import NpzReader, PickleReader, SafetensorsReader, load_checkpoint, load_readers
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.checkpoints.spool import Spool, load_theta
from lobench.hookspecs import SourceContext
from lobench.plugins import load_plugins

SHOWN = texts_of("checkpoints")

THETA = {"nn/~/w0": np.arange(6, dtype=np.float32).reshape(2, 3), "decay": np.float32(0.5)}


def write(path: Path) -> None:
    if path.suffix == ".npz":
        np.savez(path, **THETA)  # type: ignore[arg-type]
    else:
        save_file({name: np.asarray(leaf) for name, leaf in THETA.items()}, path)


READERS = [("t.npz", NpzReader()), ("t.safetensors", SafetensorsReader())]


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200))
def test_rubbish_is_one_clear_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("rubbish")
    for name, reader in READERS:
        (folder / name).write_bytes(data)
        with pytest.raises(CheckpointError):
            reader.read(epath.Path(folder / name))


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", a=np.asarray([{}], dtype=object))
    with pytest.raises(PickleRefused, match=SHOWN["it-can-run-code"]):
        NpzReader().read(epath.Path(tmp_path / "o.npz"))
    (tmp_path / "p.pkl").write_bytes(b"\x80\x04}.")
    with pytest.raises(PickleRefused, match="--allow-pickle"):
        PickleReader().read(epath.Path(tmp_path / "p.pkl"))
    (tmp_path / "l.npz").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(CheckpointError, match=SHOWN["git-lfs-pointer"]):
        NpzReader().read(epath.Path(tmp_path / "l.npz"))


def test_counters_beside_theta(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **{"theta/w": np.ones(2), "outer_step": np.int64(40), "generation": np.int64(3)})
    content = NpzReader().read(epath.Path(tmp_path / "t.npz"))
    assert (list(content.leaves), content.outer_step, content.generation) == (["w"], 40, 3)


def test_counter_among_the_leaves_of_theta_is_no_leaf_of_it_if_it_is_named_outer_step(tmp_path: Path) -> None:
    theta = {"w": np.ones(2)}
    digests = []
    for name, leaves in (("outer_step", theta), ("step", {"theta/w": theta["w"]}), ("step", theta)):
        np.savez(tmp_path / "t.npz", **{name: np.int64(40)}, **leaves)  # type: ignore[arg-type]
        content = NpzReader().read(epath.Path(tmp_path / "t.npz"))
        assert content.outer_step == 40
        digests.append(theta_sha256(content.leaves))
    assert digests[0] == digests[1] == theta_sha256(theta)
    assert digests[2] != digests[0], "a leaf of theta may be called step"


def test_bindings_beside_theta_are_part_of_the_digest(tmp_path: Path) -> None:
    text = "MyLOpt.step_mult = 0.5"
    found = []
    kinds = [{}, {"gin_bindings": text}, {"gin_bindings": np.frombuffer(text.encode(), np.uint8)}]
    for index, more in enumerate(kinds):
        np.savez(tmp_path / f"{index}.npz", **{"theta/w": np.ones(3)}, step=7, **more)  # type: ignore[arg-type]
        found.append(NpzReader().read(epath.Path(tmp_path / f"{index}.npz")))
    assert [bytes(content.leaves.get("gin_bindings", b"")).decode() for content in found] == ["", text, text]
    digests = [theta_sha256(content.leaves) for content in found]
    assert digests[0] != digests[1] == digests[2]
    np.savez(tmp_path / "bad.npz", **{"theta/w": np.ones(3)}, gin_bindings=np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=SHOWN["gin-bindings-is-no-text"]):
        NpzReader().read(epath.Path(tmp_path / "bad.npz"))


def test_every_reference_checkpoint_can_be_read() -> None:
    manager = load_plugins()
    sizes = {}
    for path in sorted((reference_data() / "checkpoints").iterdir()):
        _, leaves = load_checkpoint(str(path), manager, allow_pickle=False)
        sizes[path.name] = sum(leaf.size for leaf in leaves.values())
    assert (sizes["celo.msgpack"], sizes["dm.npz"], sizes["rnnprop.npz"]) == (37089, 5141, 6641)


def source_of(path: Path) -> DirectorySource:
    readers = load_readers(load_plugins(), allow_pickle=False)
    return DirectorySource(SourceContext(location=str(path), readers=readers))


def names(source: DirectorySource) -> list[str]:
    return [Path(seen.uri).name for seen in source.poll()]


def test_a_file_is_taken_once_it_rests_and_again_when_it_is_written_anew(tmp_path: Path) -> None:
    source = source_of(tmp_path / "run")
    assert names(source) == []
    (tmp_path / "run").mkdir()
    for name in ("t_10.npz", "t_9.npz", ".hidden_1.npz", "t_11.npz_tmp"):
        write(tmp_path / "run" / "x.npz")
        (tmp_path / "run" / "x.npz").rename(tmp_path / "run" / name)
    assert names(source) == [] and len(source.pending()) == 2
    assert names(source) == ["t_9.npz", "t_10.npz"]
    assert names(source) == []
    np.savez(tmp_path / "run" / "t_9.npz", w=np.ones(50))
    assert [names(source), names(source)] == [[], ["t_9.npz"]]


@pytest.mark.parametrize("name", ["run_7", "2024"])
def test_a_runs_folder_may_have_the_name_of_a_checkpoint(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    run.mkdir()
    source = source_of(run)
    assert names(source) == []
    write(run / "t_1.npz")
    (run / "t_1.npz.done").touch()
    assert names(source) == ["t_1.npz"]


class RemovedMeanwhile(NpzReader):
    """A trainer that removes what it is asked about."""

    in_place = False

    def recognises(self, path: epath.Path) -> bool:
        return path.name.startswith("step")

    def is_complete(self, path: epath.Path) -> bool:
        shutil.rmtree(path)
        return bool(list(path.iterdir()))


class RemovedBeforeItIsListed(RemovedMeanwhile):
    def is_complete(self, path: epath.Path) -> bool:
        shutil.rmtree(path)
        return False


@pytest.mark.parametrize("reader", [RemovedMeanwhile(), RemovedBeforeItIsListed()])
@pytest.mark.parametrize("watched", ["", "step_1"])
def test_what_is_removed_while_it_is_looked_at_is_no_error(tmp_path: Path, reader: NpzReader, watched: str) -> None:
    (tmp_path / "step_1").mkdir()
    source = DirectorySource(SourceContext(location=str(tmp_path / watched), readers={"r": reader}))
    assert [names(source), names(source)] == [[], []]
    assert not source.pending()


def test_a_done_file_needs_no_second_look(tmp_path: Path) -> None:
    write(tmp_path / "t_1.npz")
    (tmp_path / "t_1.npz.done").touch()
    assert names(source_of(tmp_path)) == ["t_1.npz"]
    assert names(source_of(tmp_path / "t_1.npz")) == ["t_1.npz"]


def test_the_spool_keeps_theta_by_content_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "t_5.npz")
    write(tmp_path / "t_6.safetensors")
    spool = Spool(tmp_path / "spool")
    first = spool.add(SeenCheckpoint(uri=str(tmp_path / "t_5.npz"), reader="npz", index=5), NpzReader())
    second = spool.add(
        SeenCheckpoint(uri=str(tmp_path / "t_6.safetensors"), reader="safetensors", index=6), SafetensorsReader()
    )
    assert first.sha256 == second.sha256 == theta_sha256({name: np.asarray(leaf) for name, leaf in THETA.items()})
    assert (first.outer_step, second.outer_step) == (5, 6)
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [f"{first.sha256}.npz"]
    loaded = load_theta(spool.copy_path(first.sha256))
    np.testing.assert_array_equal(loaded["nn/~/w0"], THETA["nn/~/w0"])
    spool.remove_leftovers(set())
    assert list((tmp_path / "spool").iterdir()) == []


class Sweeping(NpzReader):
    """A reader under which somebody removes the whole spool, the first few times."""

    def __init__(self, spool: Path, times: int) -> None:
        super().__init__()
        self.spool, self.left = spool, times

    def read(self, path: epath.Path) -> CheckpointContent:
        if self.left:
            self.left -= 1
            shutil.rmtree(self.spool)
        return super().read(path)


def test_a_spool_that_is_removed_under_a_copy_is_filled_again(tmp_path: Path) -> None:
    write(tmp_path / "t.npz")
    spool, seen = Spool(tmp_path / "spool"), SeenCheckpoint(uri=str(tmp_path / "t.npz"), reader="npz")
    assert spool.copy_path(spool.add(seen, Sweeping(tmp_path / "spool", 2)).sha256).exists()
    with pytest.raises(CheckpointError, match=re.escape(seen.uri)):
        spool.add(seen, Sweeping(tmp_path / "spool", 100))


def test_a_damaged_copy_is_noticed(tmp_path: Path) -> None:
    write(tmp_path / "t.npz")
    spool = Spool(tmp_path / "spool")
    checkpoint = spool.add(SeenCheckpoint(uri=str(tmp_path / "t.npz"), reader="npz"), NpzReader())
    path = spool.copy_path(checkpoint.sha256)
    np.savez(path, paths=np.asarray(["decay"]), leaf0=np.float32(9))
    with pytest.raises(CheckpointError, match="damaged"):
        load_theta(path)


class Deleting(NpzReader):
    """A reader under which the trainer deletes its checkpoint."""

    def __init__(self, victim: Path) -> None:
        super().__init__()
        self._victim = victim

    def read(self, path: epath.Path):  # type: ignore[no-untyped-def]
        self._victim.unlink()
        return super().read(path)


def test_deleted_before_the_copy_it_is_gone_and_after_it_it_is_ours(tmp_path: Path) -> None:
    write(tmp_path / "t.npz")
    spool = Spool(tmp_path / "spool")
    seen = SeenCheckpoint(uri=str(tmp_path / "t.npz"), reader="npz")
    checkpoint = spool.add(seen, Deleting(tmp_path / "t.npz"))
    assert load_theta(spool.copy_path(checkpoint.sha256))
    with pytest.raises(CheckpointGone, match=SHOWN["t-npz-the-checkpoint-was"]):
        spool.add(seen, NpzReader())
    assert [path.name for path in (tmp_path / "spool").iterdir()] == [f"{checkpoint.sha256}.npz"]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("params_6", 6), ("theta_0006.npz", 6), ("0006", 6), ("6.npz", 6), ("step6.npz", 6), ("run-2-step=6.npz", 6),
        ("Epoch12.npz", 12), ("name6.theta.state", None), ("v2.npz", None), ("mlp32x64.npz", None), ("theta.npz", None),
    ],
)  # fmt: skip
def test_a_number_in_a_name_counts_after_a_separator(name: str, index: int | None) -> None:
    assert index_in_name(name) == index
