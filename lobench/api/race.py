"""A race: rounds of paired seed blocks, each of the methods that are still in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lobench.analysis.comparisons.race import RaceResult, decided
from lobench.analysis.stats.racing import least_seeds
from lobench.analysis.store.entrants import Entrant, entrants_of
from lobench.api.compare import default_store_of, named_subjects
from lobench.api.evaluate import evaluate_into
from lobench.api.settings import texts
from lobench.core.errors import LobenchError, UsageError
from lobench.core.experiment import Race, SessionBlocks
from lobench.core.wording import counted
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite
from lobench.engine.store.ledger import Ledger
from lobench.report.live.notebook_progress import default_progress

__all__ = ["play", "race"]


def race(
    *methods: str | Path,
    suites: str | Path | Sequence[str | Path],
    seeds: int = 24,
    block: int = 2,
    margin: float = 0.0,
    alpha: float = 0.05,
    store: str | Path | None = None,
    baselines: str | Path | Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    progress: WatchProgress | None = None,
    **options: Any,
) -> RaceResult:
    """Finds the best of several methods, and trains those no longer that are shown to be worse.

    A round trains one more seed block of each method that is in. What the store holds is not repeated: the same call
    goes on from there, with the same decisions; with more seeds it goes further.

    Args:
      methods: Checkpoints, optimizers (`adam(); adam.learning_rate = 0.01`), or names in `store`.
      seeds: Of each case, for a method that stays in to the end; a multiple of `block`.
      block: Seeds of a round.
      margin: It ends where no method that is left can be better than the leader by more than this; 0: it does not.
      alpha: Chance that any method is thrown out for one that is not better, over the whole race.
      store: Where evaluations go (default: .lobench/compare/SUITE).
      baselines: Suites, or files of baselines, that say what 1 on the scale is (default: the suites').
      gin_params: Bound over everything else.
      progress: What is told while it runs; None: in a notebook a display, elsewhere nothing is shown.
      options: Of `WatchSettings`: workers, executor, gin_files.
    Raises:
      LobenchError: usage; an evaluation that cannot start, or gave no result; no case has a scale.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    names, places = texts(methods), tuple(str(find_suite(suite)) for suite in texts(suites))
    _check(names, places, seeds, block)
    folder = Path(store) if store else default_store_of(places)
    progress = progress or default_progress()
    subjects = named_subjects(names, folder, places, progress)
    wanted = [who for _, who in subjects]
    twice = {who.label for who in wanted if wanted.count(who) > 1}
    if twice:
        raise UsageError("a method is in the race twice", got=", ".join(sorted(twice)), expected="different methods")
    given = [Path(path) for path in texts(baselines)]
    rules = Race(block=block, rounds=seeds // block, alpha=alpha, margin=margin)
    labels = names if len({who.label for who in wanted}) < len(wanted) else tuple(who.label for who in wanted)

    def evaluate(who: Sequence[int], looks: int) -> bool:
        evaluate_into(
            folder,
            [subjects[place][0] for place in who],
            places,
            name="compare",
            progress=progress,
            gin_params=(*gin_params, *SessionBlocks(first_seed=None, widths=(block,) * looks).bindings),
            **options,
        )
        return True

    def entrants() -> Sequence[Entrant]:
        with Ledger.open(folder, read_only=True) as ledger:
            return entrants_of(ledger, zip(wanted, labels, strict=True))

    return play(evaluate, entrants, rules, given or [Path(suite) for suite in places], progress.log, count=len(names))


def play(
    evaluate: Callable[[Sequence[int], int], bool],
    entrants: Callable[[], Sequence[Entrant]],
    rules: Race,
    places: Sequence[Path],
    log: Callable[[str], None],
    *,
    count: int,
) -> RaceResult:
    """Has a race's rounds evaluated, one after another from its first one, until it ends.

    Args:
      evaluate: Has methods, by their places, evaluated on all rounds up to one; returns whether the race goes on.
      entrants: Returns the methods with what is there of them.
      count: How many methods there are.
    Raises:
      LobenchError: an evaluation gave no result; no case has a scale.
    """
    # Before so many seeds nothing can be decided: their rounds are one.
    look = min(math.ceil(least_seeds(count, rules.alpha) / rules.block), rules.rounds)
    racing: Sequence[int] = range(count)
    while True:
        log(f"{counted(look * rules.block, 'seed')} a case of {counted(len(racing), 'method')}")
        goes_on = evaluate(racing, look)
        found = decided(entrants(), rules, places, until=look)
        if found.ending is not None or not goes_on:
            return found
        if found.looks < look:
            raise LobenchError(
                "a round is not whole, and nothing can be decided by a part of it",
                got=_few(found.missing),
                next_step="see the lines above; the same command tries again",
            )
        racing, look = found.racing, look + 1


def _check(names: Sequence[str], places: Sequence[str], seeds: int, block: int) -> None:
    if len(names) < 2:
        raise UsageError("a race takes two methods or more", got=", ".join(map(repr, names)))
    if not places:
        raise UsageError("a race needs a suite", next_step="--suite quick, say")
    if block < 1 or seeds < block or seeds % block:
        raise UsageError("seeds come in whole blocks", got=f"{seeds} seeds in blocks of {block}")


def _few(lines: Sequence[str], most: int = 3) -> str:
    more = f"; and {len(lines) - most} more" if len(lines) > most else ""
    return "; ".join(lines[:most]) + more
