"""Baseline files: tuned baselines in a folder of their suite, as reviewable JSON with compressed curves."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from lobench.analysis.scores.score_scale import ScoreScale
from lobench.core.case import CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.metric import Direction
from lobench.core.program import PROGRAM_VERSION
from lobench.core.suite_place import BASELINES
from lobench.core.wording import headline
from lobench.engine.paths import path_exists
from lobench.engine.retries import retried_briefly
from lobench.engine.whole_file import write_whole

__all__ = [
    "Baseline",
    "BaselineCase",
    "BaselineError",
    "BaselineTraining",
    "GridPoint",
    "StaleBaseline",
    "TunedCurves",
    "baseline_files",
    "baseline_path",
    "check_baselines",
    "find_baselines",
    "training_code_id",
]

# Format 1 lacks the starts of the seeds, and the case's scale and minimum. Formats up to 2 lack `program`, and their
# `tuned` comes from the program of all points, whose optimizers got `horizon_factor` times the budget as horizon.
_FORMAT = 3


def training_code_id(phase_lines: Sequence[str]) -> str:
    """Returns an identifier of a baseline's training code: the inner program's version, and a hash of the phases."""
    phases = "\n".join(phase_lines)
    return f"{PROGRAM_VERSION}-{hashlib.sha256(phases.encode()).hexdigest()[:10]}" if phases else PROGRAM_VERSION


class BaselineError(LobenchError):
    """Error raised if a baseline file cannot be read, or does not contain the case."""


class StaleBaseline(BaselineError):
    """Error raised if a case changed after its baseline was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPoint:
    """Result of one setting of the optimizer.

    Attributes:
      values: Value of each hyperparameter.
      study: Index of the study. The best point of each study wins.
      final: Seed mean of the final `train/loss` at the case's own budget; NaN if a seed diverged.
      num_diverged: Number of seeds that met a non-finite loss within the case's own budget.
    """

    values: Mapping[str, float]
    study: int
    final: float
    num_diverged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTraining:
    """How the settings of a baseline were trained.

    Attributes:
      num_inner_steps: Budget of the case, and the optimizer's horizon. The baseline ran `horizon_factor` times as long.
      horizon_factor: Training length divided by the budget. 1 for a case of phases, and if the optimizer asks for its
        horizon.
      eval_every: Inner steps between the evaluations of which the envelope is made.
      program: Identifier of the training code (`training_code_id`); "" in older files.
      is_told_horizon: Whether the optimizer asks for its horizon, as schedules do. Beyond the budget it would train at
        its last learning rate.
      code: `CaseInfo.task_code` at the time it was made; "" in older files, and if the task is lobench's.
    """

    num_inner_steps: int
    horizon_factor: int
    eval_every: int
    program: str = PROGRAM_VERSION
    is_told_horizon: bool = False
    code: str = ""

    @property
    def horizon(self) -> int:
        return self.num_inner_steps * self.horizon_factor

    @property
    def ends_with_budget(self) -> bool:
        """Whether training ends with the case's own budget, because of a schedule or phases."""
        return self.is_told_horizon or "-" in self.program

    @property
    def is_current(self) -> bool:
        """Whether the baseline was trained by the inner program of this lobench version."""
        return self.program.partition("-")[0] == PROGRAM_VERSION

    def matches_code(self, task_code: str) -> bool:
        """Returns whether it was trained by the given version of a task's code. Unknown versions count as equal."""
        return not self.code or not task_code or self.code == task_code


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedCurves:
    """Training curves of a tuned baseline on a case.

    Attributes:
      steps: Inner steps of `means`, int[n], from 0 to the horizon and including the case's own budget.
      means: Seed mean of each metric for the (first study's) best setting, float32[n].
      envelope: Running minimum of the lowest smoothed seed mean of `train/loss` over the settings at each step,
        float32[512]: VeLO's per-step oracle. Its steps are `BaselineCase.envelope_steps`.
    """

    steps: np.ndarray
    means: Mapping[str, np.ndarray]
    envelope: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCase:
    """The tuned baseline of one case.

    Attributes:
      problem: `CaseInfo.problem` at the time it was made.
      training: How the settings were trained.
      seeds: Seeds, common with the suite's.
      grid: All settings that were tried, trained in one program.
      best: Index of the setting with the lowest `GridPoint.final`, for each study. NaN is worst.
      untrained: Seed mean of each metric at inner step 0.
      tuned: Value of each metric for each seed at the case's own budget: the mean over the studies' best settings. Each
        setting is evaluated alone, like any method with these seeds in one block. In a wider program the last bits of a
        step would differ, and such differences grow with the steps.
      curves: Curves of the settings.
      starts: Value of each metric for each seed at inner step 0. Empty in files of format 1.
      scale, minimum: Scale and minimum of the primary metric's scores, as in `Case`.
    """

    problem: str
    training: BaselineTraining
    seeds: tuple[int, ...]
    grid: tuple[GridPoint, ...]
    best: tuple[int, ...]
    untrained: Mapping[str, float]
    tuned: Mapping[str, tuple[float, ...]]
    curves: TunedCurves
    starts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    scale: str | None = None
    minimum: float | None = None

    @property
    def envelope_steps(self) -> np.ndarray:
        return np.linspace(0, self.training.horizon, len(self.curves.envelope))

    def tuned_mean(self, metric: str) -> float:
        return float(np.mean(self.tuned[metric]))

    def score_scale(self, metric: str, direction: Direction | None, *, is_primary: bool) -> ScoreScale:
        """Returns the score scale of a metric. `scale` and `minimum` apply to the case's primary metric only."""
        declared = (self.scale or "") if is_primary else ""
        return ScoreScale.of_baseline(
            metric,
            direction,
            untrained=self.untrained[metric],
            tuned=self.tuned[metric],
            starts=self.starts.get(metric, ()),
            curve=self.curves.means.get(metric, ()),
            declared=declared,
            minimum=self.minimum if is_primary else None,
        )

    def has_scoring(self, scale: str | None, minimum: float | None) -> bool:
        """Returns whether its scale and minimum equal those of the case."""
        return (self.scale, self.minimum) == (scale, minimum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A baseline file: one optimizer, tuned on the cases of one suite by one protocol.

    Attributes:
      optimizer: Name of the optimizer in gin.
      protocol: Name of the grid.
      refresh: Command that makes the file again.
      program_version: Version of the inner program that made it.
      provenance: Device, versions, git revision.
      cases: Tuned baselines, by `FILE.gin:SCOPE`.
    """

    optimizer: str
    protocol: str
    refresh: str
    program_version: str = PROGRAM_VERSION
    provenance: Mapping[str, Any] = field(default_factory=dict)
    cases: Mapping[str, BaselineCase] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"tuned {self.optimizer}" + ("" if self.protocol == "velo" else f" ({self.protocol})")

    def has_problem(self, problem: str) -> bool:
        return self.program_version == PROGRAM_VERSION and any(case.problem == problem for case in self.cases.values())

    def find_case(self, problem: str, name: str) -> BaselineCase | None:
        """Returns the baseline of a problem, or None.

        If several cases share the problem, the one with this name is preferred.
        """
        cases_of_problem = {key: case for key, case in self.cases.items() if case.problem == problem}
        namesakes = (case for key, case in cases_of_problem.items() if _names_case(key, name))
        return next(namesakes, next(iter(cases_of_problem.values()), None))

    def case(self, info: CaseInfo) -> BaselineCase:
        """Returns the baseline of a case.

        Raises:
          StaleBaseline: The case or the inner program changed after the baseline was made.
          BaselineError: The file has no baseline of the case.
        """
        baseline_case = self.find_case(info.problem, info.name)
        suite_folder = shlex.quote(str(Path(info.node_id.split("::")[0]).parent))
        has_name = any(_names_case(key, info.name) for key in self.cases)
        has_name &= self._suite in ("", info.suite)  # a case with that name in another suite is different
        where = f"{info.suite}/{info.name}"
        if baseline_case is None and not has_name:
            raise BaselineError(
                f"{self.label} has no such case", where=where, next_step=f"run `lobench baseline {suite_folder}`"
            )
        if baseline_case is None or self.program_version != PROGRAM_VERSION or not baseline_case.training.is_current:
            change = "the case changed" if baseline_case is None else "the inner program changed"
            if baseline_case is not None and not baseline_case.training.program:
                change = "what lobench trains a baseline with changed"  # a schedule's horizon, phases
            raise StaleBaseline(
                f"the baseline {self.label} is stale: {change} since it was made",
                where=where,
                next_step=f"run `{self.refresh}`",
            )
        if not baseline_case.training.matches_code(info.task_code):
            raise StaleBaseline(
                f"the baseline {self.label} is stale: the code of the task was edited since it was made",
                where=where,
                next_step=f"run `{self.refresh}`",
            )
        return baseline_case

    @property
    def _suite(self) -> str:
        """Name of the suite in the command that made the file; "" if it names none."""
        suite_arguments = shlex.split(self.refresh)[2:3]
        path = Path(suite_arguments[0]) if suite_arguments else Path()
        return path.parent.name if path.suffix == ".gin" else path.name

    def save(self, path: Path) -> None:
        """Writes the file atomically."""
        record = {
            "format": _FORMAT,
            "optimizer": self.optimizer,
            "protocol": self.protocol,
            "refresh": self.refresh,
            "program_version": self.program_version,
            "provenance": dict(self.provenance),
            "cases": {name: _case_record(case) for name, case in sorted(self.cases.items())},
        }
        write_whole(path, _json_text(record) + "\n")

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Reads a baseline file.

        Raises:
          BaselineError: The file is not readable, not a baseline file, or written by a newer lobench.
        """
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            version = record.pop("format")
            if version > _FORMAT:
                raise BaselineError(
                    "written by a newer lobench", where=str(path), got=f"format {version}", next_step="upgrade lobench"
                )
            cases = {name: _case_from_record(case) for name, case in record.pop("cases").items()}
            return cls(cases=cases, **record)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise BaselineError("cannot read the baseline", where=str(path), got=headline(error)) from error


def baseline_path(suite: Path, optimizer: str, protocol: str) -> Path:
    """Returns the path of the baseline file of a suite, which is a folder or a gin file in one."""
    folder = suite if path_exists(suite, kind="folder") else suite.parent
    return folder / BASELINES / f"{optimizer}-{protocol}.json"


def find_baselines(suite: Path) -> list[Path]:
    """Returns the baseline files of a suite: tuned Adam's first, with the default grid before others."""
    folder = (suite if path_exists(suite, kind="folder") else suite.parent) / BASELINES

    def place(path: Path) -> tuple[bool, bool, str]:
        return path.name != "adam-velo.json", not path.name.startswith("adam-"), path.name

    return sorted(retried_briefly(lambda: list(folder.glob("*.json"))), key=place)


def check_baselines(suite_paths: Iterable[Path]) -> None:
    """Reads all baseline files, so that broken ones fail before an evaluation starts.

    Args:
      suite_paths: Suites, or baseline files.

    Raises:
      BaselineError: A file cannot be read.
    """
    for file in baseline_files(suite_paths):
        Baseline.load(file)


def baseline_files(suite_paths: Iterable[Path]) -> list[Path]:
    """Returns the baseline files of suites, in the order of `find_baselines`, or the files themselves.

    Args:
      suite_paths: Suites, or baseline files.
    """
    return [
        path
        for folder_or_file in suite_paths
        for path in ([folder_or_file] if folder_or_file.suffix == ".json" else find_baselines(folder_or_file))
    ]


def _names_case(key: str, name: str) -> bool:
    """Returns whether a key such as `mlp.gin:relu32` names the case `relu32`, or `mlp.relu32` if two files have one."""
    case_name = key.partition(":")[2]
    return name == case_name or name.endswith(f".{case_name}")


def _case_record(case: BaselineCase) -> dict[str, Any]:
    plain = asdict(case.training) | {name: getattr(case, name) for name in _CASE_FIELDS}
    record: dict[str, Any] = {name: plain[name] for name in _PLAIN_FIELDS if name != "code" or plain["code"]}
    record["grid"] = [asdict(point) for point in case.grid]
    record["untrained"] = _rounded_values(case.untrained)
    for name in ("starts", "tuned"):
        values_by_metric: Mapping[str, Sequence[float]] = getattr(case, name)
        record[name] = {
            metric: [_rounded_or_none(value) for value in values] for metric, values in sorted(values_by_metric.items())
        }
    curves = case.curves
    record["curves"] = sorted(curves.means)
    record["num_curve_steps"] = len(curves.steps)
    arrays = [curves.steps, *(curves.means[name] for name in record["curves"]), curves.envelope]
    body = np.concatenate([np.asarray(array, "<f4") for array in arrays]).tobytes()
    record["compressed"] = base64.b64encode(zlib.compress(body, 9)).decode("ascii")
    return record


_CASE_FIELDS = ("problem", "seeds", "best", "scale", "minimum")
_PLAIN_FIELDS = (
    "problem",
    "program",
    "code",
    "num_inner_steps",
    "horizon_factor",
    "is_told_horizon",
    "eval_every",
    "seeds",
    "best",
    "scale",
    "minimum",
)


def _case_from_record(record: Mapping[str, Any]) -> BaselineCase:
    count, names = record["num_curve_steps"], record["curves"]
    values = np.frombuffer(zlib.decompress(base64.b64decode(record["compressed"])), "<f4")
    rows = values[: count * (len(names) + 1)].reshape(len(names) + 1, count)
    record = {"program": "", "is_told_horizon": False, "code": "", **record}  # an older file
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value := record.get(name), list) else value for name in _PLAIN_FIELDS
    }
    training = BaselineTraining(**{each.name: plain.pop(each.name) for each in fields(BaselineTraining)})
    points = ({name: point[name] for name in (f.name for f in fields(GridPoint))} for point in record["grid"])
    return BaselineCase(
        **plain,
        training=training,
        grid=tuple(GridPoint(**{**point, "final": _number_or_nan(point["final"])}) for point in points),
        untrained={name: _number_or_nan(value) for name, value in record["untrained"].items()},
        tuned={name: tuple(_number_or_nan(value) for value in row) for name, row in record["tuned"].items()},
        starts={name: tuple(_number_or_nan(value) for value in row) for name, row in record.get("starts", {}).items()},
        curves=TunedCurves(
            steps=np.rint(rows[0]).astype(np.int64),
            means=dict(zip(names, rows[1:], strict=True)),
            envelope=values[count * (len(names) + 1) :],
        ),
    )


def _rounded_or_none(value: float) -> float | None:
    # float32 round-trips in nine digits.
    return float(f"{value:.9g}") if np.isfinite(value) else None


def _number_or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _rounded_values(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _rounded_or_none(value) for name, value in sorted(values.items())}


def _json_text(record: Mapping[str, Any]) -> str:
    """Returns JSON with one line for each list of numbers and each point of a grid, so that diffs are readable."""

    def text(value: Any, indent: str) -> str:
        deeper = indent + " "
        if isinstance(value, Mapping) and any(isinstance(item, Mapping | list | tuple) for item in value.values()):
            lines = [f"{deeper}{json.dumps(key)}: {text(item, deeper)}" for key, item in value.items()]
            return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
        if isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(i, Mapping) for i in value):
            return "[\n" + ",\n".join(f"{deeper}{_json_line(item)}" for item in value) + f"\n{indent}]"
        return _json_line(value)

    return text(record, "")


def _json_line(value: Any) -> str:
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return _rounded_or_none(value) if isinstance(value, float) else value
