"""The plugins of docs/plugins.md, as they stand there, keep the contracts of their kinds."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tiny import write_checkpoint

from lobench.testing.executors import ExecutorContract
from lobench.testing.import_formats import ImportFormatContract
from lobench.testing.policies import PolicyContract
from lobench.testing.readers import ReaderContract
from lobench.testing.report_sections import ReportSectionContract
from lobench.testing.searches import SearchContract
from lobench.testing.sources import SourceContract
from lobench.testing.strategies import StrategyContract

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


class TestListed(SourceContract):
    factory = "listed:Listed"

    def location(self, folder: Path) -> str:
        return f"listed://{folder}"

    def begin(self, folder: Path, index: int) -> None:
        (folder / f"theta_{index}.npz").write_bytes(b"PK")
        self._list(folder, index)

    def publish(self, folder: Path, index: int) -> None:
        write_checkpoint(folder / f"theta_{index}.npz", -float(index))
        self._list(folder, index)

    def _list(self, folder: Path, index: int) -> None:
        listed = folder / "INDEX"
        lines = listed.read_text().splitlines() if listed.exists() else []
        line = f"{index} theta_{index}.npz"
        listed.write_text("\n".join([*lines, *([] if line in lines else [line]), ""]))


class TestNewest(PolicyContract):
    factory = "decide:newest"
    argument = "2"
    wrong_arguments = ("", "0", "two")


class TestDuel(StrategyContract):
    factory = "decide:Duel"


class TestHalves(SearchContract):
    factory = "decide:Halves"
    keywords: ClassVar[dict[str, object]] = {"share": 0.25}
