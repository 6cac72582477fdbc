"""Subjects that an experiment adds while it runs: checkpoints of its commands, and trials of its searches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from lobench.api.dry_run import joined_error
from lobench.core.case import CaseInfo
from lobench.core.subject import RequestedSubject, Subject
from lobench.engine.chief.commands import CommandRun, CommandRuns
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.experiments.imported_curves import ExperimentCurves
from lobench.experiments.scripts import CurveProgress, ScriptCurves
from lobench.experiments.search.median_stopping import StoppingSearch
from lobench.experiments.search.of_commands import CommandSearch
from lobench.experiments.search.of_scripts import ScriptSearch
from lobench.experiments.search.planned import PlannedSearch, known_trials_of
from lobench.experiments.search.running import SearchContext, SearchRun, SubjectSearch

__all__ = ["ExperimentSubjects", "search_runs"]

_EVENT = "search"  # event with the number of trials per wave of a search, recorded once


class ExperimentSubjects(CommandRuns):
    """Source of the subjects of an experiment's run: checkpoints of its commands, and trials of its searches.

    Attributes:
      searches: Searches of the run. A search over a command adds its trials to the commands.
      curves: Methods with imported curves. They are checked against the cases before anything is trained.
      scripts: Reader of the curves of scripts. Must be set before scripts are added.
      grown: Called when a running script has appended to its curves.
      recorded: Called with a subject and its cases when all of its evaluations are in the ledger.
      curves_recorded: Called when the curves of a session of a script are in the ledger.
      methods_of: Returns the titles of the optimizer and checkpoint methods that evaluate a subject; empty if the
        subject cannot be left out.
      num_methods: Number of methods of the run, of all kinds.
      refused: Reasons by title, for methods that were left out.
    """

    searches: Sequence[SearchRun] = ()
    curves: ExperimentCurves | None = None
    scripts: ScriptCurves
    methods_of: Callable[[Subject], Sequence[str]] = staticmethod(lambda subject: ())
    num_methods: int = 0
    grown: Callable[[], None] = staticmethod(lambda: None)
    recorded: Callable[[Subject, Sequence[CaseInfo]], None] = staticmethod(lambda subject, cases: None)
    curves_recorded: Callable[[], None] = staticmethod(lambda: None)
    _progress_of_runs: Sequence[tuple[CommandRun, CurveProgress | None]] = ()

    @functools.cached_property
    def refused(self) -> dict[str, str]:
        return {}

    @functools.cached_property
    def _cases_by_variant(self) -> dict[str, Sequence[CaseInfo]]:
        return {}

    def refuse_subject(self, subject: Subject, problem: str) -> bool:
        """Leaves out the methods of a subject whose cases cannot be bound, if there are others.

        Raises:
          SuiteError: No method of the run is left.
        """
        if super().refuse_subject(subject, problem):
            return True
        titles = self.methods_of(subject)
        if not titles or self.num_methods == len(titles):
            return False
        new_problems = {title: problem for title in titles if title not in self.refused}
        self.refused.update(new_problems)
        if len(self.refused) == self.num_methods:
            raise joined_error(self.refused)
        for title in new_problems:
            self._log(f"{title!r} cannot be evaluated, and the other methods go on: {problem}")
        return True

    @property
    def is_open(self) -> bool:
        return super().is_open or any(search.is_open for search in self.searches)

    @property
    def has_new(self) -> bool:
        return super().has_new or any(search.has_news for search in self.searches)

    @property
    def subjects_noun(self) -> str:
        return "methods and trials" if self.searches else "methods"

    def new_subjects(self) -> list[RequestedSubject]:
        # Searches come first: they have meanwhile processed the subjects that commands returned at the last call.
        self._update_progress()
        return [*(subject for search in self.searches for subject in search.take_requests()), *super().new_subjects()]

    def _update_progress(self) -> None:
        old_growths = self.progress_by_method()
        running_scripts = [self._runs[command] for command, state in self.states.items() if state == "running"]
        running_scripts = [run for run in running_scripts if run.is_script]
        self.scripts.num_running = len(running_scripts)
        self._progress_of_runs = [(run, self.scripts.progress(run)) for run in running_scripts]
        if self.progress_by_method() != old_growths:
            self.grown()

    def progress_by_method(self) -> dict[str, list[str]]:
        """Returns the progress of running scripts, by the name of their method."""
        growths: dict[str, list[str]] = {}
        for run, growth in self._progress_of_runs:
            if self.states[run.id] != "running":
                continue
            name = run.method.name.partition("/")[0]
            growths.setdefault(name, []).append("" if growth is None else growth.text)
        return growths

    def _output_and_problem(self, run: CommandRun) -> tuple[bool, str]:
        if not run.is_script:
            return super()._output_and_problem(run)
        self._progress_of_runs = [(other, growth) for other, growth in self._progress_of_runs if other.id != run.id]
        is_waited_for = any(search.records_curves_of(run) for search in self.searches)
        problem = self.scripts.missing_reason(run) if is_waited_for else self.scripts.record(run)
        if not problem:
            self.curves_recorded()
        return not problem, problem

    def subject_read(self, given: RequestedSubject, subject: Subject | None) -> None:
        for search in self.searches:
            search.subject_read(given, subject)

    def register_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        self._cases_by_variant[variant] = cases
        if self.curves is not None:
            self.curves.check(cases)
        for search in self.searches:
            search.register_cases(variant, cases)

    def subject_finished(self, subject: Subject) -> None:
        for search in self.searches:
            search.finished(subject)
        self.recorded(subject, self._cases_by_variant.get(subject.variant.key, ()))


def search_runs(
    searches: Iterable[PlannedSearch],
    file: ExperimentFile,
    context: SearchContext,
    num_slots: int,
    make_commands: Callable[..., CommandSearch],
    make_scripts: Callable[..., ScriptSearch],
) -> list[SearchRun]:
    """Creates the running searches, each with its state in the ledger.

    Args:
      searches: Searches of the experiment.
      file: Experiment file.
      context: Experiment and ledger.
      num_slots: Number of trials in a wave, if neither the file nor the ledger has it.
      make_commands, make_scripts: Functions that make the search of a command, and of a script.
    """
    runs: list[SearchRun] = []
    for planned_search in searches:
        known_trials = known_trials_of(planned_search, file, context.ledger, context.experiment_id)
        make_of_subjects = SubjectSearch if planned_search.method.median_stopping is None else StoppingSearch
        make = {"command": make_commands, "script": make_scripts}.get(planned_search.method.kind, make_of_subjects)
        num_parallel = num_slots
        if planned_search.method.kind == "script" and planned_search.method.median_stopping is not None:
            # All sessions of a wave run at once, or the first would be at their end before the last are judged.
            cpus_per_trial = len(context.experiment.sessions or (0,)) * planned_search.method.num_cpus
            num_parallel = max(num_slots // cpus_per_trial, 1)
        runs.append(make(planned_search, context, known_trials, width=_width(planned_search, context, num_parallel)))
    return runs


def _width(planned_search: PlannedSearch, context: SearchContext, num_slots: int) -> int:
    """Returns the number of trials per wave. It is recorded, so that a restart on another machine uses it, too."""
    if planned_search.method.wave is not None:
        return planned_search.method.wave
    key: Mapping[str, object] = {"experiment": context.experiment.name, "method": planned_search.method.name}
    for _, detail in context.ledger.events(_EVENT):
        if key.items() <= detail.items():
            return int(detail["wave"])
    context.ledger.record_event(_EVENT, **key, wave=num_slots)
    return num_slots
