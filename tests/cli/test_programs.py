"""What commands say to programs: one document on standard output that keeps its schema, whatever happens.

`commands.lobench` checks every document that any test asks for; here are the commands whose own tests read text.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from commands import lobench
from imported import curve, write_csv
from programs import document, validator
from shown import texts_of
from stores import add
from tiny import ONE_CASE, make_run, make_suite

from lobench.cli import cli
from lobench.cli.exit_codes import ExitCode
from lobench.cli.schema import document_schema, documents
from lobench.core.errors import PluginError
from lobench.core.result import Outcome
from lobench.plugins import BrokenPlugin, PluginManager

SHOWN = texts_of("lobench")

FINALS = {"train/loss": [0.5, 0.4, float("nan"), 0.3], "test/loss": [0.6, 0.5, 0.7, 0.4]}
BETTER = {"train/loss": [0.1, 0.1, 0.2, 0.1], "test/loss": [0.2, 0.1, 0.3, 0.2]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints and an optimizer; a seed that diverged, a case that hung."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    add(folder, 1, {"a": FINALS, "b": Outcome.TIMEOUT})
    add(folder, 2, {"a": BETTER, "b": BETTER})
    add(folder, 0, {"a": FINALS}, optimizer="adam(); adam.learning_rate = 0.1", sha256="f" * 64)
    return folder


def output(*arguments: str | Path, code: int = 0, cwd: Path | None = None) -> dict:
    done = lobench(*arguments, "--format", "json", cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (["results", "--curves"], "results"),
        (["results", "--by", "method"], "results.methods"),
        (["results", "--history"], "results.history"),
        (["compare", "1", "2"], "compare"),
        (["compare", "1", "2", "--target", "0.35"], "compare"),
        (["report"], "report"),
    ],
)
def test_a_store_is_told_in_the_schema_of_the_command(store: Path, words: list[str], schema: str) -> None:
    found = output(*words, "--store", store)
    assert {one["schema"] for one in (found if isinstance(found, list) else [found])} == {f"lobench/{schema}/1"}


def test_a_report_says_scores_and_the_change_as_numbers(store: Path) -> None:
    found = output("report", "--store", store)
    scores = {one["outer_step"]: one["scores"]["train/loss"] for one in found["subjects"]}
    assert scores[2]["mean"] > scores[1]["mean"] and scores[2]["num_cases"] == 2
    assert found["change"]["cases"].keys() == {"s/a", "s/b"} or found["change"]["cases"].keys() == {"a", "b"}
    assert found["verdict"] and found["gates"] == []


def test_stores_are_merged_and_conflicts_are_the_verdict(store: Path, tmp_path: Path) -> None:
    found = output("merge", store, "--output", tmp_path / "all")
    assert [(one["taken"] > 0, one["conflicts"]) for one in found["stores"]] == [(True, [])]
    add(tmp_path / "other", 1, {"a": BETTER})
    found = output("merge", tmp_path / "other", "--output", tmp_path / "all", code=ExitCode.VERDICT)
    assert len(found["stores"][0]["conflicts"]) == 1


def test_an_import_says_what_it_did(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", curve("adam", 0, [3.0, 2.0, 1.0]))
    assert output("import", tmp_path / "a.csv", "--store", tmp_path / "store")["num_new"] == 1


@pytest.mark.parametrize("kind", ["sinks", "suites", "schedules", "commands"])
def test_what_can_be_named_is_listed(kind: str) -> None:
    found = output("list", kind)
    assert found["kind"] == kind and found["items"] and found["broken"] == []


def test_a_suite_that_is_broken_is_among_what_is_listed(tmp_path: Path) -> None:
    (tmp_path / "bad.gin").write_text("Case.task = (\n")
    found = output("list", "suites", "--folder", tmp_path, code=ExitCode.USAGE)
    assert found["items"] == [] and "bad.gin" in found["broken"][0]


def test_plugins_and_schemas_are_listed() -> None:
    assert {"name": "lobench.report.page.builtin_report", "hooks": ["lobench_result_sinks"]} in output("plugins")[
        "plugins"
    ]
    named = {one["name"] for one in output("schema")["schemas"]}
    assert {"lobench/run/1", "lobench/pbt.status/1", "lobench/evolve/1"} <= named


def test_a_plugin_that_does_not_import_is_among_what_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = PluginManager()
    manager.broken.append(BrokenPlugin(name="mine", distribution="mine", cause="ModuleNotFoundError: no"))
    monkeypatch.setattr("lobench.plugins.load_plugins", lambda: manager)
    expected = {"name": "mine", "distribution": "mine", "cause": "ModuleNotFoundError: no", "imports": False}
    assert output("plugins")["broken"] == [expected]


def test_a_command_that_cannot_be_loaded_hides_no_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(context: click.Context, name: str) -> click.Command:
        if name == "watch":
            raise PluginError("cannot load 'watch'", where="plugin 'mine'")
        return own_command(context, name)

    own_command = cli.get_command
    monkeypatch.setattr(cli, "get_command", load)
    found = documents.__wrapped__()
    assert "run" in found and "watch" not in found
    assert SHOWN["plugin-mine-cannot-load-watch"] in capsys.readouterr().err


def test_a_schema_changes_only_where_somebody_meant_it() -> None:
    """Titles and descriptions aside. Where a field went or changed its meaning the document's number grows too."""
    lines = [f"{name} {digest(document_schema(name))}" for name in documents()]
    kept = (Path(__file__).parent / "schemas.txt").read_text().splitlines()
    assert lines == kept, "these documents have another schema; was that meant? Then schemas.txt takes their lines"


def digest(schema: Any) -> str:
    return hashlib.sha256(json.dumps(without_prose(schema), sort_keys=True).encode()).hexdigest()[:12]


def without_prose(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_prose(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_prose(one)
        for key, one in schema.items()
        if key not in ("title", "description") or not isinstance(one, str)
    }


def test_trainings_are_told_to_programs(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -1.5, -1.4)
    words = ["watch", run, "--suite", suite, "--store", tmp_path / "store", "--executor", "inline"]
    costs = output(*words, "--dry-run")
    assert costs["num_evaluations"] == 1 and not costs["cases"][0]["is_recorded"]
    watched = output(*words, "--once", "--checkpoints", "all")
    assert watched["outcomes"] == {"passed": 2} and len(watched["subjects"]) == 2 and watched["num_left"] == 0
    (tmp_path / "x.gin").write_text("Experiment.suites = ['tiny']\nplain/Method.optimizer = @sgd()\n")
    plan = output("run", "x.gin", "--check", cwd=tmp_path)
    assert plan["num_missing"] == 1 and plan["methods"][0]["cases_never_run"]
    ran = output("run", "x.gin", "--executor", "inline", cwd=tmp_path)
    assert ran["num_done"] == 1 and {one["case"] for one in ran["methods"]} >= {"a"} and not ran["interrupted"]
    tune = ["tune", "tiny", "--optimizer", "sgd", "--vary", "learning_rate = [0.01, 0.1]"]
    assert "sgd" in output(*tune, "--print", cwd=tmp_path)["gin"]
    assert output(*tune, "--check", cwd=tmp_path)["methods"][0]["num_trials"] == 2
    tuned = output(*tune, "--executor", "inline", cwd=tmp_path)
    (best,) = {one["bindings"] for one in tuned["methods"]}
    assert "learning_rate = 0.1" in best and all(one["is_fresh"] for one in tuned["methods"])
    baseline = ["baseline", "tiny", "--optimizer", "sgd", "--grid", "defaults", "--seeds", "2"]
    assert output(*baseline, "--check", code=ExitCode.VERDICT, cwd=tmp_path)["problems"]
    (file,) = output(*baseline, cwd=tmp_path)["files"]
    assert (tmp_path / file).is_file() and output(*baseline, "--check", cwd=tmp_path)["problems"] == []
    replay = output("doctor", "--replay", tmp_path / "store")
    assert replay["differs_at"] is None and replay["decisions"]


def test_nothing_but_the_document_is_on_standard_output_whoever_prints(tmp_path: Path) -> None:
    """The suite prints at its import, in the chief's process and in its workers, also past Python's sys.stdout."""
    suite, run = make_suite(tmp_path), make_run(tmp_path, -1.5)
    (suite / "conftest.py").write_text("import os\nprint('hello')\nos.write(1, b'hello again\\n')\n")
    words = ["watch", run, "--suite", suite, "--store", tmp_path / "store", "--once", "--workers", "1"]
    command = [sys.executable, "-m", "lobench.cli", *map(str, words), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert document(done.stdout)["outcomes"] == {"passed": 2} and "done: 2 passed" in done.stderr


@pytest.mark.parametrize(
    ("words", "what", "where"),
    [
        (["results", "--store", "nowhere"], SHOWN["no-result-store-found"], "nowhere"),
        (["results", "--stor", "x"], SHOWN["no-such-option-stor"], "lobench results"),
        (["resluts"], SHOWN["no-such-command-resluts-did"], "lobench"),
        (["watch", "here"], SHOWN["missing-option-suite-2"], "lobench watch"),
        (["tune", "here"], SHOWN["missing-option-optimizer-2"], "lobench tune"),
        (["new", "suite", "class"], SHOWN["this-cannot-be-the-name"], ""),
    ],
)
def test_an_error_is_a_document_too_and_a_line_for_people(
    tmp_path: Path, words: list[str], what: str, where: str
) -> None:
    done = lobench(*words, "--format", "json", cwd=tmp_path)
    error = json.loads(done.stdout)
    assert (error["schema"], error["exit_code"], done.returncode) == ("lobench/error/1", 2, 2)
    assert what in error["what"] and error["where"].endswith(where)
    assert what.rstrip(".") in done.stderr


def test_a_fault_and_an_interruption_are_documents_with_their_exit_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_by(error: BaseException) -> click.Command:
        @click.command()
        @click.option("--format", "kind")
        def broken(kind: str) -> None:
            raise error

        return broken

    own = cli.get_command
    for error, code in ((ZeroDivisionError("by 0"), ExitCode.ERROR), (KeyboardInterrupt(), ExitCode.INTERRUPTED)):
        monkeypatch.setitem(cli.commands, "broken", ends_by(error))
        monkeypatch.setattr(type(cli), "get_command", lambda self, ctx, name: self.commands.get(name) or own(ctx, name))
        done = lobench("broken", "--format", "json")
        assert done.returncode == code and json.loads(done.stdout)["exit_code"] == code
    assert "by 0" not in json.loads(done.stdout)["what"]


def test_without_it_text_is_on_standard_output_and_help_always_is(store: Path) -> None:
    assert SHOWN["outer-step"] in lobench("results", "--store", store).stdout
    assert lobench("results", "--help", "--format", "json").stdout.startswith("Usage:")
    assert lobench("resluts").stdout == ""


@pytest.mark.parametrize("kind", ["json", "table", "csv"])
def test_a_disk_that_is_full_is_no_verdict(store: Path, kind: str) -> None:
    words = ["-m", "lobench.cli", "results", "--store", str(store), "--format", kind]
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == SHOWN["lobench-standard-output-cannot-write"]


@pytest.mark.parametrize("kind", ["json", "table"])
def test_standard_streams_may_be_closed(store: Path, kind: str) -> None:
    command = [sys.executable, "-m", "lobench.cli", "results", "--store", str(store), "--format", kind]
    done = subprocess.run(f"{shlex.join(command)} >&- <&-", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_has_the_option_and_a_schema_and_every_schema_a_command() -> None:
    commands = {name: cli.get_command(click.Context(cli), name) for name in cli.list_commands(click.Context(cli))}
    leaves = {
        f"{name}.{sub}" if isinstance(command, click.Group) else name: one
        for name, command in commands.items()
        for sub, one in (command.commands.items() if isinstance(command, click.Group) else [("", command)])
    }
    without = {name for name, one in leaves.items() if not any("--format" in each.opts for each in one.params)}
    # What serves until it is stopped, or only says that it did, prints nothing to read.
    assert without <= {"pbt.serve", "pbt.stop"}
    schemas = set(documents())
    for name in leaves.keys() - without:
        assert any(each == name or each.startswith(f"{name}.") for each in schemas), name
    for each in schemas - {"error"}:
        validator(each)
        assert each in leaves or each.rpartition(".")[0] in leaves, each
