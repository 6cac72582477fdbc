"""`lobench.bisect`: the outer step at which a case broke, from as few evaluations as possible."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from etils import epath

from lobench.analysis.stats.change_point import (
    ChangePointPosterior,
    fall_posterior,
    first_probes,
    is_located,
    next_probes,
)
from lobench.analysis.store.snapshot import read_store
from lobench.api.components import absolute_location, plugins_of, readers_for
from lobench.api.fresh_seeds import note_on_fixed_seeds
from lobench.api.resolve import RunFolder, is_store
from lobench.api.rounds import MetricCheck, RoundProgress
from lobench.api.settings import EvaluationKeywords, as_texts, command_text, num_workers
from lobench.api.watched_run import WatchedRun
from lobench.core.case import CaseSpec, SeedBlock, seed_blocks
from lobench.core.checkpoint import Checkpoint, theta_digests
from lobench.core.errors import CheckpointError, LobenchError, SuiteError, UsageError
from lobench.core.settings_field import changed_fields, check_keywords, keywords_in, settings_from
from lobench.core.subject import Subject, Variant
from lobench.core.wording import counted, counted_with_verb
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.checkpoints.kept import readable_location
from lobench.engine.checkpoints.leftovers import find_leftovers
from lobench.engine.checkpoints.places import checkpoint_path
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.checkpoints.spool import files_fingerprint
from lobench.engine.checkpoints.whole_files import opaque_checkpoint
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.bound import integer_field_of
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import names_of_case, specs_called, takes_any_checkpoint
from lobench.engine.paths import similar_path_advice
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.edited_code import edited_code_line
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.hookspecs import SourceContext
from lobench.plugins import PluginManager
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.bisect.bisect_settings import BisectKeywords, BisectSettings
from lobench.tools.bisect.probes import Bisection, ProbedCase, Status, read_probed_case

__all__ = ["bisect"]

_MAX_AT_ONCE = 8
_NUM_STABLE_ROUNDS = 3
_SMALL_CHANGE = 0.01  # smaller changes of the probability of a fall count as none
_MANY_PROBES = 4  # number of a checkpoint's seed blocks after which further blocks hardly change its mean
_MIN_BUDGET = 20  # enough for all checkpoints of a short run, and for some of them twice


def bisect(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    case: str,
    name: str = "",
    store: str | Path | None = None,
    progress: WatchProgress | None = None,
    **options: Unpack[BisectKeywords],
) -> Bisection:
    """Finds the first checkpoint of a run from which on a case is worse than before.

    Results in the watch's store and of earlier calls are reused. New evaluations go to a store below the watch's, which
    may be in use.

    Example:
        found = lobench.bisect("runs/today", "quick", case="relu32")
        found.broken.outer_step

    Args:
      location: The run's folder. With `store`, a session of an experiment's command, by scope or label, such as
        `mine-0`.
      suites: Suites of the case, and of the watch if there is one.
      case: Name of the case: `relu32`, `quick/relu32`, or with its file, `digits.relu32`.
      name: Name of the watch. "": the name of the first suite.
      store: Store of the watch. None: the default store of `lobench.watch`.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench bisect`, such as `metric`, `probability`, `most` and `from_step`, and those of an
        evaluation, such as the `gin_params` of the watch. As many checkpoints are evaluated together as there are
        `workers`, 8 at most.
    Raises:
      UsageError: The run does not exist, or has fewer than two checkpoints.
      SuiteError: No case has this name.
      UnknownDirection: The metric's direction is not declared.
      LobenchError: Fewer than two checkpoints could be evaluated, or every evaluation diverged.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> lobench.bisect("run", "quadratic.gin", case="small", most=2).status
    'undecided'
    """
    check_keywords("bisect", options, BisectKeywords)
    settings = settings_from(BisectSettings, options, case=case)
    gin_files = as_texts(options.get("gin_files", ()))
    gin_params = as_texts(options.get("gin_params", ()))
    metric = settings.metric
    from_step = settings.from_step
    to_step = settings.to_step
    watched_run = WatchedRun.find(location, suites, store=store, name=name)
    run, suite_paths = watched_run.run, watched_run.suites
    given_location = location
    location = run.location
    run_params = (*run.bindings, *gin_params)
    given_store, store = store, watched_run.store
    progress = progress or default_progress()
    watched_run.log_unused_store(progress.log)
    names = names_of_case(case, suite_paths)
    specs = specs_called([case], *suite_paths, with_tests=True)
    evaluator = watched_run.evaluator(
        "bisect", MetricCheck(RoundProgress(progress), [metric]), keywords_in(EvaluationKeywords, options)
    )
    cases = tuple(spec.names[-1] for spec in specs)

    def evaluate(chosen: Sequence[Checkpoint], block: SeedBlock | None) -> None:
        given_subjects = [
            run.request_for(
                Subject.of_checkpoint(
                    replace(checkpoint, uri=readable_path_of(checkpoint) or checkpoint.uri), variant_of(checkpoint)
                )
            )
            for checkpoint in chosen
        ]
        evaluator.evaluate(given_subjects, () if block is None else block.bindings, cases=cases)

    keeps_results = bool(options.get("keep_results"))
    if not keeps_results and is_store(store):
        watch_snapshot = read_store(store)
        rows_of_case = [
            row
            for row in watch_snapshot.rows
            if watch_snapshot.current.is_current(row) and any(map(row.case.has_name, names))
        ]
        if line := edited_code_line(rows_of_case, watch_snapshot.edited_codes):
            progress.log(f"{line}, and are not used; --keep-results uses them")
    rows, current = _stored_evaluations(store, is_evaluated=False, keeps_results=keeps_results)
    if not rows and not epath.Path(location).exists():
        raise UsageError("no run found", where=str(location), next_step=similar_path_advice(str(location)))
    manager = plugins_of(suite_paths, progress)
    excluded, first_fingerprints = _restarts_of(store)
    checkpoints = _run_checkpoints(
        run,
        manager,
        rows,
        progress,
        suites=suite_paths,
        excluded=excluded,
        first_paths={
            _resolve_path(run.path_of(uri))
            for uri, fingerprint in first_fingerprints.items()
            if _has_fingerprint(run.path_of(uri), fingerprint)
        },
    )
    checkpoints = [
        checkpoint
        for checkpoint in checkpoints
        if (from_step is None or checkpoint.outer_step >= from_step)
        and (to_step is None or checkpoint.outer_step <= to_step)
    ]
    num_all = len(checkpoints)
    checkpoints = _without_repeats(checkpoints)
    if num_all > len(checkpoints):
        progress.log(f"{num_all - len(checkpoints)} of {num_all} checkpoints equal the one before, and count with it")
    if len(checkpoints) < 2:
        next_step = "see `lobench list readers`" if (from_step, to_step) == (None, None) and not checkpoints else ""
        raise UsageError(
            "bisecting takes two checkpoints or more",
            where=str(location),
            got=f"{len(checkpoints)}"
            + (f" in {num_all} equal files" if num_all > 1 else "")
            + (" between these steps" if (from_step, to_step) != (None, None) else ""),
            next_step=next_step,
        )

    paths_by_hash: dict[str, list[str]] = {}  # paths by hash of theta
    for subject in {
        sighting
        for row in rows
        for sighting in row.sightings
        if sighting.has_theta and sighting.uri and run.contains(sighting.uri)
    }:
        paths_by_hash.setdefault(subject.sha256, []).append(run.path_of(subject.uri))

    variant_of = _variant_lookup(run, rows, current)

    def readable_path_of(checkpoint: Checkpoint) -> str | None:
        return readable_location(
            store, checkpoint.uri, checkpoint.sha256, other_paths=sorted(paths_by_hash.get(checkpoint.sha256, ()))
        )

    def read_probes() -> ProbedCase:
        rows, current = _stored_evaluations(store, is_evaluated=search.num_new > 0, keeps_results=keeps_results)
        return read_probed_case(
            store,
            rows,
            names,
            checkpoints,
            [Path(path) for path in suite_paths],
            metric,
            current=current,
            is_of_run=lambda sighting: not sighting.uri or run.contains(sighting.uri),
        )

    layers = gin_layers_at(location, manager, gin_files=as_texts(gin_files), gin_params=run_params)
    layers = replace(layers, variant=variant_of(checkpoints[-1]))
    max_evaluations = max(len(checkpoints) // 5, _MIN_BUDGET) if settings.most is None else settings.most
    search = _Search(
        checkpoints=checkpoints,
        first_block=_first_block(specs[0], layers),
        evaluate=evaluate,
        read_probes=read_probes,
        is_readable=lambda checkpoint: readable_path_of(checkpoint) is not None,
        log=progress.log,
        level=settings.probability,
        confidence=settings.confidence,
        max_evaluations=max_evaluations,
        max_parallel=min(num_workers(options.get("workers", "auto")), _MAX_AT_ONCE),
    )
    status, probed_case, posterior = search.run()
    assert probed_case.case is not None
    if status == "undecided" and (note := note_on_fixed_seeds([probed_case.case])):
        progress.log(note)
    return Bisection(
        status=status,
        metric=metric or probed_case.case.primary_metric,
        checkpoints=tuple(checkpoints),
        posterior=posterior,
        level=settings.probability,
        confidence=settings.confidence,
        probed_case=probed_case,
        num_new=search.num_new,
        is_exhausted=search.is_exhausted,
        command=command_text(
            *("lobench", "bisect", str(given_location)),
            suite=as_texts(suites),
            **changed_fields(replace(settings, most=None)),
            name=name,
            store=given_store,
            gin_file=as_texts(gin_files),
            gin_param=as_texts(gin_params),
        ),
    )


@dataclass(slots=True, kw_only=True)
class _Search:
    """Evaluates checkpoints until the posterior is sure enough, or the budget is spent.

    Attributes:
      checkpoints: Checkpoints of the run in order.
      first_block: First seed block of the case, used until a store knows the case's blocks. None: all of the case's.
      evaluate: Evaluates checkpoints on a seed block.
      read_probes: Reads the results of the stores.
      is_readable: Whether the theta of a checkpoint can be read now.
      log: Prints a line of progress.
      level: Probability of a fall, and of the break within one checkpoint, at which the search stops.
      confidence: Probability of the named checkpoint at which the search stops.
      max_evaluations: Largest number of new evaluations.
      max_parallel: Number of checkpoints that are evaluated together.
      num_new: Number of new evaluations so far.
      is_exhausted: Whether further seeds of the same checkpoints would not change the answer.
    """

    checkpoints: Sequence[Checkpoint]
    first_block: SeedBlock | None
    evaluate: Callable[[Sequence[Checkpoint], SeedBlock | None], None]
    read_probes: Callable[[], ProbedCase]
    is_readable: Callable[[Checkpoint], bool]
    log: Callable[[str], None]
    level: float
    confidence: float
    max_evaluations: int
    max_parallel: int
    num_new: int = 0
    is_exhausted: bool = False

    def run(self) -> tuple[Status, ProbedCase, ChangePointPosterior]:
        probed_case = self.read_probes()
        unusable = {index for index, checkpoint in enumerate(self.checkpoints) if not self.is_readable(checkpoint)}
        unusable |= _indices_with_fixed_seeds(probed_case)
        while indices := first_probes(probed_case.probes, len(self.checkpoints), unusable)[: self._num_left]:
            probed_case = self._evaluate_indices(indices, probed_case, unusable)
        fall_probabilities = list[float]()
        while True:
            _refuse_undecidable(probed_case)
            posterior = fall_posterior(probed_case.probes, len(self.checkpoints))
            fall_probabilities.append(posterior.fall_probability)
            status = self._decide_status(posterior, {probe.checkpoint_index for probe in probed_case.probes})
            self.is_exhausted = self._is_settled(fall_probabilities, posterior, probed_case, unusable)
            count = 0 if status or self.is_exhausted else min(self.max_parallel, self._num_left)
            indices = next_probes(posterior, probed_case.probes, count, unusable) if count else []
            if not indices:
                return status or "undecided", probed_case, posterior
            step = self.checkpoints[posterior.break_index].outer_step
            precision = f"{posterior.probability_within(1):.0%} within one checkpoint of step {step}"
            probed_case = self._evaluate_indices(
                indices,
                probed_case,
                unusable,
                f" ({posterior.fall_probability:.0%} sure of a fall; if so, {precision})",
            )

    @property
    def _num_left(self) -> int:
        """Number of evaluations left in the budget."""
        return max(self.max_evaluations - self.num_new, 0)

    @staticmethod
    def _is_settled(
        fall_probabilities: Sequence[float],
        posterior: ChangePointPosterior,
        probed_case: ProbedCase,
        unusable: Collection[int],
    ) -> bool:
        """Returns whether all checkpoints have many probes, and the last rounds did not change the answer.

        More seeds would then only measure the same checkpoints more precisely. The remaining uncertainty is how much
        the run varies from checkpoint to checkpoint, which only further checkpoints can show.
        """
        counts = Counter(probe.checkpoint_index for probe in probed_case.probes)
        open_indices = [
            index
            for index in range(posterior.first_good_index, len(posterior.probability_by_index))
            if index not in unusable
        ]
        last_probabilities = fall_probabilities[-_NUM_STABLE_ROUNDS:]
        is_constant = (
            len(last_probabilities) == _NUM_STABLE_ROUNDS
            and max(last_probabilities) - min(last_probabilities) < _SMALL_CHANGE
        )
        return is_constant and all(counts[index] >= _MANY_PROBES for index in open_indices)

    def _decide_status(self, posterior: ChangePointPosterior, probed_indices: Collection[int]) -> Status | None:
        is_near = posterior.fall_probability >= self.level and posterior.probability_within(1) >= self.level
        if is_near and is_located(posterior, probed_indices, self.confidence):
            return "found"
        return "no_fall" if 1 - posterior.fall_probability >= self.level else None

    def _evaluate_indices(
        self, indices: Sequence[int], probed_case: ProbedCase, unusable: set[int], posterior_text: str = ""
    ) -> ProbedCase:
        """Evaluates checkpoints. A checkpoint that gives no result is not evaluated again.

        Args:
          indices: Positions of the checkpoints.
          probed_case: Results so far.
          unusable: Positions of checkpoints that are not evaluated again. Checkpoints without a result are added.
          posterior_text: Text on the current posterior, for the line of progress.
        """
        steps = ", ".join(str(self.checkpoints[probe_index].outer_step) for probe_index in indices)
        self.log(f"looking at outer step{'s' * (len(indices) > 1)} {steps}{posterior_text}")
        indices_by_block: dict[SeedBlock | None, list[int]] = {}
        for probe_index in indices:
            indices_by_block.setdefault(_free_block(probed_case, probe_index, self.first_block), []).append(probe_index)
        for block, indices_of_block in indices_by_block.items():
            self.evaluate([self.checkpoints[index] for index in indices_of_block], block)
        new_probed_case = self.read_probes()
        self.num_new += max(new_probed_case.num_evaluations - probed_case.num_evaluations, 0)
        counts = [
            Counter(probe.checkpoint_index for probe in probes_before_or_after.probes)
            for probes_before_or_after in (probed_case, new_probed_case)
        ]
        unusable.update(index for index in indices if counts[1][index] <= counts[0][index])
        unusable |= _indices_with_fixed_seeds(new_probed_case)
        if new_probed_case.case is None:
            raise SuiteError("the case was not evaluated: the suite's tests do not collect it")
        return new_probed_case


def _indices_with_fixed_seeds(probed_case: ProbedCase) -> set[int]:
    """Returns the positions of the evaluated checkpoints if the case has fixed seeds; else an empty set.

    Fixed seeds cannot be extended, so these checkpoints cannot be evaluated again.
    """
    return {*probed_case.evaluated_blocks} if probed_case.case is not None and probed_case.case.fixed_seeds else set()


def _first_block(spec: CaseSpec, layers: Layers) -> SeedBlock | None:
    if spec.is_test:
        return None  # only pytest knows the settings of its marks
    num_seeds, seed_block, start = (
        integer_field_of(name, spec, layers) for name in ("num_seeds", "seed_block", "first_seed")
    )
    return next(seed_blocks(num_seeds or 1, seed_block, start or 0))


def _free_block(probed_case: ProbedCase, index: int, first_block: SeedBlock | None) -> SeedBlock | None:
    """Returns the first seed block on which a checkpoint was not evaluated.

    If it was evaluated on all known blocks of the case, the block has further seeds.

    Args:
      probed_case: Results of the stores.
      index: Position of the checkpoint.
      first_block: Block to use if no store knows the case yet.
    """
    if probed_case.case is None:
        return first_block
    used_blocks = probed_case.evaluated_blocks.get(index, frozenset())
    blocks = probed_case.case.blocks()
    blocks = [block for block in {*blocks, *probed_case.blocks} if block not in used_blocks]
    if blocks:
        return min(blocks)
    size = probed_case.case.seed_block or probed_case.case.num_seeds
    return SeedBlock(start=max(block.start + block.size for block in used_blocks), size=size)


def _refuse_undecidable(probed_case: ProbedCase) -> None:
    """Raises LobenchError if there is nothing to compare, or no checkpoint was ever good."""
    where = "" if probed_case.case is None else f"{probed_case.case.suite}/{probed_case.case.name}"
    if len({probe.checkpoint_index for probe in probed_case.probes}) < 2:
        next_step = "--most allows more evaluations" if not probed_case.failures else ""
        raise LobenchError(
            "fewer than two checkpoints could be evaluated",
            where=where,
            got="; ".join(probed_case.failures),
            next_step=next_step,
        )
    if probed_case.num_diverged == len(probed_case.probes):
        raise LobenchError(
            "every evaluation diverged: it never worked, and so it did not break",
            where=where,
            got=f"{len(probed_case.probes)} seed blocks",
            next_step=f"`lobench debug {where}` shows where in a training it goes wrong",
        )
    if any(math.isnan(score) for probe in probed_case.probes for score in probe.scores):
        raise LobenchError(
            "no checkpoint is better than an untrained task, so scores cannot be compared",
            where=where,
            next_step="`lobench baseline SUITE` defines a scale for all checkpoints",
        )


def _stored_evaluations(
    store: Path, *, is_evaluated: bool, keeps_results: bool = False
) -> tuple[list[EvaluationRow], CurrentCases]:
    """Returns the evaluations of the watch, followed by those of earlier bisections, and the current cases.

    Args:
      store: Store of the watch.
      is_evaluated: Whether this call has evaluated something. If so, its plan decides which cases are current,
        otherwise the watch's plan.
      keeps_results: Whether results computed by other code than the user's present code count, too.
    """
    folders = [folder for folder in (store, store / "bisect") if (folder / "ledger.sqlite").is_file()]
    snapshots = [read_store(folder) for folder in folders]
    rows = list[EvaluationRow]()
    for snapshot in snapshots:
        last_id = rows[-1].id if rows else 0  # so that ids increase over both stores
        earlier_rows = {row.key.checkpoint_sha256: row for row in rows}
        for row in snapshot.rows:
            if row.key.code in snapshot.edited_codes and not keeps_results:
                continue
            # A bisection gives a checkpoint by its path, without the name of its run in the watch.
            earlier_row = earlier_rows.get(row.key.checkpoint_sha256, row)
            rows.append(
                replace(
                    row,
                    id=last_id + row.id,
                    recorded_sightings=earlier_row.recorded_sightings,
                    superseded_sightings=earlier_row.superseded_sightings,
                )
            )
    if not snapshots:
        return rows, CurrentCases.of_rows(rows)
    deciding_snapshot = snapshots[-1] if is_evaluated else snapshots[0]
    return rows, deciding_snapshot.current.add_rows(rows)


def _variant_lookup(
    run: RunFolder, rows: Sequence[EvaluationRow], current: CurrentCases
) -> Callable[[Checkpoint], Variant]:
    """Returns a function that returns the bindings with which a watch evaluates a checkpoint.

    A checkpoint that no watch has evaluated gets the bindings of another checkpoint in its folder.
    """
    variants_by_hash: dict[str, Variant] = {}
    variants_by_folder: dict[str, Variant] = {}
    for row in sorted(rows, key=current.plan_order):
        for sighting in row.present_sightings:
            if (
                sighting.has_theta
                and sighting.uri
                and run.contains(sighting.uri)
                and current.has_bindings(row, sighting)
            ):
                variant = Variant(trainer_config=sighting.variant.trainer_config)
                variants_by_hash[sighting.sha256] = variants_by_folder[os.path.dirname(run.path_of(sighting.uri))] = (
                    variant
                )
    return lambda checkpoint: (
        variants_by_hash.get(checkpoint.sha256) or variants_by_folder.get(os.path.dirname(checkpoint.uri)) or Variant()
    )


def _restarts_of(store: Path) -> tuple[frozenset[Subject], dict[str, str]]:
    """Returns the checkpoints of a watch's store that are not on the curve of the present run, and where that begins.

    The former belong to a former run in the same folder, or have no outer step although other checkpoints of the folder
    do. The latter are the paths of first checkpoints since a trainer began again, with their fingerprints.
    """
    if not is_store(store):
        return frozenset(), {}
    with Ledger.open(store, read_only=True) as ledger:
        fingerprints = ledger.fingerprints()
        first_fingerprints = {uri: fingerprints.get(uri, "") for uri in ledger.restarts().paths_that_begin_runs()}
        return ledger.superseded_subjects() | ledger.numbered_by_arrival(), first_fingerprints


def _has_fingerprint(path: str, fingerprint: str) -> bool:
    """Returns whether the files of a checkpoint are as a watch has read them. The times of a copy tell nothing."""
    try:
        return files_fingerprint(checkpoint_path(path)) == fingerprint
    except CheckpointError:
        return False


def _run_checkpoints(
    run: RunFolder,
    manager: PluginManager,
    rows: Sequence[EvaluationRow],
    progress: WatchProgress,
    *,
    suites: Sequence[str],
    excluded: Collection[Subject],
    first_paths: Collection[str],
) -> list[Checkpoint]:
    """Returns the run's checkpoints in order, including evaluated ones that have been deleted.

    Args:
      excluded: Checkpoints to leave out, such as those that a restart superseded.
      first_paths: Resolved paths of the unchanged first checkpoints since a trainer began again in its folder.
    """
    readers = readers_for(suites, manager, allow_pickle=False)
    takes_any = takes_any_checkpoint(*suites)
    make_source = manager.find("lobench_checkpoint_sources", "directory", kind="source").load()
    source = make_source(SourceContext(location=absolute_location(run.location), readers=readers))
    seen_files = [*source.poll(), *source.poll()]  # files without a completion marker count if unchanged
    checkpoints: dict[tuple[str, int, int], Checkpoint] = {}
    # Checkpoints that a trainer superseded when it started again in the same folder.
    deleted_hashes = {row.key.checkpoint_sha256 for row in rows if not row.present_sightings}
    for row in rows:
        for sighting in row.present_sightings:
            if (
                sighting.has_theta
                and sighting.uri
                and run.contains(sighting.uri)
                and sighting.sha256 not in deleted_hashes
                and sighting not in excluded
            ):
                checkpoint = replace(sighting.checkpoint, uri=run.path_of(sighting.uri))
                checkpoints[checkpoint.run, checkpoint.generation, checkpoint.outer_step] = checkpoint
    stored_files = {(_resolve_path(checkpoint.uri), checkpoint.sha256) for checkpoint in checkpoints.values()}
    stored_files |= {(_resolve_path(run.path_of(checkpoint.uri)), checkpoint.sha256) for checkpoint in excluded}
    has_steps = any(seen_file.index is not None for seen_file in seen_files)
    watched_paths = {_resolve_path(checkpoint.uri) for checkpoint in checkpoints.values()}
    new_checkpoints = list[Checkpoint]()
    runs_by_folder = {
        os.path.dirname(_resolve_path(checkpoint.uri)): checkpoint.run for checkpoint in checkpoints.values()
    }
    for file in seen_files:
        try:
            if takes_any:
                checkpoint = opaque_checkpoint(file.uri)
                hashes: tuple[str, ...] = (checkpoint.sha256,)
            else:
                checkpoint, leaves = load_checkpoint(file.uri, manager, allow_pickle=False)
                hashes = theta_digests(leaves)
        except CheckpointError as error:
            progress.log(f"left out: {error}")
            continue
        if any((_resolve_path(checkpoint.uri), sha256) in stored_files for sha256 in hashes):
            continue
        if file.index is None and checkpoint.outer_step == 0:  # a file without a step, such as `latest.npz`
            if has_steps:
                continue
            earlier_steps = [
                earlier.outer_step
                for earlier in checkpoints.values()
                if _resolve_path(earlier.uri) == _resolve_path(checkpoint.uri)
            ]
            checkpoint = replace(checkpoint, outer_step=max(earlier_steps, default=-1) + 1)
        # A watch of the folder above has given the run a name, which its own folder does not.
        checkpoint = replace(
            checkpoint, run=checkpoint.run or runs_by_folder.get(os.path.dirname(_resolve_path(checkpoint.uri)), "")
        )
        checkpoints[checkpoint.run, checkpoint.generation, checkpoint.outer_step] = checkpoint
        if file.index is not None:
            new_checkpoints.append(checkpoint)
    replaced_steps = {
        checkpoint.uri: checkpoint.outer_step
        for checkpoint in new_checkpoints
        if _resolve_path(checkpoint.uri) in watched_paths
    }
    leftovers = find_leftovers(
        seen_files, lambda file: file.uri in replaced_steps or _resolve_path(file.uri) in first_paths
    )
    unread_leftovers = [checkpoint for checkpoint in new_checkpoints if checkpoint.uri in leftovers]
    replaced_keys = [
        key
        for key, checkpoint in checkpoints.items()
        if checkpoint in unread_leftovers
        or (
            replaced_steps
            and checkpoint.outer_step >= min(replaced_steps.values())
            and checkpoint not in new_checkpoints
        )
    ]
    for key in replaced_keys:
        del checkpoints[key]
    if replaced_steps:  # the run was restarted in its folder, and no watch has seen that yet
        count_text = counted_with_verb(len(replaced_keys), "checkpoint", suffix=" of the former run, from there on,")
        progress.log(
            f"restarted: outer step {min(replaced_steps.values())} has other content than the watch saw, and "
            f"{count_text} left out"
        )
    elif replaced_keys:
        progress.log(
            f"left out: {counted(len(replaced_keys), 'checkpoint')} older than the first of a run that began again in "
            "this folder"
        )
    runs = sorted({checkpoint.run for checkpoint in checkpoints.values()})
    if len(runs) > 1:
        raise UsageError("several runs", where=run.location, got=", ".join(runs), expected="the folder of one of them")
    return sorted(checkpoints.values(), key=lambda checkpoint: (checkpoint.generation, checkpoint.outer_step))


def _without_repeats(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Removes checkpoints with the same content as the one before.

    Equal thetas have equal curves, which would count twice as evidence. A run that returns to an earlier theta has it
    twice.
    """
    groups = itertools.groupby(checkpoints, key=lambda checkpoint: checkpoint.sha256)
    return [next(group) for _, group in groups]


def _resolve_path(uri: str) -> str:
    return uri if "://" in uri else str(Path(uri).resolve())
