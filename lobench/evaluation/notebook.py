"""`lobench.evaluate`: one case without pytest, for notebooks and scripts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lobench.core.case import Case, CaseSpec
from lobench.core.errors import UsageError
from lobench.core.subject import Variant
from lobench.engine.checkpoints.given import gin_layers_at
from lobench.engine.config.bound import BoundCase, bind_case, binds_optimizer
from lobench.engine.config.layers import Layers
from lobench.engine.config.python_cases import gin_text_of_case, temporary_names
from lobench.engine.config.scopes import check_scopes
from lobench.engine.config.shipped import find_suite
from lobench.engine.config.suite import single_spec_called, specs_of_suites
from lobench.engine.config.suite_files import data_files_of_suite, path_stamps
from lobench.engine.config.user_code import forget_edited_code
from lobench.engine.file_stamps import FileStamp, stamps_of
from lobench.evaluation.isolated import IsolatedRunner
from lobench.evaluation.plugin_metrics import with_metrics
from lobench.evaluation.request import ThetaLeaves
from lobench.evaluation.result import Result
from lobench.evaluation.runner import BlockRunner
from lobench.plugins import PluginManager, load_plugins

__all__ = ["evaluate"]

_CASE_NAME = "case"  # name of a case that is given in Python


def evaluate(
    suite: str,
    *,
    case: str | None = None,
    python_case: Case | None = None,
    checkpoint: str | Path | None = None,
    optimizer: str = "",
    gin_files: Sequence[str | Path] = (),
    gin_params: Sequence[str] = (),
    variant: Variant = Variant(),  # noqa: B008  (frozen)
    test: str | None = None,
    allow_pickle: bool = False,
) -> Result:
    """Trains one case and returns its result; see `lobench.api.evaluate.evaluate`, which also resolves names.

    Args:
      python_case: Case in Python, in place of one of a suite.
      variant: Bindings of the checkpoint.
      suite, case, checkpoint, optimizer, gin_files, gin_params, test, allow_pickle: As in `lobench.evaluate`.
    """
    if checkpoint and optimizer:
        raise UsageError("lobench.evaluate takes a checkpoint or an optimizer, one of them")
    forget_edited_code()
    with temporary_names() as stand_in:
        objects = list[object]()
        record_and_name = functools.partial(_record_and_name, objects, stand_in)
        suites = [find_suite(suite)] if python_case is None else []
        spec = (
            _spec_of(python_case, record_and_name) if python_case is not None else single_spec_called(case, suites[0])
        )
        layers = functools.partial(
            gin_layers_at, optimizer=optimizer, gin_files=gin_files, gin_params=gin_params, variant=variant
        )
        return _evaluate(
            spec, suites, layers, test or "", checkpoint, allow_pickle=allow_pickle, in_this_process=bool(objects)
        )


def _record_and_name(objects: list[object], stand_in: Callable[[object], str], value: object) -> str:
    objects.append(value)
    return stand_in(value)


def _spec_of(case: Case, stand_in: Callable[[object], str]) -> CaseSpec:
    """Returns the spec of a case that has no file, as if its gin text were a file in the working directory."""
    path = Path.cwd() / f"{_CASE_NAME}.gin"
    text = gin_text_of_case(case, _CASE_NAME, "lobench.evaluate", stand_in)
    return CaseSpec(path=str(path), scope=_CASE_NAME, root=str(path.parent.parent), text=text)


def _evaluate(
    spec: CaseSpec,
    suites: Sequence[Path],
    layers_for_checkpoint: Callable[[str | Path, PluginManager], Layers],
    test_name: str,
    checkpoint: str | Path | None,
    *,
    allow_pickle: bool,
    in_this_process: bool,
) -> Result:
    """Trains a case in the warm child process, or in this process for objects that only exist here."""
    manager = _plugin_manager()
    theta = ThetaLeaves(leaves=None, where="optimizer")
    if checkpoint:
        _, theta = ThetaLeaves.read_checkpoint(str(checkpoint), manager, allow_pickle=allow_pickle)
    layers = layers_for_checkpoint(checkpoint or "", manager)
    if not checkpoint and not layers.optimizer and not binds_optimizer(spec, layers):
        raise UsageError("lobench.evaluate needs a checkpoint or an optimizer, one of them")
    check_scopes(spec, layers, (other for suite in suites for other in specs_of_suites(suite)))
    bound_case = bind_case(spec, layers, test=test_name, build=False)
    bound_case.require_optimizer()
    run = (
        _InProcessRunner(layers).run
        if in_this_process
        else functools.partial(_warm_child_runner(layers, bound_case).run, layers)
    )
    blocks = bound_case.info.blocks()
    metrics = manager.usable_declarations("lobench_metrics")
    return Result([with_metrics(run(spec, test_name, theta, block), metrics) for block in blocks])


class _InProcessRunner(BlockRunner):
    """Runner in a process whose jax backend stays as it is, so that the bits may depend on it."""

    def claim_backend_for(self, bound_case: BoundCase) -> None:
        return


@functools.cache
def _plugin_manager() -> PluginManager:
    return load_plugins()


@dataclass(slots=True)
class _WarmChild:
    """A child process, the cases that it has bound, and the state of the code and data files that it has read.

    `file_stamps` has None for files that did not exist, which the child would import instead of others.
    """

    runner: IsolatedRunner = field(default_factory=IsolatedRunner)
    bindings_and_cases: dict[tuple[Layers, CaseSpec], tuple[str, Case]] = field(default_factory=dict)
    code_hashes: dict[str, str] = field(default_factory=dict)
    file_stamps: dict[str, FileStamp | None] = field(default_factory=dict)

    def has_read_current_files(
        self,
        layers: Layers,
        spec: CaseSpec,
        case: tuple[str, Case],
        code_hashes: Mapping[str, str],
    ) -> bool:
        """Returns whether the child has read the current files. It reads each gin file, module and data file once."""
        is_known = all(self.code_hashes.get(name, value) == value for name, value in code_hashes.items())
        return (
            self.bindings_and_cases.get((layers, spec), case) == case
            and is_known
            and stamps_of(self.file_stamps) == self.file_stamps
        )


_warm_child: _WarmChild | None = None


def _warm_child_runner(layers: Layers, bound_case: BoundCase) -> IsolatedRunner:
    """Returns the shared child process, whose programs are warm. It ends with this process, when its pipe closes."""
    global _warm_child
    case, code_hashes = (bound_case.bindings, bound_case.case), bound_case.code.parts
    named_files = map(Path, bound_case.code.case.data_files | bound_case.code.subject.data_files)
    files = [*data_files_of_suite(Path(bound_case.spec.path)), *named_files]
    file_stamps = {path: (size, changed_ns) for path, size, changed_ns in path_stamps(files)}
    if _warm_child is None or not _warm_child.has_read_current_files(layers, bound_case.spec, case, code_hashes):
        if _warm_child is not None:
            _warm_child.runner.close()
        _warm_child = _WarmChild()
    _warm_child.bindings_and_cases[layers, bound_case.spec] = case
    _warm_child.code_hashes |= code_hashes
    missing_files = bound_case.code.case.missing_files | bound_case.code.subject.missing_files
    _warm_child.file_stamps = stamps_of(missing_files) | file_stamps | _warm_child.file_stamps
    return _warm_child.runner
