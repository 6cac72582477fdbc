"""What a result's checkout was like: its patch makes the dirty tree from the revision."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from shown import texts_of

from lobench.engine.config.origin import LARGEST_PATCH, ORIGIN_FILE, Revision, revision_of

SHOWN = texts_of("config")

# What a user may have set, which changes what `git diff` prints.
CONFIG = {
    "diff.noprefix": "true",
    "diff.mnemonicPrefix": "true",
    "color.ui": "always",
    "diff.external": "false",
    "diff.renames": "copies",
    "diff.relative": "true",
    "core.quotePath": "false",
    "apply.whitespace": "nowarn",
}


def git(folder: Path, *arguments: str, text: bytes | None = None) -> bytes:
    who = {f"GIT_{one}_{what}": "a@b" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, input=text, capture_output=True, check=True, env=os.environ | who).stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "work tree"
    (top / "suites").mkdir(parents=True)
    git(top, "init", "-q")
    for name, value in CONFIG.items():
        git(top, "config", name, value)
    (top / "task.py").write_text("a\nb\nc\n")
    (top / "moved.py").write_text("".join(f"line {i}\n" for i in range(50)))
    (top / "gone.py").write_text("gone\n")
    (top / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    (top / "theta.bin").write_bytes(bytes(range(256)) * 20)
    (top / "run.sh").write_text("true\n")
    (top / "suites" / "s.gin").write_text("x = 1\n")
    (top / ".gitignore").write_text("*.log\n")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    return top


def test_revision_in_a_hook_of_another_repository_is_that_of_the_folder(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = revision_of(tree)
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    assert revision_of(tree) == expected and expected.commit


def content(top: Path) -> dict[str, tuple[bytes, int]]:
    """Returns the files of a tree, with their modes."""
    files = [file for file in top.rglob("*") if not file.is_dir() or file.is_symlink()]
    return {
        str(file.relative_to(top)): (
            os.readlink(file).encode() if file.is_symlink() else file.read_bytes(),
            file.lstat().st_mode & 0o111,
        )
        for file in files
        if ".git" not in file.relative_to(top).parts
    }


def test_the_patch_makes_the_dirty_tree_from_its_revision(tree: Path, tmp_path: Path) -> None:
    (tree / "task.py").write_text("a\nB\nc\nno end of line")
    (tree / "moved.py").rename(tree / "there.py")
    (tree / "gone.py").unlink()
    (tree / "windows.txt").write_bytes(b"one\r\nthree\r\n")
    (tree / "theta.bin").write_bytes(bytes(range(255, -1, -1)) * 30)
    (tree / "run.sh").chmod(0o755)
    (tree / "a name, ünd 'quotes'.gin").write_text("y = 2\n")
    (tree / "link").symlink_to("task.py")
    (tree / "empty").write_bytes(b"")
    git(tree, "add", "-A")
    (tree / "suites" / "s.gin").write_text("x = 2\n")  # staged, and changed after that
    whole = content(tree)
    (tree / "not tracked.py").write_text("z = 3\n")
    (tree / "data").mkdir()
    (tree / "data" / "one.csv").write_text("1\n")
    (tree / "a.log").write_text("ignored\n")
    (tree / ".lobench").mkdir()
    (tree / ".lobench" / "ledger.sqlite").write_text("lobench's own")
    found = revision_of(tree / "suites")
    assert found.is_dirty and found.patch is not None and found.patch_sha256
    assert found.note == SHOWN["not-tracked-and-in-no"]
    clean = tmp_path / "clean"
    git(tmp_path, "clone", "-q", "--no-local", str(tree), str(clean))  # without what is staged
    git(clean, "checkout", "-q", found.commit)
    git(clean, "apply", "-", text=found.patch)
    assert content(clean) == whole
    git(tree, "reset", "-q", "--hard")
    assert revision_of(tree) == Revision(commit=found.commit, note=found.note), "asked again, and clean"


def test_a_patch_that_is_too_large_is_said_and_still_told_apart(tree: Path) -> None:
    found = []
    for byte in (b"a", b"b"):
        (tree / "task.py").write_bytes(byte * LARGEST_PATCH)
        found.append(revision_of(tree))
    assert found[0].patch is None and found[0].is_dirty
    assert SHOWN["bytes-and-is-not-kept"] in found[0].note
    assert found[0].patch_sha256 != found[1].patch_sha256


def test_outside_of_a_checkout_before_a_commit_and_away_from_it(tmp_path: Path) -> None:
    assert revision_of(tmp_path) == Revision()
    assert revision_of(tmp_path / "none") == Revision()
    (tmp_path / "new").mkdir()
    git(tmp_path / "new", "init", "-q")
    assert revision_of(tmp_path / "new") == Revision()
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / ORIGIN_FILE).write_text('{"git_revision": "abc", "git_dirty": true}')
    assert revision_of(tmp_path / "sent") == Revision(
        commit="abc", is_dirty=True, note="sent from another machine, without a patch"
    )


def test_many_files_that_are_not_tracked_are_counted(tree: Path) -> None:
    for i in range(15):
        (tree / f"new{i:02}").write_text("x")
    assert revision_of(tree).note.endswith("'new09' and 5 more") and not revision_of(tree).is_dirty
