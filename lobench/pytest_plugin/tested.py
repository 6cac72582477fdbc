"""Ordinary tests as evaluations of a checkpoint, with the fixtures `checkpoint` and `record`. Imports no jax."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lobench.core.case import PASSED, CaseSpec, SeedBlock
from lobench.core.checkpoint import OWN_BINDINGS
from lobench.core.errors import LobenchError, UsageError
from lobench.engine.config.bound import BoundCase
from lobench.engine.item_values import ItemValues
from lobench.engine.paths import hash_in_copy_path
from lobench.evaluation.request import ThetaLeaves
from lobench.pytest_plugin.commanded import CheckpointFiles
from lobench.pytest_plugin.evaluator_curves import CurvesMaker
from lobench.pytest_plugin.item_cases import ordinary_test_spec
from lobench.pytest_plugin.item_result import CURRENT_JOB, FINISHED_BLOCKS
from lobench.pytest_plugin.items import blocks_of
from lobench.pytest_plugin.options import evaluates_opaque_files, layers_of, loaded_subject, option, plugin_manager_of
from lobench.pytest_plugin.ordinary_tests import bind_ordinary_test

__all__ = ["MetricRecorder", "TestedCheckpoint", "checkpoint_of", "prepare_run", "recorder_of", "run_and_record"]

_RECORDER: pytest.StashKey[MetricRecorder | None] = pytest.StashKey()
_FILES: pytest.StashKey[CheckpointFiles | None] = pytest.StashKey()


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedCheckpoint:
    """Checkpoint that a test evaluates: the value of the fixture `checkpoint`.

    Attributes:
      path: File or folder. In a watch, the copy that lobench keeps until the evaluation has ended.
      outer_step: Step of the run.
      run: Name of the run; "" if there is one run.
      generation: Generation of a population; 0 otherwise.
      sha256: Identity of the checkpoint in the store.
    """

    __test__ = False  # tells pytest that this is no class of tests

    path: Path
    outer_step: int
    run: str
    generation: int
    sha256: str
    _leaves: ThetaLeaves = field(repr=False)
    _config: pytest.Config = field(repr=False)

    def theta(self) -> dict[str, np.ndarray]:
        """Returns the arrays of a learned optimizer's checkpoint by path, such as `mlp/~/linear_0/w`.

        Raises:
          CheckpointError: No reader of lobench can read it, or it is a pickle.
        """
        leaves: Mapping[str, Any] | None = self._leaves.leaves
        if leaves is None:
            _, theta_leaves = ThetaLeaves.read_checkpoint(
                str(self.path),
                plugin_manager_of(self._config),
                allow_pickle=bool(self._config.getoption("lobench_allow_pickle")),
            )
            leaves = theta_leaves.leaves or {}
        return {name: np.array(leaf) for name, leaf in leaves.items() if name != OWN_BINDINGS}


class MetricRecorder:
    """Collects the metrics of one run of a test: the value of the fixture `record`.

    Args:
      nodeid: Node id of the test.
      seeds: Seeds to record the primary metric for.
      has_items: Whether the values are of items instead of seeds.
    Attributes:
      seeds: As given. A test that reads them can be evaluated on further seeds, for example by `lobench best`.
    """

    def __init__(self, nodeid: str, seeds: tuple[int, ...], *, has_items: bool = False) -> None:
        self._nodeid = nodeid
        self.seeds = seeds
        self._has_items = has_items
        self.values: dict[str, dict[int, float]] = {}  # by metric, then by seed
        self.values_of_items: dict[str, dict[str, float]] = {}  # by metric, then by item

    def __call__(self, name: str, value: Any, seed: int = 0, *, item: str | int | None = None) -> None:
        """Records the value of a metric for a seed, or for an item of a data set.

        Args:
          name: Name of the metric, such as `valid/loss`.
          value: A number, or an array or tensor of one. NaN and infinity count as diverged.
          seed: One of `seeds`. By default these are 0, ..., `num_seeds` - 1, with `num_seeds` of the mark `lobench`.
          item: Name of the item. Comparisons are then paired by item. Each item needs the primary metric.
        Raises:
          LobenchError: The value is not a number, the seed is not one of `seeds`, or the seed or item already has a
            value.
        """
        if not isinstance(name, str) or not name.strip() or name != name.strip():
            raise self._error("the name of a metric", got=repr(name), expected="a text such as 'valid/loss'")
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            got = f"{type(value).__name__} {str(value)[:40]}"
            raise self._error(f"the value of {name} is not a number", got=got, expected="one number") from error
        if item is not None or self._has_items:
            self._record_item(name, number, item)
            return
        if type(seed) is not int or seed not in self.seeds:
            is_usual = self.seeds == tuple(range(len(self.seeds)))
            expected = f"below {len(self.seeds)}" if is_usual else f"one of `record.seeds`, {self.seeds}"
            advice = f"@pytest.mark.lobench(num_seeds={seed + 1})" if is_usual and type(seed) is int else ""
            raise self._error(f"the seed of {name}", got=repr(seed), expected=expected, next_step=advice)
        values_by_seed = self.values.setdefault(name, {})
        if seed in values_by_seed:
            raise self._error(f"{name} is recorded twice for seed {seed}")
        values_by_seed[seed] = number

    def _record_item(self, name: str, number: float, item: str | int | None) -> None:
        if not self._has_items:
            advice = '@pytest.mark.lobench(replicates="items")'
            raise self._error(f"the item of {name}", got=repr(item), expected="a seed", next_step=advice)
        if item is None or item == "" or isinstance(item, bool):
            expected = f"record({name!r}, value, item='q17'), as elsewhere in the test"
            raise self._error(f"{name} has no item", got=repr(item), expected=expected)
        values_by_item = self.values_of_items.setdefault(name, {})
        if str(item) in values_by_item:
            raise self._error(f"{name} is recorded twice for item {str(item)!r}")
        values_by_item[str(item)] = number

    def _error(self, problem: str, **error_fields: str) -> LobenchError:
        return LobenchError(problem, where=self._nodeid, **error_fields)


def checkpoint_of(item: pytest.Item) -> TestedCheckpoint:
    """Returns the checkpoint that an item evaluates.

    Raises:
      UsageError: The session has no checkpoint.
      CheckpointError: The checkpoint cannot be read.
    """
    config = item.config
    job = item.config.stash.get(CURRENT_JOB, None)
    if job is not None:
        is_opaque = bool(hash_in_copy_path(job.theta_path))
        leaves = ThetaLeaves.from_file("" if is_opaque else job.theta_path, where=job.checkpoint_uri)
        return TestedCheckpoint(
            path=Path(job.theta_path),
            outer_step=job.outer_step,
            run=job.run,
            generation=job.generation,
            sha256=job.sha256,
            _leaves=leaves,
            _config=config,
        )
    if not option(config, "checkpoint"):
        raise UsageError("no checkpoint to test", where=item.nodeid, next_step="give --lobench-checkpoint PATH")
    loaded_checkpoint = loaded_subject(item)
    return TestedCheckpoint(
        path=_checkpoint_path(config),
        outer_step=loaded_checkpoint.subject.outer_step,
        run=loaded_checkpoint.subject.run,
        generation=loaded_checkpoint.subject.generation,
        sha256=loaded_checkpoint.subject.sha256,
        _leaves=loaded_checkpoint.theta,
        _config=config,
    )


def _checkpoint_path(config: pytest.Config) -> Path:
    """Returns the absolute path of the session's checkpoint. Fixtures may have changed the working directory."""
    return config.invocation_params.dir / option(config, "checkpoint")


def recorder_of(item: pytest.Item, spec: CaseSpec | None) -> MetricRecorder:
    """Returns the recorder of an item's present run. Without a checkpoint, its values are checked and not stored.

    Raises:
      UsageError: The test evaluates a case of a gin file.
    """
    if spec is not None and not spec.is_test:
        raise UsageError(
            "a test of a gin file's case records the metrics of the case", where=item.nodeid, next_step="omit `record`"
        )
    recorder = item.stash.get(_RECORDER, None)
    if recorder is None:
        info = bind_ordinary_test(item, spec or ordinary_test_spec(item)).info
        seeds = tuple(seed for block in blocks_of(item, info) for seed in block.seeds)
        item.stash[_RECORDER] = recorder = MetricRecorder(item.nodeid, seeds, has_items=info.has_items)
    return recorder


def prepare_run(item: pytest.Item) -> None:
    """Prepares a run of a test, before its fixtures.

    Raises:
      RewrittenCheckpoint: The files are not those of the checkpoint.
    """
    item.stash[_RECORDER], item.stash[_FILES] = None, None
    job = item.config.stash.get(CURRENT_JOB, None)
    path = job.theta_path if job is not None else ""
    if job is None:
        with contextlib.suppress(LobenchError):  # the fixture `checkpoint` or the session's end reports it
            layers_of(item.config)
            loaded_subject(item)  # now, because fixtures may change the working directory
    if not path and evaluates_opaque_files(item.config):
        path = str(_checkpoint_path(item.config))
    if path and "://" not in path:
        item.stash[_FILES] = CheckpointFiles(path)


def run_and_record(item: pytest.Item, spec: CaseSpec, blocks: list[SeedBlock]) -> Generator[None, Any, Any]:
    """Runs a test, and keeps its metrics as the curves of its case.

    Raises:
      RewrittenCheckpoint: The files of the checkpoint have changed since `prepare_run`.
      LobenchError: The test passed without its primary metric for each seed.
    """
    bound_case = bind_ordinary_test(item, spec)
    started_at = time.monotonic()
    checkpoint_files = item.stash.get(_FILES, None)
    recorder = recorder_of(item, spec)
    try:
        result = yield
    except BaseException as error:
        if checkpoint_files is not None and isinstance(error, Exception):
            checkpoint_files.check()
        if isinstance(error, AssertionError | pytest.fail.Exception):
            _keep_curves(item, bound_case, blocks, recorder, seconds=time.monotonic() - started_at, has_passed=False)
        raise
    if checkpoint_files is not None:
        checkpoint_files.check()
    _keep_curves(item, bound_case, blocks, recorder, seconds=time.monotonic() - started_at, has_passed=True)
    return result


def _keep_curves(
    item: pytest.Item,
    bound_case: BoundCase,
    blocks: list[SeedBlock],
    recorder: MetricRecorder,
    *,
    seconds: float,
    has_passed: bool,
) -> None:
    case = bound_case.case
    files = item.stash.get(_FILES, None)
    identified_by = files.identified_by if files is not None else ""
    maker = CurvesMaker(
        bound_case=bound_case, seconds=seconds / len(blocks), identified_by=identified_by, where=item.nodeid
    )
    values = {name: dict(values_by_seed) for name, values_by_seed in recorder.values.items()}
    seeds = recorder.seeds
    if bound_case.info.has_items:
        with contextlib.suppress(LobenchError) if not has_passed else contextlib.nullcontext():
            item_values = ItemValues.of(recorder.values_of_items, case.primary_metric, where=item.nodeid)
            (block,) = blocks
            item.stash.setdefault(FINISHED_BLOCKS, []).append((block, maker.of_items(item_values)))
        return
    if case.primary_metric == PASSED and PASSED not in values:
        values[PASSED] = dict.fromkeys(seeds, float(has_passed))
    seeds_without_primary = [seed for seed in seeds if seed not in values.get(case.primary_metric, {})]
    if seeds_without_primary:
        if has_passed:
            raise LobenchError(
                f"the test recorded no {case.primary_metric} for seed {', '.join(map(str, seeds_without_primary[:5]))}",
                where=item.nodeid,
                got=", ".join(sorted(recorder.values)) or "no metric",
                expected=f"record({case.primary_metric!r}, value, seed) for {len(seeds)} seed(s)",
            )
        return  # a failed test may have ended before it recorded the metric
    finished_blocks = item.stash.setdefault(FINISHED_BLOCKS, [])
    for block in blocks:
        complete_metrics = {
            name: values_by_seed for name, values_by_seed in values.items() if values_by_seed.keys() >= {*block.seeds}
        }
        metrics = {
            name: np.asarray([values_by_seed[seed] for seed in block.seeds])
            for name, values_by_seed in complete_metrics.items()
        }
        partial_names = [name for name in values if name not in complete_metrics]
        problems = [f"{name} is left out: it was recorded for some of the seeds only" for name in partial_names]
        finished_blocks.append((block, maker.of_final_values(tuple(block.seeds), metrics, problems)))
