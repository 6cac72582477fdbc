"""Files that `lobench import` and the reader of npz should not be led astray by, each one clear line within seconds."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from etils import epath
from forked import python
from imported import held
from shown import texts_of
from stores import add
from tiny import PATIENCE

from lobench.core.errors import CheckpointError, UsageError
from lobench.engine.checkpoints.readers import NpzReader
from lobench.engine.csv_files import read_text
from lobench.tools.curve_import.imports import import_curves

SHOWN = texts_of("import")

HEADER = b"method,case,seed,step,metric,value\n"


def test_a_gzipped_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(1 << 24), mtime=0)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(HEADER) + packed * 40)
    bomb = tmp_path / "bomb.csv.gz"
    with pytest.raises(UsageError, match=SHOWN["bomb-csv-gz-the-file"]):
        import_curves(bomb, store=tmp_path / "store")


# Interrupts itself while a file is read, as Ctrl-C does: 130, and no error of the file.
INTERRUPTED = """
import gzip, os, signal, sys
real = gzip.GzipFile.read
at = [int(sys.argv.pop())]
def read(self, size=-1, calls=[0]):
    calls[0] += 1
    if calls[0] == at[0]:
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, size)
gzip.GzipFile.read = read
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
from lobench.cli import main
sys.argv[0] = "lobench"
main()
"""


@pytest.mark.parametrize("at", [2, 12])
def test_an_interrupt_while_a_gzipped_file_is_read_is_an_interrupt(at: int, tmp_path: Path) -> None:
    rows = b"".join(b"adam,a,0,%d,loss,0.5\n" % step for step in range(20_000))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(HEADER + rows))
    words = ("-c", INTERRUPTED, "import", tmp_path / "a.csv.gz", "--store", "store", str(at))
    done = python(*words, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 130 and not (tmp_path / "store").exists(), done.stderr


def test_arrays_that_declare_gigabytes_are_refused_before_they_are_made(tmp_path: Path) -> None:
    def header(num_bytes: int) -> bytes:
        found = io.BytesIO()
        shape = (num_bytes // 4,)
        np.lib.format.write_array_header_1_0(found, {"descr": "<f4", "fortran_order": False, "shape": shape})
        return found.getvalue()

    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("w.npy", header(1 << 35) + bytes(64))
    # What it unpacks to is above the limit by its header.
    with zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", header(1 << 28) + bytes(1 << 28))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(CheckpointError, match=SHOWN["too-large-for-a-theta"]):
            NpzReader().read(epath.Path(tmp_path / name))


def test_names_that_a_spreadsheet_would_compute_are_texts_in_a_csv(tmp_path: Path) -> None:
    add(tmp_path / "store", 0, {"=1+1": {"train/loss": [-1.0, 2.0]}}, optimizer="@sum(A1)")
    text = lobench("results", "--store", tmp_path / "store", "--format", "csv").stdout
    assert "'=1+1" in text and "'@sum(A1)" in text and ",=1+1" not in text and ",-1.0" in text


def test_json_lines_are_read_as_a_csv_is(tmp_path: Path) -> None:
    rows = [{"event": "begun"}, *({"iter": step, "val": {"loss": 1.0 - step / 10}, "lr": 0.1} for step in range(3))]
    rows += [{"iter": 3, "lr": 0.1}, {"iter": 4, "val": {"loss": float("nan")}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError) as refused:
        import_curves(tmp_path / "log.jsonl", store=tmp_path / "store")
    typed = "--method log --case NAME --seed 0 --column step=iter --metric val.loss"
    assert typed in str(refused.value)
    words = typed.replace("NAME", "mine").split()
    done = lobench("import", tmp_path / "log.jsonl", *words, "--store", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    (curve,) = held(tmp_path / "store")["log", "imported/mine", 0].values()
    assert curve[:3] == [(0, 1.0), (1, 0.9), (2, 0.8)] and curve[3][0] == 4 and np.isnan(curve[3][1])
    # What begins as JSON is told of as JSON, whatever is wrong with it.
    for name, line in (
        ("deep", '{"step": 0, "a": ' + "[" * 100_000),
        ("digits", '{"step": 0, "loss": 1' + "0" * 5000 + "}"),
    ):
        (tmp_path / f"{name}.jsonl").write_text(line + "\n")
        with pytest.raises(UsageError, match=SHOWN["jsonl-line-1-a-line"].format(name=name)):
            import_curves(tmp_path / f"{name}.jsonl", store=tmp_path / "no", case="b", metrics=("loss",))
    (tmp_path / "cut.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "lo')
    with pytest.raises(UsageError, match=SHOWN["cut-jsonl-line-2-the"]):
        import_curves(tmp_path / "cut.jsonl", store=tmp_path / "no", method="a", case="b", seed="0", metrics=("loss",))


def test_a_folder_of_logs_that_become_seeds_is_said_first(tmp_path: Path) -> None:
    for number in range(4):
        row = f"step:0/1 val_loss:{2 + number} train_time:1s step_avg:1ms\n"
        (tmp_path / "logs").mkdir(exist_ok=True)
        (tmp_path / "logs" / f"{number}.txt").write_text(row)
    done = lobench("import", tmp_path / "logs", "--store", tmp_path / "store")
    assert done.returncode == 0 and SHOWN["logs-are-seeds-of-one"] in done.stderr
    assert "4 logs" not in done.stdout


def test_a_log_that_is_scored_is_unpacked_no_further_than_one_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(bytes(1 << 24), mtime=0) * 40)
    with pytest.raises(UsageError, match=SHOWN["unpacks-to-far-more-than"]):
        read_text(tmp_path / "bomb.csv.gz")
