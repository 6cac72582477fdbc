"""Probes of a bisection: stored evaluations of a run's checkpoints, and the result."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypedDict

from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import DIVERGED_SCORE, SCORE_VERSION
from lobench.analysis.stats.change_point import ChangePointPosterior, Probe, credible_window, pair_around_break
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import Cell
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError
from lobench.core.json_numbers import record_from
from lobench.core.metric import UnknownDirection, stored_spelling, unknown_metric
from lobench.core.subject import Subject, is_of_any_run
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.ledger import EvaluationRow

__all__ = ["Bisection", "BisectionRecord", "ProbedCase", "Status", "read_probed_case"]

Status: TypeAlias = Literal["found", "no_fall", "undecided"]


class ProbedCheckpoint(TypedDict):
    outer_step: int
    generation: int
    uri: str
    sha256: str


class CredibleInterval(TypedDict):
    probability: float
    first_outer_step: int
    last_outer_step: int


class FallSize(TypedDict):
    score: float
    standard_deviation: float


class LostSeeds(TypedDict):
    before: int
    num_before: int
    after: int
    num_after: int


class PosteriorPoint(TypedDict):
    outer_step: int
    uri: str
    probability: float


class BisectionRecord(TypedDict):
    """`lobench bisect`: the outer step at which a case broke.

    Its fields are the keys of the JSON document.
    """

    case: str
    status: Status
    metric: str
    score_version: int
    probability_of_a_fall: float
    broken: ProbedCheckpoint
    last_good: ProbedCheckpoint
    probability: float
    probability_within_one: float
    confidence: Annotated[float, "Requested value of `probability`."]
    interval: CredibleInterval
    fall: FallSize
    diverged: Annotated[LostSeeds, "Diverged seeds before `broken`, and from it on."]
    noise: float
    num_checkpoints: int
    num_not_trained_enough: int
    num_evaluations: int
    num_new_evaluations: int
    seeds_per_evaluation: int
    posterior: list[PosteriorPoint]
    scale: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedCase:
    """Stored results of one case.

    Attributes:
      case: The case. None if no checkpoint was evaluated on it yet.
      probes: Scores of checkpoints by seed block.
      blocks: Seed blocks in order of their seeds. `Probe.block` is an index into it.
      num_evaluations: Number of evaluations behind the probes. Checkpoints with the same theta share evaluations.
      evaluated_blocks: Evaluated blocks by position of the checkpoint, including blocks without a score.
      failures: Messages of failed evaluations.
      num_diverged: Number of probes of which every seed diverged.
      scale: Description of the score scale: what 0 and 1 stand for.
    """

    case: CaseInfo | None
    probes: tuple[Probe, ...] = ()
    blocks: tuple[SeedBlock, ...] = ()
    num_evaluations: int = 0
    evaluated_blocks: Mapping[int, frozenset[SeedBlock]] = dataclasses.field(default_factory=dict)
    failures: tuple[str, ...] = ()
    num_diverged: int = 0
    scale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """Result of `bisect`.

    Attributes:
      status: "found", "no_fall" or "undecided".
      metric: The metric.
      checkpoints: Checkpoints of the run in order.
      posterior: Posterior over the checkpoint at which the case broke.
      level: Probability at which a fall counts as found, and at which its checkpoint counts as located.
      confidence: Requested probability of the named checkpoint.
      probed_case: Stored results of the case at the end, on which the posterior is based.
      num_new: Number of evaluations by this call. The others were in the stores.
      command: Command line that repeats the call.
      is_exhausted: Whether further seeds of the same checkpoints would not change the answer.
    """

    status: Status
    metric: str
    checkpoints: tuple[Checkpoint, ...]
    posterior: ChangePointPosterior
    level: float
    confidence: float
    probed_case: ProbedCase
    num_new: int
    command: str
    is_exhausted: bool

    @property
    def case(self) -> CaseInfo:
        assert self.probed_case.case is not None
        return self.probed_case.case

    @property
    def name(self) -> str:
        """Name of the case, SUITE/CASE."""
        return f"{self.case.suite}/{self.case.name}"

    @property
    def num_seeds(self) -> int:
        """Number of seeds or items of an evaluation."""
        if self.case.has_items:
            return max((len(probe.scores) for probe in self.probed_case.probes), default=0)
        return self.case.seed_block or self.case.num_seeds

    @property
    def evaluated_positions(self) -> frozenset[int]:
        """Positions of the evaluated checkpoints."""
        return frozenset(probe.checkpoint_index for probe in self.probed_case.probes)

    @property
    def named_positions(self) -> tuple[int, int]:
        """Positions of the last good and the first broken evaluated checkpoint; see `pair_around_break`."""
        if self.status == "found":
            return self.posterior.break_index - 1, self.posterior.break_index
        return pair_around_break(self.posterior, self.evaluated_positions)

    @property
    def broken(self) -> Checkpoint:
        """First broken checkpoint. If undecided, the first evaluated one from the most probable break on."""
        return self.checkpoints[self.named_positions[1]]

    @property
    def last_good(self) -> Checkpoint:
        """Last good checkpoint. If undecided, the last evaluated one before the most probable break."""
        return self.checkpoints[self.named_positions[0]]

    @property
    def interval(self) -> tuple[Checkpoint, Checkpoint]:
        first_index, last_index = credible_window(self.posterior, self.level)
        return self.checkpoints[first_index], self.checkpoints[last_index]

    def to_record(self) -> BisectionRecord:
        """Returns the record for `--format json`."""
        belief, (first_checkpoint, last_checkpoint) = self.posterior, self.interval
        lost_before, num_before, lost_after, num_after = belief.lost_counts
        posterior: list[PosteriorPoint] = [
            {"outer_step": checkpoint.outer_step, "uri": checkpoint.uri, "probability": probability}
            for checkpoint, probability in zip(self.checkpoints, belief.probability_by_index, strict=True)
            if probability >= 1e-4
        ]
        return record_from(
            BisectionRecord,
            self,
            belief,
            self.probed_case,
            case=self.name,
            score_version=SCORE_VERSION,
            probability_of_a_fall=belief.fall_probability,
            broken=record_from(ProbedCheckpoint, self.broken),
            last_good=record_from(ProbedCheckpoint, self.last_good),
            probability=belief.probability_by_index[belief.break_index],
            probability_within_one=belief.probability_within(1),
            interval=CredibleInterval(
                probability=self.level,
                first_outer_step=first_checkpoint.outer_step,
                last_outer_step=last_checkpoint.outer_step,
            ),
            fall=FallSize(score=belief.fall_size, standard_deviation=belief.fall_size_error),
            diverged=LostSeeds(before=lost_before, num_before=num_before, after=lost_after, num_after=num_after),
            num_checkpoints=len(self.checkpoints),
            num_not_trained_enough=belief.first_good_index,
            num_new_evaluations=self.num_new,
            seeds_per_evaluation=self.num_seeds,
            posterior=posterior,
        )


def _split_scores(cell: Cell, scores: Mapping[int, float]) -> dict[int, float]:
    """Replaces the scores of seeds that diverged, exploded or have the lowest clipped score by minus infinity.

    Scores of items are not clipped, so low scores of items are kept.
    """
    lost_seeds = cell.unconverged_seeds
    lowest_score = -math.inf if cell.case.has_items else DIVERGED_SCORE
    return {seed: -math.inf if seed in lost_seeds or score <= lowest_score else score for seed, score in scores.items()}


def read_probed_case(
    store: Path,
    rows: Sequence[EvaluationRow],
    names: frozenset[str],
    checkpoints: Sequence[Checkpoint],
    suites: Sequence[Path],
    metric: str,
    *,
    current: CurrentCases,
    is_of_run: Callable[[Subject], bool] = is_of_any_run,
) -> ProbedCase:
    """Returns the probes of a case from evaluations with the current bindings of its optimizer.

    Args:
      store: The store, for messages.
      rows: Evaluations of the run's store, then of the stores below it, with increasing ids.
      names: Names of the case; one of `CaseInfo.names` matches.
      checkpoints: Checkpoints of the run in order.
      suites: Folders in which tuned baselines are looked up.
      metric: The metric. "": the case's primary one.
      current: The current cases.
      is_of_run: Returns whether a sighting is of the run. Another run of the store may have the same thetas.
    Raises:
      UnknownDirection: The metric's direction is not declared.
      LobenchError: Several cases have the name, no subject has the metric, or no checkpoint is better than untrained.
    """
    snapshot = Snapshot.of(store, rows, current=current)
    cases = [case for case in snapshot.cases if names & {*case.names}]
    if len(cases) > 1:
        raise LobenchError(
            f"several cases are called {min(names, key=len)}",
            where=str(store),
            got=", ".join(sorted({f"{case.suite}/{case.name} ({case.node_id})" for case in cases})),
            next_step="give its suite's name too, or its file's: SUITE/FILE.CASE",
        )
    if not cases:
        return ProbedCase(case=None)
    rows_of_case = [
        row
        for row in rows
        if row.case.identity == cases[0].identity
        and any(current.is_current(row, sighting) for sighting in row.sightings if is_of_run(sighting))
    ]
    if not rows_of_case:
        return ProbedCase(case=None)
    # Rows that a bisection evaluated have only its own blocks in their case.
    case = min(
        (row.case for row in rows_of_case), key=lambda case_info: (bool(case_info.block_sizes), case_info.first_seed)
    )
    optimizer_hash = max(rows_of_case, key=current.plan_order).key.optimizer_hash
    rows_of_case = [row for row in rows_of_case if row.key.optimizer_hash == optimizer_hash]
    indices_of_hash: dict[str, list[int]] = {}
    for position, checkpoint in enumerate(checkpoints):
        indices_of_hash.setdefault(checkpoint.sha256, []).append(position)
    scales = Scales.of(snapshot.subjects, suites)
    cells: dict[str, Cell] = {}
    for subject in snapshot.subjects:
        if not subject.is_optimizer and optimizer_hash in subject.optimizer_hashes and case.identity in subject.cells:
            cells[subject.checkpoint.sha256] = subject.cells[case.identity]
    stored_metrics = {metric_name for cell in cells.values() for metric_name in cell.final_values}
    probed_metric = stored_spelling(metric, sorted(stored_metrics)) if metric else case.primary_metric
    if metric and stored_metrics and probed_metric not in stored_metrics:
        raise unknown_metric(metric, stored_metrics, where=str(store))
    if scales.direction(case, probed_metric) is None and any(cell.final_values for cell in cells.values()):
        raise UnknownDirection(probed_metric, where=str(store))
    blocks_by_position: dict[int, set[SeedBlock]] = {}
    probes = {}
    blocks = sorted({row.key.seed_block for row in rows_of_case})
    scores = {sha256: _split_scores(cell, scales.scores(cell, probed_metric)) for sha256, cell in cells.items()}
    # Items that some checkpoint lacks are left out of the comparison.
    item_sets = [set(values_by_item) for values_by_item in scores.values() if values_by_item] if case.has_items else []
    items = sorted(set.intersection(*item_sets)) if item_sets else []
    for row in rows_of_case:
        block = row.key.seed_block
        values = tuple(scores.get(row.key.checkpoint_sha256, {}).get(seed) for seed in items or block.seeds)
        for position in indices_of_hash.get(row.key.checkpoint_sha256, ()):
            blocks_by_position.setdefault(position, set()).add(block)
            if None not in values:
                probes[position, block] = Probe(checkpoint_index=position, block=blocks.index(block), scores=values)  # type: ignore[arg-type]
    return ProbedCase(
        case=case,
        probes=tuple(probes.values()),
        blocks=tuple(blocks),
        num_evaluations=len({(checkpoints[probe.checkpoint_index].sha256, probe.block) for probe in probes.values()}),
        evaluated_blocks={
            index: frozenset(blocks_of_checkpoint) for index, blocks_of_checkpoint in blocks_by_position.items()
        },
        failures=tuple(dict.fromkeys(text for cell in cells.values() for _, text in cell.failures if text)),
        num_diverged=sum(
            all(
                seed in cells[checkpoints[probe.checkpoint_index].sha256].diverged_seeds
                for seed in blocks[probe.block].seeds
            )
            for probe in probes.values()
        ),
        scale=scales.short_description(),
    )
