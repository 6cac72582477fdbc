"""Shapes of JSON, TSV and csv that libraries write, and files of others with the command that converts them."""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import re
import runpy
import shlex
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import lobench
from forked import python
from imported import held, write_csv
from shown import texts_of

from lobench import open_results
from lobench.core.errors import UsageError
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

CURVE = [(0, 2.25), (100, 0.5)]
FRAME = pd.DataFrame(CURVE, columns=["step", "val_loss"])
OPTIONS = {"method": "m", "case": "c", "seed": "0", "metrics": ["val_loss"]}


def texts() -> dict[str, str]:
    found = {orient: FRAME.to_json(orient=orient) for orient in ("records", "columns", "index", "split", "table")}
    rows = FRAME.to_dict(orient="records")
    found["list"] = json.dumps(FRAME.to_dict(orient="list"))
    found["pretty records"] = json.dumps(rows, indent=2)
    found["pretty lines"] = "\n".join(json.dumps(row, indent=2) for row in rows)
    found["one pretty line"] = FRAME.to_json(orient="records", lines=True)
    found["trainer_state"] = json.dumps(
        {
            "best_metric": None,
            "log_history": [{**row, "epoch": 0.1, "lr": 1e-3} for row in rows],
            "is_hyper_param": False,
        }
    )
    steps, values = zip(*CURVE, strict=True)
    found["sacred"] = json.dumps({"val_loss": {"steps": steps, "timestamps": ["a", "b"], "values": values}}, indent=1)
    return found


@pytest.mark.parametrize("name", texts())
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_shape_of_json_is_read(tmp_path: Path, name: str, packed: bool) -> None:
    content = b"\xef\xbb\xbf" + texts()[name].replace("\n", "\r\n").encode()
    file = tmp_path / ("metrics.json.gz" if packed else "metrics.json")
    file.write_bytes(gzip.compress(content) if packed else content)
    import_curves(file, store=tmp_path / "s", **OPTIONS)
    assert held(tmp_path / "s") == {("m", "imported/c", 0): {"val/loss": CURVE}}


@pytest.mark.parametrize(
    "content",
    [
        b"step\tval_loss\n0\t2.25\n100\t0.5\n",
        "step\tval_loss\r\n0\t2.25\r\n100\t0.5\r\n".encode("utf-16"),
        b"# made by me\n# step,val_loss\n0,2.25\n100,0.5\n",
        b"# a comment\n\nstep,val_loss\n0,2.25\n100,0.5",
    ],
    ids=["tsv", "utf-16", "header in a comment", "comment"],
)
def test_a_table_with_tabs_or_comments_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    import_curves(tmp_path / "a.csv", store=tmp_path / "s", **OPTIONS)
    assert held(tmp_path / "s") == {("m", "imported/c", 0): {"val/loss": CURVE}}


def test_a_monitor_of_stable_baselines3_has_returns_by_environment_step(tmp_path: Path) -> None:
    file = tmp_path / "0.monitor.csv"
    file.write_text('#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n9.0,9,0.1\n21.0,21,0.3\n')
    import_curves(file, store=tmp_path / "s", method="ppo", case="cartpole")
    assert list(held(tmp_path / "s").values()) == [{"r": [(9, 9.0), (30, 21.0)]}]


def test_wide_lines_take_all_numeric_columns_and_ask_for_the_primary_one(tmp_path: Path) -> None:
    rows = [{"step": step, "val_loss": value, "val_acc": 0.5, "note": "x"} for step, value in CURVE]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {name: OPTIONS[name] for name in ("method", "case", "seed")}
    with pytest.raises(UsageError, match=SHOWN["several-metrics-got-val-loss"]):
        import_curves(file, store=tmp_path / "s", **given)
    import_curves(file, store=tmp_path / "s", metrics=["val_acc", "val_loss"], **given)
    assert set(held(tmp_path / "s")["m", "imported/c", 0]) == {"val/loss", "val/accuracy"}


def test_a_metric_that_is_logged_late_is_found_and_suggestions_are_numeric(tmp_path: Path) -> None:
    rows = [{"step": step, "train_loss": 1.0, "tag": "loss"} for step in range(2000)] + [
        {"step": 2000, "val_loss": 0.5}
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_curves(file, store=tmp_path / "s", **OPTIONS)
    assert held(tmp_path / "s")["m", "imported/c", 0] == {"val/loss": [(2000, 0.5)]}
    table = write_csv(tmp_path / "b.csv", [("loss is", 0, 1.0)], ("text_loss", "step", "value"))
    with pytest.raises(UsageError) as refused:
        import_curves(table, store=tmp_path / "t", method="m", case="c", seed="0")
    assert SHOWN["column-metric-column"] in str(refused.value) and SHOWN["text-loss-says"] not in str(refused.value)


def converted(file: Path, tmp_path: Path) -> Path:
    """Runs the command of a refusal in a folder, and returns the table that it wrote."""
    with pytest.raises(UsageError) as refused:
        import_curves(file, store=tmp_path / "no", **OPTIONS)
    text = str(refused.value)
    assert "\n" not in text
    words = shlex.split(text[text.index("python -c") :])
    done = python(*words[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("*.csv")
    return found


@pytest.mark.parametrize("kind", ["database", "journal"])
def test_a_study_of_optuna_is_told_how_to_convert_it(tmp_path: Path, kind: str) -> None:
    optuna = pytest.importorskip("optuna")
    file = tmp_path / ("study.db" if kind == "database" else "journal.log")
    if kind == "database":
        storage = f"sqlite:///{file}"
    else:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(file)))
    study = optuna.create_study(study_name="my study", storage=storage)
    for number in range(2):
        trial = study.ask()
        for step, value in CURVE:
            trial.report(value + number, step)
        study.tell(trial, 0.5 + number)
    table = converted(file, tmp_path)
    import_curves(table, store=tmp_path / "s", case="c", minimize=["objective"])
    found = {seed: points["objective"] for (_, _, seed), points in held(tmp_path / "s").items()}
    assert found == {0: CURVE, 1: [(0, 3.25), (100, 1.5)]}


def test_arrays_and_deepobs_are_told_how_to_convert_them(tmp_path: Path) -> None:
    steps, values = zip(*CURVE, strict=True)
    for name in ("npz", "npy", "deepobs"):
        (tmp_path / name).mkdir()
    np.savez(tmp_path / "npz" / "run.npz", step=steps, val_loss=values, theta=np.zeros((3, 3)))
    import_curves(converted(tmp_path / "npz" / "run.npz", tmp_path / "npz"), store=tmp_path / "s", **OPTIONS)
    assert held(tmp_path / "s")["m", "imported/c", 0] == {"val/loss": CURVE}
    np.save(tmp_path / "npy" / "run.npy", np.array(values))
    assert "0.5" in converted(tmp_path / "npy" / "run.npy", tmp_path / "npy").read_text()
    run = {"train_losses": [2.0, 1.0], "test_losses": [2.5, 0.5], "test_accuracies": [0.1, 0.9], "num_epochs": 1}
    (tmp_path / "deepobs" / "run.json").write_text(json.dumps(run, indent=4))
    table = converted(tmp_path / "deepobs" / "run.json", tmp_path / "deepobs")
    import_curves(table, store=tmp_path / "t", **(OPTIONS | {"metrics": ["test_losses"], "minimize": ["test_losses"]}))
    assert held(tmp_path / "t")["m", "imported/c", 0] == {"test/losses": [(0, 2.5), (1, 0.5)]}


def test_event_files_without_scalars_are_one_line(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path / "run")) as writer:
        writer.add_text("note", "hello", 0)
    with pytest.raises(UsageError, match=SHOWN["event-files-hold-no-scalars"]):
        import_curves(tmp_path / "run", store=tmp_path / "s")


@pytest.mark.parametrize(
    ("metric", "direction"),
    [("Loss/test", "min"), ("val/box_loss", "min"), ("top5_acc", "max"), ("Accuracy/val", "max"), ("gloss", None)],
)
def test_a_metric_called_loss_or_accuracy_needs_no_direction(
    tmp_path: Path, metric: str, direction: str | None
) -> None:
    (tmp_path / "a_seed0.csv").write_text(f"step,{metric}\n0,2\n10,1\n")
    if direction is None:
        with pytest.raises(UsageError, match=SHOWN["maximize-gloss-or-minimize-gloss"]):
            import_curves(tmp_path / "a_seed0.csv", store=tmp_path / "store")
        return
    import_curves(tmp_path / "a_seed0.csv", store=tmp_path / "store")
    (row,) = open_results(tmp_path / "store").rows
    assert row.curves.direction(row.case.primary_metric) == direction


def test_of_several_metrics_a_loss_of_validation_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "a_seed0.csv").write_text("step,lr,train_loss,val_acc,val_loss\n0,1,2,0,3\n10,1,1,1,2\n")
    with pytest.raises(UsageError, match=SHOWN["metric-val-loss-takes-that"]):
        import_curves(tmp_path / "a_seed0.csv", store=tmp_path / "store")


RUNS = {("adam", 0): [3.0, 2.0, 1.5], ("adam", 1): [3.5, 2.5, 1.75], ("sgd", 0): [3.0, 2.75, 2.5]}
IMPORTED = {
    (method, "imported/c", seed): list(zip((0, 10, 20), values, strict=True)) for (method, seed), values in RUNS.items()
}


def shaped(folder: Path, shape: str) -> Path:
    """Writes the curves of three runs in a shape that is not read."""
    file = folder / ("runs.json" if shape == "lists" else "runs.pkl" if shape == "pickle" else "runs.csv")
    steps = pd.Index([0, 10, 20], name="step")
    names = pd.MultiIndex.from_tuples(list(RUNS), names=["method", "seed"])
    table = pd.DataFrame({f"{method}/{seed}": values for (method, seed), values in RUNS.items()}, index=steps)
    match shape:
        case "a column for each run":
            table.to_csv(file)
        case "a column for each step":
            pd.DataFrame(list(RUNS.values()), columns=steps, index=names).to_csv(file)
        case "two lines of header":
            table.set_axis(names, axis="columns").to_csv(file)
        case "lists":
            rows = [
                {"method": method, "seed": seed, "steps": [*steps], "loss": v} for (method, seed), v in RUNS.items()
            ]
            file.write_text(json.dumps(rows))
        case "pickle":
            tidy = table.melt(ignore_index=False, value_name="loss").reset_index()
            tidy[["method", "seed"]] = tidy.pop("variable").str.split("/", expand=True)
            file.write_bytes(pickle.dumps(tidy.set_index("step").to_dict(orient="list") | {"step": [*tidy["step"]]}))
    return file


@pytest.mark.parametrize(
    "shape", ["a column for each run", "a column for each step", "two lines of header", "lists", "pickle"]
)
def test_the_command_in_a_refusal_writes_a_table_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    file = shaped(tmp_path, shape)
    with pytest.raises(UsageError) as refused:
        import_curves(file, store=tmp_path / "store", case="c")
    *_, code = shlex.split(re.search(r"python -c '.*'", str(refused.value))[0])  # type: ignore[index]
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "convert.py"
    script.write_text(code)
    runpy.run_path(str(script))
    table = tmp_path / ("runs.csv" if shape == "pickle" else "runs_rows.csv")
    import_curves(table, store=tmp_path / "store", case="c", metrics=["loss"])
    assert {run: curves["loss"] for run, curves in held(tmp_path / "store").items()} == IMPORTED


@pytest.mark.parametrize("of_run", [True, False], ids=["a column of runs", "a column of optimizers"])
def test_the_options_in_a_refusal_import_the_table(tmp_path: Path, of_run: bool) -> None:
    head = ("run", "iteration", "lr", "train_loss", "val_loss") if of_run else ("optimizer", "seed", "epoch", "loss")
    rows = [
        (f"{method}_seed{seed}", step, 0.1, 9.0, value) if of_run else (method, seed, step, value)
        for (method, seed), values in RUNS.items()
        for step, value in zip((0, 10, 20), values, strict=True)
    ]
    file = write_csv(tmp_path / "all.csv", rows, head)
    with pytest.raises(UsageError) as refused:
        import_curves(file, store=tmp_path / "store")
    (typed,) = re.findall(r"add (.*?); ", str(refused.value))
    words = [*shlex.split(typed.replace("NAME", "c")), *(() if of_run else ("--metric", "loss"))]
    done = lobench("import", file, "--store", tmp_path / "store", *words)
    assert done.returncode == 0, done.stderr
    assert {run: list(curves.values()) for run, curves in held(tmp_path / "store").items()} == {
        run: [points] for run, points in IMPORTED.items()
    }


def test_histories_of_keras_have_epochs_as_steps(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for seed in range(2):
        history = {"loss": [3.0, 2.0], "val_loss": [2.5 + seed, 2.0], "epochs": [1, 2]}
        file = tmp_path / "runs" / f"adam_seed{seed}.json"
        file.write_text(json.dumps({name: values for name, values in history.items() if name != "epochs"}))
    import_curves(tmp_path / "runs", store=tmp_path / "store", case="c", metrics=["val_loss"])
    assert held(tmp_path / "store") == {
        ("adam", "imported/c", seed): {"val/loss": [(0, 2.5 + seed), (1, 2.0)]} for seed in range(2)
    }
    file.write_text(json.dumps(history))
    with pytest.raises(UsageError, match=SHOWN["add-column-step-epochs"]):
        import_curves(file, store=tmp_path / "other", case="c", metrics=["val_loss"])


@pytest.mark.parametrize(
    "document",
    [{"adam": {"0": [1.0, 2.0]}}, {"adam": [[1.0, 2.0]], "sgd": [[1.0, 2.0]]}, {"eval": {"rmse": [1.0, 0.5]}}],
    ids=["nested", "arrays", "xgboost"],
)
def test_json_without_rows_is_no_table(tmp_path: Path, document: object) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=SHOWN["this-json-is-not-a"]):
        import_curves(tmp_path / "a.json", store=tmp_path / "store", **OPTIONS)


def test_a_table_with_a_row_for_each_run_has_no_steps(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "all.csv", [("a", "finished", 0.5)], ("Name", "State", "val/loss"))
    with pytest.raises(UsageError, match=SHOWN["it-has-no-steps"]):
        import_curves(file, store=tmp_path / "store")


def test_flags_in_a_database_of_trackio_are_no_metrics(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "p.db")) as db, db:
        db.execute("CREATE TABLE configs (run_id TEXT, config TEXT)")
        db.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
        )
        for step, row in enumerate(({"loss": 2.0, "is_warm": False}, {"loss": "NaN", "is_warm": True})):
            db.execute("INSERT INTO metrics VALUES (NULL, 'id', 'adam_seed3', ?, ?)", (step, json.dumps(row)))
    import_curves(tmp_path / "p.db", store=tmp_path / "store", case="c")
    ((run, curves),) = held(tmp_path / "store").items()
    assert run == ("adam", "imported/c", 3) and [*curves] == ["loss"]
    assert curves["loss"][0] == (0, 2.0) and len(curves["loss"]) == 2
