"""Trials of a search, as a state machine without side effects.

A strategy proposes trials in waves. The next wave is requested when all trials of the last one have ended. A restart
continues from the trials that the store recorded, without new proposals for them.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import PluginError
from lobench.core.experiment import Experiment, SessionBlocks, session_blocks
from lobench.core.search.search import SearchStrategy, Trial, TrialState, best_trial
from lobench.core.search.space import Space, Value

__all__ = [
    "FIRST_REPORT_SEED",
    "TrialHistory",
    "fresh_seed_bindings",
    "fresh_seed_cases",
    "is_over",
    "stop_fitness_and_median",
    "trials_below_median",
]

# First of the fresh seeds, on which no choice is made. Sessions of experiments never reach it.
FIRST_REPORT_SEED = 1_000_000

_STOP_NOTE = re.compile(r"fitness (\S+) after [^,]*, below (\S+), the median of ")  # written by `trials_below_median`
_FITNESS_TOLERANCE = 1e-9  # machines may differ in the last digits of a fitness


class TrialHistory:
    """State of one search, from its first trial to its last.

    Args:
      strategy: Strategy that proposes trials.
      space: Space of the parameters.
      seed, width, num_trials: Arguments of `SearchStrategy.next_wave`.
      recorded: Trials of whole waves in a store, ordered by number, with the states and fitnesses of the time when they
        were recorded. A wave is used as long as the results that it was proposed from are still the same.
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
        self._seed = seed
        self._width = width
        self._num_trials = num_trials
        self.recorded = tuple(recorded)
        self._recorded_trials = {trial.number: trial for trial in recorded}
        self._trials = [replace(trial, state="waiting", fitness=None, note="") for trial in recorded]
        self._is_over = False

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All proposed trials, ordered by number."""
        return tuple(self._trials)

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended and no more will be proposed."""
        return self._is_over

    @property
    def best(self) -> Trial | None:
        """Best of the trials that have ended; None before the first one ends."""
        return best_trial([trial for trial in self._trials if is_over(trial.state)])

    def set_state(self, number: int, state: TrialState, fitness: float | None = None, note: str = "") -> Trial:
        """Sets the state and fitness of a trial, and returns it.

        A recorded fitness is kept if the new one differs in the last digits only.
        """
        recorded_trial = self._recorded_trials.get(number)
        recorded_fitness = recorded_trial.fitness if recorded_trial is not None else None
        if (
            fitness is not None
            and recorded_fitness is not None
            and math.isclose(recorded_fitness, fitness, rel_tol=_FITNESS_TOLERANCE, abs_tol=_FITNESS_TOLERANCE)
        ):
            fitness = recorded_fitness
        self._trials[number] = replace(self._trials[number], state=state, fitness=fitness, note=note)
        return self._trials[number]

    def advance(self) -> Sequence[Trial]:
        """Returns the next wave, or () if the last wave has not ended or the search is over.

        Drops recorded waves whose proposals depend on results that have since changed.

        Raises:
          PluginError: The strategy proposes values outside the space.
        """
        self._drop_outdated()
        if self._is_over or not all(is_over(trial.state) for trial in self._trials):
            return ()
        history = tuple(self._trials)
        number = len(self._trials)
        num_trials_left = math.inf if self._num_trials is None else self._num_trials - number
        proposed_settings = [] if num_trials_left <= 0 else list(self._propose(history))
        if num_trials_left < len(proposed_settings):
            proposed_settings = proposed_settings[: int(num_trials_left)]
        wave = history[-1].wave + 1 if history else 0
        new_trials = [
            Trial(
                number=number + offset, parameters=self._space.active(values), state="waiting", fitness=None, wave=wave
            )
            for offset, values in enumerate(proposed_settings)
        ]
        self._trials += new_trials
        self._is_over = not new_trials
        return new_trials

    def _propose(self, history: Sequence[Trial]) -> Sequence[Mapping[str, Value]]:
        wave = self._strategy.next_wave(
            self._space, history, seed=self._seed, width=self._width, num_trials=self._num_trials
        )
        for values in wave:
            if not self._space.contains(values):
                raise PluginError(
                    "the search proposes settings outside of its space",
                    where=type(self._strategy).__name__,
                    got=repr(dict(values)),
                    expected=", ".join(parameter.path for parameter in self._space.parameters),
                )
        return wave

    def _drop_outdated(self) -> None:
        for trial in self._trials:
            recorded_trial = self._recorded_trials.get(trial.number)
            if recorded_trial is None or not is_over(trial.state) or not is_over(recorded_trial.state):
                continue
            if (recorded_trial.state, recorded_trial.fitness) != (trial.state, trial.fitness):
                self._trials = [other_trial for other_trial in self._trials if other_trial.wave <= trial.wave]
                self._recorded_trials = {}
                return


def is_over(state: TrialState) -> bool:
    """Returns whether a trial in this state has ended."""
    return state in ("done", "failed", "infeasible", "stopped")


def trials_below_median(
    trials: Iterable[Trial], fitness_by_number: Mapping[int, float | None], *, after: str
) -> dict[int, str]:
    """Returns the trials of a wave that are stopped at a point of the training, with the reason, by number.

    A trial is stopped if its fitness is below the median of all trials that reached the point. The order of arrival
    within a wave does not matter; whole waves are compared.

    Args:
      trials: Trials of one wave.
      fitness_by_number: Fitness of trials at that point. None: no fitness. Trials of later waves are ignored.
      after: Name of the point in the reason, such as "25%".
    """
    wave = sorted(trials, key=lambda trial: trial.number)
    last_number = wave[-1].number
    values = [value for number, value in fitness_by_number.items() if number <= last_number and value is not None]
    if not values:
        return {}
    median = statistics.median(values)
    reasons = {}
    for trial in wave:
        value = fitness_by_number[trial.number]
        if value is not None and value < median:
            reasons[trial.number] = (
                f"fitness {value:.4g} after {after}, below {median:.4g}, the median of {len(values)}"
            )
    return reasons


def stop_fitness_and_median(note: str) -> tuple[float, float] | None:
    """Returns the fitness of a stopped trial and the median that it was below, from the note of `trials_below_median`.

    Returns:
      None if the note is of a trial that was not stopped.
    """
    match = _STOP_NOTE.match(note)
    return None if match is None else (float(match[1]), float(match[2]))


def fresh_seed_bindings(
    experiment: Experiment, report_sessions: int | None, stored_blocks: Iterable[SeedBlock] = ()
) -> tuple[str, ...]:
    """Returns the bindings of the fresh seeds on which the best trial is evaluated.

    Args:
      experiment: Experiment with the search.
      report_sessions: Number of fresh seeds. None: the number of the experiment, or of each case.
      stored_blocks: Seed blocks that are stored; see `session_blocks`.
    """
    blocks = _report_blocks(experiment, report_sessions, stored_blocks)
    return (f"Case.first_seed = {FIRST_REPORT_SEED}",) if blocks is None else blocks.bindings


def fresh_seed_cases(
    cases: Iterable[CaseInfo],
    experiment: Experiment,
    report_sessions: int | None,
    stored_blocks: Iterable[SeedBlock] = (),
) -> list[CaseInfo]:
    """Returns the cases with the fresh seeds on which the best trial is evaluated; [] if it is not.

    Args:
      cases: Cases of the trials.
      experiment, report_sessions, stored_blocks: As for `fresh_seed_bindings`. `report_sessions` is 0 if the best trial
        is not evaluated on fresh seeds.
    """
    if report_sessions == 0:
        return []
    blocks = _report_blocks(experiment, report_sessions, stored_blocks)
    if blocks is not None:
        return [blocks.apply_to(case, ()) for case in cases]
    return [case if case.fixed_seeds else replace(case, first_seed=FIRST_REPORT_SEED) for case in cases]


def _report_blocks(
    experiment: Experiment, report_sessions: int | None, stored_blocks: Iterable[SeedBlock]
) -> SessionBlocks | None:
    """Returns the blocks of the fresh seeds; None if each case keeps its own number of seeds."""
    width = report_sessions or experiment.num_sessions
    if width is None:
        return None
    stored_fresh_blocks = (block for block in stored_blocks if block.start >= FIRST_REPORT_SEED)
    return session_blocks(range(FIRST_REPORT_SEED, FIRST_REPORT_SEED + width), stored_fresh_blocks)
