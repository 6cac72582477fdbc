"""Which methods of an experiment a subject is of, and how many evaluations each has."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.experiment import Method
from lobench.core.subject import Given, Subject
from lobench.engine.chief.commands import CommandRun
from lobench.engine.config.experiment_files import ExperimentFile

__all__ = ["Roster"]

_HASHED = 8


class Roster:
    """The methods of a run.

    Args:
      methods: Those that are run.
      given: Subjects of those that are optimizers and checkpoints, by name.

    Attributes:
      runs: The sessions of those that are commands.
    """

    def __init__(
        self, file: ExperimentFile, methods: Sequence[Method], given: Mapping[str, Given], store: Path
    ) -> None:
        self._methods, self._given = {method.name: method for method in methods}, given
        self.runs = [
            CommandRun(
                method=method,
                session=session,
                folder=_folder(store, method) / str(session),
                runs_in=file.path.parent,
                log=store.absolute() / "logs" / f"{method.name}-{session}",
            )
            for method in methods
            if method.kind == "command"
            for session in file.experiment.sessions or range(1)
        ]

    def of(self, subject: Subject) -> Iterator[tuple[Method, int]]:
        """Yields the methods that a subject is of, with the trial of each."""
        for name, given in self._given.items():
            is_it = subject.sha256 == given.sha256 if isinstance(given, Subject) else subject.uri == given.uri
            if is_it and subject.variant == given.variant:
                yield self._methods[name], 0
        for run in self.runs:
            if not subject.is_optimizer and Path(subject.uri).is_relative_to(run.folder):
                yield run.method, run.session

    def titles(self, subject: Subject) -> list[str]:
        """Returns what tables call the methods that a subject is of."""
        return [method.title for method, _ in self.of(subject)]

    def planned(self, cases: Sequence[CaseInfo]) -> dict[str, int]:
        """Returns how many evaluations each method has, by its title; 0 where nobody knows yet."""
        num_blocks = sum(len(case.blocks()) for case in cases)
        return {method.title: num_blocks * self._num_subjects(method) for method in self._methods.values()}

    def _num_subjects(self, method: Method) -> int:
        if method.kind != "command":
            return 1
        return sum(run.method == method for run in self.runs) if method.checkpoints == "last" else 0


def _folder(store: Path, method: Method) -> Path:
    """Returns the folder of a method's sessions: a changed method has another one."""
    digest = hashlib.sha256(method.subject.encode()).hexdigest()[:_HASHED]
    return store.absolute() / "commands" / f"{method.name}-{digest}"
