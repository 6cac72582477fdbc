"""`--lobench-reuse`: stored results tested again without training.

If the store has the session's cases too, nothing is bound, so that neither jax nor a task is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.code import is_same_code
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject, Variant
from lobench.experiments.pytest_items import EXPERIMENT
from lobench.pytest_plugin.item_cases import case_of
from lobench.pytest_plugin.item_result import CURRENT_JOB
from lobench.pytest_plugin.options import loaded_subject, option

if TYPE_CHECKING:
    from lobench.engine.store.evaluation_row import EvaluationRow

__all__ = [
    "IS_REUSED",
    "KEPT_CODES",
    "OUTDATED_CODES",
    "leave_out_hypothesis",
    "reused_curves",
    "store_path",
    "stored_case_info",
    "stored_curves",
    "suites_of_session",
]

_BlockKey = tuple[str, SeedBlock]
IS_REUSED: pytest.StashKey[bool] = pytest.StashKey()  # set for items whose case was not bound
_StoredRows: TypeAlias = "tuple[Mapping[_BlockKey, Sequence[EvaluationRow]], Mapping[str, str]]"  # rows, accepted code
_STORED_ROWS: pytest.StashKey[dict[tuple[Path, str], _StoredRows]] = pytest.StashKey()
# Code of stored results that were retrained because of it (OUTDATED) or kept (KEPT), and today's code.
OUTDATED_CODES: pytest.StashKey[dict[_BlockKey, tuple[str, str]]] = pytest.StashKey()
KEPT_CODES: pytest.StashKey[dict[_BlockKey, tuple[str, str]]] = pytest.StashKey()


def store_path(config: pytest.Config, suite: str) -> Path:
    """Returns the folder of the session's store. Fixtures may have changed the working directory."""
    store_option = option(config, "store")
    selected_experiment = config.stash.get(EXPERIMENT, None)
    name = suite if selected_experiment is None else selected_experiment.file.experiment.name
    return config.invocation_params.dir / store_option if store_option else config.rootpath / ".lobench" / name


def suites_of_session(config: pytest.Config) -> list[Path]:
    """Returns the folders and files that the session was started with."""
    paths = [config.invocation_params.dir / str(arg).partition("::")[0] for arg in config.args]
    return list(dict.fromkeys(path for path in paths if path.exists()))


def stored_case_info(item: pytest.Item, variant: Variant) -> CaseInfo | None:
    """Returns an item's case as stored in the session's store; None if the case must be bound."""
    config = item.config
    spec = case_of(item)
    if spec is None or not config.getoption("lobench_reuse") or CURRENT_JOB in config.stash:
        return None
    from lobench.pytest_plugin.remembered import recalled_case_info

    return recalled_case_info(item, store_path(config, spec.suite), variant)


def reused_curves(item: pytest.Item, info: CaseInfo, blocks: Sequence[SeedBlock]) -> list[Curves] | None:
    """Returns the stored curves of an item's seed blocks; None if one must be trained, or a gate may need more."""
    if option(item.config, "against"):
        return None
    subject = loaded_subject(item).subject
    curves_or_none = [stored_curves(item.config, subject, info, block) for block in blocks]
    curves = [block_curves for block_curves in curves_or_none if block_curves is not None]
    item.stash[IS_REUSED] = len(curves) == len(curves_or_none)
    return curves if item.stash[IS_REUSED] else None


def stored_curves(config: pytest.Config, subject: Subject, info: CaseInfo, block: SeedBlock) -> Curves | None:
    """Returns the stored curves of an evaluation, if reuse was requested and they exist.

    Checkpoint or optimizer, bindings, case and seeds must be equal, and the stored program must be the one that would
    compute the result here. The result must be made by today's code, or by unknown code.
    """
    if not config.getoption("lobench_reuse"):
        return None
    rows_of_stores = config.stash.setdefault(_STORED_ROWS, {})
    key = (store_path(config, info.suite), subject.sha256)
    if key not in rows_of_stores:
        rows_of_stores[key] = _read_rows(*key)
    rows_by_block, accepted_codes = rows_of_stores[key]
    rows = rows_by_block.get((info.key, block), ())
    is_kept = config.getoption("lobench_keep_results")
    row = next((row for row in rows if is_same_code(row.key.code, info.code, accepted_codes)), None)
    if row is None and rows and is_kept:
        row = rows[0]
        config.stash.setdefault(KEPT_CODES, {})[info.key, block] = row.key.code, info.code
    elif row is None and rows:
        config.stash.setdefault(OUTDATED_CODES, {})[info.key, block] = rows[0].key.code, info.code
    return row.curves if row is not None else None


def _read_rows(store: Path, sha256: str) -> _StoredRows:
    from lobench.engine.store.ledger import Ledger
    from lobench.engine.store.programs import program_here

    if not (store / "ledger.sqlite").is_file():
        return {}, {}
    with Ledger.open(store, read_only=True) as ledger:
        programs = ledger.accepted_programs([program_here(num_gpus=1.0)])  # a pytest process uses a visible GPU
        rows_by_key: dict[_BlockKey, list[EvaluationRow]] = {}
        for row in ledger.evaluations(sha256, all_codes=True):
            has_result = row.payload is not None and row.outcome in (Outcome.PASSED, Outcome.FAILED)
            if row.key.program_version in programs and has_result:
                rows_by_key.setdefault((row.case.key, row.key.seed_block), []).insert(0, row)  # latest first
        return rows_by_key, ledger.canonical_codes


def leave_out_hypothesis(config: pytest.Config) -> None:
    """Unregisters hypothesis's plugin if no test of this process has imported hypothesis.

    Its report would be empty, but would import hypothesis, which takes as long as the rest of a session without
    training.
    """
    is_alone = not config.getoption("numprocesses", None)
    if config.getoption("lobench_reuse") and is_alone and "hypothesis" not in sys.modules:
        config.pluginmanager.unregister(name="hypothesispytest")
