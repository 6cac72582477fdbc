"""`--lobench-reuse`: what the session's store holds already is taken from there, and tested anew, but not trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Subject
from lobench.pytest_plugin.experiments import EXPERIMENT
from lobench.pytest_plugin.options import option

if TYPE_CHECKING:
    from lobench.engine.store.reader import EvaluationRow

__all__ = ["store_path", "stored_curves"]

_Key = tuple[str, SeedBlock]
_STORED: pytest.StashKey[dict[tuple[Path, str], dict[_Key, EvaluationRow]]] = pytest.StashKey()


def store_path(config: pytest.Config, suite: str) -> Path:
    """Returns the folder of the session's store."""
    given, selected = option(config, "store"), config.stash.get(EXPERIMENT, None)
    name = suite if selected is None else selected.file.experiment.name
    return Path(given) if given else config.rootpath / ".lobench" / name


def stored_curves(config: pytest.Config, subject: Subject, info: CaseInfo, block: SeedBlock) -> Curves | None:
    """Returns what the store has of an evaluation of a subject, if it was asked for and is there.

    It is there if checkpoint or optimizer, bindings, case and seeds are the same, and what computed it is what would
    compute it here. A task's code is not looked at: who edits it does without the option, or takes another store.
    """
    if not config.getoption("lobench_reuse"):
        return None
    stored = config.stash.setdefault(_STORED, {})
    key = (store_path(config, info.suite), subject.sha256)
    if key not in stored:
        stored[key] = _read(*key)
    row = stored[key].get((info.key, block))
    return row.curves if row is not None else None


def _read(store: Path, sha256: str) -> dict[_Key, EvaluationRow]:
    from lobench.engine.store.ledger import Ledger
    from lobench.engine.store.programs import program_here

    if not (store / "ledger.sqlite").is_file():
        return {}
    with Ledger.open(store, read_only=True) as ledger:
        programs = ledger.accepted_programs(
            [program_here(num_gpus=1.0)]
        )  # a process of pytest takes a GPU that it sees
        return {
            (row.case.key, row.key.seed_block): row
            for row in ledger.evaluations()
            if row.key.checkpoint_sha256 == sha256
            and row.key.program_version in programs
            and row.payload is not None
            and row.outcome in (Outcome.PASSED, Outcome.FAILED)
        }
