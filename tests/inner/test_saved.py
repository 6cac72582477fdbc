"""A training that was stopped goes on from its saved state, bit by bit as if it had not been."""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from saved_worlds import (
    BLOCK,
    Batches,
    Bowl,
    Copies,
    Counting,
    Regression,
    bits,
    case_of,
    phases_of,
    program_of,
    states_in,
    theta_of,
)
from shown import texts_of

from lobench.core.case import Case
from lobench.core.phases import Phase
from lobench.core.result import Curves
from lobench.inner.tasks.control.ppo import PPO
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

# Every two of these meet: an optimizer, a task, a kind of data, a number of phases.
WORLDS = [
    ("adam", Regression, "array", 2),
    ("adam", Counting, "iterator", 1),
    ("schedule_free", Regression, "array", 1),
    ("schedule_free", Counting, "iterator", 2),
    ("clipped", Regression, "iterator", 1),
    ("clipped", Counting, "array", 2),
    ("learned", Regression, "iterator", 2),
    ("learned", Counting, "array", 1),
]


@pytest.mark.parametrize(("optimizer", "task", "data", "num_phases"), WORLDS)
def test_it_goes_on_from_every_second_step(
    tmp_path: Path, optimizer: str, task: type, data: str, num_phases: int
) -> None:
    kind = {Regression: "replayed", Counting: "positioned"}[task] if data == "iterator" else data
    case = case_of(phases_of(optimizer, num_phases), save_every=1, eval_batches=0 if kind == "replayed" else 2)
    program, theta = program_of(case, task(kind)), theta_of(case)
    whole = bits(program.run(theta, BLOCK))
    copies = states_in(tmp_path / "all", case, kind=Copies)
    copies.copies = tmp_path / "copies"
    assert bits(program.run(theta, BLOCK, saves=copies)) == whole
    assert sorted(int(copy.name) for copy in copies.copies.iterdir()) == list(range(1, 20))
    # The other world of the optimizer resumes from the other steps.
    # All resume at an evaluation (12) and at the end of a phase (13).
    rest = WORLDS.index((optimizer, task, data, num_phases)) % 2
    for copy in copies.copies.iterdir():
        step = int(copy.name)
        if step % 2 != rest and step not in (12, 13):
            continue
        phase = next(index for index, span in enumerate(program._spans) if step <= span.stop)
        folder = tmp_path / f"at-{step}"
        folder.mkdir()
        states = states_in(folder, case)
        shutil.copy(copy, folder / f"{states.prefix_hashes[phase]}.{BLOCK}.{step}.{states.owner}.safetensors")
        steps: list[int] = []
        again = program.run(theta, BLOCK, saves=states, on_progress=steps.append)
        assert again is not None and again.resumed_at == step
        assert steps == list(range(step, 21)), "it was told, and ran, what was left"
        assert bits(again) == whole, f"after step {step}"


def stopped_at(program: Any, case: Case, folder: Path, step: int, output: list[str] | None = None) -> None:
    reached: list[int] = []
    curves = program.run(
        theta_of(case), BLOCK, saves=states_in(folder, case, output), on_progress=reached.append,
        should_stop=lambda: reached[-1] >= step,
    )  # fmt: skip
    assert curves is None and reached[-1] == step


def test_a_deadline_saves_where_it_stops_whatever_the_interval(tmp_path: Path) -> None:
    case = case_of(phases_of("adam", 2), save_every=8)
    program = program_of(case, Bowl())
    whole = bits(program.run(theta_of(case), BLOCK))
    stopped_at(program, case, tmp_path, 8)
    (file,) = tmp_path.iterdir()
    assert f".{BLOCK}.8." in file.name
    again = program.run(theta_of(case), BLOCK, saves=states_in(tmp_path, case))
    assert again is not None and (again.resumed_at, bits(again)) == (8, whole)
    (last,) = tmp_path.iterdir()
    assert f".{BLOCK}.16." in last.name, "the one before went"


def test_seconds_are_those_of_the_whole_training(tmp_path: Path) -> None:
    case = case_of(phases_of("adam", 1), save_every=5)
    program = program_of(case, Bowl())
    stopped_at(program, case, tmp_path, 10)
    curves = program.run(theta_of(case), BLOCK, saves=(states := states_in(tmp_path, case)))
    loaded = states_in(tmp_path, case).load()
    assert curves is not None and loaded is not None
    assert 0 < loaded[1]["wall_seconds"] < curves.wall_seconds
    assert states.owner in next(tmp_path.iterdir()).name


def test_nothing_is_saved_where_nobody_asks_or_it_is_short(tmp_path: Path) -> None:
    for save_every in (0, None):
        case = case_of(phases_of("adam", 1), save_every=save_every)
        program_of(case, Bowl()).run(theta_of(case), BLOCK, saves=states_in(tmp_path / "s", case))
        assert not (tmp_path / "s").exists()


def test_an_iterator_that_says_where_it_was_is_not_replayed(tmp_path: Path) -> None:
    case = case_of(phases_of("adam", 1), save_every=10, eval_batches=0)
    program = program_of(case, Regression("positioned"))
    stopped_at(program, case, tmp_path, 10)
    for thread in threading.enumerate():
        if thread.name == "lobench reads batches":  # what was asked for when it was stopped
            thread.join()
    Batches.read = 0
    program.run(theta_of(case), BLOCK, saves=states_in(tmp_path, case))
    assert Batches.read == BLOCK.size * (10 + 1), "ten each, and one each whose shape was looked at"


@functools.cache
def stopping() -> tuple[Case, TrainingProgram]:
    case = case_of(phases_of("adam", 1), save_every=10)
    return case, program_of(case, Bowl())


def changed(case: Case) -> Case:
    return case_of((Phase(num_inner_steps=20, optimizer=optax.adagrad(0.1)),), save_every=case.save_every)


@pytest.mark.parametrize("other", ["optimizer", "task", "schedule", "evaluations"])
def test_a_state_of_another_program_is_computed_anew_and_that_is_said(tmp_path: Path, other: str) -> None:
    case, program = stopping()
    stopped_at(program, case, tmp_path, 10)
    task: Any = Bowl()
    now = case
    if other == "optimizer":
        now = changed(case)
    elif other == "task":
        task = Counting()
    elif other == "schedule":
        now = case_of((Phase(num_inner_steps=20, optimizer=optax.adam(0.01)),), save_every=10)
    else:
        now = case_of(case.phases, save_every=10, eval_every=7)
    output: list[str] = []
    program = program_of(now, task)
    anew = program.run(theta_of(now), BLOCK, saves=states_in(tmp_path, now, output))
    assert anew is not None and anew.resumed_at == 0
    assert bits(anew) == bits(program.run(theta_of(now), BLOCK))
    (line,) = output
    assert line.startswith(SHOWN["c-seeds-the-saved-state"].format(block=BLOCK))
    assert line.endswith(SHOWN["computed-anew"]) and "\n" not in line


def test_a_replica_that_diverged_stays_so(tmp_path: Path) -> None:
    phases = (Phase(num_inner_steps=20, optimizer=optax.sgd(100.0)),)
    case = case_of(phases, save_every=5)
    program = program_of(case, Bowl())
    whole = program.run({}, BLOCK)
    assert whole is not None and all(0 < step < 20 for step in whole.diverged_at), whole.diverged_at
    for step in (5, 10, 15):
        stopped_at(program, case, tmp_path, step)
        again = program.run({}, BLOCK, saves=states_in(tmp_path, case))
        assert bits(again) == bits(whole)
        shutil.rmtree(tmp_path)


# Extending.


def extended(short: int, eval_every: int, **values: Any) -> tuple[Case, Case]:
    warm, cool = (
        Phase(num_inner_steps=n, optimizer=optax.adam(rate), opt_state="keep") for n, rate in ((short, 0.1), (9, 0.01))
    )
    named = {"eval_every": eval_every, "log_every": 3, **values}
    return case_of((warm,), keep_state=True, **named), case_of((warm, cool), **named)


@pytest.mark.parametrize(
    ("steps", "eval_every", "eval_batches", "task"),
    [
        (12, 6, 2, Bowl),
        (11, 4, 2, Regression),
        (11, 4, 0, Counting),
        (5, 50, 2, Bowl),
        (5, 50, 0, Bowl),
        (12, 13, 2, Bowl),
        (10, 1, 2, Bowl),
    ],
)
def test_a_phase_that_is_appended_runs_alone_and_the_bits_are_those_of_both(
    tmp_path: Path, steps: int, eval_every: int, eval_batches: int, task: type
) -> None:
    short, long = extended(steps, eval_every, eval_batches=eval_batches)
    program_of(short, task()).run({}, BLOCK, saves=states_in(tmp_path, short))
    (kept,) = tmp_path.iterdir()
    assert kept.name.endswith(f".{steps}.kept.safetensors")
    program = program_of(long, task())
    reached: list[int] = []
    curves = program.run({}, BLOCK, saves=states_in(tmp_path, long), on_progress=reached.append)
    assert curves is not None and curves.resumed_at == steps and reached == [steps, steps + 9]
    assert [bool(each._programs) for each in program._compile_caches] == [False, True], (
        "the first one is not even compiled"
    )
    whole = program.run({}, BLOCK)
    assert whole is not None and bits(curves) == bits(whole)
    assert curves.eval_steps == whole.eval_steps and curves.log_steps == whole.log_steps
    assert [path.name for path in tmp_path.iterdir()] == [kept.name], "a kept state stays"


def test_the_last_evaluation_of_a_shorter_training_says_nothing_of_a_longer_one(tmp_path: Path) -> None:
    """What is not finite at the end of the first phase, which the longer one does not look at, may be seen later."""

    class Narrow(Counting):
        """Its evaluations are not finite once it has trained; its batches are."""

        def eval_loss_with_aux(self, params: Any, state: Any, key: Any, data: Any) -> Any:
            loss = self.loss_with_state_and_aux(params, state, key, data)[0]
            return jnp.where(state["count"] > 0, jnp.nan, loss), {}

    short, long = extended(11, 40)
    program_of(short, Narrow()).run({}, BLOCK, saves=states_in(tmp_path, short))
    program = program_of(long, Narrow())
    curves = program.run({}, BLOCK, saves=states_in(tmp_path, long))
    whole = program.run({}, BLOCK)
    assert curves is not None and whole is not None
    assert bits(curves) == bits(whole) and curves.resumed_at == 11
    assert set(curves.diverged_at) == {20}


def test_a_kept_state_of_another_length_of_iterator_data_goes_on_too(tmp_path: Path) -> None:
    short, long = extended(12, 6)
    program_of(short, Regression("replayed")).run({}, BLOCK, saves=states_in(tmp_path, short))
    program = program_of(long, Regression("replayed"))
    curves = program.run({}, BLOCK, saves=states_in(tmp_path, long))
    assert isinstance(curves, Curves) and curves.resumed_at == 12
    assert bits(curves) == bits(program.run({}, BLOCK))


def first_of(curves: Curves, num_evals: int, num_logs: int) -> dict[str, list[list[float]]]:
    """Returns the first evaluations, and the first steps of the log, of each seed."""
    found = {}
    for name, values in curves.metrics.items():
        found[name] = np.asarray(values)[:, : num_logs if name.startswith("batch/") else num_evals].tolist()
    return found


@pytest.mark.parametrize("num_phases", [1, 2])
def test_a_part_is_the_beginning_of_the_whole_which_goes_on_from_its_state(tmp_path: Path, num_phases: int) -> None:
    case = case_of(phases_of("adam", num_phases), stop_after=0.7)
    assert (case.end, case_of(case.phases).end) == (13, 20), "one behind the evaluation at 12"
    program, theta = program_of(case, Bowl()), theta_of(case)
    whole = program.run(theta, BLOCK)
    part = program.run(theta, BLOCK, end=case.end, saves=states_in(tmp_path, case))
    assert whole is not None and part is not None
    assert (part.eval_steps, part.log_steps) == ((0, 6, 12), (0, 4, 8, 12))
    assert first_of(part, 99, 99) == first_of(whole, 3, 4)
    steps: list[int] = []
    again = program.run(theta, BLOCK, saves=states_in(tmp_path, case), on_progress=steps.append)
    assert bits(again) == bits(whole) and again is not None and again.resumed_at == steps[0] == 13
    late = program.run(theta, BLOCK, end=7, saves=states_in(tmp_path, case), on_progress=steps.append)
    assert late is not None and late.resumed_at == 13, "a later state has seen it too"
    assert bits(late) == bits(program.run(theta, BLOCK, end=7))


def test_a_part_does_not_know_of_what_diverged_after_it(tmp_path: Path) -> None:
    case = case_of((Phase(num_inner_steps=20, optimizer=optax.sgd(100.0)),), save_every=5)
    program = program_of(case, Bowl())
    whole = program.run({}, BLOCK, saves=states_in(tmp_path, case))
    assert whole is not None and min(whole.diverged_at) > 1
    late = program.run({}, BLOCK, end=1, saves=states_in(tmp_path, case))
    assert late is not None and late.resumed_at > 1 and set(late.diverged_at) == {-1}
    assert bits(late) == bits(program.run({}, BLOCK, end=1))


def policy() -> tuple[Case, PPO]:
    """A rollout is four inner steps: two epochs of two minibatches."""
    task = PPO(num_envs=2, num_steps=4, epochs=2, minibatches=2, hidden_sizes=(4,), eval_episodes=1)
    return case_of(phases_of("adam", 1, steps=10), save_every=3, eval_batches=1, eval_every=5), task


KILLED = """
import os, pathlib, signal, sys
sys.path[:0] = [{here!r}, {tests!r}]
from saved_worlds import BLOCK, program_of, states_in
from test_saved import policy
case, task = policy()
states = states_in(pathlib.Path({folder!r}), case)
program_of(case, task).run({{}}, BLOCK, saves=states, on_progress=lambda step: step < 6 or os.kill(os.getpid(), 9))
"""


@pytest.mark.usefixtures("any_program_is_forked")
def test_a_policy_whose_process_was_killed_goes_on_in_the_middle_of_a_rollout(tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = KILLED.format(here=str(here), tests=str(here.parent), folder=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    case, task = policy()
    program = program_of(case, task)
    again = program.run({}, BLOCK, saves=states_in(tmp_path, case))
    assert again is not None and again.resumed_at in (3, 6)
    assert bits(again) == bits(program.run({}, BLOCK)) and "train/return" in again.metrics
