"""Torch's optimizers as lobench trains with them: the bits of torch's own loop, and curves that match lobench's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import lobench_here
from shown import texts_of

pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import torch_library
from lobench_torch import transformation
from lobench_torch.torch_optimizers import torch_optimizer
from torch_library import Averaged, Polyak

import lobench
from lobench import ConfigError
from lobench.extend import as_stepper
from lobench.testing.optimizers import OptimizerContract

SHOWN = texts_of("torch")

STEPS = 12
SHAPES = {"b": (3,), "w": (5, 3)}
X = np.random.default_rng(0).standard_normal((16, 5)).astype(np.float32)
HERE = Path(torch_library.__file__).parent


class TestAdamKeepsTheContract(OptimizerContract):
    def optimizer(self) -> Any:
        return torch_optimizer("torch.optim.Adam", lr=0.01)


class TestAWrapperWithModesKeepsTheContract(OptimizerContract):
    def optimizer(self) -> Any:
        return torch_optimizer("torch_library:Averaged", lr=0.01)


def loss(params: Any) -> jax.Array:
    return jnp.mean((jnp.tanh(X @ params["w"] + params["b"]) - 1) ** 2)


def initial(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Growing", SHOWN["history-torch-library-growing-remembers"]),
        ("Failing", SHOWN["torch-library-failing-step-failed"]),
    ],
)
def test_run_names_a_torch_optimizer_that_fails_or_grows(
    suite: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.setattr("lobench_torch.host._LONGEST_PROBE", 64)
    (suite / "experiment.gin").write_text(
        (suite / "cases.gin").read_text() + f"own/Method.optimizer = @torch_library.{name}()\n"
    )
    done = lobench_here("run", "experiment.gin", cwd=suite)
    assert done.returncode != 0
    assert expected in done.stdout + done.stderr


def train(optimizer: Any, *seeds: int, steps: int = STEPS, before: Any = None) -> Any:
    """Returns parameters, state and what is evaluated, after steps of the compiled loop, of seeds side by side."""
    stepper = as_stepper(optimizer, STEPS)

    def one(params: Any, state: Any, start: Any) -> Any:
        def body(index: Any, carry: Any) -> Any:
            state, params = carry
            value, grads = jax.value_and_grad(loss)(params)
            key = jax.random.fold_in(jax.random.key(2), index)
            state, params, _ = stepper.step(state, params, None, grads, value, key, loss)
            return state, params

        state, params = jax.lax.fori_loop(start, start + steps, body, (state, params))
        return params, state, stepper.eval_params(state, params)

    params = jax.tree.map(lambda *leaves: np.stack(leaves), *map(initial, seeds))
    begin = jax.vmap(lambda params: stepper.init(params, None, jax.random.key(0)))
    params, state, start = (*before[:2], STEPS) if before else (params, begin(params), 0)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one, in_axes=(0, 0, None)))(params, state, start))


def by_hand(make: Callable[[Any], Any], seed: int, steps: int = STEPS) -> tuple[dict[str, np.ndarray], Any]:
    """Returns what a loop in torch makes of the same gradients."""
    tensors = {name: torch.nn.Parameter(torch.from_numpy(value)) for name, value in initial(seed).items()}
    optimizer, gradient = make(list(tensors.values())), jax.jit(jax.value_and_grad(loss))

    def closure() -> torch.Tensor:
        value, grads = gradient({name: tensor.detach().numpy() for name, tensor in tensors.items()})
        for name, tensor in tensors.items():
            tensor.grad = torch.from_numpy(np.array(grads[name]))
        return torch.tensor(float(value))

    for _ in range(steps):
        value = closure()
        optimizer.step(value if isinstance(optimizer, Polyak) else closure)
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}, optimizer


OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "Adam": ("torch.optim.Adam", {"lr": 0.01}),
    "AdamW": ("torch.optim.AdamW", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    "SGD": ("torch.optim.SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "RMSprop": ("torch.optim.RMSprop", {"lr": 0.01, "centered": True}),
    "NAdam": ("torch.optim.NAdam", {"lr": 0.01}),
    "Adagrad": ("torch.optim.Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    "Rprop": ("torch.optim.Rprop", {"lr": 0.01}),
    "ASGD": ("torch.optim.ASGD", {"lr": 0.01}),
    "LBFGS": ("torch.optim.LBFGS", {"lr": 0.5, "max_iter": 3, "history_size": 4}),
    "Signs": ("torch_library:Signs", {"lr": 0.01}),
    "Sharp": ("torch_library:Sharp", {"lr": 0.1}),
    "Polyak": ("torch_library:Polyak", {"best": 0.01}),
}


@pytest.mark.parametrize("name", OWN)
def test_the_bits_are_those_of_a_loop_in_torch(name: str) -> None:
    """Gradients that XLA computes inside of a larger program may differ in their last bit; steps do not add to that."""
    where, settings = OWN[name]
    module, _, attribute = where.replace(":", ".").rpartition(".")
    cls = getattr(sys.modules.get(module) or __import__(module, fromlist=["*"]), attribute)
    params, _, _ = train(torch_optimizer(where, **settings), 0, 1)
    for seed in (0, 1):
        expected, _ = by_hand(lambda tensors: cls(tensors, **settings), seed)
        for leaf in SHAPES:
            rtol = 1e-3 if name == "LBFGS" else 2e-6  # differences of gradients stand below a fraction there
            np.testing.assert_allclose(params[leaf][seed], expected[leaf], rtol=rtol, atol=2e-7)


@pytest.mark.parametrize("name", ["Adam", "LBFGS", "Sharp"])
def test_a_state_that_was_saved_goes_on_to_the_same_bits(name: str) -> None:
    where, settings = OWN[name]
    made = torch_optimizer(where, **settings)
    through = train(made, 0, 1, before=train(made, 0, 1))
    first = train(made, 0, 1)
    transformation._HOSTS.clear()  # as in another process
    again = train(torch_optimizer(where, **settings), 0, 1, before=first)
    for leaf, other in zip(jax.tree.leaves(through), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_it_is_evaluated_where_eval_puts_its_parameters() -> None:
    params, _, evaluated = train(torch_optimizer("torch_library:Averaged", lr=0.1), 0)
    _, optimizer = by_hand(lambda tensors: Averaged(tensors, lr=0.1), 0)
    optimizer.eval()
    np.testing.assert_allclose(evaluated["w"][0], optimizer.param_groups[0]["params"][1].detach().numpy(), rtol=1e-5)
    assert np.abs(params["w"] - evaluated["w"]).max() > 1e-3


def test_random_numbers_are_those_of_the_seed_and_the_step() -> None:
    noisy = torch_optimizer("torch_library:Noisy", lr=0.1)
    once, _, _ = train(noisy, 0, 0)
    np.testing.assert_array_equal(once["w"][0], once["w"][1])  # the key is that of both
    torch.manual_seed(99)
    np.testing.assert_allclose(train(noisy, 0)[0]["w"][0], once["w"][0], rtol=1e-5)
    assert np.abs(once["w"][0] - train(torch_optimizer("torch.optim.SGD", lr=0.1), 0)[0]["w"][0]).max() > 1e-3


def test_patterns_choose_the_settings_of_parameters() -> None:
    plain = {"lr": 0.1, "weight_decay": 0.5}
    decayed, spared, frozen = (
        train(torch_optimizer("torch.optim.SGD", **plain, **more), 0, steps=1)[0]
        for more in ({}, {"no_decay": "^b$"}, {"groups": {"w": {"lr": 0.0}}})
    )
    np.testing.assert_array_equal(decayed["w"], spared["w"])
    assert np.abs(decayed["b"] - spared["b"]).min() > 1e-3
    np.testing.assert_array_equal(frozen["w"][0], initial(0)["w"])
    np.testing.assert_array_equal(frozen["b"], decayed["b"])


def test_no_decay_holds_for_parameters_that_a_group_has_too() -> None:
    plain = {"lr": 0.1, "weight_decay": 0.5}
    both, neither = (
        train(torch_optimizer("torch.optim.SGD", **{**plain, **more}), 0, steps=1)[0]
        for more in (
            {"groups": {"w": {"lr": 0.05}}, "no_decay": "w|b"},
            {"weight_decay": 0.0, "groups": {"w": {"lr": 0.05}}},
        )
    )
    np.testing.assert_array_equal(both["w"], neither["w"])
    np.testing.assert_array_equal(both["b"], neither["b"])


def test_matrices_may_come_as_torchs_layers_keep_them() -> None:
    """Muon scales by rows over columns; for what computes by element nothing changes."""
    muon = {"lr": 0.1, "adjust_lr_fn": "original"}
    one = {"optimizer": "torch.optim.Muon", "groups": {"b": {}}, **muon}
    with pytest.raises(ConfigError, match=SHOWN["2d-parameters"]):
        train(torch_optimizer(**one), 0)
    adam = [train(torch_optimizer("torch.optim.Adam", lr=0.1, transposed=way), 0)[0] for way in (False, True)]
    np.testing.assert_array_equal(adam[0]["w"], adam[1]["w"])


def test_a_schedule_is_read_at_every_step() -> None:
    halving = lobench.Schedule(lambda num_steps: lambda count: 0.1 * 0.5**count, "halving")
    params, _, _ = train(torch_optimizer("torch.optim.SGD", lr=halving), 0, steps=3)
    expected, _, _ = train(optax.sgd(lambda count: 0.1 * 0.5**count), 0, steps=3)
    np.testing.assert_allclose(params["w"], expected["w"], rtol=1e-6)


def test_a_number_is_an_argument_of_the_program_and_arrives_as_it_was_written() -> None:
    traces = []

    def one(rate: Any) -> Any:
        traces.append(rate)
        stepper = as_stepper(torch_optimizer("torch.optim.SGD", lr=rate), 1)
        params = {"w": jnp.ones(2)}
        state = stepper.init(params, None, jax.random.key(0))
        return stepper.step(state, params, None, {"w": jnp.ones(2)}, 0.0, jax.random.key(0))[1]["w"]

    program = jax.jit(one)
    assert [program(rate)[0] for rate in (0.1, 0.25)] == [np.float32(0.9), np.float32(0.75)]
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("settings", "output"),
    [
        ({"optimizer": "torch.optim.Adan"}, SHOWN["no-such-torch-optimizer-torch"]),
        ({"optimizer": "no_such_package:Adan"}, SHOWN["no-module-named-no-such"]),
        ({"optimizer": "torch_library:Hooked"}, SHOWN["wants-a-module-of-torch"]),
        ({"optimizer": "torch.optim.Adam", "rate": 0.1}, SHOWN["unexpected-keyword-argument-rate"]),
        ({"optimizer": "torch.optim.Adam", "lr": -1.0}, SHOWN["invalid-learning-rate-1-0"]),
        ({"optimizer": "torch.optim.Adam", "no_decay": "("}, SHOWN["no-pattern-of-parameters-paths"]),
        ({"optimizer": "torch.optim.LBFGS", "closure": False}, SHOWN["closure-true"]),
        ({"optimizer": "torch_library:Ahead"}, SHOWN["torch-library-ahead-optimizer-torch"]),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_said_in_a_line(settings: dict[str, Any], output: str) -> None:
    transformation._HOSTS.clear()  # what was made before is not tried again
    with pytest.raises(ConfigError, match=output) as caught:
        train(torch_optimizer(**settings), 0)
    assert "\n" not in str(caught.value)


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "torch_library.py").write_bytes((HERE / "torch_library.py").read_bytes())
    lines = (
        "import torch_library",
        "import lobench.inner.tasks.image",
        "Case.num_inner_steps = 30",
        "Case.eval_every = 10",
        "Case.num_seeds = 3",
        "digits/Case.task = @DigitsMLP()",
        "digits/DigitsMLP.hidden_sizes = (8,)",
        "",
    )
    (tmp_path / "cases.gin").write_text("\n".join(lines))
    yield tmp_path


def test_tune_varies_lr_of_a_torch_optimizer_and_what_it_prints_is_an_experiment(suite: Path) -> None:
    printed = lobench_here("tune", "cases.gin", "--optimizer", "torch.optim.AdamW", "--print", cwd=suite).stdout
    assert "AdamW/torch.optim.AdamW.lr = @lr/Real()" in printed
    (suite / "kept.gin").write_text(printed)
    assert "AdamW: 11 trials" in lobench_here("run", "kept.gin", "--check", cwd=suite).stdout


def test_list_optimizers_names_those_of_torch() -> None:
    listed = lobench_here("list", "optimizers", "-v")
    names = [line.split()[0] for line in listed.stdout.splitlines() if line[:1].strip()]
    assert {"torch_optimizer", "torch.optim.AdamW"} <= {*names}


def test_names_of_python_are_names_of_gin(suite: Path) -> None:
    (suite / "experiment.gin").write_text(
        (suite / "cases.gin").read_text()
        + "Experiment.num_sessions = 1\nCase.num_inner_steps = 10\nCase.eval_every = 5\n"
        + "adam/Method.optimizer = @torch.optim.Adam()\nadam/torch.optim.Adam.lr = 0.01\n"
        + "same/Method.optimizer = @adam()\nsame/adam.learning_rate = 0.01\n"
        + "sharp/Method.optimizer = @torch_library.Sharp()\n"
        + 'sharp/torch_library.Sharp.no_decay = "b"\n'
        + "ahead/Method.optimizer = @torch_library.Ahead()\n"
        + "ahead/torch_library.Ahead.optimizer = @torch.optim.Adam\n"
        + "ahead/torch_library.Ahead.alpha = 1.0\nahead/torch_library.Ahead.groups = 5\n"
        + "ahead/torch.optim.Adam.lr = 0.01\n"
        + "lbfgs/Method.optimizer = @torch.optim.LBFGS()\n"  # its state is large: it must not hang
        + "lbfgs/torch.optim.LBFGS.lr = 0.1\nlbfgs/torch.optim.LBFGS.max_iter = 2\n"
    )
    done = lobench_here("run", "experiment.gin", cwd=suite)
    assert done.returncode == 0, done.stdout + done.stderr
    found = lobench.open_results(suite / ".lobench/experiment").curves("train/loss")
    curves = {each.subject.name: each.values for each in found}
    np.testing.assert_allclose(curves["adam"], curves["same"], rtol=1e-4)
    np.testing.assert_allclose(curves["adam"], curves["ahead"], rtol=1e-4)
    assert {"sharp", "lbfgs"} <= set(curves)
