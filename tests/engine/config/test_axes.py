"""Axes make a case of each cell: its name, its values where `%axis` stands, its identity; bad ones are one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench
from shown import texts_of
from tiny import make_run, make_suite, results, watch

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError
from lobench.engine.config.bound import bind_case, integer_field_of
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")

GRID = """
import tiny_tasks
Case.num_inner_steps = 10
Case.num_seeds = 2
grid/Case.task = @Bowl()
grid/Case.axes = {AXES}
grid/Bowl.dim = %width
grid/Case.num_inner_steps = %horizon
"""
TWO = '{"width": [3, 5], "horizon": [10, 20]}'


def specs(folder: Path, axes: str = TWO, extra: str = "") -> list[CaseSpec]:
    if not (folder / "tiny").is_dir():
        make_suite(folder)
    (folder / "tiny" / "tiny.gin").write_text(GRID.replace("{AXES}", axes) + extra)
    return specs_in(folder / "tiny" / "tiny.gin")


def test_a_case_is_made_of_each_cell_and_reads_its_values(tmp_path: Path) -> None:
    found = specs(tmp_path)
    names = [f"grid-width{width}-horizon{horizon}" for width in (3, 5) for horizon in (10, 20)]
    assert [spec.name for spec in found] == names and {spec.scope for spec in found} == {"grid"}
    bound = [bind_case(spec, Layers()) for spec in found]
    assert [(one.case.task.dim, one.case.num_inner_steps) for one in bound] == [(3, 10), (3, 20), (5, 10), (5, 20)]
    assert len({one.info.identity for one in bound}) == 4 and len({one.info.problem for one in bound}) == 4


def test_identities_stay_when_a_value_is_added(tmp_path: Path) -> None:
    before = {spec.name: bind_case(spec, Layers(), build=False) for spec in specs(tmp_path)}
    more = specs(tmp_path, '{"width": [1, 3, 5], "horizon": [10, 20, 30]}')
    after = {spec.name: bind_case(spec, Layers(), build=False) for spec in more}
    assert len(after) == 9
    for name, one in before.items():
        assert (after[name].info.identity, after[name].info.problem) == (one.info.identity, one.info.problem), name


def test_any_setting_reads_an_axis_even_before_a_case_is_built(tmp_path: Path) -> None:
    extra = "grid/Case.num_seeds = %num\n"
    found = specs(tmp_path, '{"width": [3], "horizon": [10], "num": [2, 6]}', extra)
    assert [integer_field_of("num_seeds", spec, Layers()) for spec in found] == [2, 6]
    assert [bind_case(spec, Layers(), build=False).info.num_seeds for spec in found] == [2, 6]


def test_axes_at_the_root_are_a_default_and_a_scope_has_its_own(tmp_path: Path) -> None:
    make_suite(tmp_path)
    (tmp_path / "tiny" / "tiny.gin").write_text(
        "import tiny_tasks\nCase.axes = {'width': [3, 4]}\nBowl.dim = %width\na/Case.task = @Bowl()\n"
        "b/Case.task = @Bowl()\nb/Case.axes = {'width': [7]}\n"
    )
    names = [spec.name for spec in specs_in(tmp_path / "tiny" / "tiny.gin")]
    assert names == ["a-width3", "a-width4", "b-width7"]


def test_values_of_all_kinds_have_names(tmp_path: Path) -> None:
    found = specs(tmp_path, '{"width": [1e-3, 1000.0, True, None, "relu", (32, 32)], "horizon": [1]}')
    names = [spec.name for spec in found]
    assert names == [f"grid-width{text}-horizon1" for text in ("0.001", "1000.0", "True", "None", "relu", "32x32")]


@pytest.mark.parametrize(
    ("axes", "output"),
    [
        ("3", SHOWN["case-axes-got-3-expected"]),
        ("{}", SHOWN["case-axes-got"]),
        ('{"width": [3], "horizon": []}', SHOWN["axis-horizon-got-expected-a"]),
        ('{"width": (3, 5), "horizon": [1]}', SHOWN["axis-width-got-3-5"]),
        ('{"wide net": [3]}', SHOWN["name-of-an-axis-got"]),
        ('{"width": [3, 3], "horizon": [1]}', SHOWN["axis-width-has-two-values"]),
        ('{"width": [3, "3"], "horizon": [1]}', SHOWN["axis-width-has-two-values"]),
        ('{"width": ["a b"], "horizon": [1]}', SHOWN["axis-width-got-a-b"]),
        ('{"width": [@Bowl()], "horizon": [1]}', SHOWN["axis-width-got-bowl-expected"]),
        ('{"width": [3], "horizon": [1], "widht": [3]}', SHOWN["nothing-reads-the-axis-widht"]),
        (f'{{"width": {list(range(1, 40))}, "horizon": {list(range(1, 40))}}}', SHOWN["got-1-521-cells-expected"]),
    ],
)
def test_axes_that_make_no_cells_are_told_in_a_line(tmp_path: Path, axes: str, output: str) -> None:
    with pytest.raises(ConfigError) as caught:
        specs(tmp_path, axes)
    assert output in str(caught.value) and "\n" not in str(caught.value) and "tiny.gin:6" in str(caught.value)


@pytest.mark.parametrize("text", ["width = 7", 'Case.axes = {"width": [7]}', "grid/Case.axes = {}"])
def test_what_is_bound_over_a_case_leaves_its_axes_alone(tmp_path: Path, text: str) -> None:
    spec = specs(tmp_path)[0]
    with pytest.raises(ConfigError, match=SHOWN["can-only-be-set-in"]):
        bind_case(spec, Layers(gin_params=(text,)), build=False)


def test_a_watch_evaluates_each_cell_under_its_name_and_adds_what_a_value_adds(tmp_path: Path) -> None:
    specs(tmp_path)
    run = make_run(tmp_path, -3.0)
    first = watch(run, tmp_path / "tiny", "--workers", "1", "--once")
    assert first.returncode == 0, first.stderr
    specs(tmp_path, '{"width": [3, 5], "horizon": [10, 20, 30]}')
    second = watch(run, tmp_path / "tiny", "--workers", "1", "--once")
    assert second.returncode == 0, second.stderr
    found = results(run / "lobench_results" / "tiny")
    names = [one["case"]["name"] for one in found]
    assert len(names) == 6 and set(names) == {f"grid-width{w}-horizon{h}" for w in (3, 5) for h in (10, 20, 30)}
    assert {one["case"]["name"]: one["eval_steps"][-1] for one in found}["grid-width5-horizon30"] == 30


def test_pytest_chooses_cells_and_a_listing_shows_them(tmp_path: Path) -> None:
    specs(tmp_path)
    command = [sys.executable, "-m", "pytest", "tiny", "--collect-only", "-q", "-k", "width5 and horizon20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "tiny/test_tiny.py::test_tiny[grid-width5-horizon20]\n" in done.stdout and "1/4 tests" in done.stdout
    (line,) = lobench("list", "suites", "--folder", tmp_path).stdout.splitlines()
    names = (f"grid-width{width}-horizon{horizon}" for width in (3, 5) for horizon in (10, 20))
    assert line.endswith(f"tiny.gin: {', '.join(names)}")
