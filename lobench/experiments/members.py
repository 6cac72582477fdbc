"""Experiment records of a run: the experiment, its members, its commands' states."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from lobench.analysis.store.methods import snapshot_of_members
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.case import CaseInfo
from lobench.core.experiment import Method, SessionMember, session_members
from lobench.core.planner import EvaluationId, Plan
from lobench.core.program import IMPORTED
from lobench.core.search.search import TrialState
from lobench.core.subject import Subject
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.chief.commands import CommandRun, has_checkpoint
from lobench.engine.chief.interfaces import ERRORS, Arrivals, WatchPlan, WatchProgress
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.config.origin import revision_of
from lobench.engine.store.edited_code import edited_code
from lobench.engine.store.experiments import Membership
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.programs import ExpectedProgram
from lobench.engine.store.provenance import versions_here
from lobench.experiments.arrivals import ExperimentSubjects, search_runs
from lobench.experiments.blocks import member_blocks
from lobench.experiments.command_code import CommandCode, edited_file_of, record_command_codes, record_command_data
from lobench.experiments.imported_curves import ExperimentCurves
from lobench.experiments.method_index import MethodIndex
from lobench.experiments.scripts import ScriptCurves, script_members, script_name
from lobench.experiments.search.of_commands import CommandSearch
from lobench.experiments.search.of_scripts import ScriptSearch
from lobench.experiments.search.running import SearchContext
from lobench.hookspecs import CheckpointReader

__all__ = ["WITHOUT_CHECKPOINT", "ExperimentRunExtension", "states_by_folder"]

WITHOUT_CHECKPOINT: tuple[TrialState, ...] = ("failed", "infeasible")  # states of a command that leaves no checkpoint


def states_by_folder(ledger: Ledger) -> Mapping[str, TrialState]:
    """Returns the states of the commands of all experiments and their earlier versions, by `CommandRun.name`."""
    trials = [row for form in ledger.experiments() for row in ledger.trials(form.id)]
    return {str(row.parameters.get("folder", "")): row.state for row in trials}


class ExperimentRunExtension:
    """Adds an experiment to the run of a chief, from the opening of the ledger to its closing.

    Args:
      retry_errors: Whether failed commands, and evaluations that ended in an error, are run again.
      num_slots: Number of trials in a wave, if nothing else determines it.
      is_elsewhere: Whether workers may be on other machines.
      command_codes: Code of each method that is a command.
      keep_results: Whether results of other code count.
      follows_edits: Whether the run begins again if the code of a command is edited before a session of it starts.
      kept_methods: Names of the methods whose earlier results stay in the experiment, because the run leaves them or
        some of their cases out.

    Attributes:
      experiment_id: Id of the experiment's version in the ledger.
      num_done, num_planned: Numbers of evaluations of the methods, at the end.
      planned_evaluations: Planned evaluations of known subjects.
      curves: Curves of imported methods; set before it begins.
      own_cases: Cases that lobench trains. Scripts may have curves on them too. Set before it begins.
      session_states: State of each session of a command.
    """

    def __init__(
        self,
        file: ExperimentFile,
        method_index: MethodIndex,
        *,
        retry_errors: bool,
        is_elsewhere: bool,
        num_slots: int,
        command_codes: Sequence[CommandCode] = (),
        keep_results: bool = False,
        follows_edits: bool = True,
        kept_methods: Collection[str] = (),
    ) -> None:
        self._follows_edits, self._kept_methods = follows_edits, kept_methods
        self._file, self._method_index = file, method_index
        self._retry_errors, self._num_slots = retry_errors, num_slots
        self._command_codes = command_codes
        self._keep_results = keep_results
        self._expected = ExpectedProgram(is_elsewhere=is_elsewhere).all_programs()
        self._commands: ExperimentSubjects | None = None
        self._ledger: Ledger | None = None
        self.experiment_id = self.num_done = self.num_planned = 0
        self.planned_evaluations = frozenset[EvaluationId]()
        self.curves: ExperimentCurves | None = None
        self.own_cases: Sequence[CaseInfo] = ()
        self._scripts: ScriptCurves | None = None
        self._log: Callable[[str], None] = lambda line: None

    @property
    def refused(self) -> Mapping[str, str]:
        """Reasons why methods could not be evaluated, by title."""
        return self._commands.refused if self._commands is not None else {}

    @property
    def is_outdated(self) -> bool:
        """Whether a session of a command did not start because the command's code was edited."""
        return self._commands is not None and self._commands.has_postponed

    @property
    def session_states(self) -> Mapping[str, TrialState]:
        states = self._commands.states if self._commands is not None else {}
        return {f"{command.method}-{command.session}": state for command, state in states.items()}

    def begin(self, ledger: Ledger, readers: Mapping[str, CheckpointReader], progress: WatchProgress) -> Arrivals:
        """Records the experiment, and returns its commands and searches. `progress` receives notes for people."""
        log = progress.log
        self._ledger, self._log = ledger, log
        experiment = self._file.experiment
        self._method_index.stored_blocks = member_blocks(ledger, experiment.name)
        revision = revision_of(self._file.path.parent)
        scripts = self._scripts = ScriptCurves(
            ledger, experiment, self.own_cases, log, lambda event: progress.evaluation_finished(event, None)
        )
        for line in record_command_codes(self._command_codes, ledger):
            log(line)
        for line in record_command_data(self._command_codes, ledger):
            progress.warn(line)
        state_of = self._state_lookup(ledger, readers)
        self.experiment_id = ledger.record_experiment(
            experiment.name, self._config_text, revision=revision, versions=versions_here()
        )
        ledger.keep_unchanged(self.experiment_id, self._kept_methods)
        states = {run.id: state_of(run) for run in self._method_index.runs}
        self._commands = commands = ExperimentSubjects(
            self._method_index.runs,
            readers,
            states=states,
            record=lambda row: ledger.record_trial(self.experiment_id, row),
            log=log,
        )
        commands.curves = self.curves
        commands.scripts = scripts
        commands.grown = progress.curves_extended
        commands.recorded = functools.partial(self._add_finished, ledger)
        commands.curves_recorded = functools.partial(self._add_recorded_curves, ledger)
        commands.edited_file = self._edited_file
        commands.follows_edits = self._follows_edits
        commands.num_methods = self._method_index.num_methods
        if experiment.race is None:  # a race needs all methods, so none may be left out
            commands.methods_of = self._method_index.given_titles
        context = SearchContext(
            ledger=ledger,
            experiment_id=self.experiment_id,
            experiment=experiment,
            programs=lambda: ledger.accepted_programs(self._expected),
            log=log,
            is_retried=self._retry_errors,
        )
        make_commands = functools.partial(
            CommandSearch, commands=commands, runs_of=self._method_index.runs_of, state_of=state_of
        )
        make_scripts = functools.partial(
            ScriptSearch, commands=commands, scripts=scripts, runs_of=self._method_index.runs_of, state_of=state_of
        )
        planned_searches = self._method_index.planned_searches.values()
        self._method_index.searches = commands.searches = search_runs(
            planned_searches, self._file, context, self._num_slots, make_commands, make_scripts
        )
        for search in commands.searches:
            search.begin()
        if not experiment.suites:  # without suites no worker will report cases
            progress.cases_known(())
        return commands

    def _edited_file(self, method: Method) -> str:
        name = method.name.partition("/")[0]  # a trial `mine/3` has the code of `mine`
        code = next(command_code for command_code in self._command_codes if command_code.method.name == name)
        return edited_file_of(code, self._file.path.parent)

    @property
    def _config_text(self) -> str:
        """Configuration of the experiment, including the code of its commands, so that other code is a new version."""
        codes = [(command_code.method.name, command_code.method.code) for command_code in self._command_codes]
        return self._file.text + "".join(f"# code of {name}: {code}\n" for name, code in codes if code)

    def _state_lookup(
        self, ledger: Ledger, readers: Mapping[str, CheckpointReader]
    ) -> Callable[[CommandRun], TrialState]:
        """Returns a function from a command to its state in any version of any experiment, found by its folder."""
        states_by_name = states_by_folder(ledger)

        def state_of(run: CommandRun) -> TrialState:
            state: TrialState = states_by_name.get(run.name, "waiting")
            if run.is_script:
                return self._state_of_script(run, state)
            if not self._retry_errors or state not in WITHOUT_CHECKPOINT:
                return state
            # An infeasible run with a checkpoint ended well, but its cases could not be bound. They are bound again.
            return "done" if state == "infeasible" and has_checkpoint(run, readers) else "waiting"

        return state_of

    def _state_of_script(self, run: CommandRun, state: TrialState) -> TrialState:
        """Returns the state of a script, from its stored curves; missing curves are read again."""
        is_retried = self._retry_errors and state in WITHOUT_CHECKPOINT
        if (state == "done" or (is_retried and state == "infeasible")) and self._scripts is not None:
            name = script_name(run.method)
            is_of_trial = "/" in run.method.name and run.session < FIRST_REPORT_SEED
            # Curves of a trial are recorded once it is judged.
            problem_of = self._scripts.missing_reason if is_of_trial else self._scripts.record
            if not self._scripts.has_curves(name, [run.session]) and problem_of(run):
                return "waiting"  # its files are gone, or lack the requested metrics
            return "done"
        return "waiting" if is_retried else state

    @property
    def num_curves(self) -> int:
        """Number of new curves of scripts."""
        return 0 if self._scripts is None else self._scripts.num_recorded

    @property
    def progress_by_title(self) -> Mapping[str, Sequence[str]]:
        """Progress of running scripts, by the title of their method."""
        texts_by_method = self._commands.progress_by_method() if self._commands is not None else {}
        return {self._file.method(name).title: texts for name, texts in texts_by_method.items()}

    def _add_finished(self, ledger: Ledger, subject: Subject, cases: Sequence[CaseInfo]) -> None:
        """Adds the evaluations of a subject to the experiment, so that tables have them while the experiment runs.

        Those on fresh seeds are added at the end, because searches choose fresh seeds by those that the experiment has.
        """
        ledger.add_memberships(
            self.experiment_id,
            [member for member in self._members_of(subject, cases) if member.session < FIRST_REPORT_SEED],
            programs=ledger.accepted_programs(self._expected),
            codes={case.key: case.code for case in cases},
        )

    def _add_recorded_curves(self, ledger: Ledger) -> None:
        """Adds the curves of scripts to the experiment; those on fresh seeds at the end, as in `_add_finished`."""
        members_so_far = [member for member in self._members_of_scripts() if member.session < FIRST_REPORT_SEED]
        ledger.add_memberships(self.experiment_id, members_so_far, programs=[IMPORTED.key])

    def end(self, ledger: Ledger, watch_plan: WatchPlan) -> None:
        """Adds the recorded evaluations to the experiment, and counts them."""
        if self.curves is not None:
            cases = {case.identity: case for case in watch_plan.cases_by_key.values()}
            self.curves.record(ledger, self.experiment_id, list(cases.values()), self._log)
        members_of_scripts = list(self._members_of_scripts())
        ledger.add_memberships(self.experiment_id, members_of_scripts, programs=[IMPORTED.key])
        planned_members = list(self._members(watch_plan))
        cases_by_key = watch_plan.cases_by_key
        codes = {key: case.code for key, case in cases_by_key.items()}
        plan = Plan(ledger.history(watch_plan.programs, keeps_code=self._keep_results))
        rows = [
            replace(member, evaluation=part)
            for member in planned_members
            for part in plan.split_parts(member.evaluation)
            if member.session in part.block.seeds
        ]
        ledger.add_memberships(self.experiment_id, rows, programs=watch_plan.programs, codes=codes)
        wanted_parts = {part for member in planned_members for part in plan.split_parts(member.evaluation)}
        self.planned_evaluations = frozenset(wanted_parts)
        num_script_members = len({member.evaluation for member in members_of_scripts})
        num_current = sum(plan.is_current(part, cases_by_key[part.case_key]) for part in wanted_parts)
        self.num_done = num_current + num_script_members
        self.num_planned = len(wanted_parts) + num_script_members + self._num_expected(watch_plan)

    def _num_expected(self, watch_plan: WatchPlan) -> int:
        """Returns the expected number of evaluations of commands without a checkpoint yet, one checkpoint each."""
        cases = next(iter(watch_plan.cases.values()), ())
        begun_runs = {
            (role.name, role.trial) for subject in watch_plan.subjects for role in self._method_index.roles_of(subject)
        }
        states = self._commands.states if self._commands is not None else {}
        script_runs = {run.id for run in self._method_index.runs if run.is_script}
        searched_methods = {
            search.method.name for search in self._method_index.searches if search.method.kind == "script"
        }
        waiting_runs = [
            run
            for run, state in states.items()
            if state not in WITHOUT_CHECKPOINT
            and (run.method, run.session) not in begun_runs
            and run not in script_runs
            and run.method.partition("/")[0] not in searched_methods
        ]
        num_blocks = sum(len(case.blocks()) for case in cases)
        num_open_scripts = sum(states.get(run) in ("waiting", "running") for run in script_runs)
        num_searched = sum(search.num_expected(cases) for search in self._method_index.searches)
        return len(waiting_runs) * num_blocks + num_open_scripts + num_searched

    def _members_of_scripts(self) -> Iterator[SessionMember]:
        """Yields the curves of scripts, and of completed trials of searches over scripts."""
        assert self._scripts is not None, "a run that began"
        for method in self._method_index.scripts:
            rows = self._scripts.rows(script_name(method))
            yield from script_members(method.name, 0, rows, self._file.experiment.sessions)
        for search in self._method_index.searches:
            if isinstance(search, ScriptSearch):
                yield from search.members()

    def _members(self, watch_plan: WatchPlan) -> Iterator[SessionMember]:
        for subject in watch_plan.subjects:
            yield from self._members_of(subject, watch_plan.cases.get(subject.variant.key, ()))

    def _members_of(self, subject: Subject, cases: Sequence[CaseInfo]) -> Iterator[SessionMember]:
        for role in self._method_index.roles_of(subject):
            yield from session_members(role.name, subject.sha256, cases, role.sessions, trial=role.trial)

    def snapshot(self, rows: Sequence[EvaluationRow]) -> Snapshot:
        """Returns a snapshot of evaluations by method, as tables of the store read them."""
        memberships = [
            Membership(
                method=role.name,
                trial=role.trial,
                session=seed,
                evaluation=EvaluationId(row.key.checkpoint_sha256, row.case.key, row.key.seed_block),
                program=row.key.program_version,
                code=row.key.code,
            )
            for row in rows
            for subject in row.sightings
            for role in self._method_index.roles_of(subject)
            for seed in row.key.seed_block.seeds
            if role.sessions is None or seed in role.sessions
        ]
        if self._ledger is not None:  # rows of events do not say where the suites lie
            rows = [replace(row, case=self._ledger.with_suite_places(row.case)) for row in rows]
        current_cases = self._ledger.current_cases(rows) if self._ledger is not None else None
        return snapshot_of_members(
            Snapshot.of(self._method_index.store, rows, current=current_cases), self._file.text, memberships
        )

    def plan(self, cases: Sequence[CaseInfo]) -> tuple[Mapping[str, int], Sequence[EvaluationRow]]:
        """Returns the number of evaluations of each method on these cases, by title, and the stored evaluations.

        Stored evaluations in other seed blocks, or of code that was edited since, are left out, because they will not
        count at the end.

        Args:
          cases: Cases with the bindings of one method. Cases of other methods have other keys and the same blocks.
        """
        assert self._ledger is not None, "a run that began"
        programs = self._ledger.accepted_programs(self._expected)
        # The first known cases may be parts of trainings (`Case.stop_after`), but only whole trainings count.
        blocks = {case.whole or case.identity: case.blocks() for case in cases}
        plan = Plan(self._ledger.history(programs))

        def is_planned(row: EvaluationRow) -> bool:
            block, planned_blocks = row.key.seed_block, blocks.get(row.key.case_identity, ())
            if row.key.program_version == IMPORTED.key:  # curves made elsewhere have a block for each seed
                return {seed for seed_block in planned_blocks for seed in seed_block.seeds}.issuperset(block.seeds)
            whole_evaluations = (
                EvaluationId(row.key.checkpoint_sha256, row.case.key, seed_block) for seed_block in planned_blocks
            )
            return any(part.block == block for evaluation in whole_evaluations for part in plan.split_parts(evaluation))

        rows = [
            row
            for row in self._ledger.evaluations(codes={case.key: case.code for case in cases})
            if row.key.program_version in programs
            and not (self._retry_errors and row.outcome in ERRORS)
            and is_planned(row)
        ]
        edited_codes = {} if self._keep_results else edited_code(self._ledger, rows)
        rows = [row for row in rows if row.key.code not in edited_codes]
        return self._method_index.num_planned_by_title(cases), rows
