"""W&B's run log `run-ID.wandb`, as written by an offline run.

The log consists of blocks as in LevelDB, and its records are messages of W&B's. A record cut off at the end of the file
is ignored.
"""

from __future__ import annotations

import importlib
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lobench.core.errors import UsageError
from lobench.core.number_checks import is_number
from lobench.core.wording import convert_errors
from lobench.tools.curve_import.points import LoggedRun

__all__ = ["WandbEnd", "WandbRow", "is_log", "wandb_rows", "wandb_run"]

WandbRow = dict[str, float]

_FILE_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_BLOCK_BYTES = 32768
_PART_HEADER = struct.Struct("<IHB")  # checksum, length, kind: whole, first, middle or last part of a record
_WHOLE, _FIRST, _LAST = 1, 2, 4
_SPECIAL = {"NaN", "Infinity", "-Infinity"}


def is_log(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FILE_HEADER)) == _FILE_HEADER


@dataclass(slots=True)
class WandbEnd:
    """Whether a file was read up to the records that end its run."""

    is_whole: bool = False


def wandb_rows(path: Path, start: int = 0, *, end: WandbEnd | None = None) -> Iterator[tuple[WandbRow, int]]:
    """Yields the numbers in each row of the history, including `_step`, and the file position at the end of the row.

    Args:
      path: Path of the file.
      start: End of a row. Only later rows are yielded.
      end: Updated once the last row was yielded.
    Raises:
      UsageError: wandb is not installed, or this is not a W&B file.

    >>> list(wandb_rows(Path("nowhere.wandb")))
    Traceback (most recent call last):
    lobench.core.errors.UsageError: nowhere.wandb: cannot read this file; got No such file or directory
    """
    for record, position in _read_messages(path, start):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            yield (
                {name: value for name, value in map(_history_value, record.history.item) if value is not None},
                position,
            )
        elif kind == "exit" and end is not None:
            end.is_whole = True


def wandb_run(path: Path) -> LoggedRun:
    """Returns the run of a file, with the configuration that precedes the first row.

    Raises:
      UsageError: As for `wandb_rows`; or the file ends before the run's record.
    """
    run: Any = None
    facts: dict[str, str] = {}
    for record, _ in _read_messages(path):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            break
        if kind == "run":
            run = record.run
            grouping = {"group": run.run_group, "job_type": run.job_type, "tags": ",".join(run.tags)}
            facts |= {key: value for key, value in grouping.items() if value}
        if kind in ("run", "config"):
            for item in (record.run.config if kind == "run" else record.config).update:
                facts |= _config_facts(".".join(["config", *(item.nested_key or [item.key])]), item.value_json)
    if run is None:
        raise UsageError("the file ends before the name of its run", where=str(path))
    return LoggedRun(run.run_id, run.display_name or run.run_id, facts)


def _config_facts(name: str, text: str) -> dict[str, str]:
    """Returns a configuration value by name, with objects flattened. W&B's own entries are left out."""
    if name.startswith("config._wandb"):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {name: text}
    if isinstance(value, dict) and value:
        flattened = (_config_facts(f"{name}.{key}", json.dumps(element)) for key, element in value.items())
        return {key: text for entries in flattened for key, text in entries.items()}
    return {name: value if isinstance(value, str) else text}


def _history_value(item: Any) -> tuple[str, float | None]:
    name = item.key or ".".join(item.nested_key)
    kind = item.WhichOneof("value") if "value" in item.DESCRIPTOR.oneofs_by_name else None
    value: object = getattr(item, kind) if kind else None
    value = json.loads(item.value_json) if kind in (None, "json", "value_json") and item.value_json else value
    if isinstance(value, str) and value in _SPECIAL:
        return name, float(value)
    if is_number(value):
        return name, float(value)
    return name, None


def _read_messages(path: Path, start: int = 0) -> Iterator[tuple[Any, int]]:
    try:
        messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    except ImportError as error:
        raise UsageError("W&B's own file needs wandb", where=str(path), next_step="pip install wandb") from error
    for content, end in _read_records(path, start):
        yield messages.Record.FromString(content), end


def _read_records(path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Yields the complete records with their end positions. Stops at the first incomplete record."""
    with convert_errors(OSError, UsageError, "cannot read this file", where=path), path.open("rb") as file:
        if file.read(len(_FILE_HEADER)) != _FILE_HEADER:
            raise UsageError("not a file of a W&B run", where=str(path))
        record = b""
        for kind, content, end in _read_record_parts(file, max(start, len(_FILE_HEADER))):
            record = content if kind in (_WHOLE, _FIRST) else record + content
            if kind in (_WHOLE, _LAST):
                yield record, end


def _read_record_parts(file: IO[bytes], start: int) -> Iterator[tuple[int, bytes, int]]:
    block_start = start - start % _BLOCK_BYTES
    offset = start - block_start
    file.seek(block_start)
    while block := file.read(_BLOCK_BYTES):
        while len(block) - offset >= _PART_HEADER.size:
            checksum, length, kind = _PART_HEADER.unpack_from(block, offset)
            content = block[offset + _PART_HEADER.size : offset + _PART_HEADER.size + length]
            if len(content) < length or zlib.crc32(content, zlib.crc32(bytes([kind]))) != checksum:
                return
            offset += _PART_HEADER.size + length
            yield kind, content, block_start + offset
        if len(block) < _BLOCK_BYTES:  # the file ends inside this block, where later records will be appended
            return
        block_start, offset = block_start + _BLOCK_BYTES, 0
