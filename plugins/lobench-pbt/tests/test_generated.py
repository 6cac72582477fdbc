"""The generated code is what the .proto gives, untouched by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lobench_pbt

PACKAGE = Path(lobench_pbt.__file__).parent


def test_generating_it_again_changes_nothing(tmp_path: Path) -> None:
    names = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PACKAGE.parent}", *names, "lobench_pbt/proto/pbt.proto"]
    subprocess.run(command, cwd=PACKAGE.parent, check=True)
    made = sorted(path for path in (tmp_path / "lobench_pbt" / "proto").iterdir())
    assert [path.name for path in made] == ["pbt_pb2.py", "pbt_pb2.pyi"]
    for path in made:
        assert path.read_text() == (PACKAGE / "proto" / path.name).read_text(), path.name
