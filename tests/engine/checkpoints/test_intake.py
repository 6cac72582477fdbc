"""From a folder into the spool: once, again only when it changed, in portions."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from etils import epath
from shown import texts_of

from lobench.core.checkpoint import Checkpoint, CheckpointContent, leaves_sha256, theta_sha256
from lobench.core.subject import GivenCheckpoint, Subject
from lobench.engine.checkpoints import intake
from lobench.engine.checkpoints.files import reading
from lobench.engine.checkpoints.intake import Intake
from lobench.engine.checkpoints.population_source import PopulationSource
from lobench.engine.checkpoints.readers import NpzReader
from lobench.engine.checkpoints.source import DirectorySource, NoSource
from lobench.engine.checkpoints.spool import Spool, files_fingerprint
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.restarts import Restarts
from lobench.hookspecs import CheckpointSource, SourceContext
from lobench.report.tables.result_records import unread_records

SHOWN = texts_of("checkpoints")


class CountingReader(NpzReader):
    def __init__(self) -> None:
        super().__init__()
        self.read_paths: list[str] = []

    def read(self, path: epath.Path) -> CheckpointContent:
        self.read_paths.append(path.name)
        return super().read(path)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class FailingDisk(NpzReader):
    """Answers an error number instead of a checkpoint, for some attempts or until `number` is 0."""

    def __init__(self, number: int, times: int = 1_000_000) -> None:
        super().__init__()
        self.number, self.times, self.attempts = number, times, 0

    def read(self, path: epath.Path) -> CheckpointContent:
        self.attempts += 1
        if self.number and self.attempts <= self.times:
            with reading(path, "npz"):
                raise OSError(self.number, os.strerror(self.number))
        return super().read(path)


class Start:
    """One start of a chief, as far as checkpoints go."""

    def __init__(
        self,
        folder: Path,
        make_source: Callable[[SourceContext], CheckpointSource] = DirectorySource,
        *,
        only_newest: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reader, self.output = CountingReader(), []
        readers = {"npz": self.reader}
        self.source = make_source(SourceContext(location=str(folder / "run"), readers=readers))
        self.ledger = Ledger.open(folder / "store")
        self.spool = Spool(folder / "store" / "spool")
        self.intake = Intake(
            ledger=self.ledger,
            spool=self.spool,
            source=self.source,
            readers=readers,
            log=self.output.append,
            only_newest=only_newest,
            clock=clock,
        )

    def take_all(self) -> list[int]:
        steps = [checkpoint.outer_step for _, checkpoint in self.intake.poll()[1]]
        while self.intake.num_unprocessed:
            steps += [checkpoint.outer_step for _, checkpoint in self.intake.poll()[1]]
        return steps


def write(folder: Path, step: int, value: float) -> Path:
    path = folder / "run" / f"theta_{step}.npz"
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=np.float32(value))
    path.with_name(f"{path.name}.done").touch()
    return path


def watch_steps(folder: Path, *steps: int) -> None:
    """Writes checkpoints of steps, and lets a watch take them all and end."""
    for step in steps:
        write(folder, step, step)
    start = Start(folder)
    start.take_all()
    start.ledger.close()


def test_a_restart_reads_what_is_new_or_changed_and_nothing_else(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step, step)
    first = Start(tmp_path)
    assert first.take_all() == [1, 2, 3]
    first.ledger.close()
    same_size = write(tmp_path, 2, 20.0)
    write(tmp_path, 4, 4.0)
    second = Start(tmp_path)
    assert second.take_all() == [2, 4]
    assert second.reader.read_paths == [same_size.name, "theta_4.npz"]
    second.ledger.close()


def test_the_spools_names_are_on_the_disk_once_for_all_before_the_ledger_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, synced = Start(tmp_path), []

    def sync(folder: Path) -> None:
        with contextlib.closing(start.ledger.open_reader()) as reader:
            synced.append((folder.name, len(list(folder.glob("*.npz"))), len(reader.sightings())))

    monkeypatch.setattr("lobench.engine.checkpoints.spool.sync", sync)
    for step in (1, 2, 3):
        write(tmp_path, step, step)
    assert start.take_all() == [1, 2, 3]
    assert start.take_all() == []
    given = write(tmp_path, 4, 4.0)
    assert start.intake.admit_given(GivenCheckpoint(uri=str(given))) is not None
    start.spool.remove_copy(theta := start.ledger.sightings()[0].sha256)
    assert start.intake.fetch_theta(start.ledger.sightings()[0]) and start.intake.has_copy(theta)
    assert synced == [("spool", 3, 0), ("spool", 4, 3), ("spool", 4, 4)]
    start.ledger.close()


def test_what_the_spool_lost_is_copied_again_where_it_can_be(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    gone = write(tmp_path, 2, 2.0)
    first = Start(tmp_path)
    first.take_all()
    checkpoints = list(first.ledger.sightings().values())
    first.ledger.close()
    shutil.rmtree(tmp_path / "store" / "spool")
    gone.unlink()
    second = Start(tmp_path)
    second.intake.recover(checkpoints)
    assert [second.intake.has_copy(checkpoint.sha256) for checkpoint in checkpoints] == [True, False]
    assert len(second.output) == 1 and second.output[0].startswith(
        SHOWN["expired-the-checkpoint-was-deleted"].format(gone=gone)
    )
    second.ledger.close()


def test_what_is_copied_again_stays_the_checkpoint_of_its_run_and_generation(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    member = tmp_path / "run" / "generation_2" / "trial_7"
    member.mkdir(parents=True)
    for name in ("theta_1.npz", "theta_1.npz.done"):
        shutil.move(tmp_path / "run" / name, member / name)
    first = Start(tmp_path, PopulationSource)
    ((_, checkpoint),) = first.intake.poll()[1]
    assert (checkpoint.run, checkpoint.generation) == ("trial_7", 2)
    first.spool.remove_copy(checkpoint.sha256)
    first.ledger.close()
    second = Start(tmp_path, PopulationSource)
    second.intake.recover([checkpoint])
    assert second.intake.has_copy(checkpoint.sha256)
    assert second.ledger.sightings() == {0: checkpoint}
    second.ledger.close()


def test_many_are_taken_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_POLL_SECONDS", 0.0)
    for step in (1, 2, 3):
        write(tmp_path, step, step)
    start = Start(tmp_path)
    assert [start.intake.poll()[0] for _ in range(4)] == [1, 1, 1, 0]
    start.ledger.close()


def test_where_only_the_newest_is_run_the_others_are_not_even_read(tmp_path: Path) -> None:
    for step in range(50):
        write(tmp_path, step, step)
    first = Start(tmp_path, only_newest=True)
    assert [checkpoint.outer_step for _, checkpoint in first.intake.poll()[1]] == [49]
    assert first.intake.num_unprocessed and not first.intake.may_find_newer, (
        "it can be evaluated while the rest is passed over"
    )
    assert first.take_all() == []
    assert len(first.output) == 1
    assert first.output[0].startswith("skipped: 49 checkpoints, ") and SHOWN["theta-0-npz-to"] in first.output[0]
    assert first.reader.read_paths == ["theta_49.npz"]
    first.ledger.close()
    second = Start(tmp_path, only_newest=True)
    assert second.take_all() == [] == second.reader.read_paths == second.output
    assert second.ledger.num_skipped() == 49
    second.ledger.close()
    write(tmp_path, 60, 60.0)
    third = Start(tmp_path, only_newest=True)
    assert third.take_all() == [60]
    third.ledger.close()
    everything = Start(tmp_path)
    assert everything.take_all() == list(range(49)), "who asks for all gets what was passed over"
    assert everything.ledger.num_skipped() == 0
    everything.ledger.close()


def test_the_newest_of_each_run_is_read(tmp_path: Path) -> None:
    for member in (1, 2):
        for step in (1, 2):
            source = write(tmp_path, step, step)
            target = tmp_path / "run" / "generation_0" / f"trial_{member}"
            target.mkdir(parents=True, exist_ok=True)
            for name in (source.name, f"{source.name}.done"):
                shutil.move(tmp_path / "run" / name, target / name)
    start = Start(tmp_path, PopulationSource, only_newest=True)
    assert start.take_all() == [2, 2]
    assert {checkpoint.run for checkpoint in start.ledger.sightings().values()} == {"trial_1", "trial_2"}
    start.ledger.close()


def test_a_theta_that_the_spool_lost_in_mid_run_is_copied_again(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 1.0)
    start = Start(tmp_path)
    start.take_all()
    (checkpoint,) = start.ledger.sightings().values()
    shutil.rmtree(tmp_path / "store" / "spool")
    assert start.intake.fetch_theta(checkpoint) and start.intake.has_copy(checkpoint.sha256)
    start.spool.remove_copy(checkpoint.sha256)
    write(tmp_path, 1, 3.0)
    assert not start.intake.fetch_theta(checkpoint), "another theta lies there now"
    path.unlink()
    assert not start.intake.fetch_theta(checkpoint) and not start.intake.fetch_theta(checkpoint)
    assert len(start.output) == 1, "said once, however often it is asked for"
    start.ledger.close()


def test_recovery_of_many_vanished_checkpoints_takes_one_commit_and_few_lines(tmp_path: Path) -> None:
    files, start = [write(tmp_path, step, step) for step in range(40)], Start(tmp_path)
    start.take_all()
    subjects = list(start.ledger.sightings().values())
    start.ledger.close()
    for file in files:
        file.unlink()
    shutil.rmtree(tmp_path / "store" / "spool")
    clock = Clock()
    start, statements = Start(tmp_path, clock=clock), list[str]()
    start.ledger.connection.set_trace_callback(statements.append)
    start.intake.recover(subjects)
    assert statements.count("COMMIT") == 1 and len(start.ledger.events("expired")) == 40
    assert len(start.output) == 4 and start.output[-1].startswith(SHOWN["and-37-checkpoints-more"])
    assert not any("FROM subjects c  ORDER" in one for one in statements), "all checkpoints are read for one"
    statements.clear()
    assert not any(map(start.intake.fetch_theta, subjects)) and not statements, "a lease looks for it again"
    clock.seconds += 60
    write(tmp_path, 7, 7)
    assert [start.intake.fetch_theta(one) for one in subjects] == [one.outer_step == 7 for one in subjects]


def test_a_released_theta_goes_unless_it_is_needed_again(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    start = Start(tmp_path)
    start.take_all()
    (checkpoint,) = start.ledger.sightings().values()
    start.intake.release_theta(checkpoint.sha256)
    start.intake.remove_released({checkpoint.sha256})
    start.intake.remove_released(())
    assert start.intake.has_copy(checkpoint.sha256)
    start.intake.release_theta(checkpoint.sha256)
    start.intake.remove_released(())
    assert not start.intake.has_copy(checkpoint.sha256)
    start.ledger.close()


@pytest.mark.skipif(os.getuid() != 0, reason="giving a file away needs root")
def test_an_owner_whom_the_machine_does_not_know(tmp_path: Path) -> None:
    os.chown(write(tmp_path, 1, 1.0), 54_321, 54_321)
    start = Start(tmp_path)
    assert start.take_all() == [1]
    start.ledger.close()


def test_what_is_no_checkpoint_however_it_is_named_is_told_and_waited_for_by_nobody(tmp_path: Path) -> None:
    run = write(tmp_path, 1, 1.0).parent
    (run / "loop_2.npz").symlink_to("loop_2.npz")
    (run / "dangling_3.npz").symlink_to("nowhere")
    (run / "up_4").symlink_to("..")
    (run / "folder_5.npz").mkdir()
    os.mkfifo(run / "pipe_6.npz")
    for name in ("loop_2.npz", "folder_5.npz", "pipe_6.npz"):
        (run / f"{name}.done").touch()
    os.rename(write(tmp_path, 7, 7.0), os.fsencode(run / "x") + b"\xff7.npz")
    (run / os.fsdecode(b"x\xff7.npz.done")).touch()
    start = Start(tmp_path)
    assert start.take_all() == [1]
    assert start.output == [SHOWN["unreadable-x-dcff7-npz-its"].format(run=run)]
    reasons = {Path(path).name: found.reason for path, found in start.source.pending().items()}
    assert not any(found.is_awaited for found in start.source.pending().values())
    assert reasons == {
        "loop_2.npz": SHOWN["too-many-levels-of-symbolic"],
        "folder_5.npz": SHOWN["half-written-its-end-is"],
        "pipe_6.npz": SHOWN["neither-a-file-nor-a"],
    }
    start.ledger.close()


def test_links_that_lead_up_inside_of_a_checkpoint_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "5"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "data").write_bytes(b"data")
    (folder / "inner" / "up").symlink_to("..")
    (folder / "also").symlink_to("inner")
    before = files_fingerprint(epath.Path(folder))
    copy = tmp_path / "new" / "copy"
    Spool(tmp_path / "spool")._copy(epath.Path(folder), copy)
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == [
        "also/data",
        "inner/data",
    ]
    os.utime(folder / "inner" / "data", (1, 1))
    assert files_fingerprint(epath.Path(folder)) != before


def test_a_number_that_no_run_can_count_to_is_no_step(tmp_path: Path) -> None:
    run = write(tmp_path, 1, 1.0).parent
    os.rename(run / "theta_1.npz", run / "theta_20260101123456789012345.npz")
    counters = {"nan": np.float32("nan"), "huge": np.uint64(2**63), "text": np.asarray("12")}
    for name, value in counters.items():
        np.savez(run / f"{name}.npz", **{"theta/x": np.float32(0), "outer_step": value})
        (run / f"{name}.npz.done").touch()
    (run / "theta_20260101123456789012345.npz.done").touch()
    start = Start(tmp_path)
    assert sorted(start.take_all()) == [0, 12]
    assert sorted(line.split(": ", 2)[2] for line in start.output) == [
        SHOWN["counter-outer-step-is-not"],
        SHOWN["counter-outer-step-is-not-a"],
    ]
    start.ledger.close()


class WithoutDescriptors(CountingReader):
    """Has no descriptor left for the first few readings, as a leak, or many workers, leave it to a chief."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def read(self, path: epath.Path) -> CheckpointContent:
        before, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
        self.times -= 1
        try:
            if self.times >= 0:
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
                with contextlib.suppress(OSError):
                    while True:
                        held.append(os.dup(0))
            return super().read(path)
        finally:
            for descriptor in held:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_good_checkpoint_waits_for_a_free_descriptor(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    clock = Clock()
    start = Start(tmp_path, clock=clock)
    start.intake._readers = {"npz": WithoutDescriptors(2)}
    assert start.take_all() == [] and start.intake.has_pending()
    assert start.take_all() == [] and start.intake.has_pending(), "no attempt within the first pause"
    clock.seconds += 0.2
    assert start.take_all() == [] and start.intake.has_pending()
    clock.seconds += 0.3
    assert start.take_all() == [1] and not start.intake.has_pending()
    assert start.take_all() == []
    assert len([line for line in start.output if SHOWN["waiting-for-a-free-file"] in line]) == 1
    assert list(start.ledger.events()) == []
    start.ledger.close()


def test_intake_disk_error_that_lasts_is_reported_once_and_tried_again_with_growing_pauses(tmp_path: Path) -> None:
    write(tmp_path, 1, 1.0)
    clock = Clock()
    start = Start(tmp_path, clock=clock)
    reader = start.intake._readers["npz"] = FailingDisk(errno.ESTALE)
    assert start.take_all() == [] and start.intake.has_pending()
    assert list(start.ledger.events()) == []
    clock.seconds += 31.0
    assert start.take_all() == [] and not start.intake.has_pending(), "a run that ends does not wait for it any more"
    assert [kind for kind, _ in start.ledger.events()] == ["unreadable"]
    assert list(start.intake.unread_reasons) == [str(tmp_path / "run" / "theta_1.npz")]
    attempts = reader.attempts
    for _ in range(1000):
        clock.seconds += 1.0
        assert start.take_all() == []
    assert 20 < reader.attempts - attempts < 60
    reader.number = 0
    clock.seconds += 30.0
    assert start.take_all() == [1] and start.intake.unread_reasons == {}
    path = tmp_path / "run" / "theta_1.npz"
    assert [line.partition(":")[0] for line in start.output] == [
        SHOWN["trying-again"],
        "unreadable",
        SHOWN["it-can-be-read-now"],
    ]
    assert all(str(path) in line for line in start.output)
    start.ledger.close()


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EACCES, errno.EMFILE, errno.ENOLCK])
def test_intake_error_that_passes_is_no_event(tmp_path: Path, number: int) -> None:
    write(tmp_path, 1, 1.0)
    write(tmp_path, 2, 2.0)
    clock = Clock()
    start = Start(tmp_path, clock=clock)
    reader = start.intake._readers["npz"] = FailingDisk(number)
    assert start.take_all() == [] and len(start.output) == 1, "one line of one outage"
    reader.number = 0
    clock.seconds += 1.0
    assert start.take_all() == [1, 2]
    assert list(start.ledger.events()) == [] and not start.intake.has_pending()
    start.ledger.close()


def test_intake_given_checkpoint_with_a_disk_error_is_read_again_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 1.0)
    start = Start(tmp_path)
    start.intake._readers["npz"] = FailingDisk(errno.EIO, times=2)
    assert start.intake.admit_given(GivenCheckpoint(uri=str(path))) is not None
    assert start.output == []
    start.ledger.close()


def test_intake_garbage_is_reported_at_once_and_read_again_later(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 1.0)
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(whole)))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    clock = Clock()
    start = Start(tmp_path, clock=clock)
    assert start.take_all() == [] and not start.intake.has_pending()
    assert list(start.intake.unread_reasons) == [str(path)]
    path.write_bytes(whole)  # the same size and time: as of a disk that showed old content
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert start.take_all() == []
    clock.seconds += 10.0
    assert start.take_all() == [1] and start.intake.unread_reasons == {}
    start.ledger.close()


def test_fetch_takes_a_theta_from_another_path_at_which_it_lies(tmp_path: Path) -> None:
    first = write(tmp_path, 1, 1.0)
    write(tmp_path, 2, 1.0)  # the same theta
    start = Start(tmp_path)
    assert start.take_all() == [1, 2]
    subject = start.ledger.sightings()[0]
    start.spool.remove_copy(subject.sha256)
    first.unlink()
    assert start.intake.fetch_theta(subject) and start.intake.has_copy(subject.sha256)
    assert list(start.ledger.events()) == [] and len(start.ledger.sightings()) == 2
    start.ledger.close()


def test_unread_records_lack_a_checkpoint_that_was_written_again_and_skipped(tmp_path: Path) -> None:
    broken = write(tmp_path, 1, 1.0)
    broken.write_bytes(b"")
    start = Start(tmp_path, only_newest=True)
    assert start.take_all() == []
    assert [record["checkpoint"]["uri"] for record in unread_records(start.ledger.events(), ())] == [str(broken)]
    write(tmp_path, 1, 1.0)
    write(tmp_path, 2, 2.0)
    assert start.take_all() == [2]
    assert list(unread_records(start.ledger.events(), ())) == []
    broken.write_bytes(b"")  # as before
    start.take_all()
    assert len(list(unread_records(start.ledger.events(), ()))) == 1
    start.ledger.close()


def test_checkpoints_that_were_not_read_before_a_move_are_known_at_their_new_paths(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    write(tmp_path / "first", 1, 1.0)
    write(tmp_path / "first", 3, 3.0)
    write(tmp_path / "first", 2, 2.0).write_bytes(b"")
    first = Start(tmp_path / "first", only_newest=True)
    first.take_all()
    write(tmp_path / "first", 4, 4.0).write_bytes(b"")
    first.take_all()
    first.ledger.record_suites({})
    assert first.ledger.num_skipped() == 2 and len(list(unread_records(first.ledger.events(), ()))) == 1
    first.ledger.close()
    (tmp_path / "first").rename(tmp_path / "second")
    write(tmp_path / "second", 4, 4.0)
    with Ledger.open(tmp_path / "second" / "store") as ledger:
        ledger.update_moved_paths(str(tmp_path / "second" / "run"))
    second = Start(tmp_path / "second", only_newest=True)
    assert second.take_all() == [4]
    read_uris = {subject.uri for subject in second.ledger.sightings().values()}
    assert second.ledger.num_skipped() == 2 and not list(unread_records(second.ledger.events(), read_uris))


def test_spool_sweep_leaves_folders_of_the_file_system_and_reports_what_stays(tmp_path: Path) -> None:
    start = Start(tmp_path)
    root = tmp_path / "store" / "spool"
    for name in (".snapshot", "lost+found", "tmp-left"):
        (root / name).mkdir()
    (root / f"{'0' * 64}.npz").touch()
    (root / f"{'1' * 64}.npz").mkdir()  # cannot be removed as a file
    start.spool.remove_leftovers(())
    start.spool.remove_copy("1" * 64)
    assert sorted(path.name for path in root.iterdir()) == [".snapshot", f"{'1' * 64}.npz", "lost+found"]
    start.ledger.close()


def test_who_has_no_source_does_not_ask_for_news_without_end() -> None:
    """A chief that spun while a search waited took a core, and the whole of an inline worker's interpreter."""
    assert NoSource().poll_seconds > 0


def test_content_of_a_file_without_a_step_is_numbered_by_its_arrival_beside_files_with_steps(tmp_path: Path) -> None:
    start, found = Start(tmp_path), []
    for step in (10, 20):
        write(tmp_path, step, step).with_name("latest.npz").write_bytes(write(tmp_path, step, step).read_bytes())
        (tmp_path / "run" / "latest.npz.done").touch()
        found += [subject for _, subject in start.intake.poll()[1]]
    assert [(subject.outer_step, subject.known_outer_step) for subject in found] == [
        (10, 10), (0, None), (20, 20), (1, None)
    ]  # fmt: skip
    (_, latest) = start.ledger.sightings(found[-1].sha256).values()
    assert latest == found[-1] and latest.is_numbered_by_arrival
    start.ledger.close()


def present(start: Start) -> list[int]:
    superseded = start.ledger.superseded_subjects()
    return [one.outer_step for one in start.ledger.sightings().values() if one not in superseded]


def test_restarts_at_each_step_ask_whether_two_trainers_write_to_the_folder(tmp_path: Path) -> None:
    start = Start(tmp_path)
    for step in (1, 2, 3):
        for value in (step, 10 + step):
            write(tmp_path, step, value)
            start.take_all()
    (line,) = (one for one in start.output if "two trainers" in one)
    assert line.startswith(f"{tmp_path / 'run'}: 3 restarts")


def test_lower_step_after_the_newest_has_gone_is_a_restart(tmp_path: Path) -> None:
    for step in (100, 120):
        write(tmp_path, step, step)
    start = Start(tmp_path)
    start.take_all()
    for file in (tmp_path / "run").iterdir():
        file.unlink()
    write(tmp_path, 10, 10.0)
    start.take_all()
    assert present(start) == [10]


def write_at(folder: Path, seconds: float, step: int, value: float) -> None:
    os.utime(write(folder, step, value), (1e9 + seconds, 1e9 + seconds))


def test_trainer_that_begins_again_with_the_same_weights_has_all_its_checkpoints(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write_at(tmp_path, step, step, step)
    start = Start(tmp_path)
    start.take_all()
    for file in (tmp_path / "run").iterdir():
        file.unlink()
    for step in (10, 20, 30):
        write_at(tmp_path, 100 + step, step, step)
        start.take_all()
        assert present(start) == list(range(10, step + 1, 10))


@pytest.mark.parametrize("stays", [False, True])
def test_newest_checkpoint_is_that_of_the_trainer_that_began_again(tmp_path: Path, stays: bool) -> None:
    def start_again(start: Start) -> Start:
        if stays:
            return start
        start.ledger.close()
        return Start(tmp_path, only_newest=True)

    for step in (0, 10, 20, 30):
        write_at(tmp_path, step, step, step)
    start = Start(tmp_path, only_newest=True)
    assert start.take_all() == [30]
    for seconds, step, value in ((100, 0, 100.0), (110, 10, 110.0), (115, 15, 115.0), (120, 20, 120.0)):
        write_at(tmp_path, seconds, step, value)
        start = start_again(start)
        assert start.take_all() == [step] and present(start)[-1] == step
        assert ("restarted" in " ".join(start.output)) == (step == 0 or stays)
        assert start.take_all() == []
    start = start_again(start)
    assert start.take_all() == []
    write_at(tmp_path, 130, 30, 30.0)  # the same theta as before
    start = start_again(start)
    start.take_all()
    assert sorted(present(start)) == [0, 10, 15, 20, 30]
    start.ledger.close()


@pytest.mark.parametrize("only_newest", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_copied_folder_with_checkpoints_that_were_passed_over_is_no_restart(
    tmp_path: Path, order: int, only_newest: bool
) -> None:
    for step in (0, 10, 20):
        write_at(tmp_path, step, step, step)
    first = Start(tmp_path, only_newest=True)
    first.take_all()
    first.ledger.close()
    for step in (0, 10, 20):
        write_at(tmp_path, 100 + order * step, step, step)
    second = Start(tmp_path, only_newest=only_newest)
    second.take_all()
    assert 20 in present(second) and not [line for line in second.output if "restarted" in line]
    second.ledger.close()


def test_copied_files_of_the_former_run_stay_left_out(tmp_path: Path) -> None:
    first = Start(tmp_path)
    for seconds, step, value in ((0, 0, 0.0), (1, 20, 20.0), (2, 40, 40.0), (3, 20, 120.0)):
        write_at(tmp_path, seconds, step, value)
        first.take_all()
    assert present(first) == [0, 20]
    first.ledger.close()
    for seconds, step, value in ((10, 0, 0.0), (11, 20, 120.0), (12, 40, 40.0)):
        write_at(tmp_path, seconds, step, value)
    second = Start(tmp_path)
    second.take_all()
    assert present(second) == [0, 20]
    second.ledger.close()


def test_older_checkpoint_that_is_copied_late_is_no_restart(tmp_path: Path) -> None:
    write(tmp_path, 100, 100.0)
    start = Start(tmp_path)
    start.take_all()
    write(tmp_path, 20, 20.0)
    start.take_all()
    assert present(start) == [100, 20] and not start.output


def test_restart_of_which_only_the_newest_is_read_supersedes_all_that_was_overwritten(tmp_path: Path) -> None:
    watch_steps(tmp_path, 0, 20, 40)
    for step in (0, 20, 40):
        write(tmp_path, step, 100.0 + step)
    second = Start(tmp_path, only_newest=True)
    second.take_all()
    assert present(second) == [40]


@pytest.mark.parametrize("only_newest", [False, True])
def test_restart_in_a_copied_run_supersedes_what_was_overwritten_and_no_more(tmp_path: Path, only_newest: bool) -> None:
    watch_steps(tmp_path, 0, 20, 40)
    for step in (0, 20, 40):
        write(tmp_path, step, step)  # as a copy does, with the present time
    changed_step = 40 if only_newest else 20
    write(tmp_path, changed_step, 100.0)
    second = Start(tmp_path, only_newest=only_newest)
    second.take_all()
    assert present(second) == [step for step in (0, 20, 40) if step <= changed_step]


def written(folder: Path, at: float, values: Mapping[int, float]) -> None:
    """Writes checkpoints by step, and sets the time at which they were written."""
    for step, value in values.items():
        os.utime(write(folder, step, value), (at, at))


@pytest.mark.parametrize("only_newest", [False, True])
def test_files_of_a_former_run_that_no_start_has_read_are_left_out(tmp_path: Path, only_newest: bool) -> None:
    written(tmp_path, 1e9, {0: 0.0, 10: 1.0, 20: 2.0})
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 + 1, {30: 3.0, 40: 4.0})  # while nobody watches; then another trainer begins
    written(tmp_path, 1e9 + 2, {0: 5.0, 10: 6.0})
    second = Start(tmp_path, only_newest=only_newest)
    second.take_all()
    assert present(second) == ([10] if only_newest else [0, 10])
    assert second.reader.read_paths.count("theta_0.npz") <= 1
    assert [line for line in second.output if SHOWN["left-out-former-run"] in line], second.output
    second.ledger.close()
    written(tmp_path, 1e9 + 3, {30: 7.0})
    third = Start(tmp_path)  # `all`, after `latest`: it knows from the store that a new run began
    third.take_all()
    assert sorted(present(third)) == [0, 10, 30]
    third.ledger.close()
    os.utime(tmp_path / "run" / "theta_40.npz")
    fourth = Start(tmp_path)
    assert fourth.take_all() == [40] and sorted(present(fourth)) == [0, 10, 30, 40]


@pytest.mark.parametrize("only_newest", [False, True])
def test_start_notices_a_new_run_that_is_shorter_than_the_former_one(tmp_path: Path, only_newest: bool) -> None:
    written(tmp_path, 1e9, {0: 0.0, 10: 1.0, 20: 2.0})
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 + 1, {0: 5.0})
    second = Start(tmp_path, only_newest=only_newest)
    assert second.take_all() == [0] and present(second) == [0]


@pytest.mark.parametrize("only_newest", [False, True])
def test_start_notices_a_new_run_that_is_longer_than_the_former_one(tmp_path: Path, only_newest: bool) -> None:
    written(tmp_path, 1e9, {0: 0.0, 10: 1.0, 20: 2.0})
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 + 1, {10: 5.0, 20: 6.0, 30: 7.0})  # it goes on from outer step 0
    second = Start(tmp_path, only_newest=only_newest)
    assert second.take_all() == ([30] if only_newest else [10, 20, 30])
    assert present(second) == ([0, 30] if only_newest else [0, 10, 20, 30])
    assert "from outer step 10 on" in second.output[0]


@pytest.mark.parametrize("only_newest", [False, True])
def test_older_files_are_of_the_run_if_a_lower_step_was_only_copied(tmp_path: Path, only_newest: bool) -> None:
    written(tmp_path, 1e9, {0: 0.0, 10: 1.0})
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 + 1, {20: 2.0, 30: 3.0})
    written(tmp_path, 1e9 + 2, {0: 0.0})
    second = Start(tmp_path, only_newest=only_newest)
    assert second.take_all() == ([30] if only_newest else [0, 20, 30])


def write_slot(folder: Path, number: int, step: int, *, run: int) -> None:
    path = write(folder, number, step)
    np.savez(path, x=np.float32(1000 * run + step), outer_step=np.int64(step))
    os.utime(path, (1e9 + 1000 * run + step,) * 2)


def taken(start: Start) -> list[int]:
    steps = start.take_all()
    assert not [line for line in start.output if SHOWN["left-out-former-run"] in line]
    start.ledger.close()
    return sorted(steps)


@pytest.mark.parametrize("num_restarts", [0, 1])
def test_slots_that_a_trainer_writes_in_turn_are_no_new_run(tmp_path: Path, num_restarts: int) -> None:
    for run in range(num_restarts + 1):
        write_slot(tmp_path, 0, 10, run=run)
        assert taken(Start(tmp_path)) == [10]
    for number, step in ((1, 20), (2, 30), (0, 40)):
        write_slot(tmp_path, number, step, run=num_restarts)
    assert taken(Start(tmp_path)) == [20, 30, 40]
    write_slot(tmp_path, 0, 70, run=num_restarts)
    assert taken(Start(tmp_path)) == [70]
    for number, step in ((1, 50), (2, 60), (3, 65)):  # a start before has not read these
        write_slot(tmp_path, number, step, run=num_restarts)
    last = Start(tmp_path)
    assert sorted(last.take_all()) == [50, 60, 65]
    assert sorted(present(last)) == [10, 20, 30, 40, 50, 60, 65, 70]


def test_earlier_step_that_a_restarted_trainer_finishes_later_is_no_new_run(tmp_path: Path) -> None:
    for run in (0, 1):
        write_slot(tmp_path, 10, 10, run=run)
        assert taken(Start(tmp_path)) == [10]
    write_at(tmp_path, 1040, 20, 1020.0)
    assert taken(Start(tmp_path)) == [20]
    write_at(tmp_path, 1030, 30, 1030.0)  # no start before has read it
    assert taken(Start(tmp_path)) == [30]


def test_newest_checkpoint_after_a_restart_is_found_with_one_walk_through_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 1e9, dict.fromkeys(range(0, 200, 10), 1.0))
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 - 1, {0: 5.0})  # the times tell nothing
    second = Start(tmp_path)
    second.take_all()
    second.ledger.close()
    walks = list[object]()
    walk = Restarts.current_checkpoints
    monkeypatch.setattr(Restarts, "current_checkpoints", lambda restarts: walks.append(1) or walk(restarts))
    third = Start(tmp_path, only_newest=True)
    assert third.take_all() == [] and present(third) == [0]
    assert len(walks) == 1


def test_checkpoint_that_shows_a_new_run_is_read_once(tmp_path: Path) -> None:
    written(tmp_path, 1e9, {0: 0.0, 10: 1.0, 20: 2.0})
    first = Start(tmp_path)
    first.take_all()
    first.ledger.close()
    written(tmp_path, 1e9 + 1, {10: 5.0})
    written(tmp_path, 1e9 + 2, {30: 7.0})
    second = Start(tmp_path, only_newest=True)
    assert second.take_all() == [30] and present(second) == [0, 30]
    assert sorted(second.reader.read_paths) == ["theta_10.npz", "theta_30.npz"]


def test_given_checkpoint_is_not_taken_if_another_theta_lies_there(tmp_path: Path) -> None:
    path = write(tmp_path, 1, 1.0)
    start = Start(tmp_path)
    (_, chosen) = start.intake.admit_given(GivenCheckpoint(uri=str(path))) or (0, None)
    assert chosen is not None
    write(tmp_path, 1, 2.0)
    assert start.intake.admit_given(GivenCheckpoint(uri=str(path), sha256=chosen.sha256)) is None
    assert len(start.output) == 1 and SHOWN["another-theta-lies-here"] in start.output[0]
    assert len(start.ledger.sightings()) == 1


def test_store_keeps_the_digest_of_an_older_version_and_its_results(tmp_path: Path) -> None:
    leaves = {"theta/x": np.ones(2, np.float32), "opt_state/mu/x": np.zeros(2, np.float32)}
    path = tmp_path / "run" / "theta_1.npz"
    path.parent.mkdir()
    np.savez(path, **leaves)  # type: ignore[arg-type]
    start = Start(tmp_path)
    former = Subject.of_checkpoint(Checkpoint(uri=str(path), sha256=leaves_sha256(leaves), outer_step=1))
    start.ledger.record_sighting(former)
    assert former.sha256 != theta_sha256(leaves)
    (_, found) = start.intake.admit_given(GivenCheckpoint(uri=str(path))) or (0, None)
    assert found is not None and found.sha256 == former.sha256 and start.intake.has_copy(former.sha256)
