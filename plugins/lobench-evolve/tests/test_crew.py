"""What a crew makes of what its workers say; the executor is one that a test speaks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from lobench_evolve.genome import Genome
from lobench_evolve.messages import TO_WORKER, Answer, Broken, Evaluate, Learn, Welcome
from lobench_evolve.worker_pool import WorkerJob, WorkerPool
from shown import texts_of

from lobench import LobenchError
from lobench.extend import Message, schedule
from lobench.hookspecs import ExecutorEvent, Notice, WorkerExited, WorkerMessage

SHOWN = texts_of("evolve")

GENOME = Genome(0, (), 7, 0.0)
JOB = WorkerJob(task=Evaluate(trials=((0, 1),)), genome_ids=(0,))


class Spoken:
    """Workers that are welcome at once, and answer tasks as a test says."""

    def __init__(self, answer: Callable[[int, Evaluate], Message | bytes]) -> None:
        self._answer, self._output = answer, list[ExecutorEvent]([Notice(message="a notice")])
        self.killed: list[int] = []
        self.learned: list[Learn] = []

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        self._log(worker, Welcome(provenance={"jax": "1"}, pid=1))

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        match TO_WORKER.from_bytes(message):
            case Learn() as learn:
                self.learned.append(learn)
            case Evaluate() as task:
                self._log(worker, self._answer(worker, task))

    def _log(self, worker: int, message: Message | bytes) -> None:
        if isinstance(message, WorkerExited):
            self._output.append(message)
        else:
            data = message if isinstance(message, bytes) else message.to_bytes()
            self._output.append(WorkerMessage(worker=worker, message=data))

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def wait(self, timeout: float) -> Sequence[ExecutorEvent]:
        output, self._output = self._output, []
        return output

    def close(self) -> None: ...


def ran(executor: Spoken) -> tuple[list[tuple[int, bytes]], list[str]]:
    lines: list[str] = []
    worker_pool = WorkerPool(executor, num_workers=1, size=schedule.Size(1), timeout_seconds=600, log=lines.append)
    assert worker_pool.start() == {"jax": "1"}
    return list(worker_pool.run([JOB], {0: GENOME})), lines


def right(worker: int, task: Evaluate) -> Message:
    return Answer(job=task.job, payload=b"1234")


def test_a_job_comes_with_what_its_worker_must_learn_and_is_answered() -> None:
    executor = Spoken(right)
    assert ran(executor) == ([(0, b"1234")], ["a notice"])
    assert executor.learned == [Learn(forget=(), genomes=(GENOME,), theta_updates=None)]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (WorkerExited(worker=0, message="killed by signal 9"), "killed by signal 9"),
        (Welcome(provenance={}, pid=1).to_bytes()[:-2], SHOWN["no-message"]),
        (Answer(job=0, payload=b"").to_bytes().replace(b'"job"', b'"jab"'), SHOWN["answer-no-field-job"]),
        (Learn(forget=(), genomes=(), theta_updates=None), SHOWN["unknown-kind-learn"]),
    ],
)
def test_who_dies_or_is_not_understood_is_replaced_and_its_job_done_by_another(
    output: Message | bytes, why: str
) -> None:
    executor = Spoken(lambda worker, task: output if worker == 0 else right(worker, task))
    found, lines = ran(executor)
    assert found == [(0, b"1234")]
    assert len(lines) == 2 and why in lines[1] and SHOWN["its-job-goes-to-another"] in lines[1]
    assert executor.killed == ([] if isinstance(output, WorkerExited) else [0])


def test_what_cannot_be_done_is_the_crews_error() -> None:
    with pytest.raises(LobenchError, match="no such task"):
        ran(Spoken(lambda worker, task: Broken(message="no such task")))
