"""Report properties: JUnit properties, and curves, seeds and the rerun command of a failed item."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from lobench.analysis.comparisons.event_numbers import evaluation_row_of
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.subjects import subjects_of
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError
from lobench.core.result import Curves, Outcome, mean_of
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.pytest_plugin.options import FLAGS_WITH_VALUE
from lobench.report.tables.failures import curve_lines

__all__ = ["failure_section", "junit_properties"]

FinishedBlocks = Sequence[tuple[SeedBlock, Curves]]

# Metrics that are reported in addition to the case's primary metric.
_METRICS = ("train/loss", "test/loss", "test/accuracy")
_SWITCHES = ("--lobench-allow-pickle", "--lobench-strict")
_PLACEHOLDER_SUBJECT = Subject.of_checkpoint(Checkpoint(uri="", sha256="", outer_step=0))


def junit_properties(path: str, case: CaseInfo, finished_blocks: FinishedBlocks) -> list[tuple[str, object]]:
    """Returns an item's key numbers: final values and their mean, the score, diverged seeds, seconds.

    It includes the score, equal to that in reports of a store, if the suite has a tuned baseline.
    """
    curves_of_blocks = [curves for _, curves in finished_blocks]
    named_values: list[tuple[str, object]] = [
        ("lobench_case", f"{case.suite}/{case.name}"),
        ("lobench_seeds", " ".join(str(seed) for block_curves in curves_of_blocks for seed in block_curves.seeds)),
    ]
    score = _mean_score(path, case, finished_blocks)
    named_values += [("lobench_score", f"{score:.4f}")] if math.isfinite(score) else []
    for name in dict.fromkeys([case.primary_metric, *_METRICS]):
        if all(name in block_curves.metrics for block_curves in curves_of_blocks):
            values = [value for block_curves in curves_of_blocks for value in block_curves.final(name)]
            named_values.append((f"lobench_final:{name}", f"{mean_of(values):.7g}"))
            named_values.append((f"lobench_final_by_seed:{name}", " ".join(f"{value:.7g}" for value in values)))
    return [
        *named_values,
        ("lobench_diverged", sum(block_curves.num_diverged for block_curves in curves_of_blocks)),
        ("lobench_compile_seconds", f"{sum(block_curves.compile_seconds for block_curves in curves_of_blocks):.3f}"),
        ("lobench_wall_seconds", f"{sum(block_curves.wall_seconds for block_curves in curves_of_blocks):.3f}"),
    ]


def _mean_score(path: str, case: CaseInfo, finished_blocks: FinishedBlocks) -> float:
    rows = [
        evaluation_row_of(
            EvaluationFinished(
                subject=_PLACEHOLDER_SUBJECT, case=case, seed_block=block, outcome=Outcome.PASSED, curves=curves
            ),
            float(index),
        )
        for index, (block, curves) in enumerate(finished_blocks)
    ]
    try:
        (subject,) = subjects_of(rows)
        scales = Scales.of([subject], [Path(path)])
    except LobenchError:
        return math.nan  # the baseline file cannot be read, which comparisons report
    return mean_score(subject, None, scales).mean if scales.baselines.baseline_by_case else math.nan


def failure_section(item: pytest.Item, case: CaseInfo, finished_blocks: FinishedBlocks, message: str) -> str:
    """Returns the curves of a failed case and the command that runs it again."""
    lines = curve_lines(case, [curves for _, curves in finished_blocks], message) if finished_blocks else []
    return "\n".join([*lines, f"again: {_rerun_command(item)}"])


def _rerun_command(item: pytest.Item) -> str:
    """Returns a command for this working directory that runs one item with the session's options."""
    config = item.config
    test_file, separator, test_id = item.nodeid.partition("::")
    path = os.path.relpath(config.rootpath / test_file, config.invocation_params.dir)
    command_words = [
        "pytest",
        f"{test_file if not (config.rootpath / test_file).exists() else path}{separator}{test_id}",
    ]
    for flag in FLAGS_WITH_VALUE:
        option_value = config.getoption(flag) or []
        for value in option_value if isinstance(option_value, list) else [option_value]:
            command_words += [flag, value]
    command_words += [flag for flag in _SWITCHES if config.getoption(flag)]
    return shlex.join(command_words)
