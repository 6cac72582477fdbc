"""What `lobench best` does: ranks what the store holds, evaluates the top again on fresh seeds, keeps a record."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from etils import epath

from lobench.analysis.intervals import Interval
from lobench.analysis.ranking import Ranked, rank, scales_by_name
from lobench.analysis.subjects import Subject, subjects_of
from lobench.cli.watch_setup import WatchCommand, default_store, run_watch
from lobench.core.errors import LobenchError, UsageError
from lobench.engine.ledger import EvaluationRow, Ledger

__all__ = ["BestCommand", "best_text", "run_best"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BestCommand:
    """The options of `lobench best`, as given."""

    location: str
    suites: tuple[str, ...]
    metric: str
    top: int
    seeds: int | None
    name: str
    store: Path | None
    workers: str
    gin_files: tuple[str, ...]
    gin_params: tuple[str, ...]


def run_best(command: BestCommand) -> dict[str, Any]:
    """Returns the record that `best.json` of the store keeps.

    Raises:
      LobenchError: no store, nobody knows the metric, no candidate is left, nothing could be evaluated.
    """
    name = command.name or Path(command.suites[0]).resolve().stem
    store = command.store or default_store(command.location, name)
    rows = _rows(store)
    first_seed = 1 + max((row.key.seed_block.start + row.key.seed_block.size - 1 for row in rows), default=-1)
    subjects = [subject for subject in subjects_of(rows) if not subject.checkpoint.uri.startswith("optimizer: ")]
    metric = _metric(command.metric, subjects, store)
    scales = scales_by_name(subjects, metric)
    chosen, gone = _there(rank(subjects, metric, scales), command.top)
    if not chosen:
        raise UsageError(
            "no checkpoint to choose from",
            where=str(store),
            got=", ".join(gone) or "none",
            next_step=("they are gone from their places" if gone else "watch the run first"),
        )
    paths = [ranked.subject.checkpoint.uri for ranked in chosen]
    _evaluate(command, store, first_seed, paths)
    again = [row for row in _rows(store / "best") if row.key.seed_block.start >= first_seed]
    fresh = rank(subjects_of(again), metric, scales)
    record = _record(command, metric, first_seed, gone, chosen, fresh)
    _keep(store / "best.json", record)
    return record


def _rows(store: Path) -> list[EvaluationRow]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return list(ledger.evaluations())
    finally:
        ledger.close()


def _metric(asked: str, subjects: Sequence[Subject], store: Path) -> str | None:
    known = set().union(*(subject.metrics() for subject in subjects))
    if asked and asked not in known:
        raise UsageError("nobody has this metric", where=str(store), got=repr(asked), expected=", ".join(sorted(known)))
    return asked or None


def _there(ranked: Sequence[Ranked], top: int) -> tuple[list[Ranked], list[str]]:
    """Returns the first that are still where they were, and the paths of better ones that are not."""
    chosen: list[Ranked] = []
    gone = []
    for one in ranked:
        if len(chosen) == top or math.isnan(one.score.mean):
            break
        if epath.Path(one.subject.checkpoint.uri).exists():
            chosen.append(one)
        else:
            gone.append(one.subject.checkpoint.uri)
    return chosen, gone


def _evaluate(command: BestCommand, store: Path, first_seed: int, paths: Sequence[str]) -> None:
    """Evaluates the candidates on fresh seeds, into a store of its own below the watch's, which may be in use."""
    bindings = [*command.gin_params, f"Case.first_seed = {first_seed}"]
    if command.seeds is not None:
        bindings.append(f"Case.num_seeds = {command.seeds}")
    watch = WatchCommand(
        location=command.location,
        suites=command.suites,
        name="best",
        workers=command.workers,
        store=str(store / "best"),
        gin_files=command.gin_files,
        gin_params=tuple(bindings),
        once=True,
        retry_errors=True,
    )
    with contextlib.redirect_stdout(sys.stderr):
        if run_watch(watch, checkpoints=paths) == 130:
            raise click.Abort


def _record(
    command: BestCommand,
    metric: str | None,
    first_seed: int,
    gone: Sequence[str],
    chosen: Sequence[Ranked],
    fresh: Sequence[Ranked],
) -> dict[str, Any]:
    by_sha256 = {ranked.subject.checkpoint.sha256: ranked for ranked in chosen}
    candidates = []
    for ranked in fresh:
        checkpoint = ranked.subject.checkpoint
        before = by_sha256.get(checkpoint.sha256)
        if before is None:
            continue  # of an earlier call
        candidates.append(
            {
                "uri": before.subject.checkpoint.uri,
                "outer_step": before.subject.checkpoint.outer_step,
                "generation": before.subject.checkpoint.generation,
                "sha256": checkpoint.sha256,
                "fresh": _interval(ranked.score),
                "chosen_by": _interval(before.score),
                "num_cases": ranked.num_cases,
                "diverged": ranked.num_diverged,
                "lost": ranked.num_lost,
            }
        )
    if not candidates:
        raise LobenchError("no candidate could be evaluated again", next_step="see the lines above")
    return {
        "best": candidates[0]["uri"],
        "sha256": candidates[0]["sha256"],
        "metric": metric or "primary",
        "candidates": candidates,
        "first_fresh_seed": first_seed,
        "suites": list(command.suites),
        "gone": list(gone),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _interval(found: Interval) -> dict[str, float | None]:
    values = {"mean": found.mean, "lower": found.lower, "upper": found.upper}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _keep(path: Path, record: dict[str, Any]) -> None:
    """Adds a record to the file, whole or not at all."""
    records = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps([*records, record], indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def best_text(record: dict[str, Any]) -> str:
    """Returns the candidates, the best first, and what their numbers mean."""
    rows = [["checkpoint", "outer step", "score on fresh seeds", "score that chose it", "diverged", "lost"]]
    for candidate in record["candidates"]:
        row = [
            candidate["uri"],
            str(candidate["outer_step"]),
            _text(candidate["fresh"]),
            _text(candidate["chosen_by"]),
            str(candidate["diverged"]),
            str(candidate["lost"]),
        ]
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    notes = [f"gone from its place: {uri}" for uri in record["gone"]]
    return "\n".join(
        [
            *lines,
            "",
            *notes,
            f"best in {record['metric']}: {record['best']}",
            f"scores: 0 is untrained, 1 the best of the run on each case; fresh seeds from "
            f"{record['first_fresh_seed']} on. Report the first; the second is flattered by the choice",
        ]
    )


def _text(found: dict[str, float | None]) -> str:
    if found["mean"] is None:
        return "-"
    bounds = f" [{found['lower']:.3f}, {found['upper']:.3f}]" if found["lower"] is not None else ""
    return f"{found['mean']:.3f}{bounds}"
