"""State of torch optimizers: each seed has its own, it is saved whole, and what cannot be saved is refused by name."""

from __future__ import annotations

import collections
import importlib
import inspect
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: `ci/test --all` installs it")
pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")

import numpy as np
import torch
from lobench_torch.host import Host
from lobench_torch.specs import (
    WRAPPED_ARGUMENTS,
    ClassReference,
    OptimizerClass,
    OptimizerSpec,
    RefusedOptimizer,
    class_of,
)
from lobench_torch.state import decode, encode, state_size

SHAPES = {"w0": (3, 5), "b0": (5,), "w1": (5, 2), "b1": (2,)}
SIZES = [int(np.prod(shape)) for shape in SHAPES.values()]
X = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
Y = torch.randn(16, 2, generator=torch.Generator().manual_seed(2))
STEPS = 36
HERE = __name__


class Base(torch.optim.SGD):
    """Momentum by an accumulator that a subclass keeps in its own way."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr=lr)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                param.add_(self.update(param, param.grad), alpha=-group["lr"])

    def update(self, param: Any, grad: Any) -> Any:
        raise NotImplementedError


class Momentum:
    """An object without tensors of torch's."""

    __slots__ = ("steps", "value")

    def __init__(self) -> None:
        self.steps, self.value = 0, 0.0

    def add(self, grad: Any) -> Any:
        self.steps += 1
        self.value = 0.9 * self.value + float(grad.mean())
        return self.value + grad


class InObject(Base):
    def update(self, param: Any, grad: Any) -> Any:
        return self.state[param].setdefault("momentum", Momentum()).add(grad)


class InArray(Base):
    def update(self, param: Any, grad: Any) -> Any:
        array = self.state[param].setdefault("momentum", np.zeros(tuple(grad.shape), np.float64))
        array *= 0.9
        array += grad.numpy()
        return torch.from_numpy(array.astype(np.float32))


class InDeque(Base):
    def update(self, param: Any, grad: Any) -> Any:
        last = self.state[param].setdefault("last", collections.deque(maxlen=3))
        last.append(grad.clone())
        return sum(last) / len(last)


class InAttribute(Base):
    """Keeps a counter, a text and tensors by `id(param)` in attributes."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        self.count, self.phase, self.sums = 0, "warm", {}

    def update(self, param: Any, grad: Any) -> Any:
        self.count += 1
        self.phase = "cold" if self.count > 36 else self.phase
        self.sums[id(param)] = 0.9 * self.sums.get(id(param), 0) + grad
        return self.sums[id(param)] * (0.5 if self.phase == "cold" else 1)


class InClosure(Base):
    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        count = 0

        def scale() -> float:
            nonlocal count
            count += 1
            return 1 / (1 + 0.01 * count)

        self.scale: Callable[[], float] = scale

    def update(self, param: Any, grad: Any) -> Any:
        return grad * self.scale()


class InGenerator(Base):
    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        self.torch_random = torch.Generator().manual_seed(3)
        self.numpy_random, self.random = np.random.default_rng(3), random.Random(3)

    def update(self, param: Any, grad: Any) -> Any:
        noise = torch.rand(grad.shape, generator=self.torch_random)
        return grad * noise * self.numpy_random.random() * self.random.random()


class GlobalRandom(Base):
    def update(self, param: Any, grad: Any) -> Any:
        return grad * torch.rand(grad.shape) * np.random.random() * random.random()


class RandomClosure(Base):
    """Draws before and after it asks for a loss elsewhere."""

    def step(self, closure: Any) -> None:
        for _ in range(2):
            closure()
            with torch.no_grad():
                for group in self.param_groups:
                    for param in group["params"]:
                        param.add_(param.grad * torch.rand(1) * np.random.random() * random.random(), alpha=-0.1)


class InView(Base):
    """Steps one flat tensor, of which the momentum of each parameter is a view."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        parameters = self.param_groups[0]["params"]
        self.flat = torch.zeros(sum(param.numel() for param in parameters))
        self.views = dict(zip(parameters, self.flat.split([param.numel() for param in parameters]), strict=True))
        self.memory = [param.detach() for param in parameters]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for param, view in self.views.items():
            view.add_(param.grad.reshape(-1))
        self.flat.mul_(0.9)
        for memory, view in zip(self.memory, self.views.values(), strict=True):
            memory.sub_(0.02 * view.view(memory.shape))


class ReadsParameters(Base):
    """Is drawn to where its parameters were when it was made."""

    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        self.start = {param: param.detach().clone() for param in self.param_groups[0]["params"]}

    def update(self, param: Any, grad: Any) -> Any:
        return grad + 0.1 * (param - self.start[param])


class Late(Base):
    """Begins to remember at its tenth step."""

    def update(self, param: Any, grad: Any) -> Any:
        state = self.state[param]
        state["step"] = state.get("step", 0) + 1
        if state["step"] >= 10:
            state.setdefault("slow", grad.clone()).mul_(0.9).add_(grad)
            return state["slow"]
        return grad


class Wrapper(torch.optim.Optimizer):
    """SAM: takes the class of another optimizer."""

    def __init__(self, params: Any, base_optimizer: Any, rho: float = 0.05, **settings: Any) -> None:
        super().__init__(params, {"rho": rho, **settings})
        self.base_optimizer = base_optimizer(self.param_groups, **settings)

    @torch.no_grad()
    def step(self, closure: Any) -> None:
        params = [param for group in self.param_groups for param in group["params"]]
        with torch.enable_grad():
            closure()
        moves = [0.01 * param.grad.clone() for param in params]
        for param, move in zip(params, moves, strict=True):
            param.add_(move)
        with torch.enable_grad():
            closure()
        for param, move in zip(params, moves, strict=True):
            param.sub_(move)
        self.base_optimizer.step()


class OnInstance(torch.optim.Optimizer):
    """Lookahead: takes an instance of another optimizer, and no parameters."""

    def __init__(self, base: Any, every: int = 5) -> None:
        self.base, self.every, self.count = base, every, 0
        self.param_groups, self.state, self.defaults = base.param_groups, base.state, base.defaults
        self.slow = [[param.detach().clone() for param in group["params"]] for group in base.param_groups]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.base.step()
        self.count += 1
        if self.count % self.every == 0:
            for group, slow in zip(self.param_groups, self.slow, strict=True):
                for param, copy in zip(group["params"], slow, strict=True):
                    copy.lerp_(param, 0.5)
                    param.copy_(copy)


class Bare:
    """Wraps an instance, and has neither `state` nor `param_groups`."""

    def __init__(self, optimizer: Any) -> None:
        self.inside, self.count = optimizer, 0

    def step(self, closure: Any = None) -> None:
        self.count += 1
        self.inside.step()


class Forever(Base):
    def update(self, param: Any, grad: Any) -> Any:
        self.state[param].setdefault("history", []).append(grad.clone())
        return grad


class LateForever(Base):
    """Begins to grow after the steps that are tried."""

    def update(self, param: Any, grad: Any) -> Any:
        state = self.state[param]
        state["step"] = state.get("step", 0) + 1
        if state["step"] > 300:
            state.setdefault("history", []).append(torch.zeros(4096))
        return grad


class Locked(Base):
    def __init__(self, params: Any, lr: float = 0.05) -> None:
        super().__init__(params, lr)
        self.guards = {"all": [threading.Lock()]}

    def update(self, param: Any, grad: Any) -> Any:
        return grad


class OnClass(Base):
    total = 0

    def update(self, param: Any, grad: Any) -> Any:
        type(self).total += 1
        return grad / self.total


class Asserting(torch.optim.SGD):
    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr=lr)
        if any(param.ndim != 2 for group in self.param_groups for param in group["params"]):
            raise AssertionError


def initial(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(sum(SIZES)).astype(np.float32)


def gradient(flat: np.ndarray) -> tuple[np.float32, np.ndarray]:
    """Returns the loss and the gradients of a small network at parameters one after another."""
    leaves = torch.from_numpy(np.array(flat)).split(SIZES)
    w0, b0, w1, b1 = (
        leaf.view(shape).clone().requires_grad_() for leaf, shape in zip(leaves, SHAPES.values(), strict=True)
    )
    loss = ((torch.tanh(X @ w0 + b0) @ w1 + b1 - Y) ** 2).mean()
    loss.backward()
    return np.float32(loss.item()), np.concatenate([leaf.grad.numpy().ravel() for leaf in (w0, b0, w1, b1)])


def seed_of(seed: int, step: int) -> int:
    return 1000 * seed + step


def by_hand(spec: OptimizerSpec, settings: Mapping[str, Any], seed: int, steps: int = STEPS) -> np.ndarray:
    """Returns the parameters after a training loop as its author would write it in torch."""
    leaves = torch.from_numpy(initial(seed)).split(SIZES)
    params = {
        name: torch.nn.Parameter(leaf.view(shape).clone())
        for (name, shape), leaf in zip(SHAPES.items(), leaves, strict=True)
    }

    def seed_all(number: int) -> None:
        torch.manual_seed(number)
        np.random.seed(number)
        random.seed(number)

    def flat() -> np.ndarray:
        return np.concatenate([param.detach().numpy().ravel() for param in params.values()])

    def closure() -> torch.Tensor:
        loss, grads = gradient(flat())
        for param, part in zip(params.values(), torch.from_numpy(grads).split(SIZES), strict=True):
            param.grad = part.view(param.shape)
        return torch.tensor(float(loss))

    seed_all(seed_of(seed, 0))
    optimizer = spec.make(params, settings)
    for step in range(steps):
        seed_all(seed_of(seed, step))
        closure()
        optimizer.step(*((closure,) if spec.takes_closure else ()))
    return flat()


def by_lobench(
    host: Host, settings: Mapping[str, Any], seeds: Sequence[int], steps: int = STEPS, forget_at: int = -1
) -> dict[int, np.ndarray]:
    """Returns the parameters of seeds whose steps alternate.

    Args:
      forget_at: Step before which all instances are dropped, as if another process went on from the saved states.
    """
    params, states = {seed: initial(seed) for seed in seeds}, dict.fromkeys(seeds, host.empty_state)
    for step in range(steps):
        if step == forget_at:
            host._cache.__init__()  # type: ignore[misc]
        for seed in seeds:
            loss, grads = gradient(params[seed])
            result = host.step(settings, {}, params[seed], grads, loss, states[seed], seed_of(seed, step))
            while not result.is_done:
                loss, grads = gradient(result.params)
                result = host.continue_step(result.token, loss, grads)
            params[seed], states[seed] = result.params, result.state.copy()
    return params


SGD = ClassReference("torch.optim.SGD")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        kind.__name__: (f"{HERE}:{kind.__name__}", {})
        for kind in (InObject, InArray, InDeque, InAttribute, InClosure, InGenerator, GlobalRandom, InView)
    },
    "ReadsParameters": (f"{HERE}:ReadsParameters", {}),
    "Late": (f"{HERE}:Late", {}),
    "Wrapper": (f"{HERE}:Wrapper", {"base_optimizer": SGD, "lr": 0.1, "momentum": 0.9}),
    "OnInstance": (f"{HERE}:OnInstance", {"base": ClassReference("torch.optim.Adam", (("lr", 0.01),))}),
    "Bare": (f"{HERE}:Bare", {"optimizer": ClassReference("torch.optim.Adam", (("lr", 0.01),))}),
    "RAdam": ("torch.optim.RAdam", {"lr": 0.01}),
    "LBFGS": ("torch.optim.LBFGS", {"lr": 0.2, "max_iter": 2, "history_size": 60}),
}


def check_seeds(spec: OptimizerSpec, settings: Mapping[str, Any], expected: Mapping[int, np.ndarray]) -> None:
    """Checks one seed, two that another process continues in the middle, and all, against their loops in torch."""
    host = Host(spec, SHAPES, settings)
    for seeds, forget_at in (((0,), -1), ((0, 1), STEPS // 2), (tuple(reversed(expected)), -1)):
        for seed, params in by_lobench(host, settings, seeds, forget_at=forget_at).items():
            np.testing.assert_array_equal(params, expected[seed], err_msg=f"seed {seed} of {seeds}")


@pytest.mark.parametrize("name", KINDS)
def test_seeds_whose_steps_alternate_equal_a_loop_in_torch_of_each(name: str) -> None:
    where, settings = KINDS[name]
    spec = OptimizerSpec(where, (), OptimizerClass.of(class_of(where)).takes_closure)
    check_seeds(spec, settings, {seed: by_hand(spec, settings, seed) for seed in (0, 1, 2)})


def classes_in(packages: str) -> list[str]:
    """Returns the classes of optimizers in packages by name."""
    return [
        f"{package}.{name}"
        for package in packages.split()
        for name, found in sorted(vars(importlib.import_module(package)).items())
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer) and found is not torch.optim.Optimizer
    ]


@pytest.mark.parametrize("where", classes_in(os.environ.get("LOBENCH_TORCH_PACKAGES", "schedulefree")))
def test_each_class_of_a_package_equals_a_loop_in_torch(where: str) -> None:
    """With LOBENCH_TORCH_PACKAGES="pytorch_optimizer dadaptation", of these packages."""
    found = OptimizerClass.of(class_of(where))
    parameters = inspect.signature(class_of(where)).parameters
    settings: dict[str, Any] = {
        name: ClassReference("torch.optim.SGD", (("lr", 0.05),) if name == found.first else ())
        for name in parameters
        if name in WRAPPED_ARGUMENTS
    }
    if "base_optimizer" in settings or ("lr" in parameters and parameters["lr"].default is inspect.Parameter.empty):
        settings["lr"] = 0.05
    spec = OptimizerSpec(where, (), found.takes_closure)
    try:
        expected = {seed: by_hand(spec, settings, seed) for seed in range(4)}
    except Exception as error:  # noqa: BLE001
        pytest.skip(f"the loop in torch fails: {error}")
    check_seeds(spec, settings, expected)


def test_eval_params_of_schedulefree_are_those_of_eval_and_leave_the_training_alone() -> None:
    spec, settings = OptimizerSpec("schedulefree.AdamWScheduleFree"), {"lr": 0.01}
    host, params = Host(spec, SHAPES, settings), initial(0)
    state = host.empty_state
    for step in range(5):
        loss, grads = gradient(params)
        result = host.step(settings, {}, params, grads, loss, state, step)
        params, state = result.params, result.state
        evaluated = host.eval_params(settings, params, state)
    parameters = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
    optimizer = decode(state, parameters)
    with torch.no_grad():
        for parameter, part in zip(parameters.values(), torch.from_numpy(params).split(SIZES), strict=True):
            parameter.copy_(part.view(parameter.shape))
    optimizer.eval()
    flat = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters.values()])
    np.testing.assert_array_equal(evaluated, flat)
    assert np.abs(evaluated - params).max() > 1e-4
    np.testing.assert_array_equal(params, by_hand(spec, settings, 0, 5))


def test_global_random_numbers_of_others_go_on_as_if_no_step_was_taken() -> None:
    host = Host(OptimizerSpec(f"{HERE}:GlobalRandom"), SHAPES, {})
    for module in (torch, np.random, random):
        getattr(module, "seed" if module is not torch else "manual_seed")(7)
    by_lobench(host, {}, (0,), steps=2)
    drawn = torch.rand(1).item(), np.random.random(), random.random()
    for module in (torch, np.random, random):
        getattr(module, "seed" if module is not torch else "manual_seed")(7)
    assert drawn == (torch.rand(1).item(), np.random.random(), random.random())


def test_a_paused_step_draws_its_own_random_numbers_and_leaves_those_of_others() -> None:
    host = Host(OptimizerSpec(f"{HERE}:RandomClosure", takes_closure=True), SHAPES, {})

    def begun(seed: int) -> Any:
        params = initial(seed)
        loss, grads = gradient(params)
        return host.step({}, {}, params, grads, loss, host.empty_state, seed)

    def ended(result: Any) -> np.ndarray:
        while not result.is_done:
            loss, grads = gradient(result.params)
            result = host.continue_step(result.token, loss, grads)
        return result.params

    alone = [ended(begun(seed)) for seed in (0, 1)]
    np.random.seed(7)
    expected = np.random.random()
    np.random.seed(7)
    both = [begun(seed) for seed in (0, 1)]  # both are paused
    begun(2)  # is never continued
    assert np.random.random() == expected
    for one, result in zip(alone, both, strict=True):
        np.testing.assert_array_equal(ended(result), one)


@pytest.mark.parametrize(
    ("name", "where"),
    [("Forever", "state.w0.history"), ("Locked", "guards.all[0]"), ("OnClass", "OnClass.total")],
)
def test_optimizer_that_cannot_be_saved_is_refused_by_name_before_it_trains(
    monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    monkeypatch.setattr("lobench_torch.host._LONGEST_PROBE", 64)
    with pytest.raises(RefusedOptimizer) as caught:
        Host(OptimizerSpec(f"{HERE}:{name}"), SHAPES, {})
    assert caught.value.error_fields["where"] == where


def test_optimizer_is_made_and_stepped_without_torchs_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes a second in each process."""
    function = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    monkeypatch.delattr(function, "__dynamo_disable", raising=False)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    by_lobench(Host(OptimizerSpec(f"{HERE}:InArray"), SHAPES, {}), {}, (0,), steps=2)
    assert "torch._dynamo" not in sys.modules
    assert not hasattr(function, "__dynamo_disable")


def test_optimizer_that_grows_later_is_refused_by_name() -> None:
    host = Host(OptimizerSpec(f"{HERE}:LateForever"), SHAPES, {})
    with pytest.raises(RefusedOptimizer) as caught:
        by_lobench(host, {}, (0,), steps=310)
    assert caught.value.error_fields["where"].endswith(".history")


def test_pattern_that_matches_no_parameter_is_refused_with_the_paths() -> None:
    for groups in ([("bias", {"weight_decay": 0.0})], [("w0", {"lr": 0.1}), ("norm", {})]):
        with pytest.raises(RefusedOptimizer) as caught:
            Host(OptimizerSpec("torch.optim.SGD", groups), SHAPES, {"lr": 0.1})
        assert "w0, b0, w1, b1" in caught.value.error_fields["got"]


def test_assertion_without_a_message_names_the_parameters_and_their_shapes() -> None:
    with pytest.raises(RefusedOptimizer) as caught:
        Host(OptimizerSpec(f"{HERE}:Asserting"), SHAPES, {})
    assert "b0 [5]" in caught.value.error_fields["got"]
    assert "groups" in caught.value.error_fields["got"]


def test_decode_names_classes_but_calls_nothing() -> None:
    """A state comes from a file: it must not be able to run code."""
    state = encode([1], {}, "list")
    for text in (b'["partial",["name","os","system"],["touch x"],[]]', b'["object",["name","os","system"],[],null]'):
        hostile = np.zeros(16 + 128, np.uint8)
        hostile[:16].view(np.int64)[:] = len(text), hostile.size
        hostile[16 : 16 + len(text)] = np.frombuffer(text, np.uint8)
        try:
            found = decode(hostile, {})
        except RefusedOptimizer:
            continue
        assert callable(found)  # a partial was made, and not called
    assert decode(state, {}) == [1]


def test_state_that_is_cut_or_damaged_is_refused_in_one_error() -> None:
    host = Host(OptimizerSpec("torch.optim.Adam"), SHAPES, {"lr": 0.01})
    loss, grads = gradient(initial(0))
    state = host.step({"lr": 0.01}, {}, initial(0), grads, loss, host.empty_state, 0).state
    parameters = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
    for damage in (slice(40, 60), slice(16, 18)):
        broken = state.copy()
        broken[damage] = 0
        with pytest.raises(RefusedOptimizer):
            decode(broken, parameters)
    with pytest.raises(RefusedOptimizer):
        decode(state[: state_size(state) - 64], parameters)
