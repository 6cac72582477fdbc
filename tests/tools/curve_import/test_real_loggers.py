"""Files that MLflow and W&B themselves write, read as these packages read them."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from imported import held, offline_settings, wandb_for
from shown import texts_of

from lobench.core.errors import UsageError
from lobench.tools.curve_import.formats.kinds import detect_format
from lobench.tools.curve_import.formats.wandb_log import wandb_rows
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

CURVE = {0: 2.25, 10: 1.5, 20: 1.0}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a file store with two seeds of adam, one run that was deleted, and a logged model."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patched.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        tracking = pytest.importorskip("mlflow.tracking")
        found = tracking.MlflowClient(tracking_uri=(tmp_path_factory.mktemp("ml") / "mlruns").as_uri())
        log_runs(found)
        yield found


def log_runs(client: Any, *, with_model: bool = True) -> None:
    experiment = client.create_experiment("digits")
    for name, seed in (("adam", 3), ("adam", 7), ("sgd: öß", 0), ("gone", 0)):
        run = client.create_run(experiment, run_name=name).info.run_id
        client.log_param(run, "seed", seed)
        for step, value in CURVE.items():
            client.log_metric(run, "val/loss", value + seed, timestamp=1000 + step, step=step)
        client.log_metric(run, "val/loss", 0.5 + seed, timestamp=5000, step=20)  # a resumed run logs a step again
        client.log_metric(run, "odd", math.nan, step=0)
        client.log_metric(run, "odd", math.inf, step=20)
        if name == "gone":
            client.delete_run(run)
        elif with_model and seed == 7:
            model = client.create_logged_model(experiment, "best", source_run_id=run)
            data = {"dataset_name": "mnist", "dataset_digest": "abc"}
            client.log_metric(run, "at/model", 1.0, step=10, model_id=model.model_id, **data)


def folder_of(client: Any) -> Path:
    return Path(client._tracking_client.tracking_uri.removeprefix("file://"))


def as_the_client_reads(client: Any, metric: str) -> dict[str, list[tuple[int, float]]]:
    """By run, the points that count: of a step the one that was logged last."""
    found = {}
    experiments = [one.experiment_id for one in client.search_experiments()]
    for run in client.search_runs(experiments):
        history = sorted(client.get_metric_history(run.info.run_id, metric), key=lambda one: (one.step, one.timestamp))
        found[f"{run.info.run_name} {run.data.params['seed']}"] = list({one.step: one.value for one in history}.items())
    return found


def check_mlflow(place: Path, client: Any, store: Path) -> None:
    assert detect_format(place) == "mlflow"
    imported = import_curves(place, store=store, case="digits", metrics=("val/loss",))
    assert any(SHOWN["runs-are-called-adam-on"] in note for note in imported.notes)
    found = {f"{method} {seed}": curves["val/loss"] for (method, _, seed), curves in held(store).items()}
    assert found == as_the_client_reads(client, "val/loss")
    assert found["adam 7"] == [(0, 9.25), (10, 8.5), (20, 7.5)]


def test_mlflows_file_store(client: Any, tmp_path: Path) -> None:
    check_mlflow(folder_of(client), client, tmp_path / "store")


def test_what_is_not_finite_and_what_names_a_data_set(client: Any, tmp_path: Path) -> None:
    import_curves(folder_of(client), store=tmp_path, case="digits", metrics=("odd",), maximize=("odd",))
    assert all(math.isnan(curves["odd"][0][1]) for curves in held(tmp_path).values())
    import_curves(folder_of(client), store=tmp_path / "b", case="digits", metrics=("at/model",), maximize=("at/model",))
    assert [curves["at/model"] for curves in held(tmp_path / "b").values()] == [[(10, 1.0)]]


def test_mlflows_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    tracking = pytest.importorskip("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    log_runs(client, with_model=False)
    check_mlflow(tmp_path / "mlflow.db", client, tmp_path / "store")
    import_curves(tmp_path / "mlflow.db", store=tmp_path / "b", case="digits", metrics=("odd",), maximize=("odd",))
    assert len(held(tmp_path / "b")) == 3


def test_a_database_of_others_is_refused(tmp_path: Path) -> None:
    import sqlite3

    sqlite3.connect(tmp_path / "mine.db").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(UsageError, match=SHOWN["mine-db-not-a-database"]):
        import_curves(tmp_path / "mine.db", store=tmp_path / "store")


@pytest.fixture(scope="module")
def wandb_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Offline runs: two seeds of adam, one of which was resumed in a second file, and what is no number."""
    folder = tmp_path_factory.mktemp("wb")
    with pytest.MonkeyPatch.context() as patched:
        wandb = wandb_for(patched)

        def log(id: str, seed: int, steps: list[int], suffix: str) -> None:
            settings = offline_settings(wandb, x_save_requirements=id == "first", x_sync_dir_suffix=suffix)
            run = wandb.init(
                mode="offline",
                project="p",
                dir=str(folder),
                id=id,
                name="adam",
                config={"seed": seed},
                settings=settings,
            )
            for step in steps:
                odd = math.nan if step == 10 else math.inf
                run.log(
                    {"val/loss": CURVE[step] + seed, "odd": odd, "note": "text", "on": True}, step=step, commit=True
                )
            run.finish()

        log("first", 3, [0, 10, 20], "a")
        log("second", 7, [0, 10], "a")
        log("second", 7, [20], "b")
        wandb.teardown()  # its process writes what it still has, and ends
        yield folder / "wandb"


def test_wandbs_own_files(wandb_folder: Path, tmp_path: Path) -> None:
    assert detect_format(wandb_folder) == "wandb-run"
    import_curves(wandb_folder, store=tmp_path, case="digits", metrics=("val/loss",))
    expected = [(step, value + 7) for step, value in CURVE.items()]
    assert held(tmp_path)["adam", "imported/digits", 7] == {"val/loss": expected}
    assert {seed for _, _, seed in held(tmp_path)} == {3, 7}
    import_curves(wandb_folder, store=tmp_path / "b", case="digits", metrics=("odd",), maximize=("odd",))
    (step, value), *_ = held(tmp_path / "b")["adam", "imported/digits", 3]["odd"]
    assert (step, value) == (0, math.inf) or math.isnan(value)


def test_one_of_wandbs_files_that_a_kill_cut_off(wandb_folder: Path, tmp_path: Path) -> None:
    file = next(wandb_folder.glob("*-first-*/run-first.wandb"))
    (tmp_path / "run-first.wandb").write_bytes(file.read_bytes()[:-400])
    import_curves(tmp_path / "run-first.wandb", store=tmp_path / "store", case="digits", metrics=("val/loss",))
    assert held(tmp_path / "store")["adam", "imported/digits", 3]["val/loss"][0] == (0, 5.25)
    (tmp_path / "run-first.wandb").write_bytes(file.read_bytes()[:9])
    with pytest.raises(UsageError, match=SHOWN["file-ends-before-the-name"]):
        import_curves(tmp_path / "run-first.wandb", store=tmp_path / "store")


def test_a_file_of_wandbs_that_grows_while_it_is_read(wandb_folder: Path, tmp_path: Path) -> None:
    content = next(wandb_folder.glob("*-first-*/run-first.wandb")).read_bytes()
    (tmp_path / "whole").write_bytes(content)
    expected = list(wandb_rows(tmp_path / "whole"))
    file = tmp_path / "growing"
    file.write_bytes(content[: expected[0][1]])
    rows = wandb_rows(file)
    found = [next(rows)]
    with file.open("ab") as growing:
        growing.write(content[expected[0][1] :])
    found += list(rows)
    found += list(wandb_rows(file, found[-1][1]))
    assert repr(found) == repr(expected)  # NaN is among them


def rows_as_the_server_has_them(wandb_folder: Path) -> list[dict[str, Any]]:
    """The history of one run as W&B's own reader prints it: what JSON has no word for as a text."""
    from wandb.util import get_core_path

    file = next(wandb_folder.glob("*-first-*/run-first.wandb"))
    command = [get_core_path(), "leet", "inspect", "--no-observability", "--json", "--run-file", file, wandb_folder]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900).stdout
    read = [json.loads(line) for line in printed.splitlines() if line.strip()]
    return [one["history"]["item"] for one in read if one["type"] == "history"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_run_history_gives(wandb_folder: Path, tmp_path: Path, form: str) -> None:
    """`Run.history` itself makes the frame; only the rows come from the file in place of the server."""
    from wandb.apis.public import Run

    rows = rows_as_the_server_has_them(wandb_folder)
    frame = Run.history(SimpleNamespace(_full_history=lambda samples, stream: rows), samples=10**9)
    file = tmp_path / f"adam_seed3.{form}"
    frame.to_csv(file) if form == "csv" else frame.drop(columns=["odd"]).to_parquet(file)
    assert detect_format(file) == "wandb-history"
    import_curves(file, store=tmp_path / "store", case="digits", metrics=("val/loss",))
    expected = [(step, value + 3) for step, value in CURVE.items()]
    assert held(tmp_path / "store") == {("adam", "imported/digits", 3): {"val/loss": expected}}
    if form == "csv":
        import_curves(file, store=tmp_path / "odd", case="digits", metrics=("odd",), maximize=("odd",))
        ((_, first), *_) = held(tmp_path / "odd")["adam", "imported/digits", 3]["odd"]
        assert first == math.inf or math.isnan(first)


def test_what_scan_history_gives_without_a_step(wandb_folder: Path, tmp_path: Path) -> None:
    """`pd.DataFrame(run.scan_history(keys=["val/loss"]))` has no steps: nothing may be guessed."""
    import pandas as pd

    rows = [{"val/loss": row["val/loss"]} for row in rows_as_the_server_has_them(wandb_folder)]
    pd.DataFrame(rows).to_csv(tmp_path / "scan.csv")
    with pytest.raises(UsageError, match=SHOWN["lacks-the-column"]):
        import_curves(tmp_path / "scan.csv", store=tmp_path / "store")


GRID = [
    (problem, name, seed) for problem in ("mnist", "text") for name in ("adam", "sgd", "lion") for seed in (1, 2, 3)
]


def loss_of(problem: str, name: str, seed: int) -> float:
    return round(len(problem) + 0.1 * len(name) + 0.01 * seed, 4)


def check_grid(place: Path, tmp_path: Path, problem: str, seed: str) -> None:
    """Two problems are no six seeds of an optimizer: what to type is said, and gives six cells of three seeds."""
    with pytest.raises(UsageError) as refused:
        import_curves(place, store=tmp_path / "no", case="digits", metrics=("val/loss",))
    output = str(refused.value)
    assert SHOWN["runs-are-called"] in output and SHOWN["on-digits-and-differ-in"] in output
    assert (
        SHOWN["mnist-text"].format(problem=problem) in output
        and f"--case-from {problem}" in output
        and not (tmp_path / "no").exists()
    )
    options = {"case_from": problem, "seed_from": (seed,), "metrics": ("val/loss",)}
    import_curves(place, store=tmp_path / "yes", **options)
    found = held(tmp_path / "yes")
    assert {key: curves["val/loss"][-1][1] for key, curves in found.items()} == {
        (name, f"imported/{problem}", seed): loss_of(problem, name, seed) for problem, name, seed in GRID
    }
    with pytest.raises(UsageError, match=SHOWN["case-from-problm-a-run"]):
        import_curves(place, store=tmp_path / "no", **(options | {"case_from": f"{problem[:-2]}m"}))
    with pytest.raises(UsageError, match=SHOWN["column-case-problem-does-nothing"]):
        import_curves(place, store=tmp_path / "no", columns=("case=problem",), metrics=("val/loss",))


def test_two_problems_of_mlflows_are_no_seeds_of_one_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.create_experiment("grid")
    for problem, name, seed in GRID:
        run = client.create_run(experiment, run_name=name).info.run_id
        for key, value in (("problem", problem), ("seed", seed), ("lr", 0.1)):
            client.log_param(run, key, value)
        for step, value in ((0, 9.0), (5, loss_of(problem, name, seed))):
            client.log_metric(run, "val/loss", value, step=step)
    check_grid(tmp_path / "mlruns", tmp_path, "params.problem", "params.seed")


def test_two_problems_of_wandbs_are_no_seeds_of_one_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = wandb_for(monkeypatch)
    settings = offline_settings(wandb)
    for problem, name, seed in GRID:
        config = {"problem": problem, "seed": seed, "opt": {"lr": 0.1}}
        run = wandb.init(mode="offline", project="p", dir=str(tmp_path), name=name, config=config, settings=settings)
        for step, value in ((0, 9.0), (5, loss_of(problem, name, seed))):
            run.log({"val/loss": value}, step=step, commit=True)
        run.finish()
    wandb.teardown()
    check_grid(tmp_path / "wandb", tmp_path, "config.problem", "config.seed")
