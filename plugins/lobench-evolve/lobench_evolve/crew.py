"""The workers of an evolution, over any of lobench's executors: who does which job, also when a worker is lost."""

from __future__ import annotations

import base64
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lobench import LobenchError
from lobench.hookspecs import Died, Executor, Notice, Said
from lobench_evolve.evolution_strategies import Update
from lobench_evolve.genome import Genome, lineage
from lobench_evolve.messages import FROM_WORKER, Answer, Broken, Learn, Moved, Task, Welcome

__all__ = ["Course", "Crew", "Job"]

_MAX_ATTEMPTS = 3  # a job that was lost with that many workers would be lost with the next one too
_MAX_START_FAILURES = 3
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The way of a theta that moves by updates: where it was once, and what moved it since.

    Attributes:
      theta: Id of where it is now.
      step, state: Where it was, and after how many updates.
      updates: Those since.
    """

    theta: int
    step: int
    state: bytes
    updates: tuple[Update, ...]

    def after(self, known: int | None) -> Moved:
        """Returns what a worker must hear that is `known` updates far; None: that knows nothing."""
        state, first = None, known
        if first is None or first < self.step:
            state, first = base64.b64encode(self.state).decode(), self.step
        return Moved(theta=self.theta, state=state, updates=self.updates[first - self.step :])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One message to a worker and one back.

    Attributes:
      wanted: Genomes that the worker must know; it is told those that it does not.
      course: The theta that they mutate, where no seed makes it; the worker is told what it has not heard of it.
    """

    task: Task
    wanted: tuple[int, ...] = ()
    course: Course | None = None


@dataclass(slots=True, kw_only=True)
class _Worker:
    ready: bool = False
    job: int | None = None
    deadline: float = 0.0
    genomes: set[int] = field(default_factory=set)
    step: int | None = None  # updates of the course that it knows


class Crew:
    """A fixed number of workers; one that is lost is replaced, and its job is done by whoever is free.

    Args:
      executor: As of the hook `lobench_executors`.
      num_workers, num_cpus, num_gpus: How many, and the cores and devices of each.
      timeout_seconds: After which a job's worker is ended and the job given to another.
      say: Told of losses, a line each.
      clock: Seconds.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        num_workers: int,
        num_cpus: int,
        num_gpus: float = 0.0,
        timeout_seconds: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor, self._num_workers = executor, num_workers
        self._num_cpus, self._num_gpus = num_cpus, num_gpus
        self._timeout_seconds, self._say, self._clock = timeout_seconds, say, clock
        self._workers: dict[int, _Worker] = {}
        self._next_worker = self._next_job = 0
        self._start_failures = 0
        self.provenance: dict[str, str] = {}

    def start(self) -> dict[str, str]:
        """Starts the workers; returns what the first of them says of its versions and device."""
        while len(self._workers) < self._num_workers:
            self._start_one()
        while not self.provenance:
            self._listen({}, deque())
        return self.provenance

    def run(self, jobs: Sequence[Job], genomes: Mapping[int, Genome]) -> Iterator[tuple[int, bytes]]:
        """Yields (index of the job, payload) as jobs end; what is left when the caller stops is dropped.

        Raises:
          LobenchError: a job fails, loses its worker too often, or workers do not start.
        """
        numbers = range(self._next_job, self._next_job + len(jobs))
        self._next_job += len(jobs)
        waiting = deque(numbers)
        attempts = dict.fromkeys(numbers, 0)
        by_number = dict(zip(numbers, jobs, strict=True))
        num_left = len(jobs)
        while num_left:
            for number, worker in self._workers.items():
                if waiting and worker.ready and worker.job is None:
                    self._send(number, worker, waiting[0], by_number[waiting[0]], genomes)
                    waiting.popleft()
            for job, payload in self._listen(attempts, waiting):
                if job in by_number:
                    num_left -= 1
                    yield job - numbers.start, payload

    def _send(self, number: int, worker: _Worker, job_number: int, job: Job, genomes: Mapping[int, Genome]) -> None:
        gone = sorted(worker.genomes - genomes.keys())
        worker.genomes.difference_update(gone)
        course, given = job.course, []
        moved = None
        if course is not None:
            given, moved = [course.theta], course.after(worker.step)
            worker.step = course.step + len(course.updates)
        new = lineage(genomes, job.wanted, [*worker.genomes, *given])
        worker.genomes.update(genome.id for genome in new)
        worker.job, worker.deadline = job_number, self._clock() + self._timeout_seconds
        learn = Learn(forget=tuple(gone), genomes=tuple(new), course=moved)
        self._executor.send(number, learn.to_bytes())
        self._executor.send(number, dataclasses.replace(job.task, job=job_number).to_bytes())

    def _listen(self, attempts: dict[int, int], waiting: deque[int]) -> list[tuple[int, bytes]]:
        """Hears workers once; returns results, and gives the jobs of the lost back."""
        results: list[tuple[int, bytes]] = []
        for heard in self._executor.wait(_POLL_SECONDS):
            match heard:
                case Notice(message=line):
                    self._say(line)
                case Said(worker=number, message=data) if number in self._workers:
                    try:
                        result = self._hear(self._workers[number], data)
                    except ValueError as error:
                        self._executor.kill(number)
                        self._lost(number, f"said what its crew does not understand: {error}", attempts, waiting)
                    else:
                        results += result
                case Died(worker=number, message=reason, lost=lost) if number in self._workers:
                    # Where a machine was lost, its worker's end says nothing about the job.
                    self._lost(number, reason, attempts, waiting, blamed=not lost)
        now = self._clock()
        late = [number for number, worker in self._workers.items() if worker.job is not None and now > worker.deadline]
        for number in late:
            self._executor.kill(number)
            self._lost(number, f"ran longer than {self._timeout_seconds:g} s", attempts, waiting)
        return results

    def _hear(self, worker: _Worker, data: bytes) -> list[tuple[int, bytes]]:
        """Returns a result, if it is one.

        Raises:
          ValueError: no worker says that. LobenchError: its work cannot go on.
        """
        match FROM_WORKER.from_bytes(data):
            case Welcome(provenance=provenance):
                self._welcome(worker, dict(provenance))
            case Answer(job=job, payload=payload):
                worker.job = None
                return [(job, payload)]
            case Broken(message=line):
                raise LobenchError(line)
        return []

    def _welcome(self, worker: _Worker, provenance: dict[str, str]) -> None:
        worker.ready = True
        self._start_failures = 0
        if self.provenance and provenance != self.provenance:
            raise LobenchError(
                "workers differ, and so would their bits", got=str(provenance), expected=str(self.provenance)
            )
        self.provenance = provenance

    def _lost(
        self, number: int, reason: str, attempts: dict[int, int], waiting: deque[int], *, blamed: bool = True
    ) -> None:
        worker = self._workers.pop(number)
        self._say(
            f"a worker was lost ({reason}); "
            + ("its job goes to another" if worker.job is not None else "another is started")
        )
        if not worker.ready and blamed:
            self._start_failures += 1
            if self._start_failures >= _MAX_START_FAILURES:
                raise LobenchError("workers do not start", got=reason, next_step="see the store's folder logs/")
        if worker.job in attempts:
            attempts[worker.job] += blamed
            if attempts[worker.job] >= _MAX_ATTEMPTS:
                raise LobenchError(
                    f"a job was lost with {_MAX_ATTEMPTS} workers",
                    got=reason,
                    next_step="see the store's folder logs/; is there enough memory for Evolve.members_per_program?",
                )
            waiting.appendleft(worker.job)
        self._start_one()

    def _start_one(self) -> None:
        number, self._next_worker = self._next_worker, self._next_worker + 1
        self._workers[number] = _Worker()
        self._executor.start(number, self._num_cpus, self._num_gpus)

    def close(self) -> None:
        self._executor.close()
