"""Trials of a search, wave after wave, as a pure state machine.

waves          what a strategy proposed, in order; a wave is asked for when the last one has ended
recorded       what a store remembers of them: a restart goes on there, and asks for nothing again
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lobench.core.case import SeedBlock
from lobench.core.errors import PluginError
from lobench.core.experiment import Experiment, session_blocks
from lobench.core.search.search import SearchStrategy, Trial, TrialState, best_trial
from lobench.core.search.space import Space, Value

__all__ = ["FIRST_REPORT_SEED", "TrialHistory", "below_median", "is_over", "report_bindings", "stopped_between"]

# Where the seeds begin that have chosen nothing: no session of an experiment is one of them, however many are added.
FIRST_REPORT_SEED = 1_000_000

_STOPPED = re.compile(r"fitness (\S+) after [^,]*, below (\S+), the median of ")  # as `below_median` writes it
_CLOSE = 1e-9  # another machine may round the last digits of a fitness otherwise


class TrialHistory:
    """One search from its first trial to its last.

    Args:
      seed, width, num_trials: As `SearchStrategy.next_wave` takes them.
      recorded: Trials that a store holds, by number, whole waves of them. Their states and fitnesses are those of the
        time when they were recorded: a wave counts as long as all that it was proposed from is found to be so today.
    """

    def __init__(
        self,
        strategy: SearchStrategy,
        space: Space,
        *,
        seed: int,
        width: int,
        num_trials: int | None,
        recorded: Sequence[Trial] = (),
    ) -> None:
        self._strategy, self._space = strategy, space
        self._seed, self._width, self._num_trials = seed, width, num_trials
        self.recorded = tuple(recorded)
        self._recorded = {trial.number: trial for trial in recorded}
        self._trials = [replace(trial, state="waiting", fitness=None, note="") for trial in recorded]
        self._is_over = False

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All that were proposed, by number."""
        return tuple(self._trials)

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended, and no more come."""
        return self._is_over

    @property
    def best(self) -> Trial | None:
        """The best of the trials that have ended; None before one has."""
        return best_trial([trial for trial in self._trials if is_over(trial.state)])

    def set(self, number: int, state: TrialState, fitness: float | None = None, note: str = "") -> Trial:
        """Says what became of a trial; a recorded fitness stays where today's differs in the last digits alone."""
        before = self._recorded.get(number)
        known = before.fitness if before is not None else None
        if fitness is not None and known is not None and math.isclose(known, fitness, rel_tol=_CLOSE, abs_tol=_CLOSE):
            fitness = known
        self._trials[number] = replace(self._trials[number], state=state, fitness=fitness, note=note)
        return self._trials[number]

    def advance(self) -> Sequence[Trial]:
        """Returns the next wave where the last one has ended; () where it has not, and where the search is over.

        Recorded waves that were proposed from what is not so any more are dropped before: `trials` is shorter then.

        Raises:
          PluginError: the strategy proposes what is not in the space.
        """
        self._drop_outdated()
        if self._is_over or not all(is_over(trial.state) for trial in self._trials):
            return ()
        history, number = tuple(self._trials), len(self._trials)
        left = math.inf if self._num_trials is None else self._num_trials - number
        proposed = [] if left <= 0 else list(self._proposed(history))
        if left < len(proposed):
            proposed = proposed[: int(left)]
        wave = history[-1].wave + 1 if history else 0
        new = [
            Trial(number=number + place, parameters=dict(values), state="waiting", fitness=None, wave=wave)
            for place, values in enumerate(proposed)
        ]
        self._trials += new
        self._is_over = not new
        return new

    def _proposed(self, history: Sequence[Trial]) -> Sequence[Mapping[str, Value]]:
        proposed = self._strategy.next_wave(
            self._space, history, seed=self._seed, width=self._width, num_trials=self._num_trials
        )
        for values in proposed:
            if not self._space.contains(values):
                raise PluginError(
                    "the search proposes what is not in the space",
                    where=type(self._strategy).__name__,
                    got=repr(dict(values)),
                    expected=", ".join(parameter.path for parameter in self._space.parameters),
                )
        return proposed

    def _drop_outdated(self) -> None:
        for trial in self._trials:
            before = self._recorded.get(trial.number)
            if before is None or not is_over(trial.state) or not is_over(before.state):
                continue
            if (before.state, before.fitness) != (trial.state, trial.fitness):
                self._trials = [one for one in self._trials if one.wave <= trial.wave]
                self._recorded = {}
                return


def is_over(state: TrialState) -> bool:
    """Says whether a trial has ended."""
    return state in ("done", "failed", "infeasible", "stopped")


def below_median(trials: Iterable[Trial], so_far: Mapping[int, float | None], *, after: str) -> dict[int, str]:
    """Returns the trials that go no further, and why: those below the median of all that came to this point.

    Who came there first has no part in it: what is compared is a whole wave, with all that came before it.

    Args:
      trials: Of one wave.
      so_far: By number, the fitness that trials had there; None: none. Those of later waves do not count.
      after: How the reason names the point, "25%".
    """
    wave = sorted(trials, key=lambda trial: trial.number)
    last = wave[-1].number
    known = [worth for number, worth in so_far.items() if number <= last and worth is not None]
    if not known:
        return {}
    median, found = statistics.median(known), {}
    for trial in wave:
        worth = so_far[trial.number]
        if worth is not None and worth < median:
            found[trial.number] = f"fitness {worth:.4g} after {after}, below {median:.4g}, the median of {len(known)}"
    return found


def stopped_between(note: str) -> tuple[float, float] | None:
    """Returns the fitness of a stopped trial at its stop and the median it fell behind, as `below_median` wrote them.

    None if the note says neither, as of a trial that was not stopped.
    """
    found = _STOPPED.match(note)
    return None if found is None else (float(found[1]), float(found[2]))


def report_bindings(
    experiment: Experiment, report_sessions: int | None, held: Iterable[SeedBlock] = ()
) -> tuple[str, ...]:
    """Returns what is bound over the cases for the seeds that say how good the best trial is.

    Args:
      report_sessions: How many; None: as many as the experiment has, or each case by itself.
      held: Seed blocks that are there already; see `session_blocks`.
    """
    width = report_sessions or experiment.num_sessions
    if width is None:
        return (f"Case.first_seed = {FIRST_REPORT_SEED}",)
    fresh = (block for block in held if block.start >= FIRST_REPORT_SEED)
    return session_blocks(range(FIRST_REPORT_SEED, FIRST_REPORT_SEED + width), fresh).bindings
