"""Code of modules that were edited after this process imported them."""

import dataclasses
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import case_info

from lobench.core.case import CaseInfo
from lobench.engine.config.imported_code import record_imports
from lobench.engine.config.user_code import (
    code_fingerprint,
    differing_parts_run,
    edited_files,
    forget_edited_code,
)

RULE, HELPER = "rule_of_imported_code", "helper_of_imported_code"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path with a module that imports another one."""
    (tmp_path / f"{RULE}.py").write_text(f"def rate():\n    import {HELPER}\n    return {HELPER}.RATE\n")
    write_rate(tmp_path, 1)
    monkeypatch.syspath_prepend(tmp_path)
    record_imports()
    yield tmp_path
    for name in (RULE, HELPER):
        sys.modules.pop(name, None)


def write_rate(folder: Path, rate: int) -> None:
    (folder / f"{HELPER}.py").write_text(f"RATE = {rate}\n")


def case_of(code: str) -> CaseInfo:
    return dataclasses.replace(case_info("case"), case_code=code)


def test_fingerprint_after_edit_of_imported_module_is_of_what_was_imported(folder: Path) -> None:
    rule = importlib.import_module(RULE)
    assert rule.rate() == 1
    before = code_fingerprint(modules=[RULE])
    write_rate(folder, 2)
    after = code_fingerprint(modules=[RULE])
    assert after.id == before.id
    assert edited_files(after) == [os.path.realpath(folder / f"{HELPER}.py")]
    assert code_fingerprint(modules=[RULE], as_imported=False).id != before.id
    importlib.reload(sys.modules[HELPER])
    assert rule.rate() == 2
    assert code_fingerprint(modules=[RULE]).id != before.id


def test_module_that_was_edited_before_its_late_import_has_other_code_than_its_case(folder: Path) -> None:
    rule = importlib.import_module(RULE)
    case = case_of(code_fingerprint(modules=[RULE]).id)
    assert differing_parts_run(case) == {}
    write_rate(folder, 2)
    assert differing_parts_run(case).keys() == {f"{HELPER}.py"}  # not imported yet, but it may have been read
    assert rule.rate() == 2
    assert differing_parts_run(case).keys() == {f"{HELPER}.py"}
    assert code_fingerprint(modules=[RULE]).id != case.case_code


def test_forgotten_code_is_imported_as_it_is_now(folder: Path) -> None:
    rule = importlib.import_module(RULE)
    assert rule.rate() == 1
    write_rate(folder, 2)  # before its first fingerprint
    before = code_fingerprint(modules=[RULE])
    assert forget_edited_code()
    assert importlib.import_module(RULE).rate() == 2
    assert code_fingerprint(modules=[RULE]).id != before.id


PRINT = f"""
import sys
sys.path.insert(0, sys.argv[1])
from lobench.engine.config.imported_code import record_imports
record_imports()
import {HELPER}
print({HELPER}.RATE)
"""


def test_module_edited_within_a_second_is_not_taken_from_its_compiled_file(folder: Path) -> None:
    """Python itself takes it: size and time in seconds are the same."""

    def rate_now() -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", PRINT, str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()

    file = folder / f"{HELPER}.py"
    assert rate_now() == "1"
    assert list((folder / "__pycache__").glob(f"{HELPER}.*.pyc"))
    before = file.stat()
    write_rate(folder, 2)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rate_now() == "2"
