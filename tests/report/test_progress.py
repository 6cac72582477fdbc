"""What a person or a log sees of a watch."""

from __future__ import annotations

import contextlib
import dataclasses
import io

import pytest
from shown import texts_of
from stores import case_info, curves

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import LobenchError
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.progress import LiveProgress, PlainProgress, is_coloured, make_progress

SHOWN = texts_of("report")

NASTY = "a\x1b[31m\r\nb\u202e[bold]x"
ADAM = Subject.of_optimizer("adam()", label=NASTY)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ended(case: CaseInfo, outcome: Outcome = Outcome.PASSED) -> EvaluationFinished:
    found = curves({"train/loss": [1.0, float("nan")]})
    block = SeedBlock(start=0, size=2)
    return EvaluationFinished(
        subject=ADAM, case=case, seed_block=block, outcome=outcome, curves=found, message=NASTY * (outcome != "passed")
    )


@pytest.mark.parametrize(
    ("color", "environ", "expected"),
    [
        ("auto", {}, True),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, True),
        ("auto", {"NO_COLOR": "1", "PY_COLORS": "1"}, True),
        ("auto", {"PY_COLORS": "0", "FORCE_COLOR": "1"}, False),
        ("auto", {"TERM": "dumb"}, False),
        ("auto", {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ("no", {"FORCE_COLOR": "1"}, False),
        ("yes", {"NO_COLOR": "1"}, True),
    ],
)
def test_colours_are_where_pytest_has_them(color: str, environ: dict[str, str], expected: bool) -> None:
    assert is_coloured(Terminal(), color, environ) is expected  # type: ignore[arg-type]
    assert is_coloured(io.StringIO(), color, environ) is (
        expected and (color == "yes" or len(environ) > 1 or "F" in str(environ))
    )


def test_a_log_has_no_control_characters_and_a_line_for_each_thing() -> None:
    file, case = io.StringIO(), case_info(NASTY, 2)
    progress = make_progress(file, verbose=True)
    progress.cases_known([case])
    progress.subject_admitted(ADAM)
    progress.evaluation_leased(0, ADAM, case)
    progress.evaluation_finished(ended(case, Outcome.FAILED), 0)
    lines = file.getvalue().splitlines()
    assert len(lines) == 3 and all(line.isprintable() for line in lines)
    assert "\\x1b[31m\\r\\nb\\u202e[bold]x" in lines[1]


def test_the_line_of_cases_names_six_of_many_and_says_nothing_of_programs_that_may_not_run() -> None:
    lines = []
    for num_cases in (6, 50):
        file = io.StringIO()
        PlainProgress(file).cases_known([case_info(f"c{index}") for index in range(num_cases)])
        lines.append(file.getvalue())
    assert lines[0] == "6 cases: s/c0, s/c1, s/c2, s/c3, s/c4, s/c5\n"
    assert lines[1] == lines[0].replace("6 cases", "50 cases").replace("\n", " and 44 more\n")


def test_an_evaluation_that_passed_has_a_line_where_it_is_asked_for() -> None:
    for verbose, num_lines in ((False, 1), (True, 2)):
        file = io.StringIO()
        progress = PlainProgress(file, verbose=verbose)
        for outcome in (Outcome.PASSED, Outcome.ERROR):
            progress.evaluation_finished(ended(case_info("a", 2), outcome), None)
        assert len(file.getvalue().splitlines()) == num_lines


def test_colours_stand_around_a_line_that_is_bad() -> None:
    file = io.StringIO()
    PlainProgress(file, colour=True).evaluation_finished(ended(case_info("a", 2), Outcome.FAILED), None)
    assert file.getvalue().startswith("\x1b[31m") and file.getvalue().endswith("\x1b[0m\n")


def test_rows_fit_a_narrow_terminal_and_its_height(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    case = dataclasses.replace(case_info("x" * 100 + NASTY, 2), num_inner_steps=60_000)
    file = Terminal()
    progress = make_progress(file)
    assert isinstance(progress, LiveProgress)
    for lease in range(9):
        progress.evaluation_leased(lease, ADAM, case)
    progress.training_progressed(0, 25_000)
    from rich.console import Console

    console = Console(file=io.StringIO(), width=40)
    console.print(progress.renderable())
    rows = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert rows[0].endswith("…  25000/60000") and rows[1].endswith("…  compiling 0.0 s") and rows[-1] == "and 5 more"
    assert len(rows) == 5 and all(len(row) <= 36 and row.isprintable() for row in rows)


def test_letters_that_an_encoding_lacks_are_escapes_and_a_full_disk_is_one_line() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    make_progress(file, color="no").log("score ▁█")
    assert raw.getvalue() == b"score \\u2581\\u2588\n"
    with open("/dev/full", "w", encoding="utf-8") as full:
        with pytest.raises(LobenchError, match=SHOWN["cannot-write-the-output-got"]):
            make_progress(full).log("a line")
        with contextlib.suppress(OSError):
            full.close()
    make_progress(None).log("nobody hears it")  # type: ignore[arg-type]  # as Python has it where it is closed
