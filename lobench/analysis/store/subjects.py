"""Evaluated subjects and their cells, joined over seed blocks."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.seed_groups import group_places
from lobench.analysis.store.trainings import LOBENCH_SEEDS, trainings_of
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.code import describe_codes
from lobench.core.curve_summary import CurveSummary
from lobench.core.metric import Direction, is_of_batch
from lobench.core.program import IMPORTED, Program
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject as Who
from lobench.engine.store.current import CurrentCases, place_of
from lobench.engine.store.ledger import EvaluationRow

__all__ = [
    "ENDED_EARLY",
    "LOBENCH_SEEDS",
    "NOT_IMPORTED",
    "NOT_RUN",
    "Cell",
    "StoredSubject",
    "are_common",
    "codes_note",
    "headline_metrics",
    "last_on_most_cases",
    "last_subject",
    "subject_of",
    "subjects_of",
]

NOT_RUN = "not run"  # a planned seed without an evaluation
NOT_IMPORTED = "not imported"  # an imported seed that other curves of its training, or the other side, have
ENDED_EARLY = "ended early"  # a seed whose training stopped before the last step of the others
_LABELS = ""  # of seeds that are labels, and nobody else's


def are_common(draws: str, others: str) -> bool:
    """Says whether seed 3 of one side and seed 3 of another are the same draws, so that they make a pair."""
    return draws == others != _LABELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case of one subject, its seed blocks joined.

    Attributes:
      final: By metric, then seed: the value after the last inner step; NaN where the seed diverged.
      untrained: By metric, then seed: the value before the first one; not of curves from elsewhere that begin later.
      diverged_at: By seed that met a non-finite loss: the first such inner step.
      lost: Seeds of which no evaluation gave curves, counted by the outcome of the last one.
      missing: Planned seeds without a value, by seed: the outcome of the last evaluation, or NOT_RUN. Those of `lost`
        are among them.
      failures: Outcome and message of each evaluation that did not pass.
      sources: By seed: the curves of its block, and its row in them.
      directions: By metric, as task and plugins declare them.
      draws: Whose the seeds are: initial parameters and data of a seed are the same for all cells of the same draws.
        LOBENCH_SEEDS of what lobench trained; "" where seeds are mere labels.
    """

    case: CaseInfo
    final: Mapping[str, Mapping[int, float]]
    untrained: Mapping[str, Mapping[int, float]]
    diverged_at: Mapping[int, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[int, str] = field(default_factory=dict)
    failures: tuple[tuple[Outcome, str], ...] = ()
    sources: Mapping[int, tuple[Curves | CurveSummary, int]] = field(default_factory=dict)
    directions: Mapping[str, Direction] = field(default_factory=dict)
    draws: str = LOBENCH_SEEDS

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that gave curves, in order."""
        return tuple(sorted(self.sources))

    @property
    def num_planned(self) -> int:
        """Number of the seeds that gave curves, and of the planned ones that did not."""
        return len(self.sources.keys() | self.missing.keys())

    @property
    def is_imported(self) -> bool:
        """Whether its curves were made elsewhere, so that nothing says which seeds were planned."""
        return any(curves.origin.imported for curves, _ in itertools.islice(self.sources.values(), 1))

    def lacking(self, others: Iterable[Cell]) -> frozenset[int]:
        """Returns the seeds of the same draws that others have and this cell lacks, of imported curves.

        Lobench's own trainings have a plan, and lack what is in `missing`. Seeds that are labels are nobody else's.
        """
        if not self.is_imported:
            return frozenset()
        shared = (cell.sources.keys() for cell in others if are_common(self.draws, cell.draws))
        return frozenset[int]().union(*shared) - self.sources.keys()

    def why_missing(self) -> str:
        """Returns the outcomes of the missing seeds with their numbers: `2 error, 1 not run`; "" if none is missing."""
        counts = sorted(Counter(self.missing.values()).items())
        return ", ".join(f"{count} {outcome}" for outcome, count in counts)

    def last_steps(self) -> dict[int, int]:
        """Returns the last evaluated step of each seed."""
        return {seed: curves.eval_steps[-1] for seed, (curves, _) in self.sources.items()}

    @property
    def diverged(self) -> frozenset[int]:
        return frozenset(self.diverged_at)

    @property
    def exploded(self) -> frozenset[int]:
        """Seeds that exploded in the primary metric; see `lobench.core.result.exploded_seeds`."""
        name = self.case.primary_metric
        starts = self.untrained.get(name, {})
        # Nearly always no seed ends above its start, and then no curve has to be read.
        if all(final <= starts.get(seed, -math.inf) for seed, final in self.final.get(name, {}).items()):
            return frozenset()
        found = {id(curves): curves.exploded(self.case) for curves, _ in self.sources.values()}
        return frozenset(seed for seed, (curves, row) in self.sources.items() if found[id(curves)][row])

    @property
    def unconverged(self) -> frozenset[int]:
        """Seeds that diverged or exploded.

        Comparisons, gates and P(better) take both alike: as lost, and as worse than any value.
        """
        return self.diverged | self.exploded

    @property
    def steps(self) -> NDArray[np.int64]:
        """The inner steps of the evaluations: int64[num_evals].

        Of curves from elsewhere, whose seeds may have steps of their own, those of all seeds; the last one alone where
        they share none.
        """
        grids = {curves.eval_steps for curves, _ in self.sources.values()}
        if len(grids) == 1:
            return _grid(grids.pop())
        common = set.intersection(*map(set, grids)) or {max(steps[-1] for steps in grids)}
        return np.asarray(sorted(common), np.int64)

    def curves_of_seeds(self, metric: str) -> NDArray[np.float64]:
        """Returns the curve of each seed that has the metric, at `steps`: float64[num_seeds, num_evals].

        A metric with one value a seed, as plugins declare them, has it at the last step, and NaN before.
        """
        steps = self.steps
        rows = [
            _at(steps, values, curves.eval_steps)
            for curves, row in self.sources.values()
            if metric in curves.shapes
            for values in [np.asarray(curves.metrics[metric])[row]]
        ]
        return np.stack(rows).astype(np.float64)

    def curve(self, metric: str) -> NDArray[np.float64]:
        """Returns the mean over the seeds that have the metric: float64[num_evals]; NaN where one of them diverged."""
        return np.asarray(self.curves_of_seeds(metric).mean(axis=0))

    def finals(self, metric: str) -> dict[int, float]:
        """Returns the final value of each seed that has the metric; NaN where it diverged, whatever the metric."""
        own = self.final.get(metric, {})
        found = {seed: own[seed] for seed in sorted(own)}
        return found | dict.fromkeys(found.keys() & self.diverged_at.keys(), math.nan) if self.diverged_at else found

    def converged_finals(self, metric: str) -> dict[int, float]:
        """Returns the final value of each seed that has the metric; NaN where it diverged or exploded.

        These are the values that comparisons are of. `finals` has those that tables print.
        """
        found, lost = self.finals(metric), self.exploded
        return found | dict.fromkeys(found.keys() & lost, math.nan) if lost else found

    def surviving(self, metric: str) -> frozenset[int]:
        """Returns the seeds that ended with a finite value and neither diverged nor exploded."""
        return frozenset(seed for seed, final in self.converged_finals(metric).items() if math.isfinite(final))

    def starts(self, metric: str) -> dict[int, float]:
        """Returns the first value of each seed, at whatever step its curve begins."""
        return {
            seed: curves.first(metric)[row] for seed, (curves, row) in self.sources.items() if metric in curves.shapes
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubject:
    """What was evaluated with an optimizer's bindings, as a store holds it.

    Attributes:
      who: The checkpoint, or the optimizer without theta.
      cells: By the identity of the case.
      former: By identity too: cases in a form that the store has a later one of. They are in no headline.
      git_revisions: Of the checkouts that the evaluations were made in, `+` where that had changes.
      codes: Code of the evaluations, as `describe_codes` takes it.
      name: How to call it, where not by its own label.
    """

    who: Who
    optimizer_hashes: frozenset[str]
    cells: Mapping[str, Cell]
    former: Mapping[str, Cell] = field(default_factory=dict)
    git_revisions: frozenset[str] = frozenset()
    programs: frozenset[Program] = frozenset()
    codes: frozenset[tuple[str, str, str, str]] = frozenset()
    name: str = ""

    def named(self, name: str) -> StoredSubject:
        """Returns the subject with another label."""
        return dataclasses.replace(self, name=name)

    @property
    def is_optimizer(self) -> bool:
        """Whether it is an optimizer without theta."""
        return self.who.is_optimizer

    @property
    def checkpoint(self) -> Checkpoint:
        """Where it stands; see `lobench.core.subject.Subject.checkpoint`."""
        return self.who.checkpoint

    @property
    def label(self) -> str:
        return self.name or self.who.label

    @property
    def num_lost(self) -> int:
        return sum(sum(cell.lost.values()) for cell in self.cells.values())

    @property
    def num_missing(self) -> int:
        """Planned seeds without a value, summed over the cases; see `Cell.missing`."""
        return sum(len(cell.missing) for cell in self.cells.values())

    @property
    def num_diverged(self) -> int:
        return sum(len(cell.diverged_at) for cell in self.cells.values())

    @property
    def num_seeds(self) -> int:
        """Seeds that gave curves, summed over the cases."""
        return sum(len(cell.sources) for cell in self.cells.values())

    def lacks_seeds(self, others: Iterable[StoredSubject]) -> bool:
        """Whether a seed is missing: one that was planned, or of imports one that others have; see `Cell.lacking`."""
        rivals = list(others)
        return self.num_missing > 0 or any(
            cell.lacking(other.cells[key] for other in rivals if key in other.cells) for key, cell in self.cells.items()
        )

    def metrics(self) -> set[str]:
        return set().union(*[cell.final for cell in self.cells.values()])

    def every_form(self) -> dict[str, Cell]:
        """Returns the cells, those of former forms too."""
        return {**self.former, **self.cells}


@functools.lru_cache(maxsize=256)  # a store of thousands of cells has a few
def _grid(steps: tuple[int, ...]) -> NDArray[np.int64]:
    found = np.asarray(steps, np.int64)
    found.setflags(write=False)
    return found


def _at(steps: NDArray[np.int64], values: NDArray[np.float32], own: Sequence[int]) -> NDArray[np.float32]:
    """Returns a seed's values at some of its own steps."""
    if len(values) == len(steps):
        return values
    if len(values) == len(own):
        return values[_places(own, steps)]
    return np.append(np.full(len(steps) - 1, np.nan, np.float32), values[-1:])


def _places(own: Sequence[int], steps: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns where in its own steps a curve has these; its end where it has none of them."""
    found = np.flatnonzero(np.isin(own, steps))
    return found if len(found) == len(steps) else np.asarray([len(own) - 1])


def subjects_of(
    rows: Iterable[EvaluationRow], positions: Mapping[Who, int] | None = None, current: CurrentCases | None = None
) -> list[StoredSubject]:
    """Returns the subjects of a store's evaluations, by generation, outer step and first sight.

    A checkpoint that was seen at several outer steps is several subjects with the same cells. If it was evaluated with
    several bindings of its optimizer, and no plan says which of them are current, it is several subjects too. If a case
    was evaluated twice on the same seeds (with another version of jax, say), the last evaluation that gave curves
    counts. `StoredSubject.cells` has the current form of a case that was changed.

    Checkpoints that a restart in place superseded are left out.

    Args:
      rows: In the order of the ledger.
      positions: Order in which the subjects were seen; None: that of their first evaluations.
      current: Current cases of the store; None: those of the rows, without plans.
    """
    rows = list(rows)
    current = CurrentCases.of_rows(rows) if current is None else current
    groups: dict[Who, list[EvaluationRow]] = {}
    for row in rows:
        for who in row.present:
            groups.setdefault(who, []).append(row)
    found = list[StoredSubject]()
    for who, members in groups.items():
        ordered = current.ordered(who, members)
        counting = [row for row in ordered if current.has_bindings(row, who)]
        # Nothing of one whose present bindings have no result yet is current.
        parts = _by_optimizer(counting) if counting else [ordered]
        identities = current.identities if counting else frozenset[str]()
        found += [subject_of(who, part, identities) for part in parts]
    sights = positions or {}

    def place(subject: StoredSubject) -> tuple[int, int, int]:
        who = subject.who
        return who.generation, who.outer_step, sights.get(who, -1)

    return sorted(found, key=place)


def last_subject(subjects: Sequence[StoredSubject]) -> StoredSubject:
    """Returns the last checkpoint among those that were evaluated on most cases: a run's last may be under way.

    An optimizer beside the checkpoints, whatever it was evaluated on, is no later one.
    """
    return last_on_most_cases([subject for subject in subjects if subject.who.has_theta] or subjects)


def last_on_most_cases(subjects: Sequence[StoredSubject]) -> StoredSubject:
    """Returns the last one, of whatever kind, among those that were evaluated on most cases."""
    most = max(len(subject.cells) for subject in subjects)
    return [subject for subject in subjects if len(subject.cells) == most][-1]


def headline_metrics(subjects: Sequence[StoredSubject]) -> list[tuple[str, str | None]]:
    """Returns the metrics of a headline, each with its label.

    The cases' primary one comes first, where they differ under the label `primary` and as None; the losses of train and
    test stand beside it.
    """
    known = set().union(*(subject.metrics() for subject in subjects))
    primary = {cell.case.primary_metric for subject in subjects for cell in subject.cells.values()}
    losses = [name for name in ("train/loss", "test/loss") if name in known]
    if len(primary) > 1:
        return [("primary", None), *((name, name) for name in losses)]
    # Where no evaluation gave a curve nobody knows a metric: that they are lost is to be said all the same.
    names = [name for name in dict.fromkeys([*primary, *losses]) if name in known] or sorted(primary)
    return [(name, name) for name in names]


def _by_optimizer(rows: Sequence[EvaluationRow]) -> list[Sequence[EvaluationRow]]:
    """Parts rows by their optimizers' bindings where a case was evaluated with two of them.

    Otherwise they are one subject: a case may insist on bindings of its own.
    """
    if len({row.key.optimizer_hash for row in rows}) == 1:
        return [rows]
    places = {(row.key.case_identity, row.key.seed_block, row.key.optimizer_hash) for row in rows}
    if len({place[:2] for place in places}) == len(places):
        return [rows]
    parts: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        parts.setdefault(row.key.optimizer_hash, []).append(row)
    return list(parts.values())


def subject_of(who: Who, rows: Sequence[EvaluationRow], current: Collection[str]) -> StoredSubject:
    """Returns one subject from the rows of its evaluations; of a seed that was evaluated twice the last one counts.

    Args:
      current: Identities of the cases that count; the others are former forms.
    """
    by_case: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        by_case.setdefault(row.case.identity, []).append(row)
    cells = {identity: _cell(members) for identity, members in by_case.items()}
    repeated = _repeated([cell for identity, cell in cells.items() if identity in current])
    cells = _with_holes({identity: cell for identity, cell in cells.items() if identity not in repeated})
    origins = [curves.origin for cell in cells.values() for curves, _ in cell.sources.values()]
    return StoredSubject(
        who=who,
        optimizer_hashes=frozenset(row.key.optimizer_hash for row in rows),
        cells={identity: cell for identity, cell in cells.items() if identity in current},
        former={identity: cell for identity, cell in cells.items() if identity not in current},
        git_revisions=frozenset(o.git_revision[:12] + "+" * o.git_dirty for o in origins if o.git_revision),
        programs=_programs([row for row in rows if row.case.identity in current]),
        codes=frozenset(_code_of(row) for row in rows if row.code and row.case.identity in current),
    )


def _with_holes(cells: Mapping[str, Cell]) -> dict[str, Cell]:
    """Returns cells in which an imported case lacks the seeds that other cases of its training have.

    Imports have no plan, so that such a seed is missing as a planned one without a value is.

    Args:
      cells: Of one subject.
    """
    imported = {key: cell for key, cell in cells.items() if cell.is_imported}
    if len(imported) < 2:
        return dict(cells)
    keys = list(imported)
    trainings = [trainings_of(curves for curves, _ in cell.sources.values()) for cell in imported.values()]
    found = dict(cells)
    for places in group_places(trainings):
        seeds = frozenset().union(*(imported[keys[place]].sources for place in places))
        for cell in (imported[keys[place]] for place in places):
            if holes := seeds - cell.sources.keys():
                missing = {**dict.fromkeys(sorted(holes), NOT_IMPORTED), **cell.missing}
                found[cell.case.identity] = dataclasses.replace(cell, missing=missing)
    return found


def _code_of(row: EvaluationRow) -> tuple[str, str, str, str]:
    """Return what `describe_codes` is given of a row."""
    subject = f"{row.key.checkpoint_sha256} {row.key.optimizer_hash}"
    return f"{row.case.suite}/{row.case.name}", row.case.identity, subject, row.code


def codes_note(rows: Iterable[EvaluationRow]) -> str:
    """Return a line on results of several versions of the user's code; "" if there is one version."""
    return describe_codes({_code_of(row) for row in rows if row.code})


def _repeated(cells: Sequence[Cell]) -> set[str]:
    """Returns the identities of cases that hold the same bits as another case, which counts alone.

    Two tests may evaluate one case of a file, a test may have parameters of its own, and a file may be linked from
    another suite: the training is the same, and its seeds would count twice as evidence. Of such cases the one with the
    most seeds counts, or else the first by name.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        case = cell.case
        if case.problem and cell.sources:
            key = case.problem, case.num_inner_steps, case.primary_metric, case.scale, case.minimum, cell.draws
            groups.setdefault(key, []).append(cell)
    found = set[str]()
    for group in groups.values():
        group.sort(key=lambda cell: (-len(cell.sources), place_of(cell.case), cell.case.identity))
        for place, cell in enumerate(group):
            kept = (one for one in group[:place] if one.case.identity not in found)
            if any(_is_same(one, cell) for one in kept):
                found.add(cell.case.identity)
    return found


def _is_same(one: Cell, other: Cell) -> bool:
    """Returns whether the seeds of the second cell have the same bits in the first one."""
    if not other.sources.keys() <= one.sources.keys() or other.diverged_at.items() - one.diverged_at.items():
        return False
    return all(
        seed in one.final.get(metric, {}) and repr(one.final[metric][seed]) == repr(value)
        for metric, values in other.final.items()
        for seed, value in values.items()
    )


def _programs(rows: Sequence[EvaluationRow]) -> frozenset[Program]:
    """Returns what made the results that count: of a seed that was evaluated twice the later one."""
    programs = frozenset(row.program.whole for row in rows if row.has_curves)
    if len(programs) < 2:
        return programs
    counting: dict[tuple[str, int], Program] = {}
    for row in rows:
        if row.has_curves:
            seeds = ((row.case.identity, seed) for seed in row.key.seed_block.seeds)
            counting.update(dict.fromkeys(seeds, row.program.whole))
    return frozenset(counting.values())


def _planned(rows: Sequence[EvaluationRow]) -> set[int]:
    """Returns the seeds that the case of the last planned evaluation plans.

    Imported curves have no plan, and neither have seeds beyond their case's own, which a gate or an alarm added.
    """
    for row in reversed(rows):
        if row.key.program_version != IMPORTED.key:
            planned = {seed for block in row.case.blocks() for seed in block.seeds}
            if planned.issuperset(row.key.seed_block.seeds):
                return planned
    return set()


def _cell(rows: Sequence[EvaluationRow]) -> Cell:
    """Joins the evaluations of one case, which come in the order of their recording."""
    sources: dict[int, tuple[Curves | CurveSummary, int]] = {}
    lost: dict[int, str] = {}
    for row in rows:
        curves = row.measured
        # An error or a timeout says nothing of the checkpoint: it replaces no value of an earlier evaluation.
        if curves is None:
            lost.update(dict.fromkeys(set(row.key.seed_block.seeds) - sources.keys(), str(row.outcome)))
            continue
        # Of a seed that was evaluated twice the later one counts.
        for place, seed in enumerate(curves.seeds):
            sources[seed] = curves, place
        for seed in lost.keys() & curves.seeds if lost else ():
            del lost[seed]
    final: dict[str, dict[int, float]] = {}
    untrained: dict[str, dict[int, float]] = {}
    directions: dict[str, Direction] = {}
    blocks, has_diverged, draws = {id(curves): curves for curves, _ in sources.values()}, False, set[str]()
    for curves in blocks.values():
        draws.add(curves.origin.imported.get("draws", LOBENCH_SEEDS))
        directions |= curves.directions
        has_diverged |= max(curves.diverged_at) >= 0
        seeds, counting = curves.seeds, list[int]()
        if len(blocks) > 1:
            counting = [place for place, seed in enumerate(seeds) if sources[seed][0] is curves]
            seeds = tuple(seeds[place] for place in counting)
        for name, shape in curves.shapes.items():
            if not is_of_batch(name) and all(shape):
                ends = curves.final(name)
                if curves.eval_steps[0] == 0:
                    starts = curves.first(name)
                    starts = starts if len(seeds) == len(starts) else [starts[place] for place in counting]
                    untrained.setdefault(name, {}).update(zip(seeds, starts, strict=True))
                ends = ends if len(seeds) == len(ends) else [ends[place] for place in counting]
                final.setdefault(name, {}).update(zip(seeds, ends, strict=True))
    diverged = sorted((seed, c.diverged_at[place]) for seed, (c, place) in sources.items()) if has_diverged else ()
    return Cell(
        case=rows[-1].case,
        final=final,
        untrained=untrained,
        diverged_at={seed: at for seed, at in diverged if at >= 0},
        lost=Counter(lost.values()) if lost else {},
        missing={**dict.fromkeys(_planned(rows) - sources.keys(), NOT_RUN), **lost},
        failures=tuple([(row.outcome, row.message) for row in rows if row.outcome is not Outcome.PASSED]),
        sources=sources,
        directions=directions,
        draws=draws.pop() if len(draws) == 1 else _LABELS if draws else LOBENCH_SEEDS,
    )
