"""Listing of the files below a folder, with each file once even if symbolic links lead to it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["files_below"]


def files_below(folder: Path) -> list[Path]:
    """Returns the files in and below a folder, sorted by path. Hidden folders are left out.

    Symbolic links to folders and files are followed. A file with several paths is listed once, if possible by a path
    without a link. So cycles of links end, and `latest-run` is not a second run.
    """
    paths: list[Path] = []
    starts = [folder]
    visited_folders = set[Path]()
    has_links = False
    while starts:
        for folder_path, folders, names in os.walk(starts.pop(0)):
            current_folder = Path(folder_path)
            if (real_folder := current_folder.resolve()) in visited_folders:
                folders.clear()
                continue
            visited_folders.add(real_folder)
            visible_names = sorted(name for name in folders if not name.startswith("."))
            links = [name for name in visible_names if (current_folder / name).is_symlink()]
            starts += [current_folder / name for name in links]
            has_links = has_links or bool(links) or folder.is_symlink()
            folders[:] = [name for name in visible_names if name not in links]
            paths += [current_folder / name for name in names]
    files = [path for path in paths if path.is_file()]
    if not has_links and not any(path.is_symlink() for path in files):
        return sorted(files)
    paths_by_target: dict[Path, Path] = {}
    for path in files:  # those behind links come last
        target = path.resolve()
        if target not in paths_by_target or (paths_by_target[target].is_symlink() and not path.is_symlink()):
            paths_by_target[target] = path
    return sorted(paths_by_target.values())
