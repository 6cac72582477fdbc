"""A store in one file: equal bytes, opened as a store is, and a change that is noticed."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import shutil
import sqlite3
import zipfile
from pathlib import Path

import pytest
from commands import lobench
from report_store import make_store
from shown import texts_of

from lobench.analysis.store.snapshot import read_store
from lobench.analysis.tables.frames import open_results
from lobench.core.errors import StoreError
from lobench.engine.config.origin import Revision
from lobench.engine.store.bundle import ResultBundle, merkle_root, write_bundle
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("publish")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    make_store(folder)
    done = lobench("publish", folder / "store", "--output", folder / "results.lobench")
    assert done.returncode == 0, done.stderr
    return folder / "results.lobench"


def test_the_same_store_makes_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle.parent / "store", tmp_path / "elsewhere")
    lobench("publish", tmp_path / "elsewhere", "--output", tmp_path / "again.lobench")
    assert (tmp_path / "again.lobench").read_bytes() == bundle.read_bytes()


def test_a_bundle_is_read_as_the_store_is(bundle: Path) -> None:
    store, opened = read_store(bundle.parent / "store"), read_store(bundle)
    assert opened.rows == store.rows
    assert [one.subject for one in opened.subjects] == [one.subject for one in store.subjects]
    assert (opened.labels, opened.events) == (store.labels, store.events)


def test_a_bundle_of_a_bundle_has_the_same_ledger(bundle: Path, tmp_path: Path) -> None:
    lobench("publish", bundle, "--output", tmp_path / "again.lobench")
    for name in ResultBundle(bundle).members_in("ledger"):
        assert ResultBundle(bundle).read(name) == ResultBundle(tmp_path / "again.lobench").read(name)


def test_publish_of_a_bundle_elsewhere_keeps_its_suites_and_thetas(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {name: ResultBundle(bundle).read(name) for name in ResultBundle(bundle).member_names}
    extra = {"suites/0/s/s.gin": b"# the suite\n", "about.json": members["about.json"]}
    about = json.loads(members["about.json"]) | {"suites": {"s": "suites/0/s"}, "left_out": ["what was left out"]}
    extra["about.json"] = f"{json.dumps(about, indent=1, sort_keys=True)}\n".encode()
    kept = {name: data for name, data in members.items() if name.partition("/")[0] in ("theta", "suites")}
    with Ledger.open(bundle, read_only=True) as ledger:
        write_bundle(ledger.connection, tmp_path / "given.lobench", {**kept, **extra, "card.md": members["card.md"]})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    lobench("publish", tmp_path / "given.lobench", "--output", tmp_path / "again.lobench")
    before, after = ResultBundle(tmp_path / "given.lobench"), ResultBundle(tmp_path / "again.lobench")
    assert (before.members_in("suites"), before.members_in("theta")) == (
        after.members_in("suites"),
        after.members_in("theta"),
    )
    assert "what was left out" in json.loads(after.read("about.json"))["left_out"]


@pytest.mark.parametrize("name", ["ledger/payloads", "card.md", "about.json", "ledger/subjects.jsonl"])
def test_a_changed_member_is_noticed(bundle: Path, tmp_path: Path, name: str) -> None:
    changed = tmp_path / "changed.lobench"
    with zipfile.ZipFile(bundle) as before, zipfile.ZipFile(changed, "w") as after:
        for member in before.namelist():
            content = before.read(member)
            # Never the character that stands there: a fixed one would be right once in sixteen hashes.
            other = b"1" if content[-9:-8] == b"0" else b"0"
            after.writestr(member, content[:-9] + other + content[-8:] if member == name else content)
    with pytest.raises(StoreError, match=SHOWN["changed-after-it-was-written"]):
        read_store(changed)


@pytest.mark.parametrize("size", [0, 3, 4, 100, 5000])
def test_a_truncated_bundle_is_one_line(bundle: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "cut.lobench").write_bytes(bundle.read_bytes()[:size])
    done = lobench("results", "--store", tmp_path / "cut.lobench")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr


def test_a_member_outside_of_the_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    shutil.copy(bundle, tmp_path / "hostile.lobench")
    with zipfile.ZipFile(tmp_path / "hostile.lobench", "a") as archive:
        archive.writestr("suites/0/../../../evil.py", "")
    with pytest.raises(StoreError, match=SHOWN["member-is-called"]):
        read_store(tmp_path / "hostile.lobench")


def test_a_member_larger_than_those_that_lobench_writes_is_refused_unread(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lobench.engine.store.bundle.MAX_FILE_BYTES", 1_000_000)
    shutil.copy(bundle, tmp_path / "bomb.lobench")
    with zipfile.ZipFile(tmp_path / "bomb.lobench", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("suites/0/s/data.bin", bytes(1_000_001))
    with pytest.raises(StoreError, match=SHOWN["data-bin-has-1-000"]):
        ResultBundle(tmp_path / "bomb.lobench")


def test_nobody_writes_to_a_bundle(bundle: Path) -> None:
    with pytest.raises(StoreError, match=SHOWN["bundle-cannot-be-changed"]):
        Ledger.open(bundle)


def test_a_bundle_is_merged_into_a_store(bundle: Path, tmp_path: Path) -> None:
    lobench("merge", bundle, "--output", tmp_path / "merged")
    merged = {row.key: row.payload for row in read_store(tmp_path / "merged").rows}
    assert merged == {row.key: row.payload for row in read_store(bundle).rows}


def test_the_root_is_that_of_rfc_6962() -> None:
    """Known answers: the tree of certificate-transparency's own tests."""
    leaves = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243")]
    assert merkle_root(leaves[:1]) == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle_root(leaves[:3]) == "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    assert merkle_root(leaves) == "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"


def test_publish_of_uncommitted_changes_names_their_files_before_it_writes(tmp_path: Path) -> None:
    make_store(tmp_path)
    patch = (
        b"diff --git a/train.py b/train.py\nindex 1..2 100644\n--- a/train.py\n+++ b/train.py\n"
        b"@@ -1 +1 @@\n-a\n+TOKEN\n"
        b"diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\nrename to new.py\n"
        b'diff --git "a/\\303\\244.py" "b/\\303\\244.py"\nold mode 100644\nnew mode 100755\n'
        b"diff --git a/run.bin b/run.bin\nnew file mode 100644\nGIT binary patch\nliteral 1\nabc\n"
        b"diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n"
    )
    revision = Revision(commit="1" * 40, is_dirty=True, patch=patch, patch_sha256="2" * 64)
    with Ledger.open(tmp_path / "store") as ledger:
        ledger.record_experiment("mine", "", revision=revision, versions={})
    done = lobench("publish", tmp_path / "store", "--output", tmp_path / "results.lobench")
    names = ["gone.py", "new.py", "old.py", "run.bin", "train.py", "ä.py"]
    lines = done.stdout.splitlines()
    assert SHOWN["with-6-files-without-patch"].format(names=", ".join(names)) in lines[0], done.stdout + done.stderr
    assert lines.index(next(line for line in lines if "results.lobench" in line)) > 0
    bundle = ResultBundle(tmp_path / "results.lobench")
    card = bundle.read("card.md").decode()
    assert all(f"- `{name}`\n" in card for name in names)
    assert base64.b64encode(patch)[:60] in bundle.read("ledger/experiments.jsonl")
    without = lobench("publish", tmp_path / "store", "--output", tmp_path / "w.lobench", "--without-patch")
    bundle = ResultBundle(tmp_path / "w.lobench")
    assert SHOWN["goes-into-it"] not in without.stdout and SHOWN["left-out-the-patch-of"] in without.stdout
    assert base64.b64encode(patch)[:60] not in bundle.read("ledger/experiments.jsonl")
    assert "2" * 64 in bundle.read("ledger/experiments.jsonl").decode()
    assert SHOWN["uncommitted-changes-in-it"] not in bundle.read("card.md").decode()
    read_store(tmp_path / "w.lobench")


def test_publish_about_has_no_absolute_path(bundle: Path) -> None:
    for name in ("about.json", "card.md"):
        assert str(bundle.parent) not in ResultBundle(bundle).read(name).decode()


def test_publish_card_has_each_experiment_and_the_results_of_none(tmp_path: Path) -> None:
    make_store(tmp_path, num_checkpoints=3)
    configs = {
        name: f"# of {name}\nmine/Method.checkpoint = 'x'\nmine/Method.label = '{name}s'\n"
        for name in ("first", "last")
    }
    with Ledger.open(tmp_path / "store") as ledger:
        rows = list(ledger.evaluations())
        checkpoints = sorted({row.key.checkpoint_sha256 for row in rows})
        for (name, config), sha256 in zip(configs.items(), checkpoints, strict=False):
            form = ledger.record_experiment(name, config, revision=Revision(), versions={})
            own = [row.id for row in rows if row.key.checkpoint_sha256 == sha256]
            ledger.connection.executemany(
                "INSERT INTO memberships (experiment, method, trial, session, evaluation) VALUES (?, 'mine', 0, 0, ?)",
                [(form, one) for one in own],
            )
    done = lobench("publish", tmp_path / "store", "--output", tmp_path / "results.lobench")
    assert done.returncode == 0, done.stderr
    card = ResultBundle(tmp_path / "results.lobench").read("card.md").decode()
    places = [card.index(f"## {title}") for title in ("Experiment `first`", "Experiment `last`", "Results of no exp")]
    assert places == sorted(places)
    assert SHOWN["it-holds-2-experiments-first"] in card
    first, last = card[places[0] : places[1]], card[places[1] : places[2]]
    assert "firsts" in first and SHOWN["of-first"] in first and "lasts" not in first
    assert "lasts" in last and SHOWN["of-last"] in last and "firsts" not in last
    assert card.count("\n### Scores\n") == 3


@pytest.mark.parametrize("kind", ["planned", "plan", "current plan", "code parts", "reopened"])
def test_audit_of_an_event_that_lacks_its_parts_is_one_line(bundle: Path, tmp_path: Path, kind: str) -> None:
    shutil.copytree(bundle.parent / "store", tmp_path / "store")
    members = {name: ResultBundle(bundle).read(name) for name in ("about.json", "card.md")}
    with Ledger.open(tmp_path / "store") as ledger:
        ledger.record_event(kind, other="x")
        if kind in ("planned", "plan", "current plan"):
            with pytest.raises(StoreError, match=SHOWN["row-of-the-ledger-is"]):
                ledger.plan_history()
        write_bundle(ledger.connection, tmp_path / "changed.lobench", members)
    done = lobench("audit", tmp_path / "changed.lobench")
    assert done.returncode == 2 or "contradiction" in done.stdout, done.stdout
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 1


def test_curves_are_a_croissant_data_set(bundle: Path, tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant")
    folders = [tmp_path / "of_store", tmp_path / "of_bundle"]
    for source, folder in zip((bundle.parent / "store", bundle), folders, strict=True):
        options = ("--output", tmp_path / "r.lobench", "--croissant", folder, "--license", "CC-BY-4.0")
        assert SHOWN["curves-as-a-croissant-data"].format(folder=folder) in lobench("publish", source, *options).stdout
    contents = [{file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders]
    assert contents[0] == contents[1] and sorted(contents[0]) == ["croissant.json", "curves.csv"]
    assert str(tmp_path).encode() not in b"".join(contents[0].values())
    data = mlcroissant.Dataset(jsonld=folders[0] / "croissant.json")
    assert not data.metadata.ctx.issues.errors
    expected = open_results(bundle).curves_frame()
    records = list(data.records("curves"))
    values = [math.nan if one["curves/value"] is None else one["curves/value"] for one in records]
    assert values == pytest.approx([*expected["value"]], nan_ok=True, rel=1e-7)
    assert [one["curves/metric"].decode() for one in records] == [*expected["metric"]]


def test_croissant_never_overwrites_and_says_what_is_wrong(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "own.txt").write_text("mine")
    output = ("--output", tmp_path / "r.lobench")
    done = lobench("publish", bundle, *output, "--croissant", tmp_path / "full")
    assert done.returncode == 2
    assert SHOWN["croissant-got"] in done.stderr and SHOWN["expected-a-folder-that-is"] in done.stderr
    done = lobench("publish", bundle, *output, "--license", "MIT")
    assert done.returncode == 2
    assert SHOWN["license-is-of-the-data"] in done.stderr
    shutil.copytree(bundle.parent / "store", tmp_path / "errors")
    with contextlib.closing(sqlite3.connect(tmp_path / "errors/ledger.sqlite")) as db, db:
        for change in ("UPDATE evaluations SET payload = NULL, outcome = 'error'", "DELETE FROM summaries"):
            db.execute(change)
    done = lobench("publish", tmp_path / "errors", *output, "--croissant", tmp_path / "data")
    assert (done.returncode, SHOWN["store-has-no-curves"] in done.stderr) == (2, True), done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["errors", "full"]
