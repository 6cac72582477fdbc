"""Objects with google/learned_optimization's signatures, argument orders included: each of its classes has its own."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")


class Countdown:
    """loss = params, from 1 down; the model state counts losses."""

    datasets = None

    def init_with_state(self, key: Any) -> Any:
        return jnp.float32(1.0), jnp.int32(0)

    def loss_with_state_and_aux(self, params: Any, state: Any, key: Any, data: Any) -> Any:
        return params, state + 1, {"state": state.astype(jnp.float32)}


class State(NamedTuple):
    params: Any
    state: Any
    seen: Any  # the loss that the last update got


class Optimizer:
    """SGD of rate 0.25."""

    def get_params(self, state: Any) -> Any:
        return state.params

    def get_state(self, state: Any) -> Any:
        return state.state

    def started(self, params: Any, model_state: Any) -> State:
        assert model_state is not None and not isinstance(params, State)
        return State(params, model_state, jnp.float32(0))

    def stepped(self, opt_state: Any, grad: Any, model_state: Any, loss: Any) -> State:
        assert model_state.dtype == jnp.int32
        return State(opt_state.params - 0.25 * grad, model_state, jnp.asarray(loss, jnp.float32))


class OptaxOptimizer(Optimizer):
    def init(self, params: Any, model_state: Any = None, num_steps: Any = None, key: Any = None) -> Any:
        assert num_steps == 10 and key is not None
        return self.started(params, model_state)

    def update(
        self, opt_state: Any, grad: Any, loss: Any = None, model_state: Any = None, key: Any = None, **kwargs: Any
    ) -> Any:
        return self.stepped(opt_state, grad, model_state, loss)


class MLPLOpt(Optimizer):
    def init(self, params: Any, model_state: Any = None, num_steps: Any = None, key: Any = None) -> Any:
        return self.started(params, model_state)

    def update(
        self, opt_state: Any, grad: Any, loss: Any, model_state: Any = None, is_valid: Any = False, key: Any = None
    ) -> Any:
        return self.stepped(opt_state, grad, model_state, loss)


class RNNMLPLOpt(MLPLOpt):
    """A validation loss changes no parameters."""

    def update(
        self,
        opt_state: Any,
        grads: Any,
        loss: Any = None,
        model_state: Any = None,
        is_valid: Any = False,
        key: Any = None,
        **kwargs: Any,
    ) -> Any:
        trained = self.stepped(opt_state, grads, model_state, loss)
        return jax.lax.cond(is_valid, lambda _: opt_state, lambda _: trained, ())


class NAdamW(Optimizer):
    def init(self, params: Any, model_state: Any = None, num_steps: Any = None) -> Any:
        return self.started(params, model_state)

    def update(self, opt_state: Any, grads: Any, model_state: Any = None, **kwargs: Any) -> Any:
        return self.stepped(opt_state, grads, model_state, kwargs["loss"])


class OptList(Optimizer):
    def init(self, params: Any, model_state: Any = None, *, num_steps: Any) -> Any:
        return NAdamW().init(params, model_state, num_steps=num_steps)

    def update(self, opt_state: Any, grads: Any, model_state: Any = None, **kwargs: Any) -> Any:
        return NAdamW().update(opt_state, grads, model_state, **kwargs)


class GradientClipOptimizer(Optimizer):
    def __init__(self, opt: Any) -> None:
        self.opt = opt

    def init(self, *args: Any, **kwargs: Any) -> Any:
        return self.opt.init(*args, **kwargs)

    def update(self, opt_state: Any, grad: Any, *args: Any, **kwargs: Any) -> Any:
        return self.opt.update(opt_state, grad, *args, **kwargs)


class WeightDecayWrapper(GradientClipOptimizer):
    def init(self, params: Any, model_state: Any = None, **kwargs: Any) -> Any:
        return self.opt.init(params, model_state=model_state, **kwargs)

    def update(self, opt_state: Any, grads: Any, model_state: Any = None, loss: Any = None, **kwargs: Any) -> Any:
        return self.opt.update(opt_state, grads, model_state=model_state, loss=loss + 0.0, **kwargs)


class GraftedOptimizer(GradientClipOptimizer):
    def init(self, params: Any, model_state: Any = None, num_steps: Any = None, **kwargs: Any) -> Any:
        return self.opt.init(params, model_state=model_state, num_steps=num_steps, **kwargs)

    def update(self, opt_state: Any, grad: Any, model_state: Any = None, **kwargs: Any) -> Any:
        return self.opt.update(opt_state, grad, model_state=model_state, **kwargs)


class GradientAccumulator(GradientClipOptimizer):
    def init(self, p: Any, model_state: Any = None, num_steps: Any = None, **kwargs: Any) -> Any:
        return self.opt.init(p, num_steps=num_steps, model_state=model_state, **kwargs)

    def update(self, opt_state: Any, grad: Any, model_state: Any = None, loss: Any = None, **kwargs: Any) -> Any:
        return self.opt.update(opt_state, grad, loss=loss / 1.0, model_state=model_state, **kwargs)


class ExtendTimeWrapper(GradientClipOptimizer):
    def init(self, params: Any, model_state: Any = None, *, num_steps: Any) -> Any:
        return self.opt.init(params, model_state, num_steps=num_steps)

    def update(self, opt_state: Any, grad: Any, loss: Any = None, **kwargs: Any) -> Any:
        return self.opt.update(opt_state, grad, loss, **kwargs)


class LearnedOptimizer:
    def __init__(self, opt: Any) -> None:
        self.opt = opt

    def init(self, key: Any) -> Any:
        return {"w": jnp.float32(0)}

    def opt_fn(self, theta: Any, is_training: bool = False) -> Any:
        assert not is_training
        return self.opt


PLAIN = [OptaxOptimizer(), MLPLOpt(), RNNMLPLOpt(), NAdamW(), OptList()]
WRAPPED = [
    wrapper(inner)
    for wrapper in (GradientClipOptimizer, WeightDecayWrapper, GraftedOptimizer, GradientAccumulator)
    for inner in (MLPLOpt(), NAdamW())
]


@pytest.mark.parametrize(
    "optimizer",
    [*PLAIN, *WRAPPED, ExtendTimeWrapper(MLPLOpt())],
    ids=lambda opt: "-".join(type(part).__name__ for part in (opt, getattr(opt, "opt", None)) if part is not None),
)
def test_each_of_its_signatures_is_called_as_its_own_trainer_calls_it(optimizer: Any) -> None:
    learned = as_learned_optimizer(LearnedOptimizer(optimizer))
    theta = learned.init(jax.random.key(0))
    case = Case(num_inner_steps=10, eval_every=4)
    make = lambda theta: as_stepper(learned.opt_fn(theta, 10), 10)  # noqa: E731
    curves = TrainingProgram(case, as_task(Countdown()), make, 1).run(theta, SeedBlock(start=0, size=1))
    assert curves is not None
    assert curves.metrics["train/loss"].tolist() == [[1.0, 0.0, -1.0, -1.5]]
    assert curves.metrics["train/state"].tolist() == [[0.0, 4.0, 8.0, 10.0]]


def test_the_loss_arrives_and_an_error_of_its_own_is_not_swallowed() -> None:
    stepper = as_stepper(GradientAccumulator(NAdamW()), 10)
    one, key = jnp.float32(1), jax.random.key(0)
    state = stepper.init(one, jnp.int32(0), key)
    state, params, model_state = stepper.step(state, one, jnp.int32(1), one, jnp.float32(7), key)
    assert (float(state.seen), float(params), int(model_state)) == (7.0, 0.75, 1)

    class Broken(NAdamW):
        def update(self, opt_state: Any, grads: Any, model_state: Any = None, **kwargs: Any) -> Any:
            return self.stepped(opt_state, grads, model_state, rate=1)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=SHOWN["unexpected-keyword-argument-rate"]):
        as_stepper(Broken(), 10).step(state, params, jnp.int32(1), one, jnp.float32(7), key)


class Datasets:
    """Splits are attributes; a property stands for the lazy ones."""

    def __init__(self, train: Any) -> None:
        self.train = train

    @property
    def test(self) -> Any:
        return lambda: iter([np.float32(9)] * 20)


class Regression:
    """Looks at a batch for its shape, as its image tasks do."""

    def __init__(self, datasets: Any) -> None:
        self.datasets = datasets

    def init_with_state(self, key: Any) -> Any:
        return jnp.zeros_like(next(self.datasets.train)), None

    def loss_with_state_and_aux(self, params: Any, state: Any, key: Any, data: Any) -> Any:
        return jnp.abs(params - data).sum(), None, {}


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_dataset_that_is_a_callable_is_an_iterator_too_where_the_task_wants_one(is_frozen: bool) -> None:
    make = lambda: iter([np.full((), index, np.float32) for index in range(30)])  # noqa: E731
    datasets = dataclasses.make_dataclass("Frozen", ["train"], frozen=True)(make) if is_frozen else Datasets(make)
    task = as_task(Regression(datasets))
    assert len(list(datasets.train())) == 30, "it stays callable"
    case = Case(num_inner_steps=8, eval_every=8, log_every=1)
    program = TrainingProgram(case, task, lambda _: as_stepper(optax.sgd(0.0), 8), 2)
    curves = program.run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    assert curves.metrics["batch/loss"].tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]] * 2


class Bowl:
    def init(self, key: Any) -> Any: ...
    def loss(self, params: Any, key: Any, data: Any) -> Any: ...


@pytest.mark.parametrize("candidate", [Bowl, Bowl()])
def test_what_is_no_task_is_told_by_name_with_what_a_task_of_ones_own_is(candidate: Any) -> None:
    with pytest.raises(ConfigError, match=SHOWN["got-bowl-name-is-a"]):
        as_task(candidate)
