"""`lobench baseline` on a tiny suite: a file beside it, fresh until the case changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import lobench
from shown import texts_of
from tiny import make_suite

from lobench import evaluate
from lobench.analysis.scores.baseline_file import Baseline
from lobench.analysis.scores.baseline_grids import velo_grid
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.config.suite import single_spec_called
from lobench.evaluation.tuning import _best_index, run_points
from lobench.plugins import load_plugins

SHOWN = texts_of("baseline")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_suite(tmp_path_factory.mktemp("baseline"))
    done = lobench("baseline", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_the_file_holds_the_grid_and_what_it_means(suite: Path) -> None:
    baseline = Baseline.load(suite / "baselines" / "adam-velo.json")
    assert sorted(baseline.cases) == ["tiny.gin:a", "tiny.gin:b"]
    case = baseline.cases["tiny.gin:a"]
    assert (len(case.grid), case.training.horizon, case.seeds) == (15, 100, (0, 1, 2, 3, 4))
    finals = np.asarray([point.final for point in case.grid])
    assert case.best == (int(np.nanargmin(finals)),)
    # Ten steps of Adam move a parameter by ten learning rates: tiny rates do nothing, and tuning picks a large one.
    assert finals[0] == pytest.approx(case.untrained["train/loss"], rel=1e-4)
    assert case.tuned_mean("train/loss") == pytest.approx(finals.min(), rel=1e-6)
    assert case.tuned_mean("train/loss") < 0.5 * case.untrained["train/loss"]
    assert case.curves.steps[0] == 0 and case.curves.steps[-1] == 100 and 10 in case.curves.steps
    # The envelope is made of averages that lag, yet never rises, and ends at the horizon.
    assert (np.diff(case.curves.envelope) <= 0).all()
    assert case.envelope_steps[-1] == 100


def test_programs_of_tuning_are_kept_for_the_next_command(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = single_spec_called("a", suite / "tiny.gin")
    cache, before = suite.parent / "cache", jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("LOBENCH_CACHE_DIR", str(cache))
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        run_points(spec, gin_layers_at("", load_plugins()), "adam", velo_grid(), num_seeds=1)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert any((cache / "xla_cache").glob("jit_advance-*"))


def test_a_fresh_case_is_kept_and_a_changed_one_is_stale(suite: Path) -> None:
    path = suite / "baselines" / "adam-velo.json"
    before = path.read_bytes()
    again = lobench("baseline", str(suite))
    assert again.stdout.count(SHOWN["up-to-date"]) == 2
    assert path.read_bytes() == before
    assert lobench("baseline", str(suite), "--check").returncode == 0
    gin = suite / "tiny.gin"
    text = gin.read_text()
    try:
        gin.write_text(text + "Case.num_seeds = 7\n")
        assert lobench("baseline", str(suite), "--check").returncode == 0, "more seeds are the same problem"
        gin.write_text(text.replace("b/Bowl.dim = 5", "b/Bowl.dim = 6"))
        stale = lobench("baseline", str(suite), "--check")
        assert stale.returncode == 1
        assert SHOWN["tiny-gin-b-is-stale"] in stale.stdout
        assert "tiny.gin:a" not in stale.stdout
    finally:
        gin.write_text(text)


def test_what_another_suite_beside_has_tuned_is_taken_from_there(suite: Path) -> None:
    other = suite.parent / "mini"
    shutil.copytree(suite, other, ignore=shutil.ignore_patterns("baselines"))
    gin = (other / "tiny.gin").read_text()
    (other / "tiny.gin").write_text(gin.replace("b/", "renamed/").replace("Bowl.dim = 5", "Bowl.dim = 5\n"))
    done = lobench("baseline", "tiny.gin", cwd=other)  # as who works beside the cases says it
    beside = Path("..", suite.name, "baselines", "adam-velo.json")
    assert done.stdout.count(SHOWN["taken-from"].format(beside=beside)) == 2, done.stdout + done.stderr
    ours, theirs = (Baseline.load(each / "baselines" / "adam-velo.json").cases for each in (other, suite))
    assert ours["tiny.gin:renamed"].tuned == theirs["tiny.gin:b"].tuned
    shutil.rmtree(other)


def test_a_case_that_was_renamed_keeps_what_was_tuned(suite: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(suite, tmp_path / "alone" / "tiny")
    gin = copy / "tiny.gin"
    gin.write_text(gin.read_text().replace("b/", "renamed/"))
    assert lobench("baseline", str(copy)).stdout.count(SHOWN["up-to-date"]) == 2
    assert sorted(Baseline.load(copy / "baselines" / "adam-velo.json").cases) == ["tiny.gin:a", "tiny.gin:renamed"]
    assert lobench("baseline", str(copy), "--check").returncode == 0


def test_files_of_one_name_in_two_folders_are_two_cases(tmp_path: Path) -> None:
    suite = tmp_path / "wide"
    for folder, steps in (("small", 5), ("large", 8)):
        made = make_suite(tmp_path / folder)
        (suite / folder).mkdir(parents=True)
        text = (made / "tiny.gin").read_text().replace("Case.num_inner_steps = 10", f"Case.num_inner_steps = {steps}")
        (suite / folder / "tiny.gin").write_text(text)
        for module in made.glob("*.py"):
            shutil.copy(module, suite / module.name)
    done = lobench("baseline", str(suite), "--grid", "defaults", "--case", "a")
    path = suite / "baselines" / "adam-defaults.json"
    assert sorted(Baseline.load(path).cases) == ["large/tiny.gin:a", "small/tiny.gin:a"], done.stdout + done.stderr


def test_another_grid_of_the_same_name_is_another_baseline(suite: Path, tmp_path: Path) -> None:
    copy, points = shutil.copytree(suite, tmp_path / "alone" / "tiny"), tmp_path / "mine.json"
    command = ("baseline", str(copy), "--case", "a", "--grid", str(points))
    path = copy / "baselines" / "adam-mine.json"
    for rates in ([0.1], [0.1, 0.3]):
        points.write_text(json.dumps([{"learning_rate": rate} for rate in rates]))
        if path.is_file():
            check = lobench(*command, "--check")
            assert check.returncode == 1 and SHOWN["tiny-gin-a-was-tuned"] in check.stdout
        lobench(*command)
        found = [point.values["learning_rate"] for point in Baseline.load(path).cases["tiny.gin:a"].grid]
        assert found == rates and lobench(*command, "--check").returncode == 0
    (tmp_path / "velo.json").write_text(points.read_text())
    done = lobench(*command[:-1], str(tmp_path / "velo.json"))
    assert done.returncode == 2 and SHOWN["lobench-has-a-grid-of"] in done.stderr


def test_another_search_of_the_same_name_is_another_baseline(suite: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(suite, tmp_path / "alone" / "tiny")
    path = copy / "baselines" / "adam-random.json"
    for number in ("2", "3"):
        command = ("baseline", str(copy), "--case", "a", "--search", "random", "--num-trials", number)
        assert not path.is_file() or lobench(*command, "--check").returncode == 1
        lobench(*command)
        assert len(Baseline.load(path).cases["tiny.gin:a"].grid) == int(number)
        assert lobench(*command).stdout.count(SHOWN["up-to-date"]) == 1


def test_algoperf_keeps_a_winner_for_each_study(suite: Path) -> None:
    command = ("baseline", str(suite), "--optimizer", "adamw", "--grid", "algoperf", "--case", "tiny.a", "--seeds", "2")
    done = lobench(*command)
    assert done.returncode == 0, done.stderr
    case = Baseline.load(suite / "baselines" / "adamw-algoperf.json").cases["tiny.gin:a"]
    assert [case.grid[index].study for index in case.best] == [0, 1, 2]
    winners = [case.grid[index].final for index in case.best]
    assert case.tuned_mean("train/loss") == pytest.approx(np.mean(winners), rel=1e-5)


def test_an_optimizer_without_a_learning_rate_is_trained_as_it_is(suite: Path) -> None:
    for protocol, optimizers in {"velo": ("lbfgs", "polyak_sgd"), "defaults": ("prodigy",)}.items():
        options = [word for name in optimizers for word in ("--optimizer", name)]
        done = lobench("baseline", suite, "--case", "a", "--seeds", "2", *options, "--grid", protocol)
        assert done.returncode == 0, done.stderr
        for name in optimizers:
            assert SHOWN["tiny-gin-a-as-it"].format(name=name) in done.stdout and SHOWN["point-in"] in done.stdout
            file = suite / "baselines" / f"{name}-{protocol}.json"
            case = Baseline.load(file).cases["tiny.gin:a"]
            assert [point.values for point in case.grid] == [{}]
            assert case.tuned_mean("train/loss") < case.untrained["train/loss"]
            file.unlink()


def test_a_grid_is_a_search_like_any_other_with_the_same_bits(suite: Path) -> None:
    rates = [point["learning_rate"] for point in velo_grid().points]
    done = lobench("baseline", str(suite), "--case", "a", "--search", "grid", "--vary", f"learning_rate = {rates}")
    assert done.returncode == 0, done.stderr
    searched = Baseline.load(suite / "baselines" / "adam-grid.json")
    velo = Baseline.load(suite / "baselines" / "adam-velo.json").cases["tiny.gin:a"]
    assert searched.cases["tiny.gin:a"].grid == velo.grid and searched.cases["tiny.gin:a"].tuned == velo.tuned
    assert searched.refresh.endswith(SHOWN["search-grid-vary-learning-rate"].format(rates=rates))


def test_a_search_learns_from_wave_to_wave(suite: Path) -> None:
    varied = ("--vary", 'learning_rate = Real(1e-3, 1.0, scale="log", num_values=4)', "--vary", "b1 = [0.5, 0.9]")
    options = (str(suite), "--case", "a", "--seeds", "2", "--horizon-factor", "1", "--search", "ic_grid", *varied)
    done = lobench("baseline", *options)
    assert done.returncode == 0, done.stderr
    case = Baseline.load(suite / "baselines" / "adam-ic_grid.json").cases["tiny.gin:a"]
    rates = [point.values["learning_rate"] for point in case.grid]
    assert rates[:4] == [1e-3, 1e-2, 0.1, 1.0] and len(case.grid) == 5
    first = min(case.grid[:4], key=lambda point: point.final)
    assert rates[4] == first.values["learning_rate"] and case.grid[4].values["b1"] == 0.5
    assert SHOWN["up-to-date"] in lobench("baseline", *options).stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--search", "random"), SHOWN["this-search-needs-a-number"]),
        (("--vary", "other/adam.b1 = [0.5, 0.9]"), SHOWN["expected-parameters-of-adam-alone"]),
        (("--vary", 'b1 = ["a", "b"]'), SHOWN["baseline-is-tuned-over-numbers"]),
        (("--optimizer", "adamm"), SHOWN["unknown-name-adamm-did-you"]),
        (("--grid", "algoperf", "--optimizer", "sgd"), SHOWN["sgd-has-no-parameter-b1"]),
        (("--case", "tiny.c"), SHOWN["no-case-tiny-c"]),
        (("--grid", "nowhere.json"), SHOWN["cannot-read-the-grid"]),
    ],
)
def test_what_cannot_be_tuned_is_one_clear_line(suite: Path, arguments: tuple[str, ...], text: str) -> None:
    done = lobench("baseline", str(suite), *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


TASKS = """
import jax, jax.numpy as jnp
from lobench import Task, configurable

@configurable
class Half(Task):
    def init(self, key):
        return jax.random.normal(key, (3,), jnp.bfloat16)
    def loss(self, params, key, data):
        return jnp.sum(params**2).astype(jnp.float32)

@configurable
class Broken(Half):
    def loss(self, params, key, data):
        raise RuntimeError("no data\\nanywhere")
"""


def test_a_task_of_bfloat16_is_tuned_and_one_that_fails_is_one_clear_line(tmp_path: Path) -> None:
    """A traced b1 is a float32; an optimizer's averages are the parameters' bfloat16 all the same."""
    (tmp_path / "halves.py").write_text(TASKS)
    gin = "import halves\nCase.num_inner_steps = 10\nhalf/Case.task = @Half()\nbroken/Case.task = @Broken()\n"
    (tmp_path / "halves.gin").write_text(gin)
    options = (str(tmp_path), "--optimizer", "adamw", "--grid", "algoperf", "--seeds", "2", "--horizon-factor", "1")
    done = lobench("baseline", *options, "--case", "half")
    assert done.returncode == 0, done.stderr
    case = Baseline.load(tmp_path / "baselines" / "adamw-algoperf.json").cases["halves.gin:half"]
    assert case.tuned_mean("train/loss") < 0.9 * case.untrained["train/loss"]
    done = lobench("baseline", *options, "--case", "broken")
    assert done.returncode == 2
    assert SHOWN["case-broken-adamw-cannot-be"] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_study_that_diverged_is_not_won_by_another_ones_point() -> None:
    finals = np.asarray([3.0, 2.0, np.nan, np.nan, np.nan, 1.0])
    assert [_best_index(finals, (0, 0, 1, 1, 2, 2), study) for study in range(3)] == [1, 2, 5]


OWN = """
import lobench, optax
from lobench import configurable

@configurable
def cosine_adam(learning_rate=0.1):
    return optax.adam(lobench.Schedule(lambda n: optax.cosine_decay_schedule(learning_rate, n), "cosine"))
"""

FIVE_SEEDS = """
import own_optimizers
Case.num_seeds = 5
phased/Case.task = @Bowl()
phased/Case.phases = [@warm/Phase(), @cool/Phase()]
warm/Phase.num_inner_steps = 4
cool/Phase.num_inner_steps = 6
cool/Phase.opt_state = "reset"
"""


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of as many seeds as its baselines have, with a case of two phases."""
    folder = make_suite(tmp_path_factory.mktemp("five"), extra=FIVE_SEEDS)
    (folder / "own_optimizers.py").write_text(OWN)
    done = lobench(
        "baseline", folder, "--optimizer", "adam", "--optimizer", "cosine_adam", "--case", "a", "--case", "phased"
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("optimizer", ["adam", "cosine_adam"])
@pytest.mark.parametrize("name", ["a", "phased"])
def test_the_best_point_evaluated_as_a_method_is_what_was_tuned_to_the_bit(
    five: Path, optimizer: str, name: str
) -> None:
    path = five / "baselines" / f"{optimizer}-velo.json"
    case = Baseline.load(path).cases[f"tiny.gin:{name}"]
    rate = case.grid[case.best[0]].values["learning_rate"]
    found = evaluate(five, case=name, optimizer=f"{optimizer}(); {optimizer}.learning_rate = {rate!r}")
    assert len({point.final for point in case.grid}) == len(case.grid)  # the rate was varied in the same training
    assert tuple(np.float32(case.tuned["train/loss"])) == tuple(found.metrics["train/loss"][:, -1])
    assert case.tuned_mean("train/loss") == pytest.approx(case.grid[case.best[0]].final, rel=1e-5, abs=0)
    # What has a schedule, or phases, ends with the case's budget: beyond it there is none.
    ends = optimizer == "cosine_adam" or name == "phased"
    assert (case.training.horizon, case.curves.steps[-1], case.training.is_told_horizon) == (
        10 if ends else 100,
        10 if ends else 100,
        optimizer == "cosine_adam",
    )


def test_another_program_or_other_phases_make_a_baseline_stale(five: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(five, tmp_path / five.name)
    check = ("baseline", folder, "--optimizer", "adam", "--case", "a", "--case", "phased", "--check")
    assert lobench(*check).returncode == 0
    gin, path = folder / "tiny.gin", folder / "baselines" / "adam-velo.json"
    text, file = gin.read_text(), path.read_text()
    gin.write_text(text.replace('cool/Phase.opt_state = "reset"', 'cool/Phase.opt_state = "keep"'))
    stale = lobench(*check)
    assert stale.returncode == 1 and SHOWN["tiny-gin-phased-was-trained"] in stale.stdout
    assert "tiny.gin:a" not in stale.stdout
    gin.write_text(text)
    record = json.loads(file)
    record["cases"]["tiny.gin:a"]["program"] = "4"
    path.write_text(json.dumps(record))
    stale = lobench(*check)
    assert stale.returncode == 1 and SHOWN["tiny-gin-a-was-trained"] in stale.stdout
    done = lobench(*check[:-1])
    assert SHOWN["adam-tiny-gin-a-learning"] in done.stdout and done.stdout.count(SHOWN["up-to-date"]) == 1
    assert json.loads(path.read_text())["cases"] == json.loads(file)["cases"]


def test_of_an_older_file_the_best_point_is_evaluated_and_the_grid_is_kept_where_it_was_trained_as_now(
    five: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(five, tmp_path / five.name)
    command = ("baseline", folder, "--optimizer", "adam", "--optimizer", "cosine_adam", "--case", "a")
    for optimizer in ("adam", "cosine_adam"):
        path = folder / "baselines" / f"{optimizer}-velo.json"
        record = json.loads(path.read_text())
        record["format"] = 1
        case = record["cases"]["tiny.gin:a"]
        case["tuned"]["train/loss"][0] *= 1.001  # as the program of all points may have it
        case["horizon_factor"] = 10
        for name in ("starts", "scale", "minimum", "program", "is_told_horizon"):
            del case[name]
        path.write_text(json.dumps(record))
    checked = lobench(*command, "--check")
    assert (checked.returncode, checked.stdout.count(SHOWN["its-best-point-not-evaluated"])) == (1, 2)
    done = lobench(*command)
    assert SHOWN["adam-tiny-gin-a-tuned"] in done.stdout, done.stderr
    assert SHOWN["cosine-adam-tiny-gin-a"] in done.stdout, "its schedule ran over ten times the budget"
    for optimizer in ("adam", "cosine_adam"):
        ours, theirs = (
            json.loads((each / "baselines" / f"{optimizer}-velo.json").read_text()) for each in (folder, five)
        )
        assert ours["format"] == 3 and ours["cases"]["tiny.gin:a"] == theirs["cases"]["tiny.gin:a"]
    assert lobench(*command).stdout.count(SHOWN["up-to-date"]) == 2


def test_a_scale_is_copied_and_nothing_is_trained(suite: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(suite, tmp_path / suite.name)
    path = folder / "baselines" / "adam-velo.json"
    full = Baseline.load(path)
    gin = folder / "tiny.gin"
    gin.write_text(gin.read_text() + 'b/Case.scale = "linear"\nb/Case.minimum = 0.25\n')
    assert SHOWN["tiny-gin-b-has-another"] in lobench("baseline", folder, "--check").stdout
    added = lobench("baseline", folder)
    assert added.stdout.count(SHOWN["scored-by-the-case-s"]) == 1, added.stdout + added.stderr
    found = Baseline.load(path).cases
    assert found["tiny.gin:b"].grid == full.cases["tiny.gin:b"].grid
    assert (found["tiny.gin:b"].scale, found["tiny.gin:b"].minimum) == ("linear", 0.25)
    assert (found["tiny.gin:a"].scale, found["tiny.gin:a"].minimum) == (None, None)
    assert lobench("baseline", folder).stdout.count(SHOWN["up-to-date"]) == 2
