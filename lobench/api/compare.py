"""`lobench.compare`: resolution of names to subjects, missing evaluations, their comparison."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etils import epath

from lobench.analysis.comparisons.gates import GateRules
from lobench.analysis.comparisons.method_comparison import MethodComparison, compare_subjects
from lobench.analysis.comparisons.step_costs import CaseCosts, compare_costs
from lobench.analysis.comparisons.steps_to_target import CaseSteps, compare_steps, parse_target
from lobench.analysis.scores.baseline_file import StaleBaseline
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.entrants import entrants_of
from lobench.analysis.store.search_history import edges_in
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import StoredSubject, subject_of
from lobench.api.components import plugins_of
from lobench.api.evaluate import evaluate_into
from lobench.api.resolve import Stored, find_given, find_stored, is_store, subjects_beside
from lobench.api.settings import texts
from lobench.core.errors import CheckpointError, LobenchError, UsageError
from lobench.core.subject import Given
from lobench.core.subject import Subject as Who
from lobench.engine.checkpoints.given import given_checkpoint
from lobench.engine.checkpoints.readers import load_checkpoint, load_readers, reader_for
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointReader, SourceContext
from lobench.plugins import PluginManager
from lobench.report.live.notebook_progress import default_progress
from lobench.report.tables.comparison import comparison_html, plot_comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Comparison", "compare", "default_store_of", "named_subjects", "read_given"]


# The scale of a comparison of curves without common seeds and starts.
_OF_FINALS = "differences are of final values, and nobody else who is stored moves them: the notes say in which unit"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """B, C, ... against A.

    Attributes:
      scale: What 0 and 1 on the scale are.
      steps: Of each pair how many steps either takes to the target, case by case; () without one.
      costs: Of each pair what a step costs, and the primary metric at equal time, case by case; of cases without a time
        nothing.
    """

    pairs: tuple[MethodComparison, ...]
    scale: str
    steps: tuple[tuple[CaseSteps, ...], ...] = ()
    costs: tuple[tuple[CaseCosts, ...], ...] = ()

    def verdicts(self) -> tuple[str, ...]:
        """Returns the gate's verdict on each of B, C, ..."""
        return tuple(pair.primary.gate.verdict for pair in self.pairs)

    def __repr__(self) -> str:
        gates_text = ", ".join(f"{pair.b.label}: {pair.primary.gate.verdict}" for pair in self.pairs)
        return f"Comparison(against {self.pairs[0].a.label}: {gates_text})"

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
        return comparison_html(self.pairs, scale=self.scale, costs=self.costs)


def compare(
    *subjects: str | Path,
    store: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    baselines: str | Path | Sequence[str | Path] = (),
    metrics: Sequence[str] = (),
    margin: float | None = None,
    alpha: float = 0.05,
    max_diverged: float = 1.0,
    target: str | float | None = None,
    workers: str | int = "auto",
    executor: str = "local",
    ray_address: str = "auto",
    insecure: bool = False,
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    keep_results: bool = False,
    progress: WatchProgress | None = None,
) -> Comparison:
    """Compares B, C, ... with A: is it better, on which cases, by how much, and is that noise?

    Args:
      subjects: A, B, ...: a store or a run's folder (its last checkpoint), or a name in a store: a label, a scope of
        its experiment, gin text, a path or its end, an outer step, the start of a sha256. It is looked up in `store`,
        or in STORE of `STORE@NAME`. With `suites` what is no store is evaluated now: a checkpoint, a run's folder, gin
        text ("adam(); adam.learning_rate = 0.01"), or a name in `store`.
      store: Where the subjects are; with `suites`, where evaluations go (default: .lobench/compare/SUITE).
      baselines: Suites, or files of baselines, that say what 1 on the scale is.
      metrics: Default: the primary metric, train/loss and test/loss.
      margin: Harm to the score that the gate tolerates (default: 0.05 on a log scale, 0.02 on a linear one).
      alpha: Chance of a false alarm.
      max_diverged: PASS rules out that a larger share of B's seeds diverges; 1: the bound is gates_text, no more.
      target: A value of the primary metric, or "val/loss=3.28": after how many steps is either there?
      workers, executor, ray_address, insecure, gin_files, gin_params: Of the evaluations.
      keep_results: Whether results that were made by other code count.
      progress: What is gates_text while it runs; None: in a notebook a display, elsewhere nothing is shown.
    Raises:
      LobenchError: usage; nothing of that name; an evaluation that cannot start; a named baseline is stale.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    names = texts(subjects)
    places, store = tuple(str(find_suite(suite)) for suite in texts(suites)), None if store is None else Path(store)
    if len(names) < 2:
        raise UsageError("nothing to compare with", got=", ".join(map(repr, names)), expected="A and B")
    is_evaluated = {text: bool(places) and not is_store(text.partition("@")[0] or "no store") for text in names}
    stored = {text: find_stored(text, store) for text in names if not is_evaluated[text]}
    evaluated: dict[str, Stored] = {}
    if others := [text for text, is_new in is_evaluated.items() if is_new]:
        folder = store or default_store_of(places)
        options = {
            "workers": workers,
            "executor": executor,
            "ray_address": ray_address,
            "insecure": insecure,
            "gin_files": texts(gin_files),
            "gin_params": tuple(gin_params),
            "keep_results": keep_results,
        }
        evaluated = _evaluate(others, folder, places, progress or default_progress(), options)
    chosen = [(stored | evaluated)[text] for text in names]
    given = [Path(path) for path in texts(baselines)]
    scales = Scales.of(subjects_beside(chosen), given or [Path(suite) for suite in places] or None)
    stale = next((problem for problem in scales.problems if isinstance(problem, StaleBaseline)), None)
    if given and stale is not None:
        raise stale
    pairs = compare_subjects(
        _distinguished([one.subject for one in chosen], names),
        metrics=tuple(metrics),
        rules=GateRules(alpha=alpha, max_diverged=max_diverged),
        margin=margin,
        scales=scales,
    )
    steps: list[tuple[CaseSteps, ...]] = []
    if target is not None:
        asked = parse_target(str(target))
        steps = [tuple(compare_steps(pair.a, pair.b, asked, scales, alpha=alpha)) for pair in pairs]
    first, *rest = map(_edges, chosen)
    pairs = [replace(pair, edges=(*first, *edges)) for pair, edges in zip(pairs, rest, strict=True)]
    costs = tuple(tuple(compare_costs(pair.a, pair.b, pair.primary_metrics, alpha=alpha)) for pair in pairs)
    are_of_finals = all(pair.primary.is_of_finals for pair in pairs)
    scale = _OF_FINALS if are_of_finals else scales.describe()
    return Comparison(pairs=tuple(pairs), scale=scale, steps=tuple(steps), costs=costs)


def _edges(one: Stored) -> list[str]:
    """Returns what is to be said of the search that chose a method."""
    return [f"{one.subject.label}: {line}" for line in edges_in(one.snapshot).get(one.subject.label, ())]


def default_store_of(suites: Sequence[str]) -> Path:
    """Returns where evaluations for a comparison go when nobody says."""
    return Path(".lobench") / "compare" / Path(suites[0]).resolve().stem


def _distinguished(subjects: Sequence[StoredSubject], texts: Sequence[str]) -> list[StoredSubject]:
    """Names subjects as they were given where their own labels are the same: one checkpoint in two stores, say."""
    labels = [subject.label for subject in subjects]
    if len(set(labels)) == len(labels):
        return list(subjects)
    return [subject.named(text) for subject, text in zip(subjects, texts, strict=True)]


def _evaluate(
    names: Sequence[str], store: Path, suites: Sequence[str], progress: WatchProgress, options: Mapping[str, Any]
) -> dict[str, Stored]:
    """Evaluates subjects in one go, as far as their store does not hold them, and returns them by name.

    The store keeps what other calls evaluated, and what lay at the same paths before: of each subject counts what lies
    there now, on today's cases, and nobody beside it.
    """
    named = named_subjects(names, store, suites, progress)
    given, wanted = [one for one, _ in named], [who for _, who in named]
    evaluate_into(store, given, suites, name="compare", progress=progress, **options)
    found: dict[str, Stored] = {}
    snapshot = read_store(store)
    for name, subject in zip(names, _found(store, wanted), strict=True):
        if subject is None:
            raise LobenchError("it was not evaluated", where=name, next_step="see the lines above")
        found[name] = Stored(subject=subject, snapshot=replace(snapshot, subjects=(subject,)))
    return found


def named_subjects(
    names: Sequence[str], store: Path, suites: Sequence[str], progress: WatchProgress
) -> list[tuple[Given, Who]]:
    """Returns what texts name, perhaps in a store, and what the store will call it.

    Raises:
      LobenchError: one of them is neither checkpoint nor optimizer, or cannot be read.
    """
    manager = plugins_of(suites, progress)
    readers = load_readers(manager, allow_pickle=False)
    given = [_given(name, readers, store) for name in names]
    return [(one, read_given(one, manager)) for one in given]


def _found(store: Path, wanted: Sequence[Who]) -> list[StoredSubject | None]:
    """Returns what a store holds of subjects on the cases that it knows as today's."""
    with Ledger.open(store, read_only=True) as ledger:
        entrants = entrants_of(ledger, [(who, who.label) for who in wanted])
    found: list[StoredSubject | None] = []
    for one in entrants:
        cases = {case.identity for case in one.cases}
        found.append(subject_of(one.who, one.rows, cases) if one.rows else None)
    return found


def _given(text: str, readers: Mapping[str, CheckpointReader], store: Path) -> Given:
    """Returns what a text names, perhaps in a store; of a run's folder its last checkpoint.

    Raises:
      UsageError: it is neither checkpoint nor optimizer. ConfigError: its gin text is wrong.
    """
    name, *bindings = (part.strip() for part in text.split(";"))
    if not Path(name).is_dir() or reader_for(epath.Path(name), readers) is not None:
        return find_given(text, store)
    source, deadline = DirectorySource(SourceContext(location=name, readers=readers)), time.monotonic() + 10.0
    found = [*source.poll()]
    while source.pending() and time.monotonic() < deadline:  # what may still be written
        time.sleep(0.2)
        found += source.poll()
    if not found:
        raise CheckpointError("there is no checkpoint in this folder", where=name)
    return given_checkpoint(found[-1].uri, [binding for binding in bindings if binding], label=text)


def read_given(given: Given, manager: PluginManager) -> Who:
    """Returns what a store will call a subject.

    Raises:
      CheckpointError: it cannot be read.
    """
    if isinstance(given, Who):
        return given
    checkpoint, _ = load_checkpoint(given.uri, manager, allow_pickle=False)
    return given.read_as(checkpoint)
