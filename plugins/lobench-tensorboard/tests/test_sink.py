"""The sink against TensorBoard's own readers, with real kills."""

from __future__ import annotations

import errno
import io
import os
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lobench_tensorboard.sink import EventFile, TensorBoardSink, written_scalars
from shown import texts_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PagesAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG
from tensorboard.summary.writer.record_writer import RecordWriter

from lobench import Outcome
from lobench.extend import CaseInfo, Checkpoint, Curves, PluginError, SeedBlock, Subject
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished, SinkContext
from lobench.testing.sinks import SinkContract, sample_deliveries

SHOWN = texts_of("tensorboard")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")


def case(name: str) -> CaseInfo:
    return CaseInfo(
        identity=name,
        optimizer_hash="o",
        suite="s",
        name=name,
        node_id=name,
        num_inner_steps=2,
        num_seeds=2,
        seed_block=None,
    )


def curves(*finals: float) -> Curves:
    rows = np.asarray([[1.0, final] for final in finals], np.float32)
    diverged = tuple(-1 if np.isfinite(final) else 1 for final in finals)
    return Curves(
        seeds=tuple(range(len(finals))),
        metrics={"train/loss": memoryview(rows)},
        eval_steps=(0, 2),
        diverged_at=diverged,
    )


def deliveries(num_checkpoints: int, num_cases: int) -> list[Delivery]:
    found: list[Delivery] = []
    for step in range(num_checkpoints):
        subject = Subject.of_checkpoint(Checkpoint(uri=f"c{step}", sha256=str(step), outer_step=10 * step))
        events = tuple(
            EvaluationFinished(
                subject=subject,
                case=case(f"c{index}"),
                seed_block=SeedBlock(start=0, size=2),
                outcome=Outcome.PASSED,
                curves=curves(step + index, step + index + 1.0),
            )
            for index in range(num_cases)
        )
        for event in (*events, CheckpointFinished(subject=subject, evaluations=events)):
            found.append(Delivery(sequence=len(found) + 1, event=event, run=event.checkpoint.run))
    return found


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    found = {}
    for tag in set(accumulator.Tags()["tensors"]) - {CONFIG_SUMMARY_TAG}:
        for event in accumulator.Tensors(tag):
            value = event.tensor_proto.float_val or np.frombuffer(event.tensor_proto.tensor_content, np.float32)
            found[tag, event.step] = float(value[0])
    return found


class TestContract(SinkContract):
    factory = "lobench_tensorboard.sink:TensorBoardSink"

    def contents(self, store: Path) -> list[tuple[str, str, int]]:
        """Every record of every run, and what TensorBoard makes of them."""
        found: list[tuple[str, str, int]] = []
        for folder in {file.parent for file in (store / "tensorboard").rglob("events.*")}:
            run = str(folder.relative_to(store))
            found += [(run, tag, step) for tag, step in written_scalars(folder)]
            found += [(run, f"{tag} = {value}", step) for (tag, step), value in scalars(folder).items()]
        return found

    def value_of(
        self, store: Path, run: str, generation: int, step: int, suite: str, case: str, metric: str
    ) -> float | None:
        folder = store / "tensorboard" / run / (f"generation_{generation}" if generation else "")
        return scalars(folder).get((f"{suite}/{case}/{metric}", step)) if folder.is_dir() else None


def test_numbers_of_an_evaluation_and_its_completion_at_once_are_one_record(tmp_path: Path) -> None:
    everything = deliveries(2, 3)
    for name, batches in {"apart": [[one] for one in everything], "at_once": [everything]}.items():
        sink = TensorBoardSink(SinkContext(store=tmp_path / name))
        for batch in batches:
            sink.deliver(batch)
        sink.close()
    apart, at_once = tmp_path / "apart" / "tensorboard", tmp_path / "at_once" / "tensorboard"
    assert scalars(apart) == scalars(at_once)
    assert (num_records(apart), num_records(at_once)) == (8, 2)


# Of an event: theta, outer step, whether it is a completion, and of an evaluation its case, block and value.
EVENTS = st.tuples(*map(st.integers, (0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 2, 2)))


@settings(deadline=None, max_examples=40)
@given(st.lists(EVENTS, min_size=2, max_size=12))
def test_what_is_written_does_not_hang_on_how_deliveries_are_cut(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, ...]]
) -> None:
    everything: list[Delivery] = []
    evaluations: dict[Subject, dict[tuple[int, int], EvaluationFinished]] = {}
    for theta, step, is_completion, name, block, value in events:
        subject = Subject.of_checkpoint(Checkpoint(uri="", sha256=str(theta), outer_step=step))
        own = evaluations.setdefault(subject, {})
        if is_completion:
            event = CheckpointFinished(subject=subject, evaluations=tuple(own.values()))
        else:
            event = own[name, block] = EvaluationFinished(
                subject=subject,
                case=case(f"c{name}"),
                seed_block=SeedBlock(start=max(block - 1, 0), size=2 if block == 0 else 1),
                outcome=Outcome.PASSED,
                curves=curves(*[value + 1.0, value + 2.0][: 2 if block == 0 else 1]),
            )
        everything.append(Delivery(sequence=len(everything) + 1, event=event, run=""))
    found = []
    for size in (1, 3, len(everything)):
        folder = tmp_path_factory.mktemp("cut")
        sink = TensorBoardSink(SinkContext(store=folder))
        for start in range(0, len(everything), size):
            sink.deliver(everything[start : start + size])
        sink.close()
        found.append(scalars(folder / "tensorboard") if (folder / "tensorboard").exists() else {})
    assert found[0] == found[1] == found[2]


def num_records(folder: Path) -> int:
    """Records with values in a folder's event files."""
    files = folder.glob("events.*")
    return sum(bool(event.summary.value) for file in files for event in EventFileLoader(str(file)).Load())


def test_a_record_that_was_cut_off_is_written_again_as_a_whole(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    sink.deliver(deliveries(1, 2))
    sink.close()
    (file,) = (tmp_path / "tensorboard").glob("events.*")
    expected, whole = scalars(file.parent), file.read_bytes()
    for index, length in enumerate(range(24, len(whole), 97)):
        cut = tmp_path / str(index) / "tensorboard"
        cut.mkdir(parents=True)
        (cut / file.name).write_bytes(whole[:length])
        sink = TensorBoardSink(SinkContext(store=cut.parent))
        sink.deliver(deliveries(1, 2))
        sink.close()
        assert scalars(cut) == expected, length
        assert set(Counter(written_scalars(cut)).values()) == {1}, length


FULL_DISK = """
import resource, sys
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/../../../tests"]
from pathlib import Path
from test_sink import deliveries, SinkContext, TensorBoardSink
sink = TensorBoardSink(SinkContext(store=Path(sys.argv[2])))
everything = deliveries(2, 2)
sink.deliver(everything[:1])
resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
try:
    sink.deliver(everything)
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sink.deliver(everything)
    sink.close()
    print("recovered")
"""


def test_what_a_full_disk_swallowed_is_written_at_the_next_attempt(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(Path(__file__).parent), str(tmp_path / "full")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "recovered\n", done.stderr
    assert not done.stderr, "a traceback that nobody can catch"
    reference = TensorBoardSink(SinkContext(store=tmp_path / "reference"))
    reference.deliver(deliveries(2, 2))
    reference.close()
    expected = Counter(written_scalars(tmp_path / "reference" / "tensorboard"))
    assert Counter(written_scalars(tmp_path / "full" / "tensorboard")) == expected


REMOVED = """
import shutil, sys
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/../../../tests"]
from pathlib import Path
from test_sink import deliveries, SinkContext, TensorBoardSink
sink, everything = TensorBoardSink(SinkContext(store=Path(sys.argv[2]))), deliveries(2, 2)
sink.deliver(everything[:1])
shutil.rmtree(Path(sys.argv[2]) / "tensorboard")
try:
    sink.deliver(everything[1:])
except OSError:
    sink.deliver(everything[1:])
    sink.close()
    print("recovered")
"""


def test_a_folder_that_is_removed_is_an_error_and_is_made_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", REMOVED, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("recovered\n", "")
    assert ("s/c1/train/loss", 10) in set(written_scalars(tmp_path / "tensorboard"))


def test_attempts_on_a_full_disk_leave_no_files_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                sink.deliver(deliveries(1, 1))
    assert list((tmp_path / "tensorboard").glob("events.*")) == []
    sink.deliver(deliveries(1, 1))
    sink.close()
    assert len(list((tmp_path / "tensorboard").glob("events.*"))) == 1


def test_a_case_of_several_blocks_waits_for_all_its_seeds(tmp_path: Path) -> None:
    first, *_, finished, _ = sample_deliveries(1)[1:]
    tag = ("suite/blocks/train/loss", 0)
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path)))
    sink.deliver([first])
    assert list(tmp_path.iterdir()) == []
    sink.deliver([finished])
    sink.close()
    # The only checkpoint is the last one of the samples, which is of generation 1.
    assert scalars(tmp_path / "generation_1")[tag] == 5.0


def test_what_a_finished_checkpoint_says_of_its_suite(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path)))
    sink.deliver(sample_deliveries(2)[:6])
    sink.close()
    found, place = scalars(tmp_path), "zz_diagnostics/suite"
    outcomes = {tag: value for (tag, _), value in found.items() if tag.startswith(f"{place}/outcomes/")}
    assert outcomes == {f"{place}/outcomes/{name}": n for name, n in {"error": 1, "failed": 0, "passed": 4}.items()}
    assert (found[f"{place}/diverged", 0], found[f"{place}/not_evaluated", 0]) == (1, 1)
    assert found["0_headline/verdicts_passed", 0] == pytest.approx(0.8)
    assert np.isnan(found["suite/diverges/train/loss", 0])
    assert ("zz_intervals/suite/diverges/train/loss_lower", 0) not in found
    assert ("suite/breaks/train/loss", 0) not in found


def test_no_mean_is_taken_over_losses_of_cases(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path)))
    sink.deliver(deliveries(1, 2))
    sink.close()
    cases = {tag.split("/")[1] for tag, _ in scalars(tmp_path) if tag.endswith("/loss")}
    assert cases == {"c0", "c1"}


def test_runs_and_generations_do_not_mix(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path)))
    for index, (run, generation) in enumerate([("", 0), ("", 3), ("sgd/../b", 0), ("sgd/../b", 3)]):
        subject = Subject.of_checkpoint(
            Checkpoint(uri="c", sha256=str(index), outer_step=1, generation=generation, run=run)
        )
        event = EvaluationFinished(
            subject=subject,
            case=case("c"),
            seed_block=SeedBlock(start=0, size=2),
            outcome=Outcome.PASSED,
            curves=curves(float(index), float(index)),
        )
        sink.deliver([Delivery(sequence=index + 1, event=event, run=event.checkpoint.run)])
    sink.close()
    folders = [".", "generation_3", "sgd%2F..%2Fb", "sgd%2F..%2Fb/generation_3"]
    assert [scalars(tmp_path / folder)["s/c/train/loss", 1] for folder in folders] == [0, 1, 2, 3]


def test_of_two_thetas_at_one_step_the_first_stays(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path)))
    for index, value in enumerate((1.0, 2.0)):
        event = EvaluationFinished(
            subject=Subject.of_checkpoint(Checkpoint(uri=f"c{index}", sha256=str(index), outer_step=7)),
            case=case("c"),
            seed_block=SeedBlock(start=0, size=2),
            outcome=Outcome.PASSED,
            curves=curves(value, value),
        )
        sink.deliver([Delivery(sequence=index + 1, event=event, run=event.checkpoint.run)])
    sink.close()
    assert scalars(tmp_path)["s/c/train/loss", 7] == 1.0
    assert set(Counter(written_scalars(tmp_path)).values()) == {1}


def test_a_remote_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=SHOWN["must-be-a-local-one"]):
        TensorBoardSink(SinkContext(store=tmp_path, argument="gs://bucket/logs"))


def test_records_are_those_of_tensorboards_own_writer(tmp_path: Path) -> None:
    file, theirs = EventFile(tmp_path), io.BytesIO()
    for length in (*range(460, 530), 1500, 4096):
        file.add([Summary.Value(tag="é" * (length // 2))], length)
    file.flush()
    file.close()
    (path,) = tmp_path.iterdir()
    ours, start, writer = path.read_bytes(), 0, RecordWriter(theirs)
    while start < len(ours):
        (length,) = struct.unpack_from("<Q", ours, start)
        writer.write(ours[start + 12 : start + 12 + length])
        start += length + 16
    assert ours == theirs.getvalue()


def steps_in_order_of_writing(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tag, step in written_scalars(folder):
        if tag != CONFIG_SUMMARY_TAG:
            found.setdefault(tag, []).append(step)
    return found


def in_disorder(num_checkpoints: int) -> list[Delivery]:
    """Deliveries of checkpoints that two workers finish: each second one before the one before it."""
    by_step: dict[int, list[Delivery]] = {}
    for delivery in deliveries(num_checkpoints, 2):
        by_step.setdefault(delivery.event.checkpoint.outer_step // 10, []).append(delivery)
    return [one for step in sorted(by_step, key=lambda step: step ^ 1) for one in by_step[step]]


@pytest.mark.parametrize("is_closed", [False, True], ids=["one sink", "a sink for each"])
def test_values_that_come_late_stand_in_the_order_of_their_steps(tmp_path: Path, is_closed: bool) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    everything = in_disorder(6)
    for one in everything:
        if is_closed:
            sink.close()
            sink = TensorBoardSink(SinkContext(store=tmp_path))
        sink.deliver([one])
    sink.close()
    folder = tmp_path / "tensorboard"
    assert steps_in_order_of_writing(folder)["s/c1/train/loss"] == [0, 10, 20, 30, 40, 50]
    assert all(steps == sorted(set(steps)) for steps in steps_in_order_of_writing(folder).values())
    in_order = TensorBoardSink(SinkContext(store=tmp_path / "other"))
    in_order.deliver(deliveries(6, 2))
    in_order.close()
    assert scalars(folder) == scalars(tmp_path / "other" / "tensorboard")


def test_reader_that_looks_on_has_each_value_once_after_a_late_one(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    everything = deliveries(2, 1)
    sink.deliver(everything[2:])
    accumulator = PagesAccumulator(str(tmp_path / "tensorboard"))
    accumulator.Reload()
    sink.deliver(everything[:2])
    sink.close()
    accumulator.Reload()
    assert [event.step for event in accumulator.Tensors("s/c0/train/loss")] == [0, 10]


def test_files_that_a_kill_left_beside_their_copy_are_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    everything = deliveries(3, 1)
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    sink.deliver(everything[2:])
    before = {file: file.read_bytes() for file in folder.glob("events.*")}
    sink.deliver(everything[:2])
    sink.close()
    for file, content in before.items():  # as if the kill had come before they were emptied
        file.write_bytes(content)
    again = TensorBoardSink(SinkContext(store=tmp_path))
    again.deliver(everything)
    again.close()
    assert not any(file.stat().st_size for file in before)
    assert steps_in_order_of_writing(folder)["s/c0/train/loss"] == [0, 10, 20]
