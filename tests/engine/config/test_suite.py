"""How people call cases: one rule for every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError, SuiteError
from lobench.engine.config.suite import names_of_case, require_cases, single_spec_called, specs_called, specs_of_suites

SHOWN = texts_of("config")

_A = "Case.task = @Quadratic()"
_FILES = {
    "quick/digits.gin": f"relu32/{_A}\ngrid/{_A}\ngrid/Case.axes = {{'width': [8, 32]}}\nQuadratic.dim = %width\n",
    "quick/more/words.gin": f"relu32/{_A}\n",
    "quick/.hidden/old.gin": f"gone/{_A}\n",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in _FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "quick"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ["relu32", "grid-width8", "grid-width32", "relu32"]),
        (["digits.relu32"], ["relu32"]),
        (["quick/relu32"], ["relu32"]),
        (["more/words.relu32", "grid-width32"], ["grid-width32", "relu32"]),
        (["grid"], ["grid-width8", "grid-width32"]),
    ],
)
def test_cases_go_by_their_names_and_cells_by_their_scope(suite: Path, names: list[str], expected: list[str]) -> None:
    assert [spec.name for spec in specs_called(names, suite)] == expected


def test_a_file_alone_has_its_own_cases(suite: Path) -> None:
    assert [spec.file for spec in specs_of_suites(suite / "more" / "words.gin")] == ["words"]
    assert single_spec_called(None, suite / "more" / "words.gin").name == "relu32"


def test_what_names_none_or_several_is_one_clear_line(suite: Path) -> None:
    with pytest.raises(SuiteError, match=SHOWN["no-case-digit-relu32-expected"]):
        specs_called(["relu32", "digit.relu32"], suite)
    with pytest.raises(SuiteError, match=SHOWN["several-cases-are-called-relu32"]):
        single_spec_called("relu32", suite)
    with pytest.raises(SuiteError, match=SHOWN["which-case"]):
        single_spec_called(None, suite)
    (suite / "empty.gin").write_text("Case.num_seeds = 1\n")
    with pytest.raises(SuiteError, match=SHOWN["suite-holds-no-case-expected"]):
        specs_called([], suite / "empty.gin")


def test_suite_without_a_scoped_case_or_a_test_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text("print('an evaluator')\n")
    gin = tmp_path / "lm.gin"
    gin.write_text('Case.command = "python evaluate.py"\n')
    with pytest.raises(SuiteError, match=SHOWN["suite-holds-no-case"]):
        require_cases(tmp_path)
    gin.write_text('a/Case.command = "python evaluate.py')
    with pytest.raises(ConfigError, match=SHOWN["gin-syntax-error"]):
        require_cases(tmp_path)
    gin.unlink()
    (tmp_path / "check_lm.py").write_text("def test_loss(checkpoint): ...\n")  # pytest's `python_files` may name it
    require_cases(tmp_path)
    (tmp_path / "check_lm.py").rename(tmp_path / "conftest.py")
    (tmp_path / "conftest.py").write_text("def pytest_collect_file(file_path, parent): ...\n")
    require_cases(tmp_path)


def test_tests_go_by_their_names_and_node_ids(suite: Path) -> None:
    (suite / "test_lm.py").write_text(
        "def test_loss(checkpoint): ...\n\n"
        "def test_cases(case, evaluate): ...\n\n"
        "class TestLM:\n    def test_loss(self, size): ...\n"
    )
    tests = ["test_loss", "TestLM::test_loss"]
    specs = specs_called(["relu32", *tests], suite, with_tests=True)
    assert [spec.name for spec in specs if spec.is_test] == tests and len(specs) == 4
    for name in (
        "TestLM::test_loss[8]",
        "quick/test_lm.TestLM::test_loss[8]",
        "x/quick/test_lm.py::TestLM::test_loss[8]",
    ):
        assert [spec.name for spec in specs_called([name], suite, with_tests=True)] == ["TestLM::test_loss[8]"]
    assert "quick/test_lm.test_loss" in names_of_case("test_loss", [str(suite)])
    for name in ("test_cases", "test_lm.TestLM", "TestLM"):
        with pytest.raises(SuiteError):
            specs_called([name], suite, with_tests=True)
    with pytest.raises(SuiteError):
        specs_called(["test_loss"], suite)


def test_names_that_another_case_has_too_are_left_out(suite: Path) -> None:
    assert names_of_case("digits.relu32", [str(suite)]) == {"digits.relu32", "quick/relu32", "quick/digits.relu32"}
