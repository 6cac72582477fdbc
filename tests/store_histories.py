"""Random histories of a store.

They have evaluations, errors, replaced and forgotten results, merges, restarts, edited cases, and experiments.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from stores import case_info, curves

from lobench.core.checkpoint import Checkpoint
from lobench.core.experiment import SessionMember
from lobench.core.history import EvaluationId
from lobench.core.labels import Labels
from lobench.core.program import Program
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject, Variant
from lobench.engine.config.origin import Revision
from lobench.engine.store.current import WholeSuites
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.merge import merge_stores
from lobench.engine.store.plans import suite_plan

__all__ = ["HISTORIES", "Step", "checkpoint", "evaluate", "finish", "forget", "join", "leave", "take"]

PROGRAMS = [Program(jax=one, jaxlib=one, device="cpu: x86-64-v3") for one in ("0.7.0", "0.7.1")]


Step = tuple[str, Subject, dict[str, Any]]  # action, subject, arguments of `evaluate`


def checkpoint(step: int, content: str = "a", bindings: tuple[str, ...] = (), folder: str = "run") -> Subject:
    sha256 = f"{content}{step}".ljust(64, "0")
    variant = Variant(bindings=bindings)
    return Subject.of_checkpoint(Checkpoint(uri=f"{folder}/theta_{step}.npz", sha256=sha256, outer_step=step), variant)


def evaluate(
    store: Path,
    subject: Subject,
    finals: Sequence[float],
    *,
    name: str = "a",
    form: str = "1",
    optimizer: str = "o",
    program: Program = PROGRAMS[0],
    code: str = "",
    is_planned: bool = False,
    is_whole: bool = False,
    is_failed: bool = False,
    trial: str = "",
) -> None:
    """Evaluates a subject on a case. A result that is there already is replaced.

    Args:
      trial: Label of the evaluation.
      is_whole: Whether the plan, if there is one, is of the whole suite, which then has no other case.
    """
    case = dataclasses.replace(case_info(name, len(finals), identity=f"{name} {form}"), optimizer_hash=optimizer)
    case = dataclasses.replace(case, case_code=code)
    with Ledger.open(store, name="test") as ledger:
        ledger.record_admission(ledger.record_sighting(subject, on_restart=lambda restart: None), "admitted")
        if is_planned:
            whole_suites = WholeSuites((case.suite,)) if is_whole else WholeSuites()
            ledger.record_plan(subject, suite_plan([case], {}), [program.key], whole_suites)
        key = EvaluationKey.of(subject.sha256, case, case.blocks()[0], program.key)
        found = None if is_failed else curves({"train/loss": finals})
        outcome = Outcome.ERROR if is_failed else Outcome.PASSED
        labels = Labels(experiment="study" if trial else "", trial=trial)
        ledger.record_evaluation(key, case, outcome, curves=found, replace=True, program=program, labels=labels)


def finish(store: Path, subject: Subject, name: str, form: str, optimizer: str) -> None:
    """Completes a subject with a case, if it is known."""
    case = dataclasses.replace(case_info(name, 2, identity=f"{name} {form}"), optimizer_hash=optimizer)
    with Ledger.open(store, name="test") as ledger:
        for position, seen in ledger.sightings().items():
            if seen == subject:
                ledger.finish_checkpoint(position, programs=[PROGRAMS[0].key], case_keys=[case.key])


def join(store: Path, index: int) -> None:
    """Makes an evaluation, if there is any, a member of an experiment; its index may exceed their number."""
    with Ledger.open(store, name="test") as ledger:
        if keys := [row.key for row in ledger.evaluations(all_codes=True)]:
            key = keys[index % len(keys)]
            case_key = f"{key.case_identity}:{key.optimizer_hash}"
            evaluation = EvaluationId(key.checkpoint_sha256, case_key, key.seed_block)
            config = "one/Method.optimizer = @one()"
            experiment = ledger.record_experiment("methods", config, revision=Revision(), versions={})
            members = [SessionMember(method="one", trial=0, session=seed, evaluation=evaluation) for seed in range(2)]
            ledger.add_memberships(experiment, members, programs=[program.key for program in PROGRAMS])


def leave(store: Path) -> None:
    """Removes all members of the experiment."""
    with Ledger.open(store, name="test") as ledger:
        for row in ledger.experiments():
            ledger.forget_trials(row.id, "one", 0)


def forget(store: Path, name: str, form: str, optimizer: str, subject: Subject) -> None:
    case = dataclasses.replace(case_info(name, 2, identity=f"{name} {form}"), optimizer_hash=optimizer)
    with Ledger.open(store, name="test") as ledger:
        evaluation = EvaluationId(subject.sha256, case.key, case.blocks()[0])
        ledger.forget_evaluations([evaluation], programs=[program.key for program in PROGRAMS])


_EVALUATIONS = st.fixed_dictionaries(
    {
        "finals": st.lists(st.sampled_from([0.25, 0.5, 1.0, 4.5, math.nan]), min_size=2, max_size=2),
        "name": st.sampled_from("ab"),
        "form": st.sampled_from(["1", "1", "2"]),
        "optimizer": st.sampled_from(["o", "o", "p"]),
        "program": st.sampled_from([PROGRAMS[0], *PROGRAMS]),
        "code": st.sampled_from(["", "", "x", "y"]),
        "is_planned": st.booleans(),
        "is_whole": st.sampled_from([False, False, True]),
        "is_failed": st.sampled_from([False, False, False, True]),
        "trial": st.sampled_from(["", "", "1", "2"]),
    }
)
_SUBJECTS = st.builds(
    checkpoint,
    st.integers(0, 3),
    st.sampled_from(["a", "a", "a", "b"]),
    st.sampled_from([(), (), (), ("Case.num_inner_steps = 5",)]),
    st.sampled_from(["run", "run", "other_run"]),
)
_STEPS = st.one_of(
    st.tuples(st.just("evaluate"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("evaluate"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("forget"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("merge"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("finish"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("join"), _SUBJECTS, _EVALUATIONS),
    st.tuples(st.just("leave"), _SUBJECTS, _EVALUATIONS),
)
HISTORIES = st.lists(
    st.tuples(_STEPS, st.booleans()), min_size=1, max_size=7
)  # steps, and whether they are read at once


def take(store: Path, step: Step, number: int) -> None:
    """Takes a step of a history. The store of a merge is made beside the store, with the number in its name."""
    action, subject, detail = step
    if action == "evaluate":
        evaluate(store, subject, **detail)
    elif action == "forget":
        forget(store, detail["name"], detail["form"], detail["optimizer"], subject)
    elif action == "finish":
        finish(store, subject, detail["name"], detail["form"], detail["optimizer"])
    elif action == "join":
        join(store, number)
    elif action == "leave":
        leave(store)
    else:
        other = store.parent / f"other{number}"
        evaluate(other, subject, **detail)
        merge_stores([other], store)
