"""What `pytest experiment.gin` adds to a store besides evaluations: the experiment, and which sessions they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lobench.core.case import SeedBlock
from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.core.subject import SubjectKey
from lobench.pytest_plugin.experiments import EXPERIMENT
from lobench.pytest_plugin.finished import Finished

if TYPE_CHECKING:
    from lobench.core.subject import Subject
    from lobench.engine.store.ledger import Ledger

__all__ = ["ExperimentSessions", "program_of"]


def program_of(finished: Finished) -> Program:
    """Returns what computed an evaluation; where it gave nothing, what would."""
    from lobench.engine.store.programs import program_here

    if finished.payload:
        return Program.of(Curves.from_payload(finished.payload).provenance)
    return program_here(num_gpus=finished.case.num_gpus)


class ExperimentSessions:
    """The recorder's part of an experiment: several items, one a session, belong to one evaluation."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._recorded: dict[tuple[SubjectKey, str, SeedBlock], bool] = {}
        self._form: int | None = None

    def subject(self, method: str) -> Subject:
        """Returns what a method is.

        Raises:
          CheckpointError: it cannot be read.
        """
        from lobench.pytest_plugin.options import method_subject

        return method_subject(self._config, method).subject

    def is_news(self, method: str, finished: Finished) -> bool:
        """Says whether an evaluation is to be recorded: not for every session of it, unless it now has curves."""
        key = (self.subject(method).key, finished.case.key, finished.seed_block)
        if self._recorded.get(key) or (key in self._recorded and not finished.payload):
            return False
        self._recorded[key] = bool(finished.payload)
        return True

    def add(self, ledger: Ledger, method: str, session: int, finished: Finished) -> None:
        """Makes a recorded evaluation a session of a method, in the experiment's form as `lobench run` records it."""
        from lobench.core.experiment import Member
        from lobench.core.planner import EvaluationId
        from lobench.engine.config.origin import revision_of
        from lobench.engine.store.provenance import versions_here

        file = self._config.stash[EXPERIMENT].file
        if self._form is None:
            revision = revision_of(file.path.parent)
            self._form = ledger.record_experiment(
                file.experiment.name, file.text, revision=revision, versions=versions_here()
            )
        evaluation = EvaluationId(self.subject(method).sha256, finished.case.key, finished.seed_block)
        member = Member(method=method, trial=0, session=session, evaluation=evaluation)
        ledger.add_memberships(self._form, [member], programs=[program_of(finished).key])
