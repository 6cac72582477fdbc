"""Client for trainers.

    with lobench_pbt.client("127.0.0.1:6006") as study:
        for trial in study.trials("worker-0"):
            state = restore(trial.warm_state) if trial.warm_state else init(trial.seed)
            trial.apply()                                 # binds the parameters to gin; after restoring
            for step in range(trial.start_step, trial.end_step):
                state = train(state, step)
                trial.report(step, {"loss": loss})        # optional
                if trial.should_stop:
                    break
            done = step + 1 - trial.start_step            # fewer than n_steps if it stopped early
            trial.complete(save(state), n_steps=done)     # a checkpoint that was published by a rename

The lease is renewed in the background. A trial whose lease was lost (`is_lost`) should stop; its further reports have
no effect, because another worker has it. `trials` continues with the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lobench import LobenchError
from lobench.extend import Value, checkpoint_sha256, holds_theta
from lobench_pbt.codec import artifact_to_message, trial_from_message
from lobench_pbt.connection import Address, Connection
from lobench_pbt.gin_paths import apply_params, bound_values, gin_text
from lobench_pbt.process import Fate, process_fate, process_text, register_client, unregister_client
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.trial import Artifact, Refusal, Refused, StudyTrial
from lobench_pbt.vault import bytes_sha256

__all__ = ["StudyClient", "TrialSession", "client"]

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.5


def client(address: str, *, patience: float = 300.0) -> StudyClient:
    """Connects to a controller.

    Args:
      address: `HOST:PORT[,study=S][,token_file=F][,ca=F]`.
      patience: Seconds to wait for a controller that is away.
    """
    return StudyClient(Connection(Address.parse(address), patience=patience))


class StudyClient:
    """Connection of a worker to one study."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._study = connection.address.study
        self._process = register_client()
        self._sessions: set[TrialSession] = set()  # trials with heartbeats

    def __enter__(self) -> StudyClient:
        return self

    def __exit__(self, *_: object) -> None:
        for session in list(self._sessions):  # if the trainer failed during a trial
            session.close()
        unregister_client(self._process)
        self._connection.close()

    def trials(self, worker: str) -> Iterator[TrialSession]:
        """Yields trials until the study is done. The worker's name must be unique.

        A trial that was not completed is given again to the same worker, or to a process that replaces a dead one.

        Raises:
          LobenchError: Another live process uses this name.
        """
        holder_wait = _HolderWait(worker)
        while True:
            request = pbt_pb2.SuggestRequest(
                study=self._study, worker=worker, process=self._process, gone=holder_wait.ended_process
            )
            reply = self._connection.call(self._connection.stub.Suggest, request)
            if reply.answer == pbt_pb2.SuggestReply.DONE:
                return
            if reply.answer == pbt_pb2.SuggestReply.HELD:
                holder_wait.wait_or_take_over(reply)
                continue
            if reply.answer == pbt_pb2.SuggestReply.WAIT:
                time.sleep(_POLL_SECONDS)
                continue
            holder_wait = _HolderWait(worker)
            session = TrialSession(self._connection, reply.trial, self._process)
            self._sessions.add(session)
            try:
                yield session
            finally:
                self._sessions.discard(session)
                session.close()

    def stop(self) -> None:
        """Stops the study."""
        self._connection.call(self._connection.stub.StopStudy, pbt_pb2.StopStudyRequest(study=self._study))

    def all_trials(self) -> Iterator[StudyTrial]:
        """Yields every trial by id."""
        last_id, has_more = 0, True
        while has_more:
            request = pbt_pb2.ListTrialsRequest(study=self._study, after_id=last_id)
            reply = self._connection.call(self._connection.stub.ListTrials, request)
            for message in reply.trials:
                last_id = message.id
                yield trial_from_message(message)
            has_more = reply.more


class _HolderWait:
    """State of a worker whose trial belongs to another process with its name, which has died or is a duplicate.

    Attributes:
      ended_process: Process that is known to have ended.
    """

    def __init__(self, worker: str) -> None:
        self.ended_process = ""
        self._worker, self._waiting_since = worker, 0.0

    def wait_or_take_over(self, reply: Any) -> None:
        """Waits a moment, or records that the other process has ended.

        Raises:
          LobenchError: The other process is alive.
        """
        holder_fate = process_fate(reply.holder)
        now = time.monotonic()
        if holder_fate is Fate.OVER and self.ended_process != reply.holder:
            self.ended_process = reply.holder
            return
        is_first, self._waiting_since = not self._waiting_since, self._waiting_since or now
        # The controller reassigns the trial after half a lease without a sign of life.
        if holder_fate is Fate.RUNS or now - self._waiting_since > reply.trial.lease_seconds:
            raise LobenchError(
                "two workers have one name",
                where=f"worker {self._worker!r}",
                got=f"{process_text(reply.holder)} works on trial {reply.trial.id} under it",
                next_step="give each worker a name of its own, such as its host's and its number",
            )
        if is_first:
            names = (self._worker, process_text(reply.holder), reply.trial.id, reply.trial.lease_seconds)
            _LOG.warning("worker %r: %s has its trial %d; is it alive? waiting for a sign, %.0f s at most", *names)
        time.sleep(_POLL_SECONDS)


class TrialSession:
    """Trial that this worker holds.

    Attributes:
      id, generation, params, start_step, n_steps, seed: Values from the controller.
      should_stop: Whether the study was stopped or the lease was lost: complete with the present state.
      is_lost: Whether another worker has the trial now, so that reports of this worker have no effect.
    """

    def __init__(self, connection: Connection, message: pbt_pb2.Trial, process: str = "") -> None:
        self._process = process
        self._connection = connection
        self._study = message.study or connection.address.study
        trial = trial_from_message(message)
        self.id = trial.id
        self.generation = trial.generation
        self.seed = trial.seed
        self.params: Mapping[str, Value] = dict(trial.params)
        self.start_step = trial.start_step
        self.n_steps = trial.n_steps
        self.warm_checkpoint = Path(trial.warm_checkpoint.uri) if trial.warm_checkpoint else None
        self.warm_state = Path(trial.warm_state.uri) if trial.warm_state else None
        self.should_stop = self.is_lost = False
        self._trial, self._is_applied = trial, False
        self._ended_event = threading.Event()
        beat_seconds = max(message.lease_seconds / 4, 0.1)
        self._thread = threading.Thread(
            target=self._send_heartbeats, args=(beat_seconds,), name=f"trial {trial.id}", daemon=True
        )
        self._thread.start()

    @property
    def end_step(self) -> int:
        return self.start_step + self.n_steps

    def folder(self, root: str | Path) -> Path:
        """Creates and returns the folder of this attempt, in which a watch on `root` finds its checkpoints."""
        folder_names = (f"generation_{self.generation}", f"trial_{self.id}", f"attempt_{self._trial.attempt}")
        folder = Path(root).joinpath(*folder_names)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def restored(self) -> None:
        """Checks that the checkpoint to start from is unchanged since the controller recorded its hash.

        Raises:
          LobenchError: The checkpoint is missing or changed.
        """
        for artifact, digest in (
            (self._trial.warm_checkpoint, checkpoint_sha256),
            (self._trial.warm_state, _bytes_digest),
        ):
            if artifact is None or (digest is checkpoint_sha256 and holds_theta(artifact.uri, artifact.sha256)):
                continue  # `holds_theta` also accepts a digest of an older version of lobench
            if (actual := digest(artifact.uri)) != artifact.sha256:
                raise LobenchError(
                    "the checkpoint to start from has changed", where=artifact.uri, got=actual, expected=artifact.sha256
                )

    def apply(self) -> None:
        """Binds the parameters to their gin paths. Call it after the checkpoint is restored.

        Inactive parameters get the values that they had before the first trial of this process.
        """
        apply_params(self.params)
        self._is_applied = True

    @property
    def gin_bindings(self) -> str:
        """Returns the parameters as gin text.

        If a checkpoint contains the text, a watch evaluates it with these parameters.
        """
        return gin_text(self.params)

    def report(self, step: int, metrics: Mapping[str, float], *, seconds: float = 0.0) -> None:
        """Reports the metrics of a step to the controller. Its reply may set `should_stop`."""
        request = pbt_pb2.AddMeasurementRequest(
            **self._identity,
            step=step,
            seconds=seconds,
            metrics=_floats(metrics),
        )
        reply = self._call(self._connection.stub.AddMeasurement, request)
        self.should_stop |= reply is not None and reply.stop

    def complete(
        self,
        checkpoint: str | Path,
        metrics: Mapping[str, float] | None = None,
        *,
        state: str | Path | None = None,
        used: Mapping[str, Value] | None = None,
        n_steps: int | None = None,
    ) -> bool:
        """Ends the trial. Returns False if the lease was lost, so that the result does not count.

        Args:
          checkpoint: Checkpoint that a watch evaluates; it must not change any more.
          metrics: Fitness, if the study takes it from trainers.
          state: File or folder with further state that the trainer needs to continue, such as an outer optimizer's.
          used: Parameters that the training used, if it does not read them from gin.
          n_steps: Number of outer steps done; fewer than requested only after `should_stop`.
        Raises:
          LobenchError: The parameters were not applied, or were overwritten since.
        """
        self._check_used(used)
        path = Path(checkpoint).absolute()
        artifact = Artifact(uri=str(path), sha256=checkpoint_sha256(path))
        train_state = (
            Artifact(uri=str(Path(state).absolute()), sha256=_bytes_digest(state)) if state is not None else None
        )
        request = pbt_pb2.CompleteRequest(
            checkpoint=artifact_to_message(artifact),
            train_state=artifact_to_message(train_state),
            metrics=_floats(metrics or {}),
            n_steps=self.n_steps if n_steps is None else n_steps,
            **self._identity,
        )
        return self._end(request)

    def fail(self, reason: str) -> bool:
        """Ends the trial as infeasible, because training with its parameters is impossible.

        Returns the same as `complete`.
        """
        return self._end(pbt_pb2.CompleteRequest(infeasible_reason=reason or "unknown", **self._identity))

    def _end(self, request: pbt_pb2.CompleteRequest) -> bool:
        is_accepted = self._call(self._connection.stub.Complete, request) is not None
        self.close()
        self.is_lost = not is_accepted  # corrects a refused heartbeat after the completion
        return is_accepted

    def close(self) -> None:
        """Ends the heartbeats."""
        self._ended_event.set()
        self._thread.join()

    @property
    def _identity(self) -> dict[str, Any]:
        attempt = self._trial.attempt
        return {"study": self._study, "trial": self.id, "attempt": attempt, "process": self._process}

    def _check_used(self, used: Mapping[str, Value] | None) -> None:
        if used is None and self.params and not self._is_applied:
            raise LobenchError(
                "the parameters were never applied",
                where=f"trial {self.id}",
                next_step="call apply() after restoring, or say which values training used: complete(..., used=...)",
            )
        settings = bound_values(self.params) if used is None and self.params else dict(used or self.params)
        differing_paths = sorted(path for path, value in self.params.items() if settings.get(path) != value)
        if differing_paths:
            raise LobenchError(
                "training used other parameters than the trial's: something has overwritten them",
                where=f"trial {self.id}",
                got=", ".join(f"{path} = {settings.get(path)!r}" for path in differing_paths),
                expected=", ".join(f"{path} = {self.params[path]!r}" for path in differing_paths),
            )

    def _call(self, method: Any, request: Any) -> Any:
        """Calls the controller; returns None if the lease is lost."""
        if self.is_lost:
            return None
        try:
            return self._connection.call(method, request)
        except Refused as error:
            if error.refusal is not Refusal.STALE:
                raise
            self._lose_lease()
            return None

    def _lose_lease(self) -> None:
        self.is_lost = self.should_stop = True

    def _send_heartbeats(self, seconds: float) -> None:
        """Renews the lease until the trial ends. Retries if the controller is away; a refusal ends the lease."""
        request = pbt_pb2.HeartbeatRequest(**self._identity)
        while not self._ended_event.wait(seconds):
            try:
                self.should_stop |= self._connection.call_once(self._connection.stub.Heartbeat, request).stop
            except Refused:
                self._lose_lease()
                return
            except LobenchError:
                continue


def _bytes_digest(path: str | Path) -> str:
    return bytes_sha256(Path(path))


def _floats(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
