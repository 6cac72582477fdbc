"""Arrivals of an experiment: checkpoints of its commands, and trials of its searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lobench.core.case import CaseInfo
from lobench.core.subject import Given, Subject
from lobench.engine.chief.commands import CommandRuns
from lobench.experiments.file import ExperimentFile
from lobench.experiments.imported_curves import ExperimentCurves
from lobench.experiments.search.median_stopping import StoppingSearch
from lobench.experiments.search.of_commands import CommandSearch
from lobench.experiments.search.planned import PlannedSearch, known_of
from lobench.experiments.search.running import Place, SearchRun, SubjectSearch

__all__ = ["Trials", "search_runs"]

_EVENT = "search"  # how wide the waves of a method's search are, said once


class Trials(CommandRuns):
    """The commands of a run, and its searches beside them.

    Attributes:
      searches: Set once they are made; a search of a command adds trials to the commands.
      curves: Of methods that were trained elsewhere; they are held against the cases before anything is trained.
    """

    searches: Sequence[SearchRun] = ()
    curves: ExperimentCurves | None = None

    @property
    def is_open(self) -> bool:
        return super().is_open or any(one.is_open for one in self.searches)

    @property
    def has_news(self) -> bool:
        return super().has_news or any(one.has_news for one in self.searches)

    def given(self) -> list[Given]:
        # The searches first: what commands gave at the last call was taken since.
        return [*(given for one in self.searches for given in one.given()), *super().given()]

    def taken(self, given: Given, subject: Subject | None) -> None:
        for one in self.searches:
            one.taken(given, subject)

    def know_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        if self.curves is not None:
            self.curves.check(cases)
        for one in self.searches:
            one.know_cases(variant, cases)

    def finished(self, subject: Subject) -> None:
        for one in self.searches:
            one.finished(subject)


def search_runs(
    searches: Iterable[PlannedSearch],
    file: ExperimentFile,
    place: Place,
    num_slots: int,
    make_commands: Callable[..., CommandSearch],
) -> list[SearchRun]:
    """Returns the searches as the ledger has them.

    Args:
      num_slots: Trials of a wave, where neither the file nor the ledger says it.
      make_commands: Makes the search of a command.
    """
    runs: list[SearchRun] = []
    for planned in searches:
        known = known_of(planned, file, place.ledger, place.form)
        make_own = SubjectSearch if planned.method.median_stopping is None else StoppingSearch
        make = make_commands if planned.method.kind == "command" else make_own
        runs.append(make(planned, place, known, width=_width(planned, place, num_slots)))
    return runs


def _width(planned: PlannedSearch, place: Place, num_slots: int) -> int:
    """Returns how many trials a wave has: it must not hang on the machine that a restart happens on."""
    if planned.method.wave is not None:
        return planned.method.wave
    which: Mapping[str, object] = {"experiment": place.experiment.name, "method": planned.method.name}
    for _, detail in place.ledger.events(_EVENT):
        if which.items() <= detail.items():
            return int(detail["wave"])
    place.ledger.record_event(_EVENT, **which, wave=num_slots)
    return num_slots
