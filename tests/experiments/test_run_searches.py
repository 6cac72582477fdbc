"""Searches inside `lobench run`: real workers, real ledgers, real kills."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from shown import texts_of
from tiny import ONE_CASE, content, killed_chief, make_suite, write_checkpoint

from lobench import open_results
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.store.experiments import Membership, TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import CheckpointFinished

SHOWN = texts_of("run")

SEARCH = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
tuned/Method.optimizer = @momentum()
tuned/Method.search = @ic_grid()
tuned/momentum.learning_rate = @rate/Discrete()
tuned/momentum.decay = @decay/Discrete()
rate/Discrete.values = [1e-3, 1e-2, 0.1, 0.4]
decay/Discrete.values = [0.0, 0.5, 0.9]
"""
BY_METHOD = ("results", "--store", "store", "--by", "method")


def output_of(folder: Path, *words: str, code: int | None = 0) -> str:
    done = lobench(*words, cwd=folder)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def run(folder: Path, *options: str, file: str = "x.gin", store: str = "store", code: int | None = 0) -> str:
    """Runs in this process, worker and all."""
    words = ("run", file, "--store", store, "--workers", "1", "--executor", "inline", *options)
    return output_of(folder, *words, code=code)


def num_new(output: str) -> int:
    last = output.strip().splitlines()[-1]
    assert last.startswith("done: "), output
    return 0 if "nothing new" in last else int(last.split("evaluations, ")[1].split(" passed")[0])


@contextlib.contextmanager
def looked_at(store: Path) -> Any:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        yield ledger, ledger.experiments()[-1].id


def trials(store: Path, method: str = "tuned") -> list[TrialRow]:
    with looked_at(store) as (ledger, form):
        return [row for row in ledger.trials(form) if row.method == method]


def members(store: Path, method: str = "tuned") -> list[Membership]:
    with looked_at(store) as (ledger, form):
        return [one for one in ledger.memberships(form) if one.method == method]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(SEARCH)
    return tmp_path


def test_a_search_ends_with_its_best_on_fresh_seeds_and_these_values_written_out_are_the_same(folder: Path) -> None:
    output = run(folder, "--check")
    assert SHOWN["trials-14-evaluations-2-of"] in output
    output = run(folder)
    found = trials(folder / "store")
    assert num_new(output) == 14, output
    assert [row.state for row in found] == ["done"] * 6 and [row.wave for row in found] == [0] * 4 + [1] * 2
    assert [row.parameters["momentum.learning_rate"] for row in found][:4] == [1e-3, 1e-2, 0.1, 0.4]
    best = max(found, key=lambda row: row.fitness or 0.0)
    assert SHOWN["trial-of-6-is-the"].format(number=best.number) in output and SHOWN["of-6-trials-best"] in output

    fresh = {one.session for one in members(folder / "store") if one.session >= FIRST_REPORT_SEED}
    assert fresh == {FIRST_REPORT_SEED, FIRST_REPORT_SEED + 1}
    shown = output_of(folder, *BY_METHOD)
    rows = [line for line in shown.splitlines() if line.startswith("tuned") and not line.startswith("tuned:")]
    assert len(rows) == 1 and " (s)" in rows[0] and SHOWN["tuned-momentum"] in shown and "(s): optimistic" in shown
    assert SHOWN["other-numbers-of-a-search"] in shown and SHOWN["which-may-start-elsewhere-than"] not in shown
    assert f"momentum.learning_rate = {best.parameters['momentum.learning_rate']}" in shown

    names = ("momentum.learning_rate", "momentum.decay")
    written = "w/Method.optimizer = @momentum()\n"
    written += "".join(f"w/{name} = {best.parameters[name]!r}\n" for name in names)
    (folder / "x.gin").write_text(SEARCH + written)
    assert num_new(run(folder)) == 0, "a search's best and a method with these values are one evaluation"
    both = members(folder / "store", "w")
    assert {one.evaluation for one in both} < {one.evaluation for one in members(folder / "store")}
    again = run(folder)
    assert num_new(again) == 0 and SHOWN["methods-and-trials-already"] in again
    tables = [output_of(folder, *BY_METHOD), output_of(folder, "report", "--store", "store", "--format", "latex")]
    tables[1] = "".join(line for line in tables[1].splitlines() if not line.startswith("%"))
    notes = SHOWN["other-numbers-of-a-search"] + SHOWN["which-may-start-elsewhere-than"]
    assert all(notes in " ".join(table.split()) for table in tables)
    assert SHOWN["evaluations-2-of-them-of"] in run(folder, "--check")


@pytest.mark.parametrize(("search", "num_workers"), [("ic_grid", "1"), ("auto_ic_grid", "2")])
def test_a_search_that_is_killed_again_and_again_has_the_same_trials_and_none_twice(
    folder: Path, search: str, num_workers: str
) -> None:
    lines = {"ic_grid": "", "auto_ic_grid": "tuned/Method.num_trials = 8\ntuned/Method.median_stopping = 0.5\n"}[search]
    text = SEARCH.replace("@ic_grid()", f"@{search}()") + lines + "tuned/Method.wave = 2\n"
    (folder / "x.gin").write_text(text)
    run(folder, store="undisturbed")
    options = ["--workers", num_workers, "--store", "killed"]
    options += ["--executor", "inline"] if num_workers == "1" else []
    for commit, after in (("5", "0"), ("12", "1")):
        done = killed_chief(commit, after, "run", "x.gin", *options, cwd=folder)
        assert done.returncode == -9, done.stdout + done.stderr
    lobench("run", "x.gin", *options, cwd=folder)
    assert trials(folder / "killed") == trials(folder / "undisturbed")
    assert content(folder / "killed") == content(folder / "undisturbed"), "each evaluation is there once"
    assert set(members(folder / "killed")) == set(members(folder / "undisturbed"))


STOPPING = SEARCH.replace("@ic_grid()", "@grid()") + "tuned/Method.median_stopping = 0.5\n"


def test_trials_below_the_median_are_stopped_and_recorded_as_such_and_the_best_is_not_among_them(folder: Path) -> None:
    (folder / "x.gin").write_text(STOPPING.replace("tuned/Method.median_stopping = 0.5\n", ""))
    run(folder, store="all")
    (folder / "x.gin").write_text(STOPPING)
    output = run(folder)
    found, whole = trials(folder / "store"), trials(folder / "all")
    stopped = [row for row in found if row.state == "stopped"]
    assert len(found) == 12 and len(stopped) == 6 and "done: 14 of 14 evaluations, 38 passed" in output
    assert num_new(output) == 2 * (12 + 6 + 1), "parts of all, the rest of half of them, and the best on fresh seeds"
    assert all(row.fitness is None and "after 50%, below" in row.note for row in stopped)
    for row, same in zip(found, whole, strict=True):
        assert row == same or row.state == "stopped", "who goes on has the fitness that it has anyway"
    assert max(row.fitness or -9 for row in found) == max(row.fitness or -9 for row in whole)
    assert {row.number for row in found} - {one.trial for one in members(folder / "store")} == {
        row.number for row in stopped
    }, "parts are no members"
    assert not list((folder / "store" / "states").glob("*.safetensors"))
    assert num_new(run(folder)) == 0 and trials(folder / "store") == found
    assert SHOWN["trials-14-evaluations-2-of-them"] in run(folder, "--check")


def test_a_wave_is_as_wide_as_the_machine_was_when_the_search_began(folder: Path) -> None:
    text = SEARCH.replace("@ic_grid()", "@random()").replace(
        "tuned/Method.search", "tuned/Method.num_trials = 3\ntuned/Method.search"
    )
    (folder / "x.gin").write_text(text)
    run(folder)
    with looked_at(folder / "store") as (ledger, _):
        assert [detail for _, detail in ledger.events("search")] == [{"experiment": "x", "method": "tuned", "wave": 1}]
    before = trials(folder / "store")
    assert num_new(run(folder, "--gin-param", "Experiment.num_sessions = 3")) == 8, "one more seed of each"
    (folder / "x.gin").write_text(text.replace("num_trials = 3", "num_trials = 5"))
    output_of(folder, "run", "x.gin", "--store", "store", "--workers", "2")
    assert trials(folder / "store")[:3] == before and len(trials(folder / "store")) == 5
    with looked_at(folder / "store") as (ledger, _):
        assert len(ledger.events("search")) == 1


def test_check_of_sessions_in_two_blocks_counts_the_fresh_seeds_as_one(folder: Path) -> None:
    text = SEARCH.replace("@ic_grid()", "@random()") + "tuned/Method.num_trials = 2\n"
    (folder / "x.gin").write_text(text + "tuned/Method.report_sessions = 0\n")
    run(folder)
    (folder / "x.gin").write_text(text.replace("num_sessions = 2", "num_sessions = 4"))
    checked = lobench("run", "x.gin", "--store", "store", "--check", "--format", "json", cwd=folder)
    plan = json.loads(checked.stdout)
    assert plan["num_planned"] == 10, "two blocks of two trials on two cases, and one block of fresh seeds of each case"
    assert plan["methods"][0]["num_reported"] == 2
    assert plan["num_missing"] == 6, "the first block of both trials is in the store"
    assert "done: 10 of 10 evaluations" in run(folder)


RATED = '''

@configurable
class RatedSGD(LearnedOptimizer):
    """SGD of a theta's rate, with a factor of its own."""
    def __init__(self, factor=1.0, broken=False):
        if broken:
            raise ValueError("no such thing")
        self.factor = factor
    def init(self, key):
        return {"log_lr": jnp.float32(0)}
    def opt_fn(self, theta, num_steps=None):
        return optax.with_extra_args_support(optax.sgd(self.factor * jnp.exp(theta["log_lr"])))
'''
CHECKPOINT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
learned/Method.checkpoint = "theta.npz"
learned/Method.search = @grid()
learned/Method.report_sessions = 1
learned/Case.learned_optimizer = @RatedSGD()
learned/RatedSGD.factor = @Discrete()
learned/Discrete.values = [0.5, 1.0, 1e30]
learned/RatedSGD.broken = @broken/Categorical()
broken/Categorical.values = [False, True]
"""


def check_exports_of_fresh_seeds(store: Path, *, num_fresh: int, num_evaluations: int) -> None:
    """Every evaluation is exported under one label: those on fresh seeds under "... on fresh seeds", no other one."""
    frame = open_results(store).evaluations()
    is_fresh = frame["label"].str.endswith("on fresh seeds")
    assert (frame["seed_start"][is_fresh] >= FIRST_REPORT_SEED).all(), frame[["label", "seed_start"]]
    assert (frame["seed_start"][~is_fresh] < FIRST_REPORT_SEED).all(), frame[["label", "seed_start"]]
    assert (is_fresh.sum(), len(frame)) == (num_fresh, num_evaluations)
    assert len(frame.drop_duplicates(["sha256", "case_identity", "seed_start", "optimizer"])) == num_evaluations
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        for one in ledger.deliveries_after(0, limit=1000):
            if isinstance(one.event, CheckpointFinished):
                starts = [found.seed_block.start for found in one.event.evaluations]
                is_report = one.event.subject.label.endswith("on fresh seeds")
                assert all((start >= FIRST_REPORT_SEED) == is_report for start in starts), one.event.subject.label


def test_a_checkpoint_with_a_rate_of_its_own_is_tuned_and_what_breaks_is_infeasible(folder: Path) -> None:
    tasks = folder / "tiny" / "tiny_tasks.py"
    imports = "import optax\nfrom lobench import LearnedOptimizer\n"
    tasks.write_text(imports + tasks.read_text() + RATED)
    write_checkpoint(folder / "theta.npz", -2.0)
    (folder / "x.gin").write_text(CHECKPOINT)
    output = run(folder, code=3)
    found = trials(folder / "store", "learned")
    states = {(row.parameters["RatedSGD.factor"], row.parameters["RatedSGD.broken"]): row.state for row in found}
    assert {key: state for key, state in states.items() if key[1]} == {
        (factor, True): "infeasible" for factor in (0.5, 1.0, 1e30)
    }
    assert [row.fitness for row in found if row.parameters["RatedSGD.factor"] == 1e30] == [-1.0, None], "it diverged"
    assert "6 of 6 trials" in output
    fresh = [one for one in members(folder / "store", "learned") if one.session >= FIRST_REPORT_SEED]
    assert {one.session for one in fresh} == {FIRST_REPORT_SEED}
    records = json.loads(output_of(folder, *BY_METHOD, "--format", "json"))
    assert {one["seeds"] for one in records if one["case"] != "mean score"} == {1}
    assert all(one["searched"] != one["mean"] and one["is_fresh"] for one in records)
    best = max((row for row in found if row.state == "done"), key=lambda row: row.fitness)
    values = "; ".join(f"{path} = {value!r}" for path, value in best.parameters.items())
    assert {one["bindings"] for one in records} == {values}
    check_exports_of_fresh_seeds(folder / "store", num_fresh=2, num_evaluations=14)
    assert num_new(run(folder, code=3)) == 0


def test_ctrl_c_budgets_and_parts_go_on_with_the_same_command(folder: Path) -> None:
    (folder / "x.gin").write_text(SEARCH + "other/Method.optimizer = @sgd()\nother/sgd.learning_rate = 0.3\n")
    output = run(folder, "--max-core-hours", "1e-9", code=4)
    assert SHOWN["max-core-hours-are-used"] in output and SHOWN["same-command-goes-on"] in output
    # One evaluation was under way as the budget ended: of the search, or of `other` where its wave came later.
    assert num_new(run(folder, "--method", "other")) in (1, 2)
    assert num_new(run(folder, "--method", "other")) == 0
    assert len(trials(folder / "store")) == 4, "the first wave is known, and waits"
    assert num_new(run(folder)) <= 14
    assert [row.state for row in trials(folder / "store")] == ["done"] * 6


def test_a_search_stays_in_the_tables_when_another_method_has_more_sessions_and_is_made_anew_on_these(
    folder: Path,
) -> None:
    (folder / "tiny" / "tiny.gin").write_text(ONE_CASE)
    (folder / "x.gin").write_text(SEARCH + "other/Method.optimizer = @sgd()\n")
    run(folder)
    found, first = trials(folder / "store"), members(folder / "store")
    more = ("--gin-param", "Experiment.num_sessions = 3")
    assert num_new(output := run(folder, *more, "--method", "other")) == 1
    note = SHOWN["different-numbers-of-seeds"]
    assert note in output and note in output_of(folder, *BY_METHOD)
    assert f"M{note[1:]}." in output_of(folder, "report", "--store", "store", "--format", "text")
    assert (trials(folder / "store"), members(folder / "store")) == (found, first)

    assert SHOWN["of-the-search-4-are-recorded"] in run(folder, *more, "--check"), "seeds of the first wave"
    assert num_new(run(folder, *more)) == 7
    assert run(folder, *more, "--method", "other") and trials(folder / "store") != found
    seeds = {(one.trial, one.session) for one in members(folder / "store") if one.session < FIRST_REPORT_SEED}
    assert seeds == {(number, session) for number in range(6) for session in range(3)}


def test_a_space_that_nothing_takes_is_refused_before_anything_runs(folder: Path) -> None:
    (folder / "x.gin").write_text(SEARCH.replace("momentum.learning_rate", "momentum.learning_rat"))
    output = run(folder, code=2).strip().splitlines()[-1]
    assert SHOWN["momentum-has-no-parameter-learning"] in output and SHOWN["did-you-mean-learning-rate"] in output


# Writes the rate that its gin file says as theta, and counts how often it ran.
TRAINER = """
import os, re, sys
import numpy as np
session, folder, gin = sys.argv[1:]
rate = float(re.search(r"Trainer.rate = (.*)", open(gin).read())[1])
with open(f"ran-{rate}-{session}", "a") as file:
    file.write("x")
if rate > 1:
    sys.exit("it exploded")
with open(os.path.join(folder, "config.gin"), "w") as file:
    file.write("Case.learned_optimizer = @LearnableSGD()\\n")
path = os.path.join(folder, "theta_1.npz")
np.savez(path, log_lr=np.float32(np.log(rate) - 0.1 * int(session)))
open(path + ".done", "w").close()
"""
COMMAND = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
mine/Method.command = "python train.py {session} {folder} {gin}"
mine/Method.search = @grid()
mine/Trainer.rate = @Discrete()
mine/Discrete.values = [0.01, 0.2, 2.0]
sgd/Method.optimizer = @sgd()
"""


def test_a_command_is_searched_like_an_optimizer_and_its_values_written_out_train_nothing(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINER)
    (folder / "x.gin").write_text(COMMAND)
    assert SHOWN["mine-3-trials-6-trainings"] in run(folder, "--check")
    output = run(folder, code=3)
    found = trials(folder / "store", "mine")
    assert [(row.parameters["Trainer.rate"], row.state) for row in found] == [
        (0.01, "done"),
        (0.2, "done"),
        (2.0, "failed"),
    ]
    assert found[1].fitness is not None and found[0].fitness is not None and found[1].fitness > found[0].fitness
    assert SHOWN["mine-trial-1-of-3"] in output and SHOWN["mine-2-0-failed-exited"] in output
    best = members(folder / "store", "mine/1")
    assert {one.session for one in best} == {0, 1, FIRST_REPORT_SEED, FIRST_REPORT_SEED + 1}
    assert {one.trial for one in best} == {0, 1}, "two trainings"
    records = json.loads(output_of(folder, *BY_METHOD, "--format", "json"))
    mine = [one for one in records if one["method"] == "mine" and one["case"] != "mean score"]
    assert all(one["seeds"] == 2 and one["searched"] is not None for one in mine) and len(mine) == 2
    assert {one["bindings"] for one in mine} == {"Trainer.rate = 0.2"}
    check_exports_of_fresh_seeds(folder / "store", num_fresh=4, num_evaluations=14)

    again = run(folder, code=3)
    assert num_new(again) == 0 and {path.read_text() for path in folder.glob("ran-*")} == {"x"}
    written = COMMAND.replace("mine/Method.search = @grid()\n", "").replace("@Discrete()", "0.2")
    (folder / "x.gin").write_text(written.replace("mine/Discrete.values = [0.01, 0.2, 2.0]\n", ""))
    assert num_new(run(folder)) == 0, "the same command with this value is trained already"
    assert {path.read_text() for path in folder.glob("ran-*")} == {"x"}


def test_a_name_that_the_cases_do_not_know_is_said_before_a_searched_command_trains(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINER)
    (folder / "x.gin").write_text(f"{COMMAND}outer.num_steps = 3\n")
    for more in (["--check"], []):
        output = run(folder, *more, code=2)
        assert SHOWN["unknown-name-outer"] in output.strip().splitlines()[-1], output
    assert not list(folder.glob("ran-*"))


def test_a_search_without_a_feasible_trial_prints_no_winner(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINER)
    values = "mine/Discrete.values = [0.01, 0.2, 2.0]"
    assert values in COMMAND
    (folder / "x.gin").write_text(COMMAND.replace(values, "mine/Discrete.values = [2.0, 3.0]"))
    output = run(folder, code=3)
    assert SHOWN["is-the-best"] not in output and SHOWN["mine-none-of-2-trials"] in output, output
    records = json.loads(output_of(folder, *BY_METHOD, "--format", "json"))
    assert "mine" not in {one["method"] for one in records}
