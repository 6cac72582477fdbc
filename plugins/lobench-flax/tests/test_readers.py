"""The readers against what flax and orbax really write."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import flax.serialization
import flax.struct
import flax.training.checkpoints
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from lobench_flax.msgpack_reader import MsgpackReader
from lobench_flax.orbax_reader import OrbaxReader
from shown import texts_of

from lobench import CheckpointError
from lobench.core.checkpoint import theta_sha256
from lobench.engine.checkpoints.readers import load_checkpoint, load_readers
from lobench.engine.checkpoints.source import DirectorySource
from lobench.extend import CheckpointContent
from lobench.hookspecs import SourceContext
from lobench.plugins import load_plugins

SHOWN = texts_of("flax")

THETA = {"nn": {"w": jnp.arange(6.0).reshape(2, 3), "layers": [jnp.zeros(2), jnp.ones(1)]}, "t": (jnp.float32(3),)}
PATHS = {"nn/w": (2, 3), "nn/layers/0": (2,), "nn/layers/1": (1,), "t/0": ()}


def check(content: CheckpointContent) -> None:
    assert {path: leaf.shape for path, leaf in content.leaves.items()} == PATHS
    np.testing.assert_array_equal(content.leaves["nn/w"], np.arange(6.0).reshape(2, 3))


@flax.struct.dataclass
class ParameterCheckpoint:
    params: Any
    gen_id: Any
    step: Any


def write_orbax(layout: str, folder: Path) -> Path:
    if layout == "standard":
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(folder / "5", THETA)
        checkpointer.wait_until_finished()
        return folder / "5"
    if layout == "plain zarr":
        checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
        checkpointer.save(folder / "5", THETA)
        return folder / "5"
    with ocp.CheckpointManager(folder) as manager:
        save = ocp.args.StandardSave(THETA)
        if layout == "items":
            save = ocp.args.Composite(theta=save, progress=ocp.args.JsonSave({"step": 90, "generation": 2}))
        manager.save(5, args=save)
        manager.wait_until_finished()
    return folder / "5"


@pytest.mark.parametrize("layout", ["standard", "plain zarr", "manager", "items"])
def test_orbax_layouts(layout: str, tmp_path: Path) -> None:
    path = epath.Path(write_orbax(layout, tmp_path))
    reader = OrbaxReader()
    assert reader.recognises(path) and reader.is_complete(path)
    content = reader.read(path)
    check(content)
    assert (content.outer_step, content.generation) == ((90, 2) if layout == "items" else (None, None))


COMMITS = ("commit_success.txt", "_CHECKPOINT_METADATA")
NOT_NEEDED = ("array_metadatas", "_sharding")


def without(path: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        for entry in list(path.rglob(name)):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return path


def let_settle(path: Path) -> None:
    """Makes all that is below a folder an hour old."""
    for entry in (path, *path.rglob("*")):
        os.utime(entry, (time.time() - 3600,) * 2)


def source_of(path: Path) -> DirectorySource:
    return DirectorySource(SourceContext(location=str(path), readers=load_readers(load_plugins(), allow_pickle=False)))


@pytest.mark.parametrize("layout", ["standard", "manager", "items"])
@pytest.mark.parametrize("missing", [COMMITS, (*COMMITS, *NOT_NEEDED), "uncommitted"])
def test_what_orbax_loads_without_a_commit_is_read_once_it_has_settled(
    layout: str, missing: Any, tmp_path: Path
) -> None:
    path = without(write_orbax(layout, tmp_path), COMMITS if missing == "uncommitted" else missing)
    if missing == "uncommitted":
        (path / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1}')
    assert not OrbaxReader().is_complete(epath.Path(path)), "it may be half of what it will be"
    source = source_of(tmp_path)
    assert source.poll() == [] and source.pending()[str(path)].is_awaited
    let_settle(path)
    assert [seen.uri for seen in source.poll()] == [str(path)]
    check(OrbaxReader().read(epath.Path(path)))


def test_given_by_path_it_is_waited_for_by_the_same_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = without(write_orbax("standard", tmp_path), COMMITS)
    waits = []
    monkeypatch.setattr("time.sleep", lambda seconds: waits.append(seconds) or let_settle(path))
    checkpoint, _ = load_checkpoint(str(path), load_plugins(), allow_pickle=False)
    assert (checkpoint.outer_step, len(waits)) == (5, 1)
    (path / "default.orbax-checkpoint-tmp").mkdir()
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with pytest.raises(CheckpointError, match="half-written"):
        load_checkpoint(str(path), load_plugins(), allow_pickle=False)


def test_data_that_is_missing_is_no_zero(tmp_path: Path) -> None:
    path = write_orbax("plain zarr", tmp_path)
    for chunk in ("0", "0.0"):
        for file in path.rglob(chunk):
            if file.is_file():
                file.unlink()
    with pytest.raises(CheckpointError, match=SHOWN["cannot-read-it-as-an"]):
        OrbaxReader().read(epath.Path(path))


def test_every_kind_of_leaf_that_orbax_writes(tmp_path: Path) -> None:
    tree = {"theta": THETA, "name": "adam", "nested": {"name": "x"}, "rate": 0.5, "none": None, "empty": {}, "step": 3}
    ocp.PyTreeCheckpointer().save(tmp_path / "5", tree)
    content = OrbaxReader().read(epath.Path(tmp_path / "5"))
    assert set(content.leaves) == {f"theta/{path}" for path in PATHS} | {"rate", "step"}
    assert content.outer_step == 3


def test_of_several_items_all_are_read_and_the_optimizer_says_which_is_theta(tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path) as manager:
        items = {"ema": ocp.args.StandardSave(THETA), "state": ocp.args.StandardSave({"mu": THETA})}
        manager.save(5, args=ocp.args.Composite(**items, at=ocp.args.JsonSave({"step": 90})))
        manager.wait_until_finished()
    content = OrbaxReader().read(epath.Path(tmp_path / "5"))
    assert set(content.leaves) == {f"{item}/{path}" for item in ("ema", "state/mu") for path in PATHS}
    assert content.outer_step == 90


@pytest.mark.parametrize("generation", ["7", "no_gen_id"])
def test_learned_optimization_writes_orbax_directories_since_flax_does(tmp_path: Path, generation: str) -> None:
    checkpoint = ParameterCheckpoint(params=THETA, gen_id=generation, step=jnp.int32(30))
    flax.training.checkpoints.save_checkpoint(str(tmp_path), checkpoint, 2, prefix="params_")
    path = epath.Path(tmp_path / "params_2")
    assert path.is_dir() and OrbaxReader().is_complete(path)
    content = OrbaxReader().read(path)
    check(content)
    assert (content.outer_step, content.generation) == (30, 7 if generation == "7" else None)
    as_file = tmp_path / "params_3"
    as_file.write_bytes(flax.serialization.to_bytes(checkpoint))
    assert theta_sha256(MsgpackReader().read(epath.Path(as_file)).leaves) == theta_sha256(content.leaves)


def test_the_state_of_its_meta_optimizer_is_left_alone_where_params_lie_beside_it(tmp_path: Path) -> None:
    state = {"gradient_learner_state": {"theta_opt_state": {"params": THETA, "mu": THETA}}}
    for name in ("checkpoint_0", "checkpoint_1", "params_0"):
        (tmp_path / name).write_bytes(flax.serialization.to_bytes({"params": THETA} if "params" in name else state))
    assert [Path(seen.uri).name for seen in source_of(tmp_path).poll()] == ["params_0"]
    (tmp_path / "params_0").unlink()
    assert [Path(seen.uri).name for seen in source_of(tmp_path).poll()] == ["checkpoint_0", "checkpoint_1"]


def test_an_orbax_directory_with_a_temporary_item_is_not_complete(tmp_path: Path) -> None:
    path = write_orbax("manager", tmp_path)
    (path / "default.orbax-checkpoint-tmp").mkdir()
    assert not OrbaxReader().is_complete(epath.Path(path))


@pytest.mark.parametrize("how", ["missing", "cut off"])
@pytest.mark.parametrize("file", ["default/manifest.ocdbt", "default/d/*", "default/_METADATA"])
def test_what_is_missing_of_an_orbax_directory_is_named(tmp_path: Path, file: str, how: str) -> None:
    path = Path(write_orbax("manager", tmp_path))
    (found,) = path.glob(file)
    content = found.read_bytes()
    found.unlink() if how == "missing" else found.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=found.name) as caught:
        OrbaxReader().read(epath.Path(path))
    assert "NOT_FOUND" not in str(caught.value) and SHOWN["local-file"] not in str(caught.value)


def test_msgpack_theta_and_the_checkpoint_of_learned_optimization(tmp_path: Path) -> None:
    raw = tmp_path / "theta.msgpack"
    raw.write_bytes(flax.serialization.to_bytes(THETA))
    check(MsgpackReader().read(epath.Path(raw)))
    wrapped = tmp_path / "params_3"
    checkpoint = ParameterCheckpoint(params=THETA, gen_id="7", step=np.int64(120))
    wrapped.write_bytes(flax.serialization.to_bytes(checkpoint))
    content = MsgpackReader().read(epath.Path(wrapped))
    check(content)
    assert (content.outer_step, content.generation) == (120, 7)


def test_chunked_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 64)
    path = tmp_path / "theta.msgpack"
    path.write_bytes(flax.serialization.msgpack_serialize({"w": np.arange(100, dtype=np.float32).reshape(10, 10)}))
    leaf = MsgpackReader().read(epath.Path(path)).leaves["w"]
    np.testing.assert_array_equal(leaf, np.arange(100, dtype=np.float32).reshape(10, 10))


READ = """
import sys
from etils import epath
from lobench_flax.orbax_reader import OrbaxReader
OrbaxReader().read(epath.Path(sys.argv[1]))
assert "jax" not in sys.modules, "reading imported jax"
"""


def test_reading_needs_no_jax(tmp_path: Path) -> None:
    path = write_orbax("standard", tmp_path)
    subprocess.run([sys.executable, "-c", READ, str(path)], check=True)
