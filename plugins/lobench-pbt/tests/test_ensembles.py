"""Ensembles: several trials a generation that follow one schedule."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lobench_pbt.decide import TrialDecision
from lobench_pbt.lineage import replay
from lobench_pbt.service import Service
from lobench_pbt.study import Segment, Study
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import State, StudyTrial
from pbt_simulation import PLUGINS, make_study, write_theta

SEGMENTS: list[dict[str, Any]] = [
    {"trial": 1 + index, "parents": [index] if index else [], "start_step": 3 * index, "n_steps": 3, "seed": 11 + index}
    for index in range(3)
]
SCHEDULE = tuple(Segment(n_steps=3, params={}, seed=segment["seed"]) for segment in SEGMENTS)


def train(state: float | None, segment: Mapping[str, Any]) -> float:
    draws = np.random.default_rng(segment["seed"])
    theta = np.float32(0.0 if state is None else state)
    for _ in range(segment["n_steps"]):
        theta = np.float32(theta * np.float32(0.9) + np.float32(draws.normal()))
    return float(theta)


def ensemble(size: int, **changes: Any) -> Study:
    values: dict[str, Any] = {"parameters": (), "strategy": "fixed_schedule", "generations": 2, "p_crossover": 0.0}
    return make_study(**{**values, "population": size, "schedule": SCHEDULE, **changes})


def run(store: Path, study: Study, *, failed: tuple[int, int] | None = None) -> list[StudyTrial]:
    """Runs a study with one worker; `failed` is the generation and slot of a trial that ends without a checkpoint."""
    service = Service(store, clock=lambda: 0.0, plugins=PLUGINS)
    service.create_study(study)
    states: dict[str, float] = {}
    while (suggestion := service.suggest("", "worker")).answer is TrialDecision.TRIAL:
        trial = suggestion.trial
        assert trial is not None
        before = None if trial.warm_checkpoint is None else states[trial.warm_checkpoint.sha256]
        if (trial.generation, trial.slot) == failed:
            service.complete("", trial.id, Completion(attempt=trial.attempt, reason="it diverged"))
            continue
        after = train(before, {"seed": trial.seed, "n_steps": trial.n_steps})
        artifact = write_theta(store / f"{trial.id}.npz", after)
        states[artifact.sha256] = after
        completion = Completion(
            attempt=trial.attempt, checkpoint=artifact, metrics={"loss": after}, n_steps=trial.n_steps
        )
        service.complete("", trial.id, completion)
    trials = service.list_trials("")
    service.close()
    return trials


def finals(trials: list[StudyTrial]) -> dict[int, float]:
    return {
        trial.slot: trial.metrics["loss"] for trial in trials if trial.generation == 2 and trial.metrics is not None
    }


def test_an_ensemble_of_three_replays_equals_three_separate_runs(tmp_path: Path) -> None:
    found = finals(run(tmp_path, ensemble(3, seed=5)))
    assert len(set(found.values())) == 3
    assert found == {slot: replay({"segments": SEGMENTS}, train, slot=slot, study_seed=5) for slot in range(3)}
    assert found[0] == replay({"segments": SEGMENTS}, train), "slot 0 is the replay"


def test_the_seed_of_a_study_changes_all_slots_but_the_first(tmp_path: Path) -> None:
    one, other = (finals(run(tmp_path / str(seed), ensemble(3, seed=seed))) for seed in (1, 2))
    assert one[0] == other[0]
    assert one[1] != other[1] and one[2] != other[2]


def test_a_line_whose_trial_fails_is_infeasible_and_the_others_go_on(tmp_path: Path) -> None:
    trials = run(tmp_path, ensemble(3), failed=(1, 1))
    lines = {slot: [trial for trial in trials if trial.slot == slot] for slot in range(3)}
    assert [one.state for one in lines[1]] == [State.SUCCEEDED, State.INFEASIBLE]
    for slot in (0, 2):
        assert [one.state for one in lines[slot]] == [State.SUCCEEDED] * 3
        assert lines[slot][-1].end_step == 9
