"""Pytest items of `pytest experiment.gin`: one for each method, case and session, `quick/relu32[adam-3]`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lobench.core.case import CaseInfo, CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.experiment import Method
from lobench.core.subject import RequestedSubject
from lobench.engine.config.bound import integer_field_of
from lobench.engine.config.experiment.file import ExperimentFile, is_experiment, read_experiment
from lobench.engine.config.layers import Layers
from lobench.engine.config.syntax import parse_file

__all__ = [
    "EXPERIMENT",
    "ItemMember",
    "SelectedExperiment",
    "member_of",
    "members_of",
    "parametrize_members",
    "rename_item",
    "replace_experiment_argument",
    "select_named",
]

_ARGUMENT = "lobench_member"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemMember:
    """A method and a session (a seed), evaluated by one item."""

    method: Method
    session: int

    def __str__(self) -> str:
        return f"{self.method.name}-{self.session}"

    def block(self, info: CaseInfo) -> SeedBlock:
        """Returns the seed block that contains the session, and that is evaluated and recorded.

        Raises:
          ConfigError: The case has no such seed.
        """
        for block in info.blocks():
            if self.session in block.seeds:
                return block
        raise ConfigError(f"case {info.suite}/{info.name} has no seed {self.session}", got=f"blocks {info.blocks()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedExperiment:
    """Experiment selected by the arguments of pytest.

    Attributes:
      argument: Argument that named the experiment.
      given: Subjects of the methods that are not commands, by name.
      gin_params: gin lines bound over the cases, including the sessions' seed blocks.
      names: Items named after `::`. Empty: all items.
    """

    argument: str
    file: ExperimentFile
    given: Mapping[str, RequestedSubject]
    gin_params: tuple[str, ...]
    names: tuple[str, ...]


EXPERIMENT: pytest.StashKey[SelectedExperiment] = pytest.StashKey()
_USED_NAMES: pytest.StashKey[set[str]] = pytest.StashKey()


def replace_experiment_argument(config: pytest.Config, gin_params: Sequence[str], store: str) -> None:
    """Replaces the file of an experiment in the session's arguments by the experiment's suites.

    Args:
      config: Configuration of the session.
      store: Folder of the store. "": that of the experiment, below the root.
    Raises:
      UsageError: The experiment is wrong, or more than one is named.
    """
    args: list[str] = []
    names_by_path: dict[str, list[str]] = {}
    for arg in config.args:
        path, _, name = str(arg).partition("::")
        if not _is_experiment(Path(path)):
            args.append(arg)
            continue
        names_by_path.setdefault(path, []).append(name)
    if not names_by_path:
        return
    if len(names_by_path) > 1:
        raise pytest.UsageError(
            f"{' and '.join(names_by_path)}: a session runs one experiment; run pytest once for each"
        )
    ((path, names),) = names_by_path.items()
    for name in ("checkpoint", "optimizer", "against"):
        if config.getoption(f"lobench_{name}"):
            raise pytest.UsageError(f"{path}: an experiment's methods are its subjects; leave --lobench-{name} out")
    try:
        selected_experiment = _select_members(config, path, names, gin_params, store)
    except LobenchError as error:
        raise pytest.UsageError(str(error)) from None
    if not selected_experiment.file.experiment.suites:
        raise pytest.UsageError(f"{path}: it has only scripts and no case; `lobench run {shlex.quote(path)}` runs them")
    config.stash[EXPERIMENT] = selected_experiment
    config.args[:] = [*args, *dict.fromkeys(selected_experiment.file.experiment.suites)]


def _select_members(
    config: pytest.Config, path: str, names: Sequence[str], gin_params: Sequence[str], store: str
) -> SelectedExperiment:
    from lobench.engine.checkpoints.given import given_methods
    from lobench.experiments.blocks import blocks_of

    file = read_experiment(Path(path), gin_params)
    folder = Path(store) if store else config.rootpath / ".lobench" / file.experiment.name
    blocks = blocks_of(file.experiment, folder)
    return SelectedExperiment(
        argument=path,
        file=file,
        given=given_methods(file.experiment.methods),
        gin_params=(*file.shared_lines, *(blocks.bindings if blocks else ())),
        names=() if "" in names else tuple(names),
    )


def _is_experiment(path: Path) -> bool:
    if path.suffix != ".gin" or not path.is_file():
        return False
    try:
        return is_experiment(parse_file(path))
    except ConfigError:
        return False  # collected as a suite, it reports the error


def members_of(config: pytest.Config, path: Path, spec: CaseSpec) -> list[ItemMember]:
    """Returns the members evaluated on a case of a file; [] if no experiment was selected."""
    selected_experiment = config.stash.get(EXPERIMENT, None)
    if selected_experiment is None or not any(
        path.is_relative_to(suite) for suite in selected_experiment.file.experiment.suites
    ):
        return []
    experiment = selected_experiment.file.experiment
    sessions = experiment.sessions
    if sessions is None:
        layers = Layers(gin_params=selected_experiment.file.shared_lines)
        first_seed = integer_field_of("first_seed", spec, layers) or 0
        sessions = range(first_seed, first_seed + (integer_field_of("num_seeds", spec, layers) or 0))
    methods = [method for method in experiment.methods if method.kind != "curves"]  # `lobench run` takes them over
    return [ItemMember(method=method, session=session) for method in methods for session in sessions]


def parametrize_members(metafunc: pytest.Metafunc) -> None:
    """Parametrizes a test of cases, so that it runs once for each member of the experiment."""
    specs = [
        value
        for pytest_mark in metafunc.definition.iter_markers("parametrize")
        for value in _parameter_values(pytest_mark.args[1:2])
    ]
    spec = next((value for value in specs if isinstance(value, CaseSpec)), None)
    if spec is None:
        return
    members = members_of(metafunc.config, metafunc.definition.path, spec)
    if members:
        metafunc.fixturenames.append(_ARGUMENT)
        metafunc.parametrize(_ARGUMENT, members, ids=list(map(str, members)))


def _parameter_values(arguments: Iterable[Any]) -> list[Any]:
    """Returns the values of a parametrize mark, without `pytest.param`."""
    parameter_values: list[Any] = []
    for values in arguments:
        for value in values if isinstance(values, list | tuple) else ():
            plain_value = getattr(value, "values", value)
            parameter_values += plain_value if isinstance(plain_value, list | tuple) else [plain_value]
    return parameter_values


def member_of(item: pytest.Item) -> ItemMember | None:
    """Returns the member that an item of an experiment evaluates, or None."""
    member: ItemMember | None = getattr(item, "member", None)
    if member is None and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        params: dict[str, Any] = item.callspec.params
        member = params.get(_ARGUMENT)
    return member


def rename_item(item: pytest.Item, spec: CaseSpec | None) -> None:
    """Gives an item of an experiment its id. Skips items of commands and searches, which `lobench run` runs."""
    member = member_of(item)
    selected_experiment = item.config.stash.get(EXPERIMENT, None)
    if member is None or selected_experiment is None or spec is None:
        return
    used_names = item.config.stash.setdefault(_USED_NAMES, set())
    name = f"{spec.suite}/{spec.name}[{member}]"
    if name in used_names:  # the case has a second test
        name = f"{spec.suite}/{spec.name}.{getattr(item, 'originalname', item.name)}[{member}]"
    used_names.add(name)
    item.name = name
    if member.method.command or member.method.search is not None:
        reason_text = "has a search" if member.method.search is not None else "is trained by a command"
        reason = (
            f"{member.method.name} {reason_text}: `lobench run {shlex.quote(selected_experiment.argument)}` runs it"
        )
        item.add_marker(pytest.mark.skip(reason=reason))
    renamed_item: Any = item
    node_id = f"{selected_experiment.argument}::{item.name}"
    if hasattr(renamed_item, "_id"):  # pytest has no public way to set it, and renamed it in 9.2
        renamed_item._id = type(renamed_item._id).parse(node_id)
    else:
        renamed_item._nodeid = node_id


def select_named(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps only the items named as in `experiment.gin::quick/relu32[adam-3]`.

    Raises:
      UsageError: A name matches no item.
    """
    selected_experiment = config.stash.get(EXPERIMENT, None)
    if selected_experiment is None or not selected_experiment.names:
        return
    member_names = {item.name for item in items if member_of(item) is not None}
    for name in selected_experiment.names:
        if name not in member_names:
            raise pytest.UsageError(f"not found: {selected_experiment.argument}::{name} (--collect-only shows all)")
    remaining_items = [item for item in items if member_of(item) is None or item.name in selected_experiment.names]
    config.hook.pytest_deselected(items=[item for item in items if item not in remaining_items])
    items[:] = remaining_items
