"""What crosses between a chief and its workers: JSON records, and results as bytes; no pickle."""

from __future__ import annotations

import dataclasses
import json
import struct
from dataclasses import dataclass
from typing import Any

from lobench.core.case import CaseInfo, SeedBlock

__all__ = [
    "Job",
    "case_from_record",
    "decode",
    "encode",
    "has_begun_well",
    "record_of",
]

_LENGTH = struct.Struct("<I")
_OPENING = b'{"kind": "'  # of the JSON part


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One seed block of one case on one checkpoint.

    Attributes:
      companions: URI and theta's path of checkpoints whose jobs, otherwise the same, this worker gets next.
    """

    lease: int
    case_key: str
    seed_block: SeedBlock
    checkpoint_uri: str
    theta_path: str
    companions: tuple[tuple[str, str], ...] = ()


def record_of(case: CaseInfo) -> dict[str, Any]:
    return dataclasses.asdict(case)


def case_from_record(record: dict[str, Any]) -> CaseInfo:
    return CaseInfo(**record)


def encode(kind: str, payload: bytes = b"", **values: Any) -> bytes:
    """Returns one message: length of the JSON part, the JSON part, the payload."""
    text = json.dumps({"kind": kind, **values}).encode()
    return _LENGTH.pack(len(text)) + text + payload


def decode(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Reads what `encode` wrote: the values, `kind` among them, and the payload.

    Raises:
      ValueError: anything else.
    """
    try:
        (length,) = _LENGTH.unpack_from(message)
        values = json.loads(message[_LENGTH.size : _LENGTH.size + length])
    except (struct.error, RecursionError) as error:
        raise ValueError(f"no message: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise ValueError("no message: it has no kind")
    return values, message[_LENGTH.size + length :]


def has_begun_well(part: bytes | bytearray) -> bool:
    """Says whether the first bytes of a message may be `encode`'s, however few have come."""
    opening = part[_LENGTH.size : _LENGTH.size + len(_OPENING)]
    return _OPENING.startswith(opening)
