"""examples/breadth: every required optimizer on every suite; a part of it runs here."""

from __future__ import annotations

from pathlib import Path

import lobench
from lobench.engine.config.experiment.file import read_experiment
from lobench.engine.config.suite import specs_in

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "examples/breadth/experiment.gin"
REQUIRED = {
    *("momentum", "adamw", "nadamw", "lion", "adafactor", "schedule_free", "muon", "ademamix", "prodigy", "dadapt"),
    *("adopt", "adan", "lamb", "sophia", "lbfgs", "soap", "shampoo", "psgd_kron"),
}


def test_it_has_every_suite_and_every_required_optimizer() -> None:
    experiment = read_experiment(EXPERIMENT).experiment
    with_cases = {file.parent for file in (ROOT / "suites").rglob("*.gin") if specs_in(file)}
    assert {Path(suite) for suite in experiment.suites} == with_cases
    assert {method.name for method in experiment.methods} >= REQUIRED


def test_a_part_of_it_runs_without_an_error(tmp_path: Path) -> None:
    part = ('Experiment.suites = ["../../suites/reference"]', "Case.num_inner_steps = 3", "Case.eval_every = 3")
    methods = ("sophia", "psgd_kron", "celo")
    results = lobench.run(
        EXPERIMENT, store=str(tmp_path), methods=methods, gin_params=part, executor="inline", workers=1
    )
    found = results.evaluations()
    assert len(found) == len(methods) and found["wall_seconds"].notna().all(), found["message"].tolist()
    assert set(found["outcome"]) <= {"passed", "failed"}, "a verdict may fail after so few steps"
