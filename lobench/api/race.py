"""`lobench.race`: rounds of paired seed blocks, from which methods shown to be worse drop out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from lobench.analysis.comparisons.race import RaceResult, race_result
from lobench.analysis.stats.racing import least_seeds
from lobench.analysis.store.entrants import Entrant, entrants_of
from lobench.api.compare import default_store_of, named_subjects
from lobench.api.evaluate import StoreEvaluator
from lobench.api.fresh_seeds import note_on_fixed_seeds
from lobench.api.settings import EvaluateIntoKeywords, EvaluationKeywords, as_texts
from lobench.core.errors import LobenchError, UsageError
from lobench.core.experiment import Race, SessionBlocks
from lobench.core.settings_field import check_keywords, keywords_in
from lobench.core.wording import counted
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite
from lobench.engine.store.ledger import Ledger
from lobench.report.live.notebook_progress import default_progress

__all__ = ["race", "run_race"]


def race(
    *methods: str | Path,
    suites: str | Path | Sequence[str | Path],
    seeds: int = 24,
    block: int = 2,
    margin: float = 0.0,
    alpha: float = 0.05,
    store: str | Path | None = None,
    baselines: str | Path | Sequence[str | Path] = (),
    progress: WatchProgress | None = None,
    **options: Unpack[EvaluationKeywords],
) -> RaceResult:
    """Finds the best of several methods, dropping methods as soon as they are shown to be worse.

    Each round trains one more seed block of each remaining method. Stored evaluations are not repeated: the same call
    continues with the same decisions, and a call with more seeds goes further.

    Example:
        found = lobench.race("adam()", "sgd()", "lion()", suites="quick", seeds=24)

    Args:
      methods: Checkpoints, optimizers (`adam(); adam.learning_rate = 0.01`), or names in `store`.
      suites: Suites on which methods are evaluated: folders, `.gin` files or names of shipped suites.
      seeds: Number of seeds per case for a method that remains to the end; a multiple of `block`.
      block: Number of seeds in a round.
      margin: The race ends once no remaining method can be better than the leader by more than this score. 0: it ends
        with the seeds.
      alpha: Probability, over the whole race, of dropping any method in favour of one that is not better.
      store: Store of the evaluations (default: .lobench/compare/SUITE).
      baselines: Suites, or baseline files, whose tuned optimizers define 1 on the score scale (default: those of the
        suites).
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Further fields of `WatchSettings`, such as `workers`, `executor` and `gin_params`.
    Raises:
      UsageError: No case has further seeds. Cases with items have none.
      LobenchError: Wrong usage, an evaluation cannot start or gave no result, or no case has a score scale.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> methods = "sgd(); sgd.learning_rate = 0.1", "sgd(); sgd.learning_rate = 0.01"
    >>> lobench.race(*methods, suites="quadratic.gin", seeds=4).leader
    0
    """
    check_keywords("race", options, EvaluationKeywords)
    names = as_texts(methods)
    suite_paths = tuple(str(find_suite(suite)) for suite in as_texts(suites))
    _check_arguments(names, suite_paths, seeds, block)
    folder = Path(store) if store else default_store_of(suite_paths)
    progress = progress or default_progress()
    subjects = named_subjects(names, folder, suite_paths, progress)
    wanted_subjects = [subject for _, subject in subjects]
    repeated_labels = {subject.label for subject in wanted_subjects if wanted_subjects.count(subject) > 1}
    if repeated_labels:
        raise UsageError(
            "a method is in the race twice", got=", ".join(sorted(repeated_labels)), expected="different methods"
        )
    baseline_paths = [Path(path) for path in as_texts(baselines)]
    rules = Race(block=block, rounds=seeds // block, alpha=alpha, margin=margin)
    labels = (
        names
        if len({subject.label for subject in wanted_subjects}) < len(wanted_subjects)
        else tuple(subject.label for subject in wanted_subjects)
    )

    evaluator = StoreEvaluator(
        store=folder,
        suites=suite_paths,
        progress=progress,
        options=keywords_in(EvaluateIntoKeywords, {**options, "name": "compare"}),
    )

    def evaluate(racing_indices: Sequence[int], num_rounds: int) -> bool:
        blocks = SessionBlocks(first_seed=None, widths=(block,) * num_rounds)
        evaluator.evaluate([subjects[index][0] for index in racing_indices], blocks.bindings)
        return True

    logged_notes = set[str]()

    def read_entrants() -> Sequence[Entrant]:
        with Ledger.open(folder, read_only=True) as ledger:
            entrants_so_far = entrants_of(ledger, zip(wanted_subjects, labels, strict=True))
        if (
            note := note_on_fixed_seeds(case for entrant in entrants_so_far for case in entrant.cases)
        ) and note not in logged_notes:
            logged_notes.add(note)
            progress.log(note)
        return [_without_fixed_cases(entrant) for entrant in entrants_so_far]

    return run_race(
        evaluate,
        read_entrants,
        rules,
        baseline_paths or [Path(suite) for suite in suite_paths],
        progress.log,
        num_methods=len(names),
    )


def _without_fixed_cases(entrant: Entrant) -> Entrant:
    """Removes cases with fixed seeds from an entrant, because they cannot have a second round.

    Raises:
      UsageError: No case is left.
    """
    cases = tuple(case for case in entrant.cases if not case.fixed_seeds)
    if entrant.cases and not cases:
        got = note_on_fixed_seeds(entrant.cases)
        raise UsageError(
            "a race needs a case with further seeds", got=got, next_step="without --race they are compared"
        )
    return replace(entrant, cases=cases, rows=tuple(row for row in entrant.rows if not row.case.fixed_seeds))


def run_race(
    evaluate: Callable[[Sequence[int], int], bool],
    read_entrants: Callable[[], Sequence[Entrant]],
    rules: Race,
    suite_paths: Sequence[Path],
    log: Callable[[str], None],
    *,
    num_methods: int,
) -> RaceResult:
    """Evaluates a race round by round, from the first one, until it ends.

    Args:
      evaluate: Evaluates methods, given by index, on all rounds up to one. Returns whether the race goes on.
      read_entrants: Returns all methods with their stored results.
      num_methods: Number of methods.
    Raises:
      LobenchError: An evaluation gave no result, or no case has a score scale.
    """
    # Nothing can be decided with fewer seeds, so the first rounds are evaluated together.
    num_rounds = min(math.ceil(least_seeds(num_methods, rules.alpha) / rules.block), rules.rounds)
    racing_indices: Sequence[int] = range(num_methods)
    while True:
        log(f"{counted(num_rounds * rules.block, 'seed')} a case of {counted(len(racing_indices), 'method')}")
        may_continue = evaluate(racing_indices, num_rounds)
        result = race_result(read_entrants(), rules, suite_paths, last_look=num_rounds)
        if result.ending is not None or not may_continue:
            return result
        if result.looks < num_rounds:
            raise LobenchError(
                "a round is incomplete, and a race decides on complete rounds only",
                got=_first_lines(result.missing_evaluations),
                next_step="see the lines above; the same command tries again",
            )
        racing_indices, num_rounds = result.racing_indices, num_rounds + 1


def _check_arguments(names: Sequence[str], suite_paths: Sequence[str], seeds: int, block: int) -> None:
    if len(names) < 2:
        raise UsageError("a race takes two methods or more", got=", ".join(map(repr, names)))
    if not suite_paths:
        raise UsageError("a race needs a suite", next_step="--suite quick, say")
    if block < 1 or seeds < block or seeds % block:
        raise UsageError("seeds come in whole blocks", got=f"{seeds} seeds in blocks of {block}")


def _first_lines(lines: Sequence[str], max_lines: int = 3) -> str:
    omission_note = f"; and {len(lines) - max_lines} more" if len(lines) > max_lines else ""
    return "; ".join(lines[:max_lines]) + omission_note
