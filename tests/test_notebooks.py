"""The notebooks of the documentation run, and what they show is what they were saved with."""

from __future__ import annotations

import importlib.util
import re
import signal
from pathlib import Path

import nbformat
import pytest
from reference import ROOT

HERE = ROOT / "docs" / "notebooks"


_OF_TIMES = ("seconds of a step", "at equal time", "seconds to the target")  # a clock may be too coarse for them


def shown(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Returns for each cell of code what its outputs are: kinds, and the heads of tables; numbers differ by machine."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kinds = [kind for output in cell.outputs for kind in sorted(output.get("data", {}))]
            texts = "".join(str(output.get("data", {}).get("text/html", "")) for output in cell.outputs)
            tables = [re.findall(r"<th[^>]*>([^<\d]*)</th>", table) for table in texts.split("<table")]
            heads = [head for table in tables if not {*_OF_TIMES} & {*table} for head in table if head.strip()]
            found.append([*kinds, *heads])
    return found


@pytest.mark.parametrize("path", sorted(HERE.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.usefixtures("any_program_is_forked")  # the kernel, too
def test_a_notebook_shows_what_it_was_saved_with(path: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("execute", HERE / "execute.py")
    assert spec is not None and spec.loader is not None
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    saved = nbformat.read(path, as_version=4)
    before = signal.getsignal(signal.SIGINT)
    try:
        again = execute.executed(path, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)  # nbclient leaves Python's own
    assert shown(again) == shown(saved), "python docs/notebooks/execute.py"
    outputs = [output for cell in again.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type in ("error", "stream")]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
