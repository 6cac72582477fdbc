"""Median stopping: trials are trained for a part first, and continued if they are above the median.

A part is a separate evaluation (`Case.stop_after`) in the ledger, and not a member of the experiment. When all parts of
a wave are stored, trials below the median of all parts so far are stopped. The others continue from the states saved by
their parts, or start again if there is no state. The results have the same bits either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from lobench.core.case import CaseInfo
from lobench.core.history import EvaluationId
from lobench.core.search.search import Trial
from lobench.core.subject import Subject
from lobench.core.trials import is_over, trials_below_median
from lobench.engine.checkpoints.given import given_method
from lobench.engine.store.states import remove_finished_states, state_folder
from lobench.experiments.search.planned import KnownTrials, PlannedSearch
from lobench.experiments.search.running import SearchContext, SearchKey, SubjectSearch, numbers_below

__all__ = ["StoppingSearch", "complete_waves"]


def complete_waves(trials: Sequence[Trial], so_far: Collection[int]) -> Iterator[list[Trial]]:
    """Yields the waves before the first one with a trial that has not reached the step of the decision.

    Args:
      trials: Trials of a search.
      so_far: Numbers of the trials whose results up to that step are stored.
    """
    for _, group in itertools.groupby(trials, key=lambda trial: trial.wave):
        wave = list(group)
        if not all(trial.number in so_far for trial in wave):
            return
        yield wave


class StoppingSearch(SubjectSearch):
    """Search with median stopping, of a method that is an optimizer or a checkpoint."""

    def __init__(
        self, planned_search: PlannedSearch, context: SearchContext, known_trials: KnownTrials, *, width: int
    ) -> None:
        super().__init__(planned_search, context, known_trials, width=width)
        self._trials_by_partial_training: dict[
            SearchKey, list[int]
        ] = {}  # numbers of the trials that begin with a partial training
        self._partial_fitnesses: dict[int, float | None] = {}  # fitness of the part, by trial
        self._judged_trials: set[int] = set()

    def num_expected(self, cases: Sequence[CaseInfo]) -> int:
        num_open = sum(
            not is_over(trial.state) and trial.number not in self._judged_trials for trial in self.history.trials
        )
        return super().num_expected(cases) + num_open * sum(len(case.blocks()) for case in cases)

    def _is_ours(self, key: SearchKey) -> bool:
        return key in self._trials_by_partial_training or super()._is_ours(key)

    def _start_trials(self, trials: Sequence[Trial]) -> None:
        trained_share = self.method.median_stopping
        for trial in trials:
            method = self.method.with_values(trial.parameters)
            label = f"{self.method.title} {trial.number} to {trained_share:.0%}"
            request = given_method(method, label=label, bindings=(f"Case.stop_after = {trained_share!r}",))
            self._add_trial(self._trials_by_partial_training, trial, request)

    def _end_trials_of(self, key: SearchKey, subject: Subject | None) -> None:
        if key not in self._trials_by_partial_training:
            super()._end_trials_of(key, subject)
            return
        fitness = None if subject is None else self._fitness(subject)
        self._partial_fitnesses |= {
            number: fitness for number in self._trials_by_partial_training[key] if number not in self._partial_fitnesses
        }
        self._judge()

    def _judge(self) -> None:
        """Decides, for each wave with all parts stored, which trials continue and which are stopped."""
        for wave in complete_waves(self.history.trials, self._partial_fitnesses):
            if wave[0].number not in self._judged_trials:
                self._judged_trials.update(trial.number for trial in wave)
                notes_of_stopped = trials_below_median(
                    wave, self._partial_fitnesses, after=f"{self.method.median_stopping:.0%}"
                )
                trials_without_value = [trial.number for trial in wave if self._partial_fitnesses[trial.number] is None]
                super()._start_trials(
                    [trial for trial in wave if trial.number not in (*notes_of_stopped, *trials_without_value)]
                )
                self._free_states(notes_of_stopped)
                self._set_state(trials_without_value, "infeasible")
                self._set_state(list(notes_of_stopped), "stopped", notes=notes_of_stopped)

    def _free_states(self, stopped_trials: Collection[int]) -> None:
        """Removes the states saved by parts of stopped trials."""
        folder = state_folder(self._context.ledger.store)
        for key, trial_numbers in self._trials_by_partial_training.items():
            subject = self._subjects.get(key)
            if subject is not None and set(trial_numbers) <= set(stopped_trials):
                cases = self._cases.get(subject.variant.key, ())
                blocks = [(case.whole_training_key, block) for case in cases for block in case.blocks()]
                remove_finished_states(folder, [EvaluationId(subject.sha256, key, block) for key, block in blocks])

    def _forget_trials_from(self, first_trial: int) -> None:
        super()._forget_trials_from(first_trial)
        self._trials_by_partial_training = numbers_below(first_trial, self._trials_by_partial_training)
        self._partial_fitnesses = {
            number: fitness for number, fitness in self._partial_fitnesses.items() if number < first_trial
        }
        self._judged_trials = {number for number in self._judged_trials if number < first_trial}
