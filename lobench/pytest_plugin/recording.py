"""Recording on the controller: results from reports into one ledger, and the closing table."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lobench.core.case import SeedBlock
from lobench.core.code import changed_code_line
from lobench.core.errors import LobenchError
from lobench.core.metric import final_columns
from lobench.core.program import EVALUATOR_PROGRAMS, Program
from lobench.core.result import Curves, EvaluationKey, mean_of
from lobench.core.wording import cause
from lobench.experiments.pytest_items import EXPERIMENT
from lobench.plugins import BrokenPlugin
from lobench.pytest_plugin.item_result import CURRENT_JOB, ItemResult
from lobench.report.tables.text import text_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lobench.core.subject import Subject, SubjectKey
    from lobench.engine.store.ledger import Ledger

__all__ = ["SessionRecorder"]


class SessionRecorder:
    """Collects the evaluations of a session, as the only writer of its ledger, also under xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._item_results: list[ItemResult] = []
        self._method_of_result: list[str] = []  # method of each of these, in experiments
        self._experiment_sessions = _ExperimentSessions(config)
        self._ledger: Ledger | None = None
        self._position_by_subject: dict[Subject, int] = {}
        self._plan: Mapping[str, Any] | None = None  # plan of the session's cases
        self._whole_suites: tuple[Sequence[str], bool] = (), False  # fields of `WholeSuites`
        self._programs: set[str] = set()
        self._code_changes: list[tuple[str, str]] = []  # code of stored results made by other code, and today's code
        self._codes: dict[str, dict[str, str]] = {}  # parts of the user's code, by fingerprint
        self._store_problem = ""
        self._code_changes_line, self._data_changes_line = "", ""
        self._data_files_by_path: dict[str, set[str]] = {}  # data files that the code of a case names, by its gin file
        self._ledger_problems: list[str] = []  # reported by the ledger when it was opened
        # Callers that made jax's backend before an evaluation, so that evaluations ran in another process.
        self._backend_makers: set[str] = set()

    @property
    def store(self) -> Path | None:
        """Folder of the session's store; None if nothing was stored in it."""
        return self._ledger.store if self._ledger is not None and not self._store_problem else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from lobench.pytest_plugin.options import PLUGIN_MANAGER, register_conftests

        manager = self._config.stash.get(PLUGIN_MANAGER, None)
        if manager is not None:
            register_conftests(self._config, manager)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._plan is None and (plan := getattr(report, "lobench_plan", None)) is not None:
            self._plan, self._whole_suites = plan, report.lobench_whole
        records: list[bytes] = getattr(report, "lobench", [])
        if not records or hasattr(self._config, "workerinput") or CURRENT_JOB in self._config.stash:
            return  # an xdist worker's report reaches the controller; a watch's worker sends its own
        self._backend_makers |= {maker for maker in (getattr(report, "lobench_apart", ""),) if maker}
        self._codes |= getattr(report, "lobench_codes", {})
        spec, files = getattr(report, "lobench_data", ("", ()))
        self._data_files_by_path.setdefault(spec, set()).update(files)
        self._code_changes += [
            (stored_code, current_code) for stored_code, current_code in getattr(report, "lobench_other_code", [])
        ]
        method, session = getattr(report, "lobench_member", None) or ("", 0)
        for record in records:
            item_result = ItemResult.from_bytes(record)
            subject = None
            if method:
                try:
                    subject = self._experiment_sessions.subject(method)
                except LobenchError:
                    return  # the report has the error
            if not method or self._experiment_sessions.should_record(method, item_result):
                self._item_results.append(item_result)
                self._method_of_result.append(method)
                self.record(item_result, subject)
            if method and self._ledger is not None and not self._store_problem:
                with self._noting_store_errors():
                    self._experiment_sessions.add_evaluation(self._ledger, method, session, item_result)

    def record(self, item_result: ItemResult, subject: Subject | None = None) -> None:
        """Writes an evaluation of a subject into the ledger. None: the session's own subject."""
        if not self._store_problem:
            with self._noting_store_errors():
                self._record(item_result, subject)

    def record_event(self, kind: str, **detail: Any) -> None:
        """Writes an event into the ledger, if there is one."""
        if self._ledger is not None and not self._store_problem:
            with self._noting_store_errors():
                self._ledger.record_event(kind, **detail)

    @contextlib.contextmanager
    def _noting_store_errors(self) -> Iterator[None]:
        """Keeps an error of the store for the summary, so that the tests continue."""
        try:
            yield
        except LobenchError as error:
            self._store_problem = str(error)

    def _record(self, item_result: ItemResult, subject: Subject | None) -> None:
        from lobench.engine.store.current import WholeSuites, codes_by_place, forms_by_place
        from lobench.engine.store.plans import suite_plan
        from lobench.pytest_plugin.options import subject_of

        is_session_subject = subject is None
        subject = subject or subject_of(self._config).subject
        if self._ledger is None:
            self._ledger = self._open_ledger(item_result.case.suite)
        if subject not in self._position_by_subject:
            if subject.has_theta:
                self._ledger.update_moved_paths(subject.uri)
            self._position_by_subject[subject] = self._ledger.record_sighting(subject)
            self._ledger.record_admission(self._position_by_subject[subject], "admitted")
        if self._plan is not None:
            plan = self._plan if is_session_subject else suite_plan([item_result.case], self._plan["files"])
            names, with_tests = self._whole_suites
            whole_suites = WholeSuites(tuple(names), with_tests) if is_session_subject else WholeSuites()
            self._ledger.record_plan(subject, plan, _expected_programs(), whole_suites)
        else:  # `lobench run` writes an experiment's plan; the cases of this session become current in addition
            make_plan = functools.partial(suite_plan, [item_result.case], {})
            forms = forms_by_place([item_result.case])
            codes = codes_by_place([item_result.case])
            self._ledger.record_current(subject.variant.key, forms, make_plan, _expected_programs(), codes)
        self._ledger.record_code(self._codes)
        curves = Curves.from_payload(item_result.payload) if item_result.payload else None
        program = _program_of(item_result)
        self._programs.add(program.key)
        self._ledger.record_evaluation(
            EvaluationKey.of(subject.sha256, item_result.case, item_result.seed_block, program.key),
            item_result.case,
            item_result.outcome,
            curves=curves,
            message=item_result.message,
            replace=True,
            program=program,
        )

    def _open_ledger(self, suite: str) -> Ledger:
        from lobench.analysis.scores.baseline_places import record_suites
        from lobench.engine.store.ledger import Ledger
        from lobench.pytest_plugin.reuse import store_path, suites_of_session

        path = store_path(self._config, suite)
        ledger = Ledger.open(path, name=path.name, on_problem=self._ledger_problems.append)
        record_suites(ledger, suites_of_session(self._config))
        return ledger

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        from lobench.pytest_plugin.options import option

        self._end_ledger()
        # Without the option, tests count and results are a by-product.
        is_store_requested = bool(option(self._config, "store"))
        if self._store_problem and is_store_requested and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def _end_ledger(self) -> None:
        if self._ledger is not None:
            with self._noting_store_errors():
                is_kept = bool(self._config.getoption("lobench_keep_results"))
                if is_kept:
                    self._ledger.accept_code(self._code_changes)
                if self._code_changes:
                    self._code_changes_line = changed_code_line(
                        self._code_changes, self._ledger.code_parts, is_kept=is_kept
                    )
                try:
                    self._record_data_files(self._ledger)
                except OSError as error:  # results count without it
                    self._ledger_problems.append(f"cannot look at the data files: {cause(error)}")
                codes = {item_result.case.key: item_result.case.code for item_result in self._item_results}
                for position in self._position_by_subject.values():
                    self._ledger.finish_checkpoint(
                        position, programs=self._programs, case_keys=codes.keys(), codes=codes
                    )
                self._ledger.close()

    def _record_data_files(self, ledger: Ledger) -> None:
        """Records the data files of the session's suites, with a line if some have changed."""
        from lobench.engine.store.data_files import changed_data, record_named_data

        is_reused = self._config.getoption("lobench_reuse")
        results_note = "the results are kept" if is_reused else "results that this session did not train are kept"
        suites = sorted(filter(None, self._data_files_by_path))
        junit_path = self._config.getoption("xmlpath", None) or ""  # the file of `--junitxml` may be next to a gin file
        self._data_changes_line = changed_data(ledger, suites, junit_path, about_results=results_note)
        for suite in suites:
            record_named_data(ledger, [suite], map(Path, sorted(self._data_files_by_path[suite])))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from lobench.pytest_plugin.options import PLUGIN_MANAGER

        if not self._item_results:
            return
        terminalreporter.section("lobench")
        results = [
            Curves.from_payload(item_result.payload) for item_result in self._item_results if item_result.payload
        ]
        added_metrics = {name for curves in results for name in curves.added or ()}
        final_titles = final_columns(
            (item_result.case.primary_metric for item_result in self._item_results), added_metrics
        )
        rows = [(*_HEADER[:3], *final_titles.values(), *_HEADER[3:])]
        rows += [
            _summary_row(*pair, final_titles) for pair in zip(self._method_of_result, self._item_results, strict=True)
        ]
        terminalreporter.write_line(text_table(_without_empty_columns(rows), left={0}))
        manager = self._config.stash.get(PLUGIN_MANAGER, None)
        broken_plugins = [
            f"plugin {plugin}" for plugin in (manager.broken if manager else ()) if _affects_sessions(plugin)
        ]
        for line in dict.fromkeys([*broken_plugins, *(line for curves in results for line in curves.problems)]):
            terminalreporter.write_line(line, yellow=True)
        for maker in sorted(self._backend_makers):
            terminalreporter.write_line(
                f"evaluated in a process of its own, since jax's backend was made before by {maker}"
            )
        for line in self._ledger_problems:
            terminalreporter.write_line(line, yellow=True)
        if self._store_problem:
            terminalreporter.write_line(f"results were not stored: {self._store_problem}", red=True)
        elif self._ledger is not None:
            terminalreporter.write_line(f"results: lobench results --store {shlex.quote(str(self._ledger.store))}")
        for line in filter(None, (self._code_changes_line, self._data_changes_line)):
            terminalreporter.write_line(line)
        if self._config.getoption("lobench_reuse"):
            terminalreporter.write_line("results that were stored already are reused (--lobench-reuse)")


_HEADER = ("case", "seeds", "outcome", "best", "diverged", "exploded", "steps/s", "compile s")


def _without_empty_columns(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns rows without the columns in which no row has a value; all columns if every evaluation failed."""
    header, *value_rows = rows
    are_shown = [any(row[index] not in ("", "-") for row in value_rows) for index in range(len(header))]
    has_values = any(are_shown[len(_HEADER[:3]) :])
    return [
        tuple(cell for cell, is_column_shown in zip(row, are_shown, strict=True) if is_column_shown or not has_values)
        for row in rows
    ]


def _affects_sessions(broken_plugin: BrokenPlugin) -> bool:
    """Returns whether a session would use a broken plugin. A plugin that does not import might declare anything."""
    return not broken_plugin.imports or broken_plugin.distribution in ("lobench_metrics", "lobench_gin_modules")


def _summary_row(method: str, item_result: ItemResult, final_metrics: Collection[str]) -> tuple[str, ...]:
    name = f"{item_result.case.suite}/{item_result.case.name}" + (f" {method}" if method else "")
    seeds = "items" if item_result.case.has_items else item_result.seed_block.seed_range_text
    if not item_result.payload:
        return (name, seeds, str(item_result.outcome), *("",) * (len(final_metrics) + 5))
    curves = Curves.from_payload(item_result.payload)

    def mean_text(values: list[float]) -> str:
        return f"{mean_of(values):.4g}"

    primary_metric = item_result.case.primary_metric
    steps_per_second = item_result.case.num_inner_steps * len(curves.seeds) / max(curves.wall_seconds, 1e-9)
    is_trained = not item_result.case.evaluator
    return (
        name,
        seeds,
        str(item_result.outcome),
        *(mean_text(curves.final(name)) if name in curves.metrics else "-" for name in final_metrics),
        mean_text(curves.best(primary_metric)) if curves.direction(primary_metric) is not None else "-",
        str(curves.num_diverged),
        str(curves.num_exploded(item_result.case)),
        f"{steps_per_second:,.0f}" if is_trained else "-",
        f"{curves.compile_seconds:.2f}" if is_trained else "-",
    )


def _program_of(item_result: ItemResult) -> Program:
    """Returns the program that computed an evaluation, or the expected one if the evaluation gave no curves."""
    from lobench.engine.store.programs import program_here

    if item_result.case.evaluator:
        return EVALUATOR_PROGRAMS[item_result.case.evaluator]
    if item_result.payload:
        return Program.of(Curves.from_payload(item_result.payload).provenance)
    return program_here(num_gpus=item_result.case.num_gpus)


@functools.cache  # per process
def _expected_programs() -> frozenset[str]:
    """Returns the keys of the programs that this machine is expected to compute results with."""
    from lobench.engine.store.programs import ExpectedProgram

    return frozenset(program.key for program in ExpectedProgram().all_programs())


class _ExperimentSessions:
    """The recorder's part for experiments: several items, one per session, belong to one evaluation."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._has_curves_by_key: dict[tuple[SubjectKey, str, SeedBlock], bool] = {}
        self._experiment_id: int | None = None

    def subject(self, method: str) -> Subject:
        """Returns the subject that the items of a method evaluate.

        Raises:
          CheckpointError: The checkpoint cannot be read.
        """
        from lobench.pytest_plugin.options import subject_of

        return subject_of(self._config, method).subject

    def should_record(self, method: str, item_result: ItemResult) -> bool:
        """Returns whether to record an evaluation: at its first session, and again if only a later one has curves."""
        key = (self.subject(method).key, item_result.case.key, item_result.seed_block)
        if self._has_curves_by_key.get(key) or (key in self._has_curves_by_key and not item_result.payload):
            return False
        self._has_curves_by_key[key] = bool(item_result.payload)
        return True

    def add_evaluation(self, ledger: Ledger, method: str, session: int, item_result: ItemResult) -> None:
        """Adds a recorded evaluation to a method's session, in the same version of the experiment as `lobench run`."""
        from lobench.core.experiment import SessionMember
        from lobench.core.planner import EvaluationId
        from lobench.engine.config.origin import revision_of
        from lobench.engine.store.provenance import versions_here

        file = self._config.stash[EXPERIMENT].file
        if self._experiment_id is None:
            revision = revision_of(file.path.parent)
            self._experiment_id = ledger.record_experiment(
                file.experiment.name, file.text, revision=revision, versions=versions_here()
            )
            ledger.keep_unchanged(self._experiment_id, [method.name for method in file.experiment.methods])
        evaluation = EvaluationId(self.subject(method).sha256, item_result.case.key, item_result.seed_block)
        member = SessionMember(method=method, trial=0, session=session, evaluation=evaluation)
        ledger.add_memberships(
            self._experiment_id,
            [member],
            programs=[_program_of(item_result).key],
            codes={item_result.case.key: item_result.case.code},
        )
