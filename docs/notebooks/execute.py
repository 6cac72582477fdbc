"""Runs the notebooks beside this file and keeps what their cells showed: `python docs/notebooks/execute.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

_HERE = Path(__file__).resolve().parent
_CHECKOUT = f"{_HERE.parents[1]}/"  # left out of what cells showed
_SECONDS = 600  # for a cell


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Returns a notebook with the outputs of its cells.

    Args:
      folder: Where it runs: what its cells write lies there.
    """
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook, kernel_name="python3", timeout=_SECONDS, startup_timeout=_SECONDS, resources=where
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def main() -> None:
    for path in sorted(_HERE.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            text = nbformat.writes(executed(path, Path(folder)))
        path.write_text(text.replace(_CHECKOUT, "") + "\n", encoding="utf-8")
        print(path, f"{path.stat().st_size / 1000:,.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main()
