"""Code of commands: which stored sessions count, and names without paths."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.experiment import Experiment, Method
from lobench.engine.config.experiment.environments import portable_python
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.config.origin import Revision
from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger
from lobench.experiments.command_code import CommandCode, code_of_commands, record_command_codes

SHOWN = texts_of("run")

METHOD = Method(
    name="mine", command="python train.py --out={out} {session}", curves="{out}/c.jsonl", files=("data/*.json",)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/rates.json").write_text("1")
    (tmp_path / "train.py").write_text("import helper\nprint(1)\n")
    (tmp_path / "helper.py").write_text("RATE = 1\n")
    return tmp_path


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "store") as opened:
        yield opened


def code_of(folder: Path, ledger: Ledger | None, *, keep: bool = False, method: Method = METHOD) -> CommandCode:
    file = ExperimentFile(path=folder / "x.gin", text="", experiment=Experiment(methods=(method,)), shared_lines=())
    (found,) = code_of_commands(file, [method], ledger, keep_results=keep)
    return found


def ended(ledger: Ledger, code: CommandCode) -> list[str]:
    """Records the code of a command, and that a session of it ended well; returns the lines for people."""
    lines = list(record_command_codes([code], ledger))
    revision = Revision(commit="", is_dirty=False)
    form = ledger.record_experiment("x", code.method.code or "", revision=revision, versions={})
    parameters = {"folder": f"{code.method.folder_name}/0"}
    ledger.record_trial(form, TrialRow(method="mine", parameters=parameters, state="done"))
    return lines


@pytest.mark.parametrize("name", ["train.py", "helper.py", "data/rates.json"])
def test_command_with_edited_file_has_another_folder_and_a_line(folder: Path, ledger: Ledger, name: str) -> None:
    first = code_of(folder, ledger)
    assert not ended(ledger, first)
    assert code_of(folder, ledger).method.folder_name == first.method.folder_name
    (folder / name).write_text((folder / name).read_text().replace("1", "2"))
    second = code_of(folder, ledger)
    assert second.method.folder_name != first.method.folder_name
    assert ended(ledger, second) == [SHOWN["mine-1-result-was-made"].format(name=Path(name).name)]


@pytest.mark.parametrize(
    "command",
    [
        "./run.sh --out={out} {session}",
        "bash run.sh {out}",
        "sh -c 'python train.py --out {out}'",
        "sh -c 'cd . && python -u train.py'",
        "env A=1 python train.py",
        "sh -c './run.sh {out}'",
        "sh -c 'python -m train {out}'",
        "make -f Makefile train",
        "bash plain.sh {out}",
        "sh -c '. $HERE/plain.sh {out}'",
    ],
)
@pytest.mark.parametrize("name", ["train.py", "helper.py"])
def test_command_through_a_shell_counts_the_scripts_that_it_starts(folder: Path, command: str, name: str) -> None:
    (folder / "Makefile").write_text("train:\n\t./run.sh\n")
    (folder / "run.sh").write_text('#!/bin/sh\n# starts it\nset -e\npython "${HERE}/train.py" "$@"\n./run.sh\n')
    (folder / "plain.sh").write_text("HERE=$(dirname $0)\npython $HERE/train.py $1\n")
    method = Method(name="mine", command=command, curves=METHOD.curves)
    first = code_of(folder, None, method=method).current
    assert code_of(folder, None, method=method).current.id == first.id
    (folder / name).write_text((folder / name).read_text().replace("1", "2"))
    assert code_of(folder, None, method=method).current.id != first.id


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("env PYTHONPATH=lib python use.py", "lib/rates.py"),
        ("env PYTHONPATH=data:lib python use.py", "lib/rates.py"),
        ("sh -c 'export PYTHONPATH=lib; python use.py {out}'", "lib/rates.py"),
        ("sh -c 'PYTHONPATH=${HERE}/data:${HERE}/lib python use.py {out}'", "lib/rates.py"),
        ("bash library.sh {out}", "lib/rates.py"),
        ("sh -c 'cd lib && python go.py {out}'", "lib/rates.py"),
        ("sh -c 'cd lib; python -m inner.go {out}'", "lib/rates.py"),
        ("sh -c 'cd lib && python -m inner {out}'", "lib/inner/__main__.py"),
        ("make -C lib", "lib/rates.py"),
        ("make", "lib/Makefile"),
        ("python -m inner {out}", "inner/__main__.py"),
        ("python -c 'import use; use.main()' {out}", "use.py"),
    ],
)
def test_command_that_changes_its_folder_or_import_path_counts_what_it_finds_there(
    folder: Path, command: str, name: str
) -> None:
    for place in (folder, folder / "lib"):
        (place / "inner").mkdir(parents=True)
        (place / "inner/__init__.py").write_text("")
        for script in ("inner/go.py", "inner/__main__.py", "use.py", "go.py"):
            (place / script).write_text("import rates\n")
    (folder / "lib/rates.py").write_text("RATE = 1\n")
    (folder / "rates.py").write_text("RATE = 1\n")
    (folder / "lib/Makefile").write_text("all:\n\tpython go.py\n")
    (folder / "Makefile").write_text("all:\n\tmake -C lib\n")
    (folder / "library.sh").write_text("source ./names.sh\nPYTHONPATH=$EXTRA python use.py\n")
    (folder / "names.sh").write_text("EXTRA=lib\n")
    method = Method(name="mine", command=command, curves=METHOD.curves)
    first = code_of(folder, None, method=method).current
    assert first.id
    (folder / name).write_text((folder / name).read_text() + "X = 2\n")
    assert code_of(folder, None, method=method).current.id != first.id


def test_command_with_a_word_that_is_a_folder_takes_no_modules_from_there_or_from_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for place in (folder, folder / "main", tmp_path / "other"):
        place.mkdir()
        (place / "rates.py").write_text("RATE = 1\n")
        (place / "train.py").write_text("import rates\n")
    method = Method(name="mine", command="python train.py main --mode=main ../other", curves=METHOD.curves)
    assert {Path(file).parent for file in code_of(folder, None, method=method).current.files} == {folder}
    method = Method(name="mine", command="sh -c 'cd ../other && python train.py'", curves=METHOD.curves)
    assert {Path(file).parent for file in code_of(folder, None, method=method).current.files} == {folder}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("nox -s train", "noxfile.py"),
        ("invoke train", "tasks.py"),
        ("npm run train", "package.json"),
        ("just train", "more.py"),
        ("pytest test_more.py", "conftest.py"),
        ("python -m pytest tools/tests/test_more.py::test_x -q", "tools/conftest.py"),
        ("python tools", "tools/__main__.py"),
        ("python more.py @options.txt", "options.txt"),
        ("cargo run --release", "src/rules/fast.rs"),
        ("go run .", "more.go"),
        ("cmake --build build", "kernel.h"),
        ("docker compose run train", "Dockerfile"),
        ("poetry run more", "src/rules.py"),
        ("uv run more --out {out}", "src/rules.py"),
        ("Rscript run.R {out}", "more.R"),
        ("node run.mjs {out}", "more.mjs"),
        ("papermill run.ipynb {out}/run.ipynb", "more.py"),
        ("./run --out {out}", "more.py"),
        ("{folder}/run --out {out}", "more.py"),
        ("{folder}/run.sh {out}", "more.py"),
        ("{folder}/elsewhere/run.sh {out}", "elsewhere/run.sh"),
    ],
)
def test_command_counts_the_files_that_its_program_finds_itself(tmp_path: Path, command: str, name: str) -> None:
    (tmp_path / "justfile").write_text("train:\n    python more.py\n")
    (tmp_path / "CMakeLists.txt").write_text("add_executable(train kernel.cpp)\n")
    (tmp_path / "kernel.cpp").write_text('#include "kernel.h"\n')
    (tmp_path / "pyproject.toml").write_text("[project.scripts]\nmore = 'rules:main'\n")
    (tmp_path / "run.R").write_text("source('more.R')\n")
    (tmp_path / "run.mjs").write_text("import rule from './more.mjs'\n")
    cell = {"cell_type": "code", "source": ["import more\n"]}
    (tmp_path / "run.ipynb").write_text(json.dumps({"cells": [cell]}))
    (tmp_path / "run").write_text("#!/usr/bin/env python3\nimport more\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\npython more.py\n")
    for script in ("run", "run.sh"):
        (tmp_path / script).chmod(0o755)
    command = command.replace("{folder}", str(tmp_path))
    for one in ("more.py", "test_more.py", name):
        (tmp_path / one).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / one).write_text("X = 1\n")
    method = Method(name="mine", command=command, curves="{out}/c.jsonl")
    first = code_of(tmp_path, None, method=method).current
    (tmp_path / name).write_text("X = 2\n")
    assert code_of(tmp_path, None, method=method).current.id != first.id


@pytest.mark.parametrize("start", ["#!/usr/bin/env python3", "#!/bin/sh\n'''exec' '/a b/python' \"$0\" \"$@\"\n' '''"])
@pytest.mark.parametrize("command", ["mytrain --out {out}", "uv run mytrain", "sh -c 'A=1 mytrain {out}'", "./go.sh"])
def test_command_of_an_installed_package_counts_the_modules_of_its_entry_point(
    tmp_path: Path, command: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "mytrain"
    script.parent.mkdir()
    script.write_text(f"{start}\nimport re, sys\nfrom odd_package.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    package = tmp_path / "installed" / "odd_package"
    package.mkdir(parents=True)
    (package / "cli.py").write_text("from odd_package.rates import RATE\n")
    (package / "rates.py").write_text("RATE = 1\n")
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.syspath_prepend(package.parent)
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "go.sh").write_text("#!/bin/sh\nmytrain $1\n")
    method = Method(name="mine", command=command, curves="{out}/c.jsonl")
    first = code_of(folder, None, method=method).current
    (package / "rates.py").write_text("RATE = 2\n")
    assert code_of(folder, None, method=method).current.id != first.id


@pytest.mark.parametrize("command", ["{python} train.py", "env A=1 {python} train.py", "sh -c '{python} train.py'"])
def test_command_does_not_count_its_program(folder: Path, command: str) -> None:
    python = folder.parent / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    method = Method(name="mine", command=command.format(python=python), curves=METHOD.curves)
    parts = code_of(folder, None, method=method).current.parts
    assert sorted(parts) == ["helper.py", "train.py"]


@pytest.mark.parametrize("command", ["{launcher} train.py", "sh -c '{launcher} train.py'"])
def test_command_does_not_count_a_program_beside_its_python(tmp_path: Path, command: str) -> None:
    launcher = tmp_path / "environment" / "bin" / "launch"
    launcher.parent.mkdir(parents=True)
    launcher.with_name("python").write_bytes(b"\x7fELF")
    launcher.write_text(f"#!{launcher.with_name('python')}\nimport helper\n")
    launcher.chmod(0o755)
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "train.py").write_text("RATE = 1\n")
    method = Method(name="mine", command=command.format(launcher=launcher), curves=METHOD.curves)
    assert sorted(code_of(folder, None, method=method).current.parts) == ["train.py"]


def test_command_does_not_count_files_to_which_its_shell_redirects_output(folder: Path) -> None:
    command = "sh -c 'python train.py {out} >> log.txt 2>err.txt; ./run.sh &> all.log | tee -a tee.txt'"
    (folder / "run.sh").write_text("#!/bin/sh\npython train.py 2>&1 > run.log < train.py\n")
    method = Method(name="mine", command=command, curves=METHOD.curves)
    first = code_of(folder, None, method=method).current
    for name in ("log.txt", "err.txt", "all.log", "run.log", "tee.txt"):
        (folder / name).write_text("step 1")
    assert code_of(folder, None, method=method).current.id == first.id
    assert {"train.py", "run.sh"} <= first.parts.keys()


def test_command_whose_edit_was_undone_has_its_first_folder(folder: Path, ledger: Ledger) -> None:
    first = code_of(folder, ledger)
    ended(ledger, first)
    (folder / "helper.py").write_text("RATE = 2\n")
    ended(ledger, code_of(folder, ledger))
    (folder / "helper.py").write_text("RATE = 1  # as before\n")
    assert code_of(folder, ledger).method.folder_name == first.method.folder_name


def test_command_without_code_has_another_folder_once_a_file_of_it_exists(folder: Path, ledger: Ledger) -> None:
    method = Method(name="mine", command="cargo run {out}", curves=METHOD.curves)
    first = code_of(folder, ledger, method=method)
    assert not first.current.id and not ended(ledger, first)
    (folder / "Cargo.toml").write_text("[package]\n")
    second = code_of(folder, ledger, method=method)
    assert second.method.folder_name != first.method.folder_name
    ended(ledger, second)
    assert code_of(folder, ledger, method=method).method.folder_name == second.method.folder_name


def test_kept_command_has_its_first_folder_from_then_on(folder: Path, ledger: Ledger) -> None:
    first = code_of(folder, ledger)
    ended(ledger, first)
    (folder / "helper.py").write_text("RATE = 2\n")
    kept = code_of(folder, ledger, keep=True)
    assert kept.method.folder_name == first.method.folder_name
    assert "kept" in ended(ledger, kept)[0]
    assert code_of(folder, ledger).method.folder_name == first.method.folder_name


def test_command_of_an_older_store_counts_as_todays_until_it_is_edited(folder: Path, ledger: Ledger) -> None:
    old = Method(name="mine", command=METHOD.command, curves=METHOD.curves)
    form = ledger.record_experiment("x", "", revision=Revision(commit="", is_dirty=False), versions={})
    row = TrialRow(method="mine", parameters={"folder": f"{old.folder_name}/0"}, state="done")
    ledger.record_trial(form, row)
    first = code_of(folder, ledger)
    assert first.method.folder_name == old.folder_name
    list(record_command_codes([first], ledger))
    assert code_of(folder, ledger).method.folder_name == old.folder_name
    (folder / "train.py").write_text("print(2)\n")
    assert code_of(folder, ledger).method.folder_name != old.folder_name


def test_command_without_a_file_of_its_own_is_one_clear_error(folder: Path) -> None:
    method = Method(name="mine", command=METHOD.command, curves=METHOD.curves, files=("none/*.py",))
    with pytest.raises(ConfigError, match=SHOWN["method-files-names-no-file"]):
        code_of(folder, None, method=method)


def test_names_of_commands_and_pythons_hold_no_folder_of_the_machine(tmp_path: Path) -> None:
    one, other = (
        Method(name="mine", command=f"/{place}/env/bin/python train.py --data=/{place}/mnist {{out}}")
        for place in ("home/ci", "opt")
    )
    assert one.folder_name == other.folder_name
    texts = {portable_python(path, tmp_path)[0] for path in ("envs/main/bin/python", "/opt/envs/main/bin/python")}
    assert texts == {"main/bin/python"}
    assert portable_python("envs/main/bin/python", tmp_path)[1] == f"{tmp_path}/envs/"
