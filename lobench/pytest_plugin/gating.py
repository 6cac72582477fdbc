"""Gate verdicts at the end of a session, reported as additional tests."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shlex
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

from lobench.analysis.comparisons.gate_looks import decide_gate
from lobench.analysis.comparisons.gates import GateReport, GateResult, Verdict
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.reference import GATE_EVENT, REFERENCE_EVENT, label_with_hash
from lobench.cli.exit_codes import ExitCode
from lobench.core.case import CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.json_numbers import finite_or_none
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey
from lobench.core.wording import counted_range, groups_text, shortened_list
from lobench.engine.config.command_case import is_command
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import ItemResult
from lobench.pytest_plugin.items import case_info, variant_of
from lobench.pytest_plugin.measuring import Measurement, rules_of
from lobench.pytest_plugin.options import option
from lobench.pytest_plugin.recording import SessionRecorder
from lobench.pytest_plugin.references import candidates_of, check_reference, reference_of, scale_baseline_of
from lobench.pytest_plugin.stored_gate import case_verdicts, check_stored_gate, compare_with, stored_reference
from lobench.report.tables.comparison_text import comparison_text
from lobench.report.tables.text import factor_mark, interval_cell, number_form, text_table, wrap_lines

if TYPE_CHECKING:
    from lobench.api.compare import Comparison

__all__ = ["GateReporter", "has_training", "make_reporter", "problem_with_reference"]

_LETTER_BY_VERDICT = {Verdict.PASS: ".", Verdict.REGRESSED: "R", Verdict.INCONCLUSIVE: "?"}
_COLOUR_BY_VERDICT = {Verdict.PASS: "green", Verdict.REGRESSED: "red", Verdict.INCONCLUSIVE: "yellow"}


class GateReporter:
    """Collects the measurements of items, and decides once all are complete, because Holm's correction needs all cases.

    Under xdist it runs in the controller.
    """

    def __init__(self, config: pytest.Config, recorder: SessionRecorder) -> None:
        self._config = config
        self._recorder = recorder
        self._measurements: dict[str, Measurement] = {}
        self._results_by_case: dict[str, list[ItemResult]] = {}  # results of the seed blocks of each case
        self._report: GateReport | None = None
        self._comparison: Comparison | None = (
            None  # comparison of stored results, if the session has only commands and ordinary tests
        )
        self._problem = ""
        self._advice = ""  # command that shows the comparison in full
        self._is_strict = bool(config.getoption("lobench_strict") or config.getini("lobench_strict"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for result in map(ItemResult.from_bytes, getattr(report, "lobench", [])):
            self._results_by_case.setdefault(f"{result.case.suite}/{result.case.name}", []).append(result)
        for record in getattr(report, "lobench_gate", []):
            measurement = Measurement.from_report(record)
            # Items repeated by a plugin are one case. Tests with parameters of their own may have trained the same
            # case, and equal bits add no evidence.
            earlier_measurements = self._measurements.values()
            if any(
                _is_same_measurement(earlier_measurement, measurement)
                for earlier_measurement in earlier_measurements
                if earlier_measurement.name == measurement.name
            ):
                continue
            name = measurement.name if measurement.name not in self._measurements else measurement.node_id
            self._measurements[name] = measurement

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        verdict = getattr(report, "lobench_verdict", None)
        if verdict is None or report.when != "call":
            return None
        category = "inconclusive" if report.skipped else report.outcome
        return category, _LETTER_BY_VERDICT[verdict], (str(verdict), {_COLOUR_BY_VERDICT[verdict]: True})

    # Innermost of the wrappers: the terminal's last line of progress comes after it.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        evaluated_cases = [result.case for results in self._results_by_case.values() for result in results]
        if self._measurements:
            self._decide_and_report(session)
        elif evaluated_cases and all(case.evaluator for case in evaluated_cases):
            self._compare_stored(session, evaluated_cases)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
        compared_nothing = self._report is None or self._report.compared_nothing
        if self._comparison is not None:
            compared_nothing = bool(self._comparison.compared_nothing())
        if exitstatus == pytest.ExitCode.OK and compared_nothing and self._results_by_case:
            session.exitstatus = ExitCode.ERROR

    def _decide_and_report(self, session: pytest.Session) -> None:
        sizes_of_looks = next(iter(self._measurements.values())).looks
        samples = {name: measurement.samples for name, measurement in sorted(self._measurements.items())}
        for name, (_, num_seeds) in self._cases_without_result().items():
            # A case without values is a group of its own, in which only the number of its seeds counts.
            samples[name] = Samples(missing_seeds=(frozenset(), frozenset(range(num_seeds))))
        self._report = decide_gate(samples, rules_of(self._config, sizes_of_looks), self._margin_by_case())
        self._record_gate()
        results = list(self._report.cases)
        if len(results) > 1:
            results.append(dataclasses.replace(self._report.overall, case="mean over the cases"))
        session.testscollected += len(results)  # counted as tests, so that progress does not pass 100%
        for result in results:
            measurement = self._measurements.get(result.case)
            test_file = measurement.node_id.split("::")[0] if measurement else "lobench"
            text = gate_line(
                result,
                self._margin(result),
                _seeds_text(self._report, result),
                ratio=_ratio_text(measurement),
                note=self._case_note(result.case),
            )
            self._report_verdict(
                f"{test_file}::gate[{result.case}]", test_file, result.verdict, text, _gate_properties(result)
            )

    def _compare_stored(self, session: pytest.Session, cases: Sequence[CaseInfo]) -> None:
        """Compares what the store has of the session's commands and ordinary tests with the reference."""
        suites = {case.suite for case in cases}
        identities = {case.identity for case in cases}
        try:
            reference = stored_reference(self._config, suites)
            store = self._recorder.store
            if store is None:
                return  # the summary says why nothing was stored
            self._comparison = compare_with(reference, self._config, store, identities)
        except LobenchError as error:
            self._problem = str(error)
            return
        (pair,) = self._comparison.pairs
        stored_names = (
            f"{store_path}@{subject.subject.sha256[:12]}"
            for store_path, subject in ((reference.stored.store, pair.a), (store, pair.b))
        )
        self._advice = (
            f"costs, gate margins, effect sizes and notes: lobench compare {shlex.join(stored_names)} --details"
        )
        for choice in reference.choices:
            self._recorder.record_event(REFERENCE_EVENT, **choice.to_event())
        margin_by_case = pair.primary.margins
        mean_margin = math.fsum(margin_by_case.values()) / len(margin_by_case) if margin_by_case else math.nan
        gate = dataclasses.replace(pair.primary.gate, verdict=pair.verdict)
        event_detail = _event_detail(
            gate, option(self._config, "against"), {**margin_by_case, gate.overall.case: mean_margin}
        )
        subjects_detail = {
            "candidates": [list(key) for key in candidates_of(self._config)],
            "references": [label_with_hash(pair.a)],
        }
        self._recorder.record_event(GATE_EVENT, **event_detail, **subjects_detail)
        file_by_case = {name: results[0].case.node_id.split("::")[0] for name, results in self._results_by_case.items()}
        verdicts = case_verdicts(pair)
        session.testscollected += len(verdicts)
        for verdict in verdicts:
            text = verdict.note
            if verdict.result is not None:
                margin = margin_by_case.get(verdict.case, mean_margin)
                text = gate_line(verdict.result, margin, _seeds_text(gate, verdict.result), note=verdict.note)
            name = verdict.case or "mean over the cases"
            file = file_by_case.get(verdict.case, "lobench")
            properties = [] if verdict.result is None else _gate_properties(verdict.result)
            self._report_verdict(f"{file}::gate[{name}]", file, verdict.verdict, text, properties)

    def _margin_by_case(self) -> dict[str, float]:
        return {name: measured.margin for name, measured in self._measurements.items()}

    def _cases_without_result(self) -> dict[str, tuple[str, int]]:
        """Returns the outcomes and the number of seeds of the cases for which the session has no result.

        Skipped cases were not planned.
        """
        outcomes_and_seeds = {}
        for name, results in sorted(self._results_by_case.items()):
            lost_results = [result for result in results if result.outcome is not Outcome.SKIPPED]
            if name not in self._measurements and lost_results:
                outcomes = ", ".join(sorted({str(lost_result.outcome) for lost_result in lost_results}))
                outcomes_and_seeds[name] = (outcomes, sum(lost_result.seed_block.size for lost_result in lost_results))
        return outcomes_and_seeds

    def _case_note(self, case: str) -> str:
        """Returns the note on a case, or its outcome if it has no result."""
        if measurement := self._measurements.get(case):
            return measurement.note
        lost_case = self._cases_without_result().get(case)
        return f"no result: {lost_case[0]}" if lost_case else ""

    def _record_gate(self) -> None:
        """Records the reference's evaluations and the verdict in the store."""
        assert self._report is not None
        records = [record for measured in self._measurements.values() for record in measured.reference.evaluations]
        subject = reference_of(self._config).subject if records else None
        if subject is not None:
            for record in records:
                self._recorder.record(ItemResult.from_bytes(record), subject)
        margin_by_case = {result.case: self._margin(result) for result in (*self._report.cases, self._report.overall)}
        choices = {
            json.dumps(choice): choice
            for case_measured in self._measurements.values()
            for choice in case_measured.reference.choices
        }
        for choice in choices.values():
            self._recorder.record_event(REFERENCE_EVENT, **choice)
        event_detail = _event_detail(self._report, option(self._config, "against"), margin_by_case)
        subjects_detail = {
            "candidates": [list(key) for key in candidates_of(self._config)],
            "references": self._references(),
        }
        self._recorder.record_event(GATE_EVENT, **event_detail, **subjects_detail)

    def _references(self) -> list[str]:
        """Returns the references of the cases, each with its hash."""
        return list(dict.fromkeys(measured.reference.label for _, measured in sorted(self._measurements.items())))

    def _margin(self, result: GateResult) -> float:
        margins = self._margin_by_case()
        return margins.get(result.case, math.fsum(margins.values()) / len(margins))

    def _report_verdict(
        self, node_id: str, file: str, verdict: Verdict, text: str, properties: Sequence[tuple[str, object]]
    ) -> None:
        """Reports a verdict as a test."""
        outcome: Literal["passed", "failed", "skipped"] = "passed"
        longrepr: str | tuple[str, int, str] | None = None
        if verdict is Verdict.REGRESSED or (self._is_strict and verdict is Verdict.INCONCLUSIVE):
            outcome, longrepr = "failed", text
        elif verdict is Verdict.INCONCLUSIVE:
            outcome, longrepr = "skipped", (file, 0, text)
        location = (file, None, node_id.partition("::")[2])
        hook = self._config.hook
        hook.pytest_runtest_logstart(nodeid=node_id, location=location)
        report_fields: dict[str, Any] = {
            "nodeid": node_id,
            "location": location,
            "keywords": {},
            "user_properties": [("lobench_gate", str(verdict)), *properties],
        }
        report_fields["lobench_verdict"] = verdict
        call = pytest.TestReport(**report_fields, outcome=outcome, longrepr=longrepr, when="call")
        # JUnit writes a test at its teardown.
        teardown = pytest.TestReport(**report_fields, outcome="passed", longrepr=None, when="teardown")
        for report in (call, teardown):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=node_id, location=location)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not option(self._config, "against"):
            return

        def write(text: str, **markup: bool) -> None:
            terminalreporter.write_line(wrap_lines(text), **markup)

        terminalreporter.section("lobench gate")
        if self._problem:
            write(f"nothing was compared: {self._problem}", red=True)
            return
        if self._comparison is not None:
            (pair,) = self._comparison.pairs
            text = comparison_text(self._comparison.pairs, scale=self._comparison.scale, details_hint=self._advice)
            verdict_line, _, details = text.partition("\n\n")
            write(verdict_line, bold=True, **{_COLOUR_BY_VERDICT[pair.verdict]: True})
            write(details)
            return
        if self._report is None:
            write("nothing was compared: no case was evaluated to its end", yellow=True)
            return
        if self._report.compared_nothing:
            write("nothing was compared: no case has a seed with results on both sides", red=True)
        for line in self._verdict_lines(self._report):
            write(line, bold=True, **{_COLOUR_BY_VERDICT[self._report.verdict]: True})
        if any(measured.reference.is_itself for measured in self._measurements.values()):
            write("the reference and the checkpoint of this session have the same content")
        if not all(measured.has_starts for measured in self._measurements.values()):
            write(
                "the baseline's file does not say where its seeds began: they are taken to begin at the untrained mean "
                "(`lobench baseline SUITE` adds it in seconds)"
            )
        rows = [_HEADER, *(self._table_row(result) for result in self._report.cases)]
        if len(self._report.cases) > 1:
            rows.append(("mean", *self._table_row(self._report.overall)[1:]))
        write(text_table(rows, left={0, 1, 9}))
        if groups := groups_text(self._report.groups):
            write(groups)
        write(
            "difference, bounds: of the score (0 untrained, 1 tuned; above 0: better); ratio: how many times higher a "
            f"loss the margin tolerates; alpha {self._report.rules.alpha:g}, for all cases together; would decide: "
            f"number of seeds that would decide {self._report.rules.decided_harm}; at most: upper bound, at level "
            "alpha, of the share of diverged seeds"
        )

    def _verdict_lines(self, report: GateReport) -> list[str]:
        """Returns the verdict with the mean difference, the number of seeds that would decide, and the reference."""
        reference_option = option(self._config, "against")
        reference_names = ", ".join(self._references())
        overall = report.overall
        source = "" if reference_names.startswith(reference_option) else f" (from {reference_option})"
        names = sorted(result.case for result in report.cases if result.verdict is report.verdict)
        is_of_mean = len(report.cases) > 1 and overall.verdict is report.verdict
        case_names = [f"on {shortened_list(names, 4)}"] if names else []
        verdict_cases = " and ".join([*(["in the mean"] if is_of_mean else []), *case_names])
        all_cases = "in the mean and on each case" if len(report.cases) > 1 else verdict_cases
        text_by_verdict = {
            Verdict.PASS: f"no more than the margin is lost {all_cases}",
            Verdict.REGRESSED: f"more than the margin is lost {verdict_cases}",
            Verdict.INCONCLUSIVE: f"not decided {verdict_cases}",
        }
        text = f"{report.verdict}: {text_by_verdict[report.verdict]}"
        if not math.isnan(overall.harm):
            text += f"; score {interval_cell(_difference(overall), _FORM)}, {_seeds_text(report, overall)} per case"
        seed_counts = [
            result.seeds_to_decide for result in (*report.cases, overall) if result.seeds_to_decide is not None
        ]
        harm = report.rules.decided_harm
        seeds_note = [f"about {max(seed_counts):,} seeds per case would decide {harm}"] if seed_counts else []
        return [text, *seeds_note, f"against {reference_names}{source}"]

    def _table_row(self, result: GateResult) -> tuple[str, ...]:
        measurement = self._measurements.get(result.case)
        assert self._report is not None
        seeds_text = _seeds_text(self._report, result)
        difference = _difference(result)
        form = number_form(difference, _FORM)
        return (
            result.case,
            str(result.verdict),
            _signed(difference.mean, form),
            f"{_signed(difference.lower, form)} .. {_signed(difference.upper, form)}",
            f"{self._margin(result):.3g}",
            _ratio_text(measurement),
            _signed(-measurement.test_harm) if measurement else "-",
            seeds_text.rpartition(" ")[0],
            "-" if result.seeds_to_decide is None else str(result.seeds_to_decide),
            "; ".join(filter(None, (result.divergence, result.note, self._case_note(result.case)))),
        )


_FORM = "+z.3f"
_HEADER = ("case", "verdict", "difference", "bounds", "margin", "ratio", "on test", "seeds", "would decide", "note")


def _is_same_measurement(measurement: Measurement, earlier_measurement: Measurement) -> bool:
    scores, earlier_scores = (
        (one_measurement.samples.a, one_measurement.samples.b, one_measurement.margin)
        for one_measurement in (measurement, earlier_measurement)
    )
    return measurement.node_id == earlier_measurement.node_id or scores == earlier_scores


def gate_line(result: GateResult, margin: float, seeds_text: str, *, ratio: str = "-", note: str = "") -> str:
    """Returns one line with the verdict and its reasons."""
    text = (
        f"{result.verdict}: difference {interval_cell(_difference(result), _FORM)}, "
        f"margin {margin:g}{f' (a loss {ratio} as high)' if ratio != '-' else ''}, {seeds_text}"
    )
    if result.verdict is Verdict.REGRESSED:
        text += f", p = {result.p_holm:.2g}"
    if result.seeds_to_decide is not None:
        text += f"; {result.seeds_to_decide} seeds would decide"
    return "; ".join(filter(None, (text, result.divergence, result.note, note)))


def _seeds_text(report: GateReport, result: GateResult) -> str:
    """Returns the number of seeds of a case; of the mean, the range over its cases: `4 to 16 seeds`."""
    cases = [case for case in report.cases if case.case == result.case]
    cases = cases or [case for case in report.cases if not math.isnan(case.harm)] or [result]
    return counted_range((case.num_seeds for case in cases), "seed")


def _ratio_text(measurement: Measurement | None) -> str:
    """Returns the factor by which a loss may rise within a case's margin; `-` on a linear scale or for the mean."""
    return (
        "-"
        if measurement is None or math.isnan(measurement.tolerated_ratio)
        else factor_mark(measurement.tolerated_ratio)
    )


def _difference(result: GateResult) -> Interval:
    """Returns score(B) - score(A) with its bounds."""
    return Interval(mean=0.0 - result.harm, lower=0.0 - result.upper, upper=0.0 - result.lower)


def _signed(value: float, form: str = _FORM) -> str:
    return "-" if math.isnan(value) else f"{value:{form}}"


def _gate_properties(result: GateResult) -> list[tuple[str, object]]:
    values = {
        "lobench_harm": result.harm,
        "lobench_harm_lower": result.lower,
        "lobench_harm_upper": result.upper,
        "lobench_seeds": result.num_seeds,
        "lobench_seeds_to_decide": result.seeds_to_decide,
        "lobench_score_version": SCORE_VERSION,
    }
    return [(name, value) for name, value in values.items() if value is not None]


def _event_detail(report: GateReport, reference_option: str, margins: Mapping[str, float]) -> Mapping[str, Any]:
    def result_fields(result: GateResult) -> dict[str, Any]:
        fields: dict[str, Any] = finite_or_none(dataclasses.asdict(result) | {"margin": margins[result.case]})
        return fields

    return {
        "score_version": SCORE_VERSION,
        "against": reference_option,
        "margin": margins[report.overall.case],
        "alpha": report.rules.alpha,
        "verdict": str(report.verdict),
        "cases": [result_fields(result) for result in report.cases],
        "overall": result_fields(report.overall),
    }


def has_training(items: Sequence[pytest.Item]) -> bool:
    """Returns whether an item trains a case, so that it is neither a command nor an ordinary test."""
    specs = {spec for item in items if (spec := case_of(item)) is not None and not spec.is_test}
    for spec in specs:
        with contextlib.suppress(LobenchError):  # the item's own report has the error
            if not is_command(spec):
                return True
    return False


def problem_with_reference(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """Returns the reason why the session has no reference for comparisons; "" if it has one."""
    try:
        candidates_of(config)
    except LobenchError:
        return ""  # each test reports a checkpoint that cannot be read
    infos = [info for item in items if (info := _evaluated_case_info(item)) is not None]
    try:
        if infos and all(info.evaluator for info in infos):
            check_stored_gate(config, infos)
            return ""
        reference_of(config, items)
    except LobenchError as error:
        return f"--lobench-against: {error}"
    names_by_problem: dict[str, list[str]] = {}
    for problem in filter(None, (_scale_problem(config, item) for item in items)):
        names_by_problem.setdefault(str(problem).removeprefix(f"{problem.where}: "), []).append(problem.where)
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in names_by_problem.items())


def _evaluated_case_info(item: pytest.Item) -> CaseInfo | None:
    """Returns the case that an item evaluates; None if it evaluates none, is skipped, or cannot be bound."""
    if case_of(item) is None or item.get_closest_marker("skip") is not None:
        return None
    with contextlib.suppress(LobenchError):  # the item's own report has the error
        return case_info(item, variant_of(item))
    return None


def _scale_problem(config: pytest.Config, item: pytest.Item) -> LobenchError | None:
    """Returns the error of a case without the scale that a gate needs; None if it has one, or cannot be evaluated."""
    spec = case_of(item)
    info = _evaluated_case_info(item)
    if spec is None or info is None:
        return None
    try:
        scale_baseline_of(spec, info, option(config, "against"))
    except LobenchError as problem:
        return problem
    return None


def make_reporter(config: pytest.Config, recorder: SessionRecorder) -> GateReporter | None:
    """Returns the reporter of a session with a gate; None in an xdist worker, because the controller reports.

    Raises:
      pytest.UsageError: The reference does not exist, or a number is out of range.
    """
    from lobench.pytest_plugin.measuring import adaptive_maximum

    if not option(config, "against") or hasattr(config, "workerinput"):
        return None
    candidates: list[SubjectKey] = []
    with contextlib.suppress(LobenchError):  # each test reports a checkpoint that cannot be read
        candidates = candidates_of(config)
    try:
        check_reference(option(config, "against"), option(config, "store"), candidates)
        rules_of(config, ())
        adaptive_maximum(config)
    except LobenchError as error:
        raise pytest.UsageError(str(error)) from error
    return GateReporter(config, recorder)
