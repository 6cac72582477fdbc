"""Publication of a store: its ledger, suites, thetas and card in one bundle."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from lobench.analysis.scores.baseline_file import find_baselines
from lobench.analysis.store.snapshot import read_store
from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.core.wording import counted, headline
from lobench.engine.checkpoints.readers import load_readers, reader_for
from lobench.engine.checkpoints.spool import Spool, load_theta
from lobench.engine.store.bundle import write_bundle
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.plans import PlannedSubject, absent
from lobench.engine.store.signature import sign
from lobench.engine.whole_file import require_writable
from lobench.plugins import load_plugins
from lobench.tools.publish.card import card_of
from lobench.tools.publish.suites import LARGEST, suites_of

__all__ = ["PublishRecord", "publish", "published_text"]


class PublishRecord(TypedDict):
    """`lobench publish`: what a bundle holds, and what was left out of it."""

    output: str
    root: str
    is_signed: bool
    num_bytes: int
    num_evaluations: int
    thetas: dict[str, str]
    suites: dict[str, str]
    left_out: list[str]


def publish(
    store: Path, output: Path, *, suites: Sequence[Path] = (), has_thetas: bool = True, key: Path | None = None
) -> PublishRecord:
    """Writes the bundle of a store.

    Args:
      suites: Folders of suites that the store does not tell of.
      has_thetas: Whether thetas go into it.
      key: A private SSH key.
    Raises:
      StoreError: there is no store, or it holds no evaluation. UsageError: a file cannot be written, or not signed.
    """
    snapshot = read_store(store)
    if not snapshot.rows:
        raise StoreError("the store holds no evaluation yet", where=str(store))
    if not output.suffix:
        raise UsageError("--output", got=str(output), expected="a file such as results.lobench")
    require_writable(output)
    with Ledger.open(store, read_only=True) as ledger:
        rows, subjects = list(ledger.evaluations()), list(ledger.sightings().values())
        gaps = _gaps(ledger.planned(), rows, ledger.events())
    found = suites_of(store, rows, suites)
    thetas, without = _thetas(store, subjects) if has_thetas else ({}, _not_included(subjects))
    left_out = [*_without_curves(rows), *gaps, *without, *found.left_out]
    about = {
        "left_out": left_out,
        "programs": sorted({str(row.program) for row in rows}),
        "machines": sorted({curves.cost.machine for row in rows if (curves := row.curves) and curves.cost}),
        "suites": found.places,
        "files_not_included": found.not_included,
        "thetas": {one.sha256: one.uri for one in subjects if one.has_theta},
    }
    members = {
        "about.json": _json(about),
        **found.members,
        **{f"theta/{sha256}.npz": content for sha256, content in thetas.items()},
    }
    members["card.md"] = card_of(snapshot, _with_baselines(found.folders), left_out).encode()
    with Ledger.open(store, read_only=True) as ledger:
        signature_of = None if key is None else functools.partial(sign, key=key)
        root = write_bundle(ledger.connection, output, members, sign=signature_of)
    return PublishRecord(
        output=str(output),
        root=root,
        is_signed=key is not None,
        num_bytes=output.stat().st_size,
        num_evaluations=len(rows),
        thetas={one.sha256: "included" if one.sha256 in thetas else one.uri for one in subjects if one.has_theta},
        suites=found.places,
        left_out=left_out,
    )


def published_text(record: PublishRecord) -> str:
    """Returns what was written, in lines."""
    lines = [
        f"{record['output']}: {counted(record['num_evaluations'], 'evaluation')}, {record['num_bytes'] / 1000:,.0f} kB",
        f"root {record['root']}" + (", signed" if record["is_signed"] else ""),
        *(f"left out: {line}" for line in record["left_out"]),
        "publish the root before the beacon of an audit is known: a draw then hangs on nothing that you chose",
    ]
    return "\n".join(lines)


def _with_baselines(folders: Sequence[Path]) -> list[Path]:
    return sorted(folder for folder in folders if find_baselines(folder))


def _json(value: Any) -> bytes:
    return f"{json.dumps(value, indent=1, sort_keys=True)}\n".encode()


def _without_curves(rows: Sequence[EvaluationRow]) -> Iterator[str]:
    counts = Counter((row.outcome, row.case.suite, row.case.name) for row in rows if not row.has_curves)
    for (outcome, suite, name), count in sorted(counts.items()):
        yield f"no curves of {counted(count, 'evaluation')} of {suite}/{name}: {Outcome(outcome)}"


def _gaps(
    planned: Sequence[PlannedSubject], rows: Sequence[EvaluationRow], events: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yields a line for each case of which blocks were planned and have no outcome, and for each kind of loss."""
    for one, case, blocks in absent(planned, rows):
        yield f"planned and not evaluated: {one.label} on {case.name}, seeds {', '.join(map(str, blocks))}"
    counts = Counter(kind for kind, _ in events if kind in ("skipped", "expired", "unreadable"))
    yield from (f"{counted(count, 'checkpoint')} {kind}" for kind, count in sorted(counts.items()))


def _not_included(subjects: Sequence[Subject]) -> list[str]:
    count = len({one.sha256 for one in subjects if one.has_theta})
    return [f"{counted(count, 'theta')}, by choice: hashes alone"] if count else []


def _thetas(store: Path, subjects: Sequence[Subject]) -> tuple[Mapping[str, bytes], list[str]]:
    """Returns thetas by hash as a spool keeps them, and a line for each that is not to be had any more."""
    found: dict[str, bytes] = {}
    problems: dict[str, str] = {}
    readers = load_readers(load_plugins(), allow_pickle=False)
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        spool = Spool(Path(folder))
        for one in sorted((one for one in subjects if one.has_theta), key=lambda one: (one.sha256, one.uri)):
            if one.sha256 in found:
                continue
            kept = store / "spool" / f"{one.sha256}.npz"
            with contextlib.suppress(LobenchError):
                if kept.is_file():
                    load_theta(kept)  # it has this hash, or that raises
                    found[one.sha256] = kept.read_bytes()
                    continue
            try:
                name = reader_for(_path(one.uri), readers)
                if name is None:
                    raise LobenchError("it is not there any more, or no reader knows it")
                taken = spool.take(SeenCheckpoint(uri=one.uri, reader=name), readers[name])
                if taken.sha256 != one.sha256:
                    raise LobenchError("another theta lies there now")
                found[one.sha256] = spool.path(one.sha256).read_bytes()
            except LobenchError as error:
                problems[one.sha256] = f"theta {one.sha256[:12]} of {one.uri}: {headline(error)}"
    large = {sha256 for sha256, content in found.items() if len(content) > LARGEST}
    problems |= {sha256: f"theta {sha256[:12]}: larger than {LARGEST / 1e6:g} MB" for sha256 in large}
    return (
        {sha256: content for sha256, content in found.items() if sha256 not in large},
        [problems[sha256] for sha256 in sorted(problems) if sha256 not in found or sha256 in large],
    )


def _path(uri: str) -> Any:
    from etils import epath

    return epath.Path(uri)
