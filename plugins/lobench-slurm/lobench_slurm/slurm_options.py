"""Options of `--executor slurm:NAME=VALUE,...`."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass

from lobench import UsageError

__all__ = ["SlurmOptions"]

_RESERVED_OPTIONS = (
    "cpus-per-task",
    "gpus-per-node",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "array",
    "job-name",
    "requeue",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """Options of the executor.

    Example:
      >>> SlurmOptions.parse("partition=gpu,time=1:00:00,idle=60").sbatch
      {'partition': 'gpu', 'time': '1:00:00'}

    Attributes:
      sbatch: Options of sbatch by their long names, without dashes. The value of a flag is True.
      host: Name or address under which the nodes reach this machine.
      idle_seconds: Seconds without work after which a job is ended.
    """

    sbatch: dict[str, str | bool]
    host: str
    idle_seconds: float

    @classmethod
    def parse(cls, argument: str) -> SlurmOptions:
        """Parses `NAME=VALUE,...`; "+" stands for a comma in a value (`gres=gpu:1+tmpfs:10`).

        Raises:
          UsageError: An option is set by lobench itself, or a number is invalid.
        """
        sbatch: dict[str, str | bool] = {}
        for option_text in filter(None, (option_text.strip() for option_text in argument.split(","))):
            name, is_assigned, value = option_text.partition("=")
            name = name.strip().lstrip("-").replace("_", "-")
            if name in _RESERVED_OPTIONS:
                raise UsageError(
                    "--executor slurm: this option is set by lobench",
                    got=option_text,
                    next_step="set Case.num_cpus, Case.num_gpus, and --workers",
                )
            if name in ("idle", "host") and not value.strip():
                raise UsageError(
                    "--executor slurm: this option needs a value", got=option_text, expected=f"{name}=VALUE"
                )
            sbatch[name] = value.strip().replace("+", ",") if is_assigned else True
        idle_text = str(sbatch.pop("idle", "120"))
        host = str(sbatch.pop("host", socket.gethostname()))
        try:
            idle_seconds = float(idle_text)
        except ValueError:
            idle_seconds = math.nan
        if not idle_seconds >= 0:
            raise UsageError("--executor slurm: idle", got=idle_text, expected="a number of seconds, at least 0")
        return cls(sbatch=sbatch, host=host, idle_seconds=idle_seconds)
