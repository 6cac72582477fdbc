"""`lobench.compare`: names become subjects, evaluated now where they have to be, and are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from etils import epath

from lobench.analysis.baseline_file import StaleBaseline
from lobench.analysis.compared import Compared, compare_subjects
from lobench.analysis.gates import GateRules
from lobench.analysis.history import find_stores
from lobench.analysis.reading import read_store
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import Subject, last_subject
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError, UsageError
from lobench.core.subject import optimizer_sha256
from lobench.engine.checkpoints.readers import load_checkpoint, load_readers, reader_for
from lobench.engine.chief.contract import Progress
from lobench.report.progress import SilentProgress
from lobench.sessions.evaluate import evaluate_into
from lobench.sessions.named import plugins_of
from lobench.sessions.places import require_suite
from lobench.sessions.settings import texts

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B, C, ... against A.

    Attributes:
      scale: What 0 and 1 on the scale are.
    """

    pairs: tuple[Compared, ...]
    scale: str

    def verdicts(self) -> tuple[str, ...]:
        """Returns the gate's verdict on each of B, C, ..."""
        return tuple(pair.primary.gate.verdict for pair in self.pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
    """How what is evaluated now is evaluated."""

    suites: tuple[str, ...]
    store: Path | None
    workers: str
    gin_files: tuple[str, ...]
    gin_params: tuple[str, ...]
    progress: Progress


def compare(
    *subjects: str | Path,
    store: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    baselines: str | Path | Sequence[str | Path] = (),
    metrics: Sequence[str] = (),
    margin: float | None = None,
    alpha: float = 0.05,
    workers: str | int = "auto",
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Compares B, C, ... with A: is it better, on which cases, by how much, and is that noise?

    Args:
      subjects: A, B, ...: a store or a run's folder (its last checkpoint; STORE@STEP picks another); with `suites`, a
        checkpoint or an optimizer ("adam(); adam.learning_rate = 0.01"), which is evaluated now; with `store`, an outer
        step, the end of a path or the start of a sha256 in it.
      store: Where the subjects are; with `suites`, where evaluations go (default: .lobench/compare/SUITE).
      baselines: Suites, or files of baselines, that say what 1 on the scale is.
      metrics: Default: the primary metric, train/loss and test/loss.
      margin: Harm to the score that the gate tolerates (default: 0.05 on a log scale, 0.02 on a linear one).
      alpha: Chance of a false alarm.
      workers, gin_files, gin_params: Of the evaluations.
      progress: What is told while it runs; None: nothing is shown.
    Raises:
      LobenchError: usage; nothing of that name; an evaluation that cannot start; a named baseline is stale.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    names = texts(subjects)
    command = _Evaluated(
        suites=texts(suites),
        store=None if store is None else Path(store),
        workers=str(workers),
        gin_files=texts(gin_files),
        gin_params=tuple(gin_params),
        progress=progress or SilentProgress(),
    )
    if len(names) < 2:
        raise UsageError("nothing to compare with", got=", ".join(map(repr, names)), expected="A and B")
    for suite in command.suites:
        require_suite(suite)
    chosen = [_subject(text, command) for text in names]
    given = [Path(path) for path in texts(baselines)]
    scales = Scales.of(_each_once(chosen), given or [Path(suite) for suite in command.suites] or None)
    stale = next((problem for problem in scales.problems if isinstance(problem, StaleBaseline)), None)
    if given and stale is not None:
        raise stale
    pairs = compare_subjects(
        _told_apart([one.subject for one in chosen], names),
        metrics=tuple(metrics),
        rules=GateRules(alpha=alpha),
        margin=margin,
        scales=scales,
    )
    return Comparison(pairs=tuple(pairs), scale=scales.describe())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A subject that is compared, and all that its store holds: who else is there must not change a number."""

    subject: Subject
    store: Path
    beside: tuple[Subject, ...]


def _each_once(chosen: Sequence[_Chosen]) -> list[Subject]:
    """Returns everyone whom the stores hold; two of the compared may be of one store."""
    everyone = [(one.store.resolve(), subject) for one in chosen for subject in one.beside]
    return list({(store, one.checkpoint, one.optimizer_hashes): one for store, one in everyone}.values())


def _told_apart(subjects: Sequence[Subject], texts: Sequence[str]) -> list[Subject]:
    """Names subjects as they were given where their own labels are the same: one checkpoint in two stores, say."""
    labels = [subject.label for subject in subjects]
    if len(set(labels)) == len(labels):
        return list(subjects)
    return [subject.named(text) for subject, text in zip(subjects, texts, strict=True)]


def _subject(text: str, command: _Evaluated) -> _Chosen:
    place, _, which = text.partition("@")
    if (Path(place) / "ledger.sqlite").is_file():
        return _chosen(Path(place), which)
    name = text.split(";")[0].strip()
    if command.suites:
        if Path(name).exists() or "://" in name:
            return _evaluate_checkpoint(text, name, command)
        if "(" in name or name.endswith(".gin"):
            return _evaluate_optimizer(text, command)
        raise UsageError(
            "neither a checkpoint nor an optimizer", got=repr(text), expected="a path, or a call such as 'adam()'"
        )
    # A folder without a store fits only where there is no --store: checkpoints can be folders, `100` in the run's own.
    if Path(place).is_dir() and (command.store is None or any(Path(place).rglob("ledger.sqlite"))):
        stores = find_stores(Path(place))
        if len(stores) > 1:
            raise UsageError(
                "several stores lie here",
                where=place,
                got=", ".join(map(str, stores)),
                next_step="name one of them",
            )
        return _chosen(stores[0], which)
    if command.store is None:
        raise UsageError(
            "neither a store nor a folder with one",
            got=repr(text),
            next_step="give --suite to evaluate it now, or --store to look it up there",
        )
    return _chosen(command.store, text)


def _chosen(store: Path, which: str) -> _Chosen:
    """Returns the subject of a store that an outer step, an end of a path or a start of a sha256 picks."""
    subjects = read_store(store).subjects
    return _Chosen(subject=_picked(subjects, store, which), store=store, beside=subjects)


def _picked(subjects: Sequence[Subject], store: Path, which: str) -> Subject:
    if not subjects:
        raise UsageError("the store holds no evaluation yet", where=str(store))
    if which in ("", "last"):
        return last_subject(subjects)
    found = [subject for subject in subjects if _is_called(subject, which)]
    if not found:
        known = ", ".join(f"{subject.checkpoint.outer_step} ({subject.label})" for subject in subjects[-8:])
        raise UsageError(f"no checkpoint {which!r}", where=str(store), expected=f"one of {known}")
    if len({(subject.checkpoint.sha256, subject.optimizer_hashes) for subject in found}) > 1:
        named = ", ".join(f"{subject.checkpoint.uri} ({subject.checkpoint.sha256[:12]})" for subject in found)
        raise UsageError(f"several checkpoints are {which!r}", where=str(store), got=named)
    return found[-1]


def _is_called(subject: Subject, which: str) -> bool:
    checkpoint = subject.checkpoint
    if which.isdecimal() and checkpoint.outer_step == int(which):
        return True
    is_hash = len(which) >= 6 and checkpoint.sha256.startswith(which)
    return is_hash or (checkpoint.uri.endswith(which) and not which.isdecimal())


def _store_of(text: str, command: _Evaluated) -> Path:
    """Returns a store for one subject alone: the same theta with other bindings is another subject."""
    base = command.store or Path(".lobench") / "compare" / Path(command.suites[0]).resolve().stem
    parts = "\0".join((text, *command.suites, *command.gin_files, *command.gin_params))
    # A path's last part, or an optimizer's name; bindings, with parentheses of their own, follow the semicolon.
    name = Path(text.split(";")[0].split("(")[0].strip()).name
    return base / f"{name}-{hashlib.sha256(parts.encode()).hexdigest()[:8]}"


def _evaluate_checkpoint(text: str, path: str, command: _Evaluated) -> _Chosen:
    bindings = tuple(part.strip() for part in text.split(";")[1:] if part.strip())
    store = _store_of(text, command)
    now = _checkpoint_at(path, command)
    if now is None:
        command = replace(command, gin_params=(*command.gin_params, *bindings))
    _evaluate([] if now is None else [text], store, command, location=path if now is None else "")
    if now is None:
        return _alone(_chosen(store, "last").subject, store)
    # The store keeps what lay at this path before; the last one of it need not be what lies there now.
    found = [subject for subject in read_store(store).subjects if subject.checkpoint.sha256 == now.sha256]
    if not found:
        raise LobenchError("the checkpoint was not evaluated", where=path, next_step="see the lines above")
    return _alone(last_subject(found), store)


def _evaluate(subjects: Sequence[str], store: Path, command: _Evaluated, *, location: str = "") -> None:
    evaluate_into(
        store,
        subjects,
        command.suites,
        location=location,
        name="compare",
        workers=command.workers,
        gin_files=command.gin_files,
        gin_params=command.gin_params,
        progress=command.progress,
    )


def _checkpoint_at(path: str, command: _Evaluated) -> Checkpoint | None:
    """Returns the checkpoint that lies here now; None where no reader takes it for one: a run's folder, say.

    Raises:
      CheckpointError: it cannot be read.
    """
    manager = plugins_of(command.suites, command.progress)
    if reader_for(epath.Path(path), load_readers(manager, allow_pickle=False)) is None:
        return None
    return load_checkpoint(path, manager, allow_pickle=False)[0]


def _alone(subject: Subject, store: Path) -> _Chosen:
    """Returns a subject that was evaluated now: what its store has from other calls is nobody's concern."""
    return _Chosen(subject=subject, store=store, beside=(subject,))


def _evaluate_optimizer(text: str, command: _Evaluated) -> _Chosen:
    store = _store_of(text, command)
    _evaluate([text], store, command)
    sha256 = optimizer_sha256(text)
    found = [subject for subject in read_store(store).subjects if subject.who.sha256 == sha256]
    if not found:
        raise LobenchError("the optimizer was not evaluated", where=text, next_step="see the lines above")
    return _alone(last_subject(found), store)
