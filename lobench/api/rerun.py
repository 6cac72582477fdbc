"""Commands that repeat single evaluations, with every option on which the result depends."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lobench.analysis.store.rerun_command import subject_options
from lobench.api.settings import WatchSettings
from lobench.core.case import CaseInfo
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.core.wording import short_path
from lobench.engine.chief.interfaces import WatchPlan
from lobench.engine.config.run_configs import trainer_config_at
from lobench.engine.store.ledger import EvaluationRow, Ledger

__all__ = ["failed_rows", "repeating_command"]


def repeating_command(subject: Subject, case: CaseInfo, settings: WatchSettings) -> str:
    """Returns a pytest command that repeats the evaluation of a subject on a case.

    The command works in the present working directory. It trains every seed of the case, because a single block would
    have other bits.

    Args:
      settings: Settings of the watch or run, with the suites as paths.
    """
    options = subject_options(
        replace(subject, uri=short_path(subject.uri)),
        gin_files=settings.gin_files,
        gin_params=settings.gin_params,
        allow_pickle=settings.allow_pickle,
    )
    command = f"pytest {shlex.quote(_node_id(case, settings.suites))} {options}"
    if settings.import_folders:
        command = f"PYTHONPATH={shlex.quote(os.pathsep.join(settings.import_folders))} {command}"
    config = trainer_config_at(settings.location) if subject.variant.trainer_config is None else None
    if config is not None and subject.has_theta and trainer_config_at(subject.uri) != config:
        command += f"  # with {short_path(str(config))} next to the checkpoint"
    return command


def _node_id(case: CaseInfo, suites: Iterable[str]) -> str:
    """Returns the node id of a case's test, relative to the working directory instead of pytest's root."""
    file, separator, test = case.node_id.partition("::")
    for suite in (Path(suite).resolve() for suite in suites):
        for root in (suite, *suite.parents):
            path = root / file
            if path.is_relative_to(suite) and path.is_file():
                return f"{short_path(str(path))}{separator}{test}"
    return case.node_id


def failed_rows(store: Path, plan: WatchPlan) -> list[EvaluationRow]:
    """Returns the planned evaluations whose expectations failed, beginning with the latest subjects.

    Checkpoints of a former run, before the trainer began again in its folder, are left out.

    Raises:
      StoreError: The store cannot be read.
    """
    keys = plan.cases_by_key
    hashes = {subject.sha256 for subject in plan.subjects}
    with Ledger.open(store, read_only=True) as ledger:
        rows = [
            row
            for row in ledger.evaluations(outcome=Outcome.FAILED)
            if row.key.program_version in plan.programs
            and row.case.key in keys
            and row.key.checkpoint_sha256 in hashes
            and row.present_sightings
        ]
    return sorted(
        rows,
        key=lambda row: (
            -max(sighting.outer_step for sighting in row.present_sightings),
            row.case.suite,
            row.case.name,
        ),
    )
