"""Methods of an experiment whose curves were made elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Done, lobench
from imported import HEADER, held, offline_settings, wandb_for, write_csv
from shown import texts_of
from tiny import make_suite

from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.tables.frames import open_results

SHOWN = texts_of("run")

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
torch/Method.curves = "logs/*.csv#theirs"
torch/Method.metrics = ["train_loss"]
torch/Method.label = "PyTorch"
"""


def curves(path: Path, final: float, method: str = "theirs") -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [
        (method, case, seed, step, "train_loss", final + seed / 10 + 10 - step)
        for case in ("a", "elsewhere")
        for seed in range(3)
        for step in (0, 5, 10)
    ]
    write_csv(path, rows, HEADER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    curves(tmp_path / "logs" / "a.csv", 0.5)
    curves(tmp_path / "logs" / "b.csv", 0.9, method="another")
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def run(folder: Path, *options: str) -> Done:
    return lobench("run", "x.gin", "--store", "store", "--executor", "inline", *options, cwd=folder)


def test_curves_from_elsewhere_are_a_method_of_an_experiment(folder: Path) -> None:
    done = run(folder, "--sink", "report")
    assert done.returncode == 0, done.stdout + done.stderr
    assert SHOWN["torch-case-a-is-tiny"] in done.stdout
    assert SHOWN["pytorch-imported"] in (folder / "store" / "report.html").read_text()
    assert SHOWN["torch-its-curves-on-elsewhere"] in done.stdout
    found = lobench("results", "--store", folder / "store", "--by", "method").stdout
    assert SHOWN["pytorch-imported"] in found and "sgd" in found and "another" not in found
    frame = open_results(folder / "store").frame()
    assert {SHOWN["pytorch-imported"]} == set(frame["label"][frame["kind"] == "imported"])
    again = run(folder)
    assert SHOWN["nothing-new"] in again.stdout
    assert lobench("results", "--store", folder / "store", "--by", "method").stdout == found
    curves(folder / "logs" / "a.csv", 0.7)
    changed = run(folder)
    assert SHOWN["csv-has-changed-since-it"] in changed.stdout
    records = json.loads(lobench("results", "--store", folder / "store", "--format", "json").stdout)
    finals = [one["metrics"]["train/loss"]["final"] for one in records if one["kind"] == "imported"]
    assert sorted(finals) == pytest.approx(sorted([0.7, 0.8, 0.9] * 2))


def test_methods_of_one_file_are_all_replaced_when_it_changes(folder: Path) -> None:
    file = folder / "both.csv"
    methods = [f'{name}/Method.curves = "both.csv#{name}"\n' for name in ("one", "two")]
    (folder / "x.gin").write_text(
        EXPERIMENT.replace("logs/*.csv", "both.csv").replace("#theirs", "#one") + "".join(methods)
    )

    def finals(*values: float, first: Sequence[str] = ()) -> dict[str, list[float]]:
        curves(file, values[0], method="one")
        other = file.with_name("other.csv")
        curves(other, values[1], method="two")
        file.write_text(file.read_text() + other.read_text().partition("\n")[2])
        for words in filter(None, (first, ["--sink", "report"])):
            done = run(folder, *words)
            assert done.returncode == 0, done.stdout + done.stderr
        records = json.loads(lobench("results", "--store", folder / "store", "--format", "json").stdout)
        found: dict[str, list[float]] = {}
        for one in records:
            if one["kind"] == "imported":
                found.setdefault(one["label"], []).append(one["metrics"]["train/loss"]["final"])
        return {label: sorted(values) for label, values in found.items()}

    before, after = finals(0.5, 0.9), finals(0.6, 0.7, first=["--method", "one"])
    assert len(before) == 3 and before.keys() == after.keys()
    assert before.items().isdisjoint(after.items())
    assert "0.7" in (folder / "store" / "report.html").read_text().partition("two (imported)")[2]


def test_what_is_wrong_with_curves_is_said_before_anything_runs(folder: Path) -> None:
    for text, output in (
        (EXPERIMENT.replace("logs/*.csv", "nowhere/*.csv"), SHOWN["no-such-file-of-curves"]),
        (EXPERIMENT.replace("#theirs", ""), SHOWN["several-methods-in-its-curves"]),
        (EXPERIMENT.replace("#theirs", "#nobody"), SHOWN["no-such-method-in-its"]),
        (EXPERIMENT + "torch/Method.num_cpus = 2\n", SHOWN["it-counts-for-method-command"]),
        (EXPERIMENT + "sgd/Method.paired_seeds = True\n", SHOWN["it-counts-for-method-curves"]),
        (EXPERIMENT + "torch/adam.b1 = 0.8\n", SHOWN["nothing-reads-adam-b1-of"]),
        (EXPERIMENT + "torch/Method.num_trials = 3\n", SHOWN["curves-are-not-searched"]),
    ):
        (folder / "x.gin").write_text(text)
        done = run(folder)
        assert done.returncode == 2 and output in done.stderr, done.stdout + done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    (folder / "x.gin").write_text(EXPERIMENT)
    checked = run(folder, "--check")
    assert checked.returncode == 0 and "PyTorch: 0 evaluations" in checked.stdout


def test_curves_that_end_before_their_case_are_refused_before_anything_runs(folder: Path) -> None:
    with (folder / "tiny" / "tiny.gin").open("a") as suite:
        suite.write("Case.num_inner_steps = 20\n")
    for options in ((), ("--check",)):
        done = run(folder, *options)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stdout + done.stderr
        assert "method 'torch'" in done.stderr and SHOWN["csv-a-run-has-no"] in done.stderr
        assert SHOWN["method-until-step-for-the"] in done.stderr and "--until-step" not in done.stderr
        assert "tiny/a" not in done.stdout, "an evaluation ran"
    done = run(folder, "--gin-param", "torch/Method.until_step = 10")
    assert done.returncode == 0, done.stdout + done.stderr
    with (folder / "logs" / "a.csv").open("a") as log:
        log.write("theirs,a,0,10,train_loss,0.25\n")
    twice = run(folder, "--check", "--gin-param", "torch/Method.until_step = 10")
    assert (
        twice.returncode == 2 and SHOWN["point-is-there-twice"] in twice.stderr and "Method.last_counts" in twice.stderr
    )
    resumed = ("--gin-param", "torch/Method.last_counts = True")
    assert run(folder, "--check", "--gin-param", "torch/Method.until_step = 10", *resumed).returncode == 0
    output = "torch on tiny/a: its final values are of step 10, those of lobench's trainings are of step 20"
    assert output in done.stdout


GRID = [(case, name, seed) for case in ("a", "b") for name in ("adam", "sgd") for seed in (1, 2, 3)]
OF_LOGGER = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
here/Method.optimizer = @sgd()
theirs/Method.curves = "{place}#sgd"
theirs/Method.metrics = ["train/loss"]
theirs/Method.case_from = "{of}.problem"
theirs/Method.method_from = "{of}.rule"
theirs/Method.seed_from = ["{of}.seed"]
"""


def final_of(case: str, name: str, seed: int) -> float:
    return round(0.1 * len(name) + 0.01 * seed + (0.5 if case == "b" else 0.0), 4)


def by_mlflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=(folder / "mlruns").as_uri())
    experiment = client.create_experiment("grid")
    for number, (case, name, seed) in enumerate(GRID):
        run = client.create_run(experiment, run_name=f"run-{number}").info.run_id
        for key, value in (("problem", case), ("rule", name), ("seed", seed)):
            client.log_param(run, key, value)
        for step, value in ((0, 9.0), (10, final_of(case, name, seed))):
            client.log_metric(run, "train/loss", value, step=step)
    return "params"


def by_wandb(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    wandb = wandb_for(monkeypatch)
    settings = offline_settings(wandb)
    for number, (case, name, seed) in enumerate(GRID):
        config = {"problem": case, "rule": name, "seed": seed}
        run = wandb.init(
            mode="offline", project="p", dir=str(folder), name=f"run-{number}", config=config, settings=settings
        )
        for step, value in ((0, 9.0), (10, final_of(case, name, seed))):
            run.log({"train/loss": value}, step=step, commit=True)
        run.finish()
    wandb.teardown()
    return "config"


@pytest.mark.parametrize(("place", "log"), [("mlruns", by_mlflow), ("wandb", by_wandb)])
def test_runs_of_a_logger_are_a_method_by_what_their_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, log: Callable[[Path, pytest.MonkeyPatch], str]
) -> None:
    make_suite(tmp_path)
    text = OF_LOGGER.format(place=place, of=log(tmp_path, monkeypatch))
    (tmp_path / "x.gin").write_text(text.replace(".rule", ".rul"))
    for more in (["--check"], []):
        refused = run(tmp_path, *more)
        assert refused.returncode == 2 and SHOWN["did-you-mean"] in refused.stderr, refused.stdout + refused.stderr
        assert refused.stderr.count("\n") == 1 and SHOWN["method-theirs"] in refused.stderr
    (tmp_path / "x.gin").write_text(text)
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {
        (case.removeprefix("tiny/"), seed): curves["train/loss"][-1][1]
        for (_, case, seed), curves in held(tmp_path / "store").items()
    }
    wanted = {(case, seed): final_of(case, name, seed) for case, name, seed in GRID if name == "sgd"}
    assert found == wanted
    table = lobench("results", "--store", tmp_path / "store", "--by", "method").stdout
    assert SHOWN["theirs-imported"] in table and "here" in table, table
    assert SHOWN["nothing-new"] in run(tmp_path).stdout


def test_the_code_of_a_case_is_that_of_its_trainings(folder: Path) -> None:
    """A baseline is stale if the task was edited, also where curves were imported before the edit."""
    assert run(folder).returncode == 0
    subjects = []
    for subject in read_store(folder / "store").subjects:
        code = "old" if subject.subject.is_imported else "new"
        cells = {
            identity: replace(cell, case=replace(cell.case, task_code=code)) for identity, cell in subject.cells.items()
        }
        subjects.append(replace(subject, cells=cells))
    for ordered in (subjects, subjects[::-1]):
        codes = {case.name: case.task_code for case in Scales.of(ordered, []).cases.values()}
        assert codes["a"] == "new", codes
