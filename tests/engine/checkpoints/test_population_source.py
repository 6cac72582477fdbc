"""A population's folder as a source, on real files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from lobench.core.checkpoint import SeenCheckpoint
from lobench.engine.checkpoints.population_source import PopulationSource, RunsSource
from lobench.engine.checkpoints.readers import load_readers
from lobench.engine.checkpoints.spool import Spool
from lobench.hookspecs import SourceContext, Unfinished
from lobench.plugins import load_plugins

READERS = load_readers(load_plugins(), allow_pickle=False)


def publish(path: Path, *, done: bool = True, **counters: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{"theta/w": np.float32(len(path.parts)), **counters})  # type: ignore[arg-type]
    if done:
        path.with_name(path.name + ".done").touch()


def source_of(path: Path, kind: type[PopulationSource] = PopulationSource) -> PopulationSource:
    return kind(SourceContext(location=str(path), readers=READERS))


def places(found: object, root: Path) -> list[tuple[str, int | None, str]]:
    assert isinstance(found, list | tuple)
    return [(seen.run, seen.generation, os.path.relpath(seen.uri, root)) for seen in found]


def test_a_link_to_a_folder_that_it_lies_in_is_no_folder_of_its_own(tmp_path: Path) -> None:
    publish(tmp_path / "run/theta_1.npz")
    publish(tmp_path / "other/theta_2.npz")
    (tmp_path / "run/generation_1").symlink_to(tmp_path / "run")
    (tmp_path / "run/generation_2").symlink_to(tmp_path)
    (tmp_path / "run/generation_3").symlink_to(tmp_path / "other")
    found = places(source_of(tmp_path / "run").poll(), tmp_path / "run")
    assert found == [("", None, "theta_1.npz"), ("", 3, "generation_3/theta_2.npz")]


def test_the_declared_source_finds_trials_in_order_and_each_checkpoint_once(tmp_path: Path) -> None:
    for trial, generation in ((1, 0), (2, 0), (10, 1), (9, 1)):
        publish(tmp_path / f"generation_{generation}/trial_{trial}/attempt_0/theta_5.npz")
    publish(tmp_path / "theta_3.npz")
    publish(tmp_path / "notes" / "data_1.npz")
    source = (
        load_plugins()
        .find("lobench_checkpoint_sources", "directory", kind="source")
        .load()(SourceContext(location=str(tmp_path), readers=READERS))
    )
    expected = [("", None, "theta_3.npz")] + [
        (f"trial_{trial}", generation, f"generation_{generation}/trial_{trial}/attempt_0/theta_5.npz")
        for trial, generation in ((1, 0), (2, 0), (9, 1), (10, 1))
    ]
    assert places(source.poll(), tmp_path) == expected
    assert source.poll() == []


@pytest.mark.parametrize("age", [0, 100])
def test_a_new_checkpoint_in_an_old_folder_is_found(tmp_path: Path, age: int) -> None:
    """Whether the folder was written a moment ago, or is so old that it is not looked into any more."""
    source, folder = source_of(tmp_path), tmp_path / "generation_0" / "trial_1"
    publish(folder / "theta_1.npz")
    for path in (folder, folder.parent):
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    assert len(source.poll()) == 1
    assert source.poll() == []
    publish(folder / "theta_2.npz")
    assert [seen.index for seen in source.poll()] == [2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read a folder")
def test_a_folder_that_may_not_be_read_hides_no_other() -> None:
    """A watch under another account than one of the trainers'; and each folder is found once it may be read."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        root = Path(folder)
        root.chmod(0o755)
        for trial in (1, 2, 3):
            publish(root / f"generation_0/trial_{trial}/theta_1.npz")
        closed, source = root / "generation_0" / "trial_2", source_of(root)
        source_of(root).poll()  # what is imported when it is used, is
        closed.chmod(0)
        os.seteuid(65534)
        try:
            found, why = source.poll(), source.pending()
        finally:
            os.seteuid(0)
        assert [seen.run for seen in found] == ["trial_1", "trial_3"]
        assert why == {str(closed): Unfinished(reason="Permission denied")}
        closed.chmod(0o755)
        assert [seen.run for seen in source.poll()] == ["trial_2"]
        assert source.pending() == {}


def test_what_is_being_written_is_pending_and_then_found(tmp_path: Path) -> None:
    root = tmp_path / "population"
    source, path = source_of(root), root / "trial_1" / "theta_1.npz"
    publish(path, done=False)
    os.utime(path.parent, (0, 0))
    assert source.poll() == []
    assert source.pending()[str(path)].is_awaited
    assert len(source.poll()) == 1
    assert source.pending() == {}


def test_a_folder_that_is_removed_is_no_longer_pending(tmp_path: Path) -> None:
    root = tmp_path / "population"
    source, path = source_of(root), root / "trial_1" / "theta_1.npz"
    publish(path, done=False)
    source.poll()
    path.unlink()
    path.parent.rmdir()
    assert source.poll() == []
    assert source.pending() == {}


def test_a_single_checkpoint_and_nothing_yet(tmp_path: Path) -> None:
    publish(tmp_path / "theta.npz")
    assert len(source_of(tmp_path / "theta.npz").poll()) == 1
    assert source_of(tmp_path / "later").poll() == []


def test_folders_of_any_name_are_runs_where_one_asks_for_it(tmp_path: Path) -> None:
    publish(tmp_path / "mlp" / "seed_1" / "theta_1.npz")
    publish(tmp_path / "mlp" / "theta_1.npz")
    publish(tmp_path / "lobench" / "quick" / "theta_1.npz")
    found = places(source_of(tmp_path, RunsSource).poll(), tmp_path)
    assert found == [("mlp", None, "mlp/theta_1.npz"), ("mlp/seed_1", None, "mlp/seed_1/theta_1.npz")]
    assert source_of(tmp_path).poll() == []


@pytest.mark.parametrize(("counters", "expected"), [({}, 4), ({"generation": 2}, 2)])
def test_the_generation_is_the_contents_else_the_places(
    tmp_path: Path, counters: dict[str, int], expected: int
) -> None:
    publish(tmp_path / "run" / "generation_4" / "trial_1" / "theta_7.npz", **counters)
    (seen,) = source_of(tmp_path / "run").poll()
    assert isinstance(seen, SeenCheckpoint)
    checkpoint = Spool(tmp_path / "spool").add(seen, READERS[seen.reader])
    assert (checkpoint.run, checkpoint.generation, checkpoint.outer_step) == ("trial_1", expected, 7)
