"""How processes that evaluate are started: the current folder may be anything, a folder of checkpoints say."""

from __future__ import annotations

import os
import sys

__all__ = ["PYTHON", "current_folder_last"]

# Without -P, `python -m` looks for modules in the current folder first: a file `queue.py` there would be run.
PYTHON = (sys.executable, "-P")


def current_folder_last() -> None:
    """Makes modules of the current folder importable all the same, if no installed package has their name."""
    sys.path.append(os.getcwd())
