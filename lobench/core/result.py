"""Evaluation result: outcome, curves, and their encoding as one bytes payload."""

from __future__ import annotations

import enum
import json
import math
import struct
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.film import Film
from lobench.core.metric import Direction, UnknownDirection, direction_of
from lobench.core.step_cost import StepCost
from lobench.core.training_identity import training_hash
from lobench.core.wording import headline

__all__ = ["Curves", "EvaluationKey", "Outcome", "Provenance", "exploded_seeds", "mean_of", "read_header"]

_MAGIC = b"LOB1"
_ALONE_PREFIX = "alone: "
# Fields of a provenance that are omitted if empty.
_OPTIONAL_FIELDS = ("together", "at_once", "optimizer", "imported", "evaluator", "identified_by", "bound_defaults")


class Outcome(enum.StrEnum):
    """How an evaluation ended. Divergence is data, not an outcome.

    >>> lobench.Outcome("passed") is lobench.Outcome.PASSED
    True
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    OOM = "oom"
    POISONED = "poisoned"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class EvaluationKey:
    """Identity of an evaluation: checkpoint, optimizer bindings, case, seed block, and all else that fixes the bits.

    Attributes:
      program_version: `Program.key`.
      code: `CaseInfo.code`, the user's code behind case and optimizer; "" if unknown.
    """

    checkpoint_sha256: str
    optimizer_hash: str
    case_identity: str
    seed_block: SeedBlock
    program_version: str
    code: str = ""

    @classmethod
    def of(cls, sha256: str, case: CaseInfo, block: SeedBlock, program: str) -> EvaluationKey:
        """Returns the key of an evaluation. A stored result with this key is valid for the present inputs.

        The key determines the effect of a change between two calls. `docs/identity.md` explains each row.

            Theta                                       | evaluated again
            A checkpoint file that was overwritten      | evaluated again
            The optimizer's bindings                    | evaluated again
            The optimizer's code                        | evaluated again
            The case's bindings                         | evaluated again
            The case's code                             | evaluated again
            Files that lobench does not find            | kept
            Bindings that return to earlier values      | kept
            How a case is scored                        | kept
            Data files                                  | kept with a note
            The number of seeds, or the width of blocks | evaluated again
            The first seed                              | evaluated again
            The number of cores of a case               | evaluated again
            The number of workers                       | kept
            The version of lobench's inner program      | evaluated again
            The version of lobench                      | kept
            The version of jax or jaxlib                | evaluated again
            The version of another package              | kept
            Environment variables that set jax          | evaluated again
            Other environment variables                 | kept
            The kind of device                          | evaluated again
            Another machine with the same kind          | kept
            The working directory                       | kept
            The path of the project                     | kept
            The clock                                   | kept
            The user                                    | kept
            The tuned baseline                          | kept with a note
            A store of a newer lobench                  | refused
            A published bundle                          | refused

        Args:
          sha256: Hash of theta, or of the text of an optimizer without theta.
          case: Case with its current bindings, including the hash of the optimizer's.
          block: Seeds that one program evaluates together.
          program: `Program.key` of the program that computes it: inner program, jax, jaxlib, kind of device.
        """
        return cls(
            checkpoint_sha256=sha256,
            optimizer_hash=case.optimizer_hash,
            case_identity=case.identity,
            seed_block=block,
            program_version=program,
            code=case.code,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Origin of a result. Not part of the result's identity. Its fields are keys of the stored header of `Curves`.

    Attributes:
      together: "2 of 4" for the second of four checkpoints computed by one program; "" if computed alone; "alone: ..."
        with the reason if it was planned together with others and computed alone.
      at_once: Number of trainings that a device computed at the same time, in slices. 0: all trainings of the program.
      optimizer: For an object of google/learned_optimization with a lobench class of its own, the program that ran:
        "lobench's MLPLOpt in place of ...", or "... itself: " and the reason. "" for other optimizers.
      imported: For imported curves: `file`, its `sha256`, the `kind` of file, the name of the `run` in it, the group of
        `draws` that its seeds belong to (see `lobench.analysis.store.subjects.Cell`), and the `training` if curves of
        other cases may be of the same one. Empty for other results.
      evaluator: `CaseInfo.evaluator`: "command" for the result of a case's command, "test" for that of an ordinary
        test; "" otherwise.
      identified_by: How a checkpoint that lobench does not read is identified; "" for a theta.
      bound_defaults: Real settings of the optimizer that are bound to their own defaults, such as
        "lobench.adam.b1, lobench.adam.b2". The program takes a bound value as a float32, and a default need not be one.
    """

    host: str = ""
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    git_revision: str = ""
    git_dirty: bool = False
    bindings: str = ""
    worker: str = ""
    together: str = ""
    at_once: int = 0
    optimizer: str = ""
    imported: Mapping[str, str] = field(default_factory=dict)
    evaluator: str = ""
    identified_by: str = ""
    bound_defaults: str = ""

    @property
    def revision_text(self) -> str:
        """Beginning of the git revision, with `+` if the checkout had changes."""
        return self.git_revision[:12] + "+" * bool(self.git_dirty)

    @property
    def alone_reason(self) -> str:
        """Reason why a result planned together with others was computed alone; "" otherwise."""
        return self.together.removeprefix(_ALONE_PREFIX) if self.together.startswith(_ALONE_PREFIX) else ""

    def computed_alone(self, reason: str) -> Provenance:
        return replace(self, together=f"{_ALONE_PREFIX}{reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Metrics of one seed block. Its fields are keys of the header of `to_payload`, which stores have.

    Attributes:
      seeds: Seed of each row, or the number of its item; see `lobench.core.items`.
      items: Name of the item of each row; () for seeds.
      metrics: float32[num_seeds, num_evals] by `<split>/<metric>`, as a memoryview that `numpy.asarray` converts
        without a copy; `batch/<metric>` is [num_seeds, num_logs].
      eval_steps: Inner steps of the evaluations.
      log_steps: Inner steps of `batch/<metric>`.
      diverged_at: First inner step with a non-finite loss per seed; -1 if all losses are finite.
      compile_seconds, wall_seconds: Seconds in XLA's compiler, and in running the program.
      cpu_seconds: Processor seconds of running the program, over all threads; 0 in payloads of older versions.
      ahead_seconds: Part of `compile_seconds` before the evaluation began; not 0 in payloads of older versions only.
      num_params: Number of inner parameters of the task.
      num_compilations: Number of programs that XLA compiled; 0 if the program was warm.
      resumed_at: Inner step of the saved state from which the training continued; 0 if it ran from the start. The
        seconds are always those of the whole training.
      problems: One line for each metric of a plugin that failed, and for each binding that could not be recorded.
      directions: Directions of metrics as declared by the task and by plugins.
      added: Metrics that plugins computed from others; None in payloads of older versions.
      cost: Cost of the inner steps; None for imports and in payloads of older versions.
      film: An episode of the first seed after the last step; None if the task records none.

    >>> rows = memoryview(np.array([[2.0, 1.0]], np.float32))
    >>> curves = Curves(seeds=(0,), metrics={"train/loss": rows}, eval_steps=(0, 10), diverged_at=(-1,))
    >>> curves.metrics["train/loss"].shape
    (1, 2)
    """

    seeds: tuple[int, ...]
    metrics: Mapping[str, memoryview[float]]
    eval_steps: tuple[int, ...]
    log_steps: tuple[int, ...] = ()
    diverged_at: tuple[int, ...]
    compile_seconds: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    ahead_seconds: float = 0.0
    num_params: int = 0
    num_compilations: int = 0
    resumed_at: int = 0
    provenance: Provenance = field(default_factory=Provenance)
    problems: tuple[str, ...] = ()
    directions: Mapping[str, Direction] = field(default_factory=dict)
    added: tuple[str, ...] | None = ()
    film: Film | None = None
    cost: StepCost | None = None
    items: tuple[str, ...] = ()
    _payload: bytes | None = field(default=None, init=False, repr=False, compare=False)  # payload that it was read from

    @property
    def source_payload(self) -> bytes | None:
        """Payload from which the curves were read; None if they were computed in this process."""
        return self._payload

    def complete(self) -> Curves:
        """Returns this object. For a `CurveSummary`, reads the complete curves."""
        return self

    @property
    def origin(self) -> Provenance:
        """Provenance of the result. For a `CurveSummary`, it lacks the bindings."""
        return self.provenance

    @property
    def training(self) -> str:
        """Identity of the training's data and initial parameters; "" without a task."""
        return training_hash(self.provenance.bindings)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each metric."""
        return {name: view.shape or () for name, view in self.metrics.items()}

    @property
    def num_diverged(self) -> int:
        return sum(step >= 0 for step in self.diverged_at)

    def num_exploded(self, case: CaseInfo) -> int:
        """Returns the number of seeds that exploded in the primary metric; see `exploded_seeds`."""
        return sum(self.exploded(case))

    def exploded(self, case: CaseInfo) -> list[bool]:
        """Returns for each seed whether it exploded in the primary metric; see `exploded_seeds`."""
        name = case.primary_metric
        shape = self.metrics[name].shape if name in self.metrics else None
        if shape is None or shape[1] < 2:
            return [False] * len(self.seeds)
        return exploded_seeds(case, self.first(name), self.final(name), self.diverged_at)

    def first(self, metric: str) -> list[float]:
        """Returns the value of a metric (`test/loss`) of each seed before the first inner step."""
        return self._column(metric, 0)

    def final(self, metric: str) -> list[float]:
        """Returns the last value of a metric of each seed; NaN for a seed that diverged."""
        return self._column(metric, -1)

    def best(self, metric: str) -> list[float]:
        """Returns the best finite value of each seed; NaN for a seed without one.

        Raises:
          UnknownDirection: No task or plugin declares the direction of the metric.
        """
        direction = self.direction(metric)
        if direction is None:
            raise UnknownDirection(metric)
        pick_best = max if direction is Direction.MAX else min
        rows = ([value for value in row if math.isfinite(value)] for row in self._rows(metric))
        return [pick_best(row, default=math.nan) for row in rows]

    def direction(self, metric: str) -> Direction | None:
        """Returns the direction in which a metric improves; None if it is not declared."""
        return direction_of(metric, self.directions)

    def mean(self, metric: str) -> list[float]:
        """Returns the mean of a metric over the evaluations of each seed; NaN for a seed that diverged."""
        return [mean_of(row) for row in self._rows(metric)]

    def _column(self, metric: str, step_index: int) -> list[float]:
        values: Any = self.metrics[metric]  # typeshed knows one axis
        return [values[seed, step_index] for seed in range(len(values))]

    def _rows(self, metric: str) -> list[list[float]]:
        rows: list[list[float]] = self.metrics[metric].tolist()  # type: ignore[assignment]  # typeshed knows one axis
        return rows

    def to_payload(self) -> bytes:
        """Returns one bytes object: a JSON header with shapes, then the float32 values, little-endian.

        Curves that were read from a payload return that payload.
        """
        if self._payload is not None:
            return self._payload
        names = sorted(self.metrics)
        optional_fields = {
            "cpu_seconds": self.cpu_seconds,
            "ahead_seconds": self.ahead_seconds,
            "resumed_at": self.resumed_at,
            "problems": self.problems,
            "directions": dict(self.directions),
            "film": self.film.header() if self.film is not None else None,
            "cost": self.cost.header() if self.cost is not None else None,
            "items": self.items,
        }
        origin = {name: getattr(self.provenance, name) for name in Provenance.__dataclass_fields__}
        header = {
            "version": 1,
            "seeds": self.seeds,
            "eval_steps": self.eval_steps,
            "log_steps": self.log_steps,
            "diverged_at": self.diverged_at,
            "compile_seconds": self.compile_seconds,
            "wall_seconds": self.wall_seconds,
            "num_params": self.num_params,
            "num_compilations": self.num_compilations,
            "provenance": {name: value for name, value in origin.items() if value or name not in _OPTIONAL_FIELDS},
            "added": self.added,
            "metrics": [[name, list(self.metrics[name].shape or ())] for name in names],
            **{name: value for name, value in optional_fields.items() if value},
        }
        header_bytes = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        body = b"".join(self.metrics[name].tobytes() for name in names)
        body += b"" if self.film is None else self.film.frames.tobytes()
        return _MAGIC + struct.pack("<I", len(header_bytes)) + header_bytes + body

    @classmethod
    def from_payload(cls, payload: bytes) -> Curves:
        """Reads what `to_payload` wrote.

        Raises:
          ValueError: The bytes are not a payload, or a truncated one.
        """
        header, body_start = read_header(payload)
        try:
            curves = cls._decode(header, memoryview(payload)[body_start:])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"a damaged payload: {headline(error)}") from error
        object.__setattr__(curves, "_payload", payload)
        return curves

    @classmethod
    def _decode(cls, header: Mapping[str, Any], body: memoryview) -> Curves:
        metrics, offset = {}, 0
        for name, shape in header["metrics"]:
            size = 4 * math.prod(shape)
            metrics[name] = body[offset : offset + size].cast("f", shape)
            offset += size
        return cls(
            seeds=tuple(header["seeds"]),
            metrics=types.MappingProxyType(metrics),  # read-only, because plugins receive it
            eval_steps=header["eval_steps"],
            log_steps=tuple(header["log_steps"]),
            diverged_at=tuple(header["diverged_at"]),
            compile_seconds=header["compile_seconds"],
            wall_seconds=header["wall_seconds"],
            cpu_seconds=header.get("cpu_seconds", 0.0),
            ahead_seconds=header.get("ahead_seconds", 0.0),
            num_params=header["num_params"],
            num_compilations=header["num_compilations"],
            resumed_at=header.get("resumed_at", 0),
            provenance=header["provenance"],
            problems=tuple(header.get("problems", ())),
            directions={name: Direction(value) for name, value in header.get("directions", {}).items()},
            added=tuple(added) if (added := header.get("added")) is not None else None,
            items=tuple(header.get("items", ())),
            cost=StepCost.read(cost) if (cost := header.get("cost")) is not None else None,
            film=Film.read(film, body[offset:]) if (film := header.get("film")) is not None else None,
        )


def exploded_seeds(
    case: CaseInfo, starts: Sequence[float], finals: Sequence[float], diverged_at: Sequence[int] = ()
) -> list[bool]:
    """Returns for each seed whether its loss ended finite and above twice its own first value.

    This is the only definition of an explosion. It depends only on the curves of one evaluation and the case's
    declarations, so that every output counts the same seeds. No seed explodes on a linear scale: if the case declares
    one, or if it declares none and a loss of the evaluation is below 0. Callers must leave out curves of one point,
    which have no start.

    Args:
      starts: First value of the primary metric of each seed.
      finals: Last value of each seed; NaN if the seed diverged.
      diverged_at: Step at which each seed diverged, -1 if it did not; a diverged seed did not explode. Empty: the
        finals alone show what diverged.
    """
    is_log = case.scale == "log" or (case.scale is None and case.primary_metric.rpartition("/")[2] == "loss")
    if not is_log:
        return [False] * len(finals)
    minimum = case.minimum or 0.0
    pairs = [(start - minimum, final - minimum) for start, final in zip(starts, finals, strict=True)]
    is_declared = (case.scale, case.minimum) != (None, None)
    if not is_declared and any(start < 0 or final < -1e-6 * start for start, final in pairs):
        return [False] * len(finals)
    steps = diverged_at or (-1,) * len(finals)
    return [
        step < 0 and math.isfinite(final) and start > 0 and final > 2 * start
        for (start, final), step in zip(pairs, steps, strict=True)
    ]


def mean_of(values: Sequence[float]) -> float:
    """Returns the mean, independent of the order. Infinities of both signs give NaN, where `math.fsum` would raise."""
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # infinities of both signs, or a sum that overflows
        return sum(values) / len(values)


def read_header(payload: bytes) -> tuple[dict[str, Any], int]:
    """Returns the JSON header of a payload of `Curves.to_payload`, and the offset of the values.

    `eval_steps` and `provenance` in the header are converted to the types of `Curves`.

    Raises:
      ValueError: The bytes are not such a payload, or damaged.
    """
    if payload[:4] != _MAGIC:
        raise ValueError(f"not a lobench payload: starts with {payload[:4]!r}, expected {_MAGIC!r}")
    try:
        (length,) = struct.unpack_from("<I", payload, 4)
        header: dict[str, Any] = json.loads(str(payload[8 : 8 + length], "utf-8"))
        origin = header["provenance"]
        origin["bindings"] = sys.intern(origin["bindings"])  # many evaluations have this long text in common
        header["provenance"] = Provenance(**origin)
        header["eval_steps"] = tuple(header["eval_steps"])
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise ValueError(f"a damaged payload: {headline(error)}") from error
    return header, 8 + length
