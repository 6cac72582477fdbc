"""`lobench.keep`: a decision about a changed script, from as few paired seeds as possible."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from lobench.analysis.stats.alpha_spending import e_lond_level
from lobench.analysis.stats.intervals import Interval, stratified_t_mean
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.racing import PairSums
from lobench.api.evaluate import evaluate_into
from lobench.api.rounds import RoundProgress
from lobench.api.settings import WorkerKeywords, num_workers
from lobench.core.errors import UsageError
from lobench.core.metric import Direction, direction_of, metric_name, usual_direction
from lobench.core.result import Curves
from lobench.core.settings_field import check_keywords, keywords_in, settings_from
from lobench.core.subject import GivenCheckpoint
from lobench.engine.chief.interfaces import ERRORS, WatchProgress
from lobench.engine.store.database import StoreLock
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.places import DECISIONS_FILE
from lobench.engine.whole_file import write_whole
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.keep.decision import DecisionRules, KeepAnswer, decide, log_evidence
from lobench.tools.keep.keep_settings import LEAST_SCREEN, KeepKeywords, KeepRules, KeepSettings
from lobench.tools.keep.launch import IMPORTS, LINKS, PACE, REVISIONS_FOLDER_FILE
from lobench.tools.keep.pace import STOP_PREFIX, Pace
from lobench.tools.keep.revisions import (
    MANIFEST,
    KeptRevision,
    RevisionFiles,
    find_folder,
    ignored_note,
    import_folders,
    refuse_original_files,
)
from lobench.tools.keep.sequence import ComparedRevision, Decision, DecisionSequence, DecisionStore, Terms, Total

__all__ = ["KeepResult", "MeasuredTotal", "keep", "measure_total", "read_decisions"]

_CASE = "decision"
_SHELL_SYNTAX = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>"))
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*")
_GIN = """# Written by `lobench keep`.
{case}/Case.command = "python -m lobench.tools.keep.launch {{checkpoint}} {{seed}} {{out}}"
{case}/Case.curves = {curves!r}
{case}/Case.primary_metric = {metric!r}
{case}/Case.metric_directions = {directions!r}
{case}/Case.seed_block = 1
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepResult:
    """Result of one call of `keep`.

    Attributes:
      decision: The decision. Its answer is None if a run had an error.
      decisions: All decisions of the store, including this one.
      error: Description of the run that had an error; "" without one.
      is_new: Whether this call ran something or made the decision. False: the store already had the decision.
    """

    decision: Decision
    decisions: DecisionSequence
    error: str
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTotal:
    """Result of a measurement of the total.

    Attributes:
      decisions: The decisions of the store, with the measured total.
      error: Description of the run that had an error, so that the total is not measured; "" without one.
    """

    decisions: DecisionSequence
    error: str = ""


def keep(
    command: str,
    *,
    metric: str,
    store: str | Path = ".lobench/keep",
    progress: WatchProgress | None = None,
    **options: Unpack[KeepKeywords],
) -> KeepResult:
    """Decides whether a changed script is better than the one before.

    Both run on the same seeds, in alternating order, until the answer is known. Results are kept in the store: the
    same call continues after a kill, and repeats no run. All decisions of a store are one sequence, in which the
    expected share of changes without an improvement among those that are kept is at most `fdr`.

    Example:
        found = lobench.keep(
            "python train.py --seed {seed} --out {out}", against="git:main", metric="val_bpb", maximize=False
        )
        found.decision.answer

    Args:
      command: Command that trains with one seed. Placeholders: `{seed}`, and `{out}`, an empty folder.
      metric: Metric that decides, by its last value.
      store: Folder of the results and the decisions.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench keep`, such as `against="git:main"`, `maximize`, `margin`, `max_seeds` and
        `executor`.
    Raises:
      UsageError: Wrong usage: a placeholder is missing, no such revision, equal revisions, other terms than the store.
      StoreError: The store is busy or damaged.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> command = "python train.py {seed} {out}"
    >>> found = lobench.keep(command, against="old", candidate="new", metric="loss", store="kept")
    >>> found.decision.answer
    <KeepAnswer.DISCARD: 'discard'>
    """
    progress = progress or default_progress()
    check_keywords("keep", options, KeepKeywords)
    settings = settings_from(KeepSettings, options, command=command, metric=metric)
    terms = _terms_of_settings(settings)
    _check_settings(settings)
    incumbent = settings.against
    candidate = settings.candidate
    links = settings.links
    folder = Path(store).absolute()
    revisions_folder = folder / "keep"
    base_folder = Path.cwd() if candidate.startswith("git:") else Path(candidate)
    environment = _environment_values(settings.environment)
    for version in filter(None, (candidate, incumbent)):
        find_folder(version, base_folder=base_folder)  # raises before anything is written
        for text in filter(None, (command, settings.against_command)):
            refuse_original_files(text, version, base_folder=base_folder)
    with _DecisionLock(folder):
        decisions = DecisionStore(path=folder / DECISIONS_FILE)
        sequence = decisions.read(terms)
        _write_once(folder / ".gitignore", "*\n")
        files = RevisionFiles(home=revisions_folder, links=links)
        files.remove_partial()
        new_revision = files.keep(candidate, base_folder=base_folder, command=command, environment=environment)
        old_command = settings.against_command or command
        old_revision = files.keep(
            incumbent or candidate, base_folder=base_folder, command=old_command, environment=environment
        )
        if new_revision.name == old_revision.name:
            raise UsageError(
                "candidate and incumbent are the same",
                got=f"{new_revision.label} and {old_revision.label}",
                expected="a difference in a file that git does not ignore, in the command, or in --environment",
            )
        if links:
            targets = {name: str((base_folder / name).resolve()) for name in links}
            _write_once(revisions_folder / LINKS, json.dumps(targets, indent=1) + "\n")
        imports = import_folders(shlex.split(command), filter(None, (candidate, incumbent)), base_folder=base_folder)
        _write_once(revisions_folder / IMPORTS, json.dumps(imports) + "\n")
        gin = _gin_text(terms, settings)
        _write_once(revisions_folder / "suite" / "keep.gin", gin)
        session = _PairedRuns(
            folder=folder,
            decision_store=decisions,
            sequence=sequence,
            new_revision=new_revision,
            old_revision=old_revision,
            max_core_hours=settings.max_core_hours,
            progress=progress,
            workers={**keywords_in(WorkerKeywords, options), "workers": settings.workers},
        )
        return session.decide(margin=settings.margin, max_seeds=settings.max_seeds, description=settings.description)


def read_decisions(store: str | Path = ".lobench/keep") -> DecisionSequence:
    """Returns the decisions of a store, in their order.

    Raises:
      StoreError: The folder has no decisions, or they cannot be read.
    """
    return DecisionStore(path=Path(store) / DECISIONS_FILE).read()


def measure_total(
    store: str | Path = ".lobench/keep",
    *,
    num_seeds: int,
    progress: WatchProgress | None = None,
    **workers: Unpack[WorkerKeywords],
) -> MeasuredTotal:
    """Runs both ends of the chain of kept changes on fresh seeds, and returns the decisions with the measured total.

    No decision uses these seeds, so the result is an unbiased estimate of the total improvement. The differences of the
    decisions are biased, because a change is kept if its seeds favour it.

    Args:
      store: Folder of the results and the decisions.
      num_seeds: Number of seeds of the measurement, including seeds of earlier calls.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      workers: Keywords `workers`, the number of runs at the same time (default: 1), `executor` and so on.
    Raises:
      UsageError: No change was kept.
      StoreError: The store is busy or damaged.
    """
    folder = Path(store).absolute()
    revisions_folder = folder / "keep"
    decisions = DecisionStore(path=folder / DECISIONS_FILE)
    decisions.read()  # the lock creates the folder, so decisions are read first
    with _DecisionLock(folder):
        sequence = decisions.read()
        if not sequence.chain:
            raise UsageError("no change was kept, so there is no total to measure", where=str(store))
        first_revision = sequence.chain[0].incumbent
        last_revision = sequence.chain[-1].candidate
        new_revision, old_revision = (
            KeptRevision(name=revision.name, label=revision.label, path=revisions_folder / "revisions" / revision.name)
            for revision in (last_revision, first_revision)
        )
        session = _PairedRuns(
            folder=folder,
            decision_store=decisions,
            sequence=sequence,
            new_revision=new_revision,
            old_revision=old_revision,
            progress=progress or default_progress(),
            workers={"workers": 1, **workers},
        )
        return session.measure_total(
            sequence.total or Total(first=first_revision, last=last_revision, seeds=()), num_seeds
        )


class _DecisionLock:
    """Context manager that holds the lock for decisions in a store."""

    def __init__(self, store: Path) -> None:
        self._lock = StoreLock(
            store, "keep", file="keep.lock", busy_message="another `lobench keep` decides in this store"
        )

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@dataclass(slots=True, kw_only=True)
class _PairedRuns:
    """Runs pairs of seeds until a decision has its answer.

    Attributes:
      folder: Folder of the store.
      decision_store: File of the decisions.
      sequence: Content of `decision_store`.
      new_revision, old_revision: Candidate and incumbent.
      progress: Receives progress events.
      workers: Number of runs at the same time, and where they run.
      max_core_hours: Limit of the decision. None: no limit.
    """

    folder: Path
    decision_store: DecisionStore
    sequence: DecisionSequence
    new_revision: KeptRevision
    old_revision: KeptRevision
    progress: WatchProgress
    workers: WorkerKeywords
    max_core_hours: float | None = None

    @property
    def pairs_at_once(self) -> int:
        """Number of pairs that run at the same time."""
        return max(num_workers(self.workers["workers"]) // 2, 1)

    def decide(self, *, margin: float, max_seeds: int, description: str) -> KeepResult:
        candidate = ComparedRevision(name=self.new_revision.name, label=self.new_revision.label)
        incumbent = ComparedRevision(name=self.old_revision.name, label=self.old_revision.label)
        decision = self.sequence.find_decision(candidate, incumbent, margin)
        if decision is None:
            number = len(self.sequence.decisions) + 1
            decision = Decision(
                number=number,
                candidate=candidate,
                incumbent=incumbent,
                description=description or self.new_revision.label,
                margin=margin,
                max_seeds=max_seeds,
            )
        elif description and description != decision.description:
            decision = dataclasses.replace(decision, description=description)
            self._write_entry(decision)
        if decision.answer in (KeepAnswer.KEEP, KeepAnswer.DISCARD):
            return self._result(decision, is_new=False)
        else:
            decision = dataclasses.replace(decision, max_seeds=max(max_seeds, decision.max_seeds))
        first_decision = decision
        values = self._read_values()
        revisions: Sequence[KeptRevision]
        while True:
            decision = self._updated_decision(decision, values)
            self._write_entry(decision)
            if decision.answer is not None:
                return self._result(decision, is_new=decision != first_decision)
            missing_screen = values.missing_seeds([*range(self.sequence.terms.screen)])
            missing_seeds = missing_screen or values.missing_seeds(decision.seeds)
            if not missing_seeds:
                decision = self._with_more_seeds(decision)
                self._write_entry(decision)
                missing_seeds = values.missing_seeds(decision.seeds)
            if missing_screen and (incumbent_seeds := values.missing_incumbent(missing_screen)):
                # The incumbent runs first, because a candidate is stopped if it falls behind the incumbent's pace.
                seeds, revisions = (_consecutive_seeds(incumbent_seeds), (self.old_revision,))
            else:
                seeds = _consecutive_seeds(missing_seeds[: self.pairs_at_once])
                revisions = (self.old_revision, self.new_revision)
            values = self._run_seeds(
                seeds,
                revisions,
                pace=values.incumbent_pace() if missing_screen and self.new_revision in revisions else None,
            )
            if reason := values.stop_reason(seeds):
                decision = dataclasses.replace(decision, answer=KeepAnswer.DISCARD, reason=reason)
                self._write_entry(decision)
                return self._result(decision)
            if error := values.error_text(seeds, revisions):
                return self._result(decision, error=error)

    def measure_total(self, total: Total, num_seeds: int) -> MeasuredTotal:
        """Runs both revisions on fresh seeds, and returns the decisions with their difference."""
        first_seed = self.sequence.next_seed
        added_seeds = range(first_seed, first_seed + num_seeds - len(total.seeds))
        total = dataclasses.replace(total, seeds=(*total.seeds, *added_seeds))
        self._write_entry(total)  # reserves the seeds: no later decision uses them
        values = self._read_values()
        while missing_seeds := _consecutive_seeds(values.missing_seeds(total.seeds)[: self.pairs_at_once]):
            values = self._run_seeds(missing_seeds, (self.old_revision, self.new_revision))
            if error := values.error_text(missing_seeds, (self.old_revision, self.new_revision)):
                return MeasuredTotal(decisions=self.sequence, error=error)
        differences = values.differences(total.seeds)
        interval = stratified_t_mean([differences]) if differences else Interval()
        total = dataclasses.replace(
            total,
            pairs=len(differences),
            difference=_finite_or_none(interval.mean),
            lower=_finite_or_none(interval.lower),
            upper=_finite_or_none(interval.upper),
            diverged=values.num_diverged(total.seeds),
        )
        self._write_entry(total)
        return MeasuredTotal(decisions=self.sequence)

    def _read_values(self) -> _StoredRuns:
        return _StoredRuns.read(self.folder, self.new_revision, self.old_revision, self.sequence.terms)

    def _updated_decision(self, decision: Decision, values: _StoredRuns) -> Decision:
        """Returns the decision with numbers recomputed from the results so far, and with its answer if it is known."""
        screen_seeds = range(self.sequence.terms.screen)
        values.refuse_ignored_seed((*screen_seeds, *decision.seeds))
        screen = values.sums([seed for seed in screen_seeds if values.has_pair(seed)], decision.margin)
        # The order must not depend on the results: a pair after a run that had an error waits for that run.
        test_seeds = [*itertools.takewhile(values.has_pair, decision.seeds)]
        test = values.sums(test_seeds, decision.margin)
        test_number = decision.test or self.sequence.num_tests + 1
        level = decision.level or e_lond_level(self.sequence.terms.fdr, test_number, self.sequence.num_kept)
        rules = DecisionRules(level=level, max_seeds=decision.max_seeds, num_screened=len(screen_seeds))
        is_kept, is_discarded, gives_up = (bool(flags) for flags in decide(screen, test, rules))
        sums = screen + test
        pair_seeds = [*(seed for seed in screen_seeds if values.has_pair(seed)), *test_seeds]
        seconds = values.core_seconds(pair_seeds, test_seeds)
        is_budget_spent = self.max_core_hours is not None and seconds >= self.max_core_hours * 3600
        answer: KeepAnswer | None = None
        if is_kept or is_discarded or gives_up or is_budget_spent:
            answer = KeepAnswer.KEEP if is_kept else KeepAnswer.DISCARD if is_discarded else KeepAnswer.UNDECIDED
        reason = _answer_reason(answer, sums, test, rules, is_budget_spent) if answer is not None else ""
        if answer is KeepAnswer.DISCARD and values.are_equal(pair_seeds):
            reason = "its curves are those of the incumbent: the command does not use what was changed"
        differences = values.differences(test_seeds)
        return dataclasses.replace(
            decision,
            answer=answer,
            reason=reason,
            e_value=float(np.exp(log_evidence(test))),
            difference=math.fsum(differences) / len(differences) if differences else None,
            pairs=len(pair_seeds),
            fresh_pairs=len(test_seeds),
            diverged=values.num_diverged(pair_seeds),
            core_seconds=seconds,
        )

    def _with_more_seeds(self, decision: Decision) -> Decision:
        """Adds the numbers of another batch of fresh seeds to a decision. Nothing is run yet.

        The first batch also assigns the decision its number in the sequence of tests and its level.
        """
        first_seed = self.sequence.next_seed
        count = min(self.pairs_at_once, decision.max_seeds - len(decision.seeds))
        if not decision.test:
            number = self.sequence.num_tests + 1
            level = e_lond_level(self.sequence.terms.fdr, number, self.sequence.num_kept)
            decision = dataclasses.replace(decision, test=number, level=level)
        return dataclasses.replace(decision, seeds=(*decision.seeds, *range(first_seed, first_seed + count)))

    def _run_seeds(
        self, seeds: Sequence[int], revisions: Sequence[KeptRevision], pace: Pace | None = None
    ) -> _StoredRuns:
        """Runs revisions on consecutive seeds, in reverse order if the first seed is odd, and returns all values."""
        first_seed = seeds[0]
        count = len(seeds)
        revisions_folder = self.folder / "keep"
        _write_once(revisions_folder / "suite" / REVISIONS_FOLDER_FILE, f"{revisions_folder.resolve()}\n")
        path = revisions_folder / PACE
        path.unlink(missing_ok=True)
        if pace is not None:
            pace.write(path)
        evaluate_into(
            self.folder,
            [
                GivenCheckpoint(uri=str(revision.path), label=revision.label)
                for revision in revisions[:: 1 if first_seed % 2 == 0 else -1]
            ],
            str(revisions_folder / "suite"),
            name="keep",
            complete_when=MANIFEST,
            gin_params=(f"Case.first_seed = {first_seed}", f"Case.block_sizes = {(1,) * count}"),
            progress=RoundProgress(self.progress),
            **self.workers,
        )
        values = self._read_values()
        for seed in seeds:
            self.progress.log(f"seed {seed}: {values.description_of(seed)}")
        return values

    def _write_entry(self, entry: Decision | Total) -> None:
        if isinstance(entry, Total):
            self.sequence = self.sequence.with_total(entry)
        else:
            self.sequence = self.sequence.with_decision(entry)
        self.decision_store.write(self.sequence)

    def _result(self, decision: Decision, *, error: str = "", is_new: bool = True) -> KeepResult:
        if error and (note := ignored_note(self.new_revision.ignored)):
            error = f"{error}; {note}"
        return KeepResult(decision=decision, decisions=self.sequence, error=error, is_new=is_new)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRuns:
    """Stored runs of both sides by seed: the candidate's and the incumbent's."""

    revisions: tuple[KeptRevision, KeptRevision]
    runs_of_sides: tuple[Mapping[int, EvaluationRow], Mapping[int, EvaluationRow]]
    terms: Terms

    @classmethod
    def read(cls, store: Path, new: KeptRevision, old: KeptRevision, terms: Terms) -> _StoredRuns:
        runs: tuple[dict[int, EvaluationRow], dict[int, EvaluationRow]] = ({}, {})
        if (store / "ledger.sqlite").is_file():
            with Ledger.open(store, read_only=True) as ledger:
                for row in ledger.evaluations(all_codes=True):
                    names = {Path(sighting.uri).name for sighting in row.sightings}
                    for revision, run in zip((new, old), runs, strict=True):
                        if revision.name in names:
                            run[row.key.seed_block.start] = row
        return cls(revisions=(new, old), runs_of_sides=runs, terms=terms)

    def has_pair(self, seed: int) -> bool:
        return all(seed in runs and runs[seed].has_curves for runs in self.runs_of_sides)

    def description_of(self, seed: int) -> str:
        """Returns the last value of each side that ran: `val_loss: candidate 1.972, incumbent 3.542`."""
        lines = []
        for name, runs in zip(("candidate", "incumbent"), self.runs_of_sides, strict=True):
            score = _final_score(runs[seed], self.terms) if seed in runs and runs[seed].has_curves else math.nan
            last_value = score if self.terms.maximize else -score
            value = "no result" if math.isnan(score) else "diverged" if math.isinf(score) else f"{last_value:.4g}"
            lines.append(f"{name} {value}" if seed in runs else "")
        return f"{self.terms.metric}: {', '.join(filter(None, lines))}"

    def missing_seeds(self, seeds: Iterable[int]) -> list[int]:
        return [seed for seed in seeds if not self.has_pair(seed)]

    def missing_incumbent(self, seeds: Iterable[int]) -> list[int]:
        """Returns the seeds on which the incumbent has no result."""
        _, runs = self.runs_of_sides
        return [seed for seed in seeds if seed not in runs or not runs[seed].has_curves]

    def incumbent_pace(self) -> Pace:
        """Returns the pace that a candidate must keep: the incumbent's runs on the shared seeds."""
        _, runs = self.runs_of_sides
        paces = []
        for seed in range(self.terms.screen):
            row = runs[seed]
            curves = _curves_of_run(row)
            if math.isfinite(_final_score(row, self.terms)):
                paces.append(([*curves.eval_steps], np.array(curves.metrics[row.case.primary_metric])[0].tolist()))
        return Pace(
            candidate=(self.revisions[0].path / MANIFEST).read_text(encoding="utf-8"),
            metric=self.terms.metric,
            maximize=self.terms.maximize,
            curves=self.terms.curves,
            runs=tuple(paces),
        )

    def stop_reason(self, seeds: Iterable[int]) -> str:
        """Returns the first seed on which the candidate was stopped early, with the reason; "" if none was."""
        new, _ = self.runs_of_sides
        messages = [(seed, new[seed].message) for seed in seeds if seed in new and not new[seed].has_curves]
        return next(
            (
                f"{STOP_PREFIX}seed {seed}: {message.partition(STOP_PREFIX)[2]}"
                for seed, message in messages
                if STOP_PREFIX in message
            ),
            "",
        )

    def error_text(self, seeds: Iterable[int], revisions: Sequence[KeptRevision]) -> str:
        """Returns a description of the first run of the sides without a result; "" if all have one."""
        for seed in seeds:
            for revision, runs in zip(self.revisions, self.runs_of_sides, strict=True):
                if revision not in revisions:
                    continue
                row = runs.get(seed)
                if row is None:
                    return f"{revision.label}, seed {seed}: no result"
                if row.outcome in ERRORS or not row.has_curves:
                    return f"{revision.label}, seed {seed}: {row.message or row.outcome}"
        return ""

    def sums(self, seeds: Sequence[int], margin: float) -> PairSums:
        """Returns the `PairSums` of the candidate's scores less the margin and the incumbent's scores."""
        candidate_scores, incumbent_scores = (
            [_final_score(runs[seed], self.terms) for seed in seeds] for runs in self.runs_of_sides
        )
        if margin == 0 and _are_binary([*candidate_scores, *incumbent_scores], self.terms):
            # A failure counts as a divergence, and all successes are equal.
            success = float(self.terms.maximize)
            candidate_scores, incumbent_scores = (
                [0.0 if score == success else -math.inf for score in scores]
                for scores in (candidate_scores, incumbent_scores)
            )
        step = Samples.of(candidate_scores, incumbent_scores).step
        return PairSums.of(np.array([candidate_scores]) - margin, np.array([incumbent_scores]), np.array([step]))

    def differences(self, seeds: Sequence[int]) -> list[float]:
        """Returns the improvement for each seed on which both sides converged."""
        new, old = self.runs_of_sides
        improvements = [_final_score(new[seed], self.terms) - _final_score(old[seed], self.terms) for seed in seeds]
        return [improvement for improvement in improvements if math.isfinite(improvement)]

    def are_equal(self, seeds: Iterable[int]) -> bool:
        """Returns whether both sides converged with bit-identical curves on each seed."""
        new, old = self.runs_of_sides
        return all(
            math.isfinite(_final_score(new[seed], self.terms))
            and bytes(_curves_of_run(new[seed]).metrics[new[seed].case.primary_metric])
            == bytes(_curves_of_run(old[seed]).metrics[old[seed].case.primary_metric])
            for seed in seeds
        )

    def num_diverged(self, seeds: Sequence[int]) -> tuple[int, int]:
        new, old = (
            sum(_final_score(runs[seed], self.terms) == -math.inf for seed in seeds) for runs in self.runs_of_sides
        )
        return new, old

    def core_seconds(self, seeds: Sequence[int], test_seeds: Sequence[int]) -> float:
        """Returns the core-seconds of the candidate on all seeds plus those of the incumbent on the test's seeds."""
        new, old = self.runs_of_sides
        rows = [*(new[seed] for seed in seeds), *(old[seed] for seed in test_seeds)]
        return math.fsum(_curves_of_run(row).wall_seconds * row.case.num_cpus for row in rows)

    def refuse_ignored_seed(self, seeds: Sequence[int]) -> None:
        """Raises UsageError if a side has the same curve for all seeds.

        Values of 0 and 1 may repeat by chance.
        """
        for revision, runs in zip(self.revisions, self.runs_of_sides, strict=True):
            rows = [runs[seed] for seed in seeds if seed in runs and runs[seed].has_curves]
            scores = [_final_score(row, self.terms) for row in rows]
            if len(rows) < LEAST_SCREEN or _are_binary(scores, self.terms) or not all(map(math.isfinite, scores)):
                continue
            distinct_curves = {bytes(_curves_of_run(row).metrics[row.case.primary_metric]) for row in rows}
            if len(distinct_curves) == 1:
                value = scores[0] if self.terms.maximize else -scores[0]
                raise UsageError(
                    "the command ignores {seed}: all its seeds have the same results",
                    where=revision.label,
                    got=f"{self.terms.metric} {value:g} on {len(rows)} seeds",
                    expected="a script whose draws depend on the seed, or a metric with more digits",
                )


def _curves_of_run(row: EvaluationRow) -> Curves:
    curves = row.curves
    assert curves is not None
    return curves


def _final_score(row: EvaluationRow, terms: Terms) -> float:
    """Returns the last value of the metric, higher is better; -infinity if the run diverged."""
    curves = _curves_of_run(row)
    (value,) = curves.final(row.case.primary_metric)
    (has_exploded,) = curves.exploded(row.case)
    if has_exploded or not math.isfinite(value):
        return -math.inf
    return value if terms.maximize else -value


def _are_binary(scores: Sequence[float], terms: Terms) -> bool:
    """Returns whether all values of the metric are 0 or 1."""
    values = (0.0, 1.0) if terms.maximize else (0.0, -1.0)
    return len(scores) > 0 and all(score in values for score in scores)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _consecutive_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """Returns the longest prefix of consecutive numbers."""
    return [seed for index, seed in enumerate(seeds) if seed == seeds[0] + index]


def _answer_reason(
    answer: KeepAnswer, all_pair_sums: PairSums, fresh_pair_sums: PairSums, rules: DecisionRules, is_budget_spent: bool
) -> str:
    if answer is KeepAnswer.KEEP:
        return f"its e-value reaches {1 / rules.level:.3g}, which shows an improvement"
    if answer is KeepAnswer.DISCARD:
        if float(all_pair_sums.lost_by_a) > float(all_pair_sums.lost_by_b):
            return "it diverges or fails more often"
        if not float(fresh_pair_sums.num_seeds):
            return "it does not look better on the shared seeds"
        return f"less than {rules.futility:.0%} of chance is left to show an improvement"
    if is_budget_spent:
        return "--max-core-hours is used up"
    if float(fresh_pair_sums.num_seeds) >= rules.max_seeds:
        return "--max-seeds is used up"
    return "it looks better, but --max-seeds would not suffice to show it; more of them continue"


def _terms_of_settings(rules: KeepRules) -> Terms:
    metric = rules.metric
    maximize = rules.maximize
    if not 0 < rules.fdr < 1:
        raise UsageError("--fdr", got=repr(rules.fdr), expected="a number between 0 and 1")
    if rules.screen < LEAST_SCREEN:
        raise UsageError("--screen", got=str(rules.screen), expected=f"at least {LEAST_SCREEN} seeds")
    if maximize is None:
        direction = direction_of(metric_name(metric), {}) or usual_direction(metric_name(metric))
        if direction is None:
            raise UsageError(
                "the direction of the metric is not known", got=metric, next_step="add --minimize or --maximize"
            )
        maximize = direction is Direction.MAX
    return Terms(fdr=rules.fdr, metric=metric, maximize=maximize, curves=rules.curves, screen=rules.screen)


def _check_settings(settings: KeepSettings) -> None:
    command = settings.command
    curves = settings.curves
    margin = settings.margin
    for name, text in (("--command", command), ("--against-command", settings.against_command or command)):
        try:
            command_words = shlex.split(text)
        except ValueError as error:
            raise UsageError(name, got=f"{text!r}: {error}") from error
        if not command_words:
            raise UsageError(name, got=repr(text), expected="'python train.py --seed {seed} --out {out}'")
        if syntax := [
            command_word for command_word in command_words if command_word in _SHELL_SYNTAX
        ] or _VARIABLE.findall(command_words[0]):
            quoted = shlex.quote(text)
            raise UsageError(f"{name} is not run by a shell", got=syntax[0], next_step=f"bash -c {quoted}")
        for placeholder in ("{seed}", "{out}") if "{out}" in curves else ("{seed}",):
            if placeholder not in text:
                raise UsageError(f"{name} has no {placeholder}", got=text, expected=f"a place for {placeholder}")
    if "{out}" not in curves:
        raise UsageError("--curves", got=curves, expected="a file below {out}, such as '{out}/metrics.jsonl'")
    if not settings.against and not settings.against_command:
        raise UsageError("no incumbent", next_step="--against git:REV, --against FOLDER, or --against-command COMMAND")
    if settings.max_seeds < LEAST_SCREEN:
        raise UsageError("--max-seeds", got=str(settings.max_seeds), expected=f"at least {LEAST_SCREEN}")
    if not (math.isfinite(margin) and margin >= 0):
        raise UsageError("--margin", got=repr(margin), expected="a number of at least 0, in units of the metric")


def _environment_values(names: Sequence[str]) -> dict[str, str]:
    if missing_names := [name for name in names if name not in os.environ]:
        raise UsageError("--environment: no such variable", got=", ".join(missing_names))
    return {name: os.environ[name] for name in names}


def _gin_text(terms: Terms, settings: KeepSettings) -> str:
    direction = str(Direction.MAX if terms.maximize else Direction.MIN)
    text = _GIN.format(case=_CASE, curves=terms.curves, metric=terms.metric, directions={terms.metric: direction})
    limits = {name: getattr(settings, name) for name in ("timeout_seconds", "num_cpus", "num_gpus")}
    return text + "".join(f"{_CASE}/Case.{name} = {value!r}\n" for name, value in limits.items())


def _write_once(path: Path, text: str) -> None:
    """Writes a file, unless it has this content already."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_whole(path, text)
