"""Method index: the methods that a subject belongs to, and the evaluations of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.experiment import Method
from lobench.core.subject import RequestedSubject, Subject
from lobench.core.trials import fresh_seed_cases
from lobench.engine.chief.commands import CommandRun
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.experiments.scripts import num_report_sessions, script_name
from lobench.experiments.search.planned import PlannedSearch
from lobench.experiments.search.running import SearchRun

__all__ = ["MethodIndex", "Role"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Role of a subject in an experiment.

    Attributes:
      name: Name of the method in the experiment's members, such as `mine/3` for trial 3 of a search over a command.
      trial: Number of the search's trial; for a command, number of the session that trained the subject.
      sessions: Seeds of its evaluations that count. None: all.
    """

    method: Method
    name: str
    trial: int
    sessions: range | None


class MethodIndex:
    """Index of the methods of a run, by subject.

    Args:
      methods: Methods of the run.
      requests_by_name: Subjects of optimizer and checkpoint methods, by name.
      planned_searches: Searches of the methods, by name.

    Attributes:
      store: Store of the experiment.
      runs: Sessions of the commands.
      searches: Searches of the methods, once they have begun.
      stored_blocks: Seed blocks of the experiment in the ledger, once it is open.
    """

    def __init__(
        self,
        file: ExperimentFile,
        methods: Sequence[Method],
        requests_by_name: Mapping[str, RequestedSubject],
        planned_searches: Mapping[str, PlannedSearch],
        store: Path,
    ) -> None:
        self._methods = {method.name: method for method in methods}
        self._requests_by_name = requests_by_name
        self._experiment = file.experiment
        self.planned_searches = planned_searches
        self._sessions = file.experiment.sessions
        self.stored_blocks: Collection[SeedBlock] = ()
        self.searches: Sequence[SearchRun] = ()
        self._working_folder, self.store = file.path.parent, store
        commands_without_search = (method for method in methods if method.command and method.search is None)
        self.runs = [run for method in commands_without_search for run in self.runs_of(method)]

    def runs_of(self, method: Method, sessions: range | None = None) -> list[CommandRun]:
        """Returns a run for each session of a command.

        A trial `mine/3` uses the folder of a method `mine` that has the trial's values.

        Args:
          method: Method with a command.
          sessions: Numbers of the sessions. None: those of the experiment.
        """
        return [
            CommandRun(
                method=method,
                session=session,
                folder=self.store.absolute() / "commands" / method.folder_name / str(session),
                working_folder=self._working_folder,
                log=self.store.absolute() / "logs" / f"{method.name.replace('/', '-')}-{session}",
            )
            for session in sessions or self.sessions
        ]

    @property
    def scripts(self) -> list[Method]:
        """Methods that are scripts without a search."""
        return list({run.method.name: run.method for run in self.runs if run.is_script}.values())

    @property
    def sessions(self) -> range:
        """Sessions of each command."""
        return self._sessions or range(1)

    def roles_of(self, subject: Subject) -> Iterator[Role]:
        """Yields a role for each method, and for each trial of a search, that evaluates a subject."""
        for name, request in self._requests_by_name.items():
            is_same_subject = (
                subject.sha256 == request.sha256 if isinstance(request, Subject) else subject.uri == request.uri
            )
            if is_same_subject and subject.variant == request.variant:
                yield Role(method=self._methods[name], name=name, trial=0, sessions=self._sessions)
        for run in self.runs:
            if subject.has_theta and Path(subject.uri).is_relative_to(run.folder):
                yield Role(method=run.method, name=run.method.name, trial=run.session, sessions=self._sessions)
        if subject.is_imported:
            for method in self.scripts:
                if subject.name == script_name(method):
                    yield Role(method=method, name=method.name, trial=0, sessions=self._sessions)
        for search in self.searches:
            for name, trial, is_report in search.roles_of(subject):
                sessions = None if is_report else self._sessions
                yield Role(method=search.method, name=name, trial=trial, sessions=sessions)

    @property
    def num_methods(self) -> int:
        return len(self._methods)

    def given_titles(self, subject: Subject) -> list[str]:
        """Returns the titles of the methods without a search that are this optimizer or checkpoint."""
        return [role.method.title for role in self.roles_of(subject) if role.name in self._requests_by_name]

    def titles(self, subject: Subject) -> list[str]:
        """Returns the titles of the methods of a subject."""
        return list(dict.fromkeys(role.method.title for role in self.roles_of(subject)))

    def trial_texts(self) -> dict[str, str]:
        """Returns the progress of each search as text, by the title of its method."""
        return {search.method.title: search.text for search in self.searches}

    def num_planned_by_title(self, cases: Sequence[CaseInfo]) -> dict[str, int]:
        """Returns the number of evaluations of each method, by title; 0 if unknown."""
        return {method.title: self._num_planned_evaluations(method, cases) for method in self._methods.values()}

    def _num_planned_evaluations(self, method: Method, cases: Sequence[CaseInfo]) -> int:
        if method.kind == "script":
            return self._num_script_curves(method)
        num_blocks = sum(len(case.blocks()) for case in cases)
        if method.search is not None:
            search = self.planned_searches[method.name]
            num_subjects = len(self._sessions or range(1)) if method.kind == "command" else 1
            num_stopped = sum(search.num_stopped for search in self.searches if search.method is method)
            num_trials = search.num_trials - num_stopped
            cases_to_report = fresh_seed_cases(cases, self._experiment, method.report_sessions, self.stored_blocks)
            return num_subjects * (num_blocks * num_trials + sum(len(case.blocks()) for case in cases_to_report))
        if method.kind != "command":
            return num_blocks
        return num_blocks * sum(run.method == method for run in self.runs) if method.checkpoints == "last" else 0

    def _num_script_curves(self, method: Method) -> int:
        """Returns the number of curves of a script, if each session has one case."""
        if method.search is None:
            return len(self.sessions)
        num_stopped = sum(search.num_stopped for search in self.searches if search.method is method)
        num_trials = self.planned_searches[method.name].num_trials - num_stopped
        return len(self.sessions) * num_trials + num_report_sessions(method, len(self.sessions))
