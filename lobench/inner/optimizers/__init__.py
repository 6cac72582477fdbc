"""Optimizers by gin name: baselines through optax, learned optimizers with a theta."""

from __future__ import annotations

from lobench.inner.optimizers.adafac_mlp_lopt import AdafacMLPLOpt
from lobench.inner.optimizers.baselines import (
    adafactor,
    adam,
    adamw,
    lion,
    momentum,
    nadamw,
    nesterov,
    rmsprop,
    schedule_free_adamw,
    sgd,
)
from lobench.inner.optimizers.celo import Celo
from lobench.inner.optimizers.l2o_dm import L2ODM
from lobench.inner.optimizers.learnable import LearnableAdam, LearnableSGD, LearnableSGDM
from lobench.inner.optimizers.mlp_lopt import MLPLOpt
from lobench.inner.optimizers.optax_names import OptaxNames
from lobench.inner.optimizers.rnnprop import RNNProp

__all__ = [
    "L2ODM",
    "AdafacMLPLOpt",
    "Celo",
    "LearnableAdam",
    "LearnableSGD",
    "LearnableSGDM",
    "MLPLOpt",
    "RNNProp",
    "adafactor",
    "adam",
    "adamw",
    "lion",
    "momentum",
    "nadamw",
    "nesterov",
    "rmsprop",
    "schedule_free_adamw",
    "sgd",
]

lobench_on_use = OptaxNames()
