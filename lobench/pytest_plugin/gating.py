"""Gate verdicts at the end of a session, as tests of their own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping
from typing import Any, Literal

import pytest

from lobench.analysis.comparisons.gate_looks import decide
from lobench.analysis.comparisons.gates import GateReport, GateResult, Verdict
from lobench.analysis.scores.score_scale import SCORE_VERSION
from lobench.core.errors import LobenchError
from lobench.core.json_numbers import finite_or_none
from lobench.core.subject import Subject
from lobench.core.wording import counted
from lobench.pytest_plugin.item_result import ItemResult
from lobench.pytest_plugin.measuring import Measured, rules_of
from lobench.pytest_plugin.options import option
from lobench.pytest_plugin.recording import SessionRecorder
from lobench.pytest_plugin.references import find_reference
from lobench.report.tables.text import text_table

__all__ = ["GateReporter"]

_LETTERS = {Verdict.PASS: ".", Verdict.REGRESSED: "R", Verdict.INCONCLUSIVE: "?"}
_COLOURS = {Verdict.PASS: "green", Verdict.REGRESSED: "red", Verdict.INCONCLUSIVE: "yellow"}


class GateReporter:
    """Collects what the items measured and decides once all are there: Holm needs every case.

    Under xdist it lives in the controller.
    """

    def __init__(self, config: pytest.Config, recorder: SessionRecorder) -> None:
        self._config = config
        self._recorder = recorder
        self._measured: dict[str, Measured] = {}
        self._report: GateReport | None = None
        self._is_strict = bool(config.getoption("lobench_strict") or config.getini("lobench_strict"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for record in getattr(report, "lobench_gate", []):
            measured = Measured(**record)
            # Items that a plugin repeats are one case. Tests with a parameter of their own may have trained the same:
            # equal bits are no further evidence.
            known = self._measured.values()
            if any(_is_same(one, measured) for one in known if one.name == measured.name):
                continue
            name = measured.name if measured.name not in self._measured else measured.node_id
            self._measured[name] = measured

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, Any] | None:
        verdict = getattr(report, "lobench_verdict", None)
        if verdict is None or report.when != "call":
            return None
        category = "inconclusive" if report.skipped else report.outcome
        return category, _LETTERS[verdict], (str(verdict), {_COLOURS[verdict]: True})

    # Innermost of the wrappers: the terminal's last line of progress comes after it.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if self._measured:
            self._decide(session)
        return result

    def _decide(self, session: pytest.Session) -> None:
        looks = next(iter(self._measured.values())).looks
        samples = {name: measured.samples for name, measured in sorted(self._measured.items())}
        self._report = decide(samples, rules_of(self._config, looks), self._margins())
        self._record()
        results = list(self._report.cases)
        if len(results) > 1:
            results.append(dataclasses.replace(self._report.overall, case="mean over the cases"))
        session.testscollected += len(results)  # they are tests too: progress must not pass 100%
        for result in results:
            measured = self._measured.get(result.case)
            file = measured.node_id.split("::")[0] if measured else "lobench"
            self._emit(f"{file}::gate[{result.case}]", file, result)

    def _margins(self) -> dict[str, float]:
        return {name: measured.margin for name, measured in self._measured.items()}

    def _record(self) -> None:
        """Keeps the reference's evaluations and the verdict in the store, where they can be traced."""
        assert self._report is not None
        records = [record for measured in self._measured.values() for record in measured.reference]
        checkpoint = find_reference(self._config).checkpoint if records else None
        if checkpoint is not None:
            for record in records:
                self._recorder.record(ItemResult.from_bytes(record), Subject.of_checkpoint(checkpoint))
        margins = {result.case: self._margin(result) for result in (*self._report.cases, self._report.overall)}
        self._recorder.record_event("gate", **_event(self._report, option(self._config, "against"), margins))

    def _margin(self, result: GateResult) -> float:
        own = self._margins()
        return own.get(result.case, math.fsum(own.values()) / len(own))

    def _emit(self, node_id: str, file: str, result: GateResult) -> None:
        measured = self._measured.get(result.case)
        text = describe(result, self._margin(result), ratio=_ratio(measured), note=measured.note if measured else "")
        outcome: Literal["passed", "failed", "skipped"] = "passed"
        longrepr: str | tuple[str, int, str] | None = None
        if result.verdict is Verdict.REGRESSED or (self._is_strict and result.verdict is Verdict.INCONCLUSIVE):
            outcome, longrepr = "failed", text
        elif result.verdict is Verdict.INCONCLUSIVE:
            outcome, longrepr = "skipped", (file, 0, text)
        properties = [("lobench_gate", str(result.verdict)), *_properties(result)]
        location = (file, None, node_id.partition("::")[2])
        hook = self._config.hook
        hook.pytest_runtest_logstart(nodeid=node_id, location=location)
        common: dict[str, Any] = {
            "nodeid": node_id,
            "location": location,
            "keywords": {},
            "user_properties": properties,
        }
        common["lobench_verdict"] = result.verdict
        call = pytest.TestReport(**common, outcome=outcome, longrepr=longrepr, when="call")
        # JUnit writes a test down when it is torn down.
        teardown = pytest.TestReport(**common, outcome="passed", longrepr=None, when="teardown")
        for report in (call, teardown):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=node_id, location=location)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not option(self._config, "against"):
            return
        terminalreporter.section("lobench gate")
        if self._report is None:
            terminalreporter.write_line("nothing was compared: no case was evaluated to its end", yellow=True)
            return
        rules, against = self._report.rules, option(self._config, "against")
        terminalreporter.write_line(
            f"against {against}: harm on the score from untrained (0) to tuned (1); ratio: how many times higher a "
            f"loss the margin tolerates; alpha {rules.alpha:g}"
        )
        if not all(measured.has_starts for measured in self._measured.values()):
            terminalreporter.write_line(
                "the baseline's file does not say where its seeds began: they are taken to begin at the untrained mean "
                "(`lobench baseline SUITE` adds it in seconds)"
            )
        rows = [_HEADER, *(self._row(result) for result in self._report.cases)]
        if len(self._report.cases) > 1:
            rows.append(("mean", *self._row(self._report.overall)[1:]))
        terminalreporter.write_line(text_table(rows, left={0, 1, 9}))
        terminalreporter.write_line(f"{self._report.verdict}", bold=True, **{_COLOURS[self._report.verdict]: True})

    def _row(self, result: GateResult) -> tuple[str, ...]:
        measured = self._measured.get(result.case)
        return (
            result.case,
            str(result.verdict),
            _signed(result.harm),
            f"{_signed(result.lower)} .. {_signed(result.upper)}",
            f"{self._margin(result):.3g}",
            _ratio(measured),
            _signed(measured.test_harm) if measured else "-",
            str(result.num_seeds),
            "-" if result.seeds_to_decide is None else str(result.seeds_to_decide),
            "; ".join(filter(None, (result.divergence, result.note, measured.note if measured else ""))),
        )


_HEADER = ("case", "verdict", "harm", "bounds", "margin", "ratio", "on test", "seeds", "would decide", "note")


def _is_same(one: Measured, other: Measured) -> bool:
    return one.node_id == other.node_id or (one.a, one.b, one.margin) == (other.a, other.b, other.margin)


def describe(result: GateResult, margin: float, *, ratio: str = "-", note: str = "") -> str:
    """Returns one line that says what the verdict is and why."""
    text = (
        f"{result.verdict}: harm {_signed(result.harm)} [{_signed(result.lower)}, {_signed(result.upper)}], "
        f"margin {margin:g}{f' (a loss {ratio} as high)' if ratio != '-' else ''}, {counted(result.num_seeds, 'seed')}"
    )
    if result.verdict is Verdict.REGRESSED:
        text += f", p = {result.p_holm:.2g}"
    if result.seeds_to_decide is not None:
        text += f"; {result.seeds_to_decide} seeds would decide"
    return "; ".join(filter(None, (text, result.divergence, result.note, note)))


def _ratio(measured: Measured | None) -> str:
    """Returns how many times higher a loss the margin of a case tolerates; `-` on a linear scale, and for the mean."""
    return "-" if measured is None or math.isnan(measured.tolerated_ratio) else f"x{measured.tolerated_ratio:.3g}"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.3f}"


def _properties(result: GateResult) -> list[tuple[str, object]]:
    values = {
        "lobench_harm": result.harm,
        "lobench_harm_lower": result.lower,
        "lobench_harm_upper": result.upper,
        "lobench_seeds": result.num_seeds,
        "lobench_seeds_to_decide": result.seeds_to_decide,
        "lobench_score_version": SCORE_VERSION,
    }
    return [(name, value) for name, value in values.items() if value is not None]


def _event(report: GateReport, against: str, margins: Mapping[str, float]) -> Mapping[str, Any]:
    def plain(result: GateResult) -> dict[str, Any]:
        found: dict[str, Any] = finite_or_none(dataclasses.asdict(result) | {"margin": margins[result.case]})
        return found

    return {
        "score_version": SCORE_VERSION,
        "against": against,
        "margin": margins[report.overall.case],
        "alpha": report.rules.alpha,
        "verdict": str(report.verdict),
        "cases": [plain(result) for result in report.cases],
        "overall": plain(report.overall),
    }


def make_reporter(config: pytest.Config, recorder: SessionRecorder) -> GateReporter | None:
    """Returns the reporter of a session with a gate; None in an xdist worker, whose controller has it.

    Raises:
      pytest.UsageError: the reference is not there, or a number is out of range.
    """
    from lobench.pytest_plugin.measuring import adaptive_maximum
    from lobench.pytest_plugin.references import check_reference

    if not option(config, "against") or hasattr(config, "workerinput"):
        return None
    try:
        check_reference(option(config, "against"), option(config, "store"))
        rules_of(config, ())
        adaptive_maximum(config)
    except LobenchError as error:
        raise pytest.UsageError(str(error)) from error
    return GateReporter(config, recorder)
