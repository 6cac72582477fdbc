"""The `--lobench-*` options and their meaning for a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lobench.core.case import CaseSpec
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError, UsageError
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject
from lobench.core.wording import shortened_list
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.checkpoints.whole_files import opaque_checkpoint
from lobench.engine.config.bound import binds_optimizer
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import takes_any_checkpoint
from lobench.evaluation.request import ThetaLeaves
from lobench.experiments.pytest_items import EXPERIMENT, member_of
from lobench.plugins import PluginManager, Registered, load_plugins
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import LAYERS

__all__ = [
    "FLAGS_WITH_VALUE",
    "PLUGIN_MANAGER",
    "LoadedSubject",
    "add_options",
    "cases_without_subject",
    "evaluates_opaque_files",
    "gin_params_of",
    "layers_of",
    "loaded_subject",
    "metrics_of",
    "option",
    "plugin_manager_of",
    "read_checkpoint",
    "refuse_no_subject",
    "register_conftests",
    "resolve_names",
    "subject_of",
]

PLUGIN_MANAGER: pytest.StashKey[PluginManager] = pytest.StashKey()
_METRICS: pytest.StashKey[dict[str, Registered]] = pytest.StashKey()
_SUBJECT_ADVICE = "give --lobench-checkpoint PATH or --lobench-optimizer 'adam()'"
_MAX_SHOWN = 3  # most names of cases in a line
_WHOLE_FILES: pytest.StashKey[bool] = pytest.StashKey()
_SUBJECTS: pytest.StashKey[dict[str, LoadedSubject]] = pytest.StashKey()  # by method; "": the session's own


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSubject:
    """The subject that the session evaluates, with its theta."""

    subject: Subject
    theta: ThetaLeaves


_SINGLE_OPTIONS = {
    "checkpoint": "Checkpoint to evaluate: a file, a step directory, or a name: STORE@NAME, NAME in --lobench-store.",
    "optimizer": "Optimizer to evaluate instead: `adam(); adam.learning_rate = 1e-3`, a .gin file, or a name likewise.",
    "store": "Folder of the result store (default: .lobench/SUITE below the root, once there is a checkpoint).",
    "against": "Gate: be no worse than a checkpoint, `adam()`, a store, STORE@NAME, baselines.json, `baseline[:OPT]`.",
    "margin": "Gate: harm that is tolerated, on the score (default: 0.05 on a log scale, 0.02 on a linear one).",
    "alpha": "Gate: chance of a false alarm (default: 0.05).",
    "max-diverged": "Gate: PASS rules out a larger share of diverged seeds, as 0.1 (default: its bound is printed).",
    "adaptive-seeds": "Gate: add seed blocks to undecided cases, up to so many seeds a case.",
}
_REPEATABLE_OPTIONS = {
    "gin-file": "gin file bound over the suite's own.",
    "gin-param": "gin binding over everything else.",
}
_GATE_NUMBERS = ("margin", "alpha", "max-diverged")
FLAGS_WITH_VALUE = tuple(f"--lobench-{name}" for name in (*_SINGLE_OPTIONS, *_REPEATABLE_OPTIONS))


def add_options(parser: pytest.Parser) -> None:
    """Adds the options, each with an ini equivalent of the same name."""
    group = parser.getgroup("lobench", "learned optimizers")
    for name, text in _SINGLE_OPTIONS.items():
        group.addoption(f"--lobench-{name}", default=None, help=text)
        parser.addini(f"lobench_{name.replace('-', '_')}", text, default="")
    for name, text in _REPEATABLE_OPTIONS.items():
        group.addoption(f"--lobench-{name}", action="append", default=[], help=text + " May be given again.")
        parser.addini(f"lobench_{name.replace('-', '_')}", text, type="linelist", default=[])
    group.addoption("--lobench-allow-pickle", action="store_true", help="Load pickled checkpoints, which can run code.")
    group.addoption("--lobench-reuse", action="store_true", help="Reuse stored results instead of training again.")
    keep_results_help = "With --lobench-reuse: take results that were made by other code too, as after a refactoring."
    group.addoption("--lobench-keep-results", action="store_true", help=keep_results_help)
    no_executables_help = "Trace and lower every program, instead of using executables that are kept in the store."
    group.addoption("--lobench-no-executables", action="store_true", help=no_executables_help)
    parser.addini("lobench_no_executables", no_executables_help, type="bool", default=False)
    seed_means_help = (
        "Gate: take all cases as one group, of which a seed has one value, as `lobench compare --seed-means`."
    )
    group.addoption("--lobench-seed-means", action="store_true", help=seed_means_help)
    parser.addini("lobench_seed_means", seed_means_help, type="bool", default=False)
    strict_help = "Gate: INCONCLUSIVE fails."
    group.addoption("--lobench-strict", action="store_true", help=strict_help)
    parser.addini("lobench_strict", strict_help, type="bool", default=False)


def refuse_repetition(config: pytest.Config) -> None:
    """Refuses repeated options, because a session evaluates one subject and pytest would ignore the first value.

    Raises:
      UsageError: The command line names two checkpoints, or two optimizers.
    """
    for name in ("checkpoint", "optimizer"):
        flag = f"--lobench-{name}"
        repeated_args = [arg for arg in map(str, config.invocation_params.args) if arg.partition("=")[0] == flag]
        if len(repeated_args) > 1:
            raise pytest.UsageError(
                f"{flag} is given {len(repeated_args)} times; a session evaluates one {name}: run pytest once for "
                "each, or compare them with `lobench compare`"
            )


def refuse_gate_options(config: pytest.Config) -> None:
    """Refuses options of a gate without a gate, because they would have no effect.

    Raises:
      UsageError: `--lobench-margin`, for example, is given without `--lobench-against`.
    """
    flags = [f"--lobench-{name}" for name in _GATE_NUMBERS if config.getoption(f"lobench_{name.replace('-', '_')}")]
    if flags and not option(config, "against"):
        raise pytest.UsageError(
            f"{flags[0]} belongs to a gate, and there is none; add --lobench-against REFERENCE, for example "
            "--lobench-against baseline"
        )


def resolve_names(config: pytest.Config) -> None:
    """Replaces names in a store by paths and gin text: `STORE@NAME`, or NAME in `--lobench-store`.

    Raises:
      UsageError: A name is unknown or ambiguous.
    """
    store = option(config, "store")
    for kind in ("checkpoint", "optimizer"):
        text = option(config, kind)
        if not text or not (store or "@" in text[1:]):
            continue
        from lobench.api.resolve import find_training_setup

        try:
            trained_subject = find_training_setup(text, kind, Path(store) if store else None)
        except LobenchError as error:
            raise pytest.UsageError(f"--lobench-{kind}: {error}") from None
        setattr(config.option, f"lobench_{kind}", trained_subject.checkpoint or trained_subject.optimizer)
        config.option.lobench_gin_param = [*trained_subject.gin_params, *config.option.lobench_gin_param]


def refuse_no_subject(config: pytest.Config) -> None:
    """Refuses options with which no case can be evaluated, because an error in each test would look like a verdict.

    Raises:
      UsageError: Both a checkpoint and an optimizer are given, or the checkpoint does not exist.
    """
    path = option(config, "checkpoint")
    optimizer = option(config, "optimizer")
    if path and optimizer:
        raise pytest.UsageError("--lobench-checkpoint and --lobench-optimizer exclude each other; give one")
    if path and "://" not in path and not Path(path).exists():
        raise pytest.UsageError(f"--lobench-checkpoint: no checkpoint found; got {path}")


def cases_without_subject(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """Returns an error message if a session of cases has no checkpoint or optimizer but needs one; otherwise "".

    Cases with a fixed optimizer need none. In a session with ordinary tests each such case fails on its own, so that
    the ordinary tests run.
    """
    if LAYERS in config.stash or option(config, "checkpoint") or option(config, "optimizer"):
        return ""
    specs = [_evaluated_case(item) for item in items]
    if not items or None in specs:
        return ""
    layers = layers_of(config)
    cases = [f"{spec.suite}/{spec.name}" for spec in specs if spec is not None and not binds_optimizer(spec, layers)]
    names = list(dict.fromkeys(cases))
    if not names:
        return ""
    return f"nothing to evaluate {shortened_list(names, _MAX_SHOWN)} with; {_SUBJECT_ADVICE}"


def cases_that_are_forked(config: pytest.Config, items: Sequence[pytest.Item]) -> str:
    """Returns an error message if cases would run in processes forked by pytest-forked, which is impossible; else "".

    jax's threads do not survive in a forked process, and pytest-forked hides errors there.
    """
    is_forked = bool(config.getoption("forked", False))
    has_plugin = is_forked or config.pluginmanager.hasplugin("pytest_forked")
    cases = [case_of(item) for item in items if is_forked or (has_plugin and item.get_closest_marker("forked"))]
    names = sorted({f"{case.suite}/{case.name}" for case in cases if case is not None})
    if not names:
        return ""
    advice = "run without --forked and its marker; `pytest -n 2` gives tests other processes"
    return f"a forked process cannot use jax, so it cannot evaluate {shortened_list(names, _MAX_SHOWN)}; {advice}"


def _evaluated_case(item: pytest.Item) -> CaseSpec | None:
    """Returns the case that an item evaluates with the session's subject; None for other tests."""
    fixtures: Sequence[str] = getattr(item, "fixturenames", ("evaluate",))
    is_evaluation = member_of(item) is None and "evaluate" in fixtures and item.get_closest_marker("skip") is None
    return case_of(item) if is_evaluation else None


def option(config: pytest.Config, name: str) -> str:
    """Returns the value of an option, or of the ini file; "" if neither is set."""
    return str(config.getoption(f"lobench_{name}") or config.getini(f"lobench_{name}") or "")


def _repeatable_option(config: pytest.Config, name: str) -> tuple[str, ...]:
    return (*config.getini(f"lobench_{name}"), *config.getoption(f"lobench_{name}"))


def gin_params_of(config: pytest.Config) -> tuple[str, ...]:
    return _repeatable_option(config, "gin_param")


def plugin_manager_of(config: pytest.Config) -> PluginManager:
    if PLUGIN_MANAGER not in config.stash:
        config.stash[PLUGIN_MANAGER] = load_plugins()
    return config.stash[PLUGIN_MANAGER]


def metrics_of(config: pytest.Config) -> dict[str, Registered]:
    """Returns the metrics that plugins and the session's conftest files declare."""
    if _METRICS not in config.stash:
        manager = plugin_manager_of(config)
        register_conftests(config, manager)
        config.stash[_METRICS] = manager.usable_declarations("lobench_metrics")
    return config.stash[_METRICS]


def register_conftests(config: pytest.Config, manager: PluginManager) -> None:
    for plugin in config.pluginmanager.get_plugins():
        if getattr(plugin, "__file__", None) and Path(plugin.__file__).name == "conftest.py":
            manager.register_conftest(plugin)


def layers_of(config: pytest.Config) -> Layers:
    """Returns the gin text bound before and after a case's own file. A worker of a watch gets it from the chief."""
    if LAYERS not in config.stash:
        selected_experiment = config.stash.get(EXPERIMENT, None)
        layers = gin_layers_at(
            option(config, "checkpoint") if selected_experiment is None else "",
            plugin_manager_of(config),
            optimizer=option(config, "optimizer") if selected_experiment is None else "",
            gin_files=_repeatable_option(config, "gin_file"),
            gin_params=gin_params_of(config) if selected_experiment is None else selected_experiment.gin_params,
        )
        import_folders = () if selected_experiment is None else selected_experiment.file.import_folders
        config.stash[LAYERS] = replace(layers, import_folders=import_folders)
    return config.stash[LAYERS]


def loaded_subject(item: pytest.Item) -> LoadedSubject:
    """Reads the subject that an item evaluates, once per process; see `subject_of`.

    Raises:
      UsageError: Neither a checkpoint nor an optimizer was given, and its case has no fixed optimizer.
    """
    member = member_of(item)
    config = item.config
    spec = case_of(item)
    has_subject = member is not None or option(config, "checkpoint") or option(config, "optimizer")
    if not has_subject and spec is not None and not binds_optimizer(spec, layers_of(config)):
        raise UsageError("nothing to evaluate", next_step=_SUBJECT_ADVICE)
    return subject_of(config, "" if member is None else member.method.name)


def subject_of(config: pytest.Config, method: str = "") -> LoadedSubject:
    """Returns the session's subject, or the subject of a method of its experiment. It is read once per process.

    Raises:
      CheckpointError: The checkpoint cannot be read.
    """
    subjects = config.stash.setdefault(_SUBJECTS, {})
    if method not in subjects:
        subject = config.stash[EXPERIMENT].given[method] if method else _requested_subject(config)
        theta = ThetaLeaves(leaves=None, where=subject.uri)
        if isinstance(subject, GivenCheckpoint) and not method and evaluates_opaque_files(config):
            subject = subject.to_subject(opaque_checkpoint(subject.uri))
        elif isinstance(subject, GivenCheckpoint):
            checkpoint, theta = read_checkpoint(config, subject.uri)
            subject = subject.to_subject(checkpoint)
        subjects[method] = LoadedSubject(subject=subject, theta=theta)
    return subjects[method]


def evaluates_opaque_files(config: pytest.Config) -> bool:
    """Returns whether the session's cases are commands or ordinary tests, which take a checkpoint in any format."""
    if _WHOLE_FILES not in config.stash:  # each test asks, and all files of the suites are parsed
        paths = [config.invocation_params.dir / str(arg).partition("::")[0] for arg in config.args]
        config.stash[_WHOLE_FILES] = takes_any_checkpoint(*paths)
    return config.stash[_WHOLE_FILES]


def _requested_subject(config: pytest.Config) -> RequestedSubject:
    path = option(config, "checkpoint")
    optimizer = option(config, "optimizer")
    if optimizer:
        return Subject.of_optimizer(optimizer)
    return GivenCheckpoint(uri=path) if path else Subject.of_own_optimizers()


def read_checkpoint(config: pytest.Config, path: str) -> tuple[Checkpoint, ThetaLeaves]:
    """Reads a checkpoint with the readers and options of the session.

    Raises:
      CheckpointError: The checkpoint cannot be read.
    """
    return ThetaLeaves.read_checkpoint(
        path, plugin_manager_of(config), allow_pickle=bool(config.getoption("lobench_allow_pickle"))
    )
