"""Running search of one method: its trials as subjects, their fitness, and the best one on fresh seeds.

A trial is the method with values in place of its spaces. A method with the same values in a file is the same subject,
with the same evaluations. The fitness of a trial is read from the ledger each time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

from lobench.analysis.scores.score_scale import DIVERGED_SCORE
from lobench.analysis.scores.trial_fitness import fitness
from lobench.core.case import CaseInfo
from lobench.core.experiment import Experiment, Method
from lobench.core.search.search import Trial, TrialState
from lobench.core.subject import RequestedSubject, Subject, Variant
from lobench.core.trials import TrialHistory, fresh_seed_bindings, fresh_seed_cases, is_over
from lobench.core.wording import counted, level_text
from lobench.engine.checkpoints.given import given_method
from lobench.engine.chief.commands import CommandRun
from lobench.engine.chief.interfaces import ERRORS
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.experiments.blocks import member_blocks
from lobench.experiments.existing import rows_of
from lobench.experiments.search.planned import KnownTrials, PlannedSearch

__all__ = [
    "SearchContext",
    "SearchKey",
    "SearchRun",
    "SubjectSearch",
    "key_of",
    "numbers_below",
    "request_on_fresh_seeds",
]

SearchKey = tuple[str, Variant]

_NO_NOTES: Mapping[int, str] = MappingProxyType({})


def key_of(subject: RequestedSubject) -> SearchKey:
    """Returns the identity of a subject before and after its checkpoint is read."""
    if isinstance(subject, Subject) and not subject.has_theta:
        return subject.sha256, subject.variant
    return subject.uri, subject.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchContext:
    """Experiment and ledger of the running searches.

    Attributes:
      experiment_id: Id of the experiment's version in the ledger.
      programs: Function that returns the program keys whose results count.
      is_retried: Whether evaluations that ended in an error are retried.
    """

    ledger: Ledger
    experiment_id: int
    experiment: Experiment
    programs: Callable[[], Collection[str]]
    log: Callable[[str], None]
    is_retried: bool = False


class SearchRun(ABC):
    """Base of a running search. The trials of a subclass are subjects or processes.

    Args:
      known_trials: Trials of the search in the ledger, perhaps from an earlier version of the experiment.
      width: Number of trials in a wave.
    """

    def __init__(
        self, planned_search: PlannedSearch, context: SearchContext, known_trials: KnownTrials, *, width: int
    ) -> None:
        self.planned_search, self._context = planned_search, context
        self.history = TrialHistory(
            planned_search.strategy,
            planned_search.space,
            seed=planned_search.seed,
            width=width,
            num_trials=planned_search.method.num_trials,
            recorded=known_trials.trials,
        )
        self._waiting_requests: list[RequestedSubject] = []
        self._subjects: dict[SearchKey, Subject] = {}  # subjects of the search that were read
        self._cases: dict[str, Sequence[CaseInfo]] = {}  # by variant
        self._report_keys: set[SearchKey] = set()  # best trials that are evaluated on fresh seeds
        self._unreported_keys: set[SearchKey] | None = (
            None  # reports without an evaluation yet; None: the best is unknown
        )
        self._written_trials = {
            trial.number: trial for trial in known_trials.trials if known_trials.experiment_id == context.experiment_id
        }

    def begin(self) -> None:
        """Continues from the trials in the ledger, and requests the next ones."""
        if not self._written_trials:  # the version may keep a search on fewer sessions, which this one replaces
            self._context.ledger.forget_trials(self._context.experiment_id, self.method.name, 0)
        self._record_trials(list(self.history.recorded))
        self._start_trials(self.history.trials)
        self._continue_search()

    @property
    def method(self) -> Method:
        return self.planned_search.method

    @property
    def is_open(self) -> bool:
        """Whether trials, or the evaluation of the best one on fresh seeds, are still to come."""
        return self._unreported_keys is None or bool(self._unreported_keys)

    @property
    def has_news(self) -> bool:
        """Whether `given` would return a subject."""
        return bool(self._waiting_requests)

    @property
    def text(self) -> str:
        """Progress of the search: `12 of 20 trials, best 1.31`."""
        num_over = sum(is_over(trial.state) for trial in self.history.trials)
        best = self.history.best
        stopped_text = f", {self.num_stopped} of them stopped early" if self.num_stopped else ""
        best_so_far = f", best {best.fitness:.4g}" if best is not None else ""
        return f"{num_over} of {counted(self.planned_search.num_trials, 'trial')}{stopped_text}{best_so_far}"

    @property
    def num_stopped(self) -> int:
        """Number of trials that median stopping has ended."""
        return sum(trial.state == "stopped" for trial in self.history.trials)

    def take_requests(self) -> list[RequestedSubject]:
        """Returns the subjects to evaluate that were added since the last call."""
        subjects, self._waiting_requests = self._waiting_requests, []
        return subjects

    @abstractmethod
    def roles_of(self, subject: Subject) -> Iterator[tuple[str, int, bool]]:
        """Yields (method, trial number, whether on fresh seeds) for each trial that a subject belongs to."""

    def num_expected(self, cases: Sequence[CaseInfo]) -> int:
        """Returns the number of future evaluations: of trials not proposed yet, and of the best one on fresh seeds."""
        if self.history.is_over:
            return 0
        experiment = self._context.experiment
        held_blocks = member_blocks(self._context.ledger, experiment.name)
        cases_to_report = fresh_seed_cases(cases, experiment, self.method.report_sessions, held_blocks)
        num_trials_left = self.planned_search.num_trials - len(self.history.trials)
        num_blocks, num_reported = (
            sum(len(case.blocks()) for case in case_group) for case_group in (cases, cases_to_report)
        )
        return self.num_subjects * (num_trials_left * num_blocks + num_reported)

    @property
    def num_subjects(self) -> int:
        """Number of subjects of a trial."""
        return 1

    def records_curves_of(self, run: CommandRun) -> bool:
        """Returns whether the search records a session's curves itself, because it may stop the session."""
        return False

    # Events of the chief.

    def subject_read(self, given: RequestedSubject, subject: Subject | None) -> None:
        """Called when a given subject was read. `subject` is None if it cannot be read."""
        key = key_of(given)
        if not self._is_ours(key):
            return
        if subject is None:
            self._end_trials_of(key, None)
            return
        self._subjects[key] = subject
        if (cases := self._cases.get(subject.variant.key)) is not None:
            self._end_if_evaluated(subject, cases)

    def register_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        """Called when the cases of a variant are known. `variant` is its key."""
        self._cases[variant] = cases
        for subject in list(self._subjects.values()):
            if subject.variant.key == variant:
                self._end_if_evaluated(subject, cases)

    def finished(self, subject: Subject) -> None:
        """Called when all evaluations of a subject are in the ledger."""
        if (key := key_of(subject)) in self._subjects:
            self._end_trials_of(key, subject)

    # Consequences of events.

    @abstractmethod
    def _is_ours(self, key: SearchKey) -> bool:
        """Returns whether a subject is a trial, or the best one on fresh seeds."""

    @abstractmethod
    def _start_trials(self, trials: Sequence[Trial]) -> None:
        """Starts the evaluation of trials."""

    @abstractmethod
    def _end_trials_of(self, key: SearchKey, subject: Subject | None) -> None:
        """Ends the trials of a subject that was evaluated. `subject` is None if it cannot be read."""

    @abstractmethod
    def _requests_on_fresh_seeds(self, best: Trial, bindings: Sequence[str]) -> list[RequestedSubject]:
        """Returns the best trial's subjects with additional bindings for the fresh seeds."""

    def _end_if_evaluated(self, subject: Subject, cases: Sequence[CaseInfo]) -> None:
        """Ends a trial whose evaluations were all stored before it was given, since no event will report its end."""
        rows = self._rows(subject)
        if self._context.is_retried and any(row.outcome in ERRORS for row in rows):
            return
        stored_seeds = {(row.case.key, seed) for row in rows for seed in row.key.seed_block.seeds}
        wanted_seeds = {(case.key, seed) for case in cases for block in case.blocks() for seed in block.seeds}
        if wanted_seeds and wanted_seeds <= stored_seeds:
            self._end_trials_of(key_of(subject), subject)

    def _rows(self, subject: Subject) -> list[EvaluationRow]:
        cases = self._cases.get(subject.variant.key, ())
        return rows_of(self._context.ledger, subject.sha256, cases, self._context.programs())

    def _fitness(self, subject: Subject) -> float | None:
        cases = self._cases.get(subject.variant.key, ())
        experiment = self._context.experiment
        return fitness(self._rows(subject), cases, experiment.sessions, experiment.suites)

    def _mark_reported(self, key: SearchKey) -> None:
        if self._unreported_keys:
            self._unreported_keys.discard(key)

    def _set_state(
        self,
        trial_numbers: Sequence[int],
        state: TrialState,
        trial_fitness: float | None = None,
        notes: Mapping[int, str] = _NO_NOTES,
    ) -> None:
        """Records the new state of trials that had not ended before, and continues the search."""
        trials = self.history.trials
        open_numbers = [number for number in trial_numbers if not is_over(trials[number].state)]
        if open_numbers:
            with self._context.ledger.transaction():
                self._record_trials(
                    [
                        self.history.set_state(number, state, trial_fitness, notes.get(number, ""))
                        for number in open_numbers
                    ]
                )
                self._continue_search()

    def _continue_search(self) -> None:
        """Requests the next wave when one has ended, and the evaluation of the best trial when the search has ended."""
        num_old_trials = len(self.history.trials)
        new_trials = self.history.advance()
        num_kept_trials = len(self.history.trials) - len(new_trials)
        if num_kept_trials < num_old_trials:
            text = f"the suite has changed; all trials after trial {num_kept_trials - 1} are chosen again"
            self._context.log(f"{self.method.title}: {text}")
            self._context.ledger.forget_trials(self._context.experiment_id, self.method.name, num_kept_trials)
            self._written_trials = {
                number: trial for number, trial in self._written_trials.items() if number < num_kept_trials
            }
            self._forget_trials_from(num_kept_trials)
        self._record_trials(new_trials)
        self._start_trials(new_trials)
        if self.history.is_over and self._unreported_keys is None:
            self._report_best()

    @abstractmethod
    def _forget_trials_from(self, first_trial: int) -> None:
        """Forgets the trials from number `first_trial` on."""

    def _report_best(self) -> None:
        best = self.history.best
        title = self.method.title
        self._unreported_keys = set()
        if best is None:
            self._context.log(f"{title}: none of {len(self.history.trials)} trials is feasible")
            return
        values = "; ".join(f"{path} = {value!r}" for path, value in best.parameters.items())
        num_trials = len(self.history.trials)
        meaning = "on the search's seeds and scale, which compares trials alone; trials count from 0"
        fitness = best.fitness or 0.0
        others = [trial for trial in self.history.trials if trial.is_feasible and trial is not best]
        level = level_text(fitness, ((f"trial {trial.number}", trial.fitness or 0.0) for trial in others))
        result = f"trial {best.number} of {num_trials} is the best{level}, with a mean score of {fitness:.4g} "
        result += f"({meaning})"
        if fitness <= DIVERGED_SCORE:
            result = f"all {num_trials} trials diverged, and none is the best; trial {best.number} is shown"
        self._context.log(f"{title}: {result}: {values}")
        if self.method.report_sessions != 0:
            experiment = self._context.experiment
            held_blocks = member_blocks(self._context.ledger, experiment.name)
            bindings = fresh_seed_bindings(experiment, self.method.report_sessions, held_blocks)
            given_on_fresh_seeds = self._requests_on_fresh_seeds(best, bindings)
            self._report_keys = set(map(key_of, given_on_fresh_seeds))
            self._unreported_keys = set(self._report_keys)
            self._waiting_requests += given_on_fresh_seeds

    def _record_trials(self, trials: Sequence[Trial]) -> None:
        changed_trials = [trial for trial in trials if self._written_trials.get(trial.number) != trial]
        with self._context.ledger.transaction() if changed_trials else contextlib.nullcontext():
            for trial in changed_trials:
                values = {field.name: getattr(trial, field.name) for field in fields(Trial)}
                self._context.ledger.record_trial(
                    self._context.experiment_id, TrialRow(method=self.method.name, **values)
                )
                self._written_trials[trial.number] = trial


def request_on_fresh_seeds(method: Method, best: Trial, bindings: Sequence[str]) -> RequestedSubject:
    """Returns the best trial of an optimizer or a checkpoint as a subject, with the bindings of the fresh seeds."""
    label = f"{method.trial_label(best.number)} on fresh seeds"
    # A subject's hash is that of its gin text. The sizes of blocks are added after hashing, because otherwise more
    # seeds would make another subject.
    given = given_method(method.with_values(best.parameters), label=label, bindings=bindings[:1])
    variant = dataclasses.replace(given.variant, bindings=(*given.variant.bindings, *bindings[1:]))
    return dataclasses.replace(given, variant=variant)


class SubjectSearch(SearchRun):
    """Search of a method that is an optimizer or a checkpoint: a trial is one subject."""

    def __init__(
        self, planned_search: PlannedSearch, context: SearchContext, known_trials: KnownTrials, *, width: int
    ) -> None:
        super().__init__(planned_search, context, known_trials, width=width)
        self._numbers_by_subject: dict[SearchKey, list[int]] = {}  # two trials may be one subject

    def roles_of(self, subject: Subject) -> Iterator[tuple[str, int, bool]]:
        key = key_of(subject)
        best = self.history.best
        for number in self._numbers_by_subject.get(key, ()):
            yield self.method.name, number, False
        if key in self._report_keys and best is not None:
            yield self.method.name, best.number, True

    def _is_ours(self, key: SearchKey) -> bool:
        return key in self._numbers_by_subject or key in self._report_keys

    def _start_trials(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            method = self.method.with_values(trial.parameters)
            self._add_trial(
                self._numbers_by_subject, trial, given_method(method, label=self.method.trial_label(trial.number))
            )

    def _add_trial(self, trials_by_subject: dict[SearchKey, list[int]], trial: Trial, given: RequestedSubject) -> None:
        """Starts the evaluation of a trial's subject, unless another trial has the same subject."""
        trials_of_subject = trials_by_subject.setdefault(key_of(given), [])
        trials_of_subject.append(trial.number)
        if len(trials_of_subject) == 1:
            self._waiting_requests.append(given)
        elif (subject := self._subjects.get(key_of(given))) is not None:
            self._end_if_evaluated(subject, self._cases.get(subject.variant.key, ()))

    def _end_trials_of(self, key: SearchKey, subject: Subject | None) -> None:
        self._mark_reported(key)
        if open_numbers := [
            number for number in self._numbers_by_subject.get(key, ()) if not is_over(self.history.trials[number].state)
        ]:
            trial_fitness = None if subject is None else self._fitness(subject)
            self._set_state(open_numbers, "infeasible" if trial_fitness is None else "done", trial_fitness)

    def _requests_on_fresh_seeds(self, best: Trial, bindings: Sequence[str]) -> list[RequestedSubject]:
        return [request_on_fresh_seeds(self.method, best, bindings)]

    def _forget_trials_from(self, first_trial: int) -> None:
        self._numbers_by_subject = numbers_below(first_trial, self._numbers_by_subject)


def numbers_below(first_trial: int, trials_by_subject: Mapping[SearchKey, Sequence[int]]) -> dict[SearchKey, list[int]]:
    """Returns the trial numbers below `first_trial`, by subject. Subjects without such a trial are dropped."""
    earlier_numbers = {
        key: [number for number in trials_of_subject if number < first_trial]
        for key, trials_of_subject in trials_by_subject.items()
    }
    return {key: trials_of_subject for key, trials_of_subject in earlier_numbers.items() if trials_of_subject}
