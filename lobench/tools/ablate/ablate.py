"""`lobench.ablate`: the configurations between A and B that the search asks for are evaluated and compared."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.comparisons.steps_to_target import steps_to_target
from lobench.analysis.scores.baseline_file import check_baselines
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.entrants import entrants_of
from lobench.analysis.store.subjects import StoredSubject, subject_of
from lobench.api.evaluate import evaluate_into
from lobench.api.settings import command_text, texts
from lobench.core.errors import LobenchError, UsageError
from lobench.core.experiment import SessionBlocks
from lobench.core.subject import Given, Subject
from lobench.core.wording import counted
from lobench.engine.checkpoints.given import layers_at
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.binding import default_of
from lobench.engine.config.bound import bind_case
from lobench.engine.config.suite import specs_called
from lobench.engine.config.syntax import Binding, gin_text
from lobench.engine.store.ledger import Ledger
from lobench.plugins import load_plugins
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.ablate.knobs import Knobs, knobs_of
from lobench.tools.ablate.search import AblateRules, KnobSearch, Subset, ablated
from lobench.tools.ablate.sides import Sides, is_experiment, listed_sides, named_sides

__all__ = ["Ablated", "ablate"]

_MOST_KNOBS = 64
_SEEDS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablated:
    """What was found of A and B.

    Attributes:
      a, b: As they were named.
      steps: Of each knob alone on A: which part of a case's steps a seed takes to what it ends at with A, the median
        over seeds and cases; infinite where more than half of them do not get there.
      scale: What 0 and 1 of the scores are.
      command: What repeats it.
    """

    a: str
    b: str
    knobs: Knobs
    found: KnobSearch
    rules: AblateRules
    steps: Mapping[int, float]
    scale: str
    command: str


def ablate(
    a: str | Path,
    b: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    *,
    methods: str | Sequence[str] = (),
    margin: float = 0.05,
    alpha: float = 0.05,
    seeds: int | None = None,
    store: str | Path | None = None,
    baselines: str | Path | Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    progress: WatchProgress | None = None,
    **options: Any,
) -> Ablated:
    """Finds the smallest set of B's settings that, on A, is as good as B, and what each setting is worth.

    What the store holds is not repeated: the same call goes on from there, with the same decisions.

    Args:
      a, b: One optimizer with two sets of bindings (`adam(); adam.learning_rate = 0.01`), or one checkpoint; or names
        in `store`. Without B, A is the file of an experiment, which names its suites.
      methods: Of an experiment: A and B, or one that lists knobs (default: the one that does, or both of two).
      margin: Two are equivalent whose scores differ by less.
      alpha: Chance that a configuration is called equivalent that is not, for each that is tested.
      seeds: Of each case at most: 4, 8, 16 and so on are looked at (default: the experiment's sessions, or 32).
      store: Where evaluations go (default: .lobench/ablate/SUITE, or .lobench/ablate/EXPERIMENT).
      baselines: Suites, or files of baselines, that say what 1 on the scale is (default: the suites').
      gin_params: Bound over everything else.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Of `WatchSettings`: workers, executor, gin_files.
    Raises:
      LobenchError: usage; A and B call two things; an evaluation that cannot start, or gave no result.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.
    """
    progress = progress or default_progress()
    folder = Path(store) if store else None
    if b is None:
        if texts(suites) and is_experiment(a):
            raise UsageError("an experiment names its suites", got=f"--suite {texts(suites)[0]}", where=str(a))
        sides = listed_sides(Path(a), texts(methods), folder, gin_params, progress)
    elif texts(methods):
        raise UsageError("--method is of an experiment's file", got=f"{a} and {b}", next_step="leave it out")
    else:
        sides = named_sides(str(a), str(b), texts(suites), folder, gin_params, progress)
    rules = AblateRules(margin=margin, alpha=alpha, looks=_looks(seeds, sides.most_seeds))
    knobs = knobs_of(*sides.given, _defaults(sides), sides.groups)
    if len(knobs) > _MOST_KNOBS:
        raise UsageError("too many settings differ", got=str(len(knobs)), expected=f"{_MOST_KNOBS} at most")
    places = tuple(Path(path) for path in texts(baselines)) or tuple(Path(path) for path in sides.suites)
    check_baselines(places)
    lab = _Lab(
        sides=sides,
        baselines=places,
        knobs=knobs,
        looks=rules.looks,
        shown=rules.shown,
        progress=progress,
        options=options,
    )
    found = ablated(len(knobs), lab, rules)
    return Ablated(
        a=sides.names[0],
        b=sides.names[1],
        knobs=knobs,
        found=found,
        rules=rules,
        steps={knob: lab.steps(Subset({knob}), rules.shown) for knob in range(len(knobs))},
        scale=lab.scales.describe(),
        command=command_text(
            *("lobench", "ablate", str(a), *([] if b is None else [str(b)])),
            suite=texts(suites),
            method=texts(methods),
            margin=None if margin == AblateRules().margin else margin,
            alpha=None if alpha == AblateRules().alpha else alpha,
            seeds=seeds,
            baseline=texts(baselines),
            store=store,
            gin_file=texts(options.get("gin_files", ())),
            gin_param=texts(gin_params),
        ),
    )


def _defaults(sides: Sides) -> Callable[[Binding], str]:
    """Binds a case with either side, so that what they name is imported, and returns how to ask for a default."""
    (spec, *_), layers = specs_called([], *sides.suites), layers_at("", load_plugins())
    layers = replace(layers, import_folders=sides.import_folders)
    for side in sides.given:
        with contextlib.suppress(LobenchError):
            bind_case(spec, replace(layers, gin_params=sides.gin_params, variant=side.variant), build=False)

    def default(binding: Binding) -> str:
        try:
            value = default_of(binding)
        except LobenchError:
            return ""
        return gin_text(value) if isinstance(value, bool | int | float | str) else ""

    return default


def _looks(asked: int | None, sessions: int | None) -> tuple[int, ...]:
    """Returns 4, 8, 16 and so on, and the most: what is asked for, the experiment's sessions, or 32."""
    most = asked or sessions or _SEEDS
    if most < 4:
        raise UsageError("--seeds" if asked else "Experiment.num_sessions", got=str(most), expected="4 or more")
    found = [4]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return tuple(dict.fromkeys([*found, most]))


@dataclass(slots=True, kw_only=True)
class _Lab:
    """Answers of a store, which has what it lacks evaluated.

    Attributes:
      looks: Seeds; between two of them lies a block, so that more seeds repeat none.
      shown: Those that A and B are first evaluated on.
    """

    sides: Sides
    baselines: tuple[Path, ...]
    knobs: Knobs
    looks: tuple[int, ...]
    shown: int
    progress: WatchProgress
    options: Mapping[str, Any]
    _given: dict[Subset, Given] = field(default_factory=dict)
    _stored: dict[Subset, StoredSubject] = field(default_factory=dict)
    _scales: Scales | None = None

    @property
    def scales(self) -> Scales:
        assert self._scales is not None
        return self._scales

    def evaluate(self, wanted: Sequence[Subset], seeds: int) -> None:
        looks = [look for look in self.looks if look <= seeds]
        widths = tuple(after - before for before, after in zip([0, *looks[:-1]], looks, strict=True))
        blocks = SessionBlocks(first_seed=self.sides.first_seed, widths=widths)
        self.progress.log(f"{counted(len(wanted), 'configuration')} on {counted(seeds, 'seed')} of each case")
        for subset in wanted:
            self._given.setdefault(subset, self.knobs.given(subset))
        evaluate_into(
            self.sides.store,
            [self._given[subset] for subset in wanted],
            self.sides.suites,
            name="ablate",
            progress=WatchProgress(),  # of a hundred variants there is nothing to say one by one
            gin_params=(*self.sides.gin_params, *blocks.bindings),
            import_folders=self.sides.import_folders,
            **self.options,
        )
        self._read()
        for subset in wanted:
            self._check(subset, seeds)

    def _read(self) -> None:
        """Reads of each configuration what the store holds on today's cases."""
        wanted = [(self._who(given), given.label) for given in self._given.values()]
        with Ledger.open(self.sides.store, read_only=True) as ledger:
            entrants = entrants_of(ledger, wanted)
        first = list[StoredSubject]()
        for subset, one in zip(self._given, entrants, strict=True):
            rows, today = one.rows, {case.identity for case in one.cases}
            if not rows:
                continue
            self._stored[subset] = subject_of(one.who, rows, today)
            start = min(row.key.seed_block.start for row in rows)
            few = [row for row in rows if row.key.seed_block.start < start + self.shown]
            first.append(subject_of(one.who, few, today))
        if self._scales is None:
            # A and B are evaluated first. Without a tuned baseline 1 is the better of them on those seeds: what comes
            # later, or was there when the command was called again, moves no decision.
            self._scales = Scales.of(first, self.baselines)

    def _who(self, given: Given) -> Subject:
        return given if isinstance(given, Subject) else given.read_as(self.sides.read.checkpoint)

    def _check(self, subset: Subset, seeds: int) -> None:
        stored = self._stored.get(subset)
        cells = list(stored.cells.values()) if stored is not None else []
        if cells and all(len(cell.seeds) >= seeds for cell in cells):
            return
        failures = [text for cell in cells for _, text in cell.failures if text]
        raise LobenchError(
            "a configuration gave no result, and nothing can be decided without it",
            where=self._given[subset].label,
            got="; ".join(dict.fromkeys(failures)),
            next_step="the same command tries again",
        )

    def samples(self, a: Subset, b: Subset, seeds: int) -> Mapping[str, Samples]:
        one, other = self._stored[a].cells, self._stored[b].cells
        found = {}
        for identity in one:
            if identity in other:
                samples = paired_values(one[identity], other[identity], None, self.scales).samples
                found[identity] = samples.first(seeds)
        if not found:
            raise UsageError(
                "A and B have no case in common: a setting changes what is trained, and not how",
                got="; ".join(dict.fromkeys(knob.path for knob in self.knobs.knobs)),
                expected="settings of the optimizer",
            )
        if not any(samples.has_scale for samples in found.values()):
            raise LobenchError(
                "no case has a scale: nothing ends better than it began",
                where=str(self.sides.store),
                next_step=f"`lobench baseline {self.sides.suites[0]}` makes one",
            )
        return found

    def steps(self, subset: Subset, seeds: int) -> float:
        """Returns which part of a case's steps a seed takes to what it ends at with A: the median over seeds and cases.

        Infinite where more than half of them do not get there.
        """
        base, shares = self._stored[Subset()].cells, list[float]()
        for identity, cell in self._stored[subset].cells.items():
            metric = cell.case.primary_metric
            direction = self.scales.direction(cell.case, metric)
            for seed, target in list(base[identity].converged_finals(metric).items())[:seeds]:
                if direction is not None and math.isfinite(target):
                    taken = steps_to_target(cell, metric, target, direction).steps
                    shares.append(taken.get(seed, math.inf) / cell.case.num_inner_steps)
        return statistics.median(shares) if shares else math.nan
