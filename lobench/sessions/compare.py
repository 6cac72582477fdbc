"""`lobench.compare`: names become subjects, evaluated now where they have to be, and are compared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from lobench.analysis.baseline_file import StaleBaseline
from lobench.analysis.compared import Compared, compare_subjects
from lobench.analysis.gates import GateRules
from lobench.analysis.history import find_stores
from lobench.analysis.reading import read_store
from lobench.analysis.scales import Scales
from lobench.analysis.steps_to_target import CaseSteps, compare_steps, parse_target
from lobench.analysis.subjects import Subject, last_subject, subjects_of
from lobench.core.errors import CheckpointError, LobenchError, UsageError
from lobench.core.subject import Given
from lobench.core.subject import Subject as Who
from lobench.engine.checkpoints.given import given_checkpoint, given_subject
from lobench.engine.checkpoints.readers import load_checkpoint, load_readers, reader_for
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.chief.contract import Progress
from lobench.engine.config.shipped import find_suite
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointReader, SourceContext
from lobench.plugins import PluginManager
from lobench.report.comparison import comparison_html, plot_comparison
from lobench.report.notebook_progress import default_progress
from lobench.sessions.evaluate import evaluate_into
from lobench.sessions.named import plugins_of
from lobench.sessions.settings import texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """B, C, ... against A.

    Attributes:
      scale: What 0 and 1 on the scale are.
      steps: Of each pair how many steps either takes to the target, case by case; () without one.
    """

    pairs: tuple[Compared, ...]
    scale: str
    steps: tuple[tuple[CaseSteps, ...], ...] = ()

    def verdicts(self) -> tuple[str, ...]:
        """Returns the gate's verdict on each of B, C, ..."""
        return tuple(pair.primary.gate.verdict for pair in self.pairs)

    def __repr__(self) -> str:
        told = ", ".join(f"{pair.b.label}: {pair.primary.gate.verdict}" for pair in self.pairs)
        return f"Comparison(against {self.pairs[0].a.label}: {told})"

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draws the differences of the score, case by case and their mean; returns matplotlib's axes.

        Args:
          ax: Where; None: a figure of its own.
        Raises:
          LobenchError: matplotlib is not installed.
        """
        return plot_comparison(self.pairs, ax)

    def _repr_html_(self) -> str:
        """What a notebook shows: what `lobench compare` prints."""
        return comparison_html(self.pairs, scale=self.scale)


def compare(
    *subjects: str | Path,
    store: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    baselines: str | Path | Sequence[str | Path] = (),
    metrics: Sequence[str] = (),
    margin: float | None = None,
    alpha: float = 0.05,
    target: str | float | None = None,
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
      target: A value of the primary metric, or "val/loss=3.28": after how many steps is either there?
      workers, gin_files, gin_params: Of the evaluations.
      progress: What is told while it runs; None: in a notebook a display, elsewhere nothing is shown.
    Raises:
      LobenchError: usage; nothing of that name; an evaluation that cannot start; a named baseline is stale.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    names = texts(subjects)
    places, store = tuple(str(find_suite(suite)) for suite in texts(suites)), None if store is None else Path(store)
    if len(names) < 2:
        raise UsageError("nothing to compare with", got=", ".join(map(repr, names)), expected="A and B")
    stored = {text: one for text in names if (one := _stored(text, store, evaluates=bool(places))) is not None}
    evaluated: dict[str, _Chosen] = {}
    if others := list(dict.fromkeys(text for text in names if text not in stored)):
        folder = store or Path(".lobench") / "compare" / Path(places[0]).resolve().stem
        options = {"workers": workers, "gin_files": texts(gin_files), "gin_params": tuple(gin_params)}
        evaluated = _evaluate(others, folder, places, progress or default_progress(), options)
    chosen = [(stored | evaluated)[text] for text in names]
    given = [Path(path) for path in texts(baselines)]
    scales = Scales.of(_each_once(chosen), given or [Path(suite) for suite in places] or None)
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
    steps: list[tuple[CaseSteps, ...]] = []
    if target is not None:
        asked = parse_target(str(target))
        steps = [tuple(compare_steps(pair.a, pair.b, asked, scales, alpha=alpha)) for pair in pairs]
    return Comparison(pairs=tuple(pairs), scale=scales.describe(), steps=tuple(steps))


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


def _stored(text: str, store: Path | None, *, evaluates: bool) -> _Chosen | None:
    """Returns what a text names in a store; None where it names something that is evaluated now.

    Args:
      store: The one that was named, if any.
      evaluates: Whether there are suites to evaluate it on.
    """
    place, _, which = text.partition("@")
    if (Path(place) / "ledger.sqlite").is_file():
        return _chosen(Path(place), which)
    if evaluates:
        return None
    # A folder without a store fits only where there is no --store: checkpoints can be folders, `100` in the run's own.
    if Path(place).is_dir() and (store is None or any(Path(place).rglob("ledger.sqlite"))):
        stores = find_stores(Path(place))
        if len(stores) > 1:
            raise UsageError(
                "several stores lie here",
                where=place,
                got=", ".join(map(str, stores)),
                next_step="name one of them",
            )
        return _chosen(stores[0], which)
    if store is None:
        raise UsageError(
            "neither a store nor a folder with one",
            got=repr(text),
            next_step="give --suite to evaluate it now, or --store to look it up there",
        )
    return _chosen(store, text)


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
        known = ", ".join(
            f"{one.checkpoint.outer_step} ({one.label})" if one.who.has_theta else one.label for one in subjects[-8:]
        )
        raise UsageError(f"no checkpoint {which!r}", where=str(store), expected=f"one of {known}")
    if len({(subject.checkpoint.sha256, subject.optimizer_hashes) for subject in found}) > 1:
        named = ", ".join(f"{subject.checkpoint.uri} ({subject.checkpoint.sha256[:12]})" for subject in found)
        raise UsageError(f"several checkpoints are {which!r}", where=str(store), got=named)
    return found[-1]


def _is_called(subject: Subject, which: str) -> bool:
    checkpoint = subject.checkpoint
    if subject.who.is_imported:  # by its whole name: the end of `imported:nadam` is `adam`, too
        return which in (subject.label, subject.who.name)
    if which.isdecimal() and checkpoint.outer_step == int(which):
        return True
    is_hash = len(which) >= 6 and checkpoint.sha256.startswith(which)
    return is_hash or (checkpoint.uri.endswith(which) and not which.isdecimal())


def _evaluate(
    names: Sequence[str], store: Path, suites: Sequence[str], progress: Progress, options: Mapping[str, Any]
) -> dict[str, _Chosen]:
    """Evaluates subjects in one go, as far as their store does not hold them, and returns them by name.

    The store keeps what other calls evaluated, and what lay at the same paths before: of each subject counts what lies
    there now, on today's cases, and nobody beside it.
    """
    manager = plugins_of(suites, progress)
    readers = load_readers(manager, allow_pickle=False)
    given = [_given(name, readers) for name in names]
    wanted = [_read(one, manager) for one in given]
    evaluate_into(store, given, suites, name="compare", progress=progress, **options)
    found: dict[str, _Chosen] = {}
    for name, subject in zip(names, _found(store, wanted), strict=True):
        if subject is None:
            raise LobenchError("it was not evaluated", where=name, next_step="see the lines above")
        found[name] = _Chosen(subject=subject, store=store, beside=(subject,))
    return found


def _found(store: Path, wanted: Sequence[Who]) -> list[Subject | None]:
    """Returns what a store holds of subjects on the cases that it knows as today's."""
    with Ledger.open(store, read_only=True) as ledger:
        rows = list(ledger.evaluations())
        described = {who.variant.key: ledger.described(who.variant.key) for who in wanted}
    found: list[Subject | None] = []
    for who in wanted:
        known = described[who.variant.key]
        cases = {case.key for case in known.cases} if known is not None else set()
        own = [row for row in rows if row.key.checkpoint_sha256 == who.sha256 and row.case.key in cases]
        found.append(next(iter(subjects_of(replace(row, subjects=(who,)) for row in own)), None))
    return found


def _given(text: str, readers: Mapping[str, CheckpointReader]) -> Given:
    """Returns what a text names; of a run's folder its last checkpoint.

    Raises:
      UsageError: it is neither checkpoint nor optimizer. ConfigError: its gin text is wrong.
    """
    name, *bindings = (part.strip() for part in text.split(";"))
    if not Path(name).is_dir() or reader_for(epath.Path(name), readers) is not None:
        return given_subject(text)
    source, deadline = DirectorySource(SourceContext(location=name, readers=readers)), time.monotonic() + 10.0
    found = [*source.poll()]
    while source.pending() and time.monotonic() < deadline:  # what may still be written
        time.sleep(0.2)
        found += source.poll()
    if not found:
        raise CheckpointError("there is no checkpoint in this folder", where=name)
    return given_checkpoint(found[-1].uri, [binding for binding in bindings if binding], label=text)


def _read(given: Given, manager: PluginManager) -> Who:
    """Returns what a store will call a subject.

    Raises:
      CheckpointError: it cannot be read.
    """
    if isinstance(given, Who):
        return given
    checkpoint, _ = load_checkpoint(given.uri, manager, allow_pickle=False)
    return given.read_as(checkpoint)
