"""Every case of the shipped suites binds, builds its task and has the shapes of a training step."""

from pathlib import Path

import jax
import pytest

from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.inner.task import TaskFamily

SUITES = Path(__file__).parents[3] / "suites"
SPECS = [spec for path in sorted(SUITES.rglob("*.gin")) for spec in specs_in(path)]
# Each case of `velodrome_mini` equals a case of another suite (see the last test).
DISTINCT = [spec for spec in SPECS if spec.suite != "velodrome_mini"]


def test_every_gin_file_holds_cases():
    assert {Path(spec.path) for spec in SPECS} == set(SUITES.rglob("*.gin"))


def test_case_names_are_unique_in_a_suite():
    names = [(spec.suite, spec.name) for spec in SPECS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("spec", DISTINCT, ids=lambda spec: f"{Path(spec.path).stem}-{spec.name}")
def test_case_builds(spec):
    bound = bind_case(spec, Layers())
    task = bound.case.task

    def first_step(key: jax.Array):
        of_case = task.task_fn(task.sample(key)) if isinstance(task, TaskFamily) else task
        batch = task.datasets.train.sample(key) if task.datasets is not None else None
        params, state = of_case.init_with_state(key)
        loss, _, _ = of_case.loss_with_state_and_aux(params, state, key, batch)
        return loss

    loss = jax.eval_shape(first_step, jax.random.key(0))
    assert loss.shape == ()
    assert loss.dtype == jax.numpy.float32


def test_velodrome_mini_has_sixteen_cases_of_the_other_suites_word_for_word():
    problems = {suite: {} for suite in ("mini", "others")}
    for spec in SPECS:
        bound = bind_case(spec, Layers(), build=False)
        suite = "mini" if spec.suite == "velodrome_mini" else "others"
        problems[suite][bound.info.problem] = f"{spec.suite}/{spec.name}"
    mini = problems["mini"]
    assert len(mini) == 16
    assert [name for problem, name in mini.items() if problem not in problems["others"]] == []
