"""The plugins of docs/plugins.md, as they stand there, keep the contracts of their kinds."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lobench.testing.executors import ExecutorContract
from lobench.testing.import_formats import ImportFormatContract
from lobench.testing.readers import ReaderContract
from lobench.testing.report_sections import ReportSectionContract

TEXT = (Path(__file__).parents[1] / "docs/plugins.md").read_text(encoding="utf-8")
FOLDER = Path(tempfile.mkdtemp(prefix="lobench-docs-"))
for name, code in re.findall(r'```python title="suites/quick/(\w+)\.py"\n(.*?)```', TEXT, re.DOTALL):
    if name != "conftest":
        (FOLDER / f"{name}.py").write_text(code)
sys.path.append(str(FOLDER))


def _parts_of(leaf: np.ndarray) -> list[Any]:
    return [str(leaf.dtype), leaf.shape, leaf.ravel().tolist()]


class TestProcesses(ExecutorContract):
    factory = "processes:Processes"
    patience_seconds = 120.0


class TestTextReader(ReaderContract):
    factory = "theta_text:TextReader"
    missing_dtypes = ("bfloat16",)  # numpy alone does not know its name

    def write(self, folder: Path, leaves: Mapping[str, np.ndarray]) -> Path:
        path = folder / "theta_3.theta.json"
        path.write_text(json.dumps({name: _parts_of(leaf) for name, leaf in leaves.items()}))
        return path


class TestTriples(ImportFormatContract):
    factory = "triples:triples"
    names = ("seed",)

    def write(self, folder: Path, curves: Mapping[Any, Any]) -> Path:
        lines = [f"{seed} {step} {value!r}" for (_, _, seed, _), curve in curves.items() for step, value in curve]
        (folder / "adam.triples").write_text("\n".join([*lines, ""]))
        return folder / "adam.triples"


class TestSizes(ReportSectionContract):
    factory = "figures:sizes"
