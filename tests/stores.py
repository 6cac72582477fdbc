"""Stores without training: evaluations whose curves are given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.code import split_code
from lobench.core.metric import Direction
from lobench.core.result import Curves, EvaluationKey, Outcome, Provenance
from lobench.core.step_cost import StepCost
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

EVAL_STEPS = (0, 5, 10)


def case_info(
    name: str,
    num_seeds: int = 4,
    *,
    suite: str = "s",
    identity: str = "",
    test: str = "test",
    primary_metric: str = "train/loss",
) -> CaseInfo:
    return CaseInfo(
        identity=identity or f"{suite}/{name}",
        optimizer_hash="o",
        suite=suite,
        name=name,
        node_id=f"test_{suite}.py::{test}[{name}]",
        num_inner_steps=10,
        num_seeds=num_seeds,
        seed_block=None,
        problem=f"problem of {name}",
        primary_metric=primary_metric,
    )


def curves(
    finals: Mapping[str, Sequence[float] | Sequence[Sequence[float]]],
    *,
    start: int = 0,
    untrained: float = 2.0,
    revision: str = "r1",
    host: str = "h",
    directions: Mapping[str, str] | None = None,
    added: tuple[str, ...] | None = (),
    cost: StepCost | None = None,
) -> Curves:
    """Curves that go in two steps from `untrained` to the final value of each seed; NaN: diverged at step 7.

    A seed's value may be a whole curve instead; all curves of a call have the same length.
    """
    metrics = {}
    for name, values in finals.items():
        rows = [
            v if isinstance(v, Sequence) else [untrained, untrained if np.isnan(v) else (untrained + v) / 2, v]
            for v in values
        ]
        metrics[name] = memoryview(np.asarray(rows, np.float32))
    values = next(iter(finals.values()))
    ends = [v[-1] if isinstance(v, Sequence) else v for v in values]
    (length,) = {view.shape[1] for view in metrics.values()}
    return Curves(
        seeds=tuple(range(start, start + len(values))),
        metrics=metrics,
        eval_steps=tuple(5 * place for place in range(length)),
        diverged_at=tuple(7 if np.isnan(v) else -1 for v in ends),
        wall_seconds=0.5,
        num_params=3,
        provenance=Provenance(host=host, device="cpu" if host else "", git_revision=revision, bindings="x = 1"),
        directions={name: Direction(value) for name, value in (directions or {}).items()},
        added=added,
        cost=cost,
    )


def add(
    store: Path,
    step: int,
    cases: Mapping[str, Mapping[str, Sequence[float] | Sequence[Sequence[float]]] | Outcome],
    *,
    start: int = 0,
    sha256: str = "",
    uri: str = "",
    run: str = "",
    optimizer: str = "",
    revision: str = "r1",
    host: str = "h",
    identities: Mapping[str, str] | None = None,
    program_version: str = "1",
    test: str = "test",
    primary_metric: str = "train/loss",
    directions: Mapping[str, str] | None = None,
    added: tuple[str, ...] | None = (),
    cost: StepCost | None = None,
    suite: str = "s",
    bindings: str = "o",
    evaluator: str = "",
    code: str = "",
) -> None:
    """Adds a checkpoint, or an optimizer: by case the final values of each metric, or an outcome without curves."""
    ledger = Ledger.open(store, name="test")
    ledger.connection.execute("PRAGMA synchronous = OFF")  # nobody cuts the power: what waits for the disk need not
    with ledger.transaction():
        checkpoint = Checkpoint(
            uri=uri or f"run/theta_{step}.npz", sha256=sha256 or f"{step:064x}", outer_step=step, run=run
        )
        subject = Subject.of_optimizer(optimizer) if optimizer else Subject.of_checkpoint(checkpoint)
        position = ledger.record_sighting(subject)
        ledger.record_admission(position, "admitted")
        keys = []
        for name, finals in cases.items():
            lost = isinstance(finals, Outcome)
            size = 4 if lost else len(next(iter(finals.values())))
            info = case_info(
                name,
                size,
                suite=suite,
                identity=(identities or {}).get(name, ""),
                test=test,
                primary_metric=primary_metric,
            )
            case_code, subject_code = split_code(code)
            info = dataclasses.replace(
                info, optimizer_hash=bindings, evaluator=evaluator, case_code=case_code, subject_code=subject_code
            )
            keys.append(info.key)
            key = EvaluationKey(
                checkpoint_sha256=subject.sha256,
                optimizer_hash=info.optimizer_hash,
                case_identity=info.identity,
                seed_block=SeedBlock(start=start, size=size),
                program_version=program_version,
                code=code,
            )
            outcome = finals if lost else Outcome.PASSED
            found = None
            if not lost:
                found = curves(
                    finals, start=start, revision=revision, host=host, directions=directions, added=added, cost=cost
                )
            ledger.record_evaluation(key, info, outcome, curves=found, message="it hung" if lost else "")
        ledger.finish_checkpoint(position, programs=[program_version], case_keys=keys)
    ledger.close()
