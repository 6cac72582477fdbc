"""Program identity: everything besides case, theta and seeds that fixes a result's bits.

A key of the ledger holds `Program.key`; the parts stand beside it, for people.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lobench.core.result import Provenance

__all__ = ["ELSEWHERE", "IMPORTED", "PROGRAM_VERSION", "Program", "describe_programs"]

# Raise it when a change of the inner program changes its numbers: tests/test_golden_bits.py says when.
PROGRAM_VERSION = "5"

ELSEWHERE = "elsewhere"  # the device of work whose machine is not known before it is done

_HASHED = 10  # hex digits
_IMPORTED = "imported"  # the version of what lobench did not compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What computed a result.

    Attributes:
      version: Of lobench's inner program.
      jax, jaxlib: Their versions; "" where they are not known.
      device: Kind of device, `gpu: NVIDIA H200`, of a CPU its instruction set, `cpu: x86-64-v3`; "" where not known.
      together: How many thetas the program computed.
      at_once: How many of its trainings a device computed at once (`Provenance.at_once`); 0: all of its own.
    """

    version: str = PROGRAM_VERSION
    jax: str = ""
    jaxlib: str = ""
    device: str = ""
    together: int = 1
    at_once: int = 0

    @classmethod
    def of(cls, provenance: Provenance, version: str = PROGRAM_VERSION) -> Program:
        """Returns the program of a result, as far as its provenance says it."""
        place, _, count = provenance.together.partition(" of ")
        return cls(
            version=version,
            jax=provenance.versions.get("jax", ""),
            jaxlib=provenance.versions.get("jaxlib", ""),
            device=_kind(provenance.device),
            together=int(count) if place.isdecimal() and count.isdecimal() else 1,
            at_once=provenance.at_once,
        )

    @property
    def whole(self) -> Program:
        """This program, whatever it computes at once: that hangs on the case, and all machines agree on it."""
        return replace(self, at_once=0)

    @property
    def key(self) -> str:
        """The version, and a hash of it all."""
        return _key(self)

    def __str__(self) -> str:
        if self.version == _IMPORTED:
            return _IMPORTED
        if not (self.jax or self.jaxlib or self.device):
            return f"unknown program (version {self.version})"
        versions = f"jax {self.jax or '?'}" + ("" if self.jaxlib in ("", self.jax) else f" (jaxlib {self.jaxlib})")
        device = self.device or "unknown device"
        together = f", {self.together} thetas together" if self.together > 1 else ""
        at_once = f", {self.at_once} at a time" if self.at_once else ""
        return f"version {self.version}, {versions}, {device}{together}{at_once}"


@functools.lru_cache(maxsize=256)  # thousands of results are of a few programs
def _key(program: Program) -> str:
    parts = [program.version, program.jax, program.jaxlib, program.device, str(program.together)]
    if program.at_once:
        parts.append(str(program.at_once))
    return f"{program.version}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:_HASHED]}"


IMPORTED = Program(version=_IMPORTED)


def describe_programs(programs: Collection[Program | str]) -> str:
    """Returns a line on results of several programs, or their texts; "" where there is one at most.

    What was imported is no program's. Programs that differ in what they compute at once are one: cases differ in that.
    """
    named = sorted({str(one.whole if isinstance(one, Program) else one) for one in programs} - {_IMPORTED})
    return f"results of {len(named)} programs, which may differ in bits: {'; '.join(named)}" if len(named) > 1 else ""


def _kind(device: str) -> str:
    """Returns a device without its number of threads, which is the case's; "" for a CPU of unknown instructions."""
    kind = device.partition(" x ")[0] if device.startswith("cpu:") else device
    return "" if kind == "cpu: cpu" else kind
