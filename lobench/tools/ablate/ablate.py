"""`lobench.ablate`: evaluates and compares the configurations between A and B that the search needs."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.comparisons.steps_to_target import steps_to_target
from lobench.analysis.scores.baseline_file import check_baselines
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.entrants import entrants_of
from lobench.analysis.store.subjects import StoredSubject, subject_of
from lobench.api.evaluate import StoreEvaluator
from lobench.api.rounds import RunningProgress
from lobench.api.settings import EvaluateIntoKeywords, as_texts, command_text
from lobench.core.errors import LobenchError, UsageError
from lobench.core.experiment import SessionBlocks
from lobench.core.settings_field import changed_fields, check_keywords, keywords_in, settings_from
from lobench.core.subject import RequestedSubject, Subject
from lobench.core.wording import counted
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.binding import default_of_parameter
from lobench.engine.config.bound import bind_case
from lobench.engine.config.suite import specs_called
from lobench.engine.config.syntax import Binding, gin_text
from lobench.engine.store.ledger import Ledger
from lobench.plugins import load_plugins
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.ablate.ablate_settings import AblateKeywords, AblateSettings
from lobench.tools.ablate.change_search import AblateRules, KnobSearch, KnobSubset, search_changes
from lobench.tools.ablate.knobs import Knobs, differing_knobs
from lobench.tools.ablate.sides import Sides, experiment_sides, is_experiment, named_sides

__all__ = ["Ablation", "ablate"]

_MAX_KNOBS = 64
_DEFAULT_SEEDS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """Result of `ablate`.

    Attributes:
      a, b: Names of A and B, as given.
      knobs: Settings that differ between A and B.
      search: Result of the search.
      rules: Rules of the tests.
      step_fractions: For each knob alone on A, the fraction of a case's steps that a seed takes to the final value of
        A, as the median over seeds and cases. Infinite if more than half of them do not reach it.
      scale: Description of the score scale: what 0 and 1 stand for.
      command: Command line that repeats the ablation.
    """

    a: str
    b: str
    knobs: Knobs
    search: KnobSearch
    rules: AblateRules
    step_fractions: Mapping[int, float]
    scale: str
    command: str


def ablate(
    a: str | Path,
    b: str | Path | None = None,
    suites: str | Path | Sequence[str | Path] = (),
    *,
    methods: str | Sequence[str] = (),
    store: str | Path | None = None,
    baselines: str | Path | Sequence[str | Path] = (),
    progress: WatchProgress | None = None,
    **options: Unpack[AblateKeywords],
) -> Ablation:
    """Finds the smallest set of B's settings that makes A as good as B, and the effect of each setting.

    Evaluations in the store are reused: after an interruption, the same call continues with the same decisions.

    Example:
        ablated = lobench.ablate("adam()", "adam(); adam.b1 = 0.8; adam.eps = 1e-6", suites="quick")
        [ablated.knobs.knobs[knob].path for knob in ablated.search.smallest]

    Args:
      a, b: The same optimizer with two sets of bindings (`adam(); adam.learning_rate = 0.01`), or the same checkpoint;
        or names in `store`. Without B, A is the file of an experiment, which names its suites.
      suites: Folders, `.gin` files, or names of shipped suites.
      methods: Methods of the experiment: A and B, or a single one with knobs. Empty: the method with knobs, or
        the experiment's two methods.
      store: Store of the evaluations. None: .lobench/ablate/SUITE, or .lobench/ablate/EXPERIMENT.
      baselines: Suites, or files of baselines, whose scores are 1 on the scale. (): the baselines of `suites`.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench ablate`: `margin`, `alpha` (for each test) and `seeds`; and those of an evaluation,
        such as `workers`, `executor` and `gin_params`, whose bindings override all others.
    Raises:
      UsageError: The arguments do not fit together, or A and B differ in more than settings.
      LobenchError: An evaluation cannot start, or gave no result.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> a, b = "sgd(); sgd.learning_rate = 0.1", "sgd(); sgd.learning_rate = 0.5"
    >>> made = lobench.ablate(a, b, "quadratic.gin", seeds=4)
    >>> made.knobs.knobs[0].path
    'sgd.learning_rate'
    """
    progress = progress or default_progress()
    check_keywords("ablate", options, AblateKeywords)
    settings = settings_from(AblateSettings, options)
    gin_params = as_texts(options.get("gin_params", ()))
    folder = Path(store) if store else None
    if b is None:
        if as_texts(suites) and is_experiment(a):
            raise UsageError("an experiment names its suites", got=f"--suite {as_texts(suites)[0]}", where=str(a))
        sides = experiment_sides(Path(a), as_texts(methods), folder, gin_params, progress)
    elif as_texts(methods):
        raise UsageError("--method is of an experiment's file", got=f"{a} and {b}", next_step="leave it out")
    else:
        sides = named_sides(str(a), str(b), as_texts(suites), folder, gin_params, progress)
    seed_counts = _seed_counts(settings.seeds, sides.max_seeds)
    rules = AblateRules(margin=settings.margin, alpha=settings.alpha, seed_counts=seed_counts)
    knobs = differing_knobs(*sides.requested, _default_lookup(sides), sides.knob_groups)
    if len(knobs) > _MAX_KNOBS:
        raise UsageError("too many settings differ", got=str(len(knobs)), expected=f"{_MAX_KNOBS} at most")
    baseline_paths = tuple(Path(path) for path in as_texts(baselines)) or tuple(Path(path) for path in sides.suites)
    check_baselines(baseline_paths)
    configurations = _StoredConfigurations(
        sides=sides,
        baselines=baseline_paths,
        knobs=knobs,
        seed_counts=rules.seed_counts,
        num_first_seeds=rules.num_table_seeds,
        progress=progress,
        evaluator=StoreEvaluator(
            store=sides.store,
            suites=sides.suites,
            progress=RunningProgress(progress),  # no lines for each of a hundred variants
            options=keywords_in(
                EvaluateIntoKeywords,
                {**options, "name": "ablate", "gin_params": sides.gin_params, "import_folders": sides.import_folders},
            ),
        ),
    )
    search_result = search_changes(len(knobs), configurations, rules)
    return Ablation(
        a=sides.names[0],
        b=sides.names[1],
        knobs=knobs,
        search=search_result,
        rules=rules,
        step_fractions={
            knob: configurations.median_step_fraction(KnobSubset({knob}), rules.num_table_seeds)
            for knob in range(len(knobs))
        },
        scale=configurations.scales.describe(),
        command=command_text(
            *("lobench", "ablate", str(a), *([] if b is None else [str(b)])),
            suite=as_texts(suites),
            method=as_texts(methods),
            **changed_fields(settings),
            baseline=as_texts(baselines),
            store=store,
            gin_file=as_texts(options.get("gin_files", ())),
            gin_param=gin_params,
        ),
    )


def _default_lookup(sides: Sides) -> Callable[[Binding], str]:
    """Binds a case with each side, which imports the modules they name. Returns a function that looks up a default."""
    (spec, *_), layers = specs_called([], *sides.suites), gin_layers_at("", load_plugins())
    layers = replace(layers, import_folders=sides.import_folders)
    for given_subject in sides.requested:
        with contextlib.suppress(LobenchError):
            bind_case(spec, replace(layers, gin_params=sides.gin_params, variant=given_subject.variant), build=False)

    def default_text(binding: Binding) -> str:
        try:
            value = default_of_parameter(binding)
        except LobenchError:
            return ""
        return gin_text(value) if value is None or isinstance(value, bool | int | float | str) else ""

    return default_text


def _seed_counts(requested_seeds: int | None, num_sessions: int | None) -> tuple[int, ...]:
    """Returns the numbers of seeds to look at: 4, 8, 16, ..., and the largest.

    The largest is the number asked for, else the number of sessions of the experiment, else 32.
    """
    max_seeds = requested_seeds or num_sessions or _DEFAULT_SEEDS
    if max_seeds < 4:
        raise UsageError(
            "--seeds" if requested_seeds else "Experiment.num_sessions", got=str(max_seeds), expected="4 or more"
        )
    counts = [4]
    while counts[-1] * 2 < max_seeds:
        counts.append(counts[-1] * 2)
    return tuple(dict.fromkeys([*counts, max_seeds]))


@dataclass(slots=True, kw_only=True)
class _StoredConfigurations:
    """Evaluator of configurations on a store, where missing results are computed.

    Attributes:
      sides: A and B.
      baselines: Folders in which tuned baselines are looked up.
      knobs: Settings in which A and B differ.
      seed_counts: Numbers of seeds to look at. The seeds between two looks are one block, so more seeds repeat none.
      num_first_seeds: Number of seeds on which A and B are evaluated first.
      progress: Receives progress events.
      evaluator: Evaluates configurations.
    """

    sides: Sides
    baselines: tuple[Path, ...]
    knobs: Knobs
    seed_counts: tuple[int, ...]
    num_first_seeds: int
    progress: WatchProgress
    evaluator: StoreEvaluator
    _configurations: dict[KnobSubset, RequestedSubject] = field(default_factory=dict)
    _stored_subjects: dict[KnobSubset, StoredSubject] = field(default_factory=dict)
    _scales: Scales | None = None

    @property
    def scales(self) -> Scales:
        assert self._scales is not None
        return self._scales

    def evaluate(self, subsets: Sequence[KnobSubset], num_seeds: int) -> None:
        seed_counts = [seed_count for seed_count in self.seed_counts if seed_count <= num_seeds]
        widths = tuple(
            seed_count - earlier_count
            for earlier_count, seed_count in zip([0, *seed_counts[:-1]], seed_counts, strict=True)
        )
        blocks = SessionBlocks(first_seed=self.sides.first_seed, widths=widths)
        self.progress.log(f"{counted(len(subsets), 'configuration')} on {counted(num_seeds, 'seed')} of each case")
        for subset in subsets:
            self._configurations.setdefault(subset, self.knobs.configuration(subset))
        self.evaluator.evaluate([self._configurations[subset] for subset in subsets], blocks.bindings)
        self._read_results()
        for subset in subsets:
            self._check_complete(subset, num_seeds)

    def _read_results(self) -> None:
        """Reads the results of each configuration on the current cases."""
        named_subjects = [
            (self._subject_of(configuration), configuration.label) for configuration in self._configurations.values()
        ]
        with Ledger.open(self.sides.store, read_only=True) as ledger:
            entrants = entrants_of(ledger, named_subjects)
        first_subjects = list[StoredSubject]()
        for subset, entrant in zip(self._configurations, entrants, strict=True):
            rows = entrant.rows
            current_cases = {case.identity for case in entrant.cases}
            if not rows:
                continue
            self._stored_subjects[subset] = subject_of(entrant.subject, rows, current_cases)
            first_seed = min(row.key.seed_block.start for row in rows)
            first_rows = [row for row in rows if row.key.seed_block.start < first_seed + self.num_first_seeds]
            first_subjects.append(subject_of(entrant.subject, first_rows, current_cases))
        if self._scales is None:
            # A and B are evaluated first. Without a tuned baseline, 1 is the better of them on those seeds, so that
            # results that come later, or were left by an earlier call, change no decision.
            self._scales = Scales.of(first_subjects, self.baselines)

    def _subject_of(self, configuration: RequestedSubject) -> Subject:
        return (
            configuration
            if isinstance(configuration, Subject)
            else configuration.to_subject(self.sides.stored_subject.checkpoint)
        )

    def _check_complete(self, subset: KnobSubset, num_seeds: int) -> None:
        stored_subject = self._stored_subjects.get(subset)
        cells = list(stored_subject.cells.values()) if stored_subject is not None else []
        if cells and all(len(cell.seeds) >= num_seeds for cell in cells):
            return
        failures = [text for cell in cells for _, text in cell.failures if text]
        raise LobenchError(
            "a configuration gave no result, and nothing can be decided without it",
            where=self._configurations[subset].label,
            got="; ".join(dict.fromkeys(failures)),
            next_step="the same command tries again",
        )

    def samples(self, a: KnobSubset, b: KnobSubset, num_seeds: int) -> Mapping[str, Samples]:
        base_cells, changed_cells = self._stored_subjects[a].cells, self._stored_subjects[b].cells
        samples_by_case = {}
        for identity in base_cells:
            if identity in changed_cells:
                samples = paired_values(base_cells[identity], changed_cells[identity], None, self.scales).samples
                samples_by_case[identity] = samples.first_seeds(num_seeds)
        if not samples_by_case:
            raise UsageError(
                "A and B have no case in common: a setting changes the case, not the optimizer",
                got="; ".join(dict.fromkeys(knob.path for knob in self.knobs.knobs)),
                expected="settings of the optimizer",
            )
        if not any(samples.has_scale for samples in samples_by_case.values()):
            raise LobenchError(
                "no case has a scale: nothing ends better than it began",
                where=str(self.sides.store),
                next_step=f"`lobench baseline {self.sides.suites[0]}` makes one",
            )
        return samples_by_case

    def median_step_fraction(self, subset: KnobSubset, num_seeds: int) -> float:
        """Returns the fraction of a case's steps that a seed takes to the final value of A.

        This is the median over seeds and cases, and infinite if more than half of them do not reach the value.
        """
        base_cells = self._stored_subjects[KnobSubset()].cells
        step_fractions = list[float]()
        for identity, cell in self._stored_subjects[subset].cells.items():
            metric = cell.case.primary_metric
            direction = self.scales.direction(cell.case, metric)
            for seed, target in list(base_cells[identity].converged_finals(metric).items())[:num_seeds]:
                if direction is not None and math.isfinite(target):
                    steps_of_seeds = steps_to_target(cell, metric, target, direction).steps
                    step_fractions.append(steps_of_seeds.get(seed, math.inf) / cell.case.num_inner_steps)
        return statistics.median(step_fractions) if step_fractions else math.nan
