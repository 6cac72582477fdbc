"""Gate references: a second checkpoint, a store's results, or a tuned baseline."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from lobench.analysis.scores.baseline_file import Baseline, BaselineCase, BaselineError, StaleBaseline, find_baselines
from lobench.analysis.store.reference import (
    ReferenceChoice,
    choose_reference,
    label_with_hash,
    recorded_choices,
    short_hash,
)
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject
from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import UsageError
from lobench.core.metric import is_of_batch
from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.core.subject import Subject, SubjectKey, canonical_optimizer
from lobench.core.wording import short_path
from lobench.engine.paths import path_exists
from lobench.engine.store.bundle import has_ledger, split_store_and_name
from lobench.evaluation.request import ThetaLeaves
from lobench.experiments.pytest_items import EXPERIMENT
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.options import option, read_checkpoint, subject_of
from lobench.pytest_plugin.reuse import store_path

if TYPE_CHECKING:
    from lobench.api.resolve import FoundSubject

__all__ = [
    "BASELINE",
    "FinalValues",
    "GateReference",
    "TrainBlock",
    "candidates_of",
    "check_reference",
    "find_named_subject",
    "is_optimizer_text",
    "reference_of",
    "scale_baseline_of",
    "store_of_last_checkpoint",
]

BASELINE = "baseline"
_OPTIMIZER = re.compile(r"@?[A-Za-z_][\w.]*\(\)\s*(;|$)")
_REFERENCE: pytest.StashKey[GateReference] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalValues:
    """Final values by metric and seed; NaN if a seed diverged or exploded.

    Attributes:
      metrics: Final values.
      starts: Values before the first inner step, if known. Those of the session count for both sides.
      trained_blocks: Evaluations made for it in this session, to be recorded.
      case: The case that was trained, if the reference has other bindings than the session.
      programs: Programs that made the other evaluations.
      other_code: Note on evaluations that were computed by other code than the user's present code; "" if there are
        none.
    """

    metrics: Mapping[str, Mapping[int, float]]
    starts: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    trained_blocks: tuple[tuple[SeedBlock, Curves], ...] = ()
    case: CaseInfo | None = None
    programs: frozenset[Program] = frozenset()
    other_code: str = ""

    @classmethod
    def of(cls, blocks: Sequence[tuple[SeedBlock, Curves]], case: CaseInfo) -> FinalValues:
        metrics: dict[str, dict[int, float]] = {}
        starts: dict[str, dict[int, float]] = {}
        for _, curves in blocks:
            exploded = curves.exploded(case)
            is_lost_by_seed = [
                diverged_step >= 0 or is_exploded
                for diverged_step, is_exploded in zip(curves.diverged_at, exploded, strict=True)
            ]
            for name in curves.metrics:
                if is_of_batch(name):
                    continue
                seed_rows = zip(curves.seeds, curves.final(name), is_lost_by_seed, strict=True)
                metrics.setdefault(name, {}).update(
                    {seed: math.nan if is_lost else value for seed, value, is_lost in seed_rows}
                )
                starts.setdefault(name, {}).update(zip(curves.seeds, curves.first(name), strict=True))
        return cls(metrics=metrics, starts=starts)


class TrainBlock(Protocol):
    """Trains a seed block of the session's case."""

    def __call__(self, theta: ThetaLeaves, block: SeedBlock) -> Curves: ...

    def with_optimizer(self, optimizer: Subject, block: SeedBlock) -> tuple[Curves, CaseInfo]:
        """Trains with another optimizer than the session's. Returns the case with that optimizer's bindings too."""


class GateReference(Protocol):
    """The subject A that the session's own subject B must not be worse than.

    Attributes:
      subject: Subject for which its evaluations are recorded. None if it is not trained in this session.
      has_own_seeds: Whether the reference should be evaluated on the seeds of the session's cases. False for a
        baseline, which has the seeds of its tuning.
      choices: Records that this reference was chosen, one per candidate; () if it was named explicitly.
    """

    choices: Sequence[ReferenceChoice]
    has_own_seeds: bool

    @property
    def subject(self) -> Subject | None: ...

    @property
    def sha256(self) -> str:
        """Content hash; "" for a baseline."""

    def case_label(self, spec: CaseSpec, info: CaseInfo) -> str:
        """Returns the reference's label, usually followed by the first digits of its sha256."""

    def final_values(
        self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: TrainBlock
    ) -> FinalValues:
        """Returns the reference's final values on the seeds of these blocks. Seeds without a result are missing."""


@dataclass(slots=True)
class _CheckpointReference:
    """Reference that trains the same seed blocks. It compiles nothing, because theta is an argument of the program."""

    checkpoint: Checkpoint | None
    theta: ThetaLeaves
    choices: Sequence[ReferenceChoice] = ()
    has_own_seeds: bool = True
    _trained_curves: dict[tuple[str, SeedBlock], Curves] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        return self.checkpoint.sha256 if self.checkpoint is not None else ""

    @property
    def subject(self) -> Subject | None:
        return Subject.of_checkpoint(self.checkpoint) if self.checkpoint is not None else None

    def case_label(self, spec: CaseSpec, info: CaseInfo) -> str:
        assert self.checkpoint is not None
        label = self.checkpoint.uri.rstrip("/").rsplit("/", 1)[-1]
        return f"{label} ({short_hash(self.checkpoint.sha256)})"

    def final_values(
        self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: TrainBlock
    ) -> FinalValues:
        new_blocks = []
        for block in blocks:
            if (info.key, block) not in self._trained_curves:
                self._trained_curves[info.key, block] = train(self.theta, block)
                new_blocks.append((block, self._trained_curves[info.key, block]))
        final_values = FinalValues.of([(block, self._trained_curves[info.key, block]) for block in blocks], info)
        return dataclasses.replace(final_values, trained_blocks=tuple(new_blocks))


@dataclass(slots=True)
class _OptimizerReference:
    """Reference that trains the same seed blocks with an optimizer without theta, in place of the session's subject."""

    subject: Subject
    choices: Sequence[ReferenceChoice] = ()
    has_own_seeds: bool = True
    _trained_curves: dict[tuple[str, SeedBlock], tuple[Curves, CaseInfo]] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        return self.subject.sha256

    def case_label(self, spec: CaseSpec, info: CaseInfo) -> str:
        return f"{self.subject.label} ({short_hash(self.subject.sha256)})"

    def final_values(
        self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: TrainBlock
    ) -> FinalValues:
        new_blocks, case = [], None
        for block in blocks:
            if (info.identity, block) not in self._trained_curves:
                curves, case = self._trained_curves[info.identity, block] = train.with_optimizer(self.subject, block)
                new_blocks.append((block, curves))
        final_values = FinalValues.of(
            [(block, self._trained_curves[info.identity, block][0]) for block in blocks], info
        )
        return dataclasses.replace(final_values, trained_blocks=tuple(new_blocks), case=case)


@dataclass(slots=True)
class _StoreReference:
    """Reference with the stored seeds of cases that train the same task for equally long."""

    label: str
    sha256: str
    cells: Mapping[str, Sequence[Cell]]
    programs: frozenset[Program] = frozenset()
    other_code: str = ""
    subject: Subject | None = None
    choices: Sequence[ReferenceChoice] = ()
    has_own_seeds: bool = True

    def case_label(self, spec: CaseSpec, info: CaseInfo) -> str:
        return self.label

    def final_values(
        self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: TrainBlock
    ) -> FinalValues:
        seeds = {seed for block in blocks for seed in block.seeds}
        metrics: dict[str, dict[int, float]] = {}
        for cell in self.cells.get(info.problem, ()):
            lost_seeds = cell.unconverged_seeds
            for name, values in cell.final_values.items():
                finals_by_seed = {
                    seed: math.nan if seed in lost_seeds else value for seed, value in values.items() if seed in seeds
                }
                metrics.setdefault(name, {}).update(finals_by_seed)
        return FinalValues(metrics=metrics, programs=self.programs, other_code=self.other_code)


@dataclass(slots=True)
class _BaselineReference:
    """Reference with the seeds on which a baseline was tuned.

    Attributes:
      path: Path of a file. None: the first file of the suite that has the case.
      optimizer: Optimizer of the baseline; "": any.
    """

    path: Path | None = None
    optimizer: str = ""
    subject: Subject | None = None
    choices: Sequence[ReferenceChoice] = ()
    has_own_seeds: bool = False
    sha256: str = ""

    def _baseline_files(self, spec: CaseSpec) -> list[Path]:
        files = [self.path] if self.path is not None else find_baselines(Path(spec.path))
        return [path for path in files if not self.optimizer or path.name.startswith(f"{self.optimizer}-")]

    def case_label(self, spec: CaseSpec, info: CaseInfo) -> str:
        baseline_path = next(
            baseline_path for baseline_path in self._baseline_files(spec) if _has_case(baseline_path, info)
        )
        return f"{baseline_path.name} ({short_hash(hashlib.sha256(baseline_path.read_bytes()).hexdigest())})"

    def final_values(
        self, spec: CaseSpec, info: CaseInfo, blocks: Sequence[SeedBlock], train: TrainBlock
    ) -> FinalValues:
        baseline_case = _first_baseline_case(info, self._baseline_files(spec), spec)
        seeds = {seed for block in blocks for seed in block.seeds}
        return FinalValues(
            metrics={
                metric: {seed: value for seed, value in zip(baseline_case.seeds, values, strict=True) if seed in seeds}
                for metric, values in baseline_case.tuned.items()
            }
        )


def check_reference(text: str, store: str, candidates: Collection[SubjectKey] = ()) -> None:
    """Refuses a reference that does not exist, before anything is trained.

    Args:
      text: Value of `--lobench-against`.
      store: Store in which a name is looked up. "": only in STORE of `STORE@NAME`.
      candidates: Subjects that the session evaluates.

    Raises:
      UsageError: The text is neither a path, nor a name in a store, nor an optimizer, nor `baseline[:OPTIMIZER]`.
    """
    if (
        not is_optimizer_text(text)
        and store_of_last_checkpoint(text, store) is None
        and find_named_subject(text, store, candidates) is None
        and text.partition(":")[0] != BASELINE
        and "://" not in text
        and not path_exists(text)
    ):
        raise UsageError(
            "--lobench-against: no such reference",
            got=text,
            expected="a checkpoint, an optimizer such as `adam()`, a store, STORE@NAME, a file of baselines, "
            "`baseline` or `baseline:OPTIMIZER`",
        )


def is_optimizer_text(text: str) -> bool:
    """Returns whether a text is an optimizer's gin text, such as `adam(); adam.learning_rate = 0.01`."""
    is_call = "(" in text and _OPTIMIZER.match(canonical_optimizer(text)) is not None
    return is_call and not path_exists(text)


def reference_of(config: pytest.Config, items: Sequence[pytest.Item] = ()) -> GateReference:
    """Returns the session's reference, which is looked up once per process; see `find_reference`.

    Args:
      config: Configuration of the session.
      items: Items of the session, for the first call.
    """
    if _REFERENCE not in config.stash:
        specs = [case_of(item) for item in items]
        config.stash[_REFERENCE] = find_reference(config, sorted({spec.suite for spec in specs if spec is not None}))
    return config.stash[_REFERENCE]


def find_reference(config: pytest.Config, suites: Collection[str] = ()) -> GateReference:
    """Returns the reference that `--lobench-against` names.

    Args:
      config: Configuration of the session.
      suites: Names of the suites of the session's cases, whose stores keep the references of earlier calls.

    Raises:
      UsageError: The reference is a checkpoint and the session has an optimizer without theta, a store contains only
        the candidate, or the text of an optimizer is the label of another subject.
      StoreError: The store cannot be read.
      BaselineError: The baseline file cannot be read.
      CheckpointError: The checkpoint cannot be read.
    """
    text = option(config, "against")
    prefix, _, optimizer = text.partition(":")
    if prefix == BASELINE:
        return _BaselineReference(optimizer=optimizer)
    path = Path(text)
    if path.suffix == ".json":
        Baseline.load(path)  # raises if it is not valid
        return _BaselineReference(path=path)
    if (store := store_of_last_checkpoint(text, option(config, "store"))) is not None:
        earlier_choices = recorded_choices(store_path(config, suite) for suite in suites)
        return _store_reference(store, candidates_of(config), earlier_choices)
    if is_optimizer_text(text):  # as in other commands: what the store has of it may be of other code, cases or seeds
        from lobench.api.resolve import find_training_setup

        store_option = option(config, "store")
        optimizer = find_training_setup(text, "optimizer", Path(store_option) if store_option else None).optimizer
        return _OptimizerReference(subject=Subject.of_optimizer(optimizer))
    if (named := find_named_subject(text, option(config, "store"), candidates_of(config))) is not None:
        return _reference_to_stored(named.subject, named.snapshot)
    if option(config, "optimizer"):
        raise UsageError(
            "an optimizer without theta cannot be compared with a checkpoint",
            where="--lobench-against",
            next_step="evaluate it into a store with --lobench-store, and name that store",
        )
    return _CheckpointReference(*read_checkpoint(config, text))


def candidates_of(config: pytest.Config) -> list[SubjectKey]:
    """Returns the subjects that the session evaluates: one, or the methods of an experiment.

    Raises:
      CheckpointError: One of them cannot be read.
    """
    selected_experiment = config.stash.get(EXPERIMENT, None)
    methods: Iterable[str] = ("",) if selected_experiment is None else selected_experiment.given
    return [subject_of(config, method).subject.key for method in methods]


def store_of_last_checkpoint(text: str, store: str) -> Path | None:
    """Returns the store whose last checkpoint a text names: `STORE`, `STORE@last`, or `last` in the session's store."""
    folder, name = split_store_and_name(text)
    if folder and has_ledger(folder) and name in ("", "last"):
        return Path(folder)
    if text == "last" and store and has_ledger(store) and not path_exists(text):
        return Path(store)
    return None


def _store_reference(
    path: Path, candidates: Sequence[SubjectKey] = (), earlier_choices: Sequence[ReferenceChoice] = ()
) -> GateReference:
    """Returns the last checkpoint of a store that is not a candidate; see `choose_reference`."""
    snapshot = read_store(path)
    last_subject = choose_reference(snapshot, candidates, earlier_choices)
    store_text = str(path.resolve())
    choices = [
        ReferenceChoice(candidate=key, chosen_in=store_text, reference=last_subject.subject.key) for key in candidates
    ]
    return dataclasses.replace(_reference_to_stored(last_subject, snapshot), choices=choices)


def find_named_subject(text: str, store: str, candidates: Collection[SubjectKey] = ()) -> FoundSubject | None:
    """Returns the subject that a text names in a store; None for a path or a baseline, or without a store.

    Raises:
      UsageError: The name is unknown or ambiguous.
    """
    is_path = text.partition(":")[0] == BASELINE or "://" in text or path_exists(text)
    has_store = has_ledger(store) if store else False
    folder = split_store_and_name(text)[0]
    if is_path or not (has_store or (folder and has_ledger(folder))):
        return None
    from lobench.api.resolve import find_stored_subject

    return find_stored_subject(text, Path(store) if has_store else None, candidates=candidates)


def _reference_to_stored(stored_subject: StoredSubject, snapshot: Snapshot) -> _StoreReference:
    # One problem may have several cases, such as one with more seeds.
    cells_by_problem: dict[str, list[Cell]] = {}
    if any(cell.draws != LOBENCH_SEEDS for cell in stored_subject.cells.values()):
        raise UsageError(
            "seeds of imported curves are not this session's, and a gate in pytest pairs by seed",
            where=str(snapshot.store),
            got=stored_subject.label,
            next_step="evaluate into this store with --lobench-store: the gate of `lobench compare` takes Welch's test",
        )
    for cell in stored_subject.all_cells().values():
        cells_by_problem.setdefault(cell.case.problem, []).append(cell)
    return _StoreReference(
        label=label_with_hash(stored_subject),
        sha256=stored_subject.subject.sha256,
        cells=cells_by_problem,
        programs=stored_subject.programs,
        other_code=snapshot.edited_code_line(stored_subject.subject.sha256),
    )


def scale_baseline_of(spec: CaseSpec, info: CaseInfo, reference_path: str) -> BaselineCase:
    """Returns the baseline that defines 0 and 1 on the scale of the case.

    Raises:
      StaleBaseline: The case changed after the baseline was made. The message names the command that makes it again.
      BaselineError: The suite has no baseline. The message names the command that makes it.
    """
    files = find_baselines(Path(spec.path))
    baseline_case = _first_baseline_case(
        info, [*files, *([Path(reference_path)] if reference_path.endswith(".json") else [])], spec
    )
    if (baseline_case.scale, baseline_case.minimum) != (info.scale, info.minimum):
        raise StaleBaseline(
            "the case is scored on another scale than its baseline",
            where=f"{info.suite}/{info.name}",
            got=f"scale {baseline_case.scale}, minimum {baseline_case.minimum} in the baseline",
            expected=f"Case.scale {info.scale}, Case.minimum {info.minimum}",
            next_step=f"run `lobench baseline {_suite_of(spec)}`, which takes seconds",
        )
    return baseline_case


def _has_case(path: Path, info: CaseInfo) -> bool:
    try:
        Baseline.load(path).case(info)
    except BaselineError:
        return False
    return True


def _first_baseline_case(info: CaseInfo, files: Sequence[Path], spec: CaseSpec) -> BaselineCase:
    errors = []
    for path in files:
        try:
            return Baseline.load(path).case(info)
        except BaselineError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    suite = _suite_of(spec)
    if info.evaluator:
        raise BaselineError(
            "a gate in pytest is of trainings, or of commands and ordinary tests",
            where=f"{info.suite}/{info.name}",
            next_step=f"select one kind with -k, or run `lobench compare OLD NEW --suite {suite}`",
        )
    raise BaselineError(
        "the suite has no tuned baseline, which a gate needs for the scale of its margin, whatever the reference",
        where=f"{info.suite}/{info.name}",
        next_step=f"run `lobench baseline {suite}`",
    )


def _suite_of(spec: CaseSpec) -> str:
    """Returns the suite of a case as commands take it: its gin file, or the folder of its test file."""
    path = Path(spec.path)
    return shlex.quote(short_path(str(path if path.suffix == ".gin" else path.parent)))
