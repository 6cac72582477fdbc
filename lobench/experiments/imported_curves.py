"""Methods with imported curves.

The curves are read at the start of an experiment and become members of it at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lobench.api.settings import ImportSettings
from lobench.core.case import CaseInfo
from lobench.core.errors import ConfigError, LobenchError, UsageError
from lobench.core.experiment import Method, SessionMember
from lobench.core.planner import EvaluationId
from lobench.core.program import IMPORTED
from lobench.core.result import EvaluationKey
from lobench.core.subject import Subject
from lobench.engine.store.imports import digests_of_imported
from lobench.engine.store.ledger import Ledger

if TYPE_CHECKING:  # slow to import, and only needed for imported curves
    from lobench.tools.curve_import.collected_curves import CollectedCurves

__all__ = ["ExperimentCurves", "read_curves"]

_UNTIL_OPTION = "Method.until_step"


@contextlib.contextmanager
def read_curves(methods: Iterable[Method]) -> Iterator[ExperimentCurves]:
    """Reads the curve files of methods. The curves are on disk until the end of the body.

    Args:
      methods: Methods of an experiment that have curves.
    Raises:
      LobenchError: A file cannot be read, or has several methods without a choice of one.
    """
    curves_of_methods: list[tuple[Method, ImportSettings, CollectedCurves, str]] = []
    with contextlib.ExitStack() as stack:
        for method in methods:
            pattern, _, name = method.curves.partition("#")
            until_step = (str(method.until_step),) if method.until_step is not None else ()
            settings = ImportSettings(
                method="" if method.method_from or method.pattern else method.name,
                metrics=tuple(method.metrics),
                pattern=method.pattern,
                case_from=method.case_from,
                method_from=method.method_from,
                seed_from=tuple([method.seed_from] if isinstance(method.seed_from, str) else method.seed_from),
                paired_seeds=method.paired_seeds,
                last_counts=method.last_counts,
                until_step=until_step,
            )
            try:
                from lobench.tools.curve_import.collected_curves import CollectedCurves, find_curve_files

                notes: list[str] = []
                sources = find_curve_files([pattern], "", notes)
                collected_curves = stack.enter_context(CollectedCurves(sources, settings, notes))
            except LobenchError as error:
                raise UsageError(f"method {method.name!r}: {error}") from error
            curves_of_methods.append(
                (method, settings, collected_curves, _name_in_files(method, name, collected_curves))
            )
        yield ExperimentCurves(curves_of_methods)


class ExperimentCurves:
    """Curves that were read, each with its method, import settings, and the method's name in the files."""

    def __init__(self, curves_of_methods: Sequence[tuple[Method, ImportSettings, CollectedCurves, str]]) -> None:
        self._curves_of_methods = curves_of_methods

    def check(self, cases: Sequence[CaseInfo]) -> None:
        """Checks that the curves fit the cases of the experiment, before anything is trained.

        Raises:
          UsageError: A method's curves do not fit.
        """
        for method, settings, collected_curves, name in self._curves_of_methods:
            from lobench.tools.curve_import.imports import check_comparable

            try:
                check_comparable(collected_curves, settings, method=name, own_cases=cases, until_option=_UNTIL_OPTION)
            except UsageError as error:
                raise UsageError(f"method {method.name!r}: {error}") from error

    def record(self, ledger: Ledger, experiment_id: int, cases: Sequence[CaseInfo], log: Callable[[str], None]) -> None:
        """Records the curves in a store, in place of earlier ones from the same files, as part of the experiment.

        Args:
          ledger: Ledger of the store.
          experiment_id: Id of the experiment's version.
          cases: Cases that lobench trains.
          log: Receives notes for people.
        """
        from lobench.tools.curve_import.imports import import_into

        with ledger.transaction():
            for method, settings, collected_curves, name in self._curves_of_methods:
                # Another method of the file may have been read after its last change, and this one not.
                stored_digests = digests_of_imported(ledger, Subject.of_imported(method.name))
                has_changed = any(
                    file == str(source.path) and sha256 != source.sha256
                    for source in collected_curves.sources
                    for file, sha256 in stored_digests
                )
                settings = replace(settings, replace=has_changed)
                import_counts, evaluations = import_into(
                    ledger,
                    collected_curves,
                    settings,
                    own_cases=cases,
                    names={name: method.name},
                    until_option=_UNTIL_OPTION,
                )
                if method.title != method.name:  # so that every output has the name of the tables
                    subject = Subject.of_imported(method.name)
                    ledger.record_sighting(replace(subject, label=f"{method.title} (imported)"))
                members = _members(method, evaluations, {case.identity for case in cases})
                ledger.add_memberships(experiment_id, members, programs=[IMPORTED.key])
                other_cases = sorted({case.name for _, case in evaluations} - {case.name for case in cases})
                notes = (
                    [f"its curves on {', '.join(other_cases)} are of no case of the experiment"]
                    if other_cases and cases
                    else []
                )
                for note in (*import_counts.notes, *notes):
                    log(f"{method.name}: {note}")


def _name_in_files(method: Method, name: str, collected_curves: CollectedCurves) -> str:
    """Returns the name in the files of an experiment's method: `name`, or the only one.

    Raises:
      ConfigError: The files lack the name, or have several methods and no name is given.
    """
    method_names = list(dict.fromkeys(run.method for run in collected_curves.points_by_run.runs))
    if name in method_names or (not name and len(method_names) == 1):
        return name or method_names[0]
    raise ConfigError(
        f"method {method.name!r}: {'no such method' if name else 'several methods'} in its curves",
        where=method.curves,
        got=", ".join(map(repr, method_names)),
        next_step=f"Method.curves = 'FILE#{method_names[0]}' names one",
    )


def _members(
    method: Method, evaluations: Sequence[tuple[EvaluationKey, CaseInfo]], own_identities: Collection[str]
) -> list[SessionMember]:
    return [
        SessionMember(
            method=method.name,
            trial=0,
            session=key.seed_block.start,
            evaluation=EvaluationId(key.checkpoint_sha256, case.key, key.seed_block),
        )
        for key, case in evaluations
        if case.identity in own_identities
    ]
