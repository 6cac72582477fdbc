"""New stores that two processes begin at once: a refused one removes only what is its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lobench import UsageError
from lobench.engine.store.database import StoreLock
from lobench.engine.store.first_use import removed_if_refused
from lobench.engine.store.ledger import Ledger
from lobench.extend import StoreBusy

_WRITER = """
import sys
from pathlib import Path
from lobench.engine.store.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]), name="other")
print("open", flush=True)
input()
"""


def _other_writer(store: Path) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None and writer.stdout.readline() == "open\n"
    return writer


@pytest.mark.parametrize("ended", [False, True])
def test_removed_if_refused_store_of_another_process_is_kept(tmp_path: Path, ended: bool) -> None:
    store = tmp_path / "store"
    with pytest.raises(UsageError), removed_if_refused(store):
        writer = _other_writer(store)
        if ended:
            writer.communicate("\n")
        raise UsageError("a mistyped name")
    assert (store / "ledger.sqlite").is_file()
    if not ended:
        writer.communicate("\n")


def test_removed_if_refused_store_that_is_busy_is_kept(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(StoreBusy), removed_if_refused(store, (BaseException,)):
        writer = _other_writer(store)
        Ledger.open(store)
    writer.communicate("\n")
    assert (store / "ledger.sqlite").is_file()


def test_removed_if_refused_own_store_is_removed_with_its_new_parents(tmp_path: Path) -> None:
    store = tmp_path / "runs" / "store"
    with pytest.raises(UsageError), removed_if_refused(store):
        Ledger.open(store).close()
        raise UsageError("a mistyped name")
    assert not list(tmp_path.iterdir())


def test_store_lock_whose_file_is_removed_meanwhile_locks_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def opened_and_removed(path: str, *arguments: int) -> int:
        monkeypatch.undo()
        descriptor = opened(path, *arguments)
        os.unlink(path)  # as by a process that has refused its input and removes its new store
        return descriptor

    monkeypatch.setattr(os, "open", opened_and_removed)
    lock = StoreLock(tmp_path, "first")
    with pytest.raises(StoreBusy, match="'first'"):
        StoreLock(tmp_path, "second")
    lock.release()


def test_imports_at_once_into_a_new_store_keep_each_reported_one(tmp_path: Path) -> None:
    rows = "".join(f"{seed},{step},{seed + 1 / (step + 1)}\n" for seed in range(2) for step in range(3))
    (tmp_path / "curves.csv").write_text(f"seed,step,loss\n{rows}")
    lobench = str(Path(sys.executable).with_name("lobench"))
    command = [lobench, "import", "curves.csv", "--store", "new", "--case", "a"]
    imports = [
        subprocess.Popen(
            [*command, "--metric", "loss", "--method", f"method{number}"], cwd=tmp_path, stderr=subprocess.PIPE
        )
        for number in range(6)
    ]
    errors = [one.communicate()[1].decode() for one in imports]
    codes = [one.returncode for one in imports]
    assert 0 in codes and set(codes) <= {0, 2}, errors
    with Ledger.open(tmp_path / "new", read_only=True) as ledger:
        assert len(list(ledger.evaluations())) == 2 * codes.count(0)
