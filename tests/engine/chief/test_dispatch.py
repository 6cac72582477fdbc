"""Which answers of workers count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stores import case_info

from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.planner import EvaluationId, Lease
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.engine.checkpoints.spool import Spool
from lobench.engine.chief.dispatch import Dispatch
from lobench.engine.workers.protocol import JobResult
from lobench.report.live.progress import SilentProgress

CASE = case_info("a")
SUBJECT = Subject.of_checkpoint(Checkpoint(uri="theta.npz", sha256="0" * 64, outer_step=20))
EVALUATION = EvaluationId(SUBJECT.sha256, CASE.key, SeedBlock(start=0, size=2))


class Answers:
    """A dispatch whose workers all answer that they have other gin files or other code than the chief."""

    def __init__(self, folder: Path, **other: Any) -> None:
        self.workers = SimpleNamespace(newest_worker=1, run_job=lambda worker, job: None)
        subjects: Any = SimpleNamespace(
            first_sighting=lambda evaluation: SUBJECT,
            ensure_theta=lambda evaluation: True,
            known_cases=lambda variant: {CASE.key: CASE},
        )
        workers: Any = self.workers
        self.dispatch = Dispatch(subjects, Spool(folder, print), workers, SilentProgress())
        self.other, self.num_leases = other, 0

    def counts(self, worker: int, **options: bool) -> bool:
        """Returns whether the answer of a worker counts."""
        self.num_leases += 1
        self.dispatch.send_job(Lease(worker, self.num_leases, EVALUATION, CASE, 1.0))
        result = JobResult(lease=self.num_leases, outcome=Outcome.ERROR, message="edited?", replace=True, **self.other)
        event, _ = self.dispatch.result_event(worker, result, 0.0, **options)
        return not event.is_void


@pytest.mark.parametrize("other", [{"other_gin": True}, {"other_code": {"peat.py": "1f"}}])
def test_answers_of_all_workers_that_were_started_before_the_first_such_answer_do_not_count(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    answers = Answers(tmp_path, **other)
    assert [answers.counts(0), answers.counts(1)] == [False, False], "both have read former files"
    answers.workers.newest_worker = 2
    assert answers.counts(2), "otherwise it would be repeated for ever"


def test_no_such_answer_counts_while_the_files_are_read_again(tmp_path: Path) -> None:
    answers = Answers(tmp_path, other_gin=True)
    assert not answers.counts(1)
    answers.workers.newest_worker = 2
    assert not answers.counts(2, rereads_files=True)
