"""How MLflow's metrics are called: as `Number.key` says, in the characters that MLflow takes.

MLflow's page makes a section of what stands before a name's last slash, and shows names without one first. In a file
store a name is a file and what stands before its slash a folder, so that no name may begin another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lobench.extend import Number

__all__ = ["metrics_of"]

_OTHERS = re.compile(r"[^A-Za-z0-9_. -]")  # a colon is none on Windows
_RESERVED = {"score", "verdicts_passed", "score_of", "intervals", "diagnostics"}  # no suite makes a folder of these
_MAX_LENGTH = 250


def metrics_of(numbers: Sequence[Number]) -> Iterator[tuple[str, float]]:
    """Yields (name, value) of what is written of some numbers."""
    for number in numbers:
        suite = _part(number.suite)
        suite = _hashed(suite, suite) if suite in _RESERVED else suite
        name = "/".join(map(_part, number.name.split("/")))
        for key, value in replace(number, suite=suite, case=_part(number.case), name=name).values():
            yield key if len(key) <= _MAX_LENGTH else _hashed(key[: _MAX_LENGTH - 9], key), value


def _part(text: str) -> str:
    """Returns a part of a name as MLflow takes it: two parts that differ stay different."""
    known = _OTHERS.sub("_", text)
    return known if not text or (known == text and text.strip(". ")) else _hashed(known, text)


def _hashed(text: str, of: str) -> str:
    return f"{text}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"
