"""SLURM jobs of one watch: submitted with submitit, listed with squeue, ended with scancel."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lobench.extend import environment_with

with environment_with({"SUBMITIT_LOG_LEVEL": "NOCONFIG"}, as_defaults=True):  # otherwise it closes all handlers
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

from lobench import LobenchError
from lobench_slurm.slot import serve

__all__ = ["Jobs"]

_COMMAND_SECONDS = 60.0


class _Executor(submitit.SlurmExecutor):
    """Executor that leaves the error output of sbatch in a file, where submitit would print it."""

    def __init__(self, folder: Path, python: str) -> None:
        super().__init__(folder, python=python)
        self.errors = folder / "sbatch.err"

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        command = super()._make_submission_command(submission_file_path)
        return ["sh", "-c", 'exec "$@" 2>"$0"', str(self.errors), *command]


class Jobs:
    """Jobs below one folder. They share a name, which no other folder's jobs have.

    The methods wait for SLURM's commands, so call them in a thread.
    """

    def __init__(self, folder: Path, sbatch: Mapping[str, str | bool]) -> None:
        self._folder, self._sbatch = folder, sbatch
        self.name = f"lobench-{hashlib.sha256(str(folder).encode()).hexdigest()[:10]}"
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)  # the pickled arguments of a job have the key of the connection
        self._executor = _Executor(folder, python=f"{shlex.quote(sys.executable)} -P")

    def submit(self, num_cpus: int, num_gpus: int, **arguments: Any) -> str:
        """Submits a job that calls `serve`; returns its number.

        Raises:
          LobenchError: sbatch refused it.
        """
        self._executor.update_parameters(
            job_name=self.name,
            cpus_per_task=num_cpus,
            gpus_per_node=num_gpus or None,
            time=None,
            wckey=None,
            srun_args=[f"--cpus-per-task={num_cpus}"],  # srun does not inherit it
            additional_parameters={"no-requeue": True, **self._sbatch},
        )
        try:
            job = self._executor.submit(serve, num_cpus=num_cpus, num_gpus=num_gpus, **arguments)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            try:
                output = self._executor.errors.read_text(errors="replace")
            except OSError:
                output = ""
            lines = [line.strip() for line in output.splitlines() if "error:" in line] or [str(error)]
            has_no_controller = "fetch config" in lines[-1] or "Unable to contact" in lines[-1]
            raise LobenchError(
                "sbatch refused a job",
                where=self.name,
                got=lines[-1],
                next_step="is this machine a login node? `sinfo` shows whether it can reach a SLURM controller; "
                "without SLURM leave out --executor"
                if has_no_controller
                else "check --executor slurm:NAME=VALUE,...",
            ) from error
        return str(job.job_id)

    def states(self) -> dict[str, str]:
        """Returns the states of the jobs that SLURM still knows, by number, such as RUNNING or TIMEOUT.

        Raises:
          OSError, subprocess.SubprocessError: SLURM's controller does not answer.
        """
        command = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", f"--name={self.name}"]
        text = subprocess.run(
            [*command, "--format=%i|%T"], capture_output=True, text=True, check=True, timeout=_COMMAND_SECONDS
        ).stdout
        return dict(line.strip().split("|", 1) for line in text.splitlines() if "|" in line)

    def cancel(self, job_numbers: Iterable[str]) -> None:
        subprocess.run(["scancel", "--quiet", *job_numbers], capture_output=True, timeout=_COMMAND_SECONDS)

    def cancel_all(self) -> None:
        """Cancels all jobs of this name, also those of an earlier watch that was killed."""
        command = ["scancel", "--quiet", f"--user={os.getuid()}", f"--name={self.name}"]
        subprocess.run(command, capture_output=True, timeout=_COMMAND_SECONDS)

    def last_line(self, job_number: str) -> str:
        """Returns the last line of a job's standard error, or the path where it should be."""
        path = self._folder / f"{job_number}_0_log.err"
        try:
            lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            lines = []
        return lines[-1] if lines else f"no output in {path}; do the nodes share this folder?"
