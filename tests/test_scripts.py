"""Every benchmark, example and script of the checkout runs, at its smallest size.

`./ci/test --all` runs them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from reference import ROOT

TIMEOUT_SECONDS = 600  # bounds a hang
TINY = """
import lobench.inner.tasks.image
Case.num_inner_steps = 10
Case.num_seeds = 2
Case.eval_every = 5
relu8/Case.task = @DigitsMLP()
relu8/DigitsMLP.hidden_sizes = (8,)
"""


@dataclass(frozen=True)
class Elsewhere:
    """A file that is not run by itself here: where it is used, and why no more.

    Attributes:
      used_in: A file that names it.
    """

    used_in: str
    why: str = ""


EVOLVE = " --executor inline --gin-param Evolve.num_generations=1 --gin-param Case.num_inner_steps=2"
GA = f"{EVOLVE} --gin-param TruncationGA.population_size=4 --gin-param TruncationGA.num_parents=2"
GA += " --gin-param TruncationGA.parents_per_child=1 --gin-param TruncationGA.elite_evals=1"
ES = f"{EVOLVE} --gin-param AntitheticES.num_pairs=1"
IMPORTED = "it is imported"
EXAMPLE = "an example's part"
MINUTES = "minutes at its smallest"
CLUSTER = "a cluster, which is not here"
ENGINE = "a container engine, which is not here"

# File -> its smallest command, in a folder of its own (`{tmp}`), `;` between several; `lobench` and Python's files.
SMALLEST: dict[str, str | Elsewhere] = {
    "benchmarks/ablate_needs.py": "benchmarks/ablate_needs.py --searches 2",
    "benchmarks/ablate_rates.py": "benchmarks/ablate_rates.py --searches 2",
    "benchmarks/alarm_rates.py": "benchmarks/alarm_rates.py --runs 1 --world outside",
    "benchmarks/audit_rates.py": "benchmarks/audit_rates.py size --count 20",
    "benchmarks/audit_varied.py": "benchmarks/audit_varied.py honest --count 1",
    "benchmarks/baseline_grid.py": "benchmarks/baseline_grid.py tiny.gin --sample 1",
    "benchmarks/beside.py": Elsewhere("benchmarks/gpu.py", "google/learned_optimization, which is not here"),
    "benchmarks/budget_optuna.py": "benchmarks/budget_optuna.py --case quadratic --searches 1 --trials 5",
    "benchmarks/chief.py": "benchmarks/run.py --quick --only chief_rate_growth",
    "benchmarks/control.py": "benchmarks/control.py 512",
    "benchmarks/coverage.py": "benchmarks/coverage.py 1",
    "benchmarks/evolve_digits.py": (
        f"lobench evolve {ROOT}/examples/evolve/digits_es.gin --store {{tmp}}/run{ES}; "
        "benchmarks/evolve_digits.py compared run --quick"
    ),
    "benchmarks/evolve_goals.py": "benchmarks/evolve_goals.py runs.jsonl --quick",
    "benchmarks/evolve_sphere.py": "benchmarks/evolve_sphere.py 1",
    "benchmarks/evolve_throughput.py": "benchmarks/evolve_throughput.py programs runs --quick",
    "benchmarks/expected_best.py": "benchmarks/expected_best.py --searches 20",
    "benchmarks/falsify_rates.py": "benchmarks/falsify_rates.py --searches 2",
    "benchmarks/families.py": "benchmarks/run.py --quick --only bare_gru",
    "benchmarks/feeding.py": "benchmarks/run.py --quick --only fed",
    "benchmarks/first_call.py": "benchmarks/first_call.py --quick",
    "benchmarks/fresh.py": Elsewhere("benchmarks/RESULTS.md", MINUTES),
    "benchmarks/gate_added_seeds.py": "benchmarks/gate_added_seeds.py 2 2",
    "benchmarks/gate_rates.py": "benchmarks/gate_rates.py 1",
    "benchmarks/verdict_rates.py": "benchmarks/verdict_rates.py --worlds 1",
    "benchmarks/gpu.py": Elsewhere("tests/test_benchmarks.py"),
    "benchmarks/harness.py": Elsewhere("benchmarks/run.py", IMPORTED),
    "benchmarks/idle_worker.py": Elsewhere("benchmarks/chief.py", IMPORTED),
    "benchmarks/import_rows.py": "benchmarks/import_rows.py 2000",
    "benchmarks/inner.py": "benchmarks/run.py --quick --only scan_adam",
    "benchmarks/makespan.py": Elsewhere("benchmarks/run.py", "it is the one that is run there"),
    "benchmarks/mnist1d.py": "benchmarks/mnist1d.py logistic",
    "benchmarks/pbt_digits.py": "benchmarks/pbt_digits.py --quick",
    "benchmarks/pbt_service.py": "benchmarks/pbt_service.py --clients 5 --trials 20 --population 10",
    "benchmarks/pbt_strategies.py": "benchmarks/pbt_strategies.py --studies 2 --population 3 --generations 3",
    "benchmarks/plain_loop.py": Elsewhere("benchmarks/inner.py", IMPORTED),
    "benchmarks/plain_optimizers.py": Elsewhere("benchmarks/inner.py", IMPORTED),
    "benchmarks/compiled_programs.py": "benchmarks/compiled_programs.py --quick",
    "benchmarks/planted_change_points.py": "benchmarks/planted_change_points.py --runs 1",
    "benchmarks/planted_faults.py": "benchmarks/planted_faults.py 1",
    "benchmarks/quick_subjects.py": "benchmarks/quick_subjects.py subjects.json relu32",
    "benchmarks/race_rates.py": "benchmarks/race_rates.py --races 2 --methods 2",
    "benchmarks/race_spend.py": "benchmarks/race_spend.py --races 2 --methods 2",
    "benchmarks/race_replay.py": "benchmarks/race_replay.py --orders 2",
    "benchmarks/many_evaluations.py": "benchmarks/many_evaluations.py 60",
    "benchmarks/report_speed.py": "benchmarks/report_speed.py 25",
    "benchmarks/results_speed.py": "benchmarks/results_speed.py 25",
    "benchmarks/roofline.py": Elsewhere("benchmarks/RESULTS.md", MINUTES),
    "benchmarks/run.py": "benchmarks/run.py --quick --only makespan_simulated",
    "benchmarks/run_chaos.py": Elsewhere("benchmarks/RESULTS.md", MINUTES),
    "benchmarks/run_overhead.py": Elsewhere("benchmarks/RESULTS.md", MINUTES),
    "benchmarks/saved.py": "benchmarks/run.py --quick --only saved_seconds",
    "benchmarks/scaling.py": "benchmarks/scaling.py --workers 10 --hours .01 --per-hour 1000",
    "benchmarks/search.py": "benchmarks/search.py --trials 2 --seeds 2",
    "benchmarks/seeds_at_once.py": "benchmarks/seeds_at_once.py --quick --tasks quadratic --seeds 2",
    "benchmarks/simulated_seeds.py": Elsewhere("benchmarks/coverage.py", IMPORTED),
    "benchmarks/starting.py": "benchmarks/run.py --quick --only first_result_warm",
    "benchmarks/step_seconds.py": "benchmarks/step_seconds.py --quick",
    "benchmarks/suite_subsets.py": "benchmarks/suite_subsets.py --splits 2",
    "benchmarks/torch_steps.py": "benchmarks/torch_steps.py --quick",
    "benchmarks/track3_rates.py": "benchmarks/track3_rates.py --results 50",
    "benchmarks/trials.py": "benchmarks/run.py --quick --only trials",
    "benchmarks/tuned_optimizers.py": "benchmarks/tuned_optimizers.py",
    "benchmarks/unevaluated.py": "benchmarks/run.py --quick --only unevaluated",
    "benchmarks/view_speed.py": "benchmarks/view_speed.py 50",
    "benchmarks/wide.py": "benchmarks/run.py --quick --only wide_flops",
    "ci/check_archives.py": Elsewhere("tests/test_package.py"),
    "ci/clean_root.py": Elsewhere("tests/test_container.py", "a clean root of Debian, which is not here"),
    "ci/container.sh": Elsewhere("tests/test_container.py", ENGINE),
    "ci/demo": Elsewhere("tests/left_out.py", MINUTES),
    "ci/first_run.sh": Elsewhere("ci/release", "it is tried in the environments of a release"),
    "ci/lowest.py": Elsewhere("tests/test_ci.py"),
    "ci/setup.sh": Elsewhere("ci/test", "it makes the environment that runs this"),
    "ci/test": Elsewhere("tests/left_out.py", "it runs this"),
    "docs/generate/build.py": Elsewhere("tests/test_site.py"),
    "docs/generate/click_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/gin_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/hook_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/map_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/name_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/notebook_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/pictures.py": Elsewhere("docs/pictures.sh", "minutes, a browser and TensorBoard"),
    "docs/generate/result_pages.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/generate/words.py": Elsewhere("docs/generate/build.py", IMPORTED),
    "docs/notebooks/execute.py": Elsewhere("tests/test_notebooks.py"),
    "docs/pictures.sh": Elsewhere("docs/gallery.md", "minutes, a browser and TensorBoard"),
    "examples/breadth/experiment.gin": Elsewhere("tests/examples/test_breadth.py"),
    "examples/cluster/evolve_array.sh": Elsewhere("tests/test_cluster_examples.py", CLUSTER),
    "examples/cluster/rayjob.yaml": Elsewhere("tests/test_cluster_examples.py", CLUSTER),
    "examples/cluster/slurm.sh": Elsewhere("tests/test_cluster_examples.py", CLUSTER),
    "examples/cluster/ssh.sh": Elsewhere("tests/test_cluster_examples.py", CLUSTER),
    "examples/continual/experiment.gin": Elsewhere("tests/left_out.py", MINUTES),
    "examples/continual/protocols/protocols.gin": Elsewhere("examples/continual/protocols/test_protocols.py", EXAMPLE),
    "examples/continual/protocols/test_protocols.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/control/experiment.gin": Elsewhere("tests/examples/test_control_example.py", MINUTES),
    "examples/demo.py": Elsewhere("tests/examples/test_demo.py", MINUTES),
    "examples/evolve/digits_es.gin": Elsewhere("docs/evolve.md"),
    "examples/evolve/few_shot.gin": Elsewhere("examples/evolve/few_shot.py", EXAMPLE),
    "examples/evolve/few_shot.py": (
        "examples/evolve/maml.py maml --outer-steps 1; examples/evolve/few_shot.py MAML=maml --cases shots1"
    ),
    "examples/evolve/goals.gin": Elsewhere("benchmarks/evolve_goals.py"),
    "examples/evolve/goals_es.gin": Elsewhere("benchmarks/evolve_goals.py"),
    "examples/evolve/maml.py": "examples/evolve/maml.py maml --task goals --inner-steps 1 --outer-steps 1",
    "examples/evolve/sinusoid.gin": f"lobench evolve {{file}} --store {{tmp}}/run{GA}",
    "examples/evolve/sinusoid_es.gin": f"lobench evolve {{file}} --store {{tmp}}/run{ES}",
    "examples/experiment/experiment.gin": Elsewhere("tests/examples/test_experiment.py", MINUTES),
    "examples/experiment/three_ways.gin": Elsewhere("tests/examples/test_experiment_example.py", "hours"),
    "examples/github/action.yml": Elsewhere("tests/examples/test_github_action.py", EXAMPLE),
    "examples/leaderboard/check.sh": Elsewhere("tests/examples/test_leaderboard.py", EXAMPLE),
    "examples/leaderboard/workflow.yml": Elsewhere("tests/examples/test_leaderboard.py", EXAMPLE),
    "examples/meta_train.py": Elsewhere("tests/examples/test_meta_train.py", MINUTES),
    "examples/multitask/experiment.gin": Elsewhere("tests/examples/test_multitask.py", MINUTES),
    "examples/pbt/close_the_loop.py": Elsewhere("plugins/lobench-pbt/tests/test_example.py", MINUTES),
    "examples/pbt/fitness/fitness.gin": Elsewhere("examples/pbt/fitness/test_fitness.py", EXAMPLE),
    "examples/pbt/fitness/test_fitness.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/pbt/pbt_trainer.py": Elsewhere("benchmarks/pbt_digits.py"),
    "examples/pbt/report/report.gin": Elsewhere("examples/pbt/report/test_report.py", EXAMPLE),
    "examples/pbt/report/test_report.py": "-m pytest -q -p no:cacheprovider --collect-only {file}",
    "examples/pbt/study.gin": Elsewhere("benchmarks/pbt_digits.py"),
    "examples/shipped/experiment.gin": "lobench run {file} --check",
}
RUN = [file for file, command in SMALLEST.items() if isinstance(command, str)]
PLACES = ("benchmarks/*.py", "examples/**/*.*", "ci/*.py", "ci/*.sh", "ci/demo", "ci/test", "docs/**/*.py", "docs/*.sh")


def test_the_table_names_every_file() -> None:
    found = {str(path.relative_to(ROOT)) for place in PLACES for path in ROOT.glob(place)}
    assert {file for file in found if "__pycache__" not in file} == set(SMALLEST)


def test_what_is_not_run_by_itself_is_used_where_the_table_says() -> None:
    for file, there in SMALLEST.items():
        if isinstance(there, Elsewhere):
            text, path = (ROOT / there.used_in).read_text(), Path(file)
            assert any(word in text for word in (path.name, path.stem, path.parent.name)), (file, there)


@pytest.mark.parametrize("file", RUN)
def test_it_runs_at_its_smallest_size(file: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.gin").write_text(TINY)
    if file == "benchmarks/torch_steps.py":
        pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")
    commands = SMALLEST[file]
    assert isinstance(commands, str)
    for command in commands.split("; "):
        words = shlex.split(command.format(tmp=tmp_path, file=ROOT / file))
        if words[0] == "lobench":
            words[:1] = ["-m", "lobench.cli"]
        elif words[0] != "-m":
            words[0] = str(ROOT / words[0])
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        # One benchmark answers a question of yes or no by its code: too few steps solve nothing.
        assert done.returncode == 0 or "seeds at 475 or more" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
