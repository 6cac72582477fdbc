"""Data files that the code of a suite or of a command names: a line after a change, once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shown import texts_of
from stores import add

from lobench.engine.config.user_code import code_fingerprint
from lobench.engine.store.data_files import (
    _inodes_written_by_readers,
    changed_data,
    changed_data_of_command,
    record_named_data,
)
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("store")

pytestmark = pytest.mark.usefixtures("any_program_is_forked")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "suite"
    (folder / "data").mkdir(parents=True)
    (folder / "set").mkdir()
    text = "from pathlib import Path\nSETTINGS = 'rates.toml'\nA = 'data/a.csv'\n"
    (folder / "code.py").write_text(
        f"{text}FAR = Path(__file__).parents[1] / 'far.json'\nopen('log.txt', 'w')\n"
        "import os\nDATA = Path(os.environ.get('DATA', str(Path(__file__).parent / 'set'))) / 'b.csv'\n"
    )
    for name in ("rates.toml", "data/a.csv", "set/b.csv", "../far.json", "other.toml", "x.gin", "log.txt"):
        (folder / name).write_text("1")
    return folder


@pytest.mark.parametrize("name", ["suite/rates.toml", "suite/data/a.csv", "suite/set/b.csv", "far.json"])
def test_data_file_that_code_names_is_reported_after_a_change(ledger: Ledger, suite: Path, name: str) -> None:
    gin_file = suite / "x.gin"  # a suite whose folders are not searched for data
    assert changed_data(ledger, [str(gin_file)]) == ""
    record_named_data(ledger, [str(gin_file)], map(Path, code_fingerprint([suite / "code.py"]).data_files))
    assert changed_data(ledger, [str(gin_file)]) == ""
    (suite / "other.toml").write_text("2")
    assert changed_data(ledger, [str(gin_file)]) == ""
    file = suite.parent / name
    file.write_text("2")
    assert SHOWN["data-file-changed-after-the"].format(name=name) in changed_data(ledger, [str(gin_file)])
    assert changed_data(ledger, [str(gin_file)]) == ""
    file.unlink()
    assert name in changed_data(ledger, [str(gin_file)])


def test_data_file_that_is_as_it_was_is_reported_if_there_are_results_of_the_change(
    tmp_path: Path, suite: Path
) -> None:
    file, store = suite / "data/a.csv", tmp_path / "store"

    def line_after(text: str) -> str:
        file.write_text(text)
        with Ledger.open(store) as ledger:
            return changed_data(ledger, [str(suite)])

    assert line_after("1") == ""
    assert "(suite/data/a.csv)" in line_after("2")
    assert line_after("1") == ""
    assert "(suite/data/a.csv)" in line_after("3")
    add(store, 0, {"bowl": {"train/loss": [1.0] * 4}})  # of the third content
    assert "(suite/data/a.csv)" in line_after("1")


def test_data_files_that_are_not_recorded_are_reported_again(ledger: Ledger, suite: Path) -> None:
    assert changed_data(ledger, [str(suite)]) == ""
    (suite / "data/a.csv").write_text("2")
    before = changed_data(ledger, [str(suite)], is_recorded=False)
    assert before == changed_data(ledger, [str(suite)]) != ""


def test_output_of_the_command_in_the_folder_of_a_suite_is_no_data(tmp_path: Path, suite: Path) -> None:
    code = """
import sys
from pathlib import Path
from lobench.engine.store.data_files import changed_data
from lobench.engine.store.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger:
    print("notice:", changed_data(ledger, [sys.argv[2]]))
"""
    command, file = [sys.executable, "-c", code, str(tmp_path / "store"), str(suite)], suite / "out.txt"
    for stream in ("stdout", "stderr", "stdout"):
        with file.open("w") as output:
            done = subprocess.run(command, check=True, **{"stdout": subprocess.PIPE, stream: output})
            output.write("more")
        assert (done.stdout or file.read_bytes()).startswith(b"notice: \n")
        assert subprocess.run(command, check=True, capture_output=True).stdout == b"notice: \n"
    for begun in (b"first ", b"again "):
        with subprocess.Popen(["tee", str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tee:
            assert tee.stdin is not None and tee.stdout is not None
            tee.stdin.write(begun)
            tee.stdin.flush()
            assert tee.stdout.read(6) == begun, "it has opened the file"
            subprocess.run(command, check=True, stdout=tee.stdin)
            tee.stdin.close()
            assert tee.stdout.read() == b"notice: \n"


def test_file_that_a_reader_of_the_output_reads_is_no_output(tmp_path: Path) -> None:
    data, log = tmp_path / "data.csv", tmp_path / "log.txt"
    data.touch()
    words = ["sh", "-c", 'exec 3<"$1" 4>"$2"; echo; cat', "sh", str(data), str(log)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        assert reader.stdin is not None and reader.stdout is not None
        assert reader.stdout.readline() == b"\n", "it has opened the files"
        pipe, written = os.fstat(reader.stdin.fileno()), log.stat()
        assert _inodes_written_by_readers((pipe.st_dev, pipe.st_ino)) == {(written.st_dev, written.st_ino)}
        reader.stdin.close()


def test_data_file_that_a_command_names_is_reported_after_a_change(ledger: Ledger, suite: Path) -> None:
    data = code_fingerprint([suite / "code.py"]).data_files
    assert {Path(file).name for file in data} == {"rates.toml", "a.csv", "b.csv", "far.json"}, (
        "a file that it writes is no data"
    )
    assert changed_data_of_command(ledger, "mine", data, "Method.files") == ""
    (suite / "rates.toml").write_text("2")
    line = changed_data_of_command(ledger, "mine", data, "Method.files")
    assert SHOWN["rates-toml-the-results-are"] in line
    assert changed_data_of_command(ledger, "mine", data, "Method.files") == ""


def test_data_file_outside_of_a_suite_that_is_a_link_is_found_again(
    ledger: Ledger, suite: Path, tmp_path: Path
) -> None:
    link = tmp_path / "one" / "two" / "linked"
    link.parent.mkdir(parents=True)
    link.symlink_to(suite)
    record_named_data(ledger, [str(link)], map(Path, code_fingerprint([suite / "code.py"]).data_files))
    assert changed_data(ledger, [str(link)]) == ""


def test_data_file_below_the_run_is_no_data_after_it_was_recorded_without_the_run(ledger: Ledger, suite: Path) -> None:
    run = str(suite / "data")
    assert changed_data(ledger, [str(suite)]) == ""
    assert changed_data(ledger, [str(suite)], run) == ""
    (suite / "data/a.csv").write_text("2")
    assert changed_data(ledger, [str(suite)], run) == ""
