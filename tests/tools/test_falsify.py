"""`lobench falsify`: a planted boundary, the smallest case that is lost, and the test that replays it."""

from __future__ import annotations

import json
import math
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Done, lobench, pytest_session
from reference import ROOT
from shown import texts_of
from tiny import killed_chief, make_suite, write_checkpoint

from lobench.analysis.scores.score_scale import ScaleKind, ScoreScale
from lobench.analysis.store.snapshot import read_store
from lobench.core.case import SeedBlock
from lobench.core.errors import LobenchError
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import single_spec_called
from lobench.evaluation.result import Result
from lobench.testing.metrics import sample_curves
from lobench.tools.falsify.cell_search import CellSearch, CellTest, GridAxis, search_cells
from lobench.tools.falsify.cells import read_cells
from lobench.tools.falsify.falsify import FalsifyResult
from lobench.tools.falsify.falsify_output import falsify_text
from lobench.tools.falsify.falsify_settings import FalsifySettings, SearchRules
from lobench.tools.falsify.replay import MeasuredLoss, measured_loss
from lobench.tools.falsify.written import write_case

sys.path.insert(0, str(ROOT / "benchmarks"))

from falsify_rates import WORLDS, play

SHOWN = texts_of("falsify")

STEEP = """
@configurable
class Steep(Bowl):
    def __init__(self, *, dim=3, steepness=1, shape="round"):
        super().__init__(dim=dim)
        self.steepness = steepness
    def loss(self, params, key, data):
        return self.steepness * super().loss(params, key, data)

@configurable
def Half(*, task, share=0.5):
    return task
"""
SUITE = """
import tiny_tasks
Case.num_inner_steps = 12
Case.eval_every = 6
steep/Case.task = @Steep()
steep/Steep.dim = 4
steep/Steep.steepness = 2
steep/Steep.shape = "oval"
steep/Suite.roles = {"LearnableSGD": "meta_train"}
"""
# SGD with a rate of .1 multiplies by 1 - .2 steepness: 16 is the first one that grows. A tuned one has a smaller rate.
AXES = ("--axes", "Steep.steepness = [2, 4, 8, 16, 32]", "--axes", "Steep.dim = [2, 4]")
HERE = ("--seeds", "6", "--workers", "1", "--executor", "inline", "--format", "json")
OPTIONS = ("--against", "sgd", *HERE)  # it compiles in half the time of Adam, the default
BOUND = "; Case.learned_optimizer = @LearnableSGD()"


def steep_suite(folder: Path) -> Path:
    suite = make_suite(folder, gin=SUITE)
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(STEEP)
    for name, rate in (("theta", 0.1), ("small", 0.03)):
        write_checkpoint(folder / f"{name}.npz", math.log(rate))
    return suite


def falsify(folder: Path, *options: str, theta: str = "theta") -> Done:
    given = options or (*AXES, *OPTIONS)
    return lobench("falsify", f"{theta}.npz{BOUND}", "--suite", "tiny", *given, cwd=folder)


def rows_in(folder: Path) -> Any:
    return read_store(folder / ".lobench" / "falsify" / "tiny").rows


def num_rows(folder: Path) -> int:
    return len(rows_in(folder))


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A search that was killed and went on, and its record."""
    folder = tmp_path_factory.mktemp("fallen")
    steep_suite(folder)
    killed = killed_chief(36, 1, "falsify", f"theta.npz{BOUND}", "--suite", "tiny", *AXES, *OPTIONS, cwd=folder)
    assert killed.returncode == -9, killed.stderr
    of_tests = [row for row in rows_in(folder) if row.key.seed_block.start > 0]
    assert 4 <= len(of_tests) < 16, "after the first of four tests; cells are screened with seeds from 0"
    done = falsify(folder)
    assert done.returncode == 1, done.stderr
    return folder, json.loads(done.stdout)


def test_a_planted_boundary_is_found_within_one_step_in_95_of_100_searches() -> None:
    for world in WORLDS[:5]:
        rng = np.random.default_rng(1)
        found = [play(world, rng)[:2] for _ in range(100)]
        assert sum(near for near, _ in found) >= 95, world.name
        assert sum(false for _, false in found) <= 5, world.name


def test_where_nothing_is_lost_by_more_than_the_margin_hardly_anything_is_confirmed() -> None:
    at_the_margin = next(world for world in WORLDS if world.name == "nowhere, at the margin everywhere")
    rng = np.random.default_rng(2)
    assert sum(play(at_the_margin, rng)[1] for _ in range(100)) <= 11  # 5, and three standard errors


def test_each_test_has_a_number_of_its_own_and_a_budget_ends_a_search() -> None:
    axes = [GridAxis(name=name, size=9, home_index=0, simplest_index=0) for name in "ab"]

    class Lost:
        def gaps(self, cells: Any) -> list[float]:
            return [1.0 if cell[0] >= 3 else 0.0 for cell in cells]

        def test(self, cell: Any, number: int, factor: int) -> tuple[float, float]:
            return (1.0, 0.0) if cell[0] >= 3 else (0.0, 1.0)

    whole = search_cells(axes, Lost(), SearchRules(margin=0.1))
    assert whole.stop_reason == "smallest" and whole.smallest is not None and whole.smallest.cell == (3, 0)
    assert [test.number for test in whole.tests] == list(range(len(whole.tests)))
    short = search_cells(axes, Lost(), SearchRules(margin=0.1, most_cells=4))
    assert short.stop_reason == "budget" and short.first is not None and len(short.gaps) == 4


def test_the_smallest_case_lies_at_the_boundary(fallen: tuple[Path, dict[str, Any]]) -> None:
    folder, record = fallen
    axes = {one["name"]: one for one in record["axes"]}
    assert record["ending"] == "smallest" and record["is_trained_on"]
    assert axes["Steep.steepness"]["smallest"] == "16" and axes["Steep.steepness"]["ratio"] == 8
    assert axes["Steep.steepness"]["steps"] == 3 and axes["Steep.dim"]["smallest"] == "2"
    assert (axes["Steep.shape"]["case"], axes["Steep.shape"]["smallest"]) == ("'oval'", "default")
    assert "shape" not in (folder / record["files"][0]).read_text()
    assert record["params"][0] == 4 and record["params"][1] < 4 and record["smallest"]["gap"] > 1
    assert (
        not record["is_at_edge"] and record["level"] == 0.05 / 40 and record["smallest"]["p_value"] <= record["level"]
    )
    assert [Path(file).name for file in record["files"]] == [
        "theta_steep.gin",
        "theta_steep.json",
        "test_theta_steep.py",
    ]


def test_no_seed_of_a_test_was_seen_before_and_both_sides_have_it(fallen: tuple[Path, dict[str, Any]]) -> None:
    rows = rows_in(fallen[0])
    tested = [row for row in rows if row.key.seed_block.start >= 10_000]
    assert all(row.key.seed_block.start == 0 for row in rows if row not in tested)
    by_test: dict[int, list[Any]] = {}
    for row in tested:
        by_test.setdefault(row.key.seed_block.start // 1000, []).append(row)
    assert len(by_test) == fallen[1]["num_tests"]
    assert {row.key.seed_block.size for row in rows} == {3}, "all seeds are trained by one program for each side"
    for own in by_test.values():
        assert len({row.case.file for row in own}) == 1 and len({row.key.checkpoint_sha256 for row in own}) == 2
    seeds = [seed for row in tested for seed in row.key.seed_block.seeds]
    assert len(seeds) == 2 * len(set(seeds))


def test_a_replay_on_other_seeds_or_of_another_rule_is_refused(fallen: tuple[Path, dict[str, Any]]) -> None:
    path = fallen[0] / "falsified" / "theta_steep.json"
    measured = measured_loss(path)
    assert measured.behind == fallen[1]["smallest"]["gap"] and len(measured.scores) >= 6
    others = sample_curves([[1.0, 0.5], [1.0, 0.5]])
    with pytest.raises(LobenchError, match=SHOWN["result-has-other-seeds"]):
        measured.gap(Result([others]))
    older = path.with_name("older.json")
    older.write_text(json.dumps(json.loads(path.read_text()) | {"score_version": 1}))
    with pytest.raises(LobenchError, match=SHOWN["two-versions"]):
        measured_loss(older)


def test_pytest_replays_the_case_and_passes_a_checkpoint_that_does_not_lose(
    fallen: tuple[Path, dict[str, Any]],
) -> None:
    folder, record = fallen

    def replayed(theta: str) -> Done:
        given = ("--lobench-checkpoint", f"{theta}.npz", "--lobench-gin-param", BOUND[2:])
        return pytest_session("-q", "falsified/test_theta_steep.py", *given, cwd=folder)

    lost, held = replayed("theta"), replayed("small")
    assert lost.returncode == 1, lost.stdout + lost.stderr
    assert SHOWN["behind-sgd-sgd-learning-rate"].format(gap=record["smallest"]["gap"]) in lost.stdout
    assert held.returncode == 0, held.stdout + held.stderr


def test_a_killed_search_went_on_and_a_further_call_trains_nothing(fallen: tuple[Path, dict[str, Any]]) -> None:
    folder, record = fallen
    assert (record["num_cells"], record["num_tests"]) == (9, 4), "as of a search that is not killed"
    each_once = record["num_cells"] + 4 * record["num_tests"]  # a test is two blocks of seeds of both sides
    assert num_rows(folder) == each_once
    assert json.loads(falsify(folder).stdout) == record and num_rows(folder) == each_once


def test_a_search_whose_cells_are_used_up_says_so_and_its_code(fallen: tuple[Path, dict[str, Any]]) -> None:
    done = falsify(fallen[0], *AXES, "--most-cells", "3", "--output", "early", *OPTIONS[:-2])
    assert done.returncode == 4 and SHOWN["perhaps-not-the-smallest-most"] in done.stdout


def test_a_case_of_another_search_keeps_its_files(fallen: tuple[Path, dict[str, Any]]) -> None:
    folder, record = fallen
    before = {file: (folder / file).read_text() for file in record["files"]}
    for _ in range(2):
        done = falsify(folder, *AXES, "--margin", "0.099", "--most-cells", "3", *OPTIONS)
        names = [Path(file).name for file in json.loads(done.stdout)["files"]]
        assert names == ["theta_steep_2.gin", "theta_steep_2.json", "test_theta_steep_2.py"]
    assert before == {file: (folder / file).read_text() for file in record["files"]}
    assert runpy.run_path(str(folder / "falsified" / "test_theta_steep_2.py"))


def test_a_place_that_cannot_be_written_is_one_line_and_no_fault(fallen: tuple[Path, dict[str, Any]]) -> None:
    folder = fallen[0]
    (folder / "file").write_text("")
    for option, line in (
        ("--store", SHOWN["lobench-file-cannot-use-the"]),
        ("--output", SHOWN["lobench-file-cannot-write-the-2"]),
    ):
        done = falsify(folder, *AXES, *OPTIONS, option, "file")
        assert done.returncode == 2 and line in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_falsify_with_an_output_that_cannot_be_written_is_refused_before_the_search(tmp_path: Path) -> None:
    steep_suite(tmp_path)
    (tmp_path / "file").write_text("")
    done = falsify(tmp_path, *AXES, *OPTIONS, "--output", "file")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(SHOWN["lobench-file-cannot-write-the"]) and "--output" in done.stderr
    assert not (tmp_path / ".lobench").exists()


def test_a_search_that_cannot_look_at_the_case_itself_is_no_clean_bill(tmp_path: Path) -> None:
    steep_suite(tmp_path)
    done = falsify(tmp_path, *AXES, *HERE, "--against", "adamm")
    assert done.returncode == 2 and "adamm" in done.stderr and "Traceback" not in done.stderr, done.stderr
    broken = lobench("falsify", "sgd(); sgd.learning_rate = 'fast'", "--suite", "tiny", *AXES, *OPTIONS, cwd=tmp_path)
    assert broken.returncode == 2 and SHOWN["case-itself-gives-no-result"] in broken.stderr, broken.stderr


def test_without_a_loss_it_says_that_none_was_shown(fallen: tuple[Path, dict[str, Any]]) -> None:
    few = ("--axes", "Steep.dim = [3]", "--margin", "2.5", *HERE[:-2])  # against Adam, the default
    done = falsify(fallen[0], *few)
    assert (
        done.returncode == 0 and SHOWN["no-case-was-confirmed"] in done.stdout and SHOWN["does-not-show"] in done.stdout
    )
    assert SHOWN["cells-looked-at-0-tests"] in done.stdout


@pytest.mark.parametrize(
    ("label", "optimizer"), [("slow", "sgd(); sgd.learning_rate = 0.1"), ("theta.npz", "")], ids=["optimizer", "theta"]
)
def test_texts_and_files_name_a_checkpoint_only_if_there_is_one(tmp_path: Path, label: str, optimizer: str) -> None:
    cells = read_cells(single_spec_called("steep", steep_suite(tmp_path)), Layers(), ["Steep.dim = [2, 4]"])
    lost = CellTest(
        cell=tuple(axis.home_index for axis in cells.axes), number=0, factor=1, gap=1.0, p_value=0.0, is_confirmed=True
    )
    scale = ScoreScale(kind=ScaleKind.LOG, untrained=1.0, log_unit=1.0, linear_unit=1.0, floor=0.0)
    result = FalsifyResult(
        subject_label=label,
        optimizer=optimizer,
        case="tiny/steep",
        against="sgd()",
        cells=cells,
        search=CellSearch(first=lost, smallest=lost, stop_reason="smallest", gaps={lost.cell: 1.0}, tests=(lost,)),
        rules=FalsifySettings(),
        case_size=(4, 12),
        smallest_size=(4, 12),
        is_trained_on=False,
        is_at_edge=False,
        block=SeedBlock(start=4, size=4),
        measured_loss=MeasuredLoss(
            against="sgd()", metric="train/loss", margin=0.1, behind=1.0, scale=scale, scores={}, score_version=2
        ),
    )
    files = write_case(result, tmp_path / "falsified")
    for text in (falsify_text(result, files), *(path.read_text() for path in files)):
        assert not optimizer or "checkpoint" not in text
    replay = next(path for path in files if path.suffix == ".py").read_text()
    option = f"--lobench-optimizer {shlex.quote(optimizer)}" if optimizer else "--lobench-checkpoint PATH"
    assert option in replay


def test_a_wrapper_is_put_around_the_task_and_one_that_is_there_is_taken_off(tmp_path: Path) -> None:
    suite = steep_suite(tmp_path)
    with (suite / "tiny.gin").open("a") as file:
        file.write("half/Case.task = @Half()\nhalf/Half.task = @Steep()\nhalf/Half.share = 0.25\n")
    layers = Layers()
    steep = read_cells(
        single_spec_called("steep", suite), layers, ["Half.share = [0.1, 0.2]", "Case.num_inner_steps = [3]"]
    )
    assert [axis.value_text(0) for axis in steep.axes] == ["none", "3", "default"]
    assert [axis.is_searched for axis in steep.search_axes()] == [True, True, False]
    assert "Half" not in steep.cell_text((0, 1, 1)) and "steep/Case.task = @Steep()" in steep.cell_text((0, 1, 1))
    wrapped = steep.cell_text((2, 0, 1)).splitlines()
    assert "steep/Case.task = @Half()" in wrapped and "steep/Half.task = @Steep()" in wrapped
    assert "steep/Half.share = 0.2" in wrapped and "steep/Case.num_inner_steps = 3" in wrapped
    half = read_cells(single_spec_called("half", suite), layers, ["Half.share = [0.5]"])
    assert [axis.name for axis in half.axes] == ["Half", "Half.share"] and half.search_axes()[0].simplest_index == 0
    assert "half/Case.task = @Steep()" in half.cell_text((0, 0))


@pytest.mark.parametrize(
    ("axes", "output"),
    [
        ("Steep.dimm = [1, 2]", SHOWN["no-parameter-dimm"]),
        ("Steep.dim = 3", SHOWN["binding-of-a-list"]),
        ("adam.b1 = [0.1]", SHOWN["case-does-not-use-it"]),
        ("Case.num_seeds = [1, 2]", SHOWN["search-sets-this-itself-got"]),
        ("Case.task = [@Bowl()]", SHOWN["search-sets-this-itself-got-case"]),
    ],
)
def test_axes_that_are_none_are_refused(tmp_path: Path, axes: str, output: str) -> None:
    steep_suite(tmp_path)
    done = falsify(tmp_path, "--axes", axes)
    assert done.returncode == 2 and output in done.stderr
