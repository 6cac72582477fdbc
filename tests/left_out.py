"""What of README.md and docs/*.md no test runs on this machine, and why; a block that is neither run nor here fails.

A reason that begins with an option has the command run with it: `--check: it takes an hour`.
"""

from __future__ import annotations

from pages import Story

__all__ = ["STORIES"]

ALARMS = "a watched run that gets worse; tests/tools/test_alarm.py has some"
RAY = "a Ray of several machines; plugins/lobench-ray/tests runs Ray, tests/test_cluster_examples.py reads this"
SLURM = "a cluster; plugins/lobench-slurm/tests runs a SLURM of one node"
DRAWING = "a drawing"
ENGINE = "a container engine; tests/test_container.py reads each step, ci/clean_root.py runs them"
MEASURED = "measured, hours of it; tests/test_shipped_checkpoints.py runs a part"
POPULATION = (
    "a service and its trainers; plugins/lobench-pbt/tests/test_documented.py runs the page's, "
    "plugins/lobench-pbt/tests/test_closed_loop.py and plugins/lobench-pbt/tests/test_stop.py the commands"
)
TIMED = (
    "its order and its seconds differ; tests/report/test_progress.py and tests/report/test_running.py have such lines"
)
VERSIONS = "packages of a registry; plugins/lobench-torch/tests/test_other_python.py makes such environments"
SHIPPED = "--check: the shipped suite, by minutes"

STORIES = {
    "own_training.md": Story(
        left_out={
            "from pylo.optim": "PyLO is not installed; plugins/lobench-torch/tests/test_pylo_export.py trains with it"
        }
    ),
    "README.md": Story(
        left_out={
            "meta-training job": DRAWING,
            "./ci/demo": "minutes; tests/examples/test_demo.py runs its parts",
            "./ci/test": "it runs this",
        },
    ),
    "ablate.md": Story(
        left_out={
            "lobench ablate 'adam();": "minutes of trainings; tests/tools/test_ablate.py runs one",
            "needed: learning_rate": "of such trainings",
            "undecided after 8 seeds": "of such trainings",
        }
    ),
    "alarms.md": Story(
        left_out={
            "lobench watch runs/today --suite suites/quick --alarm": ALARMS,
            "regress: outer step 1240": ALARMS,
            "lobench alarm runs/today": ALARMS,
        }
    ),
    "architecture.md": Story(left_out={"extend  ": DRAWING}),
    "cluster.md": Story(
        left_out={
            "lobench watch runs/today --suite suites/digits --executor ray": RAY,
            "export RAY_AUTH_MODE": RAY,
            "ray get-auth-token": RAY,
            "lobench watch runs/today --suite suites/digits --executor slurm": SLURM,
            "sbatch examples/cluster/slurm.sh": SLURM,
            "srun ray": SLURM,
            "sbatch --array": SLURM,
            "kubectl": "Kubernetes",
            "examples/cluster/ssh.sh up": RAY,
            "RAY_AUTH_MODE=token lobench": RAY,
            "examples/cluster/ssh.sh down": RAY,
        }
    ),
    "comparing.md": Story(
        exits={"lobench compare 'adam(); adam.learning_rate = 0.01'": 1}
    ),  # worse on one of two cases
    "containers.md": Story(left_out={"podman build": ENGINE, "podman run": ENGINE}),
    "continual.md": Story(left_out={"lobench run examples/continual": "--check: four minutes of processor time"}),
    "control.md": Story(
        left_out={
            "lobench watch runs/today --suite control": "--dry-run: 90 seconds",
            "lobench run examples/control": "--check: 86 seconds; tests/examples/test_control_example.py runs a part",
            "python benchmarks/control.py": "minutes",
        }
    ),
    "evolve.md": Story(
        left_out={
            "lobench evolve start.gin --store runs/study": "plugins/lobench-evolve/tests/test_evolve.py runs many"
        },
        defaults={
            "evolve": {
                "executor": "inline",
                "gin_params": [
                    "Evolve.num_generations = 1",
                    "Case.num_inner_steps = 2",
                    "AntitheticES.num_pairs = 1",
                    "TruncationGA.population_size = 4",
                    "TruncationGA.num_parents = 2",
                ],
            }
        },
    ),
    "falsify.md": Story(
        left_out={
            "lobench falsify": "minutes of a search; tests/tools/test_falsify.py runs one",
            "dm.npz; Case.learned_optimizer": "of that search",
            "pytest falsified": "a test that fails; tests/tools/test_falsify.py runs one",
        }
    ),
    "live.md": Story(
        left_out={
            "watching runs/today": TIMED,
            "outer step 0  demo/relu32x2  60/100": TIMED,
            "FAILED demo/relu32x2": TIMED,
            "running x": TIMED,
        },
        exits={"lobench watch runs/today --suite suites/demo": 1},
    ),
    "modules.md": Story(left_out={"regression/Case.task": "tests/inner/tasks/test_modules.py has a loss of one's own"}),
    "notebooks.md": Story(left_out={"python docs/notebooks/execute.py": "tests/test_notebooks.py runs it"}),
    "populations.md": Story(
        left_out={
            "trainers   ": DRAWING,
            "lobench pbt serve study.gin": POPULATION,
            "lobench watch runs/population": POPULATION,
            "lobench pbt status": POPULATION,
            "Front of train/loss": "a study's; plugins/lobench-pbt/tests/test_show.py prints such ones",
            "lobench pbt replay 17": POPULATION,
            "lobench pbt export": POPULATION,
            "lobench pbt stop": POPULATION,
            "import lobench_pbt": POPULATION,
            "np.savez(path, **theta": POPULATION,
        }
    ),
    "racing.md": Story(
        left_out={
            "lobench run race.gin": "--check: a minute; tests/experiments/test_run_races.py runs some",
            "lobench tune quick --optimizer adam --race": "--check: so does tests/experiments/test_tune.py",
        }
    ),
    "release.md": Story(
        left_out={
            ".ci/run": "it runs this",
            "DEPENDENCIES=": "packages of a registry",
            "REPOSITORY=": "packages of a registry; tests/test_package.py and tests/test_ci.py run its parts",
            "ci/release": "packages of a registry; tests/test_package.py and tests/test_ci.py run its parts",
            "git checkout": "there is no such tag yet",
            "diff ../again": "of what ci/release made",
            "git tag": "a release",
            "git push": "a release",
        }
    ),
    "scaling.md": Story(left_out={"python benchmarks/scaling.py": "minutes of a simulation"}),
    "shipped-checkpoints.md": Story(
        left_out={
            "lobench run examples/shipped/experiment.gin": MEASURED,
            "lobench publish runs/quick": MEASURED,
            "lobench site docs/results": MEASURED,
            'lobench compare "L2O-DM"': MEASURED,
            "lobench report --store runs/reference": MEASURED,
            "Score on train/loss, Celo": MEASURED,
            "CHECKPOINTS=": MEASURED,
            "falsify": MEASURED,
            "AXES=": MEASURED,
        }
    ),
    "sinks.md": Story(
        left_out={
            "lobench watch runs/today": "the end of the page has the same on a run that it makes",
            "tensorboard --logdir": "README.md has it",
            "MLFLOW_ALLOW_FILE_STORE": "MLflow's server; mlflow-skinny is what tests have",
            "wandb sync": "a login",
            "trackio show": "a page that stays open",
            "sink 'tensorboard': theta_20.npz": "of a trainer that began again, which hashes name",
        }
    ),
    "suites.md": Story(left_out={"pytest -n auto": "README.md has it"}),
    "torch.md": Story(
        left_out={
            "python -m venv": VERSIONS,
            "main/Method.optimizer": VERSIONS,
            "lobench run versions.gin": VERSIONS,
            "lobench compare main pr": VERSIONS,
            "REGRESSED: pr (B)": VERSIONS,
            "theirs/Method.optimizer": "plugins/lobench-torch/tests/test_pylo.py",
            "LOBENCH_TORCH_PACKAGES": "other packages; the test itself runs with schedulefree",
        },
        defaults={"run": {"gin_params": ["Case.num_inner_steps = 20", "Case.eval_every = 10"]}},
    ),
    "view.md": Story(left_out={"ssh ": "another machine"}),
    "watch.md": Story(
        left_out={
            "restarted: runs/today": "of a trainer that began again; tests/test_restart_in_place.py has such a line",
            "4.103 s  worker 0": "of a watch whose worker died; names of checkpoints differ",
        }
    ),
    "which-suite.md": Story(
        left_out={
            "lobench watch runs/today --suite velodrome_mini": "--dry-run: minutes",
            "pytest wrapped": "--collect-only: minutes",
            "lobench baseline images language": SHIPPED,
            "lobench baseline quick --optimizer": SHIPPED,
        }
    ),
}
