"""Binding a case: layers, isolation, identity."""

from __future__ import annotations

import os
from pathlib import Path

import gin
import pytest
from shown import texts_of

from lobench.core.case import CaseSpec
from lobench.core.errors import ConfigError
from lobench.engine.config import syntax as gin_syntax
from lobench.engine.config.bound import BoundCase, bind_case, expectations_of, integer_field_of
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in

SHOWN = texts_of("config")

MODULES = ("lobench.inner.optimizers", "lobench.inner.tasks")
SUITE = """
include "common.gin"
Case.num_seeds = 3
steps = 20
small/Case.task = @Quadratic()
small/Case.num_inner_steps = %steps
large/Case.task = @sub/Quadratic()
large/Quadratic.dim = 7
sub/Quadratic.dim = 9
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "common.gin").write_text("Case.eval_every = 5\n")
    (tmp_path / "s" / "x.gin").write_text(SUITE)
    return tmp_path / "s" / "x.gin"


def bind(path: Path, case: str, *, build: bool = True, **layers: object) -> BoundCase:
    spec: CaseSpec = next(spec for spec in specs_in(path) if spec.scope == case)
    return bind_case(spec, Layers(gin_modules=MODULES, **layers), build=build)  # type: ignore[arg-type]


def test_values_macros_includes_and_references_with_a_scope(suite: Path) -> None:
    small, large = bind(suite, "small").case, bind(suite, "large").case
    assert (small.num_inner_steps, small.num_seeds, small.eval_every) == (20, 3, 5)
    assert large.num_inner_steps == 1000
    assert large.task.optimum.shape == (9,)
    assert bind(suite, "small", build=False).case.num_inner_steps == 20


def test_the_cases_of_a_file_share_one_parse_until_the_file_is_edited(suite: Path) -> None:
    bind(suite, "small", build=False)
    before = gin_syntax._gin_statements.cache_info().misses
    for case in ("small", "large"):
        bind(suite, case, build=False)
    assert gin_syntax._gin_statements.cache_info().misses == before
    (suite.parent / "common.gin").write_text("Case.eval_every = 6\n")
    assert bind(suite, "small", build=False).case.eval_every == 6


def test_layers_in_order_and_overrides_that_beat_scopes(suite: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.gin"
    config.write_text("Case.num_seeds = 9\nCase.log_every = 2\nCase.learned_optimizer = @MLPLOpt()\nunknown.name = 1\n")
    extra = tmp_path / "extra.gin"
    extra.write_text("Case.num_inner_steps = 50\nsmall/Case.eval_every = 1\n")
    case = bind(suite, "small", trainer_config=str(config), gin_files=(str(extra),)).case
    assert (case.num_seeds, case.log_every, case.num_inner_steps, case.eval_every) == (3, 2, 50, 1)
    assert type(case.learned_optimizer).__name__ == "MLPLOpt"
    case = bind(suite, "small", gin_files=(str(extra),), gin_params=("Case.num_inner_steps = 7",)).case
    assert case.num_inner_steps == 7


def test_a_mistake_in_the_scope_of_a_method_concerns_no_case_of_its_file(suite: Path) -> None:
    mistaken = suite.read_text() + "one/Quadratic.dimension = 3\n"
    suite.write_text(mistaken)
    with pytest.raises(ConfigError, match=SHOWN["no-parameter-dimension"]):
        bind(suite, "small", build=False)
    suite.write_text(mistaken + "one/Method.optimizer = @adam()\n")
    assert bind(suite, "small", build=False).case.num_inner_steps == 20


def test_gin_is_as_before_afterwards(suite: Path) -> None:
    gin.clear_config()
    bind(suite, "small")
    with pytest.raises(ConfigError):
        bind(suite, "small", gin_params=("Case.num_seeds = 'three'",))
    assert gin.config_str() == ""


def test_identity_is_every_binding_reached_and_nothing_else(suite: Path) -> None:
    base = bind(suite, "large", build=False)
    for same in ("small/Case.num_seeds = 8", "Rosenbrock.dim = 3", "large/Quadratic.dim = 8"):
        assert bind(suite, "large", build=False, gin_params=(same,)).info.identity == base.info.identity, same
    for other in ("sub/Quadratic.dim = 8", "Case.num_seeds = 8", "Quadratic.condition = 3.0"):
        assert bind(suite, "large", build=False, gin_params=(other,)).info.identity != base.info.identity, other
    small = bind(suite, "small", build=False)
    assert bind(suite, "small", build=False, gin_params=("steps = 21",)).info.identity != small.info.identity


def test_other_seeds_are_the_same_case(suite: Path) -> None:
    fresh = bind(suite, "large", build=False, gin_params=("Case.first_seed = 7",))
    assert fresh.info.identity == bind(suite, "large", build=False).info.identity
    info = fresh.info
    assert info.blocks()[0].start == 7 and info.first_seed == 7


@pytest.mark.parametrize("binding", ['Case.scale = "linear"', "Case.minimum = 0.1"])
def test_how_a_case_is_scored_retrains_nothing(suite: Path, binding: str) -> None:
    plain, scored = bind(suite, "large", build=False), bind(suite, "large", build=False, gin_params=(binding,))
    assert (scored.info.identity, scored.info.problem, scored.bindings) == (
        plain.info.identity,
        plain.info.problem,
        plain.bindings,
    )
    name = binding[5:].split(" ", 1)[0]
    assert getattr(scored.info, name) == getattr(scored.case, name) is not None


@pytest.mark.parametrize("binding", ['Case.scale = "cubic"', 'Case.minimum = "low"', "Case.minimum = 1e999"])
def test_a_scale_that_is_none_is_refused(suite: Path, binding: str) -> None:
    with pytest.raises(ConfigError, match=r"Case\.(scale|minimum)"):
        bind(suite, "large", build=False, gin_params=(binding,))


def test_the_optimizers_bindings_have_a_hash_of_their_own(suite: Path) -> None:
    adam, slow = (bind(suite, "small", build=False, optimizer=f"adam(); adam.learning_rate = {r}") for r in (0.1, 0.01))
    assert adam.info.identity == slow.info.identity and adam.info.optimizer_hash != slow.info.optimizer_hash
    assert (
        adam.info.optimizer_hash
        == bind(suite, "large", build=False, optimizer="adam(); adam.learning_rate = 0.1").info.optimizer_hash
    )


def test_identity_moves_with_the_suite(suite: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(suite.parent, tmp_path / "elsewhere" / "s")
    moved = bind(tmp_path / "elsewhere" / "s" / "x.gin", "small", build=False)
    assert moved.info.identity == bind(suite, "small", build=False).info.identity


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("small/Quadratic.dims = 3", SHOWN["quadratic-has-no-parameter-dims"]),
        ("small/Quadratc.dim = 3", SHOWN["unknown-name-quadratc-did-you"]),
        ("small/Quadratic.dim = -3", "dim"),
        ("Case.num_seeds = (3", SHOWN["gin-syntax-error"]),
        ("Case.timeout_seconds = 0", SHOWN["case-timeout-seconds-got-0"]),
        ("Case.num_gpus = 1.5", SHOWN["case-num-gpus-got-1"]),
        ("Case.num_gpus = -1", SHOWN["case-num-gpus-got-1-expected"]),
        ("Case.eval_batches = -1", SHOWN["case-eval-batches-got-1"]),
        ("Case.primary_metric = 3", SHOWN["case-primary-metric-got-3"]),
        ("small/expect.margin = 'much'", SHOWN["expect-margin-got-much-expected"]),
        ("expect.max_final_loss = True", SHOWN["expect-max-final-loss-got"]),
        ("Case.num_gpus = None", SHOWN["case-num-gpus-got-none"]),
    ],
)
def test_wrong_bindings_are_one_clear_line(suite: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        bind(suite, "small", gin_params=(text,))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ('Case.primary_metric = "test/loss"', "Case.primary_metric = 'test/loss'"),
        ("expect.max_final_test_loss = 0.5", "expect.max_final_test_loss"),
        ("expect.min_final_accuracy = 0.5", "expect.min_final_accuracy"),
    ],
)
def test_without_evaluations_nobody_may_ask_for_a_split_that_is_evaluated(suite: Path, asked: str, named: str) -> None:
    bind(suite, "small", build=False, gin_params=(asked,))
    with pytest.raises(ConfigError) as error:
        bind(suite, "small", build=False, gin_params=(asked, "Case.eval_batches = 0"))
    assert SHOWN["case-eval-batches-0-evaluates"].format(named=named) in str(error.value) and "\n" not in str(
        error.value
    )


def test_without_evaluations_eval_every_is_part_of_the_problem(suite: Path) -> None:
    def problem(*params: str) -> str:
        return bind(suite, "small", build=False, gin_params=params).info.problem

    assert problem() == problem("Case.eval_every = 7")
    assert problem("Case.eval_batches = 0") != problem()
    assert problem("Case.eval_batches = 0") != problem("Case.eval_batches = 0", "Case.eval_every = 7")


def test_what_a_suites_own_class_takes_is_named(suite: Path) -> None:
    (suite.parent / "own_task_for_names.py").write_text(
        "from lobench import Task, configurable\n\n@configurable\nclass Hill(Task):\n"
        "    def __init__(self, *, height=3):\n        self.height = height\n"
    )
    suite.write_text("import own_task_for_names\nsmall/Case.task = @Hill()\nsmall/Hill.high = 3\n")
    with pytest.raises(ConfigError, match=SHOWN["hill-has-no-parameter-high"]):
        bind(suite, "small")


def test_a_syntax_error_names_file_and_line(suite: Path) -> None:
    suite.write_text(SUITE + "Case.num_seeds = = 3\n")
    with pytest.raises(ConfigError, match=SHOWN["x-gin-10-gin-syntax"]):
        specs_in(suite)


def test_files_that_include_each_other(suite: Path) -> None:
    (suite.parent / "common.gin").write_text('include "x.gin"\n')
    with pytest.raises(ConfigError, match=SHOWN["file-includes-itself"]):
        specs_in(suite)


def test_a_module_that_fails_says_its_error_and_not_what_was_noted_below(suite: Path) -> None:
    (suite.parent / "noting_tasks.py").write_text(
        "error = ValueError('four of three')\nerror.add_note('jax says')\nraise error\n"
    )
    file = suite.parent / "noting.gin"
    file.write_text("import noting_tasks\nsmall/Case.task = @Bowl()\n")
    (spec,) = specs_in(file)
    with pytest.raises(ConfigError, match=SHOWN["cannot-import-noting-tasks-got"]):
        bind_case(spec, Layers(), build=False)


def test_a_value_without_quotes_is_one_line(suite: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        bind(suite, "small", gin_params=("Quadratic.dim = es",))
    assert SHOWN["gin-syntax-error-got-quadratic"] in str(caught.value)


OWN_OPTIMIZER = """
import optax
from lobench import LearnedOptimizer, configurable

@configurable
class {name}(LearnedOptimizer):
    def __init__(self, *, rate=1.0):
        self.rate = rate
    def init(self, key):
        return {{}}
    def opt_fn(self, theta, num_steps=None):
        return optax.sgd(self.rate)
"""


def test_a_trainers_binding_counts_for_the_first_case_of_a_process(suite: Path, tmp_path: Path) -> None:
    """The suite's own import makes the name known."""
    (suite.parent / "first_case_optimizer.py").write_text(OWN_OPTIMIZER.format(name="FirstCaseOpt"))
    suite.write_text("import first_case_optimizer\na/Case.task = @Quadratic()\nb/Case.task = @Quadratic()\n")
    config = tmp_path / "config.gin"
    config.write_text("FirstCaseOpt.rate = 0.0\nCase.learned_optimizer = @FirstCaseOpt()\n")
    first, second = (bind(suite, name, trainer_config=str(config)) for name in ("a", "b"))
    assert (first.case.learned_optimizer.rate, second.case.learned_optimizer.rate) == (0.0, 0.0)
    assert first.info.optimizer_hash == second.info.optimizer_hash


def test_an_override_may_name_what_a_later_layer_imports(suite: Path, tmp_path: Path) -> None:
    (suite.parent / "late_optimizer.py").write_text(OWN_OPTIMIZER.format(name="LateOpt"))
    extra = tmp_path / "extra.gin"
    extra.write_text("import late_optimizer\n")
    bound = bind(suite, "small", optimizer="Case.learned_optimizer = @LateOpt()", gin_files=(str(extra),))
    assert type(bound.case.learned_optimizer).__name__ == "LateOpt"


def test_a_trainers_binding_of_a_known_name_that_is_wrong_is_told(suite: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.gin"
    config.write_text(
        "L2ODM.out_mul = 2.0\nL2ODM.step_mult = @Nowhere()\ntrainer.rate = 1\nCase.learned_optimizer = @L2ODM()\n"
    )
    bound = bind(suite, "small", trainer_config=str(config))
    first, second = bound.problems
    assert first.startswith(SHOWN["not-bound-1-l2odm-has"].format(config=config))
    assert first.endswith(SHOWN["did-you-mean-step-mult"]) and "Nowhere" in second
    assert bind(suite, "small").problems == ()


SECRET = "root:x:0:0:root"


@pytest.mark.parametrize("kind", ["absolute", "above", "link", "folder link", "pipe", "folder", "nested", "missing"])
def test_a_trainers_include_stays_below_its_folder(suite: Path, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    run = tmp_path / "run"
    (run / "sub").mkdir(parents=True)
    name = {"absolute": str(secret), "above": "../secret", "folder link": "out/secret"}.get(kind, f"in {kind}")
    match kind:
        case "link":
            (run / name).symlink_to(secret)
        case "folder link":
            (run / "out").symlink_to(tmp_path)
        case "pipe":
            os.mkfifo(run / name)
        case "folder":
            (run / name).mkdir()
        case "nested":
            name = "sub/inner.gin"
            (run / name).write_text('include "../../secret"\n')
    config = run / "config.gin"
    config.write_text(f"Case.num_seeds = 3\ninclude '{name}'\n")
    with pytest.raises(ConfigError, match=SHOWN["include-is-refused-got-expected"]) as output:
        bind(suite, "small", build=False, trainer_config=str(config))
    assert SECRET not in str(output.value) and "\n" not in str(output.value)


def test_a_trainers_include_below_its_folder_counts(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "sub").mkdir(parents=True)
    (tmp_path / "run" / "sub" / "log.gin").write_text("include 'more.gin'\n")
    (tmp_path / "run" / "sub" / "more.gin").write_text("Case.log_every = 2\n")
    config = tmp_path / "run" / "config.gin"
    config.write_text("include 'sub/log.gin'\n")
    assert bind(suite, "small", build=False, trainer_config=str(config)).case.log_every == 2


def test_a_config_that_is_a_link_or_no_file_quotes_nothing(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    linked = tmp_path / "config.gin"
    linked.symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=SHOWN["config-gin-the-file-that"]):
        bind(suite, "small", build=False, trainer_config=str(linked))
    linked.unlink()
    os.mkfifo(linked)
    with pytest.raises(ConfigError, match=SHOWN["expected-a-regular-file"]):
        bind(suite, "small", build=False, trainer_config=str(linked))


def test_what_a_checkpoint_carries_includes_nothing(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.gin").write_text("MLPLOpt.hidden_size = 4\n")
    for name in (tmp_path / "plain.gin", "/etc/passwd"):
        with pytest.raises(ConfigError, match=SHOWN["the-include-is-refused"]):
            bind(suite, "small", build=False, own_bindings=f"include '{name}'\n")


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({}, 1),
        ({"gin_params": ("Case.num_cpus = 3",)}, 3),
        ({"gin_params": ("cores = 2",)}, 1),
        ({"gin_params": ("a/Case.num_cpus = %cores", "cores = 4")}, 4),
        ({"gin_params": ("b/Case.num_cpus = 3",)}, 1),
        ({"optimizer": "nowhere(); Case.num_cpus = 2"}, 2),
        ({"gin_params": ("Case.num_cpus = 'two'",)}, None),
        ({"gin_params": ("Case.num_cpus = @nowhere()",)}, 1),
    ],
)
def test_how_many_cores_is_known_before_anything_is_imported(
    suite: Path, layers: dict[str, object], expected: int | None
) -> None:
    suite.write_text("import nowhere\na/Case.task = @Nothing()\nb/Case.task = @Nothing()\nb/Case.num_cpus = 5\n")
    a, b = specs_in(suite)
    assert integer_field_of("num_cpus", a, Layers(gin_modules=("nowhere",), **layers)) == expected  # type: ignore[arg-type]
    assert integer_field_of("num_cpus", b, Layers()) == 5


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", ()),
        ("expect.no_divergence = True\nsmall/expect.max_final_loss = %bound\nbound = 0.5\n", ()),
        ("small/expect.max_final_loss = 0.5\nlarge/expect.max_final_test_loss = 2\n", ("expect.max_final_loss = 3.0",)),
        ("small/lobench.expect.min_final_accuracy = %low\n", ("low = 0.1", "small/expect.margin = 0.2")),
    ],
)
def test_what_a_case_expects_is_known_before_anything_is_imported(
    suite: Path, text: str, params: tuple[str, ...]
) -> None:
    with suite.open("a") as file:
        file.write(text)
    for spec in specs_in(suite):
        output = expectations_of(spec, Layers(gin_modules=("nowhere",), gin_params=params))
        assert output == bind(suite, spec.scope, build=False, gin_params=params).expectations


@pytest.mark.parametrize("value", ["@Quadratic()", "%macro", "%nobody"])
def test_what_a_case_expects_and_only_binding_tells_is_left_to_it(suite: Path, value: str) -> None:
    with suite.open("a") as file:
        file.write(f"macro = @Quadratic()\nsmall/expect.max_final_loss = {value}\n")
    small, _ = specs_in(suite)
    assert expectations_of(small, Layers()) is None


def test_the_part_of_a_checkpoint_that_is_theta_tells_optimizers_apart_and_no_cases(suite: Path) -> None:
    learned, sgd = "Case.learned_optimizer = @MLPLOpt()", "Case.optimizer = @sgd()"
    bound = {
        part: bind(suite, "small", build=False, gin_params=(learned, f"Checkpoint.theta = '{part}'"))
        for part in ("params/lopt", "ema")
    }
    assert [case.theta_part for case in bound.values()] == ["params/lopt", "ema"]
    assert len({case.info.identity for case in bound.values()}) == 1
    assert len({case.info.optimizer_hash for case in bound.values()}) == 2
    plain, named = (
        bind(suite, "small", build=False, gin_params=(sgd, *more)) for more in ((), ("Checkpoint.theta='a'",))
    )
    assert plain.info.optimizer_hash == named.info.optimizer_hash, "without theta it says nothing"
    with pytest.raises(ConfigError, match=SHOWN["checkpoint-theta-got-3-expected"]):
        bind(suite, "small", build=False, gin_params=("Checkpoint.theta = 3",))
