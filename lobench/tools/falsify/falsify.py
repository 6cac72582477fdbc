"""`lobench.falsify`: search for settings of a case on which a checkpoint loses to a tuned baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from lobench.analysis.scores.baseline_file import Baseline, BaselineCase, baseline_path
from lobench.analysis.scores.baseline_grids import BaselineGrid, named_grid
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import SCORE_VERSION, ScoreScale
from lobench.analysis.stats.location import locate
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import StoredSubject, subjects_of
from lobench.api.compare import named_subjects
from lobench.api.evaluate import StoreEvaluator
from lobench.api.rounds import RunningProgress
from lobench.api.settings import EvaluateIntoKeywords, as_texts
from lobench.core.case import SeedBlock, seed_blocks
from lobench.core.errors import LobenchError, UsageError
from lobench.core.program import PROGRAM_VERSION
from lobench.core.settings_field import check_keywords, keywords_in, settings_from
from lobench.core.subject import RequestedSubject, Subject
from lobench.core.wording import counted, shortened_list
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.scopes import check_scopes
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite import single_spec_called, specs_in, specs_of_suites
from lobench.evaluation.tuning import point_text, tune
from lobench.plugins import load_plugins
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.falsify.cell_search import CellIndex, CellSearch, CellTest, search_cells
from lobench.tools.falsify.cells import Cells, read_cells
from lobench.tools.falsify.falsify_settings import MOST_SEEDS, FalsifyKeywords, FalsifySettings
from lobench.tools.falsify.replay import MeasuredLoss

__all__ = ["FalsifyResult", "block_sizes", "falsify"]

_RATE_POINTS = tuple({"learning_rate": float(f"1e-{power}")} for power in (4, 3, 2, 1, 0))
_COARSE_GRID = BaselineGrid(name="coarse", points=_RATE_POINTS, studies=(0,) * len(_RATE_POINTS))
_NUM_SCREENING_SEEDS = 3  # seeds of the screening and of tuning
_FIRST_SEED, _SEEDS_OF_A_TEST = 10_000, 1000  # test n uses the seeds from 10,000 + 1,000 n on
_BLOCK_WIDTHS = (3, 4)  # seeds of one program in a test
_MAX_NAMED_CELLS = 2  # cells named in a line of progress


def block_sizes(block: SeedBlock) -> tuple[int, ...]:
    """Returns the sizes of the blocks in which the seeds of a test are trained.

    The number of seeds that train together is part of the compiled program. Small blocks of equal size let tests of any
    number of seeds, and the screening, share one program.

    >>> block_sizes(SeedBlock(start=10_000, size=12))
    (3, 3, 3, 3)
    """
    width = next((width for width in _BLOCK_WIDTHS if block.size % width == 0), block.size)
    return (width,) * (block.size // width)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalsifyResult:
    """Result of `falsify`.

    Attributes:
      subject_label: Label of the checkpoint or optimizer.
      optimizer: Canonical text of the optimizer; "" for a checkpoint.
      case: Name of the case, SUITE/CASE.
      against: Optimizer with its tuned setting on the smallest cell, or only its name if no loss was found.
      cells: Cells of the case.
      search: Result of the search.
      rules: Rules of the search.
      case_size, smallest_size: Numbers of inner parameters and steps of the case, and of the smallest cell.
      is_trained_on: Whether the checkpoint was meta-trained on the case, according to the suite.
      is_at_edge: Whether the tuned setting is at the edge of its grid.
      block: Seeds of the smallest cell's test.
      measured_loss: Loss measured on the smallest cell.
    """

    subject_label: str
    optimizer: str
    case: str
    against: str
    cells: Cells
    search: CellSearch
    rules: FalsifySettings
    case_size: tuple[int, int]
    smallest_size: tuple[int, int] | None
    is_trained_on: bool
    is_at_edge: bool
    block: SeedBlock | None
    measured_loss: MeasuredLoss | None


def falsify(
    checkpoint: str | Path,
    *,
    suite: str | Path,
    store: str | Path | None = None,
    progress: WatchProgress | None = None,
    **options: Unpack[FalsifyKeywords],
) -> FalsifyResult:
    """Searches for a case on which a checkpoint loses to a tuned optimizer, and reduces it to the simplest one.

    It tries cells: the given case with some bindings changed. Evaluations in the store are reused: after an
    interruption, the same call continues with the same decisions.

    Example:
        found = lobench.falsify("theta.npz; Case.learned_optimizer = @Celo()", suite="quick", case="relu32")
        found.search.smallest  # the test of the smallest cell; None if no loss was found

    Args:
      checkpoint: Checkpoint, possibly with bindings after semicolons: `theta.npz; Case.learned_optimizer = @Celo()`.
      suite: Folder or gin file of the case, or the name of a shipped suite.
      store: Store of the evaluations. None: .lobench/falsify/SUITE.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench falsify`, such as `case`, `against`, `axes`, `margin` and `seeds`, and those of an
        evaluation, such as `workers`, `executor` and `gin_params`, whose bindings override all others.
    Raises:
      UsageError: An argument is invalid, or the case binds an optimizer.
      SuiteError: No case has this name.
      LobenchError: The case does not bind, or no evaluation can start.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> theta = "run/theta_3.npz"
    >>> found = lobench.falsify(theta, suite="quadratic.gin", grid="defaults", most_cells=1, seeds=4, executor="inline")
    >>> found.search.smallest is None
    True
    """
    check_keywords("falsify", options, FalsifyKeywords)
    rules = settings_from(FalsifySettings, options)
    gin_params = as_texts(options.get("gin_params", ()))
    if not 4 <= rules.seeds <= MOST_SEEDS:
        raise UsageError("--seeds", got=str(rules.seeds), expected=f"4 to {MOST_SEEDS}")
    path = find_suite(str(suite))
    folder = Path(store) if store else Path(".lobench") / "falsify" / path.resolve().stem
    progress = progress or default_progress()
    spec = single_spec_called(rules.case, path)
    layers = gin_layers_at("", load_plugins())
    requested_subject, subject = named_subjects([str(checkpoint)], folder, (str(path),), progress)[0]
    bindings = tuple(binding.strip() for binding in str(checkpoint).split(";")[1:])
    layers = replace(layers, import_folders=(spec.root,))
    cells = read_cells(spec, layers, as_texts(rules.axes))
    # Binds with the checkpoint's bindings before any cell is evaluated, since they may name a missing module.
    check_scopes(spec, replace(layers, gin_params=gin_params, import_folders=()), specs_of_suites(path))
    role = bind_case(spec, replace(layers, gin_params=(*bindings, *gin_params)), build=False).info.role
    stored_cells = _StoredCells(
        folder=folder,
        cells=cells,
        checkpoint_subjects=(requested_subject, subject),
        baseline_grid=named_grid(rules.grid),
        layers=replace(layers, gin_params=gin_params),
        rules=rules,
        progress=progress,
        evaluator=StoreEvaluator(
            store=folder,
            suites=(str(path),),
            progress=RunningProgress(progress),  # no lines for the scores of single cells
            options=keywords_in(
                EvaluateIntoKeywords,
                {**options, "name": "falsify", "import_folders": layers.import_folders},
            ),
        ),
    )
    search_result = search_cells(stored_cells.cells.search_axes(), stored_cells, rules)
    smallest = search_result.smallest
    return FalsifyResult(
        subject_label=subject.label,
        optimizer="" if subject.has_theta else subject.uri,
        case=f"{spec.suite}/{spec.name}",
        against=stored_cells.tuned_text(smallest.cell) if smallest is not None else rules.against,
        cells=stored_cells.cells,
        search=search_result,
        rules=rules,
        case_size=stored_cells.cell_size(stored_cells.home_cell),
        smallest_size=stored_cells.cell_size(smallest.cell) if smallest is not None else None,
        is_trained_on=role == "meta_train",
        is_at_edge=smallest is not None and stored_cells.is_at_edge(smallest.cell),
        block=stored_cells.block_of_test(smallest) if smallest is not None else None,
        measured_loss=stored_cells.measure_loss(smallest) if smallest is not None else None,
    )


@dataclass(slots=True, kw_only=True)
class _StoredCells:
    """Evaluates variants of a case ("cells"). Results are read from a store; missing ones are computed and stored.

    Attributes:
      folder: Folder of the store.
      cells: The variants.
      checkpoint_subjects: The checkpoint as the user requested it, and the subject under which it is stored.
      baseline_grid: Grid in which the baseline optimizer is tuned.
      layers: Bindings that are applied to every cell, besides those of its file.
      rules: Rules of the search.
      progress: Receives progress events.
      evaluator: Evaluates cells.
    """

    folder: Path
    cells: Cells
    checkpoint_subjects: tuple[RequestedSubject, Subject]
    baseline_grid: BaselineGrid
    layers: Layers
    rules: FalsifySettings
    progress: WatchProgress
    evaluator: StoreEvaluator
    _sizes: dict[CellIndex, tuple[int, int]] = field(default_factory=dict)

    def gaps(self, cells: Sequence[CellIndex]) -> list[float]:
        names = shortened_list([self._cell_text(cell) for cell in cells], _MAX_NAMED_CELLS)
        self.progress.log(f"looking at {counted(len(cells), 'cell')}: {names}")
        block = SeedBlock(start=0, size=_NUM_SCREENING_SEEDS)
        tuned_cells = [cell for cell in cells if self._tune_cell(cell, _COARSE_GRID) is not None]
        files = [self.cell_file(cell) for cell in tuned_cells]
        if files:
            self._evaluate([self.checkpoint_subjects[0]], files, block)
        return [self._screening_gap(cell, block) if cell in tuned_cells else math.nan for cell in cells]

    def test(self, cell: CellIndex, number: int, factor: int) -> tuple[float, float]:
        block = self._test_block(number, factor)
        title = f"test {number + 1} on {counted(block.size, 'seed')}, {self._cell_text(cell)}"
        if self._tune_cell(cell, self.baseline_grid) is None:
            return math.nan, 1.0
        opponent = self._tuned_optimizer(cell)
        self._evaluate([self.checkpoint_subjects[0], opponent[0]], [self.cell_file(cell)], block)
        scores_of_sides, _ = self._scores(
            cell, [self.checkpoint_subjects[1], opponent[1]], block, self._baseline_file(self.baseline_grid)
        )
        if any(len(scores) < block.size or not all(map(math.isfinite, scores.values())) for scores in scores_of_sides):
            self.progress.log(f"{title}: no scores: {self._failure(cell)}")
            return math.nan, 1.0
        location = locate(
            Samples.of_differences([scores_of_sides[1][seed] - scores_of_sides[0][seed] for seed in block.seeds])
        )
        gap = location.estimate.mean
        p_value = location.p_above(self.rules.margin)
        verdict = "loses" if p_value <= self.rules.level else "not shown to lose"
        evidence = f"p = {p_value:.2g}, threshold {self.rules.level:.2g}"
        self.progress.log(f"{title}: {verdict}, its score is lower by {gap:.3f} ({evidence})")
        return gap, p_value

    @property
    def home_cell(self) -> CellIndex:
        """Cell of the case itself."""
        return tuple(axis.home_index for axis in self.cells.axes)

    def cell_file(self, cell: CellIndex) -> Path:
        return self.cells.write(cell, self._suite_folder)

    def tuned_text(self, cell: CellIndex) -> str:
        """Returns the gin text of the baseline optimizer with the setting that is best on a cell."""
        baseline_case = self._tune_cell(cell, self.baseline_grid)
        assert baseline_case is not None
        return point_text(self.rules.against, baseline_case.grid[baseline_case.best[0]].values)

    def is_at_edge(self, cell: CellIndex) -> bool:
        """Returns whether a value of the tuned setting is the smallest or largest one tried."""
        baseline_case = self._tune_cell(cell, self.baseline_grid)
        assert baseline_case is not None
        best_values = baseline_case.grid[baseline_case.best[0]].values
        for name, value in best_values.items():
            tried_values = [point.values[name] for point in baseline_case.grid]
            if min(tried_values) < max(tried_values) and value in (min(tried_values), max(tried_values)):
                return True
        return False

    def cell_size(self, cell: CellIndex) -> tuple[int, int]:
        """Returns the numbers of inner parameters and steps of an evaluated cell."""
        return self._sizes.get(cell, (0, 0))

    def block_of_test(self, test: CellTest) -> SeedBlock:
        return self._test_block(test.number, test.factor)

    def measure_loss(self, test: CellTest) -> MeasuredLoss:
        """Returns the stored measurements of a test that confirmed a cell."""
        subjects = [self.checkpoint_subjects[1], self._tuned_optimizer(test.cell)[1]]
        scores_of_sides, metric_and_scale = self._scores(
            test.cell, subjects, self.block_of_test(test), self._baseline_file(self.baseline_grid)
        )
        assert metric_and_scale is not None
        return MeasuredLoss(
            against=self.tuned_text(test.cell),
            metric=metric_and_scale[0],
            margin=self.rules.margin,
            behind=test.gap,
            scale=metric_and_scale[1],
            scores=scores_of_sides[1],
            score_version=SCORE_VERSION,
        )

    def _tuned_optimizer(self, cell: CellIndex) -> tuple[RequestedSubject, Subject]:
        """Returns the tuned optimizer of a cell."""
        return named_subjects([self.tuned_text(cell)], self.folder, (str(self.cell_file(cell)),), self.progress)[0]

    def _baseline_file(self, baseline_grid: BaselineGrid) -> Path:
        return baseline_path(self._suite_folder, self.rules.against, baseline_grid.name)

    @property
    def _suite_folder(self) -> Path:
        return self.folder / "cells"

    def _test_block(self, number: int, factor: int) -> SeedBlock:
        return SeedBlock(start=_FIRST_SEED + _SEEDS_OF_A_TEST * number, size=self.rules.seeds * factor)

    def _cell_text(self, cell: CellIndex) -> str:
        axes = zip(self.cells.axes, cell, strict=True)
        return ", ".join(f"{axis.name} {axis.value_text(value_index)}" for axis, value_index in axes)

    def _tune_cell(self, cell: CellIndex, baseline_grid: BaselineGrid) -> BaselineCase | None:
        """Tunes the optimizer on a cell, unless the result is stored; None if tuning fails."""
        file = self.cell_file(cell)  # creates the folder of the baselines
        path = self._baseline_file(baseline_grid)
        baseline = Baseline(
            optimizer=self.rules.against, protocol=baseline_grid.name, refresh="lobench falsify", cases={}
        )
        if path.is_file() and (stored_baseline := Baseline.load(path)).program_version == PROGRAM_VERSION:
            baseline = stored_baseline
        key = f"{file.name}:{self.cells.scope}"
        if key in baseline.cases and baseline.cases[key].training.is_current:
            return baseline.cases[key]
        try:
            (spec,) = specs_in(file)
            baseline_case = tune(
                spec, self.layers, self.rules.against, baseline_grid, num_seeds=_NUM_SCREENING_SEEDS, horizon_factor=1
            )
        except LobenchError as error:
            if cell == self.home_cell:
                raise  # for example an unknown optimizer, which would fail on every cell
            self.progress.log(f"left out: {self._cell_text(cell)}: {error}")
            return None
        replace(baseline, cases={**baseline.cases, key: baseline_case}).save(path)
        return baseline_case

    def _evaluate(self, subjects: Sequence[RequestedSubject], files: Sequence[Path], block: SeedBlock) -> None:
        bindings = f"Case.first_seed = {block.start}", f"Case.block_sizes = {block_sizes(block)}"
        self.evaluator.evaluate(subjects, bindings, suites=tuple(map(str, files)))

    def _screening_gap(self, cell: CellIndex, block: SeedBlock) -> float:
        """Returns the gap on the seeds of the screening; NaN without a result, or if the scale is unreliable."""
        (scores,), metric_and_scale = self._scores(
            cell, [self.checkpoint_subjects[1]], block, self._baseline_file(_COARSE_GRID)
        )
        if len(scores) < block.size:
            failure = self._failure(cell)
            if failure and cell == self.home_cell:
                raise LobenchError(
                    "the case itself gives no result", where=self.checkpoint_subjects[1].label, got=failure
                )
            self.progress.log(f"no result: {self._cell_text(cell)}: {failure}")
        if metric_and_scale is None or metric_and_scale[1].is_thin or len(scores) < block.size:
            return math.nan
        return 1.0 - math.fsum(scores.values()) / len(scores)

    def _failure(self, cell: CellIndex) -> str:
        """Returns the messages of a cell's evaluations without results."""
        snapshot = read_store(self.folder)
        rows = [
            row
            for row in snapshot.rows
            if row.case.file == self.cell_file(cell).stem and snapshot.current.is_current(row)
        ]
        return "; ".join(dict.fromkeys(f"{row.outcome}: {row.message}" for row in rows if not row.has_curves))

    def _scores(
        self, cell: CellIndex, subjects: Sequence[Subject], block: SeedBlock, path: Path
    ) -> tuple[list[dict[int, float]], tuple[str, ScoreScale] | None]:
        """Returns the scores of subjects on a cell and a seed block, and metric and scale.

        Subjects without results have no scores.
        """
        snapshot = read_store(self.folder)
        wanted_blocks = set(seed_blocks(block.size, None, block.start, block_sizes(block)))
        rows = [
            row
            for row in snapshot.rows
            if row.case.file == self.cell_file(cell).stem and row.key.seed_block in wanted_blocks and row.has_curves
        ]
        stored_subjects: list[StoredSubject | None] = []
        for wanted_subject in subjects:
            rows_of_subject = [
                row
                for row in rows
                if any(sighting.variant.key == wanted_subject.variant.key for sighting in row.sightings)
            ]
            rows_of_subject = [
                replace(row, recorded_sightings=(wanted_subject,))
                for row in rows_of_subject
                if row.key.checkpoint_sha256 == wanted_subject.sha256
            ]
            stored_subjects.append(next(iter(subjects_of(rows_of_subject, current=snapshot.current)), None))
            for row in rows_of_subject:
                if row.curves is not None:
                    self._sizes[cell] = (row.curves.num_params, row.case.num_inner_steps)
        scales = Scales.of([subject for subject in stored_subjects if subject is not None], [path])
        metric_and_scale = None
        scores = []
        for subject in stored_subjects:
            cells = list(subject.cells.values()) if subject is not None else []
            scores.append(scales.scores(cells[0], None) if cells else {})
            if cells:
                metric = cells[0].case.primary_metric
                metric_and_scale = (metric, scales.scale(cells[0].case, metric))
        return scores, metric_and_scale
