"""`lobench bisect` on a run that breaks, on stores alone, and on what is no run."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import Done
from commands import lobench_here as lobench
from shown import texts_of
from stores import add, case_info
from tiny import killed_chief, make_run, make_suite, results, write_checkpoint

from lobench.analysis.stats.change_point import Probe
from lobench.analysis.store.snapshot import read_store
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.tools.bisect.bisect import _Search
from lobench.tools.bisect.bisect import bisect as lobench_bisect
from lobench.tools.bisect.bisect_output import bisection_text
from lobench.tools.bisect.probes import ProbedCase

SHOWN = texts_of("bisect")


def bisect(run: Path, suite: Path, *options: str | Path) -> Done:
    return lobench("bisect", run, "--suite", suite, "--workers", "1", *options)


def test_a_run_that_breaks_is_found_where_it_does_and_a_kill_in_the_middle_costs_nothing(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5, -1.4, -1.5, -1.45, 30.0, 30.1, 30.2)
    options = ["--format", "json"]
    killed = killed_chief(16, 1, "bisect", run, "--suite", suite, *options, "--workers", "1", "--case", "a")
    assert killed.returncode == -9
    store = run / "lobench_results" / "tiny" / "bisect"
    before = {(row.key.checkpoint_sha256, row.key.seed_block): row.recorded_at for row in read_store(store).rows}
    done = bisect(run, suite, "--case", "a", *options)
    assert done.returncode == 0, done.stderr
    assert SHOWN["looking-at-outer-step"] in done.stderr and "evaluating 1 subject" not in done.stderr, (
        "a line per round"
    )
    record = json.loads(done.stdout)
    assert record["status"] == "found" and record["broken"]["outer_step"] == 5
    assert record["broken"]["uri"] == str(run / "theta_5.npz") and record["last_good"]["outer_step"] == 4
    assert record["probability_within_one"] >= 0.95 and record["probability_of_a_fall"] >= 0.95
    rows = read_store(store).rows
    after = {(row.key.checkpoint_sha256, row.key.seed_block): row.recorded_at for row in rows}
    assert 0 < len(before) < len(after) == len(rows) and before.items() <= after.items()
    assert {found["case"]["name"] for found in results(store)} == {"a"}
    assert record["num_evaluations"] == len(rows) and record["num_new_evaluations"] == len(rows) - len(before)
    for name in ("tiny/a", "tiny.a"):
        again = bisect(run, suite, "--case", name, "--format", "json")
        assert json.loads(again.stdout)["num_new_evaluations"] == 0 and "looking" not in again.stderr


def test_a_case_of_several_seed_blocks_is_looked_at_a_block_at_a_time_and_never_more_than_was_allowed(
    tmp_path: Path,
) -> None:
    suite, run = make_suite(tmp_path, extra="Case.seed_block = 1\n"), make_run(tmp_path, -1.5, -1.4, -1.5, 9.0, 9.1)
    done = bisect(run, suite, "--case", "a", "--most", "2", "--format", "json")
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["num_new_evaluations"] == 2
    assert len(read_store(run / "lobench_results" / "tiny" / "bisect").rows) == 2


def store_of(folder: Path, finals: list[list[float]]) -> tuple[Path, Path, Path]:
    """A run of checkpoints that are gone, evaluated on case `a` of a suite that nobody can run."""
    suite, store = folder / "s", folder / "store"
    suite.mkdir()
    (suite / "s.gin").write_text("a/Case.task = @Gone()\nbeta/Case.task = @Gone()\n")
    for step, values in enumerate(finals, 1):
        add(store, step * 10, {"a": {"train/loss": values}})
    return folder, suite, store


def falling(folder: Path, last_good: int, count: int) -> tuple[Path, Path, Path]:
    draws = np.random.default_rng(0)
    finals = [(0.1 if step < last_good else 0.8) * np.exp(draws.normal(0, 0.05, 4)) for step in range(count)]
    return store_of(folder, [list(map(float, values)) for values in finals])


def test_what_a_store_holds_is_enough_and_is_not_repeated(tmp_path: Path) -> None:
    run, suite, store = falling(tmp_path, 7, 12)
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(SHOWN["train-loss-broke-at-outer"])
    assert SHOWN["interval-outer-steps-80-to"] in lines
    assert SHOWN["last-good-run-theta-70"] in lines
    assert SHOWN["first-broken-run-theta-80"] in lines
    assert SHOWN["cost-12-evaluations-of-4"] in lines
    assert lines[-1] == SHOWN["again-lobench-bisect-suite-case"].format(run=run, suite=suite, store=store)
    # By its file's name too, which this store's cases do not say.
    for name in ("s.a", "s/s.a"):
        named = lobench("bisect", run, "--suite", suite, "--case", name, "--store", store)
        assert named.stdout.splitlines()[:-1] == lines[:-1], named.stderr
    part = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store, "--to-step", "70")
    assert part.returncode in (0, 4) and SHOWN["broke-at"] not in part.stdout


def test_results_of_another_run_with_other_bindings_leave_those_of_the_run_as_they_are(tmp_path: Path) -> None:
    folder, suite, store = store_of(tmp_path, [])
    run = folder / "run"
    run.mkdir()
    losses = {"train/loss": [0.1, 0.11, 0.09, 0.1]}
    for step in range(1, 13):
        broken = {"train/loss": [8 * value for value in losses["train/loss"]]}
        add(store, step, {"a": losses if step < 8 else broken}, uri=str(run / f"theta_{step}.npz"))
    add(store, 20, {"a": losses}, uri=str(folder / "other" / "theta_20.npz"), bindings="other")
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store, "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["status"], record["broken"]["outer_step"], record["num_new_evaluations"]) == ("found", 8, 0)


def test_equal_checkpoints_in_a_row_are_one(tmp_path: Path) -> None:
    """A trainer that stands still writes the same theta again and again: that is no further evidence."""
    found = []
    for num_equal in (1, 5):
        suite, store = tmp_path / f"{num_equal}" / "s", tmp_path / f"{num_equal}" / "store"
        suite.mkdir(parents=True)
        (suite / "s.gin").write_text("a/Case.task = @Gone()\n")
        draws = np.random.default_rng(0)
        for place, level in enumerate((0.1, 0.1, 0.1, 0.1, 0.8)):
            finals = list(map(float, level * np.exp(draws.normal(0, 0.2, 4))))
            for again in range(num_equal):
                step = 10 * place + again
                add(store, step, {"a": {"train/loss": finals}}, sha256=f"{place + 1:064x}")
        seen = lobench_bisect(tmp_path / f"{num_equal}", suite, case="a", store=store)
        found.append((len(seen.checkpoints), seen.posterior))
    assert found[0] == found[1]


def test_a_case_that_never_broke_and_one_that_may_have(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    level = [list(map(float, 0.1 * np.exp(draws.normal(0, 0.05, 4)))) for _ in range(40)]
    run, suite, store = store_of(tmp_path, level)
    for options in ([], ["--format", "json"]):
        asked = ["--case", "a", "--store", store, "--probability", "0.6", *options]
        done = lobench("bisect", run, "--suite", suite, *asked)
        assert done.returncode == 0, done.stderr
        if options:
            assert json.loads(done.stdout)["status"] == "no_fall"
        else:
            assert done.stdout.startswith(SHOWN["no-fall-found"])
    sure = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store, "--probability", "0.999")
    assert sure.returncode == 4 and SHOWN["needed-to-decide-99-90"] in sure.stdout


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    run, suite, store = store_of(tmp_path, [[np.nan] * 4] * 3)
    known = ("bisect", run, "--suite", suite, "--store", store, "--case")

    def refused(*arguments: str | Path) -> str:
        done = lobench(*arguments)
        assert done.returncode == 2 and not done.stdout and len(done.stderr.strip().splitlines()) == 1, done
        return done.stderr

    assert SHOWN["every-evaluation-diverged-it-never"] in refused(*known, "a")
    assert SHOWN["no-case-bet"] in (line := refused(*known, "bet")) and SHOWN["did-you-mean-beta"] in line
    assert "several" not in line and SHOWN["expected-one-of-a-beta"] in line
    assert SHOWN["fewer-than-two-checkpoints-could"] in refused(*known, "beta")
    assert SHOWN["bisecting-takes-two-checkpoints-or"] in refused(*known, "a", "--to-step", "10")
    assert SHOWN["no-subject-has-this-metric"] in refused(*known, "a", "--metric", "x")
    empty = tmp_path / "empty"
    empty.mkdir()
    line = refused("bisect", empty, "--suite", suite, "--case", "a")
    assert SHOWN["bisecting-takes-two-checkpoints-or-more"] in line
    write_checkpoint(empty / "theta_1.npz", 0.0)
    assert SHOWN["bisecting-takes-two-checkpoints-or-more-got"] in refused(
        "bisect", empty, "--suite", suite, "--case", "a"
    )
    assert SHOWN["no-case-a"] not in line
    with pytest.raises(StopIteration):  # nothing was written where nothing was evaluated
        next((empty / "lobench_results").rglob("*"))


def test_a_checkpoint_that_nobody_evaluated_is_not_called_good_or_broken_without_saying_so(tmp_path: Path) -> None:
    run, suite, store = falling(tmp_path, 5, 12)
    found = lobench_bisect(run, suite, case="a", store=store)
    assert SHOWN["not-evaluated"] not in bisection_text(found)
    others = tuple(
        probe for probe in found.probed_case.probes if probe.checkpoint_index != found.posterior.break_index - 1
    )
    without_it = dataclasses.replace(found.probed_case, probes=others)
    text = bisection_text(dataclasses.replace(found, probed_case=without_it))
    good, broken = (line for line in text.splitlines() if line.startswith(("last good", "first broken")))
    assert SHOWN["it-was-not-evaluated"] in good and SHOWN["it-was-not-evaluated"] not in broken


@pytest.mark.parametrize("first_broken", [8, 9, 10])
def test_bisect_names_the_checkpoint_from_which_on_every_seed_diverges(tmp_path: Path, first_broken: int) -> None:
    draws = np.random.default_rng(0)
    finals = [
        [float(np.nan)] * 5 if step >= first_broken else list(map(float, 0.1 * np.exp(draws.normal(0, 0.05, 5))))
        for step in range(14)
    ]
    run, suite, store = store_of(tmp_path, finals)
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store, "--format", "json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "found" and record["probability"] >= 0.9 == record["confidence"]
    steps = (record["last_good"]["outer_step"], record["broken"]["outer_step"])
    assert steps == (10 * first_broken, 10 * first_broken + 10)
    num_after = 5 * (14 - first_broken)
    expected = {"before": 0, "num_before": 5 * first_broken, "after": num_after, "num_after": num_after}
    assert record["diverged"] == expected


def test_bisect_that_cannot_evaluate_the_pair_prints_the_interval_between_evaluated_checkpoints(tmp_path: Path) -> None:
    """The checkpoints between two stored ones are gone: any of them may be the first broken one."""
    run, suite, store = falling(tmp_path, 4, 8)
    other = tmp_path / "other"
    for step in range(5, 9):  # seen, and evaluated on another case only
        add(store, 100 + step, {"beta": {"train/loss": [0.1, 0.1, 0.1, 0.1]}})
    for step in range(4):
        add(store, 200 + step, {"a": {"train/loss": [0.8, 0.81, 0.79, 0.8]}})
    done = lobench("bisect", run, "--suite", suite, "--case", "a", "--store", store, "--format", "json")
    record = json.loads(done.stdout)
    rows = {row.sightings[0].outer_step for row in read_store(store).rows if row.case.name == "a"}
    assert {record["broken"]["outer_step"], record["last_good"]["outer_step"]} <= rows and not other.exists()
    part = lobench(
        "bisect", run, "--suite", suite, "--case", "a", "--store", store, "--from-step", "80", "--confidence", "0.99"
    )
    assert SHOWN["it-was-not-evaluated"] not in part.stdout, part.stdout


def test_bisect_stops_once_more_seeds_of_two_checkpoints_change_nothing(tmp_path: Path) -> None:
    """The size of the fall is known then. Unknown is by how much checkpoints of such a run differ from each other."""
    rng = np.random.default_rng(1)
    looks = Counter[int]()
    probes = list[Probe]()

    def evaluate(wanted: Sequence[Checkpoint], block: SeedBlock | None) -> None:
        for one in wanted:
            looks[one.outer_step] += 1
            scores = tuple(1 - 0.5 * one.outer_step + 0.1 * rng.normal(size=4))
            probes.append(Probe(checkpoint_index=one.outer_step, block=4 * looks[one.outer_step], scores=scores))

    case = case_info("a", num_seeds=4)
    search = _Search(
        checkpoints=[Checkpoint(uri=f"theta_{step}", outer_step=step, sha256=f"{step:064d}") for step in range(2)],
        first_block=None,
        evaluate=evaluate,
        read_probes=lambda: ProbedCase(case=case, probes=tuple(probes), num_evaluations=len(probes)),
        is_readable=lambda one: True,
        log=lambda line: None,
        level=0.95,
        confidence=0.9,
        max_evaluations=100,
        max_parallel=2,
    )
    status, _, belief = search.run()
    assert (status, belief.break_index) == ("undecided", 1) and 0.5 < belief.fall_probability < 0.95
    assert search.is_exhausted and search.num_new < 20
