"""Runs seed blocks in this process, keeping compiled programs warm."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.result import Curves
from lobench.engine.gin_config import BoundCase, Layers, bind_case
from lobench.engine.provenance import provenance
from lobench.inner.adapters import as_learned_optimizer, as_stepper, as_task
from lobench.inner.backend import CompilationCounter, claim_backend, device_description
from lobench.inner.theta import match_theta
from lobench.inner.train import Program

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BlockRunner", "DeadlinePassed", "ThetaLeaves", "WrongThreads"]


class DeadlinePassed(LobenchError):
    """A seed block ran past `Case.timeout_seconds`."""


class WrongThreads(LobenchError):
    """This process's jax backend has another number of threads than the case asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaLeaves:
    """A checkpoint's leaves and how errors name it; `leaves` is None for `--optimizer`, which has no theta."""

    leaves: Mapping[str, np.ndarray] | None
    where: str


class BlockRunner:
    """Evaluates seed blocks of cases.

    Args:
      layers: gin text around the cases.
    """

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._bound: dict[tuple[CaseSpec, str], BoundCase] = {}
        self._programs: dict[tuple[str, str, int], Program] = {}
        self._compilations = CompilationCounter()

    def bind(self, spec: CaseSpec, test: str) -> BoundCase:
        """Returns the case with its task and optimizer, built once.

        Raises:
          ConfigError: see `bind_case`; or no optimizer is bound.
        """
        if (spec, test) not in self._bound:
            bound = bind_case(spec, self._layers, test=test)
            bound.require_optimizer()
            self._bound[spec, test] = bound
        return self._bound[spec, test]

    def run(
        self,
        spec: CaseSpec,
        test: str,
        theta: ThetaLeaves,
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Curves:
        """Trains one seed block.

        Raises:
          WrongThreads: evaluate in another process instead.
          DeadlinePassed: after `Case.timeout_seconds`, compilation included.
          ThetaMismatch, ConfigError: as their names say.
        """
        bound = self.bind(spec, test)
        case, where = bound.case, f"{spec.path}: case {spec.scope!r}"
        if not claim_backend(case.num_cpus):
            raise WrongThreads(
                f"this process's jax backend was made otherwise than for {case.num_cpus} thread(s)", where=where
            )
        deadline = time.monotonic() + case.timeout_seconds
        compiled_before = self._compilations.count
        key = (bound.identity, bound.optimizer_hash, block.size)
        if key not in self._programs:
            self._programs[key] = self._program(bound, block.size)
        program = self._programs[key]
        curves = program.run(
            self._theta(bound, theta),
            block,
            on_progress=on_progress,
            should_stop=lambda: time.monotonic() > deadline,
        )
        if curves is None:
            raise DeadlinePassed("ran past its deadline", where=where, got=f"more than {case.timeout_seconds:g} s")
        return dataclasses.replace(
            curves,
            num_compilations=self._compilations.count - compiled_before,
            provenance=provenance(bindings=bound.bindings, device=device_description(), folder=Path(spec.path).parent),
        )

    def _program(self, bound: BoundCase, num_seeds: int) -> Program:
        case = bound.case
        if case.optimizer is not None:
            stepper = as_stepper(case.optimizer, case.num_inner_steps)
            return Program(case, as_task(case.task), lambda theta: stepper, num_seeds)
        optimizer = as_learned_optimizer(case.learned_optimizer)
        return Program(
            case,
            as_task(case.task),
            lambda theta: as_stepper(optimizer.opt_fn(theta, case.num_inner_steps), case.num_inner_steps),
            num_seeds,
        )

    def _theta(self, bound: BoundCase, theta: ThetaLeaves) -> object:
        if bound.case.optimizer is not None:
            return {}
        if theta.leaves is None:
            raise ConfigError(
                "a learned optimizer needs a checkpoint",
                where=f"{bound.spec.path}: case {bound.spec.scope!r}",
                next_step="give --lobench-checkpoint",
            )
        return match_theta(theta.leaves, as_learned_optimizer(bound.case.learned_optimizer), where=theta.where)
