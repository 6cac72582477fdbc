"""Checkpoints that are taken as they are: none is taken early, each is taken once, and a copy costs no bytes."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from disks import on_another_file_system
from etils import epath
from safetensors.numpy import save
from shown import texts_of

from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.errors import CheckpointError
from lobench.engine.checkpoints.file_spool import FileSpool
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.checkpoints.spool import holds_theta
from lobench.engine.checkpoints.whole_files import BY_CONTENT, BY_NAMES, identity_of_files, opaque_readers
from lobench.engine.store.bundle import has_ledger
from lobench.evaluation.request import RewrittenCheckpoint
from lobench.hookspecs import SourceContext
from lobench.pytest_plugin.commanded import CheckpointFiles

SHOWN = texts_of("checkpoints")


def torch_file(folder: str = "archive", tensor: bytes = b"y" * 20) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{folder}/data.pkl", b"x" * 100)
        archive.writestr(f"{folder}/data/0", tensor)
    return buffer.getvalue()


WEIGHTS = save({"w": np.arange(8.0)})
INDEX = json.dumps({"weight_map": {"w": "model-1.safetensors", "v": "model-2.safetensors"}}).encode()
# By trainer: the name of the checkpoint, and its files in the order in which it writes them.
TRAINERS: dict[str, tuple[str, list[tuple[str, bytes]]]] = {
    "hugging face": (
        "checkpoint-500",
        [
            ("checkpoint-500/config.json", b"{}"),
            ("checkpoint-500/model.safetensors.index.json", INDEX),
            ("checkpoint-500/model-1.safetensors", WEIGHTS),
            ("checkpoint-500/model-2.safetensors", WEIGHTS),
            ("checkpoint-500/optimizer.pt", torch_file()),
            ("checkpoint-500/rng_state.pth", torch_file()),
            ("checkpoint-500/trainer_state.json", b'{"global_step": 500}'),
        ],
    ),
    "lightning": ("epoch=1-step=500.ckpt", [("epoch=1-step=500.ckpt", torch_file())]),
    "torch": ("model_500.pt", [("model_500.pt", torch_file())]),
    "distributed": (
        "step-500",
        [
            ("step-500/__0_0.distcp", b"x" * 50),
            ("step-500/__1_0.distcp", b"x" * 50),
            ("step-500/.metadata", pickle.dumps({"w": (8,)})),
        ],
    ),
    "deepspeed": (
        "global_step500",
        [
            ("global_step500/mp_rank_00_model_states.pt", torch_file()),
            ("global_step500/zero_pp_rank_0_optim_states.pt", torch_file()),
            ("latest", b"global_step500"),
        ],
    ),
    "megatron": (
        "iter_0000500",
        [
            ("iter_0000500/mp_rank_00/model_optim_rng.pt", torch_file()),
            ("iter_0000500/mp_rank_01/model_optim_rng.pt", torch_file()),
            ("latest_checkpointed_iteration.txt", b"500"),
        ],
    ),
    "orbax": (  # in an object store; on a disk it renames the folder at the end
        "500",
        [
            ("500/_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": null}'),
            ("500/d/0", b"x" * 50),
            ("500/_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": 7}'),
        ],
    ),
}
EARLIER = {"latest": b"global_step400", "latest_checkpointed_iteration.txt": b"400"}


def half_written(folder: Path, files: list[tuple[str, bytes]]) -> Iterator[str]:
    """Writes files one after another, and yields each time that one is half-written or the next one is missing."""
    for place, (name, content) in enumerate(files):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for length in (0, len(content) // 2):
            path.write_bytes(content[:length])
            yield f"{length} bytes of {name}"
        path.write_bytes(content)
        if place + 1 < len(files):
            yield f"after {name}"


@pytest.mark.parametrize("trainer", TRAINERS)
def test_source_takes_a_checkpoint_once_and_never_early(tmp_path: Path, trainer: str) -> None:
    name, files = TRAINERS[trainer]
    for latest, content in EARLIER.items():
        if latest in dict(files):
            (tmp_path / latest).write_bytes(content)
    source = DirectorySource(SourceContext(location=str(tmp_path), readers=opaque_readers()))
    for state in half_written(tmp_path, files):
        assert [*source.poll(), *source.poll()] == [], state
    found = [*source.poll(), *source.poll(), *source.poll()]
    assert [(Path(one.uri).name, one.index) for one in found] == [(name, 500)]


def save_distributed(folder: Path) -> str:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as distributed

    distributed.save({"w": torch.ones(8)}, checkpoint_id=folder / "step-500", no_dist=True)
    return "step-500"


def save_torch(folder: Path) -> str:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(8)}, folder / "model_500.pt")
    return "model_500.pt"


def save_orbax(folder: Path) -> str:
    import orbax.checkpoint

    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "500", {"w": np.ones(8)})
    return "500"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("saved", [save_torch, save_distributed, save_orbax])
def test_source_takes_what_a_library_wrote_once_and_never_early(tmp_path: Path, saved: Callable[[Path], str]) -> None:
    written, run = tmp_path / "written", tmp_path / "run"
    written.mkdir()
    run.mkdir()
    name = saved(written)
    paths = [path for path in sorted(written.rglob("*"), key=lambda path: path.stat().st_mtime_ns) if path.is_file()]
    files = [(path.relative_to(written).as_posix(), path.read_bytes()) for path in paths]
    source = DirectorySource(SourceContext(location=str(run), readers=opaque_readers()))
    if saved is save_orbax:  # writes into a folder of another name
        files = [(f"{place.replace('500/', '500.orbax-checkpoint-tmp/', 1)}", content) for place, content in files]
    for state in half_written(run, files):
        assert [*source.poll(), *source.poll()] == [], state
    if saved is save_orbax:
        assert not source.poll()
        (run / "500.orbax-checkpoint-tmp").rename(run / "500")
    found = [*source.poll(), *source.poll(), *source.poll()]
    assert [(Path(one.uri).name, one.index) for one in found] == [(name, 500)]


def test_folder_of_an_unknown_trainer_is_complete_when_a_pattern_says_so(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    (tmp_path / "best/weights.bin").write_text("x")
    source = DirectorySource(SourceContext(location=str(tmp_path), readers=opaque_readers("done.*")))
    assert not source.poll()
    (tmp_path / "best/done.txt").touch()
    assert [Path(one.uri).name for one in source.poll()] == ["best"]


def test_folder_that_names_run_and_checkpoints_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1/trainer_state.json").write_text("{}")
    assert not opaque_readers()["folder"].recognises(epath.Path(tmp_path))
    source = DirectorySource(SourceContext(location=str(tmp_path), readers=opaque_readers()))
    assert [Path(one.uri).name for one in source.poll()] == ["checkpoint-1"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "run/checkpoint-5"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner/model.safetensors").write_bytes(WEIGHTS)
    (folder / "trainer_state.json").write_text("{}")
    return folder


def taken(spool: FileSpool, path: Path) -> str:
    readers = opaque_readers()
    return spool.add(SeenCheckpoint(uri=str(path), reader="folder", index=5), readers["folder"]).sha256


def test_spool_links_a_checkpoint_and_keeps_it_after_the_trainer_removed_it(tmp_path: Path, checkpoint: Path) -> None:
    spool = FileSpool(tmp_path / "spool")
    sha256 = taken(spool, checkpoint)
    kept = Path(spool.copy_location(sha256))
    assert spool.has_copy(sha256) and kept.name == "checkpoint-5"
    assert os.stat(kept / "inner/model.safetensors").st_ino == os.stat(checkpoint / "inner/model.safetensors").st_ino
    assert identity_of_files(epath.Path(kept)) == identity_of_files(epath.Path(checkpoint))
    assert identity_of_files(epath.Path(kept)).hash_origin == BY_CONTENT and holds_theta(checkpoint, sha256)
    for file in ("inner/model.safetensors", "trainer_state.json"):
        (checkpoint / file).unlink()
    assert (kept / "inner/model.safetensors").read_bytes() == WEIGHTS
    spool.remove_leftovers({sha256})
    assert FileSpool(tmp_path / "spool").copy_location(sha256) == str(kept)
    spool.remove_copy(sha256)
    assert not spool.has_copy(sha256) and not list((tmp_path / "spool").iterdir())


def test_spool_refuses_a_half_written_file_and_leaves_nothing(tmp_path: Path, checkpoint: Path) -> None:
    (checkpoint / "inner/model.safetensors").write_bytes(WEIGHTS[:-1])
    spool = FileSpool(tmp_path / "spool")
    with pytest.raises(CheckpointError, match=SHOWN["inner-model-safetensors-it-is"].format(checkpoint=checkpoint)):
        taken(spool, checkpoint)
    assert not list((tmp_path / "spool").iterdir())


def test_spool_keeps_twenty_gigabytes_in_a_moment(tmp_path: Path, checkpoint: Path) -> None:
    with (checkpoint / "optimizer.bin").open("wb") as file:
        file.truncate(20 << 30)
    free, began = os.statvfs(tmp_path).f_bavail, time.process_time()
    spool = FileSpool(tmp_path / "spool")
    sha256 = taken(spool, checkpoint)
    assert time.process_time() - began < 1.0 and free - os.statvfs(tmp_path).f_bavail < 1 << 15
    assert identity_of_files(epath.Path(spool.copy_location(sha256))).hash_origin == BY_NAMES
    os.utime(checkpoint / "optimizer.bin", (1, 1))
    assert identity_of_files(epath.Path(checkpoint)).sha256 != sha256


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Folder on another file system, to which nothing can be linked."""
    with tempfile.TemporaryDirectory(dir=on_another_file_system(tmp_path)) as folder:
        yield Path(folder)


@pytest.mark.parametrize("limit", [1e3, 1e9])
def test_spool_on_another_file_system_copies_up_to_a_limit_and_refers_above(
    elsewhere: Path, checkpoint: Path, limit: float
) -> None:
    lines: list[str] = []
    (checkpoint / "optimizer.bin").write_bytes(b"x" * 10_000)
    spool = FileSpool(elsewhere / "spool", lines.append, keep_limit=limit)
    sha256 = taken(spool, checkpoint)
    kept = Path(spool.copy_location(sha256))
    assert identity_of_files(epath.Path(kept)) == identity_of_files(epath.Path(checkpoint))
    assert kept.is_symlink() == (limit == 1e3) and len(lines) == (limit == 1e3)
    CheckpointFiles(str(kept)).check()
    shutil.rmtree(checkpoint)
    assert spool.has_copy(sha256) == (limit == 1e9)
    spool.remove_copy(sha256)
    assert not list((elsewhere / "spool").iterdir())


def test_spool_takes_a_referred_checkpoint_again_that_was_away(elsewhere: Path, checkpoint: Path) -> None:
    spool = FileSpool(elsewhere / "spool", keep_limit=0)
    sha256 = taken(spool, checkpoint)
    checkpoint.rename(checkpoint.with_name("other-5"))
    assert not spool.has_copy(sha256)
    assert taken(spool, checkpoint.with_name("other-5")) == sha256 and spool.has_copy(sha256)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read a file")
def test_file_that_may_not_be_read_is_named_and_not_the_spool(elsewhere: Path) -> None:
    with tempfile.TemporaryDirectory() as run:  # pytest's own folders are closed to others
        for folder in (Path(run), elsewhere):
            folder.chmod(0o755)
        (checkpoint := Path(run) / "step_5.pt").write_bytes(torch_file())
        spool = FileSpool(elsewhere / "spool")
        (elsewhere / "spool").chmod(0o777)
        taken(spool, checkpoint)  # imports what is imported when it is used
        checkpoint.write_bytes(torch_file(tensor=b"z" * 20))
        checkpoint.chmod(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises(CheckpointError, match="Permission denied") as refused:
                taken(spool, checkpoint)
        finally:
            os.seteuid(0)
    assert str(checkpoint) in str(refused.value)


def test_link_that_the_trainer_rewrites_is_noticed(tmp_path: Path, checkpoint: Path) -> None:
    spool = FileSpool(tmp_path / "spool")
    path = spool.copy_location(taken(spool, checkpoint))
    files = CheckpointFiles(path)
    files.check()
    assert files.identified_by == BY_CONTENT
    (checkpoint / "trainer_state.json").write_text('{"rewritten": true}')
    with pytest.raises(RewrittenCheckpoint, match=SHOWN["rewritten-in-place-during-the"]):
        files.check()
    with pytest.raises(RewrittenCheckpoint, match=SHOWN["rewritten-in-place-since-it"]):
        CheckpointFiles(path)


def test_identity_of_files_ignores_place_and_own_name(tmp_path: Path, checkpoint: Path) -> None:
    before = identity_of_files(epath.Path(checkpoint))
    moved = checkpoint.rename(tmp_path / "other")
    assert identity_of_files(epath.Path(moved)) == before
    (moved / "trainer_state.json").rename(moved / "state.json")
    assert identity_of_files(epath.Path(moved)) != before


def test_torch_files_of_one_state_have_one_identity_and_are_no_bundles(tmp_path: Path) -> None:
    """`torch.save` writes the file's name into the archive."""
    states = {
        "ckpt_20.pt": torch_file("ckpt_20"),
        "last.pt": torch_file("last"),
        "ckpt_40.pt": torch_file("ckpt_40", b"z" * 20),
        "damaged.pt": torch_file("last").replace(b"y" * 20, b"z" * 20),
    }
    for name, content in states.items():
        (tmp_path / name).write_bytes(content)
    found = {name: identity_of_files(epath.Path(tmp_path / name)).sha256 for name in states}
    assert found["ckpt_20.pt"] == found["last.pt"]
    assert len({*found.values()}) == 3
    assert not any(has_ledger(tmp_path / name) for name in states)  # which `compare` reads as stores
