"""Planned searches of an experiment: strategies by name, and numbers of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lobench.core.errors import ConfigError
from lobench.core.experiment import Method, Search
from lobench.core.number_checks import is_integer
from lobench.core.search.search import SearchStrategy, Trial, num_trials_of, search_seed
from lobench.core.search.space import Space
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.config.space_syntax import search_identity
from lobench.engine.store.ledger import Ledger
from lobench.plugins import PluginManager

__all__ = ["KnownTrials", "PlannedSearch", "known_trials_of", "planned_searches", "strategy_of"]

_SEARCH_RESULTS: Mapping[str, Callable[[Any], bool]] = {
    "size": lambda found: found is None or is_integer(found, at_least=0),
    "next_wave": lambda found: isinstance(found, Sequence) and all(isinstance(one, Mapping) for one in found),
}
_SEED = 0  # searches have a stream of their own, whatever the sessions are


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSearch:
    """A method's search.

    Attributes:
      num_trials: Largest number of trials.
    """

    method: Method
    strategy: SearchStrategy
    space: Space
    num_trials: int

    @property
    def seed(self) -> int:
        return search_seed(_SEED, self.method.name)


def planned_searches(
    file: ExperimentFile, methods: Sequence[Method], manager: PluginManager
) -> dict[str, PlannedSearch]:
    """Returns the searches of methods by name.

    Raises:
      ConfigError: A search is unknown or does not accept its keywords or space, the number of trials differs from the
        grid's, or sessions use seeds that are reserved for the best trial.
    """
    searches = {}
    for method in methods:
        if method.search is None:
            continue
        where = f"{file.path}: method {method.name!r}"
        if (sessions := file.experiment.sessions) is not None and sessions.stop > FIRST_REPORT_SEED:
            raise ConfigError(
                "sessions are among the seeds that searches are reported on",
                where=where,
                got=f"{sessions.start} to {sessions.stop - 1}",
                expected=f"below {FIRST_REPORT_SEED}",
            )
        strategy = strategy_of(method.search, manager, where=where)
        space = Space(method.space)
        try:
            num_trials = num_trials_of(strategy, space, method.num_trials, where=where)
        except ConfigError as error:
            if error.where.startswith(where):
                raise
            # The error names the parameter that does not fit, but not its method.
            location = f"{where}, {error.where}"
            raise ConfigError(error.what, where=location, expected=error.expected, next_step=error.next_step) from None
        searches[method.name] = PlannedSearch(method=method, strategy=strategy, space=space, num_trials=num_trials)
    return searches


def strategy_of(search: Search, manager: PluginManager, *, where: str) -> SearchStrategy:
    """Creates the strategy that a file names, with the keywords that are bound.

    Raises:
      LobenchError: The search is unknown, or does not accept the keywords.
    """
    plugin_strategy = manager.find("lobench_search_strategies", search.name, kind="search", where=where)
    strategy: SearchStrategy = plugin_strategy.make_guarded(
        where=where, hook="lobench_search_strategies", results=_SEARCH_RESULTS, keywords=dict(search.keywords)
    )
    return strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrials:
    """Trials of a search in a ledger.

    Attributes:
      experiment_id: Id of the experiment's version with the trials. None: no trials are known.
      is_reported: Whether the best trial was evaluated on fresh seeds.
    """

    experiment_id: int | None = None
    trials: tuple[Trial, ...] = ()
    is_reported: bool = False


def known_trials_of(
    planned_search: PlannedSearch, file: ExperimentFile, ledger: Ledger | None, experiment_id: int | None = None
) -> KnownTrials:
    """Returns the trials of a search in a ledger.

    Args:
      planned_search: Search.
      file: Experiment file.
      ledger: Ledger; None before the first run.
      experiment_id: Id of the experiment's present version. Trials of an earlier version count if its search is the
        same. Trials that the present version only keeps from a search on fewer sessions do not count.
    """
    if ledger is None:
        return KnownTrials()
    name = planned_search.method.name
    wanted_identity = search_identity(file.text, name)
    rows = [row for row in ledger.experiments() if row.name == file.experiment.name]
    trials_by_version = {row.id: [trial for trial in ledger.trials(row.id) if trial.method == name] for row in rows}
    is_wanted = {config: search_identity(config, name) == wanted_identity for config in {row.config for row in rows}}
    trials_of_other_searches = [trials_by_version[row.id] for row in rows if not is_wanted[row.config]]
    for row in sorted(rows, key=lambda row: (row.id != experiment_id, -row.last_at)):
        trials = trials_by_version[row.id]
        if trials and is_wanted[row.config] and trials not in trials_of_other_searches:
            recorded_trials = [
                replace(trial, parameters=planned_search.space.active(trial.parameters)) for trial in trials
            ]
            own_members = (member for member in ledger.memberships(row.id) if member.method.partition("/")[0] == name)
            session_members = (member for member in own_members if isinstance(member.session, int))
            return KnownTrials(
                experiment_id=row.id,
                trials=tuple(recorded_trials[: planned_search.num_trials]),
                is_reported=any(int(member.session) >= FIRST_REPORT_SEED for member in session_members),
            )
    return KnownTrials()
