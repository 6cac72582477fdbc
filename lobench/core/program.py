"""Program identity: everything that determines a result's bits besides case, theta and seeds.

A key of the ledger contains `Program.key`. The ledger also stores the parts, for people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lobench.core.case import COMMAND, TEST

if TYPE_CHECKING:
    from lobench.core.result import Provenance

__all__ = ["ELSEWHERE", "EVALUATOR_PROGRAMS", "IMPORTED", "PROGRAM_VERSION", "Program", "describe_programs"]

# Raise it when a change of the inner program changes its numbers; then tests/test_golden_bits.py fails.
PROGRAM_VERSION = "5"

ELSEWHERE = "elsewhere"  # device of work whose machine is unknown until it ends

_KEY_DIGITS = 10  # hex digits
_IMPORTED_VERSION = "imported"
_FOREIGN_VERSIONS = {_IMPORTED_VERSION, COMMAND, TEST}  # versions of results that lobench did not compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Program that computed a result.

    Attributes:
      version: Version of lobench's inner program.
      jax, jaxlib: Versions of the packages; "" if unknown.
      device: Kind of device: `gpu: NVIDIA H200`, or the instruction set of a CPU, `cpu: x86-64-v3`; "" if unknown.
      together: Number of thetas that the program computed.
      at_once: Number of its trainings that a device computed at once (`Provenance.at_once`); 0: all of them.
    """

    version: str = PROGRAM_VERSION
    jax: str = ""
    jaxlib: str = ""
    device: str = ""
    together: int = 1
    at_once: int = 0

    @classmethod
    def of(cls, provenance: Provenance, version: str = PROGRAM_VERSION) -> Program:
        """Returns the program of a result, from the fields of its provenance."""
        if provenance.evaluator:
            return EVALUATOR_PROGRAMS[provenance.evaluator]
        index_text, _, count = provenance.together.partition(" of ")
        return cls(
            version=version,
            jax=provenance.versions.get("jax", ""),
            jaxlib=provenance.versions.get("jaxlib", ""),
            device=_device_kind(provenance.device),
            together=int(count) if index_text.isdecimal() and count.isdecimal() else 1,
            at_once=provenance.at_once,
        )

    @property
    def without_at_once(self) -> Program:
        """This program without `at_once`, which depends on the case alone and is the same on all machines."""
        return replace(self, at_once=0) if self.at_once else self

    @property
    def key(self) -> str:
        """Version, and a hash of all fields."""
        fields = [self.version, self.jax, self.jaxlib, self.device, str(self.together)]
        if self.at_once:
            fields.append(str(self.at_once))
        return f"{self.version}-{hashlib.sha256(chr(0).join(fields).encode()).hexdigest()[:_KEY_DIGITS]}"

    def __str__(self) -> str:
        if self.version in _FOREIGN_VERSIONS:
            return self.version
        if not (self.jax or self.jaxlib or self.device):
            return f"unknown program (version {self.version})"
        versions = f"jax {self.jax or '?'}" + ("" if self.jaxlib in ("", self.jax) else f" (jaxlib {self.jaxlib})")
        device = self.device or "unknown device"
        together = f", {self.together} thetas together" if self.together > 1 else ""
        at_once = f", {self.at_once} at a time" if self.at_once else ""
        return f"version {self.version}, {versions}, {device}{together}{at_once}"


IMPORTED = Program(version=_IMPORTED_VERSION)
# Programs by `CaseInfo.evaluator`. A command or a test may compute with anything; its own code is in `CaseInfo.code`.
EVALUATOR_PROGRAMS: Mapping[str, Program] = {evaluator: Program(version=evaluator) for evaluator in (COMMAND, TEST)}


def describe_programs(programs: Collection[Program | str]) -> str:
    """Returns a line on results of several programs; "" if there are fewer than two.

    Args:
      programs: Programs, or their texts. Results that are imported, or of commands or tests, are ignored, and so
        are differences in `at_once`, which depends on the case.
    """
    all_texts = {str(program.without_at_once if isinstance(program, Program) else program) for program in programs}
    program_texts = sorted(all_texts - _FOREIGN_VERSIONS)
    return (
        f"results of {len(program_texts)} programs, which may differ in bits: {'; '.join(program_texts)}"
        if len(program_texts) > 1
        else ""
    )


def _device_kind(device: str) -> str:
    """Returns a device without its number of threads, which is a property of the case; "" if a CPU's set is unknown."""
    kind = device.partition(" x ")[0] if device.startswith("cpu:") else device
    return "" if kind == "cpu: cpu" else kind
