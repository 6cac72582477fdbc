"""Runner of seed blocks in this process, with warm compiled programs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from lobench.core.case import CaseSpec, SeedBlock
from lobench.core.errors import ConfigError, LobenchError
from lobench.core.metric import directions_by_metric
from lobench.core.phases import state_prefix
from lobench.core.program import Program as ResultProgram
from lobench.core.result import Curves
from lobench.core.wording import headline
from lobench.engine.config.bound import BoundCase, bind_case, integer_field_of
from lobench.engine.config.command_case import is_command
from lobench.engine.config.layers import Layers
from lobench.engine.config.parsed_layers import ParsedLayers, parse_layers, parse_own_bindings
from lobench.engine.config.value_types import first_mistyped
from lobench.engine.store.provenance import provenance
from lobench.engine.store.states import BlockStates, StateAccess, state_owner
from lobench.engine.workers.devices import set_blas_variables
from lobench.evaluation.programs import Programs, WarmProgram, matched_theta
from lobench.evaluation.request import DeadlinePassed, ThetaLeaves, WrongThreads
from lobench.inner.adapters import as_learned_optimizer
from lobench.inner.backend import claim_backend, device_description, foreign_backend_maker
from lobench.inner.training.input_checks import refuse_missing_inputs, trained_parameters
from lobench.inner.training.perturbed import PerturbedProgram
from lobench.inner.training.train import TrainingProgram

__all__ = ["BlockRunner", "claim_for", "collect_late_flags", "wrong_threads_error"]

_FLAGS = ("XLA_FLAGS", "JAX_PLATFORMS", "NPROC")  # jax reads them when it makes its backend
_MAX_OWN_BINDINGS = 8  # number of distinct bindings carried by checkpoints whose compiled programs are kept


def wrong_threads_error(num_cpus: int, where: str) -> WrongThreads:
    """Returns the error for a jax backend with another number of threads. It names the creator of the backend."""
    backend_maker_text = foreign_backend_maker()
    got = f"one that {backend_maker_text} created" if backend_maker_text else ""
    return WrongThreads(
        f"this process's jax backend was not created for {num_cpus} thread(s)",
        where=where,
        got=got,
    )


def claim_for(spec: CaseSpec, layers: Layers) -> bool:
    """Creates jax's backend for a case. Returns whether this process has the case's number of threads.

    Called before the case is bound; nothing that the case names is imported.

    Raises:
      ConfigError: See `integer_field_of`.

    >>> (spec,) = specs_in(Path("quadratic.gin"))
    >>> claim_for(spec, Layers())
    True
    """
    num_cpus = integer_field_of("num_cpus", spec, layers)
    if num_cpus is not None:
        set_blas_variables(num_cpus)
    return num_cpus is None or claim_backend(num_cpus)


@contextlib.contextmanager
def collect_late_flags(late_flags: set[str]) -> Iterator[None]:
    """Collects flags of jax's backend that are set while the body runs, too late if the backend exists."""
    old_values = {name: os.environ.get(name) for name in _FLAGS}
    yield
    late_flags |= {name for name in _FLAGS if os.environ.get(name) != old_values[name]}


class BlockRunner:
    """Runner of seed blocks of cases.

    Args:
      layers: Bindings that are applied to every case, besides those of its file.
      programs: Programs shared with other runners of this process.
      states: Storage for states of trainings. None: states are not saved.
      late_flag_names: Flags that modules of the suite set after jax's backend was created; recorded with each case.
    """

    def __init__(
        self,
        layers: Layers,
        programs: Programs | None = None,
        states: StateAccess | None = None,
        late_flag_names: set[str] | None = None,
    ) -> None:
        self._layers, self._states = layers, states
        self._bound_cases: dict[tuple[CaseSpec, str, str], BoundCase] = {}
        self._parsed_layers_by_spec: dict[
            CaseSpec, ParsedLayers
        ] = {}  # gin files are read once, for all bindings of checkpoints
        self._shared_programs = programs or Programs()
        self._warm_programs: dict[tuple[str, int, type[TrainingProgram]], WarmProgram] = {}
        self._late_flag_names = set[str]() if late_flag_names is None else late_flag_names

    def bind(self, spec: CaseSpec, test_name: str, own_bindings: str = "") -> BoundCase:
        """Returns the case with its task and optimizer, built once.

        Args:
          spec: Place of the case.
          test_name: Name of the test.
          own_bindings: Bindings of the checkpoint.
        Raises:
          ConfigError: See `bind_case`; or the case is a command, no optimizer is bound, or the checkpoint's bindings
            change the case.
        """
        key = (spec, test_name, own_bindings)
        if key not in self._bound_cases:
            if is_command(spec):
                raise ConfigError(
                    "the case is a command, not a training",
                    where=f"{spec.path}: case {spec.name!r}",
                    next_step="`lobench watch`, `lobench compare` and pytest evaluate it",
                )
            claim_for(spec, self._layers)  # modules that the case imports may create arrays
            with collect_late_flags(self._late_flag_names):
                bound_case = bind_case(
                    spec, self._layers, test=test_name, parsed_layers=self._parsed_layers(spec, own_bindings)
                )
            bound_case.require_optimizer()
            refuse_missing_inputs(bound_case.case, f"{spec.path}: case {spec.name!r}")
            if own_bindings and bound_case.info.identity != self.bind(spec, test_name).info.identity:
                raise ConfigError(
                    "the checkpoint's own bindings change the case, not its optimizer alone",
                    where=f"{spec.path}: case {spec.name!r}",
                    got=", ".join(own_bindings.splitlines()),
                )
            if self._late_flag_names:
                problem = (
                    f"a module of the suite sets {', '.join(sorted(self._late_flag_names))}, but jax's backend is made"
                )
                bound_case = dataclasses.replace(bound_case, problems=(*bound_case.problems, problem))
            self._bound_cases[key] = bound_case
            self._forget_oldest_bindings()
        return self._bound_cases[key]

    def _parsed_layers(self, spec: CaseSpec, own_bindings: str) -> ParsedLayers:
        if spec not in self._parsed_layers_by_spec:
            self._parsed_layers_by_spec[spec] = parse_layers(spec, self._layers)
        return dataclasses.replace(
            self._parsed_layers_by_spec[spec], checkpoint_bindings=parse_own_bindings(own_bindings)
        )

    def cached_bound_case(self, spec: CaseSpec, test_name: str) -> BoundCase | None:
        """Returns a case that was bound earlier, unchanged; None if it was not."""
        return self._bound_cases.get((spec, test_name, ""))

    def _forget_oldest_bindings(self) -> None:
        """Drops the oldest programs of checkpoints with their own bindings. Populations keep adding new ones."""
        own_binding_texts = list(
            dict.fromkeys(own_bindings for _, _, own_bindings in self._bound_cases if own_bindings)
        )
        if len(own_binding_texts) > _MAX_OWN_BINDINGS:
            self._bound_cases = {
                key: bound_case for key, bound_case in self._bound_cases.items() if key[2] != own_binding_texts[0]
            }
            kept_keys = {bound_case.info.whole_training_key for bound_case in self._bound_cases.values()}
            self._warm_programs = {key: program for key, program in self._warm_programs.items() if key[0] in kept_keys}

    def run(
        self,
        spec: CaseSpec,
        test_name: str,
        theta: ThetaLeaves,
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Curves:
        """Trains one seed block.

        Raises:
          WrongThreads: The case must be evaluated in another process.
          DeadlinePassed: `Case.timeout_seconds` have passed, including compilation.
          ThetaMismatch, ConfigError: Theta does not fit the optimizer, or the case cannot be bound.
        """
        timeout_seconds = self.bind(spec, test_name).case.timeout_seconds
        return self._run(spec, test_name, [theta], block, on_progress, timeout_seconds)[0]

    def run_many(
        self,
        spec: CaseSpec,
        test_name: str,
        thetas: Sequence[ThetaLeaves],
        block: SeedBlock,
        *,
        on_progress: Callable[[int], None] | None = None,
        timeout_seconds: float,
    ) -> list[Curves]:
        """Trains one seed block with each of two or more thetas in one program. Their number changes the last bits.

        The bindings of the first theta hold for all.

        Raises:
          DeadlinePassed: The time limit for all has passed.
          WrongThreads, ThetaMismatch, ConfigError: As in `run`.
        """
        curves_of_jobs = self._run(spec, test_name, thetas, block, on_progress, timeout_seconds)
        return [
            dataclasses.replace(
                curves,
                # All of them share the compilations, which are counted once.
                num_compilations=curves.num_compilations if index_in_group == 1 else 0,
                provenance=dataclasses.replace(
                    curves.provenance, together=f"{index_in_group} of {len(curves_of_jobs)}"
                ),
            )
            for index_in_group, curves in enumerate(curves_of_jobs, 1)
        ]

    def repeat(
        self, spec: CaseSpec, test_name: str, theta: ThetaLeaves, block: SeedBlock, *, together: str, perturbation: int
    ) -> Curves:
        """Trains one seed block again as for a stored result, or with perturbed parameters.

        Args:
          spec, test_name, theta, block: As in `run`.
          together: From the provenance of the result: "2 of 4" is computed second of four.
          perturbation: 0: the result has equal bits. n: the n-th training with parameters perturbed in the last place
            (`lobench.inner.training.perturbed`), each theta alone.
        Raises:
          LobenchError: As in `run`.
        """
        number, _, count = together.partition(" of ")
        seconds = self.bind(spec, test_name).case.timeout_seconds
        if perturbation:
            return self._run(spec, test_name, [theta], block, None, seconds, perturbation=perturbation)[0]
        if number.isdecimal() and count.isdecimal() and int(count) > 1:
            curves_of_jobs = self.run_many(
                spec, test_name, [theta] * int(count), block, timeout_seconds=seconds * int(count)
            )
            return curves_of_jobs[int(number) - 1]
        return self.run(spec, test_name, theta, block)

    def trace(self, spec: CaseSpec, test_name: str, block: SeedBlock) -> None:
        """Traces the training of one seed block, with shapes of theta only. Nothing is compiled or trained.

        Raises:
          ConfigError: Task and optimizer cannot be built, the program cannot be traced (the message names the value
            with a wrong type, if there is one), or the task does not have the primary metric.
        """
        where = f"{spec.path}: case {spec.name!r}"
        try:
            bound_case = self.bind(spec, test_name)
            theta: Any = {}
            if bound_case.case.optimizer is None:
                learned_optimizer = as_learned_optimizer(bound_case.case.learned_optimizer)
                theta = jax.eval_shape(lambda: learned_optimizer.init(jax.random.PRNGKey(0)))
            metrics = self._warm_program(bound_case, block.size).program.trace(
                theta, block, settings=bound_case.settings.values
            )
        except Exception as error:
            unbuilt_case = bind_case(spec, self._layers, test=test_name, build=False)
            _refuse_mistyped(unbuilt_case, error)
            if isinstance(error, LobenchError):
                raise
            lines = [line.rpartition("/")[2] for line in unbuilt_case.optimizer_bindings.splitlines()]
            advice = f"are these values right? {', '.join(lines)}"
            raise ConfigError("it cannot be traced", where=where, got=headline(error), next_step=advice) from error
        if (primary := bound_case.case.primary_metric) not in metrics:
            expected = ", ".join(sorted(metrics))
            raise ConfigError("Case.primary_metric", where=where, got=repr(primary), expected=expected)

    def parameters(self, spec: CaseSpec) -> dict[str, str]:
        """Returns the trained parameters of a case by path, each as its type and shape: `float32[64, 32]`.

        Raises:
          ConfigError: See `bind`.
        """
        bound_case = self.bind(spec, "")
        return {
            path: f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in trained_parameters(bound_case.case.task).items()
        }

    def accepts_theta(self, spec: CaseSpec, test_name: str, theta: ThetaLeaves) -> bool:
        """Returns whether the case's optimizer accepts the theta.

        Raises:
          WrongThreads: As in `run`.
          ConfigError: See `bind`.
        """
        bound_case = self.bind(spec, test_name, theta.own_bindings)
        self.claim_backend_for(bound_case)  # before `optimizer_theta`, which creates jax's backend
        try:
            self.optimizer_theta(bound_case, theta)
        except LobenchError:
            return False
        return bound_case.case.optimizer is None

    def _run(
        self,
        spec: CaseSpec,
        test_name: str,
        thetas: Sequence[ThetaLeaves],
        block: SeedBlock,
        on_progress: Callable[[int], None] | None,
        timeout_seconds: float,
        *,
        perturbation: int = 0,
    ) -> list[Curves]:
        try:
            return self._train(spec, test_name, thetas, block, on_progress, timeout_seconds, perturbation=perturbation)
        except (TypeError, ValueError) as error:
            _refuse_mistyped(self.bind(spec, test_name, thetas[0].own_bindings), error)
            raise

    def _train(
        self,
        spec: CaseSpec,
        test_name: str,
        thetas: Sequence[ThetaLeaves],
        block: SeedBlock,
        on_progress: Callable[[int], None] | None,
        timeout_seconds: float,
        *,
        perturbation: int = 0,
    ) -> list[Curves]:
        num_compiled_before = self._shared_programs.compilations.count
        bound_case = self.bind(spec, test_name, thetas[0].own_bindings)
        self.claim_backend_for(bound_case)
        program_class = PerturbedProgram if perturbation else TrainingProgram
        warm_program = self._warm_program(bound_case, block.size, program_class)
        matched_thetas = [self.optimizer_theta(bound_case, theta) for theta in thetas]
        program = warm_program.program
        result_provenance = provenance(
            bindings=bound_case.bindings, device=device_description(), folder=Path(spec.path).parent
        )
        deadline = time.monotonic() + timeout_seconds
        setting_values = bound_case.settings.values
        end_step = bound_case.case.end
        is_past_deadline = lambda: time.monotonic() > deadline  # noqa: E731
        if isinstance(program, PerturbedProgram):
            perturbed_curves = program.run_perturbed(
                matched_thetas[0],
                block,
                perturbation,
                settings=setting_values,
                end=end_step,
                should_stop=is_past_deadline,
            )
            curves_of_jobs = [perturbed_curves] if perturbed_curves is not None else None
        elif len(matched_thetas) == 1:
            block_states = self._block_states(
                bound_case, test_name, thetas[0], block, ResultProgram.of(result_provenance)
            )
            curves = program.run(
                matched_thetas[0],
                block,
                settings=setting_values,
                end=end_step,
                on_progress=on_progress,
                should_stop=is_past_deadline,
                saves=block_states,
            )
            curves_of_jobs = [curves] if curves is not None else None
        else:
            curves_of_jobs = program.run_many(
                matched_thetas,
                block,
                settings=setting_values,
                end=end_step,
                on_progress=on_progress,
                should_stop=is_past_deadline,
            )
        if curves_of_jobs is None:
            where = f"{spec.path}: case {spec.name!r}"
            raise DeadlinePassed("ran past its deadline", where=where, got=f"more than {timeout_seconds:g} s")
        num_compilations = self._shared_programs.compilations.count - num_compiled_before
        if bound_case.case.time_gradient and not perturbation and time.monotonic() < deadline:
            curves_of_jobs = self._with_gradient_cost(curves_of_jobs, bound_case, block)
        # Neither a foreign task nor a wrapper needs to have this attribute.
        directions = getattr(bound_case.case.task, "metric_directions", {})
        return [
            dataclasses.replace(
                curves,
                num_compilations=num_compilations,
                provenance=dataclasses.replace(
                    result_provenance,
                    optimizer=warm_program.stepper_maker.program_description,
                    at_once=curves.provenance.at_once,
                    bound_defaults=", ".join(bound_case.settings.bound_defaults),
                ),
                problems=(*bound_case.problems, *curves.problems),
                directions=directions_by_metric(directions, curves.metrics, where=f"{spec.path}: case {spec.name!r}"),
            )
            for curves in curves_of_jobs
        ]

    def _with_gradient_cost(
        self, curves_of_jobs: list[Curves], bound_case: BoundCase, block: SeedBlock
    ) -> list[Curves]:
        """Returns curves whose costs have the time of a bare gradient step."""
        try:
            gradient_cost = self._shared_programs.gradient_cost(
                bound_case, block, len(curves_of_jobs) if len(curves_of_jobs) > 1 else 0
            )
        except Exception as error:  # noqa: BLE001  (an error of the task, or no memory: the curves are kept)
            problem = f"the time of a gradient step was not measured: {headline(error)}"
            return [dataclasses.replace(curves, problems=(*curves.problems, problem)) for curves in curves_of_jobs]
        costs = [curves.cost and dataclasses.replace(curves.cost, gradient=gradient_cost) for curves in curves_of_jobs]
        return [dataclasses.replace(curves, cost=cost) for curves, cost in zip(curves_of_jobs, costs, strict=True)]

    def _block_states(
        self, bound_case: BoundCase, test_name: str, theta: ThetaLeaves, block: SeedBlock, program: ResultProgram
    ) -> BlockStates | None:
        """Returns the storage of the block's states. Checkpoints with their own bindings share the case's storage."""
        if self._states is None:
            return None
        sha256 = theta.sha256
        info = self.bind(bound_case.spec, test_name).info
        return BlockStates(
            folder=self._states.folder,
            prefix_hashes=[state_prefix(prefix, sha256, program.key) for prefix in bound_case.prefix_hashes],
            block=block,
            owner=state_owner(sha256, info.whole_training_key, block),
            program=str(program),
            where=f"{bound_case.spec.suite}/{bound_case.spec.name}",
            log=self._states.log,
        )

    def claim_backend_for(self, bound_case: BoundCase) -> None:
        """Creates jax's backend with the number of threads that a case requires.

        Raises:
          WrongThreads: The backend exists with another number of threads.
        """
        if not claim_backend(bound_case.case.num_cpus):
            raise wrong_threads_error(
                bound_case.case.num_cpus, f"{bound_case.spec.path}: case {bound_case.spec.name!r}"
            )

    def _warm_program(
        self, bound_case: BoundCase, num_seeds: int, program_class: type[TrainingProgram] = TrainingProgram
    ) -> WarmProgram:
        key = (bound_case.info.whole_training_key, num_seeds, program_class)
        if key not in self._warm_programs:
            self._warm_programs[key] = self._shared_programs.warm_program(bound_case, num_seeds, program_class)
        warm_program = self._warm_programs[key]
        warm_program.stepper_maker.bound_case = bound_case
        return warm_program

    def optimizer_theta(self, bound_case: BoundCase, theta: ThetaLeaves) -> object:
        """Returns theta in the structure of the case's optimizer; {} if the optimizer has none.

        Raises:
          ConfigError: The optimizer needs a theta, but `theta` has no leaves.
          ThetaMismatch: The leaves do not fit.
        """
        if bound_case.case.optimizer is not None:
            return {}
        if theta.leaves is None:
            raise ConfigError(
                "a learned optimizer needs a checkpoint",
                where=f"{bound_case.spec.path}: case {bound_case.spec.name!r}",
                next_step="give --lobench-checkpoint",
            )
        return matched_theta(theta, as_learned_optimizer(bound_case.case.learned_optimizer), bound_case.theta_part)


def _refuse_mistyped(bound_case: BoundCase, error: Exception) -> None:
    """Raises ConfigError in place of an error of a case if a binding has a value of a wrong type."""
    if (mistyped := first_mistyped(bound_case.bindings.splitlines())) is not None:
        where = f"{bound_case.spec.path}: case {bound_case.spec.name!r}"
        raise ConfigError(mistyped.path, where=where, got=mistyped.got, expected=mistyped.expected) from error
