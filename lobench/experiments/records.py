"""JSON records of `lobench run`: its plan and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lobench.cli.records import ending_record

if TYPE_CHECKING:
    from lobench.experiments.check import ExperimentPlan
    from lobench.experiments.run import Ran

__all__ = ["plan_record", "ran_record"]

Record = dict[str, Any]


def ran_record(ran: Ran) -> Record:
    """Returns how an experiment ended, and its table of methods and cases as far as there is one."""
    from lobench.analysis.tables.tabulate import tabulate_store
    from lobench.report.tables.method_table import method_records

    return {
        "store": ran.store,
        "experiment": ran.name,
        "num_planned": ran.num_planned,
        "num_done": ran.num_done,
        **ending_record(ran.ending),
        "trials": dict(ran.trials),
        "utilisation": ran.utilisation,
        "methods": method_records(tabulate_store(ran.store, ran.name)) if ran.num_done else [],
    }


def plan_record(plan: ExperimentPlan, max_cores: int) -> Record:
    """Returns what an experiment would run."""
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
                "method": one.method.title,
                "kind": one.method.kind,
                "subject": "; ".join((one.method.named, *one.method.bindings)),
                "num_planned": one.num_planned,
                "num_missing": one.num_missing,
                "num_reported": one.num_reported,
                "num_trainings": one.num_trainings,
                "num_trials": one.num_trials,
                "core_seconds": one.seconds,
                "cases_never_run": sorted(one.unknown),
            }
            for one in plan.methods
        ],
    }
