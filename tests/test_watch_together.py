"""`lobench watch --together`: real watches over waiting checkpoints, and workers that are killed in between."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown import texts_of
from tiny import ONE_CASE, content, make_run, make_suite, results
from tiny import watch_here as watch

SHOWN = texts_of("watch")

ALL = ("--once", "--checkpoints", "all", "--workers", "1")
RATES = tuple(-3.0 + 0.2 * index for index in range(8))
EACH_ONCE = {(step, case, "passed"): 1 for step in range(1, 9) for case in "ab"}
# Kills its worker at the n-th job of all: the counter outlives it.
CONFTEST = """
import os, signal

def pytest_runtest_call(item):
    with open({counter!r}, "a") as file:
        file.write("x")
    if os.path.getsize({counter!r}) == {job}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
# A task that can be computed for one theta only: its callback does not say what it does for many.
STUBBORN = """
@configurable
class Stubborn(Bowl):
    def eval_loss_with_aux(self, params, model_state, key, data):
        value = jax.pure_callback(lambda x: (x**2).sum(), jax.ShapeDtypeStruct((), jnp.float32), params)
        return value, {}
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of eight checkpoints, a suite, and the store of a watch beside it that computed each alone."""
    folder = tmp_path_factory.mktemp("alone")
    suite, run = make_suite(folder), make_run(folder, *RATES)
    done = watch(run, suite, *ALL, "--store", str(folder / "store"))
    assert done.returncode == 0, done.stdout + done.stderr
    return run, suite


def counts(store: Path) -> Counter[tuple[int, str, str]]:
    return Counter((r["checkpoint"]["outer_step"], r["case"]["name"], r["outcome"]) for r in results(store))


def together(store: Path) -> dict[tuple[str, int], str]:
    """How each evaluation was computed, by case and outer step."""
    return {
        (r["case"]["name"], r["checkpoint"]["outer_step"]): r["provenance"]["together"]
        for r in results(store)
        if r["provenance"] is not None
    }


def assert_close(store: Path, other: Path) -> None:
    for ours, theirs in zip(content(store), content(other), strict=True):
        assert ours[:-1] == theirs[:-1]
        our_metrics, their_metrics = (json.loads(each[-1]) for each in (ours, theirs))
        assert our_metrics.keys() == their_metrics.keys() and our_metrics
        for name, values in our_metrics.items():
            np.testing.assert_allclose(values, their_metrics[name], rtol=1e-5, atol=1e-6)


def test_what_waits_is_computed_together_and_each_as_if_alone(alone: tuple[Path, Path], tmp_path: Path) -> None:
    run, suite = alone
    done = watch(run, suite, *ALL, "--together", "4", "--store", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert counts(tmp_path) == EACH_ONCE
    assert together(tmp_path) == {(case, step): f"{(step - 1) % 4 + 1} of 4" for case in "ab" for step in range(1, 9)}
    assert_close(tmp_path, run.parent / "store")
    # A program a case, whatever else is compiled on the way there; the second group compiles nothing.
    assert sum(r["num_compilations"] for r in results(tmp_path) if r["checkpoint"]["outer_step"] > 4) == 0


def test_alone_is_the_default_and_what_fills_no_group_runs_alone_to_the_bit(
    alone: tuple[Path, Path], tmp_path: Path
) -> None:
    run, suite = alone
    assert set(together(run.parent / "store").values()) == {""}
    done = watch(run, suite, *ALL, "--together", "9", "--store", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(tmp_path) == content(run.parent / "store")
    assert set(together(tmp_path).values()) == {""}


@pytest.mark.parametrize("job", [1, 3], ids=["before the group is computed", "while the others wait for their turn"])
def test_a_worker_killed_in_between_costs_time_alone(alone: tuple[Path, Path], tmp_path: Path, job: int) -> None:
    run, suite = alone[0], make_suite(tmp_path)
    (suite / "conftest.py").write_text(CONFTEST.format(counter=str(tmp_path / "jobs"), job=job))
    store = tmp_path / "store"
    done = watch(run, suite, *ALL, "--together", "4", "--store", str(store), "--executor", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(SHOWN["worker-died-in"]) == 1
    assert counts(store) == EACH_ONCE
    assert_close(store, run.parent / "store")
    found = Counter(how[-4:] for how in together(store).values())
    # While a group is computed, any of it may be to blame, so the four run alone. At the third's turn that one does;
    # the fourth makes a group with the next three, which leaves the last, alone.
    assert found == ({"": 4, "of 4": 12} if job == 1 else {"": 2, "of 4": 14})


def test_a_theta_that_does_not_fit_says_so_alone_and_the_others_do_not_mind(tmp_path: Path) -> None:
    run, suite, store = make_run(tmp_path, *RATES[:4]), make_suite(tmp_path, ONE_CASE), tmp_path / "store"
    np.savez(run / "theta_3.npz", rate=np.float32(-3.0))
    done = watch(run, suite, *ALL, "--together", "4", "--store", str(store))
    assert done.returncode == 3, done.stdout + done.stderr
    wrong: list[dict[str, Any]] = [r for r in results(store) if r["outcome"] != "passed"]
    assert [(r["checkpoint"]["outer_step"], r["outcome"]) for r in wrong] == [(3, "error")]
    assert all("rate" in r["message"] for r in wrong)
    assert together(store) == {("a", step): f"{at} of 4" for at, step in ((1, 1), (2, 2), (3, 4))}


def test_a_case_that_cannot_be_computed_together_runs_alone_and_says_why(tmp_path: Path) -> None:
    run, store = make_run(tmp_path, *RATES[:2]), tmp_path / "store"
    suite = make_suite(tmp_path, extra="a/Case.task = @Stubborn()\na/Case.num_seeds = 1\n")
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(STUBBORN)
    done = watch(run, suite, *ALL, "--together", "2", "--store", str(store))
    assert done.returncode == 0, done.stdout + done.stderr
    how = together(store)
    assert how["b", 1] == "1 of 2" and how["b", 2] == "2 of 2"
    assert how["a", 1].startswith("alone: ") and "callback" in how["a", 1]


def test_a_case_wider_than_the_workers_runs_alone_and_says_why(tmp_path: Path) -> None:
    suite, run, store = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, *RATES[:2]), tmp_path / "store"
    wide = ("--gin-param", "Case.num_cpus = 2")
    done = watch(run, suite, *ALL, "--together", "2", "--store", str(store), *wide)
    assert done.returncode == 0, done.stdout + done.stderr
    why = SHOWN["this-worker-has-another-number"]
    assert set(together(store).values()) == {f"alone: {why}"}
    assert done.stdout.count(SHOWN["computed-alone"].format(case="a", why=why)) == 1, done.stdout
