"""Which program would compute a result here, without asking jax: a chief plans before a worker exists."""

from __future__ import annotations

import dataclasses
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from lobench.core.program import ELSEWHERE, Program
from lobench.core.result import Provenance
from lobench.engine.store.provenance import versions_here
from lobench.engine.workers.devices import devices_here, instruction_set, known_device

__all__ = ["Expected", "program_here", "program_of_old"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a chief expects to compute its results, before any worker has said what does.

    Attributes:
      is_elsewhere: Whether workers may be on other machines, whose devices are not known before.
      together: How many thetas a worker may compute at once.
    """

    is_elsewhere: bool = False
    together: int = 1

    def of(self, num_gpus: float, together: int = 1) -> Program:
        """Returns the program of a case that asks for so many GPUs."""
        program = program_here(num_gpus=num_gpus, together=together)
        return dataclasses.replace(program, device=ELSEWHERE) if self.is_elsewhere else program

    def all(self) -> list[Program]:
        return [self.of(num_gpus, together) for num_gpus in (0.0, 1.0) for together in {1, self.together}]


def program_here(*, num_gpus: float = 0.0, together: int = 1) -> Program:
    """Returns what a result of a process of this machine is expected to be computed by."""
    versions = versions_here()
    device = _gpu() if num_gpus and devices_here(os.environ) else f"cpu: {instruction_set()}"
    return Program(jax=versions.get("jax", ""), jaxlib=versions.get("jaxlib", ""), device=device, together=together)


def program_of_old(provenance: Provenance, version: str) -> Program:
    """Returns the program of a result whose key does not name it yet.

    Its provenance does not say the CPU's instruction set; on the machine that it was made on, that is this machine's.
    """
    if provenance.host == socket.gethostname():
        device = known_device(provenance.device)
        return Program.of(dataclasses.replace(provenance, device=device), version)
    return Program.of(provenance, version)


def _gpu(driver: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """Returns the first GPU as jax describes it."""
    for file in sorted(driver.glob("*/information")):
        for line in file.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "Model":
                return f"gpu: {value.strip()}"
    return "gpu"
