"""The plan of a session: its cases, recorded in the ledger before the first of them is trained, as in a watch.

It is attached to the first report of each process, which is made before any training. Under xdist, the process that
writes the ledger has no items of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lobench.core.case import CaseInfo, CaseSpec
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.plans import suite_plan
from lobench.experiments.pytest_items import EXPERIMENT
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import CURRENT_JOB, IS_WHOLE, TESTS_ARE_CASES
from lobench.pytest_plugin.items import case_info, variant_of
from lobench.pytest_plugin.options import layers_of
from lobench.pytest_plugin.reuse import stored_case_info, suites_of_session

__all__ = ["attach_plan"]

_IS_PLAN_SENT: pytest.StashKey[bool] = pytest.StashKey()


def attach_plan(item: pytest.Item, report: pytest.TestReport) -> None:
    """Attaches the plan of the session to the first report of this process.

    A worker of a watch attaches nothing, because its chief records the plan. Nor does an experiment: `lobench run`
    records its plan, because its items are sessions of methods, and a single one may be selected.
    """
    config = item.config
    if config.stash.get(_IS_PLAN_SENT, False) or CURRENT_JOB in config.stash or EXPERIMENT in config.stash:
        return
    config.stash[_IS_PLAN_SENT] = True
    cases = list[CaseInfo]()
    specs = dict[CaseSpec, None]()
    num_cases = 0
    for session_item in item.session.items:
        spec = case_of(session_item)
        if spec is not None:
            num_cases += 1
            # A case that cannot be bound has no identity and no result; its own report has the error.
            with contextlib.suppress(Exception):
                cases.append(
                    stored_case_info(session_item, variant_of(session_item))
                    or case_info(session_item, variant_of(session_item))
                )
                specs[spec] = None
    is_whole = config.stash.get(IS_WHOLE, False) and len(cases) == num_cases
    cases = list(dict.fromkeys(cases))  # items that a plugin repeats are one case
    report.lobench_plan = suite_plan(cases, _digests(specs, layers_of(config).gin_files))  # type: ignore[attr-defined]
    names = SuiteFiles(list(map(str, suites_of_session(config)))).names() if is_whole else ()
    report.lobench_whole = names, config.stash.get(TESTS_ARE_CASES, False)  # type: ignore[attr-defined]


def _digests(specs: Iterable[CaseSpec], gin_files: tuple[str, ...]) -> Mapping[str, Any]:
    """Returns the hashes of the suites' files, by their paths relative to each suite's folder."""
    folders = dict.fromkeys(str(Path(spec.path).parent) for spec in specs)
    return {name: digest for folder in folders for name, digest in SuiteFiles([folder], gin_files).digests().items()}
