"""Pool of evolution workers, which run on any of lobench's executors. lobench's scheduler leases jobs to them."""

from __future__ import annotations

import base64
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lobench import LobenchError
from lobench.extend import schedule
from lobench.hookspecs import Executor, Notice, WorkerExited, WorkerMessage
from lobench_evolve.evolution_strategies import Update
from lobench_evolve.genome import Genome, lineage
from lobench_evolve.messages import FROM_WORKER, Answer, Broken, Learn, ThetaUpdates, Welcome, WorkerTask

__all__ = ["ThetaPath", "WorkerJob", "WorkerPool"]

# A job that killed this many workers, or exceeded its time limit on them, would probably fail on the next one too.
_RULES = schedule.Rules(max_deaths=3, is_deadline_death=True)
_ENOUGH_MEMORY = "see the store's folder logs/; is there enough memory for Evolve.members_per_program?"
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaPath:
    """A theta that changes by updates: a known state, and the updates since.

    Attributes:
      theta: Id of the present theta.
      step: Number of updates before `state`.
      state: Theta and outer optimizer state after `step` updates.
      updates: Updates since `state`.
    """

    theta: int
    step: int
    state: bytes
    updates: tuple[Update, ...]

    def missing_updates_after(self, num_applied: int | None) -> ThetaUpdates:
        """Returns the updates that a worker is missing.

        Args:
          num_applied: Number of updates that the worker has applied. None: the worker has no state.
        """
        state, first_update = None, num_applied
        if first_update is None or first_update < self.step:
            state = base64.b64encode(self.state).decode()
            first_update = self.step
        return ThetaUpdates(theta=self.theta, state=state, updates=self.updates[first_update - self.step :])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    """One job: a message to a worker and its answer.

    Attributes:
      task: Message to the worker.
      genome_ids: Ids of the genomes that the job needs. The worker is sent those that it lacks.
      theta_path: Theta that the genomes mutate, if it is not created from a seed. The worker is sent the updates that
        it lacks.
    """

    task: WorkerTask
    genome_ids: tuple[int, ...] = ()
    theta_path: ThetaPath | None = None


@dataclass(slots=True, kw_only=True)
class _SentState:
    """Genomes and number of updates that a worker has been sent."""

    genomes: set[int] = field(default_factory=set)
    step: int | None = None


class WorkerPool:
    """A fixed number of workers. lobench's scheduler distributes jobs and replaces lost workers.

    Args:
      executor: Executor, as declared by the hook `lobench_executors`.
      num_workers: Number of workers.
      size: Cores and devices of each worker.
      timeout_seconds: Time limit of a job, after which its worker is killed and the job is given to another.
      log: Function that receives one line per lost worker.
      clock: Function that returns seconds.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        num_workers: int,
        size: schedule.Size,
        timeout_seconds: float,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._timeout_seconds = timeout_seconds
        self._log = log
        self._clock = clock
        self._size = size
        max_gpus = num_workers * size.num_gpus
        self._machine = schedule.Machine(num_workers * size.num_cpus, max_gpus=max_gpus, rules=_RULES)
        self._sent_by_worker: dict[int, _SentState] = {}  # by worker
        self._leases: dict[int, int] = {}  # lease by worker, for workers with a job
        self._jobs: dict[int, WorkerJob] = {}  # unfinished jobs by number
        self._genomes: Mapping[int, Genome] = {}
        self._next_job = 0
        self.provenance: dict[str, str] = {}

    def start(self) -> dict[str, str]:
        """Starts the workers, and waits for the first. Returns its versions and device."""
        self._handle_event(schedule.Tick(self._clock()))
        while not self.provenance:
            self._poll()
        return self.provenance

    def run(self, jobs: Sequence[WorkerJob], genomes: Mapping[int, Genome]) -> Iterator[tuple[int, bytes]]:
        """Yields (index of the job, payload) as jobs end. If the caller stops early, the remaining jobs are dropped.

        Raises:
          LobenchError: A job failed or lost its worker too often, or workers do not start.
        """
        first_job = self._next_job
        self._next_job = self._next_job + len(jobs)
        self._jobs = dict(enumerate(jobs, first_job))
        self._genomes = genomes
        try:
            self._handle_event(schedule.Tick(self._clock()))
            self._handle_event(schedule.Add(tuple(map(self._scheduled_work, self._jobs))))
            while self._jobs:
                for job_number, payload in self._poll():
                    if self._jobs.pop(job_number, None) is not None:
                        yield job_number - first_job, payload
        finally:
            self._machine.apply(schedule.Drop(tuple(self._jobs)))
            self._jobs = {}

    def _scheduled_work(self, job_number: int) -> schedule.Work:
        return schedule.Work(
            key=job_number,
            warm_key=type(self._jobs[job_number].task).__name__,
            size=self._size,
            timeout_seconds=self._timeout_seconds,
            rank=job_number,
        )

    def _poll(self) -> list[tuple[int, bytes]]:
        """Handles the events of one poll. Returns results by number of their job."""
        results: list[tuple[int, bytes]] = []
        for event in self._executor.wait(_POLL_SECONDS):
            match event:
                case Notice(message=line):
                    self._log(line)
                case WorkerMessage(worker=number, message=data) if number in self._sent_by_worker:
                    try:
                        results += self._receive_message(number, data)
                    except ValueError as error:
                        self._executor.kill(number)
                        self._handle_worker_end(
                            number, f"sent a message that its crew does not understand: {error}", is_blamed=True
                        )
                case WorkerExited(worker=number, message=reason, lost=lost) if number in self._sent_by_worker:
                    self._handle_worker_end(number, reason, is_blamed=not lost)
        self._handle_event(schedule.Tick(self._clock()))
        return results

    def _receive_message(self, worker_number: int, message_bytes: bytes) -> list[tuple[int, bytes]]:
        """Handles a message of a worker. Returns a list of its result, or [].

        Raises:
          ValueError: The message is malformed.
          LobenchError: The worker reported an error, or its provenance differs from that of the others.
        """
        match FROM_WORKER.from_bytes(message_bytes):
            case Welcome(provenance=provenance):
                self._check_provenance(dict(provenance))
                self._handle_event(schedule.WorkerReady(worker_number, self._clock()))
            case Answer(job=job, payload=payload) if worker_number in self._leases:
                self._handle_event(schedule.Returned(worker_number, self._leases.pop(worker_number), self._clock()))
                return [(job, payload)]
            case Broken(message=line):
                raise LobenchError(line)
        return []

    def _check_provenance(self, provenance: dict[str, str]) -> None:
        if self.provenance and provenance != self.provenance:
            raise LobenchError(
                "workers differ, and so would their bits", got=str(provenance), expected=str(self.provenance)
            )
        self.provenance = provenance

    def _handle_worker_end(self, worker_number: int, reason: str, *, is_blamed: bool) -> None:
        """Handles the end of a worker. Its job is not blamed if the machine was lost."""
        self._forget_worker(worker_number, reason)
        self._handle_event(schedule.WorkerDied(worker_number, self._clock(), reason, lost=not is_blamed))

    def _forget_worker(self, worker_number: int, reason: str) -> None:
        del self._sent_by_worker[worker_number]
        has_job = self._leases.pop(worker_number, None) is not None
        self._log(f"a worker was lost ({reason}); {'its job goes to another' if has_job else 'another is started'}")

    def _handle_event(self, event: schedule.ScheduleEvent) -> None:
        """Passes an event to the scheduler and performs its actions. Keeps the number of workers constant."""
        actions = [*self._machine.handle(event), *self._machine.warm_up(self._size)]
        for action in actions:
            match action:
                case schedule.StartWorker(number, size):
                    self._sent_by_worker[number] = _SentState()
                    self._executor.start(number, size.num_cpus, size.num_gpus)
                case schedule.KillWorker(number, reason):
                    self._executor.kill(number)
                    self._forget_worker(number, reason)
                case schedule.WorkLease(number, lease, work):
                    self._leases[number] = lease
                    self._send_job(number, work.key)
                case schedule.Ended(_, schedule.End.POISONED, _, message):
                    raise LobenchError("a job was lost too often", got=message, next_step=_ENOUGH_MEMORY)
                case schedule.Fail(message):
                    raise LobenchError("workers do not start", got=message, next_step="see the store's folder logs/")

    def _send_job(self, worker_number: int, job_number: int) -> None:
        job = self._jobs[job_number]
        sent = self._sent_by_worker[worker_number]
        genomes = self._genomes
        forgotten_genomes = sorted(sent.genomes - genomes.keys())
        sent.genomes.difference_update(forgotten_genomes)
        theta_path, initial_genomes = job.theta_path, []
        missing_updates = None
        if theta_path is not None:
            initial_genomes = [theta_path.theta]
            missing_updates = theta_path.missing_updates_after(sent.step)
            sent.step = theta_path.step + len(theta_path.updates)
        new_genomes = lineage(genomes, job.genome_ids, [*sent.genomes, *initial_genomes])
        sent.genomes.update(genome.id for genome in new_genomes)
        learn = Learn(forget=tuple(forgotten_genomes), genomes=tuple(new_genomes), theta_updates=missing_updates)
        self._executor.send(worker_number, learn.to_bytes())
        self._executor.send(worker_number, dataclasses.replace(job.task, job=job_number).to_bytes())

    def close(self) -> None:
        self._executor.close()
