"""Several runs in one import: none is lost, merged with another or counted twice without a note."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from commands import lobench
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from imported import curve, held, offline_settings, wandb_for, write_csv
from shown import texts_of

from lobench import open_results
from lobench.core.errors import UsageError
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

A, B = [(0, 2.0), (1, 1.0), (2, 0.5)], [(0, 3.0), (1, 2.5)]
Curve = Sequence[tuple[int, float]]


def runs_in(store: Path) -> dict[tuple[str, str, str], list[tuple[int, float]]]:
    """Returns the primary curve of each run of a store by method, case and the name of the seed."""
    found = {}
    for row in open_results(store).rows:
        values = row.curves.metrics[row.case.primary_metric].tolist()[0]
        key = (row.recorded_sightings[0].name, row.case.name, row.curves.provenance.imported["run"])
        found[key] = [(step, float(f"{value:.6g}")) for step, value in zip(row.curves.eval_steps, values, strict=True)]
    return found


def taken(*files: Path | str, store: Path, **options: object) -> tuple[dict[str, list[tuple[int, float]]], str]:
    """Returns the curves by `method seed`, and all notes."""
    notes: list[str] = []
    done = import_curves(*files, store=store, log=notes.append, **options)
    found = {f"{method} {seed}": points["val/loss"] for (method, _, seed), points in held(store).items()}
    return found, "\n".join([*notes, *done.notes])


def history(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_csv(path, points, ("_step", "val_loss"))


def chart(path: Path, points: Curve, run: str = "adam") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_csv(path, points, ("Step", f"{run} - val_loss"))


def lines(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": step, "val_loss": value}) + "\n" for step, value in points))
    return path


def events(folder: Path, points: Curve, tag: str = "val/loss") -> Path:
    summary = pytest.importorskip("tensorboard.summary")
    writer = summary.Writer(str(folder))
    for step, value in points:
        writer.add_scalar(tag, value, step)
    writer.close()
    return folder


def log(path: Path, *runs: Curve, further: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(
        f"step:{step}/9 val_loss:{value}{further} train_time:{number}{step}s step_avg:1ms\n"
        for number, points in enumerate(runs)
        for step, value in points
    )
    path.write_text(text)
    return path


@pytest.mark.parametrize("write", [history, chart], ids=["history", "chart"])
def test_files_of_two_folders_are_two_runs(tmp_path: Path, write: Callable) -> None:
    files = [write(tmp_path / "a" / "history.csv", A), write(tmp_path / "b" / "history.csv", B)]
    found, _ = taken(*files, store=tmp_path / "one")
    suffix = "/adam" if write is chart else ""
    assert found == {f"a{suffix} 0": A, f"b{suffix} 0": B}
    assert taken(*reversed(files), store=tmp_path / "other")[0] == found


def test_a_third_folder_of_a_later_import_is_named_as_the_first_two(tmp_path: Path) -> None:
    files = [history(tmp_path / name / "history.csv", [*A, (9, place)]) for place, name in enumerate("abc")]
    import_curves(*files[:2], store=tmp_path / "s")
    found, _ = taken(files[2], store=tmp_path / "s")
    assert found == taken(*files, store=tmp_path / "one")[0]
    import_curves(files[0], store=tmp_path / "single")
    with pytest.raises(UsageError, match=SHOWN["other-values"]):
        import_curves(files[1], store=tmp_path / "single")


def test_event_files_that_restart_are_runs_and_those_that_go_on_are_one(tmp_path: Path) -> None:
    for place, num_steps in enumerate((133, 4, 5, 9)):
        events(tmp_path / "run", [(step, place + step / 1000) for step in range(num_steps)])
    found, notes = taken(tmp_path / "run", store=tmp_path / "s")
    assert sorted(len(points) for points in found.values()) == [4, 5, 9, 133]
    assert "4 runs" in notes
    events(tmp_path / "resumed", [(0, 3.0), (1, 2.0), (2, 1.0)])
    events(tmp_path / "resumed", [(2, 1.5), (3, 0.5)])
    found, notes = taken(tmp_path / "resumed", store=tmp_path / "t")
    assert found == {"resumed 0": [(0, 3.0), (1, 2.0), (2, 1.5), (3, 0.5)]}
    assert SHOWN["value-of-1-run-replaced"] in notes
    events(tmp_path / "again", [(0, 3.0), (1, 2.0)])
    events(tmp_path / "again", [(0, 3.5), (1, 2.5), (2, 1.0)])
    found, notes = taken(tmp_path / "again", store=tmp_path / "u")
    assert found == {"again 0": [(0, 3.5), (1, 2.5), (2, 1.0)]}
    assert SHOWN["values-of-1-run-replaced"] in notes


def test_event_files_of_one_second_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number, points in ((9, [(0, 3.0), (1, 2.0)]), (10, [(1, 1.5), (2, 1.0)])):
        (file,) = events(tmp_path / str(number), points).iterdir()
        (tmp_path / "run").mkdir(exist_ok=True)
        file.rename(tmp_path / "run" / f"events.out.tfevents.1700000000.host.7.{number}")
    found, _ = taken(tmp_path / "run", store=tmp_path / "s")
    assert found == {"run 0": [(0, 3.0), (1, 1.5), (2, 1.0)]}


def test_folders_of_add_scalars_and_of_keras_are_metrics_of_one_run(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for run in ("adam", "sgd"):
        with tensorboard.SummaryWriter(str(tmp_path / "logs" / run)) as writer:
            for step, value in A:
                writer.add_scalars("loss", {"train": value, "val": value + 1}, step)
    import_curves(tmp_path / "logs", store=tmp_path / "s", metrics=["val/loss", "train/loss"])
    found = held(tmp_path / "s")
    assert {method for method, _, _ in found} == {"adam", "sgd"}
    assert set(found["adam", "imported/task", 0]) == {"train/loss", "val/loss"}
    events(tmp_path / "keras" / "train", A, "epoch_loss")
    events(tmp_path / "keras" / "validation", A, "epoch_loss")
    import_curves(
        tmp_path / "keras",
        store=tmp_path / "k",
        metrics=["val/epoch_loss", "train/epoch_loss"],
        minimize=["val/epoch_loss"],
    )
    assert set(held(tmp_path / "k")) == {("keras", "imported/task", 0)}


def test_last_counts_is_recommended_for_a_resumed_run_only(tmp_path: Path) -> None:
    restarted = lines(tmp_path / "restarted.jsonl", [*A, *B, *A])
    options = {"method": "m", "case": "c", "seed": "0", "metrics": ["val_loss"]}
    with pytest.raises(UsageError) as refused:
        import_curves(restarted, store=tmp_path / "s", **options)
    assert SHOWN["runs-that-begin-at-step"] in str(refused.value) and "--last-counts" not in str(refused.value)
    two = [lines(tmp_path / "a.jsonl", A), lines(tmp_path / "b.jsonl", [(0, 9.0), (1, 8.0)])]
    with pytest.raises(UsageError) as refused:
        import_curves(*two, store=tmp_path / "s", **options)
    assert SHOWN["jsonl-and"] in str(refused.value) and "--last-counts" not in str(refused.value)
    assert not (tmp_path / "s").exists()
    resumed = lines(tmp_path / "resumed.jsonl", [*A, (2, 0.6), (3, 0.4)])
    with pytest.raises(UsageError, match=SHOWN["takes-the-last-value"]):
        import_curves(resumed, store=tmp_path / "s", **options)
    found, notes = taken(resumed, store=tmp_path / "s", last_counts=True, **options)
    assert found["m 0"] == [(0, 2.0), (1, 1.0), (2, 0.6), (3, 0.4)]
    assert SHOWN["value-of-1-run-replaced"] in notes


PATTERN = r"(?P<method>[^/]+)_s(?P<seed>\d+)/metrics\.jsonl"


@pytest.mark.parametrize("given", ["folder", "glob", "files"])
def test_the_pattern_sees_the_path_below_what_was_given(tmp_path: Path, given: str) -> None:
    files = [
        lines(tmp_path / "runs" / "adamw_s3" / "metrics.jsonl", A),
        lines(tmp_path / "runs" / "adamw_s4" / "metrics.jsonl", B),
    ]
    named = {"folder": [tmp_path / "runs"], "glob": [f"{tmp_path}/runs/*/metrics.jsonl"], "files": files}[given]
    found, _ = taken(*named, store=tmp_path / "s", pattern=PATTERN)
    assert found == {"adamw 3": A, "adamw 4": B}
    found, _ = taken(*named, store=tmp_path / "t", pattern=r"(?P<method>\w+?)_s(?P<seed>\d+)(/.*)?")
    assert found == {"adamw 3": A, "adamw 4": B}
    if given == "folder":
        assert taken(*named, store=tmp_path / "u")[0] == {"adamw_s3 0": A, "adamw_s4 0": B}


def test_the_pattern_reads_names_in_a_column(tmp_path: Path) -> None:
    rows = [("adam-3", *point) for point in A] + [("adam-4", *point) for point in B]
    file = write_csv(tmp_path / "runs.csv", rows, ("run", "step", "val_loss"))
    options = {"columns": ["method=run"], "metrics": ["val_loss"], "pattern": r"(?P<method>\w+)-(?P<seed>\d+)"}
    assert taken(file, store=tmp_path / "s", **options)[0] == {"adam 3": A, "adam 4": B}


def test_one_training_in_two_files_counts_once_with_a_note(tmp_path: Path) -> None:
    log(tmp_path / "logs" / "first.txt", A)
    log(tmp_path / "logs" / "second.txt", B)
    shutil.copy(tmp_path / "logs" / "first.txt", tmp_path / "logs" / "copy.stdout")
    found, notes = taken(tmp_path / "logs", store=tmp_path / "s")
    assert sorted(found.values()) == [A, B] and SHOWN["part-repeat"] in notes
    folder = tmp_path / "lines"
    lines(folder / "a.jsonl", A)
    (folder / "other.jsonl").write_text((folder / "a.jsonl").read_text().replace(", ", ",  "))
    lines(folder / "b.jsonl", B)
    found, notes = taken(folder, store=tmp_path / "t", method="m")
    assert sorted(found.values()) == [A, B] and SHOWN["run-left-out-as-a"] in notes
    shutil.copy(folder / "a.jsonl", tmp_path / "renamed.jsonl")
    lines(tmp_path / "more.jsonl", [*B, (7, 1.0)])
    found, notes = taken(tmp_path / "renamed.jsonl", tmp_path / "more.jsonl", store=tmp_path / "t", method="m")
    assert len(found) == 3 and SHOWN["renamed-of"] in notes


def test_two_seeds_with_one_value_each_are_two_runs(tmp_path: Path) -> None:
    for name in "ab":
        lines(tmp_path / "runs" / f"{name}.jsonl", [(100, 3.25)])
        (tmp_path / "runs" / f"{name}.jsonl").open("a").write("\n" * (name == "b"))
    assert len(taken(tmp_path / "runs", store=tmp_path / "s", method="m")[0]) == 2


def test_logs_in_subfolders_are_read(tmp_path: Path) -> None:
    log(tmp_path / "muon" / "copy_of_seed0.txt", A)
    for seed in range(8):
        points = A if seed == 0 else [(0, 2.0 + seed), (9, 1.0)]
        log(tmp_path / "muon" / "runs" / f"seed_{seed}" / "stdout.txt", points)
        log(tmp_path / "muon" / "runs" / f"seed_{seed}" / "final.txt", points).write_text(
            (tmp_path / "muon" / "runs" / f"seed_{seed}" / "stdout.txt").read_text().splitlines()[-1]
        )
    found, notes = taken(tmp_path / "muon", store=tmp_path / "s")
    assert len(found) == 8 and {name.partition(" ")[0] for name in found} == {"muon"}
    assert SHOWN["are-seeds-of-one-method"] in notes
    log(tmp_path / "sweep" / "b90" / "0.txt", A)
    log(tmp_path / "sweep" / "b95" / "0.txt", B)
    assert {name.partition(" ")[0] for name in taken(tmp_path / "sweep", store=tmp_path / "t")[0]} == {"b90", "b95"}


def test_logs_with_further_losses_are_read(tmp_path: Path) -> None:
    file = log(tmp_path / "log.txt", A, further=" val_bpb:0.9 val_ema_loss:1.5")
    import_curves(file, store=tmp_path / "s", minimize=["val/bpb"])
    assert set(held(tmp_path / "s")["log", "imported/task", 0]) == {"val/loss", "val/bpb", "val/ema_loss"}
    import_curves(file, store=tmp_path / "t", metrics=["val/bpb"], minimize=["val/bpb"])
    assert list(held(tmp_path / "t")["log", "imported/task", 0]) == ["val/bpb"]


def test_a_folder_leaves_out_what_is_no_curve_and_counts_it(tmp_path: Path) -> None:
    lines(tmp_path / "runs" / "ä b" / "metrics.jsonl", A)
    lines(tmp_path / "runs" / "c" / "metrics.jsonl", B)
    (tmp_path / "runs" / "c" / "empty.csv").touch()
    (tmp_path / "runs" / "c" / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "runs" / "d").symlink_to(tmp_path / "runs" / "c")
    (tmp_path / "elsewhere").mkdir()
    lines(tmp_path / "elsewhere" / "e" / "metrics.jsonl", [*A, (5, 0.25)])
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "circle").symlink_to(tmp_path / "elsewhere")
    found, notes = taken(tmp_path / "runs", store=tmp_path / "s")
    assert sorted(found.values()) == sorted([A, B, [*A, (5, 0.25)]])
    assert "ä b 0" in found
    assert "empty.csv" in notes and "config.json" in notes


def test_all_damaged_files_are_listed_at_once(tmp_path: Path) -> None:
    lines(tmp_path / "runs" / "good.jsonl", A)
    for name in ("bad", "worse"):
        (tmp_path / "runs" / f"{name}.jsonl").write_text('{"step": 0, "val_loss": 1}\n{"step": 1, "val_lo')
    with pytest.raises(UsageError, match=SHOWN["files-cannot-be-imported-got"]):
        import_curves(tmp_path / "runs", store=tmp_path / "s")


def test_wandb_leaves_out_foreign_runs_follows_links_and_says_that_a_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = wandb_for(monkeypatch)
    quiet = offline_settings(wandb)
    for seed in range(2):
        run = wandb.init(
            mode="offline", project="p", dir=str(tmp_path), name="adam", config={"seed": seed}, settings=quiet
        )
        for step in range(500):
            run.log({"val/loss": 2.0 + seed - step / 1000, "note": "x" * 100}, step=step)
        run.finish()
    wandb.teardown()
    (tmp_path / "shown").mkdir()
    for place in (tmp_path / "wandb").glob("offline-run-*"):
        (tmp_path / "shown" / place.name).symlink_to(place)
    found, notes = taken(tmp_path / "shown", store=tmp_path / "s", metrics=["val/loss"])
    assert {name: len(points) for name, points in found.items()} == {"adam 0": 500, "adam 1": 500}
    assert "cut" not in notes
    (tmp_path / "wandb" / "run-empty.wandb").touch()
    (tmp_path / "wandb" / "run-foreign.wandb").write_bytes(b"something else")
    file = next((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    found, notes = taken(tmp_path / "wandb", store=tmp_path / "t", metrics=["val/loss"])
    assert len(found) == 2 and min(map(len, found.values())) < 499
    assert (
        SHOWN["files-of-4-left-out"] in notes
        and "run-foreign.wandb" in notes
        and SHOWN["file-ends-before-the-run"] in notes
    )


# The property: k runs in n files, in any layout and order and in any number of commands.

HEAD = ("method", "case", "seed", "step", "metric", "value")


def parquet(path: Path, points: Curve) -> Path:
    import pandas as pd

    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(points, columns=["step", "val_loss"]).to_parquet(path)
    return path


def wide_csv(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_csv(path, points, ("step", "val_loss"))


def tsv(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xef\xbb\xbfstep\tval_loss\r\n" + b"".join(f"{s}\t{v}\r\n".encode() for s, v in points))
    return path


def array(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{"step": step, "val_loss": value} for step, value in points], indent=1))
    return path


def trainer_state(path: Path, points: Curve) -> Path:
    path = path.with_name("trainer_state.json") if path.parent.name.startswith("run") else path
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"step": step, "epoch": 0.5, "val_loss": value} for step, value in points]
    path.write_text(json.dumps({"global_step": 9, "log_history": rows}, indent=2))
    return path


def event_folder(path: Path, points: Curve) -> Path:
    return events(path.with_suffix(""), points)


def nanogpt_log(path: Path, points: Curve) -> Path:
    return log(path, points)


def sacred(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    steps, values = zip(*points, strict=True)
    path.write_text(json.dumps({"val.loss": {"steps": steps, "timestamps": [""] * len(steps), "values": values}}))
    return path


def monitor(path: Path, points: Curve) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lengths = [after - before for (before, _), (after, _) in itertools.pairwise([(0, 0.0), *points])]
    rows = [f"{value},{length},0.1\n" for (_, value), length in zip(points, lengths, strict=True)]
    path.write_text('#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n' + "".join(rows))
    return path


def add_scalars(path: Path, points: Curve) -> Path:
    folder = path.with_suffix("")
    events(folder, [])  # the file of the writer itself
    events(folder / "loss_val", points, tag="loss")
    return folder


def run_name(path: Path) -> str:
    return next(part for part in reversed(path.with_suffix("").parts) if part.startswith("run"))


def mlruns(path: Path, points: Curve) -> Path:
    """Writes a folder of MLflow's file store, with one run."""
    folder = path.with_suffix("")
    name, experiment = run_name(path), folder / "1"
    run = experiment / hashlib.md5(str(folder).encode()).hexdigest()
    (run / "metrics" / "val").mkdir(parents=True)
    (experiment / "meta.yaml").write_text("experiment_id: '1'\nlifecycle_stage: active\nname: digits\n")
    (run / "meta.yaml").write_text(
        f"experiment_id: '1'\nlifecycle_stage: active\nrun_id: {run.name}\nrun_name: {name}\nstatus: 3\n"
    )
    lines = [f"{1795957878000 + step} {value} {step}\n" for step, value in points]
    (run / "metrics" / "val" / "loss").write_text("".join(lines))
    return folder


def wandb_log(path: Path, points: Curve) -> Path:
    """Writes W&B's own file of a run: its messages, framed as its log is."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    name, records = run_name(path), [messages.Record() for _ in range(len(points) + 2)]
    path = path.parent / f"{'' if path.stem == name else f'{name}/'}run-{name}.wandb"
    path.parent.mkdir(parents=True, exist_ok=True)
    records[0].run.run_id, records[0].run.display_name = f"id{name}", name
    for record, (step, value) in zip(records[1:], points, strict=False):
        for key, number in (("_step", step), ("val/loss", value)):
            record.history.item.add(key=key, value_json=json.dumps(number))
    records[-1].exit.exit_code = 0
    parts = [struct.pack("<4sHB", b":W&B", 0xBEE1, 0)]
    for content in (record.SerializeToString() for record in records):
        parts += [struct.pack("<IHB", zlib.crc32(content, zlib.crc32(b"\x01")), len(content), 1), content]
    path.write_bytes(b"".join(parts))
    return path


FORMATS: Mapping[str, tuple[Callable[[Path, Curve], Path], str]] = {
    "history": (history, ".csv"),
    "chart": (chart, ".csv"),
    "csv": (wide_csv, ".csv"),
    "tsv": (tsv, ".tsv"),
    "lines": (lines, ".jsonl"),
    "array": (array, ".json"),
    "trainer_state": (trainer_state, ".json"),
    "parquet": (parquet, ".parquet"),
    "events": (event_folder, ""),
    "nanogpt": (nanogpt_log, ".txt"),
    "sacred": (sacred, ".json"),
    "monitor": (monitor, ".csv"),
    "add_scalars": (add_scalars, ""),
    "mlflow": (mlruns, ""),
    "wandb-run": (wandb_log, ".wandb"),
}


def attempt(store: Path, commands: Sequence[Sequence[Path]], options: Mapping[str, object]) -> tuple[dict, str] | None:
    """Returns what a store holds after some commands, and their notes; None if one of them was refused."""
    notes: list[str] = []
    try:
        for files in commands:
            done = import_curves(*files, store=store, log=notes.append, **options)
            notes += done.notes
    except UsageError as error:
        assert "\n" not in str(error)
        return None
    return runs_in(store), "\n".join(notes)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_runs_in_files_of_any_layout_give_one_store_or_a_refusal(name: str, data: st.DataObject) -> None:
    if name in ("events", "add_scalars"):
        pytest.importorskip("tensorboard.summary")
    write, ending = FORMATS[name]
    num_runs = data.draw(st.integers(1, 4))
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=num_runs, max_size=num_runs))
    layout = data.draw(st.sampled_from(["flat", "nested", "deep"]))
    options = data.draw(st.sampled_from([{}, {"method": "m"}, {"case": "c"}]))
    curves = [[(step, 1 + run + step / 8) for step in range(num)] for run, num in enumerate(lengths)]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "runs"
        places = {
            "flat": lambda run: home / f"run{run}{ending}",
            "nested": lambda run: home / f"run{run}" / f"metrics{ending}",
            "deep": lambda run: home / f"{'xy'[run % 2]}" / f"run{run}" / f"metrics{ending}",
        }
        files = [write(places[layout](run), points) for run, points in enumerate(curves)]
        assume(len(set(files)) == num_runs)  # formats with a fixed name have a folder for each run
        order = data.draw(st.permutations(files))
        cuts = sorted(data.draw(st.sets(st.integers(1, num_runs), max_size=num_runs)) | {num_runs})
        groups = [order[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]
        one = attempt(Path(folder) / "one", [files], options)
        many = attempt(Path(folder) / "many", groups, options)
        below = attempt(Path(folder) / "below", [[home]], options)
        for done in (one, many, below):
            if done is not None:
                found, notes = done
                assert len(found) == num_runs or notes, (layout, groups)
                assert all(points in found.values() for points in curves) or notes, (layout, groups, found)
        if one is not None and many is not None:
            assert one[0] == many[0], (layout, groups)
        assert one is not None or many is None or num_runs == 1 or not all(len(group) == 1 for group in groups)
        assert below is not None or name == "chart", "a folder of runs is refused"  # exports of charts are named


@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_of_named_runs_are_one_store_however_they_are_split(data: st.DataObject) -> None:
    runs = [("adam", 0, A), ("adam", 1, B), ("sgd", 0, [(0, 7.0), (1, 6.0)])]
    rows = [row for method, seed, points in runs for row in curve(method, seed, [value for _, value in points])]
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    with tempfile.TemporaryDirectory() as folder:
        parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
        files = [write_csv(Path(folder) / f"{place}.csv", part, HEAD) for place, part in enumerate(parts)]
        one = attempt(Path(folder) / "one", [files], {})
        assert one is not None and len(one[0]) == 3
        many = attempt(Path(folder) / "many", [[file] for file in files], {})
        assert many is None or many[0] == one[0]


def test_compare_accepts_every_spelling_of_a_stored_metric(tmp_path: Path) -> None:
    for name, last in (("adam", 0.5), ("sgd", 0.7)):
        rows = [row for seed in range(3) for row in curve(name, seed, [0.1, last + seed / 100], metric="val/acc")]
        import_curves(write_csv(tmp_path / f"{name}.csv", rows), store=tmp_path / "s")
    for asked in ("val/acc", "val_acc", "val/accuracy", "validation/acc"):
        for words in (("--metric", asked), ("--target", f"{asked}=0.4")):
            done = lobench("compare", "adam", "sgd", "--store", tmp_path / "s", *words)
            assert done.returncode == 0, done.stderr
            assert "val/accuracy" in done.stdout


def test_a_single_file_with_a_seed_in_its_name_is_that_seed(tmp_path: Path) -> None:
    (tmp_path / "adam_seed3.csv").write_text("step,val_loss\n0,2\n10,1\n")
    store = tmp_path / "store"
    import_curves(tmp_path / "adam_seed3.csv", store=store, case="c", metrics=("val_loss",))
    (found,) = open_results(store).curves("val/loss")
    assert (found.subject.uri, found.seeds.tolist()) == ("imported:adam", [3])


def test_a_pattern_for_the_case_alone_leaves_method_and_seed_to_the_name(tmp_path: Path) -> None:
    for case, last in (("mnist", 1), ("wiki", 2)):
        chart = tmp_path / "charts" / case / "wandb_export.csv"
        chart.parent.mkdir(parents=True)
        chart.write_text(f'"Step","adam_seed3 - val/loss"\n"0","3"\n"10","{last}"\n')
    with pytest.raises(UsageError, match=SHOWN["mnist-wandb-export-csv-adam"]):
        import_curves(tmp_path / "charts", store=tmp_path / "store", pattern="(?P<case>mnist|wiki)/")
    import_curves(tmp_path / "charts", store=tmp_path / "store", pattern="(?P<case>mnist|wiki)/.*")
    found = open_results(tmp_path / "store").curves("val/loss")
    assert {(one.case.name, one.subject.uri, *one.seeds.tolist(), one.values[0, -1]) for one in found} == {
        ("mnist", "imported:adam", 3, 1.0),
        ("wiki", "imported:adam", 3, 2.0),
    }


@pytest.mark.parametrize("kind", ["table", "lines", "monitor", "history", "chart", "events", "log"])
def test_a_pattern_without_a_case_leaves_the_case_to_the_option(tmp_path: Path, kind: str) -> None:
    folder, metric = tmp_path / "runs" / "adam" / "version_3", "val_loss"
    match kind:
        case "table":
            folder.mkdir(parents=True)
            write_csv(folder / "metrics.csv", A, ("step", "val_loss"))
        case "lines":
            lines(folder / "metrics.jsonl", A)
        case "monitor":
            folder.mkdir(parents=True)
            (folder / "monitor.csv").write_text('#{"t_start": 1.0}\nr,l,t\n20,10,0.1\n')
            metric = "r"
        case "history":
            history(folder / "history.csv", A)
        case "chart":
            chart(folder / "wandb.csv", A, run="loss of it")
        case "events":
            events(folder, A)
        case "log":
            log(folder / "log.txt", A)
    pattern = "(?P<method>[a-z]+)/version_(?P<seed>[0-9]+)(/.*)?"
    import_curves(tmp_path / "runs", store=tmp_path / "store", case="mnist", pattern=pattern, metrics=(metric,))
    assert {name for _, name, _ in held(tmp_path / "store")} == {"imported/mnist"}


def test_event_files_without_the_metric_need_no_name_that_the_pattern_fits(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    for seed in range(2):
        writer = tensorboard.SummaryWriter(str(tmp_path / "runs" / f"adam_s{seed}"))
        for step, value in A:
            writer.add_scalar("val/loss", value + seed, step)
        writer.add_hparams({"lr": 0.1}, {"hparam/final": 0.5})  # into a folder of its own below the run's
        writer.close()
    pattern = "(?P<method>[a-z]+)_s(?P<seed>[0-9]+)"
    found, _ = taken(tmp_path / "runs", store=tmp_path / "store", case="c", pattern=pattern, metrics=("val/loss",))
    assert found == {"adam 0": A, "adam 1": [(step, value + 1) for step, value in A]}


def test_only_values_that_change_are_counted_as_replaced(tmp_path: Path) -> None:
    rows = [{"step": step, "eval_loss": value} for step, value in A]
    for folder, length in (("checkpoint-1", 2), ("checkpoint-2", 3), (".", 3)):
        path = tmp_path / "runs" / "adam_seed0" / folder / "trainer_state.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"global_step": length - 1, "log_history": rows[:length]}))
    found, notes = taken(tmp_path / "runs", store=tmp_path / "store", case="c", metrics=("eval_loss",))
    assert found == {"adam 0": A}
    assert "replaced" not in notes


def test_empty_values_of_a_long_table_are_counted_in_a_note(tmp_path: Path) -> None:
    rows = ["adam,c,0,0,loss,2", "adam,c,0,10,loss,", "adam,c,0,20,loss", "adam,c,0,20,other,1", "adam,c,0,10,other,"]
    (tmp_path / "a.csv").write_text("\n".join(["method,case,seed,step,metric,value", *rows]) + "\n")
    notes = import_curves(tmp_path / "a.csv", store=tmp_path / "store", metrics=("loss",)).notes
    assert any(SHOWN["of-3-rows-have-no"] in note for note in notes)


@pytest.mark.parametrize("kind", ["csv", "events"])
def test_folders_of_lightning_below_a_named_run_are_that_run(tmp_path: Path, kind: str) -> None:
    folders = {"adam_seed3/lightning_logs/version_0": A, "adam_seed4/version_0": B, "sgd/lightning_logs/version_1": A}
    for name, points in folders.items():
        folder = tmp_path / "runs" / name
        lines(folder / "metrics.jsonl", points) if kind == "csv" else events(folder, points)
    found, _ = taken(tmp_path / "runs", store=tmp_path / "store", case="c")
    assert found == {"adam 3": A, "adam 4": B, "sgd/version_1 0": A}


def test_logs_of_one_folder_with_names_of_no_run_are_one_run(tmp_path: Path) -> None:
    for seed, points in enumerate((A, B)):
        folder = tmp_path / "runs" / f"adam_seed{seed}"  # as Ray Tune writes them
        wide_csv(folder / "progress.csv", points)
        lines(folder / "result.json", points)
        (folder / "params.json").write_text('{"lr": 0.1}')
    found, _ = taken(tmp_path / "runs", store=tmp_path / "store", case="c", metrics=["val_loss"])
    assert found == {"adam 0": A, "adam 1": B}
    lines(folder / "history.jsonl", [(0, 9.0), (1, 8.0)])
    with pytest.raises(UsageError, match=SHOWN["point-is-there-twice"]):
        import_curves(tmp_path / "runs", store=tmp_path / "other", case="c", metrics=["val_loss"])
    wide_csv(folder / "other_seed7.csv", A)  # the folder has runs of their own now
    found, _ = taken(tmp_path / "runs", store=tmp_path / "third", case="c", metrics=["val_loss"])
    assert found["adam_seed1/other 7"] == A and found["adam_seed1/progress 0"] == B
