"""Every benchmark, example and script of the checkout runs, at its smallest size.

`./ci/test --all` runs them.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from forked import ALL, STATISTICS, TORCH, python
from reference import ROOT
from shown import texts_of

SHOWN = texts_of("lobench")

TIMEOUT_SECONDS = 600  # bounds a hang

EVOLVE = " --executor inline --gin-param Evolve.num_generations=1 --gin-param Case.num_inner_steps=2"
GA = f"{EVOLVE} --gin-param TruncationGA.population_size=4 --gin-param TruncationGA.num_parents=2"
GA += " --gin-param TruncationGA.parents_per_child=1 --gin-param TruncationGA.elite_evals=1"
ES = f"{EVOLVE} --gin-param AntitheticES.num_pairs=1"
# File -> its smallest command, in a folder of its own (`{tmp}`), `;` between several; `lobench` and Python's files.
SMALLEST = {
    "benchmarks/ablate_rates.py": "benchmarks/ablate_rates.py --searches 1",
    "benchmarks/alarm_rates.py": "benchmarks/alarm_rates.py --runs 1 --world outside",
    "benchmarks/audit_rates.py": "benchmarks/audit_rates.py size --count 20",
    "benchmarks/audit_varied.py": "benchmarks/audit_varied.py honest --count 1",
    "benchmarks/budget_optuna.py": "benchmarks/budget_optuna.py --case quadratic --searches 1 --trials 5",
    "benchmarks/chief.py": "benchmarks/run.py --quick --only chief_rate_growth",
    "benchmarks/control.py": "benchmarks/control.py 512",
    "benchmarks/coverage.py": "benchmarks/coverage.py 1",
    "benchmarks/evolve_goals.py": "benchmarks/evolve_goals.py runs.jsonl --quick --methods es maml_score none",
    "benchmarks/evolve_throughput.py": "benchmarks/evolve_throughput.py --quick",
    "benchmarks/falsify_rates.py": "benchmarks/falsify_rates.py --searches 2",
    "benchmarks/families.py": "benchmarks/run.py --quick --only bare_gru",
    # `samples`, the longest part, is left out: it runs `pairs` without common seeds.
    "benchmarks/gate_rates.py": "benchmarks/gate_rates.py 1 --only pairs --only power --only bold --only gates",
    "benchmarks/item_rates.py": "benchmarks/item_rates.py --worlds 4 --items 10",
    "benchmarks/keep_rates.py": "benchmarks/keep_rates.py --loops 1",
    "benchmarks/verdict_rates.py": "benchmarks/verdict_rates.py --worlds 1",
    "benchmarks/import_rows.py": "benchmarks/import_rows.py 2000; benchmarks/import_rows.py 40 4",
    "benchmarks/inner.py": "benchmarks/run.py --quick --only scan_adam",
    "benchmarks/mnist1d.py": "benchmarks/mnist1d.py logistic",
    "benchmarks/pbt_digits.py": "benchmarks/pbt_digits.py --quick",
    "benchmarks/pbt_strategies.py": "benchmarks/pbt_strategies.py --studies 2 --population 3 --generations 3",
    "benchmarks/planted_change_points.py": "benchmarks/planted_change_points.py --runs 1",
    "benchmarks/planted_faults.py": "benchmarks/planted_faults.py 1",
    "benchmarks/quick_subjects.py": "benchmarks/quick_subjects.py factors --file subjects.json --case quadratic",
    "benchmarks/race_rates.py": "benchmarks/race_rates.py --races 2 --methods 2",
    "benchmarks/race_replay.py": "benchmarks/race_replay.py --orders 2",
    "benchmarks/many_evaluations.py": "benchmarks/many_evaluations.py 60",
    "benchmarks/scaling.py": "benchmarks/scaling.py --workers 10 --hours .01 --per-hour 1000",
    "benchmarks/seeds_at_once.py": "benchmarks/seeds_at_once.py --quick --tasks quadratic --seeds 2",
    "benchmarks/skewed_means.py": "benchmarks/skewed_means.py 2",
    "benchmarks/starting.py": "benchmarks/run.py --quick --only first_result_warm",
    "benchmarks/step_seconds.py": "benchmarks/step_seconds.py --quick",
    "benchmarks/suite_subsets.py": "benchmarks/suite_subsets.py --splits 1",
    "benchmarks/tool_rates.py": "benchmarks/tool_rates.py --worlds 1 --only alarm,race",
    "benchmarks/torch_steps.py": "benchmarks/torch_steps.py --quick",
    "benchmarks/track3_rates.py": "benchmarks/track3_rates.py --results 50",
    "benchmarks/tuned_optimizers.py": "benchmarks/tuned_optimizers.py",
    "benchmarks/view_speed.py": "benchmarks/view_speed.py 50",
    "benchmarks/wide.py": "benchmarks/run.py --quick --only wide_flops",
    "examples/continual/protocols/test_protocols.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/evolve/few_shot.py": (
        "examples/evolve/maml.py maml --outer-steps 1; examples/evolve/few_shot.py MAML=maml --cases shots1"
    ),
    "examples/evolve/maml.py": "examples/evolve/maml.py maml --task goals --inner-steps 1 --outer-steps 1",
    "examples/evolve/sinusoid.gin": f"lobench evolve {{file}} --store {{tmp}}/run{GA}",
    "examples/evolve/sinusoid_es.gin": f"lobench evolve {{file}} --store {{tmp}}/run{ES}",
    "examples/pbt/fitness/test_fitness.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/pbt/report/test_report.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/shipped/experiment.gin": "lobench run {file} --check",
}


@pytest.mark.parametrize("file", SMALLEST)
def test_it_runs_at_its_smallest_size(file: str, tmp_path: Path) -> None:
    if file == "benchmarks/torch_steps.py":
        pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")
    for command in SMALLEST[file].split("; "):
        words = shlex.split(command.format(tmp=tmp_path, file=ROOT / file))
        if words[0] == "lobench":
            words[:1] = ["-m", "lobench.cli"]
        elif words[0] != "-m":
            words[0] = str(ROOT / words[0])
        environment = {**os.environ, **ALL, **(TORCH if file == "benchmarks/torch_steps.py" else STATISTICS)}
        done = python(*words, cwd=tmp_path, env=environment, timeout=TIMEOUT_SECONDS)
        # One benchmark answers a question of yes or no by its code: too few steps solve nothing.
        assert done.returncode == 0 or SHOWN["seeds-at-475-or-more"] in done.stdout, (
            done.stdout[-2000:] + done.stderr[-2000:]
        )
