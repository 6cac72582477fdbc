"""Scripts: commands that write curves. The curves are read while they grow, and recorded at the end."""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.analysis.comparisons.event_numbers import evaluation_row_of
from lobench.analysis.scores.trial_fitness import fitness_of_sessions
from lobench.api.settings import ImportSettings
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import LobenchError
from lobench.core.experiment import Experiment, Method, SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.program import IMPORTED
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.engine.chief.commands import CommandRun
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.workers.placeholders import fill_placeholders
from lobench.hookspecs import EvaluationFinished

if TYPE_CHECKING:  # slow to import, and only needed for scripts
    from lobench.tools.curve_import.growing import SessionCurves, SessionFiles
    from lobench.tools.curve_import.spill import Curve

__all__ = ["CurveProgress", "ScriptCurves", "num_report_sessions", "script_members", "script_name"]

_HASH_DIGITS = 4  # digits of the hash of the import settings
_MAX_READ_FRACTION = 0.1  # largest fraction of the time that is spent on reading files
_UNTIL_OPTION = "Method.until_step"


def script_name(method: Method) -> str:
    """Returns the name of a script's curves in a store. It depends on the script's values and the import settings."""
    import_settings = json.dumps(([*method.metrics], method.until_step, method.paired_seeds))
    return f"{method.folder_name}-{hashlib.sha256(import_settings.encode()).hexdigest()[:_HASH_DIGITS]}"


def _script_subject(method: Method, suffix: str = "") -> Subject:
    """Returns the subject of a script's curves. Its label is the title of the method.

    Args:
      suffix: As in `ScriptCurves.record`.
    """
    return replace(Subject.of_imported(f"{script_name(method)}{suffix}"), label=f"{method.title}{suffix}")


def script_members(
    method: str, trial: int, rows: Sequence[EvaluationRow], sessions: Collection[int] | None
) -> Iterator[SessionMember]:
    """Yields the curves of a script as members of an experiment.

    Args:
      method: Name of the method.
      trial: Number of the trial; 0 without a search.
      rows: Curves of the script in the ledger.
      sessions: Numbers of the sessions that count. None: all.
    """
    for row in rows:
        block = row.key.seed_block
        if sessions is None or block.start in sessions:
            evaluation = EvaluationId(row.key.checkpoint_sha256, row.case.key, block)
            yield SessionMember(method=method, trial=trial, session=block.start, evaluation=evaluation)


def num_report_sessions(method: Method, num_sessions: int) -> int:
    """Returns the number of sessions on fresh seeds that the best trial of a script has."""
    return num_sessions if method.report_sessions is None else method.report_sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveProgress:
    """Progress of the curves of a session.

    Attributes:
      curves: Curve of the primary metric, by case.
      text: Text for people: `mine-0 at step 300: val/loss 0.41, score 0.62`.
    """

    curves: Mapping[str, Curve]
    text: str

    def last_steps_until(self, point: int) -> dict[str, int] | None:
        """Returns the last step up to `point`, by case. None until each case has reached the point or diverged."""
        last_steps = {}
        for case, curve in self.curves.items():
            steps_so_far = curve.steps[curve.steps <= point]
            if not steps_so_far.size or not (curve.steps[-1] >= point or curve.ends_diverged):
                return None
            last_steps[case] = int(steps_so_far[-1])
        return last_steps


class ScriptCurves:
    """Reads and records the curves that scripts write.

    Args:
      ledger: Ledger that receives the curves.
      own_cases: Cases that lobench trains in this experiment. Scripts may have curves on them too.
      log: Receives notes for people.
      on_recorded: Called with each session's curves once they are recorded.

    Attributes:
      num_recorded: Number of new curves.
      num_running: Number of running scripts, which share the time for reading their files.
    """

    def __init__(
        self,
        ledger: Ledger,
        experiment: Experiment,
        own_cases: Sequence[CaseInfo],
        log: Callable[[str], None],
        on_recorded: Callable[[EvaluationFinished], None],
    ) -> None:
        self._ledger = ledger
        self._experiment = experiment
        self._own_cases = own_cases
        self._log, self._on_recorded = log, on_recorded
        self._growth_by_folder: dict[Path, CurveProgress] = {}
        # By folder: the state of the files at the last look, and the time of the next look.
        self._last_reads: dict[Path, tuple[object, float]] = {}
        self._logged_lines: set[str] = set()
        self.num_recorded = self.num_running = 0
        self._has_read_files = False

    def record(self, run: CommandRun, *, suffix: str = "", end_steps: Mapping[str, int] | None = None) -> str:
        """Records the curves of a session. Returns the reason if that fails; "" otherwise.

        Args:
          run: Session of a script.
          suffix: Suffix of the name of curves that are cut. A part of a training is not a member of an experiment.
          end_steps: Steps at which curves are cut, by case.
        """
        from lobench.tools.curve_import.imports import ImportedSession, import_into

        name = f"{script_name(run.method)}{suffix}"
        subject = _script_subject(run.method, suffix)
        last_step = None if end_steps is None else max(end_steps.values())
        try:
            with self._read_curves(run, name, last_step=last_step) as session_curves:
                end_by_case = self._end_steps(run, session_curves) if end_steps is None else end_steps
                num_steps = run.method.until_step if last_step is None else last_step
                session = ImportedSession(seed=run.session, num_steps=num_steps, end_steps=end_by_case)
                with self._ledger.transaction():
                    import_counts, evaluations = import_into(
                        self._ledger,
                        session_curves,
                        session_curves.settings,
                        own_cases=self._own_cases,
                        until_option=_UNTIL_OPTION,
                        session=session,
                    )
                    self._ledger.record_sighting(subject)  # records the label that tables show
                for note in session_curves.notes:
                    self._log_once(note)
        except LobenchError as error:
            return str(error)
        if not suffix:
            recorded_keys = {(key.seed_block, case.key) for key, case in evaluations}
            self.num_recorded += import_counts.num_new + import_counts.num_replaced
            for row in self.rows(name):
                if (row.key.seed_block, row.case.key) in recorded_keys:
                    self._on_recorded(
                        EvaluationFinished(
                            subject=subject,
                            case=row.case,
                            seed_block=row.key.seed_block,
                            outcome=Outcome.PASSED,
                            curves=row.curves,
                        )
                    )
        return ""

    def missing_reason(self, run: CommandRun) -> str:
        """Returns the reason why a session's files contain no curves; "" if they contain some."""
        try:
            with self._read_curves(run, script_name(run.method)):
                return ""
        except LobenchError as error:
            return str(error)

    def has_curves(self, name: str, sessions: Collection[int]) -> bool:
        """Returns whether the ledger has the curves of all sessions."""
        return {row.key.seed_block.start for row in self.rows(name)}.issuperset(sessions)

    def rows(self, name: str) -> list[EvaluationRow]:
        """Returns the evaluations in the ledger that have the curves of a script, or of a part of it."""
        evaluations = self._ledger.evaluations(Subject.of_imported(name).sha256)
        return [row for row in evaluations if row.key.program_version == IMPORTED.key]

    def fitness(self, name: str, sessions: Collection[int]) -> float | None:
        """Returns the fitness of stored curves over sessions; None if a session lacks curves, or a case a scale."""
        return self._fitness(self.rows(name), sessions)

    def _fitness(self, rows: Sequence[EvaluationRow], sessions: Collection[int]) -> float | None:
        try:
            return fitness_of_sessions(rows, sessions, self._experiment.suites)
        except LobenchError as error:
            self._log_once(str(error))
            return None

    def progress(self, run: CommandRun, *, is_over: bool = False) -> CurveProgress | None:
        """Returns the progress of a session; None before its first value. Files are read only if they have changed.

        Args:
          run: Session of a script.
          is_over: Whether the script has ended. If so, files are read now, even if they were read a moment ago.
        """
        files = self._files(run)
        last_state, next_look = self._last_reads.get(run.folder, (None, -math.inf))
        started_at = time.monotonic()
        if started_at < next_look and not is_over:
            return self._growth_by_folder.get(run.folder)
        if (new_state := files.state) != last_state and new_state:
            try:
                with self._read_curves(run, script_name(run.method), last_step=run.method.until_step) as session_curves:
                    self._growth_by_folder[run.folder] = CurveProgress(
                        curves=session_curves.primary_curves(), text=self._progress_text(run, session_curves)
                    )
            except (LobenchError, OSError) as error:
                if any(size for _, size, _ in new_state):  # a growing file may become readable; only its end counts
                    self._log_once(f"{run.method.title}: its curves cannot be read so far: {error}")
        seconds = time.monotonic() - started_at if self._has_read_files else 0.0  # the first look imports what it needs
        self._has_read_files = self._has_read_files or new_state != last_state
        self._last_reads[run.folder] = (
            new_state,
            time.monotonic() + seconds / _MAX_READ_FRACTION * max(self.num_running, 1),
        )
        return self._growth_by_folder.get(run.folder)

    def _progress_text(self, run: CommandRun, session_curves: SessionCurves) -> str:
        from lobench.tools.curve_import.imports import curves_of_session

        curves_by_case = list(
            curves_of_session(self._ledger, session_curves, own_cases=self._own_cases, seed=run.session)
        )
        case, curves = curves_by_case[-1]
        block = SeedBlock(start=run.session, size=1)
        subject = Subject.of_imported(session_curves.settings.method)
        rows = [
            evaluation_row_of(
                EvaluationFinished(
                    subject=subject, case=case_info, seed_block=block, outcome=Outcome.PASSED, curves=curves_of_case
                ),
                0.0,
            )
            for case_info, curves_of_case in curves_by_case
        ]
        value = curves.final(case.primary_metric)[0]
        score = self._fitness(rows, [run.session])
        score_text = "" if score is None else f", score {score:.3g}"
        return f"{run.label} at step {curves.eval_steps[-1]}: {case.primary_metric} {value:.4g}{score_text}"

    def _end_steps(self, run: CommandRun, session_curves: SessionCurves) -> dict[str, int]:
        """Returns the step at which the curves of each case end: where they diverged, or `Method.until_step`."""
        end_by_case = {}
        for case, curve in session_curves.primary_curves().items():
            if curve.ends_diverged:
                end_by_case[case] = int(curve.steps[-1])
            elif run.method.until_step is not None:
                end_by_case[case] = run.method.until_step
        return end_by_case

    def _read_curves(
        self, run: CommandRun, name: str, *, last_step: int | None = None
    ) -> AbstractContextManager[SessionCurves]:
        method = run.method
        settings = ImportSettings(
            method=name,
            seed=str(run.session),
            metrics=tuple(method.metrics),
            paired_seeds=method.paired_seeds,
            last_counts=True,
        )
        return self._files(run).read(settings, until=last_step if last_step is not None else method.until_step)

    def _files(self, run: CommandRun) -> SessionFiles:
        from lobench.tools.curve_import.growing import SessionFiles

        values = {name: glob.escape(value) for name, value in run.placeholder_values.items()}
        return SessionFiles(
            os.path.normpath(glob.escape(str(run.working_folder)) / Path(fill_placeholders(run.method.curves, values)))
        )

    def _log_once(self, line: str) -> None:
        if line not in self._logged_lines:
            self._logged_lines.add(line)
            self._log(line)
