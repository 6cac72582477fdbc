"""Reader of orbax step directories through tensorstore, because orbax itself would create a jax backend in the chief.

Layouts: `N/` with the arrays itself, or `N/ITEM/` per item (`default`, `theta`, ...); JSON items hold counters. The
tree is in `_METADATA`, the arrays in an OCDBT database or a zarr folder each, text in `_strings.json`. A directory is
complete if its name has no temporary mark, its metadata exist, and it is committed: `commit_success.txt`, or the commit
time in the metadata. orbax also loads directories without a commit; here they must have stopped changing.
Source: orbax-checkpoint 0.12.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from etils import epath

from lobench import CheckpointError
from lobench.extend import CheckpointContent, content_of, is_settled, reading

__all__ = ["OrbaxReader"]

_TEMPORARY = ".orbax-checkpoint-tmp"
_TREE_FILE = "_METADATA"
_STEP_FILE = "_CHECKPOINT_METADATA"
_COMMIT_FILE = "commit_success.txt"
_STRINGS_FILE = "_strings.json"
_FILE_PATTERN = re.compile(r'local file "([^"]+)"')  # name of a file in tensorstore's messages
_EMPTY_TYPES = ("None", "Dict", "List", "Tuple", "NamedTuple")  # containers without a leaf


class OrbaxReader:
    """Reads directories named by an integer or `params_N`."""

    in_place = False

    def __init__(self, allow_pickle: bool = False) -> None:
        del allow_pickle

    def recognises(self, path: epath.Path) -> bool:
        return bool(re.fullmatch(r"(\w+_)?\d+", path.name)) and path.is_dir()

    def is_complete(self, path: epath.Path) -> bool:
        try:
            is_temporary = _TEMPORARY in path.name or any(_TEMPORARY in entry.name for entry in path.iterdir())
            folder_by_item = {} if is_temporary else _item_folders(path)
        except (FileNotFoundError, NotADirectoryError):
            return False  # a trainer that keeps the last few has removed it
        if not folder_by_item:
            return False
        if (path / _COMMIT_FILE).exists() or all(
            (item_folder / _COMMIT_FILE).exists() for item_folder in folder_by_item.values()
        ):
            return True
        try:
            if json.loads((path / _STEP_FILE).read_text()).get("commit_timestamp_nsecs") is not None:
                return True
        except (OSError, ValueError):
            pass  # orbax itself does not require these marks
        return is_settled(path)

    def read(self, path: epath.Path) -> CheckpointContent:
        with reading(path, "an orbax checkpoint"):
            folder_by_item = _item_folders(path)
            if not folder_by_item:
                raise CheckpointError("no item with arrays", where=str(path), expected=f"a folder with {_TREE_FILE}")
            if len(folder_by_item) == 1:
                leaves = _item_leaves(next(iter(folder_by_item.values())))
            else:
                # The optimizer is needed to determine which item is theta.
                leaves = {
                    f"{name}/{leaf}": value
                    for name, item_folder in folder_by_item.items()
                    for leaf, value in _item_leaves(item_folder).items()
                }
            content = content_of(leaves, str(path))
            # The rules for counters among the leaves apply to those in JSON too.
            counters = content_of({"theta/any": np.zeros(1)} | _counters(path), str(path))
            outer_step = content.outer_step if counters.outer_step is None else counters.outer_step
            return dataclasses.replace(
                content,
                outer_step=outer_step,
                generation=content.generation if counters.generation is None else counters.generation,
            )


def _item_folders(path: epath.Path) -> dict[str, epath.Path]:
    """Returns the folders with a tree of arrays, by item name; the step directory itself is "default"."""
    if (path / _TREE_FILE).exists():
        return {"default": path}
    # Folders named by a number are steps, and then this is a run and not a step.
    entries = (entry for entry in sorted(path.iterdir()) if not entry.name.isdecimal())
    return {entry.name: entry for entry in entries if (entry / _TREE_FILE).exists()}


def _counters(path: epath.Path) -> dict[str, Any]:
    """Returns step and generation from the JSON items."""
    counters: dict[str, Any] = {}
    for entry in path.iterdir():
        file = entry / "metadata"
        if file.exists():
            content = _read_json(file)
            if isinstance(content, Mapping):
                names = ("outer_step", "step", "iteration", "generation", "gen_id")
                counters |= {name: content[name] for name in names if name in content}
    return counters


def _item_leaves(item_folder: epath.Path) -> dict[str, Any]:
    """Returns the arrays and texts of an item."""
    metadata = _read_json(item_folder / _TREE_FILE)
    texts: dict[str, str] = {}
    leaves: dict[str, Any] = {}
    for entry in metadata["tree_metadata"].values():
        keys = [str(key["key"]) for key in entry["key_metadata"]]
        value_type = entry["value_metadata"]["value_type"]
        if value_type in _EMPTY_TYPES:
            continue
        if value_type == "string":
            texts = texts or _read_json(item_folder / _STRINGS_FILE)
            leaves["/".join(keys)] = texts[".".join(keys)]
        else:
            leaves["/".join(keys)] = _read_array(item_folder, ".".join(keys), metadata)
    return leaves


def _read_array(item_folder: epath.Path, name: str, metadata: Mapping[str, Any]) -> np.ndarray:
    import tensorstore  # here, because it is a large library, and every watch creates this reader

    database_location: Any
    array_location: Any
    if "://" in str(item_folder):
        database_location, array_location = f"{item_folder}/", f"{item_folder}/{name}/"
    else:
        # Paths are given in place of file:// URLs, in which a percent sign would be an escape.
        database_location, array_location = (
            {"driver": "file", "path": f"{path}/"} for path in (item_folder, item_folder / name)
        )
    store = (
        {"driver": "ocdbt", "base": database_location, "path": f"{name}/"}
        if metadata.get("use_ocdbt", True)
        else array_location
    )
    spec = {"driver": "zarr3" if metadata.get("use_zarr3") else "zarr", "kvstore": store}
    if metadata.get("store_array_data_equal_to_fill_value"):
        spec["fill_missing_data_reads"] = False  # everything was written, so missing data is damage, not zeros
    try:
        array: np.ndarray = tensorstore.open(spec).result().read().result()
    except Exception as error:
        if "://" in str(item_folder):
            raise
        raise _damage_error(item_folder, name, str(error), is_database=bool(metadata.get("use_ocdbt", True))) from error
    return array


def _damage_error(item_folder: epath.Path, leaf: str, message: str, *, is_database: bool) -> CheckpointError:
    """Returns an error that names the missing or damaged file, in place of tensorstore's long message."""
    paths = [epath.Path(path) for path in _FILE_PATTERN.findall(message)]
    files = [file for file in paths if not file.is_dir()]
    manifest = item_folder / "manifest.ocdbt"
    if is_database and not manifest.exists():
        files = [manifest]
    file = files[-1] if files else item_folder
    problem = f"no {file.name}" if not file.exists() else f"a {file.name} that is cut off or damaged"
    where = str(file.parent if not file.exists() else file)
    return CheckpointError(f"cannot read it as an orbax checkpoint: leaf {leaf!r}", where=where, got=problem)


def _read_json(file: epath.Path) -> Any:
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        if not file.parent.exists():
            raise  # the whole checkpoint was removed
        where = str(file.parent)
        problem = f"no {file.name}"
    except ValueError as error:
        where = str(file)
        problem = f"no whole JSON: {error}"
    raise CheckpointError("cannot read it as an orbax checkpoint", where=where, got=problem)
