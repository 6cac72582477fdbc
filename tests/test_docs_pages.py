"""Every block of README.md and of docs/*.md runs as it stands, or tests/left_out.py says why it does not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from commands import lobench
from imported import curve, write_csv
from left_out import STORIES
from pages import Story, blocks_of, decision, follow, path_of
from reader import Reader
from reference import ROOT, reference_data
from shown import texts_of
from stores import add
from tiny import results, write_checkpoint

from lobench import open_results

SHOWN = texts_of("docs")

ALL = sorted(path.name for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
PAGES = [page for page in ALL if "```" in path_of(page).read_text()]
# Pages whose tests promise more than that their blocks run.
FOLLOWED_IN = {
    "any_evaluator.md": "test_command_cases.py",
    "pytorch.md": "test_docs_imports.py",
    "sinks.md": "test_docs_sinks.py",
}


def suite(folder: Path, name: str, *lines: str) -> None:
    """Writes a suite of two cases that take a moment, and links it where its name alone means it."""
    place = folder / "suites" / name
    place.mkdir(parents=True)
    (place / f"{name}.gin").write_text(
        "\n".join(
            (
                "import lobench.inner.tasks.image",
                "import lobench.inner.tasks.quadratic",
                "Case.num_inner_steps = 20",
                "Case.num_seeds = 4",
                "Case.eval_every = 10",
                "relu32/Case.task = @DigitsMLP()",
                "relu32/DigitsMLP.hidden_sizes = (8,)",
                "quadratic/Case.task = @Quadratic()",
                *lines,
                "",
            )
        )
    )
    (folder / name).symlink_to(f"suites/{name}")


def run(folder: Path, steps: dict[int, float]) -> None:
    """Writes a run of SGD: by outer step the logarithm of its rate."""
    folder.mkdir(parents=True)
    (folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    for step, log_lr in steps.items():
        write_checkpoint(folder / f"theta_{step}.npz", log_lr)


def remove(path: Path) -> None:
    """Removes a file, a link or a folder."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers of all pages have: a suite, two runs that were watched, the checkout's examples."""
    folder = tmp_path_factory.mktemp("world")
    suite(folder, "quick")
    run(folder / "runs/today", {100: -3.0, 200: -2.5})
    run(folder / "runs/yesterday", {100: -3.2})
    for name in ("examples", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
    for name in ("new", "old"):
        write_checkpoint(folder / f"{name}.npz", -2.5)
    assert lobench("baseline", "suites/quick", cwd=folder).returncode == 0
    inline = ("--executor", "inline", "--workers", "1")
    for name in ("today", "yesterday"):
        done = lobench(
            *("watch", f"runs/{name}", "--suite", "suites/quick", "--once", "--checkpoints", "all", *inline), cwd=folder
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


BEFORE: dict[str, Callable[[Path], None]] = {}
AFTER: dict[str, Callable[[Path, str], None]] = {}


def before(page: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Has a function prepare the folder of a page's reader."""

    def keep(prepare: Callable[[Path], None]) -> Callable[[Path], None]:
        return BEFORE.setdefault(page, prepare)

    return keep


def after(page: str) -> Callable[[Callable[[Path, str], None]], Callable[[Path, str], None]]:
    """Has a function look at what a page left in the folder, and at what its commands said."""

    def keep(promise: Callable[[Path, str], None]) -> Callable[[Path, str], None]:
        return AFTER.setdefault(page, promise)

    return keep


@pytest.mark.parametrize("page", [page for page in PAGES if page not in FOLLOWED_IN])
def test_every_block_of_the_page_runs(page: str, world: Path, tmp_path: Path) -> None:
    if page == "torch.md":
        pytest.importorskip("lobench_torch", reason="lobench-torch is not installed: `ci/test --all` installs it")
    folder = shutil.copytree(world, tmp_path / "world", symlinks=True)
    BEFORE.get(page, lambda folder: None)(folder)
    output = follow(page, folder, STORIES.get(page, Story()))
    AFTER.get(page, lambda folder, output: None)(folder, output)


def run_experiment(folder: Path, name: str, text: str) -> None:
    """Writes an experiment and runs it."""
    (folder / f"{name}.gin").write_text(text)
    done = lobench("run", f"{name}.gin", "--executor", "inline", "--workers", "1", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@before("README.md")
def _an_untrained_optimizer_and_a_part_of_the_example(folder: Path) -> None:
    for name in ("config.gin", "lobench_results"):
        remove(folder / "runs/today" / name)
    for step in (100, 200):
        theta = reference_data() / "checkpoints" / "adafac_mlp_lopt.npz"
        shutil.copy(theta, folder / "runs/today" / f"theta_{step}.npz")
    experiment = (folder / "examples/experiment/experiment.gin").read_text()
    remove(folder / "examples")
    (folder / "examples/experiment").mkdir(parents=True)
    (folder / "examples/experiment/experiment.gin").write_text(experiment.partition("celo/")[0])


@before("own_training.md")
def _a_checkpoint_of_adafac(folder: Path) -> None:
    remove(folder / "config.gin")
    shutil.copy(reference_data() / "checkpoints" / "adafac_mlp_lopt.npz", folder / "theta_200.npz")


@after("own_training.md")
def _both_loops_train(folder: Path, output: str) -> None:
    losses = [float(each) for each in re.findall(r"loss (\d+\.\d+)", output)]
    assert len(losses) == 2 and max(losses) < 1.5


@after("README.md")
def _its_suite_passes(folder: Path, output: str) -> None:
    assert "2 passed" in output and (folder / "report.html").exists()


@before("bisect.md")
def _a_run_that_falls(folder: Path) -> None:
    remove(folder / "runs/today")
    rates = {step: -2.5 + 0.01 * (step % 40) / 10 for step in range(1100, 1300, 10)}
    run(folder / "runs/today", rates | {step: -8.0 for step in rates if step >= 1240})


@before("comparing.md")
def _a_tree_with_a_change(folder: Path) -> None:
    for step in range(300, 900, 100):  # a fall, so that a bisection ends soon
        write_checkpoint(folder / f"runs/today/theta_{step}.npz", -2.5 if step < 600 else 4.0)
    for name in ("dm", "dm_cl"):
        shutil.copy(reference_data() / "checkpoints" / f"{name}.npz", folder)
    study = 'Experiment.suites = ["suites/quick"]\nadam/Method.optimizer = @adam()\nadam/Method.label = "Adam, tuned"\n'
    study += 'sgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 1e-5\nsgd/Method.label = "SGD"\n'
    (folder / "study.gin").write_text(study)
    for words in ("init -q", "add study.gin", "-c user.name=a -c user.email=b commit -q -m one"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    run_experiment(folder, "study", study + "adam/adam.learning_rate = 0.01\n")
    shutil.copytree(folder / ".lobench/study", folder / "runs/study")
    for night in range(3):
        losses = [0.5 + 0.01 * (night + seed) for seed in range(4)]
        store = folder / f"runs/nightly/night{night}"
        add(store, 0, {"relu32": {"train/loss": losses}}, optimizer="adam()", revision=f"{night:040x}")


@after("comparing.md")
def _the_change_is_shown(folder: Path, output: str) -> None:
    assert "+adam/adam.learning_rate = 0.01" in output
    assert (folder / "history.html").exists()


@after("continual.md")
def _what_it_still_knows_is_drawn(folder: Path, output: str) -> None:
    assert "1 passed" in output and (folder / "figures/matrix.png").stat().st_size > 10_000


@after("control.md")
def _the_walker_arrives(folder: Path, output: str) -> None:
    (found,) = results(folder / "runs/walk")
    assert found["metrics"]["train/return"]["final"] > 0.8 and found["metrics"]["train/success"]["final"] > 0.8


@before("debug.md")
def _the_suite_as_it_ships(folder: Path) -> None:
    shutil.copy(ROOT / "suites/quick/quick.gin", folder / "suites/quick")


@before("evolve.md")
def _a_suite_called_demo(folder: Path) -> None:
    suite(folder, "demo")


TRAINER = r"""
import sys
from pathlib import Path
import numpy as np
folder = Path(sys.argv[sys.argv.index("--out") + 1])
(folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()\n")
np.savez(folder / "theta_1.npz", log_lr=np.float32(-3))
(folder / "theta_1.npz.done").touch()
"""


@before("experiments.md")
def _a_trainer_and_a_published_theta(folder: Path) -> None:
    (folder / "theta").mkdir()
    shutil.copy(reference_data() / "checkpoints" / "celo.msgpack", folder / "theta")
    (folder / "train.py").write_text(TRAINER)


@after("experiments.md")
def _the_search_says_its_best_trial(folder: Path, output: str) -> None:
    assert SHOWN["adam-tuned-5-trials-6"] in output
    assert re.search(SHOWN["adam-tuned-trial-of-5"], output)
    assert re.search(SHOWN["adam-tuned-adam-adam-learning"], output, re.M), output


@after("automation.md")
def _the_better_rate_is_found_and_evaluated_on_other_seeds(folder: Path, output: str) -> None:
    found = re.search(r"^(adam\(\).+) (\w+) (\S+)$", output, re.MULTILINE)
    assert found and found[1] == "adam(); adam.learning_rate = 0.01" and found[2] == "better" and float(found[3]) > 0
    assert (folder / "search/choose/ledger.sqlite").is_file() and '"lobench/report/1"' in output


ANSWERS = """
import json

def test_answers(checkpoint, record):
    for name, value in json.loads((checkpoint.path / "answers.json").read_text()).items():
        record("accuracy", value, item=name)

def test_has_answers(checkpoint):
    assert (checkpoint.path / "answers.json").stat().st_size
"""


@before("racing.md")
def _one_case(folder: Path) -> None:
    lines = (folder / "suites/quick/quick.gin").read_text().splitlines()
    (folder / "suites/quick/quick.gin").write_text("\n".join(line for line in lines if "relu32/" not in line))


@before("gates.md")
def _one_case_without_baselines_and_two_checkpoints_with_answers(folder: Path) -> None:
    remove(folder / "suites/quick/baselines")
    _one_case(folder)
    (folder / "suites/lm").mkdir()
    (folder / "suites/lm/test_lm.py").write_text(ANSWERS)
    for step, right in ((100, 10), (200, 28)):
        place = folder / f"run/checkpoint-{step}"
        place.mkdir(parents=True)
        (place / "answers.json").write_text(json.dumps({f"q{item}": int(item < right) for item in range(30)}))
        (place / "trainer_state.json").write_text("{}")


@after("gates.md")
def _the_gate_of_ci_decides_three_times_alike(folder: Path, output: str) -> None:
    (block,) = (block for block in blocks_of("gates.md") if block.language == "yaml")
    (command,) = (step["run"] for step in yaml.safe_load(block.text)["jobs"]["gate"]["steps"] if "pytest" in str(step))
    (folder / "checkpoints").mkdir()
    shutil.copy(folder / "config.gin", folder / "checkpoints")
    for name, log_lr in {"candidate": -6.0, "released": -2.5}.items():
        write_checkpoint(folder / f"checkpoints/{name}.npz", log_lr)
    here = command.replace("-n auto", "").strip()
    ends = [Reader(folder, {}).command(here) for _ in range(3)]
    assert [done.returncode for done in ends] == [1, 1, 1], ends[0].stdout + ends[0].stderr
    found = [decision(here, done.stdout) for done in ends]
    assert found == found[:1] * 3 and any(SHOWN["released-npz-sha256"] in line for line in found[0]), ends[0].stdout


@before("import.md")
def _curves_of_others(folder: Path) -> None:
    ends = {"adam": 3.25, "mine": 3.24, "muon": 3.2, "soap": 3.21}
    rows = [
        curve(method, seed, [5.0, 4.0 + 0.01 * seed, 3.4, last + 0.01 * seed])
        for method, last in ends.items()
        for seed in range(4)
    ]
    write_csv(folder / "curves.csv", [row for own in rows for row in own])
    (folder / "logs").mkdir()
    torch = [("relu32", seed, 500 * place, loss) for seed in range(4) for place, loss in enumerate((2.3, 1.5, 1.0))]
    for name, right in (("small", 5), ("large", 7)):
        items = [{"item": f"q{place}", "correct": int(place < right)} for place in range(9)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, items)))
        samples = folder / "lm_eval_output" / name / "samples_arc_easy_2025-11-29T12-00-01.123456.jsonl"
        samples.parent.mkdir(parents=True)
        rows = [{"doc_id": place, "doc": {}, "metrics": ["acc"], "acc": float(place < right)} for place in range(9)]
        samples.write_text("\n".join(map(json.dumps, rows)))
    write_csv(folder / "logs/torch.csv", [("torch", *row[:3], "train_loss", row[3]) for row in torch])


@after("keep.md")
def _both_real_edits_are_kept(folder: Path, output: str) -> None:
    log = json.loads((folder / "project/.lobench/keep/keep/decisions.json").read_text())
    kept = [one["description"] for one in log["decisions"] if one["answer"] == "keep"]
    assert len(log["decisions"]) == 5 and kept == ["rate .05", SHOWN["larger-batches"]]
    assert re.search(SHOWN["chain-of-kept-changes-from"], output)


@before("live.md")
def _a_run_whose_last_checkpoint_is_worse(folder: Path) -> None:
    shutil.copytree(ROOT / "suites/demo", folder / "suites/demo")
    with (folder / "suites/demo/test_demo.py").open("a") as file:
        file.write('    assert result.final("train/loss").mean() < 2.3\n')
    remove(folder / "runs/today")
    run(folder / "runs/today", {0: -6.0, 20: -4.0, 40: -2.0, 60: 0.7})


@after("live.md")
def _its_output_is_what_the_page_shows(folder: Path, output: str) -> None:
    shown = next(block.text for block in blocks_of("live.md") if block.language == "text")
    assert all(line in output for line in shown.splitlines() if line.startswith(("watching", "6 cases", "scores")))
    assert re.search(SHOWN["outer-step-40-score-above"], output)
    again = r"again: pytest 'suites/demo/test_demo.py::test_demo\[\w+\]' --lobench-checkpoint runs/today/theta_\d+.npz"
    assert re.search(again, output) and re.search(SHOWN["outer-step-60-score-cases"], output), output


@after("multitask.md")
def _weighers_say_their_weights(folder: Path, output: str) -> None:
    found = open_results(folder / ".lobench/experiment").curves("train/weight_task_2")
    assert len(found) == 2, "of those methods that weigh"


OPTIMIZER = """
import jax.numpy as jnp
import optax
from lobench import LearnedOptimizer


class MyLOpt(LearnedOptimizer):
    def init(self, key):
        return {"log_lr": jnp.float32(-3)}

    def opt_fn(self, theta, num_steps):
        return optax.sgd(jnp.exp(theta["log_lr"]))
"""


@before("plugins.md")
def _a_task_and_an_optimizer_of_ones_own(folder: Path) -> None:
    remove(folder / "runs/today/lobench_results")
    (task,) = [block.text for block in blocks_of("README.md") if block.title == "mysuite/mytask.py"]
    (folder / "mysuite").mkdir()
    (folder / "mysuite/mytask.py").write_text(f"{task}\n\n{OPTIMIZER}")


@after("plugins.md")
def _the_sink_has_what_was_delivered(folder: Path, output: str) -> None:
    files = (folder / "runs/today/lobench_results/quick/mysink").glob("*.txt")
    assert sorted(file.read_text() for file in files) == ["CheckpointFinished\n", *["EvaluationFinished\n"] * 2]
    assert all("train/ratio" in row["metrics"] for row in results(folder / "runs/today/lobench_results/quick"))
    assert "200 ['passed', 'passed']" in output


@before("reports.md")
def _an_experiment_with_a_search(folder: Path) -> None:
    write_checkpoint(folder / "theta.npz", -3.0)
    run_experiment(
        folder,
        "experiment",
        """
Experiment.suites = ["suites/quick"]
Experiment.num_sessions = 2
celo/Method.checkpoint = "theta.npz"
celo/Case.learned_optimizer = @LearnableSGD()
adam/Method.optimizer = @adam()
adam/adam.learning_rate = @Discrete()
adam/Method.search = @grid()
Discrete.values = [0.01, 0.1]
""",
    )


@after("schedules.md")
def _every_schedule_is_in_the_table(folder: Path, output: str) -> None:
    names = re.findall(r"^\| `(\w+)\(", path_of("schedules.md").read_text(), re.MULTILINE)
    assert sorted(names) == [line.split()[0] for line in lobench("list", "schedules").stdout.splitlines()]
    assert all(name in output for name in ("fixed", "cosine", "reduced"))


@before("statistics.md")
def _logs_of_algoperf_and_velo(folder: Path) -> None:
    data = reference_data()
    shutil.copy(data / "algoperf/evaluations_to_target.csv.gz", folder / "evaluations.csv.gz")
    shutil.copy(data / "algoperf/workload_targets_v05.json", folder / "workload_targets.json")
    shutil.copy(data / "algoperf/v05_self_to_target.csv.gz", folder / "self_tuning.csv.gz")
    shutil.copy(data / "algoperf/v06_external_to_target.csv.gz", folder / "evaluations_06.csv.gz")
    shutil.copy(data / "algoperf/workload_targets_v06.json", folder / "workload_targets_06.json")
    shutil.copy(data / "velo/three_tasks.json.gz", folder / "speedup_over_multiple_baselines.json.gz")
    curves = [
        ("ImageMLP_Cifar10_8_Relu32", seed, 100 * place, 2.3 - 0.1 * place) for seed in range(2) for place in range(4)
    ]
    write_csv(folder / "curves.csv", curves, ("task", "seed", "step", "loss"))
    for method, loss in (("soap", 3.2765), ("muon", 3.2725)):
        (folder / "logs" / method).mkdir(parents=True)
        for run in range(4):
            rows = ((0, 10.8), (3250, loss + 0.0005 * run))
            text = "".join(f"step:{step}/3250 val_loss:{each} train_time:{step}s step_avg:1ms\n" for step, each in rows)
            (folder / f"logs/{method}/{run}.txt").write_text(text)


@before("suites.md")
def _a_shipped_suite(folder: Path) -> None:
    (folder / "suites/bare").symlink_to(ROOT / "suites/bare")


@before("which-suite.md")
def _the_shipped_suites(folder: Path) -> None:
    for name in ("quick", "suites"):
        remove(folder / name)
    (folder / "suites").mkdir()
    shutil.copy(ROOT / "suites/eight_rates.json", folder / "suites")
