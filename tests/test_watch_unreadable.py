"""`lobench watch --once` beside a newest checkpoint that cannot be read: one line, exit code 3."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from commands import Done, lobench
from safetensors.numpy import save_file
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite
from users import ALICE, GROUP, USERS, run_as

SHOWN = texts_of("watch")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first checkpoint has been evaluated."""
    folder = tmp_path_factory.mktemp("unreadable")
    make_suite(folder, ONE_CASE)
    make_run(folder, -3.0)
    assert once(folder).returncode == 0
    return folder


def once(folder: Path) -> Done:
    options = ["--suite", folder / "tiny", "--once", "--executor", "inline", "--store", folder / "store"]
    return lobench("watch", folder / "run", *options, cwd=folder)


def cut(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def write_half(path: Path) -> None:
        write(path)
        os.truncate(path, path.stat().st_size // 2)

    return write_half


def npz(path: Path) -> None:
    with path.open("wb") as file:  # whatever its name is
        np.savez(file, log_lr=np.float32(0))


def safetensors(path: Path) -> None:
    save_file({"log_lr": np.zeros(1000, np.float32)}, path)


def old_torch(path: Path) -> None:
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2))


def garbage(path: Path) -> None:
    path.write_bytes(b"no checkpoint" * 100)


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("theta_9.npz", cut(npz), SHOWN["cannot-read-it-as-npz"]),
        ("theta_9.npz", Path.touch, SHOWN["empty-file"]),
        ("theta_9.npz", garbage, SHOWN["cannot-read-it-as-npz"]),
        ("theta_9.safetensors", cut(safetensors), SHOWN["cannot-read-it-as-safetensors"]),
        ("theta_9.pt", cut(npz), "half a file"),
        ("theta_9.pt", Path.touch, SHOWN["empty-file"]),
        ("theta_9.pt", old_torch, SHOWN["torch-before-1-6-which"]),
    ],
)  # fmt: skip
def test_watch_once_with_a_newest_file_that_is_broken_exits_with_3(
    watched: Path, name: str, write: Callable[[Path], None], reason: str
) -> None:
    path = watched / "run" / name
    write(path)
    marker = path.with_name(f"{name}.done")
    if reason != SHOWN["cannot-read-it-as-safetensors"]:  # that one is waited for
        marker.touch()
    try:
        done = once(watched)
    finally:
        path.unlink()
        marker.unlink(missing_ok=True)
    lines = [line for line in done.stdout.splitlines() if name in line]
    assert done.returncode == 3, done.stdout + done.stderr
    assert any(line.startswith("unreadable: ") and reason in line for line in lines), lines
    assert "half-written" not in done.stdout


@pytest.fixture
def closed() -> Iterator[Path]:
    with TemporaryDirectory() as folder:  # pytest's own are closed to others
        Path(folder).chmod(0o755)
        lab = Path(folder) / "lab"
        make_suite(lab, ONE_CASE)
        make_run(lab, -3.0)
        for path in (lab, *lab.rglob("*")):
            os.chown(path, ALICE, GROUP)
        yield lab


def refused(lab: Path) -> tuple[int, list[str]]:
    options = ["--suite", lab / "tiny", "--once", "--executor", "inline", "--store", lab / "store"]
    done = run_as(ALICE, "watch", lab / "run", *options, cwd=lab)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done.returncode, (done.stdout + done.stderr).splitlines()


@USERS
def test_watch_once_without_permission_is_a_line_that_says_so(closed: Path) -> None:
    run = closed / "run"
    newest = run / "theta_9.npz"
    npz(newest)
    newest.chmod(0o600)  # root's
    code, lines = refused(closed)
    assert code == 3 and any("unreadable: " in line and SHOWN["permission-denied"] in line for line in lines), lines
    assert not any("half-written" in line for line in lines)
    newest.unlink()
    (run / "config.gin").chmod(0)
    os.chown(run / "config.gin", 0, 0)
    code, lines = refused(closed)
    assert code == 2 and any("config.gin" in line and SHOWN["permission-denied"] in line for line in lines), lines
    (run / "config.gin").chmod(0o644)
    os.chown(run, 0, 0)
    run.chmod(0o744)  # names can be listed, and no file can be opened
    code, lines = refused(closed)
    assert code in (2, 3) and any(SHOWN["permission-denied"] in line for line in lines), lines
