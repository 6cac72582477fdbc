"""Loss weighters for tasks with several losses, as gin configurables: `uncertainty.inner = @adam()`."""

from lobench.inner.optimizers.weighters.by_gradients import gradnorm, pcgrad, slw
from lobench.inner.optimizers.weighters.by_losses import dwa, lbtw, mldw, slaw
from lobench.inner.optimizers.weighters.uncertain import uncertainty
from lobench.inner.optimizers.weighters.unseeing import constant_weights, noisy, random_walk

__all__ = [
    "constant_weights",
    "dwa",
    "gradnorm",
    "lbtw",
    "mldw",
    "noisy",
    "pcgrad",
    "random_walk",
    "slaw",
    "slw",
    "uncertainty",
]
