"""Repeated evaluations of a bundle, with the same gin text, theta, seeds and number of thetas computed together."""

from __future__ import annotations

import dataclasses
import os
import queue
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lobench.core.case import CaseInfo, CaseSpec
from lobench.core.errors import LobenchError
from lobench.core.result import Curves
from lobench.core.subject import Subject
from lobench.engine.config.bound import BoundCase, bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.reached_files import imported_modules, matches_spec
from lobench.engine.config.suite import specs_of_suites, test_specs_of
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.workers.devices import DeviceLeases, devices_here
from lobench.evaluation.isolated import IsolatedRunner
from lobench.evaluation.plugin_metrics import with_metrics
from lobench.evaluation.request import ThetaLeaves
from lobench.plugins import PluginManager, Registered
from lobench.tools.audit.cases import is_item_of_experiment

__all__ = [
    "EvaluationRepeater",
    "NotRepeatable",
    "OrdinaryTest",
    "OtherCase",
    "RepeatableCase",
    "SuiteCases",
    "bindings_by_case",
    "experiment_imports",
    "find_test_functions",
]

_TEST_PATTERN = re.compile(r"^\s*(?:async\s+)?def (test\w*)\(", re.MULTILINE)
_ITEM_PATTERN = re.compile(r"^(?:.*::)?(?P<name>[^:\[\]]+)(?:\[(?P<own>.*)\])?$")


class NotRepeatable(LobenchError):
    """The evaluation failed because the bundle lacks a file or module. This is no evidence against its result."""


class OrdinaryTest(LobenchError):
    """The result is of an ordinary test without a gin case. An audit does not repeat it."""


class OtherCase(LobenchError):
    """The result was computed on another case than the suite's files define."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatableCase:
    """Case of a bundle's suites, bound as for a result.

    Attributes:
      layers: Layers of the binding.
      spec: The case in the suite's files.
      test: Name of the test in the case's identity. "": none.
      extra_bindings: Bindings in the ledger that are in neither the suite's files nor the subject.
      bound: The case with these bindings.
    """

    layers: Layers
    spec: CaseSpec
    test: str
    extra_bindings: tuple[str, ...]
    bound: BoundCase


class SuiteCases:
    """Suites of a bundle, extracted to a folder. Binding one of their cases imports the modules that it names.

    Args:
      folders: Folders of the suites.
      manager: Plugins.
      imports: Import statements of experiments, which apply to all cases. Later versions of an experiment come first.
    """

    def __init__(
        self, folders: Sequence[Path], manager: PluginManager, imports: Sequence[tuple[str, ...]] = ()
    ) -> None:
        self._imports = (*imports, ())
        self._specs = specs_of_suites(*folders)
        self._tests = test_specs_of(*folders)
        self._modules = tuple(manager.gin_modules())
        self._known_cases: dict[tuple[str, str, object, str | None], RepeatableCase | LobenchError] = {}

    def find(self, row: EvaluationRow, bindings: str | None) -> RepeatableCase:
        """Returns the case of a row.

        Args:
          row: The result.
          bindings: All bindings of this case with this optimizer, according to the ledger. None: it has no curves, and
            only curves have their bindings.
        Raises:
          OrdinaryTest: The result is of an ordinary test.
          OtherCase: The identity of the case or of its optimizer differs from that of the files and bindings.
          LobenchError: The files are missing, or cannot be bound.
        """
        case_key = (row.case.key, row.case.node_id, tuple(row.sightings), bindings)
        if case_key not in self._known_cases:
            try:
                self._known_cases[case_key] = self._find_case(row, bindings)
            except LobenchError as error:
                self._known_cases[case_key] = error
            except Exception as error:  # noqa: BLE001  (what a suite's module raises)
                self._known_cases[case_key] = LobenchError("the case cannot be bound", where=row.where, got=str(error))
        case_or_error = self._known_cases[case_key]
        if isinstance(case_or_error, LobenchError):
            raise case_or_error
        return case_or_error

    def _find_case(self, row: EvaluationRow, bindings: str | None) -> RepeatableCase:
        specs = [spec for spec in self._specs if spec.suite == row.case.suite and matches_spec(spec, row.case)]
        name = row.case.name.partition("[")[0]  # without the values of its parameters
        if not specs and any(test.suite == row.case.suite and test.has_name(name) for test in self._tests):
            raise OrdinaryTest("an ordinary test, which an audit does not repeat", where=row.where)
        if not specs and any(spec.suite == row.case.suite for spec in self._specs):
            raise OtherCase("the suite's files have no such case", where=row.where)
        if not specs:
            raise LobenchError("the bundle does not have the suite's files", where=row.where)
        problem: LobenchError | None = None
        for spec in specs:
            for sighting in row.sightings:
                for test in _possible_test_names(row.case, Path(spec.path).parent):
                    try:
                        return self._bind_with_imports(row, spec, sighting, test, bindings)
                    except LobenchError as error:
                        problem = problem if isinstance(problem, OtherCase) else error
        assert problem is not None
        raise problem

    def _bind_with_imports(
        self, row: EvaluationRow, spec: CaseSpec, subject: Subject, test: str, bindings: str | None
    ) -> RepeatableCase:
        """Tries the imports of each experiment, then none. Returns the first case whose code equals the result's.

        If there is none, returns the first case that could be bound.
        """
        first_bound: RepeatableCase | None = None
        problem: LobenchError | None = None
        for imports in self._imports:
            try:
                bound_case = self._bind(row, spec, subject, test, bindings, imports)
            except LobenchError as error:
                problem = error
                continue
            if bound_case.bound.info.code == row.case.code:
                return bound_case
            first_bound = first_bound or bound_case
        if first_bound is None:
            assert problem is not None
            raise problem
        return first_bound

    def _bind(
        self,
        row: EvaluationRow,
        spec: CaseSpec,
        subject: Subject,
        test: str,
        bindings: str | None,
        imports: tuple[str, ...],
    ) -> RepeatableCase:
        layers = Layers(variant=subject.variant, gin_modules=self._modules, gin_params=imports)
        bound = bind_case(spec, layers, test=test, build=False)
        if _has_identity(bound, row):
            return RepeatableCase(layers=layers, spec=spec, test=test, extra_bindings=(), bound=bound)
        if bindings is None:
            raise LobenchError("it has no result, and the suite's files do not give its bindings", where=row.where)
        # The ledger has the bindings that come from a run's config.gin, --gin-file and --gin-param.
        suite_bindings = set(bound.bindings.splitlines())
        extra_bindings = tuple(line for line in bindings.splitlines() if line not in suite_bindings)
        layers = dataclasses.replace(layers, gin_params=(*imports, *extra_bindings))
        if extra_bindings and _has_identity(rebound := bind_case(spec, layers, test=test, build=False), row):
            return RepeatableCase(layers=layers, spec=spec, test=test, extra_bindings=extra_bindings, bound=rebound)
        bound = rebound if extra_bindings else bound
        if bound.info.identity != row.case.identity:
            raise OtherCase("the suite's files give another case than the result is of", where=row.where)
        raise OtherCase(
            f"the bindings of {subject.label!r} are not those that the result was computed with", where=row.where
        )


def experiment_imports(ledger: Ledger) -> list[tuple[str, ...]]:
    """Returns the imports of the experiments of a ledger, as gin lines, the last experiment first."""
    distinct_imports: dict[tuple[str, ...], None] = {}
    for form in reversed(ledger.experiments()):
        distinct_imports[tuple(f"import {module}" for module in imported_modules(form.config))] = None
    return [imports for imports in distinct_imports if imports]


def _has_identity(bound: BoundCase, row: EvaluationRow) -> bool:
    return (bound.info.identity, bound.info.optimizer_hash) == (row.key.case_identity, row.key.optimizer_hash)


def _possible_test_names(case: CaseInfo, folder: Path) -> list[str]:
    """Returns the possible names of the test in the case's identity.

    Args:
      case: The case.
      folder: Folder of its gin file. An item of an experiment may run any test in it.
    """
    file, _, item = case.node_id.partition("::")
    if is_item_of_experiment(case):
        return ["", *find_test_functions(folder)]
    match = _ITEM_PATTERN.match(item)
    if file.endswith(".gin") or match is None:
        return [""]
    return [match["name"], *([f"{match['name']}[{match['own']}]"] if match["own"] else [])]


def find_test_functions(folder: Path) -> dict[str, Path]:
    """Returns the test functions of the Python files in and below a folder, with their files. Imports nothing."""
    return {
        name: file
        for file in sorted(folder.rglob("*.py"))
        for name in _TEST_PATTERN.findall(file.read_text(encoding="utf-8", errors="replace"))
    }


def bindings_by_case(rows: Sequence[EvaluationRow]) -> dict[str, str]:
    """Returns the bindings of each case by `CaseInfo.key`, from results with curves."""
    bindings: dict[str, str] = {}
    for row in rows:
        if row.payload is not None and row.case.key not in bindings:
            bindings[row.case.key] = str(row.header()[0]["provenance"].bindings)
    return bindings


class EvaluationRepeater:
    """Repeats evaluations in separate processes.

    Args:
      num_workers: Number of processes.
      thetas: Files of thetas, by hash.
      cache: Folder of compiled programs, which perturbed trainings share with the others.

    Attributes:
      metrics: Metrics of plugins to compute, by suite folder: a suite's conftest.py is a plugin for its own cases.
    """

    def __init__(self, num_workers: int, thetas: Mapping[str, Path], cache: Path) -> None:
        self._thetas = thetas
        self.metrics: Mapping[Path, Mapping[str, Registered]] = {}
        self._num_workers = num_workers
        self._idle_runners: queue.SimpleQueue[IsolatedRunner] = queue.SimpleQueue()
        self._runners = [IsolatedRunner(keeps_executables=False) for _ in range(num_workers)]
        for runner in self._runners:
            runner.compilation_cache = str(cache)
            self._idle_runners.put(runner)

    def close(self) -> None:
        for runner in self._runners:
            runner.close()

    def run_all(
        self, repeats: Sequence[tuple[EvaluationRow, RepeatableCase, int]], report_progress: Callable[[int], None]
    ) -> Iterator[Curves | LobenchError]:
        """Yields curves or an error for each requested row, case and perturbation, in order."""
        with ThreadPoolExecutor(self._num_workers) as pool:
            try:
                for number, result in enumerate(pool.map(lambda repeat: self._run_or_error(*repeat), repeats), 1):
                    report_progress(number)
                    yield result
            except BaseException:
                self.close()  # otherwise the pool waits for running evaluations
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run_or_error(self, row: EvaluationRow, repeatable: RepeatableCase, perturbation: int) -> Curves | LobenchError:
        runner = self._idle_runners.get()
        try:
            return self._run_with(runner, row, repeatable, perturbation)
        except LobenchError as error:
            return error
        finally:
            self._idle_runners.put(runner)

    def _run_with(self, runner: IsolatedRunner, row: EvaluationRow, case: RepeatableCase, perturbation: int) -> Curves:
        sha256 = row.key.checkpoint_sha256
        has_theta = any(sighting.has_theta for sighting in row.sightings)
        if has_theta and sha256 not in self._thetas:
            raise NotRepeatable("the bundle does not have the theta", where=row.where)
        theta = ThetaLeaves.from_file(str(self._thetas[sha256]) if has_theta else "", where=row.where)
        environment = DeviceLeases(devices_here(os.environ)).lease(0, row.case.num_gpus)
        if environment != runner.environment:
            runner.close()
            runner.environment = environment
        together = row.header()[0]["provenance"].together if row.payload is not None else ""
        curves = runner.run(
            *(case.layers, case.spec, case.test, theta, row.key.seed_block),
            together=together,
            perturbation=perturbation,
        )
        declared_metrics = (
            declarations
            for suite_folder, declarations in self.metrics.items()
            if Path(case.spec.path).is_relative_to(suite_folder)
        )
        return with_metrics(curves, next(declared_metrics, {}))
