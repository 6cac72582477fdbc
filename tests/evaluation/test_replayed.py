"""A replay has the evaluation's bits, and its steps name what was planted."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import optax
import pytest
from reference import ROOT
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import UsageError
from lobench.inner.adapters import as_stepper
from lobench.inner.task import Datasets, IteratorDataset, Task, TaskFamily
from lobench.inner.training.replay import ReplayedProgram, ReplayedStep
from lobench.inner.training.train import TrainingProgram
from lobench.tools.debug.diagnosis import diagnose
from lobench.tools.debug.replayed_case import block_with_seed, summarize_step

sys.path.insert(0, str(ROOT / "benchmarks"))

from planted_faults import FAULTS, Fault, Net, replayed

SHOWN = texts_of("evaluation")

SOME = ("rate too high in one layer", "NaN in a second moment", "bfloat16 loses small updates", "NaN in the data")


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.name in SOME], ids=lambda fault: fault.name)
def test_planted_faults_are_named_and_the_bits_are_the_evaluations(fault: Fault) -> None:
    training, are_equal = replayed(fault)
    assert are_equal and len(training.steps) == training.num_inner_steps
    assert fault.is_named_by(diagnose(training)), diagnose(training).line


def test_an_input_that_is_out_of_its_range_is_found_in_the_rules_own_program() -> None:
    (fault,) = [fault for fault in FAULTS if fault.name == "an input of the rule out of its range"]
    training, _ = replayed(fault)
    assert training.steps[0].input_ranges.keys() == training.usual_ranges.keys() == {"w[2]"}
    assert fault.is_named_by(diagnose(training))


def test_a_look_has_the_states_of_the_program_that_nobody_looks_into() -> None:
    case = Case(num_inner_steps=6, eval_every=2, eval_batches=0)

    def make(theta: object, *values: object) -> object:
        return as_stepper(optax.adam(0.01), 6)

    plain, looked_into = TrainingProgram(case, Net(), make, 3), ReplayedProgram(case, Net(), make, 3)
    block, looks = SeedBlock(start=4, size=3), list[ReplayedStep]()

    def look(one: ReplayedStep) -> bool:
        looks.append(one)
        return one.step < 3

    replayed = looked_into.replay({}, block, 5, look)
    assert [one.step for one in looks] == [0, 1, 2, 3]
    for before, after in itertools.pairwise(looks):
        assert jax.tree.all(jax.tree.map(np.array_equal, tuple(before.after), tuple(after.before)))
    whole, again = plain.run({}, block), looked_into.run({}, block)
    assert whole is not None and again is not None
    losses = [bytes(each.metrics["train/loss"]) for each in (whole, again, replayed)]
    assert losses[0] == losses[1] == losses[2]
    found = [program._compile_caches[0]._programs for program in (plain, looked_into)]
    texts = [next(iter(each.values()))[2].sha256 for each in found]
    assert texts[0] == texts[1]  # what is compiled is the same


class Bowls(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return jax.random.uniform(key)

    def task_fn(self, cfg: Any) -> Task:
        class Bowl(Task):
            def init(self, key: jax.Array) -> Any:
                return {"x": jax.random.normal(key, (3,))}

            def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
                return (1 + cfg) * (params["x"] ** 2).sum()

        return Bowl()


class Fed(Task):
    """Batches come from an iterator."""

    def __init__(self) -> None:
        self.datasets = Datasets(train=IteratorDataset(lambda seed: (np.float32(seed + n) for n in itertools.count())))

    def init(self, key: jax.Array) -> Any:
        return {"x": jax.random.normal(key, (3,))}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return ((params["x"] - data / 100) ** 2).sum()


@pytest.mark.parametrize(
    ("task", "seed", "task_index", "settings"),
    [(Bowls(), 1, 1, {"num_tasks": 3}), (Fed(), 1, 0, {}), (Fed(), 0, 0, {"sessions": "shared", "num_lanes": 2})],
    ids=["family", "iterator", "replicas that share"],
)
def test_other_kinds_of_training_replay_too(task: Any, seed: int, task_index: int, settings: dict[str, Any]) -> None:
    case, looks = Case(num_inner_steps=7, eval_every=3, eval_batches=0, **settings), list[ReplayedStep]()
    program = ReplayedProgram(case, task, lambda theta, *_: as_stepper(optax.sgd(0.1), 7), 2)
    block = SeedBlock(start=0, size=2)
    evaluated = program.run({}, block)
    replayed = program.replay({}, block, seed, lambda one: looks.append(one) or one.step < 4, task_index=task_index)
    assert evaluated is not None
    assert bytes(evaluated.metrics["train/loss"]) == bytes(replayed.metrics["train/loss"])
    steps = [summarize_step(one) for one in looks]
    assert [step.step for step in steps] == [0, 1, 2, 3, 4] and steps[0].updates["x"] > 0
    assert bool(steps[0].gradients) == (case.sessions == "apart")
    with pytest.raises(UsageError, match=SHOWN["no-such-task"]):
        program.replay({}, block, seed, lambda one: True, task_index=9)


def test_the_block_of_a_seed_is_the_cases_own_or_one_as_wide() -> None:
    blocks = [SeedBlock(start=0, size=4), SeedBlock(start=4, size=2)]
    assert block_with_seed(blocks, 3) == blocks[0] and block_with_seed(blocks, 5) == blocks[1]
    assert block_with_seed(blocks, 13) == SeedBlock(start=12, size=4)
    assert block_with_seed([SeedBlock(start=10, size=4)], 3) == SeedBlock(start=3, size=4)


def test_what_a_replay_alone_needs_is_not_imported_for_an_evaluation() -> None:
    code = "import sys, lobench.evaluation.runner, lobench.inner.training.train; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "lobench.inner.training.traced" in loaded
    assert not {
        "lobench.inner.training.replay",
        "lobench.inner.training.rule_inputs",
        "lobench.tools.debug.diagnosis",
    }.intersection(loaded)
