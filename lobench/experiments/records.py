"""JSON records of `lobench run`: its plan and its end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from lobench.cli.command_records import EndingRecord, ending_record
from lobench.core.experiment import MethodKind
from lobench.core.json_numbers import Finite, record_from
from lobench.core.search.search import TrialState
from lobench.report.tables.method_table import MethodRecord, method_records

if TYPE_CHECKING:
    from lobench.experiments.check import ExperimentPlan
    from lobench.experiments.run import ExperimentOutcome

__all__ = ["PlanRecord", "RanRecord", "TunePlanRecord", "TunePrintRecord", "TuneRecord", "plan_record", "ran_record"]


class RanRecord(EndingRecord):
    """`lobench run`: outcome of an experiment."""

    store: Path
    experiment: str
    num_planned: int
    num_done: Annotated[int, "Number of planned evaluations in the store."]
    trials: Annotated[dict[str, TrialState], "State of each session of a command."]
    refused: Annotated[dict[str, str], "Reason why a method could not be evaluated, by its title."]
    utilisation: str
    methods: list[MethodRecord]


class PlannedMethod(TypedDict):
    method: str
    kind: MethodKind
    subject: str
    num_planned: int
    num_missing: int
    num_reported: Annotated[int, "Number of evaluations of the best trial on fresh seeds."]
    num_trainings: int
    num_trials: int
    core_seconds: Finite
    cases_never_run: Annotated[list[str], "Cases without a recorded duration. They are not included in `core_seconds`."]


class PlanRecord(TypedDict):
    """JSON output of `lobench run --check`: planned evaluations and their cost."""

    store: Path
    num_cases: int
    num_planned: int
    num_missing: int
    core_seconds: Annotated[Finite, "Core seconds of the missing evaluations, estimated from recorded durations."]
    max_cores: int
    wall_seconds: Finite
    unbound: Annotated[list[str], "With `--offline`: methods whose bindings were not checked."]
    methods: list[PlannedMethod]


class TunePrintRecord(TypedDict):
    """`lobench tune --print`: the experiment."""

    gin: Annotated[str, "Experiment as a gin file."]


class TuneRecord(TunePrintRecord, RanRecord):
    """`lobench tune`: its outcome."""


class TunePlanRecord(TunePrintRecord, PlanRecord):
    """JSON output of `lobench tune --check`: planned evaluations and their cost."""


def ran_record(outcome: ExperimentOutcome) -> RanRecord:
    """Returns the JSON output of `lobench run`. `methods` is empty if no evaluation was done."""
    from lobench.analysis.tables.tabulate import tabulate_store

    methods = method_records(tabulate_store(outcome.store, outcome.name)) if outcome.num_done else []
    return record_from(RanRecord, outcome, experiment=outcome.name, **ending_record(outcome.ending), methods=methods)


def plan_record(plan: ExperimentPlan, max_cores: int) -> PlanRecord:
    """Returns the JSON output of `lobench run --check`."""
    seconds = plan.seconds
    return {
        "store": plan.store,
        "num_cases": plan.num_cases,
        "num_planned": plan.num_planned,
        "num_missing": plan.num_missing,
        "core_seconds": seconds,
        "max_cores": max_cores,
        "wall_seconds": seconds / max_cores,
        "unbound": list(plan.unbound),
        "methods": [
            {
                "method": method.method.title,
                "kind": method.method.kind,
                "subject": "; ".join((method.method.entry, *method.method.bindings)),
                "num_planned": method.num_planned,
                "num_missing": method.num_missing,
                "num_reported": method.num_reported,
                "num_trainings": method.num_trainings,
                "num_trials": method.num_trials,
                "core_seconds": method.seconds,
                "cases_never_run": sorted(method.cases_without_duration),
            }
            for method in plan.methods
        ],
    }
