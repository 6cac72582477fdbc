"""Batched evaluation of several checkpoints on one case in one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.errors import LobenchError
from lobench.core.result import Curves
from lobench.core.wording import headline
from lobench.engine.workers.protocol import Job
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.runner import BlockRunner

__all__ = ["JobRunner"]


class JobRunner:
    """Runner of jobs in groups. The first job of a group computes the others too, and keeps their curves.

    If a group fails, its jobs run alone, so that each has its own error. Only the curves of the last group are kept.
    """

    def __init__(self, runner: BlockRunner) -> None:
        self._runner = runner
        self._kept_curves: dict[tuple[CaseSpec, str, SeedBlock, str], Curves] = {}
        self._reasons_to_run_apart: dict[
            tuple[CaseSpec, str], str
        ] = {}  # cases that once could not run together, and why

    def run(
        self,
        spec: CaseSpec,
        test_name: str,
        job: Job,
        theta: ThetaLeaves,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Curves:
        """Trains the job's seed block, or returns the curves computed with an earlier job of its group.

        Raises:
          LobenchError: As in `BlockRunner.run`.
        """
        key = (spec, test_name, job.seed_block, job.theta_path)
        if key not in self._kept_curves and job.companions and (spec, test_name) not in self._reasons_to_run_apart:
            self._kept_curves = self._compute_group(spec, test_name, job, theta, on_progress)
        if key in self._kept_curves:
            return self._kept_curves[key]
        return self._with_reason(
            spec, test_name, self._runner.run(spec, test_name, theta, job.seed_block, on_progress=on_progress)
        )

    def add_reason_if_grouped(self, spec: CaseSpec, test_name: str, job: Job, curves: Curves, reason: str) -> Curves:
        """Returns curves from another process, with the reason if they were planned in a group."""
        if job.companions:
            self._reasons_to_run_apart.setdefault((spec, test_name), reason)
        return self._with_reason(spec, test_name, curves)

    def _with_reason(self, spec: CaseSpec, test_name: str, curves: Curves) -> Curves:
        if (spec, test_name) not in self._reasons_to_run_apart:
            return curves
        return dataclasses.replace(
            curves, provenance=curves.provenance.computed_alone(self._reasons_to_run_apart[spec, test_name])
        )

    def _compute_group(
        self, spec: CaseSpec, test_name: str, job: Job, theta: ThetaLeaves, on_progress: Callable[[int], None] | None
    ) -> dict[tuple[CaseSpec, str, SeedBlock, str], Curves]:
        """Returns the curves of the whole group by job; empty if they cannot be computed together."""
        theta_by_path = {job.theta_path: theta}
        if not self._runner.accepts_theta(spec, test_name, theta):
            return {}
        companions = {
            path: companion for uri, path in job.companions if (companion := _theta_or_none(uri, path)) is not None
        }
        compatible_companions = {
            path: companion for path, companion in companions.items() if companion.own_bindings == theta.own_bindings
        }
        if companions and not compatible_companions:
            return {}  # each companion has its own bindings, and therefore its own program
        theta_by_path |= {
            path: companion
            for path, companion in compatible_companions.items()
            if self._runner.accepts_theta(spec, test_name, companion)
        }
        num_thetas = 1 + len(job.companions)
        # Repeats this theta in place of companions that cannot take part, because a program with another number of
        # thetas would have to be compiled.
        thetas: Sequence[ThetaLeaves] = [*theta_by_path.values(), *[theta] * (num_thetas - len(theta_by_path))]
        seconds = self._runner.bind(spec, test_name).case.timeout_seconds * (num_thetas - 1)  # leaves the job its own
        try:
            curves = self._runner.run_many(
                spec, test_name, thetas, job.seed_block, on_progress=on_progress, timeout_seconds=seconds
            )
        except Exception as error:  # noqa: BLE001  (a job that causes it raises it again when it runs alone)
            self._reasons_to_run_apart[spec, test_name] = headline(error)
            return {}
        return {
            (spec, test_name, job.seed_block, path): curve for path, curve in zip(theta_by_path, curves, strict=False)
        }


def _theta_or_none(uri: str, path: str) -> ThetaLeaves | None:
    try:
        return ThetaLeaves.from_file(path, where=uri)
    except LobenchError:
        return None
