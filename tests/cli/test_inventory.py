"""`lobench list suites`, whatever lies in the folder."""

from __future__ import annotations

from pathlib import Path

from commands import lobench


def test_a_broken_suite_is_named_and_hides_no_other(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.gin").write_text("x/Case.task = @Bowl()\n")
    (tmp_path / "neither.gin").write_text("x/Case.task = @Bowl(\n")
    done = lobench("list", "suites", "--folder", tmp_path)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [f"{tmp_path / name}.gin: x" for name in ("first", "second")]
    assert len(done.stderr.splitlines()) == 1 and str(tmp_path / "neither.gin") in done.stderr


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    done = lobench("list", "suites", "--folder", tmp_path / "typo")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == f"lobench: {tmp_path / 'typo'}: there is no such folder; name one with --folder\n"
