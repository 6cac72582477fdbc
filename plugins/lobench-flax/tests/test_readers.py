"""The readers against what flax and orbax really write."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.serialization
import flax.struct
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from lobench_flax.msgpack_reader import MsgpackReader
from lobench_flax.orbax_reader import OrbaxReader

from lobench import CheckpointContent, CheckpointError

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


def test_orbax_metadata_alone_proves_nothing(tmp_path: Path) -> None:
    path = write_orbax("manager", tmp_path)
    for marker in path.rglob("commit_success.txt"):
        marker.unlink()
    (path / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs": 1}')
    assert not OrbaxReader().is_complete(epath.Path(path))


def test_an_orbax_directory_with_a_temporary_item_is_not_complete(tmp_path: Path) -> None:
    path = write_orbax("manager", tmp_path)
    (path / "default.orbax-checkpoint-tmp").mkdir()
    assert not OrbaxReader().is_complete(epath.Path(path))


def test_a_damaged_orbax_directory_is_one_clear_error(tmp_path: Path) -> None:
    path = write_orbax("manager", tmp_path)
    shutil.rmtree(path / "default" / "d")
    shutil.rmtree(path / "default" / "ocdbt.process_0")
    with pytest.raises(CheckpointError, match="cannot read it as an orbax checkpoint"):
        OrbaxReader().read(epath.Path(path))


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


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_truncated_msgpack_is_one_clear_error(tmp_path: Path, kept: float) -> None:
    data = flax.serialization.to_bytes(THETA)
    path = tmp_path / "theta.msgpack"
    path.write_bytes(data[: int(kept * len(data))])
    assert not MsgpackReader().is_complete(epath.Path(path))
    with pytest.raises(CheckpointError, match=r"theta\.msgpack: cannot read it as flax msgpack"):
        MsgpackReader().read(epath.Path(path))


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
