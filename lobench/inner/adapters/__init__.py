"""Adapters of foreign tasks and optimizers, which are recognised by their methods."""

from __future__ import annotations

from lobench.inner.adapters.objects import as_learned_optimizer, as_task, program_description
from lobench.inner.adapters.stepper import Stepper, as_stepper
from lobench.inner.adapters.transformation import as_transformation

__all__ = ["Stepper", "as_learned_optimizer", "as_stepper", "as_task", "as_transformation", "program_description"]
