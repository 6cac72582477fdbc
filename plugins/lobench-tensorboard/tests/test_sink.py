"""The sink against TensorBoard's own readers, with real kills."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from lobench_tensorboard.sink import TensorBoardSink, written_scalars
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lobench import CaseInfo, Checkpoint, Curves, Outcome, SeedBlock
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished, SinkContext


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
        checkpoint = Checkpoint(uri=f"c{step}", sha256=str(step), outer_step=10 * step)
        events = tuple(
            EvaluationFinished(
                checkpoint=checkpoint,
                case=case(f"c{index}"),
                seed_block=SeedBlock(start=0, size=2),
                outcome=Outcome.PASSED,
                curves=curves(step + index, step + index + 1.0),
            )
            for index in range(num_cases)
        )
        for event in (*events, CheckpointFinished(checkpoint=checkpoint, evaluations=events)):
            found.append(Delivery(sequence=len(found) + 1, event=event))
    return found


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    found = {}
    for tag in accumulator.Tags()["tensors"]:
        for event in accumulator.Tensors(tag):
            value = event.tensor_proto.float_val or np.frombuffer(event.tensor_proto.tensor_content, np.float32)
            found[tag, event.step] = float(value[0])
    return found


def test_values_read_back_with_tensorboards_own_reader(tmp_path: Path) -> None:
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    sink.deliver(deliveries(2, 2))
    sink.close()
    found = scalars(tmp_path / "tensorboard")
    assert found["s/c1/train/loss", 10] == 2.5
    assert found["s/mean/train/loss", 0] == 1.0
    assert found["s/mean/train/loss_lower", 0] < 1.0 < found["s/mean/train/loss_upper", 0]
    assert found["s/diverged", 10] == 0


def test_a_diverged_seed_is_nan_and_counted(tmp_path: Path) -> None:
    checkpoint = Checkpoint(uri="c", sha256="0", outer_step=3, generation=2)
    event = EvaluationFinished(
        checkpoint=checkpoint,
        case=case("c"),
        seed_block=SeedBlock(start=0, size=2),
        outcome=Outcome.PASSED,
        curves=curves(1.0, float("nan")),
    )
    sink = TensorBoardSink(SinkContext(store=tmp_path, argument=str(tmp_path / "logs")))
    sink.deliver([Delivery(sequence=1, event=event)])
    sink.close()
    found = scalars(tmp_path / "logs" / "generation_2")
    assert np.isnan(found["s/c/train/loss", 3])
    assert found["s/c/diverged", 3] == 1


DELIVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_sink import deliveries, SinkContext, TensorBoardSink
import lobench_tensorboard.sink as module
left = int(sys.argv[3])
class Writer(module.Writer):
    def add_scalar(self, *arguments):
        global left
        super().add_scalar(*arguments)
        left -= 1
        if left == 0:
            if int(sys.argv[4]):
                self.flush()
            os.kill(os.getpid(), signal.SIGKILL)
module.Writer = Writer
sink = TensorBoardSink(SinkContext(store=Path(sys.argv[2])))
everything = deliveries(2, 2)
for start in range(0, len(everything), 2):
    sink.deliver(everything[start:start + 2])
sink.close()
"""


@pytest.mark.parametrize("flushed", [0, 1])
def test_killed_anywhere_each_scalar_is_there_once(tmp_path: Path, flushed: int) -> None:
    here = str(Path(__file__).parent)
    for kill_after in (1, 3, 6, 2):
        arguments = [sys.executable, "-c", DELIVER, here, str(tmp_path), str(kill_after), str(flushed)]
        assert subprocess.run(arguments, capture_output=True, check=False).returncode == -9
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    sink.deliver(deliveries(2, 2))
    sink.close()
    counts = Counter(written_scalars(tmp_path / "tensorboard"))
    reference = TensorBoardSink(SinkContext(store=tmp_path / "reference"))
    reference.deliver(deliveries(2, 2))
    reference.close()
    assert counts == Counter(written_scalars(tmp_path / "reference" / "tensorboard"))
    assert set(counts.values()) == {1}


def test_a_truncated_record_does_not_hide_what_comes_later(tmp_path: Path) -> None:
    everything = deliveries(2, 2)
    sink = TensorBoardSink(SinkContext(store=tmp_path))
    sink.deliver(everything[:4])
    sink.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    file.write_bytes(file.read_bytes()[:-7])
    again = TensorBoardSink(SinkContext(store=tmp_path))
    again.deliver(everything)
    again.close()
    assert set(Counter(written_scalars(tmp_path / "tensorboard")).values()) == {1}
    assert scalars(tmp_path / "tensorboard")["s/c1/train/loss", 10] == 2.5
