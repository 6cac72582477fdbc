"""Gate references: a second checkpoint, a store's results, or a tuned baseline."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from lobench.analysis.scores.baseline_file import Baseline, BaselineCase, BaselineError, find_baselines
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject
from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import StoreError, UsageError
from lobench.core.metric import is_of_batch
from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.engine.store.bundle import has_ledger
from lobench.evaluation.request import ThetaLeaves
from lobench.pytest_plugin.options import option, read_checkpoint

__all__ = ["Finals", "GateReference", "Train", "check_reference", "find_reference", "scale_of"]

Train = Callable[[ThetaLeaves, SeedBlock], Curves]
_BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finals:
    """Final values by metric and seed; a diverged seed is NaN.

    Attributes:
      starts: Values before the first inner step, where they are known; those of the session count for both sides.
      trained: What was evaluated for it now, to be recorded.
      programs: What made the others.
    """

    metrics: Mapping[str, Mapping[int, float]]
    starts: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    trained: tuple[tuple[SeedBlock, Curves], ...] = ()
    programs: frozenset[Program] = frozenset()

    @classmethod
    def of(cls, blocks: Sequence[tuple[SeedBlock, Curves]]) -> Finals:
        metrics: dict[str, dict[int, float]] = {}
        starts: dict[str, dict[int, float]] = {}
        for _, curves in blocks:
            for name in curves.metrics:
                if is_of_batch(name):
                    continue
                rows = zip(curves.seeds, curves.final(name), curves.diverged_at, strict=True)
                metrics.setdefault(name, {}).update({s: math.nan if at >= 0 else value for s, value, at in rows})
                starts.setdefault(name, {}).update(zip(curves.seeds, curves.first(name), strict=True))
        return cls(metrics=metrics, starts=starts)


class GateReference(Protocol):
    """A: what the session's checkpoint, B, must not be worse than.

    Attributes:
      checkpoint: Under what its evaluations are recorded; None where it is not trained here.
    """

    checkpoint: Checkpoint | None

    def finals(self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: Train) -> Finals:
        """Returns what it reached on the seeds of these blocks, as far as it has them."""


@dataclass(slots=True)
class _CheckpointReference:
    """Trains the same seed blocks; with theta an argument of the warm program it compiles nothing."""

    checkpoint: Checkpoint | None
    theta: ThetaLeaves
    _done: dict[tuple[str, SeedBlock], Curves] = field(default_factory=dict)

    def finals(self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: Train) -> Finals:
        new = []
        for block in blocks:
            if (info.key, block) not in self._done:
                self._done[info.key, block] = train(self.theta, block)
                new.append((block, self._done[info.key, block]))
        found = Finals.of([(block, self._done[info.key, block]) for block in blocks])
        return dataclasses.replace(found, trained=tuple(new))


@dataclass(slots=True)
class _StoreReference:
    """Has the seeds that the store has, of cases that train the same task for as long."""

    cells: Mapping[str, Sequence[Cell]]
    programs: frozenset[Program] = frozenset()
    checkpoint: Checkpoint | None = None

    def finals(self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: Train) -> Finals:
        wanted = {seed for block in blocks for seed in block.seeds}
        metrics: dict[str, dict[int, float]] = {}
        for cell in self.cells.get(info.problem, ()):
            for name, values in cell.final.items():
                found = {s: math.nan if s in cell.diverged_at else value for s, value in values.items() if s in wanted}
                metrics.setdefault(name, {}).update(found)
        return Finals(metrics=metrics, programs=self.programs)


@dataclass(slots=True)
class _BaselineReference:
    """Has the seeds that it was tuned with.

    Attributes:
      path: Of a file; None: the first that lies beside the suite and has the case.
      optimizer: Whose baseline it is to be; "": whoever's.
    """

    path: Path | None = None
    optimizer: str = ""
    checkpoint: Checkpoint | None = None

    def finals(self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: Train) -> Finals:
        files = [self.path] if self.path is not None else find_baselines(Path(spec.path))
        if self.optimizer:
            files = [path for path in files if path.name.startswith(f"{self.optimizer}-")]
        found = _first_with(info, files, spec)
        wanted = {seed for block in blocks for seed in block.seeds}
        return Finals(
            metrics={
                metric: {s: v for s, v in zip(found.seeds, values, strict=True) if s in wanted}
                for metric, values in found.tuned.items()
            }
        )


def check_reference(text: str, store: str) -> None:
    """Refuses, before anything is trained, a reference that is not there.

    Args:
      store: Where a name is looked up; "": nowhere but in STORE of `STORE@NAME`.
    Raises:
      UsageError: neither a path, nor a name in a store, nor `baseline[:OPTIMIZER]`.
    """
    if (
        _stored(text, store) is None
        and text.partition(":")[0] != _BASELINE
        and "://" not in text
        and not Path(text).exists()
    ):
        raise UsageError(
            "--lobench-against: no such reference",
            got=text,
            expected="a checkpoint, a store, STORE@NAME, a file of baselines, `baseline` or `baseline:OPTIMIZER`",
        )


def find_reference(config: pytest.Config) -> GateReference:
    """Returns what `--lobench-against` names.

    Raises:
      UsageError: it needs a checkpoint and the session has an optimizer without theta. StoreError, BaselineError,
      CheckpointError: it cannot be read.
    """
    text = option(config, "against")
    kind, _, optimizer = text.partition(":")
    if kind == _BASELINE:
        return _BaselineReference(optimizer=optimizer)
    path = Path(text)
    if path.suffix == ".json":
        Baseline.load(path)  # what is wrong with it is said now
        return _BaselineReference(path=path)
    if has_ledger(path):
        return _store_reference(path)
    if (stored := _stored(text, option(config, "store"))) is not None:
        return _reference_to(stored, Path(option(config, "store") or text))
    if option(config, "optimizer"):
        raise UsageError(
            "an optimizer without theta cannot be compared with a checkpoint",
            where="--lobench-against",
            next_step="evaluate it into a store with --lobench-store, and name that store",
        )
    return _CheckpointReference(*read_checkpoint(config, text))


def _store_reference(path: Path) -> GateReference:
    snapshot = read_store(path)
    if not snapshot.subjects:
        raise StoreError("the store holds no evaluation to compare with", where=str(path))
    return _reference_to(snapshot.subjects[snapshot.shown], path)


def _stored(text: str, store: str) -> StoredSubject | None:
    """Returns the subject that a text names in a store; None of what is a path, a baseline, or no name at all.

    Raises:
      UsageError: nothing there has this name, or several have.
    """
    is_path = text.partition(":")[0] == _BASELINE or "://" in text or Path(text).exists()
    has_store = has_ledger(store) if store else False
    components_of = text.partition("@")[0]
    if is_path or not (has_store or (components_of and has_ledger(components_of))):
        return None
    from lobench.api.resolve import find_stored

    return find_stored(text, Path(store) if has_store else None).subject


def _reference_to(shown: StoredSubject, path: Path) -> GateReference:
    # One problem can be several cases: one that got more seeds, say.
    cells: dict[str, list[Cell]] = {}
    if any(cell.draws != LOBENCH_SEEDS for cell in shown.cells.values()):
        raise UsageError(
            "seeds of imported curves are not this session's, and a gate in pytest pairs by seed",
            where=str(path),
            got=shown.label,
            next_step="evaluate into this store with --lobench-store: the gate of `lobench compare` takes Welch's test",
        )
    for cell in shown.every_form().values():
        cells.setdefault(cell.case.problem, []).append(cell)
    return _StoreReference(cells=cells, programs=shown.programs)


def scale_of(spec: CaseSpec, info: CaseInfo, against: str) -> BaselineCase:
    """Returns the baseline that says what 0 and 1 are on the scale of the case.

    Raises:
      StaleBaseline, BaselineError: naming the command that makes it.
    """
    files = find_baselines(Path(spec.path))
    return _first_with(info, [*files, *([Path(against)] if against.endswith(".json") else [])], spec)


def _first_with(info: CaseInfo, files: Sequence[Path], spec: CaseSpec) -> BaselineCase:
    errors = []
    for path in files:
        try:
            return Baseline.load(path).case(info)
        except BaselineError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise BaselineError(
        "no baseline beside the suite, and a gate's margin is on the scale from untrained to tuned",
        where=f"{info.suite}/{info.name}",
        next_step=f"run `lobench baseline {shlex.quote(str(Path(spec.path).parent))}`",
    )
