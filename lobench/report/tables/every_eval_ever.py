"""Records of Every Eval Ever: a JSON file for each checkpoint or optimizer of a store.

Source: `eval.schema.json` of the package every-eval-ever, version 0.3.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.subjects import StoredSubject
from lobench.core.case import CaseInfo
from lobench.core.metric import Direction

__all__ = ["every_eval_ever_records"]

_SCHEMA = "0.3.0"


def every_eval_ever_records(summary: Summary) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields a name for a file and the record of each subject that has a finite value.

    A case has two results: the mean over seeds of its primary metric, and the score with its 95% interval. Results that
    are not finite are left out, because the format can name diverged seeds in the details only.
    """
    last_times: dict[str, float] = {}
    for row in summary.snapshot.rows:
        for subject in row.recorded_sightings:
            last_times[subject.sha256] = max(last_times.get(subject.sha256, 0.0), row.recorded_at)
    for index, stored_subject in enumerate(summary.snapshot.subjects):
        results = [
            case_result
            for case in range(len(summary.snapshot.cases))
            for case_result in _case_results(summary, index, case)
        ]
        if results:
            timestamp = f"{last_times.get(stored_subject.subject.sha256, 0.0):.0f}"
            yield (
                f"{index}-{stored_subject.subject.sha256[:12]}",
                _record(summary.snapshot.labels[index], stored_subject, results, timestamp),
            )


def _record(label: str, stored_subject: StoredSubject, results: list[dict[str, Any]], timestamp: str) -> dict[str, Any]:
    # The hash of an optimizer without theta includes its bindings.
    bindings = stored_subject.subject.variant.key if stored_subject.subject.has_theta else ""
    model = f"lobench/{'-'.join(filter(None, [stored_subject.subject.sha256[:12], bindings]))}"
    details = {"deployment_type": "self_deployed", "model_availability": "unknown", "kind": stored_subject.subject.kind}
    if stored_subject.subject.has_theta:
        details["sha256"] = stored_subject.subject.sha256
    if (outer_step := stored_subject.subject.known_outer_step) is not None:
        details["outer_step"] = str(outer_step)
    if stored_subject.subject.variant.bindings:
        details["bindings"] = "\n".join(stored_subject.subject.variant.bindings)
    return {
        "schema_version": _SCHEMA,
        "evaluation_id": f"lobench/{model}/{timestamp}",
        "evaluation_timestamp": timestamp,
        "retrieved_timestamp": timestamp,
        "source_metadata": {
            "source_name": "lobench",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "lobench", "version": version("lobench")},
        "model_info": {"name": label, "id": model, "additional_details": details},
        "evaluation_results": results,
    }


def _case_results(summary: Summary, subject_index: int, case_index: int) -> Iterator[dict[str, Any]]:
    finding = summary.case_finding(subject_index, case_index, None)
    if finding is None:
        return
    info = summary.snapshot.cases[case_index]
    metric = summary.metric_of(case_index, "primary")
    direction = summary.scales.direction(info, metric)
    details = {"diverged_seeds": str(finding.num_diverged), "exploded_seeds": str(finding.num_exploded)}
    if math.isfinite(finding.final_means.get(metric, math.nan)) and direction is not None:
        yield {
            **_result_head(info, metric),
            "metric_config": {"metric_name": metric, "lower_is_better": direction is Direction.MIN},
            "score_details": {
                "score": finding.final_means[metric],
                "details": details,
                "uncertainty": {"num_samples": finding.num_seeds},
            },
        }
    score = finding.scores.get("primary", Interval())
    if math.isfinite(score.mean):
        uncertainty: dict[str, Any] = {"num_samples": finding.num_seeds}
        if math.isfinite(score.lower):
            bounds = {"lower": score.lower, "upper": score.upper, "confidence_level": 0.95}
            uncertainty["confidence_interval"] = {**bounds, "method": "Student's t over seeds"}
        yield {
            **_result_head(info, "score"),
            "metric_config": {
                "metric_name": "score",
                "lower_is_better": False,
                "evaluation_description": f"Score of {metric}: {summary.scale_label}",
            },
            "score_details": {"score": score.mean, "details": details, "uncertainty": uncertainty},
        }


def _result_head(info: CaseInfo, metric: str) -> dict[str, Any]:
    details = {"case_identity": info.identity, "num_inner_steps": str(info.num_inner_steps)}
    return {
        "evaluation_result_id": f"{info.identity[:16]}/{metric}",
        "evaluation_name": f"{info.suite}/{info.name}",
        "source_data": {"dataset_name": info.suite, "source_type": "other", "additional_details": details},
    }
