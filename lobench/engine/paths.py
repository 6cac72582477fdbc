"""Checks of texts that may be paths, names in a store, or optimizers."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Literal

from lobench.core.errors import suggestion
from lobench.engine.retries import retried_briefly

__all__ = ["COPY_FOLDER_SUFFIX", "hash_in_copy_path", "path_exists", "similar_path_advice"]

COPY_FOLDER_SUFFIX = ".files"  # suffix of a spool's folder with an unchanged copy of a checkpoint


def path_exists(text: str | Path, *, kind: Literal["any", "file", "folder"] = "any") -> bool:
    """Returns whether a path exists.

    pathlib raises an error for a text that is too long to be a path, such as the gin text of an optimizer with many
    settings. This function returns False.

    Args:
      text: Path to look up.
      kind: "file" or "folder" restrict the result to these.
    Raises:
      OSError: This user has no access, or the disk has failed for some seconds.
    """
    path = Path(text)
    is_present = {"any": path.exists, "file": path.is_file, "folder": path.is_dir}[kind]
    try:
        return retried_briefly(is_present)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def similar_path_advice(path: str | Path) -> str:
    """Returns advice if the folder of a missing path has a similar name; "" otherwise.

    A name that differs only in the suffix is preferred: `theta_20` suggests `theta_20.npz`.
    """
    missing_path = Path(path)
    try:
        names = sorted(neighbour.name for neighbour in missing_path.parent.iterdir())
    except OSError:
        return ""
    same_stem_names = [name for name in names if Path(name).stem == missing_path.name]
    advice = suggestion(missing_path.name, same_stem_names[:1] or names)
    return (
        advice.replace("did you mean '", f"did you mean '{missing_path.parent}/")
        if missing_path.parent != Path()
        else advice
    )


def hash_in_copy_path(path: str) -> str:
    """Returns the hash in the path of a spool's copy of a whole checkpoint; "" for another path.

    >>> hash_in_copy_path("store/spool/5e3f.files/checkpoint-500")
    '5e3f'
    """
    folder_name = Path(path).parent.name
    return folder_name.removesuffix(COPY_FOLDER_SUFFIX) if folder_name.endswith(COPY_FOLDER_SUFFIX) else ""
