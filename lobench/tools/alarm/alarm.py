"""`lobench.alarm`: follows a watched run, confirms suspicions on fresh seeds, and reports alarms."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from lobench.api.components import make_sinks, plugins_of
from lobench.api.evaluate import StoreEvaluator
from lobench.api.fresh_seeds import names_on_fresh_seeds, note_on_fixed_seeds
from lobench.api.resolve import is_store
from lobench.api.settings import EvaluationKeywords, WatchSettings, as_texts, command_text
from lobench.api.watched_run import WatchedRun
from lobench.core.case import common_replicate_noun
from lobench.core.containment import contain_plugins
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.settings_field import changed_fields, check_keywords, keywords_in, settings_from
from lobench.core.subject import Subject
from lobench.core.wording import cause, headline, one_line, shortened_list
from lobench.engine.checkpoints.kept import kept_copies_folder, readable_location
from lobench.engine.checkpoints.spool import holds_theta
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.group_files import open_to_group
from lobench.engine.store.database import StoreLock
from lobench.engine.store.delivery import notify
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.network import READS_LOCAL_COPY
from lobench.engine.whole_file import write_whole
from lobench.hookspecs import AlarmRaised, Delivery, ResultSink
from lobench.plugins import PluginManager
from lobench.report.live.notebook_progress import default_progress
from lobench.tools.alarm.alarm_rules import AlarmKeywords, AlarmRules
from lobench.tools.alarm.evidence import StoredRun, confirmation_block, read_run
from lobench.tools.alarm.raised import RECORD_FILE, read_record
from lobench.tools.alarm.rule import Alarm, AlarmKind, Confirmation, Stall, SuspectThenConfirm, detector_of, parse_kinds

__all__ = ["AlarmResult", "alarm"]

_TRAINED_ROLE, _HELD_OUT_ROLE = "meta_train", "meta_test"
_MAX_NAMED_CASES = 4  # cases named in a line


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmResult:
    """Result of `alarm`.

    Attributes:
      kinds: Kinds of alarms that were looked for.
      rules: Rules of the alarms.
      store: Store of the watch.
      num_checkpoints: Number of finished checkpoints.
      num_without_score: Number of checkpoints that lack a score on one of their cases, for example after errors. No
        kind can judge them.
      alarms: The alarms, by position in the run.
      events: One event per alarm, including alarms that earlier calls reported.
      num_confirmations: Number of confirmations by kind. For a stall, the number of windows that were looked at.
      command: Command line that repeats the call.
      other_code: Note on results that are left out because another version of the user's code computed them.
    """

    kinds: tuple[AlarmKind, ...]
    rules: AlarmRules
    store: Path
    num_checkpoints: int
    num_without_score: int
    alarms: tuple[Alarm, ...]
    events: tuple[AlarmRaised, ...]
    num_confirmations: Mapping[str, int]
    command: str
    other_code: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared: no checkpoint has a score, or other code made all results."""
        return self.num_checkpoints == self.num_without_score and bool(self.num_checkpoints or self.other_code)


def alarm(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    kinds: Sequence[str] = ("regress",),
    on_alarm: str = "",
    is_over: Callable[[], bool] | None = None,
    name: str = "",
    store: str | Path | None = None,
    progress: WatchProgress | None = None,
    **options: Unpack[AlarmKeywords],
) -> AlarmResult:
    """Checks each checkpoint that a watch has finished, in order of outer steps, and reports where the run got worse.

    All decisions follow from the watch's store and from STORE/alarm. After an interruption, the same call continues
    with the same decisions, and no alarm is reported twice.

    Example:
        alarmed = lobench.alarm("runs/today", "quick", kinds=("regress", "stall"))
        [event.message for event in alarmed.events]

    Args:
      location: The run's folder. With `store`, it may be a session of an experiment's command, as in `lobench.bisect`.
      suites: Suites of the watch.
      kinds: Kinds of alarms:
        `regress`: worse than the best checkpoint so far, in the mean or on a case;
        `overfit`: more harm on the cases of role `meta_test` than on those of role `meta_train`;
        `stall`: no improvement for a window of checkpoints whose trend is significantly below `least_gain`.
      on_alarm: Shell command to run once for each new alarm. The environment variables LOBENCH_ALARM,
        LOBENCH_OUTER_STEP, LOBENCH_CHECKPOINT, LOBENCH_REFERENCE and LOBENCH_CASES describe the alarm.
      is_over: Waits for a moment, and returns whether the run is over. None: check the finished checkpoints once.
      name: Name of the watch. "": the name of the first suite.
      store: Store of the watch. None: the default store of `lobench.watch`.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench alarm`: `rate`, `margin`, `seeds`, `window` and `least_gain`; and those of an
        evaluation, such as `workers`, the `sinks` that receive alarms, and the `gin_params` of the watch.
    Raises:
      UsageError: An argument is invalid, the run's only store is read-only or another user's, no case has fresh
        seeds, on which `regress` and `overfit` are confirmed, or the bindings of the optimizer are not those of the
        watch, so that nothing can be confirmed.
      StoreError: The run has no store of a watch.
      StoreBusy: Another call follows the run. That of a watch that has ended is waited for.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> lobench.alarm("run", "quadratic.gin").is_empty
    False
    """
    alarm_kinds = parse_kinds(as_texts(kinds))
    check_keywords("alarm", options, AlarmKeywords)
    rules = settings_from(AlarmRules, options)
    watched_run = WatchedRun.find(location, suites, store=store, name=name)
    run = watched_run.run
    suite_paths = watched_run.suites
    folder = watched_run.store
    progress = progress or default_progress()
    if is_over is None:
        watched_run.require_store(progress.log)
        if not is_store(folder):
            raise StoreError("no store of a watch found", where=str(folder), next_step="`lobench watch` makes one")
    manager = plugins_of(suite_paths, progress)
    settings = WatchSettings(
        location=run.location, suites=suite_paths, name=name, sinks=as_texts(options.get("sinks", ()))
    )
    evaluation_options = keywords_in(EvaluationKeywords, {**options, "sinks": ()})  # alarms alone are delivered
    with contextlib.ExitStack() as stack:
        lock = StoreLock(
            folder / "alarm",
            "alarm",
            file="alarm.lock",
            busy_message="another `lobench alarm` follows this run",
            parent=int(watch) if (watch := os.environ.get(READS_LOCAL_COPY)) else None,  # also if it was killed since
            on_wait=lambda holder: progress.log(
                f"waiting until the alarms of a watch that was killed have ended: {holder}"
            ),
        )
        stack.callback(lock.release)
        notifier = _Notifier(folder / RECORD_FILE, manager, make_sinks(settings, manager, folder), on_alarm, progress)
        stack.callback(notifier.close)
        follower = _Follower(
            watched_run=watched_run,
            kinds=alarm_kinds,
            rules=rules,
            progress=progress,
            evaluator=watched_run.evaluator(
                "alarm",
                WatchProgress(),  # keeps its lines out of the watch's output
                evaluation_options,
            ),
            notifier=notifier,
        )
        run_ended = False
        while not run_ended:
            run_ended = is_over is None or is_over()
            stored_run = follower.process_new_checkpoints(is_over=run_ended)
    command = command_text(
        *("lobench", "alarm", str(location)),
        suite=as_texts(suites),
        alarm=",".join(alarm_kinds),
        **changed_fields(rules),
        name=name,
        store=store,
        gin_file=as_texts(options.get("gin_files", ())),
        gin_param=as_texts(options.get("gin_params", ())),
    )
    alarms = follower.alarms
    return AlarmResult(
        kinds=alarm_kinds,
        rules=rules,
        store=folder,
        num_checkpoints=len(stored_run),
        num_without_score=sum(math.isnan(stored_run.mean_score(index, index)) for index in range(len(stored_run))),
        alarms=tuple(alarms),
        events=tuple(follower.make_event(raised, stored_run) for raised in alarms),
        num_confirmations={detector.kind: detector.num_tests for detector in follower.detectors},
        command=command,
        other_code=stored_run.other_code,
    )


class _Follower:
    """Detectors of all kinds along one run."""

    def __init__(
        self,
        *,
        watched_run: WatchedRun,
        kinds: Sequence[AlarmKind],
        rules: AlarmRules,
        progress: WatchProgress,
        evaluator: StoreEvaluator,
        notifier: _Notifier,
    ) -> None:
        self._run = watched_run.run
        self._store = watched_run.store
        self._suites = watched_run.suites
        self._kinds, self._rules = kinds, rules
        self._progress = progress
        self._evaluator = evaluator
        self.notifier = notifier
        self._tried_confirmations: set[tuple[int, str, str]] = set()
        self._paths_by_hash: dict[str, str | None] = {}  # paths of readable thetas by hash, in this look
        self._seen_subjects: tuple[Subject, ...] = ()
        self._known_standings: list[tuple[str, Subject, bool]] = []
        self._last_run: StoredRun | None = None
        self.detectors: list[SuspectThenConfirm | Stall] = []
        self._copies_folder = kept_copies_folder(watched_run.store)
        self._logged_notes: set[str] = set()  # lines on results that are left out

    @property
    def alarms(self) -> list[Alarm]:
        return sorted(
            (raised for detector in self.detectors for raised in detector.alarms),
            key=lambda raised: (raised.position, raised.kind),
        )

    def process_new_checkpoints(self, *, is_over: bool) -> StoredRun:
        """Processes the checkpoints finished since the last look, and reports alarms.

        The whole store is read, so this happens only if the watch has finished a checkpoint.
        """
        standings = self._standings()
        if self._last_run is not None and standings == self._known_standings and not is_over:
            self.notifier.deliver()
            return self._last_run
        self._known_standings = standings
        stored_run = self._read_run(is_over)
        for note, command in (
            (stored_run.other_code, "lobench watch"),
            (stored_run.other_bindings, "lobench watch --checkpoints all"),
        ):
            if note not in ("", *self._logged_notes):
                self._progress.log(f"{note}, and are left out; `{command}` evaluates them again")
                self._logged_notes.add(note)
        self._restart_detectors(stored_run)
        unlike_results_errors = list[UsageError]()
        for detector in self.detectors:
            while (confirmation := self._advance(detector, stored_run)) is not None:
                self._evaluate_fresh_seeds(confirmation, stored_run)
                # Checkpoints finished meanwhile are for the next look, so that positions stay the same.
                new_run = self._read_run(is_over)
                stored_run = replace(
                    stored_run,
                    fresh_results=new_run.fresh_results,
                    unlike_results=new_run.unlike_results,
                    _scores={},
                )
                if stored_run.fresh_samples(confirmation):
                    continue
                if stored_run.has_unlike_results(confirmation):
                    unlike_results_errors.append(_unlike_results_error(confirmation, self._store))
                    continue
                results_command = command_text("lobench", "results", store=self._store / "alarm")
                self._progress.log(
                    f"{confirmation.kind}: cannot be confirmed: no result on fresh seeds; see `{results_command}`"
                )
        for raised_alarm in self.alarms:
            self.notifier.notify_of(
                self.make_event(raised_alarm, stored_run), stored_run.run_names[raised_alarm.position]
            )
        self.notifier.deliver()
        self._copy_best_checkpoints(stored_run)
        self._seen_subjects, self._last_run = stored_run.subjects, stored_run
        for error in unlike_results_errors:
            if is_over and not self.alarms:
                raise error
            self._progress.log(str(error))
        return stored_run

    def _advance(self, detector: SuspectThenConfirm | Stall, stored_run: StoredRun) -> Confirmation | None:
        if isinstance(detector, SuspectThenConfirm):
            detector.can_refer_to = stored_run.can_refer_to
        return detector.advance(stored_run)

    def _standings(self) -> list[tuple[str, Subject, bool]]:
        if not is_store(self._store):
            return []
        with Ledger.open(self._store, read_only=True) as ledger:
            return ledger.run_standings()

    def _read_run(self, is_over: bool) -> StoredRun:
        suites = [Path(suite) for suite in self._suites]
        self._paths_by_hash.clear()
        return read_run(
            self._store,
            self._run,
            suites,
            self._rules.seeds,
            self._tried_confirmations,
            is_over=is_over,
            keeps_results=bool(self._evaluator.options.get("keep_results")),
            is_readable=lambda subject: self._readable_path(subject) is not None,
        )

    def _restart_detectors(self, stored_run: StoredRun) -> None:
        """Restarts the detectors if the checkpoints seen so far are no longer the beginning of the run.

        This happens if the watch evaluated earlier checkpoints too, or if the trainer began again in the same folder.
        There are no detectors while no checkpoint is finished.
        """
        if self.detectors and stored_run.subjects[: len(self._seen_subjects)] == self._seen_subjects:
            return
        self.detectors = []
        if not stored_run.subjects:
            return
        cases_by_role: dict[str, list[str]] = {}
        for identity, case in stored_run.cases.items():
            cases_by_role.setdefault(case.role, []).append(identity)
        held_out_cases, trained_cases = (cases_by_role.get(role, []) for role in (_HELD_OUT_ROLE, _TRAINED_ROLE))
        if "overfit" in self._kinds and not (held_out_cases and trained_cases):
            raise UsageError(
                "overfit needs cases of both roles",
                where=", ".join(self._suites),
                got=", ".join(f"{len(cases)} of role {role or 'none'}" for role, cases in cases_by_role.items()),
                expected=f"Suite.role or Suite.roles: {_TRAINED_ROLE} and {_HELD_OUT_ROLE}",
            )
        confirmed_kinds = [kind for kind in self._kinds if kind != "stall"]
        if confirmed_kinds and (note := note_on_fixed_seeds(stored_run.cases.values())):
            if not names_on_fresh_seeds(stored_run.cases.values()):
                raise UsageError(
                    f"{', '.join(confirmed_kinds)}: a suspicion is confirmed on fresh seeds, and no case has them",
                    where=", ".join(self._suites),
                    got=note,
                    next_step="`--alarm stall` needs none",
                )
            self._progress.log(note)
        self.detectors = [detector_of(kind, self._rules, held_out_cases, trained_cases) for kind in self._kinds]

    def _evaluate_fresh_seeds(self, confirmation: Confirmation, stored_run: StoredRun) -> None:
        """Evaluates both checkpoints on fresh seeds. The suspicion is dropped if the evaluation gives no results."""
        subjects = [stored_run.subjects[index] for index in (confirmation.reference, confirmation.position)]
        block = confirmation_block(confirmation.kind, confirmation.number, self._rules.seeds)
        steps = [subject.outer_step for subject in subjects]
        replicates = f"{common_replicate_noun(stored_run.cases.values())}s"
        size = (
            f"since more {replicates} diverge"
            if math.isnan(confirmation.harm)
            else f"by {confirmation.harm:.3f} on the usual {replicates}"
        )
        self._progress.log(
            f"{confirmation.kind}: outer step {steps[1]} may be worse than {steps[0]}, {size}; "
            f"{self._rules.seeds} fresh seeds of each decide"
        )
        self._tried_confirmations.add(stored_run.confirmation_identity(confirmation))
        case_infos, cases = stored_run.cases.values(), tuple[str, ...]()  # (): all
        if note_on_fixed_seeds(case_infos):
            cases = names_on_fresh_seeds(case_infos)
        paths = [self._readable_path(subject) for subject in subjects]
        readable_subjects = [
            self._run.request_for(replace(subject, uri=path))
            for path, subject in zip(paths, subjects, strict=True)
            if path
        ]
        if len(readable_subjects) < len(subjects):
            gone_uris = ", ".join(subject.uri for path, subject in zip(paths, subjects, strict=True) if not path)
            self._progress.log(f"{confirmation.kind}: {gone_uris} is gone, or another theta lies there")
            return
        try:
            self._evaluator.evaluate(readable_subjects, block.bindings, cases=cases)
        except LobenchError as error:
            self._progress.log(f"{confirmation.kind}: {error}")

    def _readable_path(self, subject: Subject) -> str | None:
        """Returns the path of a readable file with the theta: the checkpoint or a copy of it. None: there is none."""
        if subject.sha256 not in self._paths_by_hash:
            checkpoint_path = self._run.path_of(subject.uri)
            other_paths = [
                self._run.path_of(sighting.uri)
                for _, sighting, _ in self._known_standings
                if sighting.sha256 == subject.sha256
            ]
            self._paths_by_hash[subject.sha256] = readable_location(
                self._store, checkpoint_path, subject.sha256, other_paths=other_paths
            )
        return self._paths_by_hash[subject.sha256]

    def _copy_best_checkpoints(self, stored_run: StoredRun) -> None:
        """Copies the best checkpoints. Later checkpoints are compared with them, and trainers delete old ones."""
        if not len(stored_run):
            return
        last_index = len(stored_run) - 1
        best_subjects = {}
        for detector in self.detectors:
            if isinstance(detector, SuspectThenConfirm):
                scores = [
                    stored_run.mean_score(index, last_index, detector.kind, detector.num_tests, detector.cases)
                    for index in range(last_index + 1)
                ]
                best_index = max(
                    range(last_index + 1), key=lambda index: (scores[index] == scores[index], scores[index])
                )
                best_subjects[stored_run.subjects[best_index].sha256[:16]] = stored_run.subjects[best_index]
        for old_copy in self._copies_folder.glob("*"):
            if old_copy.name not in best_subjects:
                shutil.rmtree(old_copy, ignore_errors=True)
        for name, subject in best_subjects.items():
            source = Path(self._run.path_of(subject.uri))
            folder = self._copies_folder / name
            if folder.exists() or "://" in subject.uri or holds_theta(source, subject.sha256) is False:
                continue
            partial_folder = self._copies_folder / f"{name}.part"
            shutil.rmtree(partial_folder, ignore_errors=True)
            partial_folder.mkdir(parents=True)
            try:
                copy_function = shutil.copytree if source.is_dir() else shutil.copy2
                copy_function(source, partial_folder / source.name)
                if holds_theta(partial_folder / source.name, subject.sha256) is False:  # it was overwritten meanwhile
                    shutil.rmtree(partial_folder, ignore_errors=True)
                    continue
                partial_folder.rename(folder)
                for file in folder.rglob("*"):
                    open_to_group(file)
            except OSError as error:
                shutil.rmtree(partial_folder, ignore_errors=True)
                self._progress.log(f"no copy is kept of {source}: {cause(error)}")

    def make_event(self, raised_alarm: Alarm, stored_run: StoredRun) -> AlarmRaised:
        cases = stored_run.cases
        event = AlarmRaised(
            subject=stored_run.subjects[raised_alarm.position],
            kind=raised_alarm.kind,
            reference=stored_run.subjects[raised_alarm.reference],
            value=raised_alarm.harm,
            bound=raised_alarm.bound,
            cases=tuple(cases[identity] for identity in raised_alarm.cases if identity in cases),
            message="",
        )
        return replace(event, message=_message(event, raised_alarm, self._rules, self._run.location, self._suites))


class _Notifier:
    """Reports each alarm once to plugins and to the command, and at least once to each sink.

    Args:
      file: Record of the reports: `{"told": [[kind, sha256, outer step], ...], "sinks": {ADDRESS: a list like "told"},
        "lines": [...]}`. Older versions wrote no lines.
      manager: Plugins to notify.
      sinks: Sinks by address.
      command: Shell command to run for each new alarm. "": none.
      progress: Receives progress events.
    """

    def __init__(
        self,
        file: Path,
        manager: PluginManager,
        sinks: Mapping[str, ResultSink],
        command: str,
        progress: WatchProgress,
    ) -> None:
        self._file = file
        self._manager = manager
        self._sinks = sinks
        self._command = command
        self._progress = progress
        self._raised_alarms, self._alarms_by_sink, self._lines = read_record(file)
        self._deliveries: list[Delivery] = []

    def notify_of(self, event: AlarmRaised, run: str) -> None:
        alarm_name = _alarm_identity(event)
        is_new = alarm_name not in self._raised_alarms
        # `_raised_alarms` only grows, so an alarm has the same number in every call.
        number = len(self._raised_alarms) if is_new else self._raised_alarms.index(alarm_name)
        if alarm_name not in [_alarm_identity(delivery.event) for delivery in self._deliveries]:
            self._deliveries.append(Delivery(sequence=-1 - number, event=event, run=run))
        if not is_new:
            return
        self._progress.log(event.message)
        notify(self._manager, "lobench_alarm_raised", event, self._log_failure)
        if self._command:
            self._call_command(event)
        self._raised_alarms.append(alarm_name)
        self._lines.append(event.message)
        self._write()

    def _call_command(self, event: AlarmRaised) -> None:
        variables = {
            "LOBENCH_ALARM": event.kind,
            "LOBENCH_OUTER_STEP": str(event.subject.outer_step),
            "LOBENCH_CHECKPOINT": event.subject.uri,
            "LOBENCH_REFERENCE": event.reference.uri,
            "LOBENCH_CASES": " ".join(f"{case.suite}/{case.name}" for case in event.cases),
        }
        # Its output goes to standard error, because standard output may be a JSON record.
        completed = subprocess.run(
            self._command, shell=True, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=2, check=False
        )
        if completed.returncode:
            self._progress.log(f"--on-alarm {self._command!r} ended with {completed.returncode}")

    def deliver(self) -> None:
        """Delivers the missing alarms to each sink.

        Failed deliveries are repeated at the next look, or in the next call.
        """
        for address, sink in self._sinks.items():
            delivered_names = self._alarms_by_sink.get(address, [])
            missing_deliveries = [
                delivery for delivery in self._deliveries if _alarm_identity(delivery.event) not in delivered_names
            ]
            if not missing_deliveries:
                continue
            try:
                with contain_plugins():
                    sink.deliver(missing_deliveries)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  (a plugin boundary: `sys.exit`, too)
                self._log_failure(f"sink {address!r}", error)
                continue
            self._alarms_by_sink[address] = [
                *delivered_names,
                *(_alarm_identity(delivery.event) for delivery in missing_deliveries),
            ]
            self._write()

    def close(self) -> None:
        for address, sink in self._sinks.items():
            try:
                with contain_plugins():
                    sink.close()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  (a plugin boundary: `sys.exit`, too)
                self._log_failure(f"sink {address!r}", error)

    def _log_failure(self, where: str, error: BaseException) -> None:
        self._progress.log(f"{where}: {headline(error)}")

    def _write(self) -> None:
        record = {"told": self._raised_alarms, "sinks": self._alarms_by_sink, "lines": self._lines}
        write_whole(self._file, json.dumps(record, indent=1) + "\n")


def _unlike_results_error(confirmation: Confirmation, store: Path) -> UsageError:
    return UsageError(
        f"{confirmation.kind}: cannot be confirmed, since the fresh seeds were trained with other bindings of the "
        "optimizer than the results of the watch",
        where=str(store),
        next_step="give the --gin-file and --gin-param of the watch, or if config.gin was edited, evaluate all again: "
        "`lobench watch --checkpoints all`",
    )


def _alarm_identity(event: object) -> list[Any]:
    """Returns the identity of an alarm as a JSON list."""
    assert isinstance(event, AlarmRaised)
    return [event.kind, event.subject.sha256, event.subject.outer_step]


def _message(event: AlarmRaised, alarm: Alarm, rules: AlarmRules, location: str, suites: Sequence[str]) -> str:
    """Describes an alarm in one line: the two outer steps, the difference and its bound.

    An alarm with cases also names them, and the `lobench bisect` command that finds the step where it broke.
    """
    step = event.subject.outer_step
    reference_step = event.reference.outer_step
    if event.kind == "stall":
        line = f"from outer step {reference_step} to {step} the score gains {event.value:.3g} per 1,000 steps"
        return one_line(f"ALARM stall: {line}, at most {event.bound:.3g}; {rules.least_gain:g} was asked for")
    names = [f"{case.suite}/{case.name}" for case in event.cases]
    first_names = shortened_list(names, _MAX_NAMED_CASES)
    comparison = "is worse than" if event.kind == "regress" else "is worse out of distribution than in it, against"
    bound = "" if math.isnan(event.bound) else f", at least {event.bound:.3f}"
    size = "more seeds diverge" if math.isnan(event.value) else f"by {event.value:.3f}{bound}"
    line = f"ALARM {event.kind}: outer step {step} {comparison} {reference_step} ({size}, on {rules.seeds} fresh seeds)"
    if not names:
        return one_line(line)
    bisect_words = ["lobench", "bisect", location, *(word for suite in suites for word in ("--suite", suite))]
    bisect_command = shlex.join([*bisect_words, "--case", names[0], "--to-step", str(step)])
    return one_line(f"{line}: {first_names}; `{bisect_command}` finds where it broke")
