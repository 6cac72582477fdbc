"""`lobench.baseline`: tunes the missing baselines of a suite and stores them with it."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Unpack

from lobench.analysis.scores.baseline_file import Baseline, BaselineCase, BaselineError, baseline_path, training_code_id
from lobench.analysis.scores.baseline_grids import GRIDS, BaselineGrid, BaselineSearch, named_grid
from lobench.api.settings import BaselineKeywords, BaselineSettings, TuneSettings, as_texts, command_text
from lobench.core.case import CaseSpec
from lobench.core.errors import SuiteError
from lobench.core.program import PROGRAM_VERSION
from lobench.core.settings_field import check_keywords, settings_from
from lobench.core.wording import counted
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.command_case import is_command
from lobench.engine.config.layers import Layers
from lobench.engine.config.shipped import find_suite, suite_name
from lobench.engine.config.suite import specs_called
from lobench.engine.config.user_code import forget_edited_code
from lobench.engine.store.provenance import provenance
from lobench.engine.whole_file import require_writable
from lobench.experiments.tune import baseline_search
from lobench.plugins import load_plugins
from lobench.report.live.notebook_progress import default_progress

__all__ = ["baseline", "case_key", "default_layers", "problems_in"]


def baseline(
    suites: str | Path | Sequence[str | Path],
    *,
    progress: WatchProgress | None = None,
    **options: Unpack[BaselineKeywords],
) -> list[Path]:
    """Tunes baselines on the cases of suites, and stores them in SUITE/baselines.

    Baselines that are up to date are kept.

    Example:
        lobench.baseline("my_suite", optimizers=("adam", "nadamw"))

    Args:
      suites: Suite folders or `.gin` files.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench baseline`, named as the fields of `BaselineSettings`: `optimizers=("nadamw",)`,
        `grid="algoperf"`, `cases=("relu32",)`.
    Returns:
      Paths of the baseline files.
    Raises:
      SuiteError: A suite or case does not exist.
      ConfigError: A case cannot be bound, or an optimizer cannot be tuned.

    >>> lobench.baseline("quadratic.gin", optimizers="adam", grid="defaults")
    [PosixPath('baselines/adam-defaults.json')]
    """
    check_keywords("baseline", options, BaselineKeywords)
    settings = settings_from(BaselineSettings, options)
    log = (progress or default_progress()).log
    forget_edited_code()
    paths = [find_suite(suite) for suite in as_texts(suites)]
    for path in paths:
        _tune_suite(path, settings, log)
    return [
        baseline_path(path, optimizer, _grid_or_search(settings, optimizer).name)
        for path in paths
        for optimizer in settings.optimizers
    ]


def _grid_or_search(settings: BaselineSettings, optimizer: str) -> BaselineGrid | BaselineSearch:
    """Returns the grid or search over which an optimizer is tuned.

    Raises:
      ConfigError, UsageError: The grid or the search is invalid.
    """
    if not settings.vary and not settings.search:
        return named_grid(settings.grid)
    tune_settings = TuneSettings(
        suites=(), optimizer=optimizer, vary=settings.vary, search=settings.search, num_trials=settings.num_trials
    )
    return baseline_search(tune_settings, load_plugins())


def _refresh_command(settings: BaselineSettings, suite: Path, optimizer: str) -> str:
    """Returns the command that makes the baseline of a suite again."""
    default_settings = BaselineSettings()
    names = ("grid", "search", "vary", "num_trials", "seeds", "horizon_factor")
    values = {name: getattr(settings, name) for name in names}
    changed_settings = {name: value for name, value in values.items() if value != getattr(default_settings, name)}
    optimizer_option = "" if optimizer in default_settings.optimizers else optimizer
    return command_text("lobench", "baseline", suite_name(suite), optimizer=optimizer_option, **changed_settings)


def _tune_suite(suite: Path, settings: BaselineSettings, log: Callable[[str], None]) -> None:
    """Tunes each optimizer on each case whose baseline is stale or missing, and writes the file after each."""
    from lobench.evaluation.tuning import reevaluate_baseline, tune

    grids = {name: _grid_or_search(settings, name) for name in settings.optimizers}
    layers = default_layers()
    bound_cases = list(_bound_cases(suite, settings, layers))
    for optimizer, grid in grids.items():
        path = baseline_path(suite, optimizer, grid.name)
        require_writable(path)
        baseline = _stored_or_empty(path, suite, settings, optimizer, grid)
        for spec, bound_case in bound_cases:
            name = case_key(spec, suite)
            tuned_case = _up_to_date_case(baseline, spec, bound_case, settings, grid)
            if (
                tuned_case is None
                and (case_and_path := _case_of_other_suite(path, spec, bound_case, settings, baseline, grid))
                is not None
            ):
                tuned_case, other_path = case_and_path
                log(f"{optimizer} {name}: taken from {suite_name(other_path)}")
            if tuned_case is not None:
                if baseline.cases.get(name) is not tuned_case:  # found in another suite, or under an earlier name
                    baseline = dataclasses.replace(baseline, cases={**baseline.cases, name: tuned_case})
                    baseline.save(path)
                if tuned_case.training.program and tuned_case.has_scoring(
                    bound_case.case.scale, bound_case.case.minimum
                ):
                    log(f"{optimizer} {name}: up to date")
                    continue
                if tuned_case.training.program:
                    rescored_case = dataclasses.replace(
                        tuned_case, scale=bound_case.case.scale, minimum=bound_case.case.minimum
                    )
                    baseline = dataclasses.replace(baseline, cases={**baseline.cases, name: rescored_case})
                    baseline.save(path)
                    log(f"{optimizer} {name}: tuned as before, scored by the case's present settings")
                    continue
                if (retrained_case := reevaluate_baseline(spec, layers, optimizer, tuned_case)) is not None:
                    baseline = _with_case(baseline, name, retrained_case, spec)
                    baseline.save(path)
                    log(f"{optimizer} {name}: tuned as before, its best point evaluated again")
                    continue
            started_at = time.perf_counter()
            case = tune(spec, layers, optimizer, grid, num_seeds=settings.seeds, horizon_factor=settings.horizon_factor)
            baseline = _with_case(baseline, name, case, spec)
            baseline.save(path)
            values = case.grid[case.best[0]].values
            best_text = ", ".join(f"{key} {value:g}" for key, value in values.items()) or "as it is"
            loss = case.tuned_mean("train/loss")
            points_text = counted(len(case.grid), "point")
            seconds = time.perf_counter() - started_at
            log(f"{optimizer} {name}: {best_text}, train/loss {loss:.4g}, {points_text} in {seconds:.0f} s")
        # If all cases of the suite were tuned, remove those that it no longer has.
        if not settings.cases and suite.is_dir():
            case_keys = {case_key(spec, suite) for spec, _ in bound_cases}
            current_cases = {name: case for name, case in baseline.cases.items() if name in case_keys}
            if current_cases.keys() != baseline.cases.keys():
                baseline = dataclasses.replace(baseline, cases=current_cases)
                baseline.save(path)
        log(f"{path}: {counted(len(baseline.cases), 'case')}, {path.stat().st_size / 1000:.0f} kB")


def _with_case(baseline: Baseline, name: str, case: BaselineCase, spec: CaseSpec) -> Baseline:
    """Returns a baseline with a newly trained case, and this process as its origin."""
    from lobench.inner.backend import device_description

    present_provenance = provenance(bindings="", device=device_description(), folder=Path(spec.path).parent)
    case_provenance = {
        "device": present_provenance.device,
        "versions": dict(present_provenance.versions),
        "git_revision": present_provenance.git_revision,
    }
    return dataclasses.replace(baseline, provenance=case_provenance, cases={**baseline.cases, name: case})


def problems_in(suite: Path, settings: BaselineSettings) -> list[str]:
    """Returns a line for every case whose baseline is stale or missing."""
    problems: list[str] = []
    grids = {name: _grid_or_search(settings, name) for name in settings.optimizers}
    bound_cases = list(_bound_cases(suite, settings, default_layers()))
    for optimizer, grid in grids.items():
        path = baseline_path(suite, optimizer, grid.name)
        refresh_command = _refresh_command(settings, suite, optimizer)
        if not path.is_file():
            problems.append(f"{path}: no such baseline; run `{refresh_command}`")
            continue
        baseline = Baseline.load(path)
        is_other_search = isinstance(grid, BaselineSearch) and not _is_same_search(baseline.refresh, refresh_command)
        for spec, bound_case in bound_cases:
            case = baseline.find_case(bound_case.info.problem, spec.name)
            name = case_key(spec, suite)
            training = case.training if case is not None and baseline.has_problem(bound_case.info.problem) else None
            if case is None or training is None or not training.matches_code(bound_case.info.task_code):
                problems.append(f"{path}: {name} is stale or missing; run `{refresh_command}`")
            elif is_other_search or not _is_tuned_over(case, grid):
                problems.append(f"{path}: {name} was tuned over other values; run `{refresh_command}`")
            elif training.program and training.program != training_code_id(bound_case.phase_lines):
                problems.append(
                    f"{path}: {name} was trained by another program, or in other phases; run `{refresh_command}`"
                )
            elif not training.program:
                problem = "is of an older lobench, its best point not evaluated alone"
                problems.append(f"{path}: {name} {problem}; run `{refresh_command}`, which keeps the grid where it can")
            elif not case.has_scoring(bound_case.case.scale, bound_case.case.minimum):
                problems.append(
                    f"{path}: {name} has another scale or minimum; run `{refresh_command}`, which takes seconds"
                )
    return problems


def case_key(spec: CaseSpec, suite: Path) -> str:
    """Returns the name of a case in a baseline file: `digits.gin:relu32`, or `small/digits.gin:relu32`."""
    file = Path(spec.path).resolve()
    folder = suite.resolve()
    return f"{file.relative_to(folder).as_posix() if folder.is_dir() else file.name}:{spec.name}"


def _up_to_date_case(
    baseline: Baseline,
    spec: CaseSpec,
    bound_case: BoundCase,
    settings: BaselineSettings,
    grid: BaselineGrid | BaselineSearch,
) -> BaselineCase | None:
    """Returns the stored result of tuning if it is up to date."""
    case = baseline.find_case(bound_case.info.problem, spec.name)
    if (
        settings.force
        or case is None
        or not baseline.has_problem(bound_case.info.problem)
        or not _is_tuned_over(case, grid)
    ):
        return None
    training = case.training
    if training.program not in ("", training_code_id(bound_case.phase_lines)) or not training.matches_code(
        bound_case.info.task_code
    ):
        return None
    has_same_length = training.horizon_factor == (1 if training.ends_with_budget else settings.horizon_factor)
    return case if has_same_length and len(case.seeds) == settings.seeds else None


def _is_tuned_over(case: BaselineCase, grid: BaselineGrid | BaselineSearch) -> bool:
    """Returns whether a baseline was tuned over the points of this grid. A file of points may have changed."""
    if isinstance(grid, BaselineSearch) or grid.name in GRIDS:
        return True
    return [dict(point.values) for point in case.grid] in ([dict(point) for point in grid.points], [{}])


def _is_same_search(old_command: str, new_command: str) -> bool:
    """Returns whether two `lobench baseline` commands have the same options, whatever their suites."""
    return shlex.split(old_command)[3:] == shlex.split(new_command)[3:]


def _case_of_other_suite(
    path: Path,
    spec: CaseSpec,
    bound_case: BoundCase,
    settings: BaselineSettings,
    baseline: Baseline,
    grid: BaselineGrid | BaselineSearch,
) -> tuple[BaselineCase, Path] | None:
    """Returns the baseline that another suite in the same folder has for the same problem, and the path of its file."""
    own_path = path.resolve()  # the relative path of a suite in the working directory would not have a folder's name
    for other_path in sorted(own_path.parent.parent.parent.glob(f"*/{own_path.parent.name}/{own_path.name}")):
        if other_path != own_path and bound_case.info.problem in other_path.read_text(encoding="utf-8"):
            other_baseline = Baseline.load(other_path)
            if isinstance(grid, BaselineSearch) and not _is_same_search(other_baseline.refresh, baseline.refresh):
                continue
            if (tuned_case := _up_to_date_case(other_baseline, spec, bound_case, settings, grid)) is not None:
                return tuned_case, other_path if path.is_absolute() else Path(os.path.relpath(other_path))
    return None


def _stored_or_empty(
    path: Path, suite: Path, settings: BaselineSettings, optimizer: str, grid: BaselineGrid | BaselineSearch
) -> Baseline:
    """Returns the baseline in a file, or an empty one if the file is missing or from another search."""
    refresh_command = _refresh_command(settings, suite, optimizer)
    empty_baseline = Baseline(optimizer=optimizer, protocol=grid.name, refresh=refresh_command)
    if not path.is_file():
        return empty_baseline
    try:
        stored_baseline = Baseline.load(path)
    except BaselineError:
        if not settings.force:
            raise
        return empty_baseline
    is_current = stored_baseline.program_version == PROGRAM_VERSION
    is_current &= not isinstance(grid, BaselineSearch) or _is_same_search(stored_baseline.refresh, refresh_command)
    cases = stored_baseline.cases if is_current else {}
    return dataclasses.replace(empty_baseline, provenance=stored_baseline.provenance, cases=cases)


def default_layers() -> Layers:
    """Returns the layers with which baselines are tuned: only the gin modules of plugins."""
    return gin_layers_at("", load_plugins())


def _bound_cases(suite: Path, settings: BaselineSettings, layers: Layers) -> Iterator[tuple[CaseSpec, BoundCase]]:
    from lobench.evaluation.runner import claim_for

    specs = [spec for spec in specs_called(settings.cases, suite) if not is_command(spec)]
    if not specs:
        raise SuiteError("all cases are commands, for which nothing is tuned", where=str(suite))
    for spec in specs:
        claim_for(spec, layers)  # before the suite's modules are imported, because they may create arrays
        yield spec, bind_case(spec, layers, build=False)
