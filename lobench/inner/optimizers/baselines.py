"""Baselines: optax's optimizers under the names that suites use. Learning rates may be traced scalars."""

from __future__ import annotations

from typing import Any

import optax
import optax.contrib

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import TransformationWithEvalParams
from lobench.inner.schedules.schedule import Rate

__all__ = [
    "adafactor",
    "adam",
    "adamw",
    "evaluated_at_average",
    "lion",
    "momentum",
    "nadamw",
    "nesterov",
    "rmsprop",
    "schedule_free_adamw",
    "sgd",
]


@configurable
def sgd(learning_rate: Rate = 0.1) -> optax.GradientTransformationExtraArgs:
    """Stochastic gradient descent.

    Source: Robbins and Monro 1951.
    """
    return optax.with_extra_args_support(optax.sgd(learning_rate))


@configurable
def momentum(learning_rate: Rate = 0.01, decay: float = 0.9) -> optax.GradientTransformationExtraArgs:
    """SGD with heavy-ball momentum.

    Source: Polyak 1964; Sutskever et al. 2013.
    """
    return optax.with_extra_args_support(optax.sgd(learning_rate, momentum=decay))


@configurable
def nesterov(learning_rate: Rate = 0.01, decay: float = 0.9) -> optax.GradientTransformationExtraArgs:
    """SGD with Nesterov momentum.

    Source: Nesterov 1983; Sutskever et al. 2013.
    """
    return optax.with_extra_args_support(optax.sgd(learning_rate, momentum=decay, nesterov=True))


@configurable
def rmsprop(learning_rate: Rate = 1e-3, decay: float = 0.9) -> optax.GradientTransformationExtraArgs:
    """RMSProp.

    Source: Tieleman and Hinton 2012.
    """
    return optax.with_extra_args_support(optax.rmsprop(learning_rate, decay=decay))


@configurable
def adam(
    learning_rate: Rate = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Adam.

    Source: Kingma and Ba 2014 (arXiv 1412.6980).
    """
    return optax.with_extra_args_support(optax.adam(learning_rate, b1=b1, b2=b2, eps=eps))


@configurable
def adamw(
    learning_rate: Rate = 1e-3, b1: float = 0.9, b2: float = 0.999, weight_decay: float = 1e-4
) -> optax.GradientTransformationExtraArgs:
    """Adam with decoupled weight decay.

    Source: Loshchilov and Hutter 2017 (arXiv 1711.05101).
    """
    return optax.with_extra_args_support(optax.adamw(learning_rate, b1=b1, b2=b2, weight_decay=weight_decay))


@configurable
def nadamw(
    learning_rate: Rate = 1e-3, b1: float = 0.9, b2: float = 0.999, weight_decay: float = 1e-4
) -> optax.GradientTransformationExtraArgs:
    """AdamW with Nesterov momentum.

    Source: Dozat 2016; Loshchilov and Hutter 2017 (arXiv 1711.05101).
    """
    return optax.with_extra_args_support(
        optax.adamw(learning_rate, b1=b1, b2=b2, weight_decay=weight_decay, nesterov=True)
    )


@configurable
def lion(
    learning_rate: Rate = 1e-4, b1: float = 0.9, b2: float = 0.99, weight_decay: float = 0.0
) -> optax.GradientTransformationExtraArgs:
    """Lion.

    Source: Chen et al. 2023 (arXiv 2302.06675).
    """
    return optax.with_extra_args_support(optax.lion(learning_rate, b1=b1, b2=b2, weight_decay=weight_decay))


@configurable
def adafactor(learning_rate: Rate = 1e-2, momentum: float | None = None) -> optax.GradientTransformationExtraArgs:
    """Adafactor.

    Source: Shazeer and Stern 2018 (arXiv 1804.04235).
    """
    return optax.with_extra_args_support(optax.adafactor(learning_rate, momentum=momentum))


@configurable
def schedule_free_adamw(
    learning_rate: Rate = 2.5e-3, warmup_steps: int = 0, b1: float = 0.9, weight_decay: float = 0.0
) -> TransformationWithEvalParams:
    """Schedule-free AdamW, evaluated at its average.

    Source: Defazio et al. 2024 (arXiv 2405.15682).
    """
    optimizer = optax.contrib.schedule_free_adamw(
        learning_rate,
        warmup_steps=warmup_steps or None,  # with 0 warm-up steps, optax's learning rate would always be 0
        b1=b1,
        weight_decay=weight_decay,
    )
    return evaluated_at_average(optimizer)


def evaluated_at_average(schedule_free: Any) -> TransformationWithEvalParams:
    """Adds `eval_params`, which returns the average, to one of optax's schedule-free optimizers."""
    transformation = optax.with_extra_args_support(schedule_free)
    return TransformationWithEvalParams(
        init=transformation.init,
        update=transformation.update,
        eval_params=optax.contrib.schedule_free_eval_params,
    )
