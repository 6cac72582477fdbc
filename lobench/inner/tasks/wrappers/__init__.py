"""Wrappers of tasks and families, as gin configurables: `Reparametrised.task = @DigitsMLP()`. They can be nested."""

from lobench.inner.tasks.wrappers.augmented import Augmented
from lobench.inner.tasks.wrappers.batches import BatchSize
from lobench.inner.tasks.wrappers.maximal_update import MaximalUpdate
from lobench.inner.tasks.wrappers.noise import GradientNoise, LabelNoise
from lobench.inner.tasks.wrappers.precision import Bfloat16
from lobench.inner.tasks.wrappers.reparametrised import Reparametrised

__all__ = ["Augmented", "BatchSize", "Bfloat16", "GradientNoise", "LabelNoise", "MaximalUpdate", "Reparametrised"]
