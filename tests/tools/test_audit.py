"""Honest bundles pass, and each way of tampering is named."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import lobench
from left_behind import traceless
from shown import texts_of
from tampered import TAMPERINGS, published, tampered
from tiny import GIN, ONE_CASE, make_run, make_suite, watch_command
from tiny import watch_here as watch

from lobench.core.errors import StoreError, UsageError
from lobench.engine.store.bundle import ResultBundle
from lobench.engine.store.ledger import Ledger
from lobench.tools.audit.audit import Audit
from lobench.tools.audit.audit import audit as audit_here
from lobench.tools.audit.audit_output import audit_text
from lobench.tools.audit.draw import draw_indices, escape_chances

SHOWN = texts_of("audit")

_GIN = GIN.replace("Case.num_seeds = 2", "Case.num_seeds = 4\nCase.seed_block = 2")
_ONE_CASE = _GIN.partition("b/Case.task")[0]

_CONTRADICTIONS = [name for name, (kind, *_) in TAMPERINGS.items() if kind not in ("differs", "not auditable")]


def audit(bundle: Path, **options: Any) -> Audit:
    with traceless():
        return audit_here(bundle, **options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of two checkpoints on two cases in two blocks, and the suite."""
    return _watched(tmp_path_factory.mktemp("audited"), _GIN)


@pytest.fixture(scope="module")
def world_of_one_case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same on one case: what comes out otherwise is found by evaluating all anew."""
    return _watched(tmp_path_factory.mktemp("audited"), _ONE_CASE)


def _watched(folder: Path, gin: str) -> tuple[Path, Path]:
    suite = make_suite(folder, gin)
    done = watch(make_run(folder, -3.0, -2.0), suite, "--once", "--checkpoints", "all", "--store", folder / "store")
    assert done.returncode == 0, done.stderr
    return folder / "store", suite


def test_an_honest_bundle_passes_in_full(world: tuple[Path, Path], tmp_path: Path) -> None:
    bundle = published(world[0], tmp_path / "honest.lobench", world[1])
    done = lobench("audit", bundle, "--format", "json")
    record = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (record["passed"], record["contradictions"], record["num_evaluations"]) == (True, [], 8)
    assert {one["verdict"] for one in record["checked"]} == {"identical"}
    assert "honest" not in record["notes"]


@pytest.mark.parametrize("name", _CONTRADICTIONS)
def test_what_contradicts_itself_is_named_without_an_evaluation(
    world: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    found = audit(tampered(name, *world, tmp_path, np.random.default_rng(0)), sample="0")
    assert set(TAMPERINGS[name]) & {one.kind for one in found.contradictions}, found.contradictions
    assert not found.is_passed


@pytest.mark.parametrize("name", [name for name, (verdict, *_) in TAMPERINGS.items() if verdict == "differs"])
def test_what_comes_out_otherwise_differs(world_of_one_case: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    found = audit(tampered(name, *world_of_one_case, tmp_path, np.random.default_rng(1)))
    assert found.verdict_counts["differs"] == (4 if name == "subjects_swapped" else 1), found.evaluations
    assert not found.is_passed


def test_a_result_that_was_hidden_as_an_error_is_named_and_no_accusation(
    world_of_one_case: tuple[Path, Path], tmp_path: Path
) -> None:
    found = audit(tampered("hidden_as_error", *world_of_one_case, tmp_path, np.random.default_rng(1)))
    assert found.is_passed and dict(found.verdict_counts) == {"identical": 3, "not auditable": 1}
    assert SHOWN["recorded-as-error-that-have"] in found.not_auditable
    assert sum(SHOWN["has-a-result-here"] in one.why for one in found.evaluations) == 1


def test_a_failure_is_as_recorded_and_differs_if_it_is_called_passed(tmp_path: Path) -> None:
    """A divergence that is called a failure is told from other results."""
    run, suite, store = make_run(tmp_path, 5.0, -3.0), make_suite(tmp_path, ONE_CASE), tmp_path / "store"
    np.savez(run / "theta_3.npz", of_another_optimizer=np.float32(1))
    (run / "theta_3.npz.done").touch()
    assert watch(run, suite, "--once", "--checkpoints", "all", "--store", store).returncode == 3
    found = audit(published(store, tmp_path / "honest.lobench", suite))
    assert found.is_passed and SHOWN["without-a-result-as"] in audit_text(found)
    with closing(sqlite3.connect(store / "ledger.sqlite")) as db, db:
        db.execute("UPDATE evaluations SET outcome = 'passed', message = '' WHERE payload IS NULL")
        diverging = "checkpoint_sha256 = (SELECT sha256 FROM subjects WHERE uri LIKE '%theta_1.npz')"
        db.execute(f"UPDATE evaluations SET outcome = 'error', payload = NULL, seconds = 0 WHERE {diverging}")
    found = audit(published(store, tmp_path / "changed.lobench", suite))
    whys = {one.verdict: one.why for one in found.evaluations}
    assert found.contradictions == () and SHOWN["recorded-as-passed-without-a"] in whys["differs"]
    assert whys["not auditable"] == SHOWN["has-a-result-here-that-diverges"]


def test_a_bundle_changed_as_a_file_is_named(world: tuple[Path, Path], tmp_path: Path) -> None:
    import zipfile

    bundle = published(world[0], tmp_path / "honest.lobench", world[1])
    with zipfile.ZipFile(bundle) as before, zipfile.ZipFile(tmp_path / "edited.lobench", "w") as after:
        for name in before.namelist():
            after.writestr(name, before.read(name) + b"\nBetter than Adam.\n" * (name == "card.md"))
        ran = tmp_path / "ran"
        after.writestr(f"suites/0/{world[1].name}/conftest.py", f"open({str(ran)!r}, 'w')\n")
    found = audit(tmp_path / "edited.lobench")
    assert [one.kind for one in found.contradictions] == ["root", "suite", "card"]
    assert not ran.exists() and found.evaluations == () and SHOWN["no-code-of-the-bundle"] in "".join(found.notes)


def test_a_signature_is_of_the_root(world: tuple[Path, Path], tmp_path: Path) -> None:
    for name in ("key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    bundle = tmp_path / "signed.lobench"
    command = ("publish", world[0], "--output", bundle, "--suite", world[1], "--sign", tmp_path / "key")
    assert lobench(*command).returncode == 0
    first = bundle.read_bytes()
    assert lobench(*command).returncode == 0
    assert bundle.read_bytes() == first
    public = (tmp_path / "key.pub").read_text()
    (tmp_path / "signers").write_text(f"ada@example.org {public}")
    (tmp_path / "others").write_text(f"eve@example.org {(tmp_path / 'other.pub').read_text()}")
    assert "ada@example.org" in audit(bundle, sample="0", allowed_signers=tmp_path / "signers").signed_by
    with pytest.raises(UsageError, match="signature"):
        audit(bundle, sample="0", allowed_signers=tmp_path / "others")
    unsigned = published(world[0], tmp_path / "unsigned.lobench", world[1])
    with pytest.raises(UsageError, match=SHOWN["bundle-is-not-signed"]):
        audit(unsigned, sample="0", allowed_signers=tmp_path / "signers")
    assert ResultBundle(unsigned).root == ResultBundle(bundle).root


@pytest.mark.parametrize("sample", ["-1", "101%", "half", "1.5", "", "25%"])
def test_sample_without_a_beacon_or_that_is_no_number_is_refused(
    world: tuple[Path, Path], tmp_path: Path, sample: str
) -> None:
    done = lobench("audit", published(world[0], tmp_path / "b.lobench", world[1]), "--sample", sample)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr


def test_no_bundle_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "none.lobench").write_bytes(b"PK\3\4 no archive")
    with pytest.raises(StoreError, match=SHOWN["not-a-bundle"]):
        audit(tmp_path / "none.lobench")


def test_a_draw_hangs_on_root_and_beacon_and_takes_each_equally_often() -> None:
    draws = [draw_indices(5, 100, root="r", beacon=str(number)) for number in range(2000)]
    assert all(len(set(one)) == 5 for one in draws)
    counts = np.bincount(np.concatenate(draws), minlength=100)
    assert abs(counts - 100).max() < 6 * math.sqrt(100)
    assert draw_indices(5, 100, root="r", beacon="1") == draws[1] != draw_indices(5, 100, root="s", beacon="1")


def test_false_ones_escape_at_the_hypergeometric_rate() -> None:
    escape = next(one for one in escape_chances(20, 200) if one.share == 0.05)
    assert escape.num_false == 10
    assert escape.chance == pytest.approx(math.comb(190, 20) / math.comb(200, 20))
    draws = (draw_indices(20, 200, root="r", beacon=str(number)) for number in range(4000))
    rate = np.mean([not set(one) & set(range(10)) for one in draws])
    assert rate == pytest.approx(escape.chance, abs=4 * math.sqrt(escape.chance * (1 - escape.chance) / 4000))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the flag is of x86-64")
def test_another_instruction_set_is_consistent_and_a_changed_result_of_it_differs(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, _ONE_CASE)
    command = watch_command(
        make_run(tmp_path, -3.0, -2.0), suite, "--once", "--checkpoints", "all", "--executor", "inline"
    )
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
    store = tmp_path / "elsewhere"
    subprocess.run([*command, "--store", str(store)], env=environment, check=True, capture_output=True)
    found = audit(published(store, tmp_path / "other.lobench", suite))
    assert found.is_passed
    assert found.verdict_counts["identical"] + found.verdict_counts["consistent"] == 4
    assert all(one.row.program.device.endswith(SHOWN["at-most-sse4-2"]) for one in found.evaluations)
    rng = np.random.default_rng(4)
    changed = audit(tampered("final", store, suite, tmp_path / "tampered", rng, factor=1.001))
    assert changed.verdict_counts["differs"] == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_a_second_name_is_not_auditable_and_the_name_of_another_is_a_contradiction(
    world: tuple[Path, Path], tmp_path: Path, is_new: bool
) -> None:
    store = tmp_path / "store"
    shutil.copytree(world[0], store)
    with Ledger.open(store, name="test") as ledger:
        first, second = ledger.sightings().values()
        ledger.record_sighting(dataclasses.replace(first, label="Ours" if is_new else second.label))
    found = audit(published(store, tmp_path / "named.lobench", world[1]), sample="0")
    assert [one.kind for one in found.contradictions] == ([] if is_new else ["label"])
    assert any(SHOWN["ours-was-planned-as-theta"] in name for name in found.not_auditable) == is_new, (
        found.not_auditable
    )
