"""A and B of an ablation: two named subjects, or methods of an experiment's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lobench.api.compare import named_subjects, read_given
from lobench.api.components import plugins_of
from lobench.core.errors import UsageError
from lobench.core.experiment import Method
from lobench.core.subject import RequestedSubject, Subject
from lobench.engine.checkpoints.given import given_method
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.experiment.file import ExperimentFile, chosen_methods, read_experiment
from lobench.engine.config.shipped import find_suite

__all__ = ["Sides", "experiment_sides", "is_experiment", "named_sides"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """A and B, with the suites and the store of their evaluations.

    Attributes:
      names: Names of A and B.
      requested: A and B as requested subjects.
      stored_subject: A as a subject of the store.
      store: Folder of the store.
      suites: Suites to evaluate on.
      knob_groups: Paths of the settings of each knob. (): each setting that differs is a knob.
      gin_params: Bindings on top of those of the suites.
      import_folders: Folders to import modules from, besides those of the suites.
      first_seed: First seed of all cases. None: each case's own.
      max_seeds: Largest number of seeds per case. None: unspecified.
    """

    names: tuple[str, str]
    requested: tuple[RequestedSubject, RequestedSubject]
    stored_subject: Subject
    store: Path
    suites: tuple[str, ...]
    knob_groups: tuple[tuple[str, ...], ...] = ()
    gin_params: tuple[str, ...] = ()
    import_folders: tuple[str, ...] = ()
    first_seed: int | None = None
    max_seeds: int | None = None


def named_sides(
    a: str, b: str, suites: Sequence[str], store: Path | None, gin_params: Sequence[str], progress: WatchProgress
) -> Sides:
    """Returns the sides for two subjects given as texts, or as names in the store.

    Raises:
      LobenchError: No suite is given, or a subject is neither a checkpoint nor an optimizer, or cannot be read.
    """
    suite_paths = tuple(str(find_suite(suite)) for suite in suites)
    if not suite_paths:
        raise UsageError("an ablation needs a suite", next_step="--suite quick, say")
    folder = store or _default_store(Path(suite_paths[0]).resolve().stem)
    (given_a, read_subject), (given_b, _) = named_subjects([a, b], folder, suite_paths, progress)
    return Sides(
        names=(a, b),
        requested=(given_a, given_b),
        stored_subject=read_subject,
        store=folder,
        suites=suite_paths,
        gin_params=tuple(gin_params),
    )


def is_experiment(name: str | Path) -> bool:
    """Returns whether the first argument is the file of an experiment."""
    return Path(name).suffix == ".gin"


def experiment_sides(
    path: Path, methods: Sequence[str], store: Path | None, gin_params: Sequence[str], progress: WatchProgress
) -> Sides:
    """Returns the sides that an experiment lists: two of its methods, or one method without and with its knobs.

    Args:
      path: File of the experiment.
      methods: Names of the methods, A first. (): the one that has knobs, or both of two.
      store: Store of the evaluations. None: .lobench/ablate/EXPERIMENT.
      gin_params: Bindings on top of those of the file.
      progress: Receives progress events.
    Raises:
      LobenchError: The experiment is invalid, a method does not exist, or a method is neither optimizer nor checkpoint.
    """
    if not is_experiment(path):
        raise UsageError("B is missing", got=str(path), expected="A and B, or the file of an experiment")
    file = read_experiment(path, gin_params)
    first_method, second_method, groups = _methods_to_ablate(file, methods)
    given_a, given_b = (
        given_method(side_method, label=side_method.title) for side_method in (first_method, second_method)
    )
    experiment = file.experiment
    suites = tuple(experiment.suites)
    first_seed = None if experiment.num_sessions is None else experiment.first_session
    return Sides(
        names=(first_method.name, second_method.name),
        requested=(given_a, given_b),
        stored_subject=read_given(given_a, plugins_of(suites, progress)),
        store=store or _default_store(experiment.name),
        suites=suites,
        knob_groups=groups,
        gin_params=file.shared_lines,
        import_folders=file.import_folders,
        first_seed=first_seed,
        max_seeds=experiment.num_sessions,
    )


def _default_store(name: str) -> Path:
    return Path(".lobench") / "ablate" / name


def _methods_to_ablate(
    file: ExperimentFile, names: Sequence[str]
) -> tuple[Method, Method, tuple[tuple[str, ...], ...]]:
    """Returns A, B, and the paths of each knob if the method lists knobs."""
    chosen_methods(file.experiment, names)  # raises if one is unknown
    methods_of_file = file.experiment.methods
    methods = (
        [file.method(name) for name in names]
        or [method for method in methods_of_file if method.knobs]
        or list(methods_of_file)
    )
    has_two_methods = len(methods) == 2 and (bool(names) or not methods[0].knobs)
    if not has_two_methods and not (len(methods) == 1 and methods[0].knobs):
        raise UsageError(
            "an ablation is of two methods, or of one that has knobs",
            where=str(file.path),
            got=", ".join(method.name for method in methods),
            expected="--method A --method B, or a line such as `adam/Method.knobs = ['adam.b1 = 0.8']`",
        )
    for method in methods:
        if method.kind not in ("optimizer", "checkpoint") or method.search is not None:
            setting = "Method.search" if method.search is not None else f"Method.{method.kind}"
            raise UsageError(
                f"method {method.name!r} is not ablated",
                where=str(file.path),
                got=setting,
                expected="optimizers and checkpoints with all their settings",
            )
    if has_two_methods:
        return methods[0], methods[1], ()
    (method_with_knobs,) = methods
    knobs = [knob.split("; ") for knob in method_with_knobs.knobs]
    method_with_values = replace(
        method_with_knobs,
        name=f"{method_with_knobs.name} with its knobs",
        bindings=(*method_with_knobs.bindings, *(line for knob in knobs for line in knob)),
    )
    return (
        method_with_knobs,
        method_with_values,
        tuple(tuple(line.partition(" = ")[0] for line in knob) for knob in knobs),
    )
