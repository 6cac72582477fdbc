"""The AlgoPerf score from logs of evaluations, by the rules of 0.5 or 0.6, for either tuning track.

The rules, in this order:

1. For each submission, workload and study, the time is that of the trial that reaches the validation target with the
   fewest evaluations within the budget. The submission's time is the median over the studies in the log. It is
   infinite if the target is missed. A study of self-tuning has one trial and a larger budget.
2. A held-out variant is missed if its base workload was missed.
3. A time above 4 times the fastest submission's on the workload is a miss.
4. A base workload is missed if its held-out variant was missed.
5. The score is the integral of the ratio profile over the base workloads, from 1 to 4, divided by 3.

0.6 has no held-out workloads, so rules 2 and 4 do not apply. Evaluations whose value or time is not finite, or whose
time is below 0, are ignored.

Source: Dahl et al. 2023, section 4; docs/DOCUMENTATION.md of mlcommons/algorithmic-efficiency @2c90454f (0.6), and its
DOCUMENTATION.md of July 2024 (0.5).
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.analysis.stats.profiles import ratio_profile_score, time_ratios

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RULES",
    "AlgoPerfRules",
    "AlgoPerfScores",
    "Removal",
    "SubmissionScore",
    "Targets",
    "WorkloadTarget",
    "WorkloadTime",
    "score_log",
]

MAX_RATIO = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgoPerfRules:
    """Rules of one version of the benchmark.

    Attributes:
      version: Version of the benchmark.
      num_studies: Number of studies of each workload.
      num_trials: Number of trials of a study of external tuning. A study of self-tuning has one.
      budgets: Submission time of a trial of external tuning in seconds, by base workload. A variant has the budget of
        its base workload.
      self_tuning_factor: Budget of self-tuning divided by the budget of external tuning.
      has_held_out: Whether held-out variants gate their base workloads.
    """

    version: str
    num_studies: int
    num_trials: int
    budgets: Mapping[str, float]
    self_tuning_factor: float
    has_held_out: bool

    def for_self_tuning(self) -> AlgoPerfRules:
        """Returns the rules of the self-tuning track."""
        budgets = {name: seconds * self.self_tuning_factor for name, seconds in self.budgets.items()}
        return dataclasses.replace(self, num_trials=1, budgets=budgets)

    def scored_targets(self, targets: Targets, workloads: Collection[str]) -> Targets:
        """Returns the targets of the workloads that are scored for a log with these workloads.

        0.6's own file of targets contains a language model that its rules do not list and its leaderboard does not
        score. Such a workload is scored only if the log contains it.
        """
        held_out = targets.base_by_variant if self.has_held_out else {}
        base = tuple(name for name in targets.base_workloads if name in self.budgets or name in workloads)
        return dataclasses.replace(targets, base_workloads=base, base_by_variant=held_out) if base else targets


RULES = {
    rules.version: rules
    for rules in (
        AlgoPerfRules(
            version="0.5",
            num_studies=5,
            num_trials=5,
            budgets={
                "criteo1tb": 7_703,
                "fastmri": 8_859,
                "imagenet_resnet": 63_008,
                "imagenet_vit": 77_520,
                "librispeech_conformer": 61_068,
                "librispeech_deepspeech": 55_506,
                "ogbg": 18_477,
                "wmt": 48_151,
            },
            self_tuning_factor=3.0,
            has_held_out=True,
        ),
        AlgoPerfRules(
            version="0.6",
            num_studies=3,
            num_trials=5,
            budgets={
                "criteo1tb": 7_703,
                "fastmri": 4_430,
                "imagenet_resnet": 66_159,
                "imagenet_vit": 69_768,
                "librispeech_conformer": 58_015,
                "librispeech_deepspeech": 44_405,
                "ogbg": 12_011,
                "wmt": 43_336,
            },
            self_tuning_factor=1.5,
            has_held_out=False,
        ),
    )
}


class Removal(enum.StrEnum):
    """Rule that removed a workload from a submission's score."""

    NO_EVALUATION = "no evaluation in the log"
    NOT_REACHED = "target not reached in the median study"
    BASE_MISSED = "base workload missed"
    TOO_SLOW = "more than 4 times the fastest"
    HELD_OUT_MISSED = "held-out variant missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTarget:
    """Value that a workload's evaluations must reach.

    Attributes:
      metric: Name of the metric.
      value: Target value.
      higher_is_better: Whether higher values are better.
    """

    metric: str
    value: float
    higher_is_better: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Workloads that are scored, the held-out variants that gate them, and their targets.

    Attributes:
      base_workloads: Names of the base workloads.
      base_by_variant: Base workload of each held-out variant.
      targets: Targets by workload, at least of all bases and variants.
      version: Version of the benchmark; "" if the file does not state it.
    """

    base_workloads: tuple[str, ...]
    base_by_variant: Mapping[str, str]
    targets: Mapping[str, WorkloadTarget]
    version: str = ""

    @property
    def workload_names(self) -> tuple[str, ...]:
        return (*self.base_workloads, *self.base_by_variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTime:
    """Result of one submission on one workload.

    Its fields are keys of the JSON document of `lobench score`.

    Attributes:
      held_out: Whether the workload is held out: a variant of a scored one, which can only remove it.
      seconds: Median over the studies of the time to the target, before any rule. Infinite if it was not reached.
      ratio: Time relative to the fastest submission that was not removed. Infinite if the workload is removed.
      studies, studies_that_reached: Number of studies in the log, and of those that reached the target.
      trials: Number of trials of the study with the fewest; 0 without a study.
      removed_by: Rule that removed the workload; None if it counts.
      cause: Workload whose miss removed this one, with the rule that removed that workload; else "".
    """

    held_out: bool
    seconds: float
    ratio: float
    studies: int
    studies_that_reached: int
    trials: int
    removed_by: Removal | None
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionScore:
    """Score of a submission, with its result on every workload, including held-out ones."""

    score: float
    workloads: Mapping[str, WorkloadTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgoPerfScores:
    """Scores by submission, highest first, and counts of evaluations that were ignored.

    Attributes:
      submissions: Scores by submission, highest first.
      ignored_workloads: Number of evaluations of each workload that is neither scored nor a gate.
      num_evaluations: Number of evaluations in the log.
      num_not_finite: Number of evaluations without a finite value, time or step, or with a time below 0.
      num_repeated: Number of evaluations of a step that the log already contains.
      num_past_budget: Number of evaluations after the budget.
      targets: Targets of the workloads that were scored or gated others.
    """

    submissions: Mapping[str, SubmissionScore]
    ignored_workloads: Mapping[str, int]
    num_evaluations: int
    num_not_finite: int
    num_repeated: int
    num_past_budget: int
    targets: Targets


def score_log(log: pd.DataFrame, targets: Targets, rules: AlgoPerfRules | None = None) -> AlgoPerfScores:
    """Scores every submission of a log.

    Args:
      log: Evaluations, with the columns submission, study, workload, trial, global_step, time (s) and val_metric. Each
        name must have a single spelling.
      targets: Targets of the workloads.
      rules: Rules of the version and the track. None: no budgets, and every workload of the targets is scored.

    Raises:
      ValueError: The log contains no submission.
    """
    submissions = sorted(set(log["submission"]))
    if not submissions:
        raise ValueError("the log holds no evaluation")
    if rules is not None:
        targets = rules.scored_targets(targets, set(log["workload"]))
    scored_log = log[log["workload"].isin(targets.workload_names)]
    ignored_counts = log.loc[~log["workload"].isin(targets.workload_names), "workload"].value_counts()
    finite_rows = scored_log[
        np.isfinite(scored_log[["val_metric", "time", "global_step"]]).all(axis=1) & (scored_log["time"] >= 0)
    ]
    trial_columns = ["submission", "study", "workload", "trial"]
    budgets = rules.budgets if rules is not None else {}
    budget_seconds = finite_rows["workload"].map(
        {name: budgets.get(targets.base_by_variant.get(name, name)) for name in targets.workload_names}
    )
    rows_in_time = finite_rows[~(finite_rows["time"] > budget_seconds.astype(float))]
    usable_rows = rows_in_time.sort_values([*trial_columns, "global_step", "time"]).drop_duplicates(
        [*trial_columns, "global_step"]
    )
    studies = _studies(scored_log)
    num_trials = scored_log.groupby(["submission", "workload", "study"])["trial"].nunique()
    times_by_study = _study_times(usable_rows, trial_columns, targets)
    medians = {
        key: float(np.median([times_by_study.get((*key, study), math.inf) for study in names_of_studies]))
        for key, names_of_studies in studies.items()
    }
    times = np.array([[medians.get((s, w), math.inf) for w in targets.workload_names] for s in submissions])
    removals = _removals(times, targets, [[(s, w) in studies for w in targets.workload_names] for s in submissions])
    remaining_times = np.where(removals == None, times, math.inf)  # noqa: E711  (elementwise: which cells hold no rule)
    ratios = time_ratios(remaining_times)
    scores = ratio_profile_score(ratios[:, : len(targets.base_workloads)], max_ratio=MAX_RATIO)
    scores_by_name = {}
    for row in np.argsort(-scores, kind="stable"):
        name = submissions[row]
        workloads = {}
        for column, workload in enumerate(targets.workload_names):
            key = (name, workload)
            workloads[workload] = WorkloadTime(
                held_out=workload in targets.base_by_variant,
                seconds=times[row, column],
                ratio=ratios[row, column],
                removed_by=removals[row, column],
                cause=_cause(removals[row], column, targets),
                studies=len(studies.get(key, ())),
                studies_that_reached=sum((*key, study) in times_by_study for study in studies.get(key, ())),
                trials=min((int(num_trials[(*key, study)]) for study in studies.get(key, ())), default=0),
            )
        scores_by_name[name] = SubmissionScore(score=float(scores[row]), workloads=workloads)
    return AlgoPerfScores(
        submissions=scores_by_name,
        ignored_workloads={str(name): int(count) for name, count in ignored_counts.items()},
        num_evaluations=len(log),
        num_not_finite=len(scored_log) - len(finite_rows),
        num_repeated=len(rows_in_time) - len(usable_rows),
        num_past_budget=len(finite_rows) - len(rows_in_time),
        targets=targets,
    )


def _studies(log: pd.DataFrame) -> dict[tuple[str, str], list[str]]:
    """Returns the studies in the log, by submission and workload."""
    log_studies: dict[tuple[str, str], list[str]] = {}
    names = ["submission", "workload", "study"]
    for submission, workload, study in log[names].drop_duplicates().itertuples(index=False):
        log_studies.setdefault((submission, workload), []).append(study)
    return log_studies


def _study_times(
    usable_rows: pd.DataFrame, trial_columns: list[str], targets: Targets
) -> dict[tuple[str, str, str], float]:
    """Returns the time of each (submission, workload, study) that reached its target."""
    values = {name: target.value for name, target in targets.targets.items()}
    signs = {name: 1.0 if target.higher_is_better else -1.0 for name, target in targets.targets.items()}
    # Without any evaluation pandas would make strings.
    target_values, target_signs = (
        usable_rows["workload"].map(workload_values).astype(float) for workload_values in (values, signs)
    )
    numbered_rows = usable_rows.assign(evaluation=usable_rows.groupby(trial_columns).cumcount())
    rows_on_target = numbered_rows[target_signs * usable_rows["val_metric"] >= target_signs * target_values]
    # First evaluation of a trial that reaches the target, then the trial with the fewest, and on ties the shorter time.
    first_rows = rows_on_target.sort_values(["evaluation", "time"]).drop_duplicates(["submission", "workload", "study"])
    return {
        (submission, workload, study): float(time)
        for submission, workload, study, time in first_rows[["submission", "workload", "study", "time"]].itertuples(
            index=False
        )
    }


def _removals(times: np.ndarray, targets: Targets, in_log: Sequence[Sequence[bool]]) -> np.ndarray:
    """Returns the rule that removed each workload, or None: object[num_submissions, num_workloads]."""
    removals: np.ndarray = np.full(times.shape, None, object)
    is_missing = ~np.asarray(in_log, bool)
    removals[np.isinf(times)] = Removal.NOT_REACHED
    removals[is_missing] = Removal.NO_EVALUATION
    column_by_workload = {name: column for column, name in enumerate(targets.workload_names)}
    for variant, base in targets.base_by_variant.items():
        newly_removed = _is_removed(removals[:, column_by_workload[base]]) & ~_is_removed(
            removals[:, column_by_workload[variant]]
        )
        removals[newly_removed, column_by_workload[variant]] = Removal.BASE_MISSED
    remaining_times = np.where(_is_removed(removals), math.inf, times)
    removals[(remaining_times > MAX_RATIO * remaining_times.min(axis=0)) & np.isfinite(remaining_times)] = (
        Removal.TOO_SLOW
    )
    for variant, base in targets.base_by_variant.items():
        newly_removed = _is_removed(removals[:, column_by_workload[variant]]) & ~_is_removed(
            removals[:, column_by_workload[base]]
        )
        removals[newly_removed, column_by_workload[base]] = Removal.HELD_OUT_MISSED
    return removals


def _is_removed(removals: np.ndarray) -> Any:
    return removals != None  # noqa: E711  (elementwise)


def _cause(rules_of_row: np.ndarray, column: int, targets: Targets) -> str:
    """Returns the workloads with a missed target because of which a workload was removed, with the rules; else ""."""
    name = targets.workload_names[column]
    if rules_of_row[column] is Removal.BASE_MISSED:
        related_names = [targets.base_by_variant[name]]
    elif rules_of_row[column] is Removal.HELD_OUT_MISSED:
        related_names = [variant for variant, base in targets.base_by_variant.items() if base == name]
    else:
        return ""
    removals = [
        (related_name, rules_of_row[targets.workload_names.index(related_name)]) for related_name in related_names
    ]
    return "; ".join(f"{related_name}: {rule}" for related_name, rule in removals if rule is not None)
