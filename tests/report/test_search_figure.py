"""The charts of a search, from what a ledger holds to the page and to a paper's figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import lobench
from report_store import SEEDS, case_info, make_store
from shown import texts_of

from lobench.analysis.store.search_history import SearchHistory, search_histories_of
from lobench.core.case import SeedBlock
from lobench.core.experiment import SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.search.search import Random
from lobench.core.search.space import Value
from lobench.engine.config.origin import Revision
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.report.charts.search_figure import search_section
from lobench.testing.searches import quadratic, run_search, sample_spaces

SHOWN = texts_of("report")


def row(number: int, fitness: float | None, /, method: str = "adam", state: str = "", **parameters: Value) -> TrialRow:
    ended = "done" if fitness is not None else "failed"
    return TrialRow(method=method, number=number, parameters=parameters, state=state or ended, fitness=fitness)  # type: ignore[arg-type]


def stopped_trials(*rows: TrialRow) -> SearchHistory:
    (found,) = search_histories_of(rows, {"adam": "Adam"})
    return found


def test_the_best_up_to_each_trial() -> None:
    found = stopped_trials(
        row(0, None, rate=0.1),
        row(1, 0.2, rate=0.2),
        row(2, 0.2, rate=0.3),
        row(3, math.nan, rate=1),
        row(4, 0.5, rate=2),
    )
    assert found.best_so_far == (None, 1, 1, 1, 4), "of equals the first; what failed is never the best"
    assert (found.label, found.num_failed, found.numbers) == ("Adam", 2, (0, 1, 2, 3, 4))
    assert [str(value) for value in found.fitness.values] == ["nan", "0.2", "0.2", "nan", "0.5"]


def test_trials_that_are_level_with_the_best_are_named() -> None:
    found = search_section(stopped_trials(row(0, 0.5, rate=0.1), row(1, 0.2, rate=0.2), row(2, 0.5, rate=0.3)))
    assert found is not None and SHOWN["best-is-trial-0-level-with"] in found.note


def test_a_parameter_that_is_not_active_has_no_value_and_names_have_places() -> None:
    found = stopped_trials(
        row(0, 1.0, kind="sgdm", momentum=0.9), row(1, 0.5, kind="adam"), row(2, 0.0, kind="sgdm", momentum=0.5)
    )
    kind, momentum = found.parameters
    assert (kind.names, kind.values) == (("adam", "sgdm"), (1.0, 0.0, 1.0))
    assert momentum.values[::2] == (0.9, 0.5) and math.isnan(momentum.values[1])


@pytest.mark.parametrize(
    ("values", "is_log"), [((1e-4, 1e-1), True), ((1.0, 2.0), False), ((0.0, 100.0), False), (("a", "b"), False)]
)
def test_what_spans_many_sizes_is_shown_by_its_logarithm(values: Sequence[Value], is_log: bool) -> None:
    assert (
        stopped_trials(*(row(place, 0.0, rate=value) for place, value in enumerate(values))).parameters[0].is_log
        is is_log
    )


def test_trials_that_wait_and_sessions_of_commands_are_not_drawn() -> None:
    found = stopped_trials(
        row(0, 1.0, rate=0.1), row(1, None, state="running", rate=0.2), row(0, None, "trained", "done")
    )
    assert (found.numbers, found.num_unfinished) == ((0,), 1)
    assert search_section(stopped_trials(row(0, None, rate=0.1))) is None, "nothing has a fitness yet"


def searched(folder: Path) -> Path:
    """Writes a store whose experiment has searches over every kind of parameter, under names to escape."""
    store = make_store(folder)
    ledger = Ledger.open(store)
    config = "mixed/Method.optimizer = @adam()\nmixed/Method.label = 'Adam, tuned'\nmixed/Method.search = @random()\n"
    experiment = ledger.record_experiment("tuned", config, revision=Revision(), versions={})
    evaluation = EvaluationId(f"{0:064d}", case_info("case0").key, SeedBlock(start=0, size=SEEDS))
    member = SessionMember(method="mixed", trial=0, session=0, evaluation=evaluation)
    programs = {row.key.program_version for row in ledger.evaluations()}
    assert ledger.add_memberships(experiment, [member], programs=programs) == 1
    for space in ("mixed", "conditional"):
        for trial in run_search(Random, sample_spaces()[space], num_trials=12):
            values = {path.replace(".x", ".<b>&$rate$"): value for path, value in trial.parameters.items()}
            fitness = None if trial.number == 3 else quadratic(trial.parameters)
            ledger.record_trial(experiment, replace(row(trial.number, fitness, space), parameters=values))
    ledger.close()
    return store


def test_the_page_and_the_figures_show_a_search(tmp_path: Path) -> None:
    store, page, figures = searched(tmp_path), tmp_path / "page.html", tmp_path / "figures"
    done = lobench("report", "--store", store, "--output", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for title in (
        SHOWN["search-adam-tuned"],
        SHOWN["search-conditional"],
        SHOWN["parallel-coordinates"],
        SHOWN["the-best-is-trial"],
    ):
        assert title in text
    assert "<b>" not in text and SHOWN["inner-training"] in text
    only = lobench("report", "--store", store, "--output", page, "--figure", "search")
    assert only.returncode == 0 and SHOWN["search-conditional"] in page.read_text()
    assert SHOWN["inner-training"] not in page.read_text()
    drawn = lobench("report", "--store", store, "--figure", "search", "--format", "png", "--output", figures)
    assert drawn.returncode == 0, drawn.stderr
    assert {path.name for path in figures.iterdir()} == {"search-mixed.png", "search-conditional.png"}


def test_a_store_without_a_search_says_so(tmp_path: Path) -> None:
    arguments = ("report", "--store", make_store(tmp_path), "--figure", "search", "--output", tmp_path / "figures")
    done = lobench(*arguments, "--format", "png")
    assert done.returncode == 2, done.stdout
    assert SHOWN["nothing-to-draw-of-search"] in done.stderr
    done = lobench(*arguments, "--format", "text")
    assert done.returncode == 2 and SHOWN["text-has-no-charts-give"] in done.stderr
