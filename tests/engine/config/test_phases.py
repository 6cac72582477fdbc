"""Phases in gin: what holds in each, what names them, and what is refused in a line."""

from __future__ import annotations

from pathlib import Path

import gin
import pytest
from shown import texts_of

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError
from lobench.core.phases import Clock, Phase, update_counts
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")

MODULES = ("lobench.inner.optimizers", "lobench.inner.tasks")
SUITE = """
Case.optimizer = @adam()
adam.b1 = 0.8
x/Case.task = @Quadratic()
x/adam.learning_rate = 0.1
warm/Phase.num_inner_steps = 200
cool/Phase.num_inner_steps = 100
cool/adam.learning_rate = 0.01
"""
TWO = "x/Case.phases = [@warm/Phase(), @cool/Phase()]"


def bind(folder: Path, *params: str, build: bool = False, text: str = SUITE, **layers: object) -> BoundCase:
    (folder / "s").mkdir(exist_ok=True)
    path = folder / "s" / "x.gin"
    path.write_text(text)
    (spec,) = specs_in(path)
    assert isinstance(spec, CaseSpec)
    return bind_case(spec, Layers(gin_modules=MODULES, gin_params=params, **layers), build=build)  # type: ignore[arg-type]


def rates(bound: BoundCase) -> list[str]:
    """The learning rates that the lines of all phases say."""
    return [line.split(" = ")[1] for line in bound.optimizer_bindings.splitlines() if "learning_rate" in line]


def test_a_phase_is_the_case_with_its_own_settings_over_it(tmp_path: Path) -> None:
    bound = bind(tmp_path, TWO, build=True)
    assert bound.case.num_inner_steps == 300
    assert [(phase.num_inner_steps, phase.opt_state, phase.schedule) for phase in bound.case.phases] == [
        (200, "reset", "new"),
        (100, "keep", "new"),
    ]
    assert all(phase.optimizer is not None for phase in bound.case.phases)
    assert rates(bound) == ["0.1", "0.01"]
    assert bound.optimizer_bindings.count("b1 = 0.8") == 2
    assert bound.info.num_inner_steps == bind(tmp_path, TWO).case.num_inner_steps == 300
    assert gin.config_str() == ""


def test_another_optimizer_begins_with_a_state_of_its_own(tmp_path: Path) -> None:
    for extra, expected in (
        ("cool/Phase.optimizer = @sgd()", "reset"),
        ("cool/Phase.optimizer = @other/adam()", "keep"),
        ("cool/Phase.opt_state = 'reset'", "reset"),
    ):
        assert bind(tmp_path, TWO, extra).case.phases[1].opt_state == expected, extra
    learned = bind(
        tmp_path, TWO, "Case.optimizer = None", "Case.learned_optimizer = @LearnableSGD()",
        "warm/Phase.optimizer = @sgd()", build=True,
    ).case  # fmt: skip
    assert [phase.optimizer is None for phase in learned.phases] == [False, True]
    assert learned.optimizer is None and learned.learned_optimizer is learned.phases[1].learned_optimizer


def test_what_begins_alike_has_the_same_prefix_whatever_it_is_called(tmp_path: Path) -> None:
    two = bind(tmp_path, TWO)
    assert len(set(two.prefix_hashes)) == 2
    one = bind(tmp_path, "y/Case.num_inner_steps = 200", text=SUITE.replace("x/", "y/"))
    assert one.prefix_hashes == two.prefix_hashes[:1] and one.info.identity != two.info.identity
    assert bind(tmp_path, "x/Case.phases = [@warm/Phase()]").prefix_hashes == two.prefix_hashes[:1]
    for other in (
        "x/adam.learning_rate = 0.2",
        "warm/Phase.num_inner_steps = 201",
        "Case.eval_every = 3",
        "Quadratic.dim = 4",
        "Case.num_cpus = 2",
    ):
        assert bind(tmp_path, TWO, other).prefix_hashes[0] != two.prefix_hashes[0], other
    for other in (
        "cool/adam.learning_rate = 0.02",
        "cool/Phase.opt_state = 'reset'",
        "cool/Phase.schedule = 'continue'",
    ):
        changed = bind(tmp_path, TWO, other)
        assert changed.prefix_hashes[0] == two.prefix_hashes[0] and changed.prefix_hashes[1] != two.prefix_hashes[1], (
            other
        )


def test_when_a_state_is_saved_is_no_part_of_what_is_evaluated(tmp_path: Path) -> None:
    plain = bind(tmp_path)
    for same in ("Case.save_every = 10", "Case.keep_state = True", "Case.time_gradient = True"):
        other = bind(tmp_path, same)
        assert (other.info.identity, other.prefix_hashes) == (plain.info.identity, plain.prefix_hashes)


def test_settings_of_a_phase_are_the_optimizers_and_not_the_cases(tmp_path: Path) -> None:
    """Cases compare across optimizers: the lengths are the case's, the rates are not."""
    two = bind(tmp_path, TWO)
    slow = bind(tmp_path, TWO, "cool/adam.learning_rate = 0.02")
    longer = bind(tmp_path, TWO, "cool/Phase.num_inner_steps = 101")
    assert slow.info.identity == two.info.identity and slow.info.optimizer_hash != two.info.optimizer_hash
    assert longer.info.identity != two.info.identity and longer.info.optimizer_hash == two.info.optimizer_hash
    assert bind(tmp_path, TWO, "Case.num_inner_steps = 7").info.identity == two.info.identity, "which is not looked at"


def test_a_kind_of_phase_is_a_class_in_the_suites_module(tmp_path: Path) -> None:
    """It says what its phases have in place of the defaults of Phase; what is bound wins."""
    (tmp_path / "s").mkdir(exist_ok=True)
    (tmp_path / "s" / "kinds_of_phases.py").write_text(
        "import dataclasses, lobench\n"
        "@lobench.configurable\n@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Cooldown(lobench.Phase):\n"
        "    num_inner_steps: int = 50\n    opt_state: str = 'keep'\n    schedule: str = 'continue'\n"
    )
    text = SUITE + "import kinds_of_phases\n"
    kind = bind(tmp_path, "x/Case.phases = [@warm/Phase(), @cool/Cooldown()]", text=text, build=True)
    assert [(phase.num_inner_steps, phase.schedule) for phase in kind.case.phases] == [(200, "new"), (50, "continue")]
    assert rates(kind) == ["0.1", "0.01"]
    written_out = (
        "cool/Phase.num_inner_steps = 50",
        "cool/Phase.opt_state = 'keep'",
        "cool/Phase.schedule = 'continue'",
    )
    assert bind(tmp_path, TWO, *written_out).prefix_hashes == kind.prefix_hashes
    bound = bind(
        tmp_path, "x/Case.phases = [@warm/Phase(), @cool/Cooldown()]", "cool/Cooldown.num_inner_steps = 7", text=text
    )
    assert bound.case.num_inner_steps == 207


def test_a_list_where_a_value_stands_is_a_value_for_each_phase(tmp_path: Path) -> None:
    halves = bind(tmp_path, "x/adam.learning_rate = [0.1, 0.01]", "Case.num_inner_steps = 300", build=True)
    assert [phase.num_inner_steps for phase in halves.case.phases] == [150, 150]
    assert rates(halves) == ["0.1", "0.01"]
    assert halves.info.identity == bind(tmp_path, "Case.num_inner_steps = 300").info.identity, (
        "it is the optimizer's alone"
    )
    with_lengths = bind(tmp_path, TWO, "x/adam.learning_rate = [0.1, 0.01]", "x/adam.b2 = [0.9, 0.99]")
    written_out = bind(tmp_path, TWO, "x/adam.b2 = 0.9", "cool/adam.b2 = 0.99")
    assert with_lengths.prefix_hashes == written_out.prefix_hashes
    assert with_lengths.info.optimizer_hash == written_out.info.optimizer_hash


def test_a_list_of_a_parameter_that_takes_lists_is_one_value(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir(exist_ok=True)
    (tmp_path / "s" / "phased_optimizers.py").write_text(
        "import optax\nfrom collections.abc import Sequence\nfrom lobench import configurable\n"
        "@configurable\ndef layered(rates: Sequence[float] = (0.1,), sizes=None, *, decay: float = 0.9):\n"
        "    return optax.sgd(rates[0])\n"
    )
    text = SUITE + "import phased_optimizers\nCase.optimizer = @layered()\n"
    one = bind(tmp_path, "layered.rates = [0.1, 0.2]", "layered.sizes = [3, 4]", text=text, build=True)
    assert one.case.phases == ()
    assert len(bind(tmp_path, "layered.decay = [0.1, 0.2]", text=text).case.phases) == 2


@pytest.mark.parametrize(
    ("params", "output"),
    [
        ((TWO, "warm/Phase.num_inner_steps = None"), SHOWN["phase-1-of-2-warm"]),
        (("x/Case.phases = [@bare/Phase()]",), SHOWN["phase-num-inner-steps-is"]),
        ((TWO, "warm/Phase.num_inner_steps = 0"), SHOWN["phase-num-inner-steps-got"]),
        ((TWO, "cool/Phase.opt_state = 'kept'"), SHOWN["phase-opt-state-got-kept"]),
        ((TWO, "cool/Phase.schedule = 'old'"), SHOWN["phase-schedule-got-old-expected"]),
        (("x/Case.phases = 3",), SHOWN["case-phases-got-3-expected"]),
        (("x/Case.phases = [@adam()]",), SHOWN["case-phases-got-adam-expected"]),
        ((TWO, "cool/Quadratic.dim = 3"), SHOWN["cool-quadratic-dim-is-a"]),
        ((TWO, "x/adam.b2 = [0.9, 0.99, 0.999]"), SHOWN["adam-b2-has-3-values"]),
        (
            ("x/adam.b2 = [0.9, 0.99, 0.999]",),
            SHOWN["adam-b2-has-3-values-got"],
        ),
        (("Case.save_every = -1",), SHOWN["case-save-every-got-1"]),
        (("Case.time_gradient = 3",), SHOWN["case-time-gradient-got-3"]),
        (("Case.keep_state = 3",), SHOWN["case-keep-state-got-3"]),
    ],
)
def test_what_is_wrong_is_said_in_a_line_before_anything_is_built(
    tmp_path: Path, params: tuple[str, ...], output: str
) -> None:
    with pytest.raises(ConfigError, match=output) as caught:
        bind(tmp_path, *params)
    assert "\n" not in str(caught.value)


def test_where_optimizers_stand_at_the_first_update_of_their_phase() -> None:
    def of(*phases: tuple[int, str, str]) -> list[Clock]:
        return update_counts(
            [Phase(num_inner_steps=n, opt_state=state, schedule=schedule) for n, state, schedule in phases]
        )

    assert of((10, "reset", "new"), (5, "keep", "new")) == [(0, 0), (10, 10)]
    assert of((10, "reset", "new"), (5, "keep", "continue")) == [(0, 0), (10, 0)]
    assert of((10, "reset", "new"), (5, "reset", "continue")) == [(0, 0), (0, -10)]
    assert of((10, "reset", "new"), (5, "reset", "continue"), (3, "keep", "new")) == [(0, 0), (0, -10), (5, 5)]


STREAM = """
Case.optimizer = @sgd()
Case.num_inner_steps = 100
x/Case.task = @SplitStream()
x/SplitStream.task = @MLPClassifier()
MLPClassifier.data = "digits"
x/Case.phases = @task_sequence()
task_sequence.num_tasks = 5
"""


BY_HAND = f"""[{"@t/Phase(), " * 5}]
t/Phase.num_inner_steps = 20
t/Phase.opt_state = 'reset'
"""


def stream(folder: Path, *params: str, build: bool = True) -> BoundCase:
    return bind(folder, *params, text=STREAM, build=build)


def test_a_task_sequence_is_a_phase_for_each_task_with_a_new_state(tmp_path: Path) -> None:
    bound = stream(tmp_path, build=False)
    assert [(phase.num_inner_steps, phase.opt_state) for phase in bound.case.phases] == [(20, "reset")] * 5
    assert bound.case.num_inner_steps == 100 and len(set(bound.prefix_hashes)) == 5
    assert bound.info.identity == stream(tmp_path).info.identity
    own = stream(tmp_path, "x/task_sequence.num_inner_steps = 30")
    assert own.case.num_inner_steps == 150 and own.info.identity != bound.info.identity
    by_hand = bind(tmp_path, text=STREAM.replace("@task_sequence()", BY_HAND))
    assert by_hand.prefix_hashes == bound.prefix_hashes


def test_each_task_may_have_a_rate_of_its_own(tmp_path: Path) -> None:
    bound = stream(tmp_path, "sgd.learning_rate = [0.1, 0.2, 0.3, 0.4, 0.5]", build=False)
    assert rates(bound) == ["0.1", "0.2", "0.3", "0.4", "0.5"]


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("task_sequence.num_tasks = None", SHOWN["task-sequence-num-tasks-got"]),
        ("task_sequence.num_tasks = 0", SHOWN["task-sequence-num-tasks-got-0"]),
        ("Case.num_inner_steps = 102", SHOWN["case-num-inner-steps-are"]),
        ("task_sequence.num_tasks = 4", SHOWN["phases-are-not-those-of"]),
        ("x/Case.phases = ()", SHOWN["phases-are-not-those-of-splitstream"]),
        (
            "SplitStream.interleaved = True",
            SHOWN["phases-are-not-those-of-splitstream-got"],
        ),
        (
            "SplitStream.protocol = 'new'",
            SHOWN["splitstream-protocol-new-is-about"],
        ),
        (
            "SplitStream.protocol = 'old'",
            SHOWN["splitstream-protocol-got-old-expected"],
        ),
        (
            "SplitStream.replay = True",
            SHOWN["splitstream-replay-true-the-memory"],
        ),
        ("SplitStream.memory_size = -1", SHOWN["splitstream-memory-size-got-1"]),
        ("SplitStream.classes_per_task = 3", SHOWN["splitstream-num-tasks-got-5"]),
        ("SplitStream.task = @Quadratic()", SHOWN["splitstream-task-got-lobench"]),
        ("SplitStream.head = 'multi'", SHOWN["splitstream-head-got-multi-expected"]),
    ],
)
def test_a_stream_says_in_a_line_what_is_wrong(tmp_path: Path, param: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stream(tmp_path, param)
    assert expected in str(caught.value) and "\n" not in str(caught.value)
    assert "case 'x'" in str(caught.value)


def test_a_stream_of_one_task_has_nothing_to_forget(tmp_path: Path) -> None:
    one = ("SplitStream.num_tasks = 1", "task_sequence.num_tasks = 1", "Case.primary_metric = 'test/forgetting'")
    with pytest.raises(ConfigError, match=SHOWN["there-is-one-task-and"]) as caught:
        stream(tmp_path, *one)
    assert SHOWN["ask-for-test-accuracy-or"] in str(caught.value) and "\n" not in str(caught.value)
    assert len(stream(tmp_path, *one[:2]).case.phases) == 1
