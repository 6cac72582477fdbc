"""The recipes of the page for contributors, applied to a copy of the tree and run: the files it names are enough."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from reference import ROOT
from shown import texts_of
from tiny import PATIENCE, make_run

SHOWN = texts_of("lobench")

PAGE = (ROOT / "docs" / "contributing.md").read_text()

TASK = '''"""A saddle."""

import jax

from lobench.inner.configurable import configurable
from lobench.inner.task import Task

__all__ = ["Saddle"]


@configurable
class Saddle(Task):
    """Minimizes x^2 + (y^2 - 1)^2."""

    def init(self, key):
        return jax.random.normal(key, (2,))

    def loss(self, params, key, data):
        return params[0] ** 2 + (params[1] ** 2 - 1) ** 2
'''
OPTIMIZER = '''"""Sign descent."""

import optax

from lobench.inner.configurable import configurable

__all__ = ["signs"]


@configurable
def signs(learning_rate=0.05):
    """Steps by the sign of the gradient."""
    return optax.chain(optax.scale_by_sign(), optax.scale(-learning_rate))
'''
SINK = '''"""A sink that counts."""

from lobench.hookspecs import Declaration


def lobench_result_sinks():
    return [Declaration(name="tally", factory=f"{__name__}:Tally", summary="counts deliveries")]


class Tally:
    def __init__(self, context):
        self._path = context.store / "tally.txt"
        self._last = int(self._path.read_text()) if self._path.exists() else 0

    def deliver(self, deliveries):
        self._last = max(self._last, *(one.sequence for one in deliveries))
        self._path.write_text(str(self._last))

    def close(self):
        pass
'''
METRIC = '''"""The best loss of a seed."""

import numpy as np

from lobench.hookspecs import Declaration


def lobench_metrics():
    directions = {"train/least": "min"}
    return [Declaration(name="least", factory=f"{__name__}:least", summary="", metric_directions=directions)]


def least(curves):
    return {"train/least": np.asarray(curves.metrics["train/loss"]).min(axis=1).tolist()}
'''
TEST = '''"""A sign test of pairs."""

from dataclasses import dataclass
from math import comb


@dataclass(frozen=True)
class SignTest:
    differences: tuple[float, ...]

    def p_above(self, shift):
        size, more = len(self.differences), sum(one > shift for one in self.differences)
        return sum(comb(size, k) for k in range(more, size + 1)) / 2**size

    def p_below(self, shift):
        return SignTest(tuple(-one for one in self.differences)).p_above(-shift)

    def bounds(self, tail, error):
        return min(self.differences), max(self.differences)
'''
FIGURE = '''"""A chart of final scores."""

from lobench.hookspecs import Declaration


def lobench_report_sections():
    return [Declaration(name="ladder", factory=":ladder", summary="a ladder of methods")]


def ladder(summary):
    from lobench.report.charts.sections import Figure, Section
    from lobench.drawing.svg import Chart, Series

    series = (Series(label="seeds", x=[0.0, 1.0], y=[0.0, float(len(summary.snapshot.subjects))], style="s1"),)
    chart = Chart(title="Ladder", description="", x_label="x", y_label="y", series=series)
    figures = (Figure(title="Ladder", chart=chart),)
    return [Section(id="ladder", title="A ladder of methods", note="", kind="small", figures=figures)]
'''
FORMAT = '''"""Lines of seed, step and loss."""

from lobench.hookspecs import Declaration


def lobench_import_formats():
    return [Declaration(name="triples", factory=":triples", summary="lines of seed, step and loss")]


def triples():
    from lobench.tools.curve_import.file_kind import FileKind

    return FileKind(about="lines of seed, step and loss", read=read, recognises=lambda path: path.suffix == ".triples")


def read(path, asked, notes):
    from lobench.tools.curve_import.points import CurveRun, Points

    rows = [line.split() for line in path.read_text().splitlines()]
    for seed in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == seed]
        run = CurveRun(path.stem, asked.case, seed)
        yield Points.of_curve(run, "train/loss", [int(row[1]) for row in own], [float(row[2]) for row in own])
'''
DECLARES = '''"""`lobench hello`: a greeting."""

COMMANDS = {"hello": ("lobench.tools.hello.command:hello", "Say hello.")}
'''
COMMAND = '''"""The command `lobench hello`."""

import click


@click.command()
def hello():
    """Say hello."""
    click.echo("hello from a tool")
'''


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a contributor writes: files of their own, and a piece of text after another one in files that are there."""

    new: dict[str, str] = field(default_factory=dict)
    edits: tuple[tuple[str, str, str], ...] = ()  # file, what stands there, what follows it

    @property
    def files(self) -> set[str]:
        return {*self.new, *(file for file, _, _ in self.edits)}


RECIPES = {
    "A task": Recipe({"lobench/inner/tasks/saddle.py": TASK}),
    "An optimizer": Recipe({"lobench/inner/optimizers/signs.py": OPTIMIZER}),
    "A sink": Recipe({"lobench/report/builtin_tally.py": SINK}),
    "A metric": Recipe({"lobench/analysis/builtin_least.py": METRIC}),
    "A statistical test": Recipe(
        {"lobench/analysis/stats/sign_test.py": TEST},
        (
            (
                "lobench/analysis/stats/location.py",
                "    estimate = converged.estimate()\n",
                "    if converged.is_paired and few == 7:\n"
                "        from lobench.analysis.stats.sign_test import SignTest\n\n"
                "        test = SignTest(tuple(b - a for a, b in zip(converged.a, converged.b)))\n"
                '        return Location(method="signs", estimate=estimate, samples=converged, permutation=test)\n',
            ),
            ("lobench/analysis/stats/location.py", 'Literal["paired", ', '"signs", '),
        ),
    ),
    "A figure": Recipe({"lobench/report/charts/builtin_ladder.py": FIGURE}),
    "An import format": Recipe({"lobench/tools/curve_import/formats/builtin_triples.py": FORMAT}),
    "A tool": Recipe(
        {
            "lobench/tools/hello/__init__.py": DECLARES,
            "lobench/tools/hello/command.py": COMMAND,
        }
    ),
    "A kind of method": Recipe(
        edits=(
            ("lobench/core/experiment.py", 'Kind = Literal["optimizer", ', '"preset", '),
            ("lobench/core/experiment.py", '    command: str = ""\n', '    preset: str = ""\n'),
            (
                "lobench/engine/checkpoints/given.py",
                '    if method.kind == "optimizer":\n',
                "        pass\n"
                '    if method.kind == "preset":\n'
                '        return given_optimizer(f"{method.preset}()", label=label)\n'
                '    if method.kind == "optimizer":\n',
            ),
        )
    ),
    "An option of `lobench watch`": Recipe(
        edits=(
            (
                "lobench/api/settings.py",
                '    source: str = option("directory", "Checkpoint source.")\n',
                '    greeting: str = option("", "Said first.")\n',
            ),
            (
                "lobench/api/watch.py",
                "    progress = progress or default_progress()\n",
                "    progress.log(settings.greeting)\n",
            ),
        )
    ),
}
SUITE = """import lobench.inner.tasks.saddle
Case.num_inner_steps = 10
Case.num_seeds = 2
Case.eval_every = 5
saddle/Case.task = @Saddle()
"""
EXPERIMENT = """Experiment.suites = ['suite.gin']
mine/Method.optimizer = @signs()
theirs/Method.preset = 'momentum'
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of lobench with every recipe in it."""
    folder = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "lobench", folder / "lobench")  # with what Python compiled of it
    for recipe in RECIPES.values():
        for name, text in recipe.new.items():
            (folder / name).parent.mkdir(exist_ok=True)
            assert not (folder / name).exists()
            (folder / name).write_text(text)
        for name, before, after in recipe.edits:
            text = (folder / name).read_text()
            assert text.count(before) >= 1, (name, before)
            (folder / name).write_text(text.replace(before, before + after, 1))
    (folder / "suite.gin").write_text(SUITE)
    (folder / "x.gin").write_text(EXPERIMENT)
    return folder


def run(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = (
        [sys.executable, *arguments] if arguments[0] == "-c" else [sys.executable, "-m", "lobench.cli", *arguments]
    )
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ran(tree: Path) -> str:
    """Runs the task with the optimizer, into the sink, with the metric and the kind of method."""
    return run(tree, "run", "x.gin", "--store", "store", "--executor", "inline", "--sink", "tally")


@pytest.mark.long
def test_a_task_an_optimizer_a_sink_a_metric_and_a_kind_of_method_take_part_in_a_run(tree: Path, ran: str) -> None:
    assert (
        all(re.search(rf"^ +\d  {name} ", ran, re.M) for name in ("mine", "theirs"))
        and "2 of 2 evaluations, 2 passed" in ran
    )
    assert int((tree / "store" / "tally.txt").read_text()) >= 2
    found = json.loads(run(tree, "results", "--store", "store", "--format", "json"))
    assert len(found) == 2 and all("train/least" in one["metrics"] for one in found)


@pytest.mark.long
def test_a_figure_is_on_the_page(tree: Path, ran: str) -> None:
    run(tree, "report", "--store", "store", "--output", "page.html")
    assert SHOWN["ladder-of-methods"] in (tree / "page.html").read_text()
    run(tree, "report", "--store", "store", "--output", "ladder.html", "--figure", "ladder")
    assert (tree / "ladder.html").read_text().count("<svg") == 1


@pytest.mark.long
def test_a_statistical_test_is_taken_where_it_applies(tree: Path) -> None:
    code = (
        "from lobench.analysis.stats.location import locate; from lobench.analysis.stats.paired_samples import Samples"
    )
    code += "; found = locate(Samples.of([0.0] * 7, [1.0, 2, 3, 4, 5, 6, 7])); print(found.method, found.p_above())"
    assert run(tree, "-c", code).split() == ["signs", str(1 / 2**7)]


@pytest.mark.long
def test_a_format_is_recognised_and_read(tree: Path) -> None:
    (tree / "adam.triples").write_text("".join(f"{s} {k} {1 / (k + s + 1)}\n" for s in (0, 1) for k in range(5)))
    assert "1 method" in run(tree, "import", "adam.triples", "--case", "lines", "--store", "imported")


@pytest.mark.long
def test_a_tool_has_its_command(tree: Path) -> None:
    assert re.search(SHOWN["hello-say-hello"], run(tree, "--help"))
    assert run(tree, "hello") == "hello from a tool\n"


@pytest.mark.long
def test_an_option_of_watch_is_one_of_the_command_and_has_its_effect(tree: Path) -> None:
    checkpoints = make_run(tree, -1.0)
    assert "--greeting" in run(tree, "watch", "--help")
    words = ("--suite", "suite.gin", "--once", "--executor", "inline", "--store", "watched", "--greeting", "welcome")
    assert "welcome" in run(tree, "watch", str(checkpoints), *words)
