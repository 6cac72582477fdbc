"""Each kind of file, as its tool writes it, and what is no such file: one clear line."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from forked import python
from imported import HEADER, curve, held, write_csv
from shown import texts_of

from lobench.core.errors import UsageError
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

CURVE = [(0, 2.3), (100, 0.5)]


def taken(file: Path, **options: object) -> dict:
    store = file.parent / "store"
    import_curves(file, store=store, **options)
    return held(store)


def refusal(file: Path, **options: object) -> str:
    store = file.parent / "refused"
    with pytest.raises(UsageError) as caught:
        import_curves(file, store=store, **options)
    assert not store.exists(), "something was written"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_tidy_csv_gzipped_in_any_order(tmp_path: Path) -> None:
    rows = [*curve("adam", 0, [2.3, 0.5]), *curve("adam", 1, [2.2, 0.4])]
    file = write_csv(tmp_path / "a.csv.gz", [rows[3], rows[0], rows[2], rows[1]])
    found = taken(file)
    assert found == {
        ("adam", "imported/mnist", 0): {"val/loss": CURVE},
        ("adam", "imported/mnist", 1): {"val/loss": [(0, 2.2), (100, 0.4)]},
    }


def test_names_that_look_like_numbers_stay_what_they_are(tmp_path: Path) -> None:
    names = ["1e-3", "1e-03", "007", "7", "1.10", "1.1"]
    file = write_csv(tmp_path / "a.csv", [row for name in names for row in curve(name, "0", [2.3, 0.5], case="08")])
    assert taken(file) == {(name, "imported/08", 0): {"val/loss": CURVE} for name in names}


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_seeds_that_pandas_wrote_as_floats_are_whole_numbers(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame(
        [row for seed in (3.0, 1.0, 42.0) for row in curve("adam", seed, [2.3, seed / 100])], columns=HEADER
    )
    file = tmp_path / f"a.{kind}"
    match kind:
        case "csv":
            frame.to_csv(file, index=False)
        case "jsonl":
            frame.to_json(file, orient="records", lines=True)
        case "parquet":
            frame.to_parquet(file)
    found = taken(file, paired_seeds=True)
    assert {seed: points["val/loss"][-1][1] for (_, _, seed), points in found.items()} == {1: 0.01, 3: 0.03, 42: 0.42}


def test_a_column_for_each_metric_with_names_of_its_own(tmp_path: Path) -> None:
    rows = [("run-a", 0, 2.3, 0.1, 1), ("run-a", 100, 0.5, "", 2)]
    rows += [("run-b", 0, 2.2, 0.1, 3), ("run-b", 100, "nan", 0.2, 4)]
    file = write_csv(tmp_path / "wide.csv", rows, ("run", "it", "val_loss", "val_acc", "noise"))
    found = taken(file, columns=["seed=run", "step=it"], metrics=["val_loss", "val_acc"], method="adam", case="mnist")
    assert found["adam", "imported/mnist", 0] == {"val/loss": CURVE}  # an empty cell was not logged
    assert [step for step, _ in found["adam", "imported/mnist", 1]["val/accuracy"]] == [0, 100]
    assert math.isnan(found["adam", "imported/mnist", 1]["val/loss"][1][1])  # the text nan was


def test_missing_columns_are_named_with_those_that_are_there(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", [("adam", 0, 1, 2)], ("method", "step", "val_loss", "epoch"))
    output = refusal(file)
    assert SHOWN["csv-the-table-lacks-the"] in output
    assert SHOWN["column-role-column"] in output


@pytest.mark.parametrize(
    ("rows", "output"),
    [
        (
            [("adam", "m", 0, 0, "loss", "1.5"), ("adam", "m", 0, 1, "loss", "much")],
            SHOWN["line-3-value-is-no"],
        ),
        ([("adam", "m", 0, "1.5", "loss", 1)], SHOWN["line-2-step-is-no"]),
        ([("adam", "m", 0, -1, "loss", 1)], SHOWN["line-2-step-is-no-step"]),
        ([("adam", "m", 0, "", "loss", 1)], SHOWN["line-2-step-is-no-number"]),
        ([("", "m", 0, 1, "loss", 1)], SHOWN["line-2-no-method"]),
        (
            [("adam", "m", 0, 1, "loss", 1), ("adam", "m", 1, 1, "loss", 1), ("adam", "m", 0, 1, "loss", 2)],
            SHOWN["lines-2-and-4-a"],
        ),
        ([("adam", "m", 0, 0, "speed", 1)], SHOWN["it-is-unknown-which-way"]),
        (
            [("adam", "m", 0, 0, "loss", 1), ("adam", "m", 0, 0, "val_acc", 1)],
            SHOWN["case-m-has-several-metrics"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, rows: list, output: str) -> None:
    assert output in refusal(write_csv(tmp_path / "a.csv", rows))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("again", [0.4, 0.5], ids=["resumed", "doubled"])
def test_a_step_that_a_run_has_twice_is_refused_with_what_to_type(tmp_path: Path, kind: str, again: float) -> None:
    names = ("method", "case", "seed", "step", "metric", "value")
    rows = [("adam", "m", 0, 0, "loss", 1.5), ("adam", "m", 0, 1, "loss", 0.5), ("adam", "m", 0, 1, "loss", again)]
    write_csv(tmp_path / "a-log.csv", [("adam", "m", 1, 0, "loss", 1.5), ("adam", "m", 1, 1, "loss", 0.25)], names)
    file = tmp_path / f"log.{kind}"
    if kind == "csv":
        write_csv(file, rows, names)
    else:
        file.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    output = refusal(tmp_path / "*log*")
    lines = "lines 3 and 4" if kind == "csv" else "lines 2 and 3"
    point = f"method 'adam', case 'm', seed 0, metric 'loss', step 1: 0.5 and {again}"
    assert (
        SHOWN["point-is-there-twice-got"].format(file=file, lines=lines, point=point) in output and "\n" not in output
    )
    found = taken(tmp_path / "*log*", last_counts=True)
    assert {seed: points["loss"][-1][1] for (_, _, seed), points in found.items()} == pytest.approx({0: again, 1: 0.25})


def test_what_is_no_table_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    assert SHOWN["file-is-empty"] in refusal(tmp_path / "empty.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00\x01" * 40)
    assert "bytes.csv" in refusal(tmp_path / "bytes.csv")
    (tmp_path / "cut.csv.gz").write_bytes(
        write_csv(tmp_path / "whole.csv.gz", curve("a", 0, [1] * 99)).read_bytes()[:80]
    )
    assert "cut.csv.gz" in refusal(tmp_path / "cut.csv.gz")
    assert SHOWN["no-such-file"] in refusal(tmp_path / "nobody.csv")
    assert "cut.csv.gz" in refusal(tmp_path)  # a folder with a damaged file
    write_csv(tmp_path / "only_header.csv", [])
    assert SHOWN["there-is-nothing-to-import"] in refusal(tmp_path / "only_header.csv")


def test_the_csv_of_a_wandb_chart(tmp_path: Path) -> None:
    header = ["Step"]
    for run in ("adam - big_seed0", "adam - big_seed1"):
        header += [
            f"{run} - _step",
            f"{run} - _step__MIN",
            f"{run} - val/loss",
            f"{run} - val/loss__MIN",
            f"{run} - val/loss__MAX",
        ]
    rows = [
        (0, 0, 0, 2.3, 2.3, 2.3, 0, 0, 2.2, 2.2, 2.2),
        (100, 100, 100, 0.5, 0.5, 0.5, "", "", "", "", ""),
        (200, "", "", "", "", "", 200, 200, 0.4, 0.3, 0.5),
    ]
    file = write_csv(tmp_path / "chart.csv", rows, header)
    imported = import_curves(file, store=tmp_path / "store", case="mnist")
    assert held(tmp_path / "store") == {
        ("adam - big", "imported/mnist", 0): {"val/loss": CURVE},
        ("adam - big", "imported/mnist", 1): {"val/loss": [(0, 2.2), (200, 0.4)]},
    }
    assert any(SHOWN["means-of-several-points"] in note for note in imported.notes)


def test_the_history_of_wandbs_api(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"_step": [0, 50, 100], "_runtime": [1, 2, 3], "val/loss": [2.3, None, 0.5], "train/loss": [2.3, 1.0, 0.4]}
    )
    frame.to_csv(tmp_path / "my_run.csv")
    found = taken(tmp_path / "my_run.csv", metrics=["val/loss", "train/loss"], method="adam", case="mnist")
    assert found == {("adam", "imported/mnist", 0): {"train/loss": [(0, 2.3), (100, 0.4)], "val/loss": CURVE}}


def test_wandbs_table_of_runs_is_no_history(tmp_path: Path) -> None:
    header = ("Name", "State", "Notes", "User", "Tags", "Created", "Runtime", "Sweep", "lr", "val/loss")
    file = write_csv(tmp_path / "runs.csv", [("adam", "finished", "-", "me", "", "2026", 3, "", 0.1, 0.5)], header)
    assert SHOWN["this-is-w-b-s"] in refusal(file)


def test_a_metric_that_no_file_has_is_told_those_that_are_there(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "c.csv", [(0, 2.0)], ("Step", "adam - val_loss"))
    assert SHOWN["there-is-nothing-to-import-got"] in refusal(file, metrics=["loss"])
    with pytest.raises(UsageError, match=SHOWN["not-a-regular-expression-got"]):
        import_curves(file, store=tmp_path / "s", pattern="(")


def test_a_wandb_chart_over_time_is_refused(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", [(0.5, 2.0)], ("Relative Time (Process)", "adam - loss"))
    assert SHOWN["chart-s-axis-is-time"] in refusal(file)


def test_event_files_of_tensorboard(tmp_path: Path) -> None:
    summary = pytest.importorskip("tensorboard.summary")
    for seed, values in ((0, (2.3, 0.5)), (1, (2.2, 0.4))):
        writer = summary.Writer(str(tmp_path / "logs" / f"adam_seed{seed}"))
        for place, value in enumerate(values):
            writer.add_scalar("val/loss", value, 100 * place)
            writer.add_scalar("lr", 0.1, 100 * place)
        writer.close()
    found = taken(tmp_path / "logs", case="mnist", metrics=["val/loss"])
    assert found == {
        ("adam", "imported/mnist", 0): {"val/loss": CURVE},
        ("adam", "imported/mnist", 1): {"val/loss": [(0, 2.2), (100, 0.4)]},
    }
    assert "primary" in refusal(tmp_path / "logs", case="mnist")


def test_the_csv_of_tensorboards_page(tmp_path: Path) -> None:
    file = write_csv(
        tmp_path / "run-adam_seed2-tag-val_loss.csv", [(1.5, 0, 2.3), (2.5, 100, 0.5)], ("Wall time", "Step", "Value")
    )
    assert taken(file) == {("adam", "imported/task", 2): {"val/loss": CURVE}}
    bare = file.rename(tmp_path / "x.csv")
    assert "run-RUN-tag-TAG.csv" in refusal(bare)


def test_a_folder_of_mlflows_file_store(tmp_path: Path) -> None:
    runs = tmp_path / "mlruns" / "1"
    for run, stage, text in (("a1", "active", "3 2.3 0\n5 0.9 100\n7 0.5 100\n"), ("b2", "deleted", "3 9 0\n")):
        (runs / run / "metrics" / "val").mkdir(parents=True)
        (runs / run / "tags").mkdir()
        (runs / run / "meta.yaml").write_text(f"lifecycle_stage: {stage}\nrun_name: 'adam-seed-4'\n")
        (runs / run / "metrics" / "val" / "loss").write_text(text)
    assert taken(tmp_path / "mlruns", case="mnist") == {("adam", "imported/mnist", 4): {"val/loss": CURVE}}
    (runs / "a1" / "metrics" / "val" / "loss").write_text("3 2.3 -7\n5 0.5 100\n")
    assert SHOWN["step-is-below-0-got"] in refusal(tmp_path / "mlruns")
    (runs / "a1" / "metrics" / "val" / "loss").write_text("3 2.3 0\nnever\n")
    assert re.search(SHOWN["val-loss-line-2-not"], refusal(tmp_path / "mlruns"))


def test_a_log_of_modded_nanogpt(tmp_path: Path) -> None:
    text = "print(f'val_loss:{x}')\nstep:{a} val_loss:{b}\n"
    rows = [(0, 2.3), (100, 0.5)], [(0, 2.2), (100, 0.4)], [(100, 0.4)]
    for run in rows:
        for step, loss in run:
            text += f"step:{step}/100 val_loss:{loss} train_time:{loss}s step_avg:nanms extra:none\n"
    (tmp_path / "muon.txt").write_text(text)
    imported = import_curves(tmp_path / "muon.txt", store=tmp_path / "store")
    assert held(tmp_path / "store") == {
        ("muon", "imported/task", 0): {"val/loss": CURVE},
        ("muon", "imported/task", 1): {"val/loss": [(0, 2.2), (100, 0.4)]},
    }
    assert any(SHOWN["part-repeat"] in note for note in imported.notes)


def test_algoperf_asks_for_its_targets(tmp_path: Path) -> None:
    rows = [
        ("nadamw", 0, "wmt", 1, 0, 1.0, 0.1),
        ("nadamw", 0, "wmt", 1, 100, 2.0, 0.3),
        ("nadamw", 1, "wmt", 1, 100, 2.0, 0.2),
    ]
    header = ("submission", "study", "workload", "trial", "global_step", "time", "val_metric")
    file = write_csv(tmp_path / "evals.csv", rows, header)
    assert SHOWN["targets-file"] in refusal(file)
    targets = {
        "base_workloads": ["wmt"],
        "workloads": {"wmt": {"target_metric_name": "bleu", "validation_target_value": 0.3}},
    }
    (tmp_path / "targets.json").write_text(json.dumps(targets))
    found = taken(file, targets=tmp_path / "targets.json")
    assert found["nadamw", "algoperf/wmt", 0] == {"val/bleu": [(0, 0.1), (100, 0.3)]}
    assert found["nadamw", "algoperf/wmt", 1] == {"val/bleu": [(100, 0.2)]}


def test_what_no_reader_knows_is_told_what_is_read(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", curve("adam", 0, [1, 2]))
    assert SHOWN["did-you-mean-tidy"] in refusal(file, kind="tidi")
    (tmp_path / "a.json").write_text('[{"label": "x"}]')
    assert SHOWN["not-results-of-lobench"] in refusal(tmp_path / "a.json")


def test_a_decimal_comma_or_a_row_that_is_cut_off_is_no_other_number(tmp_path: Path) -> None:
    head, file = "method,case,seed,step,metric,value\n", tmp_path / "a.csv"
    file.write_text(head + "adam,m,0,0,loss,2\nadam,m,0,10,loss,0,31\n")
    assert SHOWN["csv-line-3-a-row"] in refusal(file)
    file.write_text(head + "adam,m,0,0,loss,2,5\nadam,m,0,10,loss,0,31\n")
    assert SHOWN["line-2-a-row-has"] in refusal(file)
    file.write_text((head + "adam,m,0,0,loss,2,5\n").replace(",", ";"))
    assert SHOWN["separated-by-here-write-commas"] in refusal(file)
    file.write_text(head + "adam,m,0,0,loss,2\nadam,m,0,10,lo")  # who writes it has not flushed the rest
    assert SHOWN["last-line-is-cut-off"] in refusal(file)
    file.write_text(head + 'adam,m,0,0,loss,2,\n"ad,am",m,0,10,loss,1')
    assert taken(file)["ad,am", "imported/m", 0] == {"loss": [(10, 1)]}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_with_a_column_for_each_run_is_told_how_to_convert_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"iteration": [0, 100], "adam_seed0": [2.3, 0.5], "sgd-seed3": [2.3, 0.75], "time": [0, 1]})
    frame.to_csv("wide.csv", index=False) if kind == "csv" else frame.to_parquet("wide.parquet")
    text = refusal(tmp_path / f"wide.{kind}", case="c")
    code = re.search(r"it has a column for each run; (python -c .*) writes a row for each value", text)
    assert code, text
    done = python(*shlex.split(code[1])[1:])
    assert done.returncode == 0, done.stderr
    assert taken(tmp_path / "wide_rows.csv", case="c", metrics=("loss",)) == {
        ("adam", "imported/c", 0): {"loss": [(0, 2.3), (100, 0.5)]},
        ("sgd", "imported/c", 3): {"loss": [(0, 2.3), (100, 0.75)]},
    }


def test_what_is_no_file_or_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert SHOWN["this-is-neither-a-file"] in refusal(tmp_path / "pipe")
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs" / "today.log")
    assert SHOWN["nothing-reads-this"] in refusal(tmp_path / "logs")
    (tmp_path / "circle").symlink_to("circle")
    assert re.search(
        SHOWN["symlink-loop-no-such-file"], refusal(tmp_path / "circle")
    )  # as the version of Python has it
    assert SHOWN["this-cannot-be-a-file"] in refusal(tmp_path / ("a" * 300))


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (lambda one: one["case"].pop("identity"), SHOWN["record-is-damaged-got-no"]),
        (lambda one: one.pop("num_inner_steps"), SHOWN["record-is-damaged-got-no-num"]),
        pytest.param(lambda one: one.update(metrics=["loss"]), SHOWN["record-is-damaged"], id="metrics"),
        (lambda one: one.update(eval_steps=[0, 0.5]), SHOWN["eval-steps-is-no-step"]),
        (lambda one: one.update(eval_steps=[-5, 0]), SHOWN["eval-steps-is-no-step-got"]),
        pytest.param(lambda one: one["curves"].update(loss=[[3, 2, 1]]), SHOWN["record-is-damaged"], id="curves"),
        (lambda one: one.pop("label"), SHOWN["record-is-damaged-got-no-label"]),
    ],
)
def test_a_record_that_is_not_whole_is_one_line(tmp_path: Path, change: Callable, output: str) -> None:
    one = {
        "label": "adam",
        "checkpoint": {"sha256": ""},
        "optimizer": "adam()",
        "case": {"suite": "quick", "name": "relu32", "identity": "f" * 64},
        "num_inner_steps": 10,
        "primary_metric": "loss",
        "seeds": [0],
        "eval_steps": [0, 10],
        "metrics": {"loss": {"direction": "min", "per_seed": [1.0]}},
        "curves": {"loss": [[2.0, 1.0]]},
    }
    file = tmp_path / "a.json"
    file.write_text(json.dumps([one]))
    assert taken(file)["adam", "quick/relu32", 0] == {"loss": [(0, 2), (10, 1)]}
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf\n" + file.read_bytes()))
    assert taken(packed)["adam", "quick/relu32", 0] == {"loss": [(0, 2), (10, 1)]}
    change(one)
    file.write_text(json.dumps([one]))
    assert output in refusal(file)
