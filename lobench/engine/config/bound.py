"""Bound case: layers of gin text as a `Case` with identifying hashes. gin's own state is restored."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import gin

from lobench.core.case import (
    COMMAND,
    HEADLINES,
    ITEMS,
    OPTIMIZER_FIELDS,
    TEST,
    Case,
    CaseInfo,
    CaseSpec,
    Expectations,
    Suite,
)
from lobench.core.checkpoint import CheckpointPart
from lobench.core.code import CodeFingerprint
from lobench.core.errors import ConfigError, suggestion, with_parts
from lobench.core.experiment import Experiment, Method
from lobench.core.metric import directions_by_metric
from lobench.core.number_checks import is_integer
from lobench.engine.config.arguments import OptimizerSettings, settings_of, settings_of_phases
from lobench.engine.config.binding import UnknownName, bind_all, bind_overrides, import_modules, import_plugin_modules
from lobench.engine.config.case_checks import check_case, role_of
from lobench.engine.config.case_code import modules_imported_for_effects, reachable_modules, reachable_texts
from lobench.engine.config.command_case import (
    NON_COMMAND_FIELDS,
    check_command,
    check_task,
    is_command,
    layers_of_command,
    macros_of,
    placeholders_in,
    reads_checkpoint,
)
from lobench.engine.config.command_files import CommandFiles
from lobench.engine.config.gin_state import (
    BINDINGS,
    bindings_in,
    bindings_reached_from,
    enclosing_scopes,
    isolated_gin,
    task_lines,
)
from lobench.engine.config.import_path import prepare_import_path
from lobench.engine.config.layers import Layers
from lobench.engine.config.parsed_layers import ParsedLayers, parse_layers
from lobench.engine.config.phases import (
    BoundPhase,
    bind_phases,
    construction_errors,
    optimizer_lines,
    optimizer_lines_of_phases,
    plain_value,
    prefix_hashes,
    with_phases,
    without_optimizers,
)
from lobench.engine.config.syntax import Binding, Import, Reference, Statement, only_bindings, references_in
from lobench.engine.config.trainer import bind_checkpoint_values, bind_known, bind_trainer_config, import_installed
from lobench.engine.config.user_code import code_fingerprint

__all__ = [
    "BoundCase",
    "BoundCommand",
    "bind_case",
    "bind_learned_optimizer",
    "bind_test",
    "binds_optimizer",
    "expectations_of",
    "integer_field_of",
    "num_gpus_of",
    "reduced_to_identity",
]

_CASE = gin.external_configurable(Case, name="Case", module="lobench")
# A file of cases may also define an experiment, so `Method` and `Experiment` must be bindable. They are not read here.
_METHOD = gin.external_configurable(Method, name="Method", module="lobench")
_EXPERIMENT = gin.external_configurable(Experiment, name="Experiment", module="lobench")
_EXPECT = gin.external_configurable(Expectations, name="expect", module="lobench")
_SUITE = gin.external_configurable(Suite, name="Suite", module="lobench")
_EXPERIMENT_NAMES = ("Method", "Experiment")
_CHECKPOINT = gin.external_configurable(CheckpointPart, name="Checkpoint", module="lobench")
# Settings that are not part of a case's identity. The choice of seeds is part of an evaluation's identity; scoring,
# saving of states and timing are part of neither.
_NO_IDENTITY = (
    "first_seed", "block_sizes", "scale", "minimum", "save_every", "keep_state", "time_gradient", "axes"
)  # fmt: skip

# Fields of `Case` that the mark of a test may set.
_TEST_SETTINGS = (
    "primary_metric", "num_seeds", "metric_directions", "num_cpus", "num_gpus", "timeout_seconds", "scale", "minimum",
    "replicates",
)  # fmt: skip

_SEED_FIELDS = ("num_seeds", "first_seed", "block_sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCode:
    """User's code on which the results of a bound case depend.

    Attributes:
      case: Code that the task depends on. Code of tests is not included.
      subject: Code that the optimizer depends on.
    """

    case: CodeFingerprint = field(default_factory=CodeFingerprint)
    subject: CodeFingerprint = field(default_factory=CodeFingerprint)

    @property
    def parts(self) -> dict[str, str]:
        """Hashes of files by name, and versions of packages."""
        return {**self.case.parts, **self.subject.parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCase:
    """Case with its values.

    Attributes:
      case: The case. Its tasks and optimizers are None unless it was built.
      expectations: Expectations of a `.gin` case without a test.
      info: Description for the chief, without a node id outside a pytest session.
      bindings: Every binding reached from the case, one per line.
      optimizer_bindings: Bindings reached from its optimizer; "" if no layer binds an optimizer.
      prefix_hashes: For each phase, the identity of the training up to its end, without theta, seeds and program.
      settings: Real-valued settings of the optimizer, phase by phase.
      phases: Phases; empty if there is a single one.
      theta_part: `Checkpoint.theta`.
      problems: One line for each invalid binding of a known name in the config of a trainer or a checkpoint.
      code: User's code that the task and the optimizer depend on.
    """

    spec: CaseSpec
    case: Case
    expectations: Expectations = field(default_factory=Expectations)
    info: CaseInfo
    bindings: str
    optimizer_bindings: str = ""
    prefix_hashes: tuple[str, ...] = ()
    settings: OptimizerSettings = field(default_factory=OptimizerSettings)
    phases: tuple[BoundPhase, ...] = ()
    theta_part: str = ""
    problems: tuple[str, ...] = ()
    code: BoundCode = field(default_factory=BoundCode)

    @property
    def phase_lines(self) -> tuple[str, ...]:
        """Lines of the case about its phases."""
        return tuple(line for phase in self.phases for line in phase.case_lines)

    def require_optimizer(self) -> None:
        """Raises ConfigError if no layer binds an optimizer. A command needs none."""
        if not self.optimizer_bindings and not self.case.command:
            raise ConfigError(
                "no optimizer",
                where=self.spec.path,
                next_step="put `Case.learned_optimizer = @...()` into the config.gin next to the checkpoints, or give "
                "it with --gin-param (watch), --lobench-gin-param or --lobench-optimizer (pytest)",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCommand(BoundCase):
    """Case that is a command.

    Attributes:
      values: Values of the placeholders that the case's scope binds, as text.
    """

    values: Mapping[str, str]


def reduced_to_identity(case: Case) -> Case:
    """Returns a case with defaults in all fields that are not part of its identity, such as seeds and scores."""
    default_case = Case()
    return replace(case, **{name: getattr(default_case, name) for name in _NO_IDENTITY})


def bind_case(
    spec: CaseSpec, layers: Layers, *, test: str = "", build: bool = True, parsed_layers: ParsedLayers | None = None
) -> BoundCase:
    """Binds one case.

    Args:
      spec: Place of the case.
      layers: gin text before and after the case's own file.
      test: Name of the test function, which is part of the identity.
      build: Whether task and optimizer are created. Otherwise only plain values are set.
      parsed_layers: The layers, if they are parsed already. None: their files are read.
    Raises:
      ConfigError: An unknown name (with a suggestion), an unknown parameter, a value out of range, or a failing
        constructor.

    >>> (spec,) = specs_in(Path("quadratic.gin"))
    >>> bind_case(spec, Layers(gin_params=("Case.optimizer = @sgd()", "sgd.learning_rate = 0.1"))).case.num_inner_steps
    10
    """
    paths = (str(Path(spec.path).parent), spec.root, *layers.import_folders)
    prepare_import_path(paths[0])
    if is_command(spec):
        return _bind_command(spec, layers, test)
    with isolated_gin(*paths):
        parsed_layers = parse_layers(spec, layers) if parsed_layers is None else parsed_layers
        problems = _bind_layers(parsed_layers)
        where = f"{spec.path}: case {spec.name!r}"
        phases = bind_phases(spec.scope, where, paths, num_inner_steps=_num_inner_steps(spec.scope), build=build)
        reached_case, reached_optimizer = _reached_lines(spec.scope, where, phases)
        names_in_identity = (_location_in_identity(spec, parsed_layers.case), spec.name, test)
        stop_prefix = f"{spec.scope}/lobench.Case.stop_after = "
        identity = _sha256(*names_in_identity, *reached_case)
        code = _bound_code(spec, parsed_layers, phases, paths)
        whole_identity = _sha256(
            *names_in_identity, *(line for line in reached_case if not line.startswith(stop_prefix))
        )
        settings = settings_of_phases([phase.settings for phase in phases]) if phases else None
        settings = settings or settings_of(spec.scope, reached_optimizer, paths)
        with without_optimizers(spec.scope) if phases else contextlib.nullcontext():
            case = _build_case(spec.scope, where) if build else _plain_case(spec.scope, where)
        case = with_phases(case, phases)
        with gin.config_scope(spec.scope):
            expectations = _EXPECT()
            theta_path = _CHECKPOINT().theta
            suite = _SUITE()
        role = role_of(suite, bindings_in(spec.scope, "lobench.Case"), where)
    check_case(case, expectations, where)
    check_task(case, where)
    if not isinstance(theta_path, str):
        raise ConfigError(
            "Checkpoint.theta", where=where, got=repr(theta_path), expected="a path such as 'params/lopt'"
        )
    lines_of_task = task_lines(spec.scope, reached_case)
    info = _case_info(
        spec,
        case,
        identity=identity,
        whole=whole_identity if whole_identity != identity else "",
        optimizer_hash=_sha256(*reached_optimizer),
        program_hash=settings.program_hash,
        case_code=code.case.id,
        subject_code=code.subject.id,
        task_code=code.case.id,
        # Number and length of a stream's tasks belong to the problem; phases of an optimizer do not.
        problem=_sha256(
            _budget_text(case),
            *lines_of_task,
            *(line for phase in phases if phase.is_of_task for line in phase.case_lines),
        ),
        role=role,
        headline=suite.headline,
    )
    return BoundCase(
        spec=spec,
        case=case,
        expectations=expectations,
        info=info,
        bindings="\n".join((*reached_case, *reached_optimizer)),
        optimizer_bindings="\n".join(reached_optimizer),
        prefix_hashes=prefix_hashes(case, lines_of_task, reached_optimizer, phases, (code.case.id, code.subject.id)),
        code=code,
        settings=settings,
        phases=tuple(phases),
        theta_part=theta_path,
        problems=tuple(problems),
    )


def bind_learned_optimizer(layers: Layers, *, where: str) -> tuple[Any, str]:
    """Creates the learned optimizer that layers bind to `Case.learned_optimizer`, without a case.

    Args:
      layers: gin text of the run, the checkpoint and the caller.
      where: Name of the checkpoint in error messages.
    Returns:
      The optimizer, and `Checkpoint.theta`.
    Raises:
      ConfigError: No layer binds a learned optimizer, or it cannot be created.
    """
    with isolated_gin(*layers.import_folders):
        _bind_layers(parse_layers(None, layers))
        reference = bindings_in("", "lobench.Case").get("learned_optimizer")
        if reference is None:
            raise ConfigError(
                "no learned optimizer",
                where=where,
                got="no config.gin with `Case.learned_optimizer` next to the checkpoint",
                next_step='name its class: optimizer="AdafacMLPLOpt"',
            )
        with construction_errors("the optimizer", where):
            return copy.deepcopy(reference), _CHECKPOINT().theta  # gin calls the constructor when it copies a reference


def _is_task_of(binding: Binding, spec: CaseSpec) -> bool:
    """Returns whether a binding is the task of a case. A command ignores it and does not import it."""
    return (binding.scope, binding.name, binding.parameter) == (spec.scope, "Case", "task")


def _bind_command(spec: CaseSpec, layers: Layers, test: str) -> BoundCommand:
    """Binds a case that is a command. Modules of other cases are not imported."""
    where = f"{spec.path}: case {spec.name!r}"
    with isolated_gin():
        parsed_layers = parse_layers(spec, layers)
        task_parameters = [
            binding.parameter
            for binding in only_bindings([*parsed_layers.case, *parsed_layers.overrides])
            if _is_task_of(binding, spec)
        ]
        parsed_layers = layers_of_command(parsed_layers)
        problems = _bind_layers(parsed_layers)
        bound_fields = bindings_in(spec.scope, "lobench.Case")
        bound_names = [*BINDINGS.get((spec.scope, "lobench.Case"), {}), *task_parameters]
        check_command(_plain_case(spec.scope, where), bound_names, where)
        case = _with_single_seed(replace(_build_case(spec.scope, where), seed_block=1, num_inner_steps=1))
        with gin.config_scope(spec.scope):
            expectations = _EXPECT()
            suite = _SUITE()
        placeholders = {*placeholders_in(case.command), *placeholders_in(case.curves)}
        macros = {name: plain_value(value) for name, value in macros_of(spec.scope).items() if name in placeholders}
        lines, _ = bindings_reached_from(
            spec.scope, "lobench.Case", bound_fields.keys() - {*_NO_IDENTITY, *NON_COMMAND_FIELDS}
        )
        expected_bindings = bindings_in(spec.scope, "lobench.expect")
        lines_of_case = [
            *lines,
            *(f"{name} = {value!r}" for name, value in sorted(macros.items())),
            *(f"expect.{name} = {value!r}" for name, value in sorted(expected_bindings.items())),
        ]
        role = role_of(suite, bound_fields, where)
    check_case(case, expectations, where)
    values = {name: value if isinstance(value, str) else repr(value) for name, value in macros.items()}
    folder = Path(spec.path).parent
    files_label = f"{where}: Case.files"
    files = CommandFiles(
        command=case.command, folder=folder, placeholder_values=values, files=case.files, files_label=files_label
    )
    code = files.fingerprint()
    info = _case_info(
        spec,
        case,
        identity=_sha256(_location_in_identity(spec, parsed_layers.case), spec.name, test, *lines_of_case),
        optimizer_hash=_sha256(),
        case_code=code.id,
        task_code=code.id,
        problem=_sha256(*(line.removeprefix(f"{spec.scope}/") for line in lines_of_case)),
        role=role,
        headline=suite.headline,
        evaluator=COMMAND,
        fixed_seeds=case.replicates == ITEMS or (case.num_seeds == 1 and "seed" not in placeholders_in(case.command)),
    )
    return BoundCommand(
        spec=spec,
        case=case,
        expectations=expectations,
        info=info,
        bindings="\n".join(lines_of_case),
        problems=tuple(problems),
        code=BoundCode(case=code),
        values=values,
    )


def _with_single_seed(case: Case) -> Case:
    """Returns a case of items with a single seed, because one evaluation measures all items; other cases unchanged."""
    return replace(case, num_seeds=1, first_seed=0, block_sizes=()) if case.replicates == ITEMS else case


def bind_test(spec: CaseSpec, settings: Mapping[str, Any], layers: Layers | None) -> BoundCase:
    """Returns the case of an ordinary test, without the fingerprint of its code, which callers add.

    Args:
      spec: Place of the test.
      settings: Fields of `Case`, with `primary_metric`.
      layers: gin text whose overrides choose the seeds, as `Case.first_seed = 100`. None: the test's seeds are fixed.
    Raises:
      ConfigError: A setting is unknown or invalid.
    """
    where = f"{spec.path}: {spec.name}"
    if unknown_names := [name for name in settings if name not in _TEST_SETTINGS]:
        expected = f"one of {', '.join(_TEST_SETTINGS)}"
        advice = suggestion(unknown_names[0], _TEST_SETTINGS)
        raise ConfigError(
            f"the mark `lobench` has no setting {unknown_names[0]}", where=where, expected=expected, next_step=advice
        )
    seed_values = {} if layers is None else _seed_overrides(layers)
    case = _with_single_seed(replace(Case(), num_inner_steps=1, **{"num_seeds": 1, **settings, **seed_values}))
    check_case(case, Expectations(), where)
    directions_by_metric(case.metric_directions, [case.primary_metric], where=where)
    lines = [f"primary_metric = {case.primary_metric!r}"]
    if case.replicates == ITEMS:
        lines.append(f"replicates = {ITEMS!r}")
    identity = _sha256(spec.relative_path, spec.name, TEST, *lines)
    info = _case_info(
        spec,
        case,
        identity=identity,
        optimizer_hash=_sha256(),
        problem=identity,
        headline=HEADLINES[0],
        evaluator=TEST,
        fixed_seeds=layers is None or case.replicates == ITEMS,
    )
    return BoundCase(
        spec=spec,
        case=case,
        info=info,
        bindings="\n".join(lines),
    )


def _seed_overrides(layers: Layers) -> dict[str, Any]:
    """Returns the fields of `Case` about seeds that overrides bind for all cases."""
    bindings = only_bindings(parse_layers(None, layers).overrides)
    seed_bindings = [
        binding
        for binding in bindings
        if not binding.parameter or (binding.name == "Case" and binding.parameter in _SEED_FIELDS)
    ]
    return _plain_values([seed_bindings], "", "lobench.Case")


def _location_in_identity(spec: CaseSpec, statements: Sequence[Statement]) -> str:
    """Returns the part of a case's location that belongs to its identity.

    For a case of a suite, it is the file that holds the case, whichever file includes it. A case of an experiment's own
    file is identified by its bindings, so that equal bindings in another experiment's file are the same case. If they
    import a module next to the file, the folder counts, since another folder may have another module of that name.
    """
    bindings = only_bindings(statements)
    if not any(binding.name in _EXPERIMENT_NAMES for binding in bindings):
        return spec.relative_path
    locations = [
        binding.where
        for binding in bindings
        if (binding.scope, binding.name) == (spec.scope, "Case") and binding.parameter in ("task", "command")
    ]
    path = _file_in_location(locations[-1]) if locations else Path(spec.path)
    if not any(binding.name in _EXPERIMENT_NAMES and _file_in_location(binding.where) == path for binding in bindings):
        return path.relative_to(path.parent.parent).as_posix()
    modules = (sys.modules.get(statement.module) for statement in statements if isinstance(statement, Import))
    files = [Path(file) for module in modules if (file := getattr(module, "__file__", None))]
    return path.parent.name if any(file.is_relative_to(path.parent) for file in files) else ""


def _file_in_location(where: str) -> Path:
    return Path(where.rpartition(":")[0])


def _case_info(spec: CaseSpec, case: Case, **further_fields: Any) -> CaseInfo:
    """Returns the description of a case from its file, its values and further fields."""
    return CaseInfo(
        suite=spec.suite,
        name=spec.name + (f"@{case.stop_after:g}" if case.stop_after is not None else ""),
        node_id="",
        num_inner_steps=case.end,
        num_seeds=sum(case.block_sizes) or case.num_seeds,
        seed_block=case.seed_block,
        block_sizes=tuple(case.block_sizes),
        primary_metric=case.primary_metric,
        num_cpus=case.num_cpus,
        num_gpus=case.num_gpus,
        timeout_seconds=case.timeout_seconds,
        first_seed=case.first_seed,
        scale=case.scale,
        minimum=case.minimum,
        replicates=case.replicates,
        file=spec.file,
        own_name=spec.name,
        places=(),
        **further_fields,
    )


def _bind_layers(parsed_layers: ParsedLayers) -> list[str]:
    """Binds all layers, and returns the problems of layers in which unknown names are allowed.

    All modules are imported before anything is bound, so that a name is known no matter which layer imports it, and no
    matter what this process imported before.
    """
    failed_imports = [*import_plugin_modules(parsed_layers.plugin_modules), *import_installed(parsed_layers.trainer)]
    import_modules(parsed_layers.case)
    import_modules(parsed_layers.overrides)
    try:
        return _bind_imported(parsed_layers)
    except UnknownName as error:
        if not failed_imports:
            raise
        raise with_parts(error, UnknownName, next_step="; ".join((*failed_imports, error.next_step))) from error


def _bind_imported(parsed_layers: ParsedLayers) -> list[str]:
    later_layers = (*parsed_layers.case, *parsed_layers.overrides)
    is_needed = not any(
        binding.name == "Case" and binding.parameter in OPTIMIZER_FIELDS for binding in only_bindings(later_layers)
    )
    problems = bind_trainer_config(parsed_layers.trainer, parsed_layers.trainer_comments, is_needed=is_needed)
    problems += bind_checkpoint_values(parsed_layers.checkpoint_bindings)
    bind_all(parsed_layers.case)
    bind_overrides(parsed_layers.overrides)
    return problems


def integer_field_of(name: str, spec: CaseSpec, layers: Layers) -> int | None:
    """Returns a numeric field of a case without importing its modules, for use before jax's backend is created.

    Args:
      name: Name of a field of `Case`, such as "num_cpus".
      spec: Place of the case.
      layers: gin text bound before and after the case's own file.
    Returns:
      The number, at least 1. None if the bound value is not a number, which binding the case reports.
    Raises:
      ConfigError: A file cannot be read, or has a syntax error.
    """
    values = _plain_values(_bindings_by_layer("Case", [name], spec, layers), spec.scope, "lobench.Case")
    value = values.get(name, getattr(Case(), name))
    return value if is_integer(value) else None


def num_gpus_of(spec: CaseSpec, layers: Layers) -> float:
    """Returns `Case.num_gpus` of a case, read from the gin text without importing the suite's modules.

    0 if the text does not bind it to a number.
    """
    values = _plain_values(_bindings_by_layer("Case", ["num_gpus"], spec, layers), spec.scope, "lobench.Case")
    value = values.get("num_gpus", 0.0)
    return float(value) if type(value) in (int, float) else 0.0


def binds_optimizer(spec: CaseSpec, layers: Layers) -> bool:
    """Returns whether a case binds an optimizer, so that the user need not name one. Imports nothing.

    True as well for phases with optimizers, although some phase may lack one, and for commands that name no checkpoint.
    """
    if is_command(spec):
        return not reads_checkpoint(spec)
    parsed_layers = parse_layers(spec, layers)
    scopes = enclosing_scopes(spec.scope)
    optimizer_bindings = [
        binding
        for binding in only_bindings((*parsed_layers.case, *parsed_layers.overrides))
        if binding.parameter == "optimizer"
    ]
    return any(
        (optimizer_binding.name == "Case" and optimizer_binding.scope in scopes) or optimizer_binding.name == "Phase"
        for optimizer_binding in optimizer_bindings
    )


def expectations_of(spec: CaseSpec, layers: Layers) -> Expectations | None:
    """Returns the expectations of a case without imports; None if they can only be known by binding the case."""
    groups = _bindings_by_layer("expect", [field.name for field in fields(Expectations)], spec, layers)
    if any(binding.parameter and _has_reference(binding.value) for group in groups for binding in group):
        return None
    values = _plain_values(groups, spec.scope, "lobench.expect")
    return None if None in values.values() else Expectations(**values)


def _bindings_by_layer(name: str, names: Sequence[str], spec: CaseSpec, layers: Layers) -> list[list[Binding]]:
    """Returns the bindings of some fields and of all macros, by layer. A field's value may be a macro."""
    parsed_layers = parse_layers(spec, layers)
    return [
        [
            binding
            for binding in only_bindings(layer)
            if not binding.parameter or (binding.name == name and binding.parameter in names)
        ]
        for layer in (parsed_layers.trainer, parsed_layers.case, parsed_layers.overrides)
    ]


def _has_reference(value: Any) -> bool:
    """Returns whether gin would call a configurable to get a value."""
    return any(isinstance(reference, Reference) for reference in references_in(value))


def _plain_values(layers: Sequence[Sequence[Binding]], scope: str, selector: str) -> dict[str, Any]:
    """Binds all layers, and returns the plain values of a configurable in a scope; None for a reference."""
    with isolated_gin():
        for index, layer in enumerate(layers):
            bind_known(layer, override=index == len(layers) - 1)
        return {name: plain_value(value) for name, value in bindings_in(scope, selector).items()}


def _sha256(*hashed_texts: str) -> str:
    return hashlib.sha256("\0".join(hashed_texts).encode()).hexdigest()


def _reached_lines(scope: str, where: str, phases: Sequence[BoundPhase]) -> tuple[list[str], list[str]]:
    """Returns the bindings reached from the case, and from its optimizer, as canonical lines."""
    bindings = bindings_in(scope, "lobench.Case")
    if "task" not in bindings:
        example = "a line such as `x/Case.task = @T()`"
        raise ConfigError("the scope binds no Case.task", where=where, expected=example)
    phase_lines = [example for phase in phases for example in phase.case_lines]
    # Bindings of phases are not bindings of the case, nor is the number of steps that the phases replace.
    excluded_fields = {*OPTIMIZER_FIELDS, *_NO_IDENTITY, "phases", *(["num_inner_steps"] if phase_lines else ())}
    lines, _ = bindings_reached_from(scope, "lobench.Case", bindings.keys() - excluded_fields)
    expected_bindings = bindings_in(scope, "lobench.expect")
    case_lines = [
        *lines,
        *phase_lines,
        *(f"expect.{name} = {value!r}" for name, value in sorted(expected_bindings.items())),
    ]
    return case_lines, optimizer_lines_of_phases(phases) if phases else optimizer_lines(scope)


def _bound_code(
    spec: CaseSpec, parsed_layers: ParsedLayers, phases: Sequence[BoundPhase], paths: Sequence[str]
) -> BoundCode:
    """Returns the fingerprints of the user's code. The modules must be imported."""
    layers = (parsed_layers.plugin_modules, parsed_layers.trainer, parsed_layers.case, parsed_layers.overrides)
    common_modules = modules_imported_for_effects(statement for layer in layers for statement in layer)
    case_fields = bindings_in(spec.scope, "lobench.Case").keys() - {*OPTIMIZER_FIELDS, "phases"}
    case_modules = reachable_modules(spec.scope, "lobench.Case", case_fields)
    texts_of_case = reachable_texts(spec.scope, "lobench.Case", case_fields)
    subject_modules = {module for phase in phases for module in phase.modules}
    texts_of_subject = {text for phase in phases for text in phase.texts}
    if not phases:
        subject_modules = reachable_modules(spec.scope, "lobench.Case", OPTIMIZER_FIELDS)
        texts_of_subject = reachable_texts(spec.scope, "lobench.Case", OPTIMIZER_FIELDS)
    case_code, subject_code = (
        code_fingerprint(modules=sorted(modules | common_modules), texts=sorted(texts), folders=paths)
        for modules, texts in ((case_modules, texts_of_case), (subject_modules, texts_of_subject))
    )
    return BoundCode(case=case_code, subject=subject_code)


def _num_inner_steps(scope: str) -> Any:
    return plain_value(bindings_in(scope, "lobench.Case").get("num_inner_steps", Case().num_inner_steps))


def _plain_case(scope: str, where: str) -> Case:
    bindings = {name: plain_value(value) for name, value in bindings_in(scope, "lobench.Case").items()}
    try:
        return Case(**{name: value for name, value in bindings.items() if name not in ("task", *OPTIMIZER_FIELDS)})
    except TypeError as error:
        raise ConfigError(str(error), where=where) from error


def _build_case(scope: str, where: str) -> Case:
    with construction_errors("the case", where), gin.config_scope(scope):
        case = _CASE()
    assert isinstance(case, Case)
    return case


def _budget_text(case: Case) -> str:
    """Returns a text with the length of a case's training, its replicas, and the number of averaged batches.

    Without evaluations, metrics are averaged over `eval_every` steps.
    """
    text = f"{case.num_inner_steps} {case.num_tasks} {case.eval_batches}"
    if case.sessions != "apart":
        text = f"{text} {case.sessions} {case.num_lanes}"
    if case.stop_after is not None:
        text = f"{text} to {case.end}"
    return text if case.eval_batches else f"{text} {case.eval_every}"
