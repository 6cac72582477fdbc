"""Program that runs the command of a revision for one seed: `python -m lobench.tools.keep.launch REVISION SEED OUT`.

It runs in `STORE/keep/suite`, or in a copy of this folder on a node of a cluster. Each run gets its own copy of the
revision's files, next to its output folder, so that it cannot see files written by other runs. If the incumbent's pace
is known, a run that falls far behind it is stopped.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from lobench.engine.workers.placeholders import command_words, fill_placeholders

__all__ = ["IMPORTS", "LINKS", "PACE", "REVISIONS_FOLDER_FILE", "main"]

# File in the suite with the absolute path of `STORE/keep`, for nodes that share the store's file system. Because of its
# suffix it does not count as data of the suite, so moving a store changes no data.
REVISIONS_FOLDER_FILE = "home.cfg"
IMPORTS = "imports.json"  # folders of the tree that runs import from, before installed packages
LINKS = "links.json"  # absolute paths, by the name that runs see
PACE = "pace.json"  # curves of the incumbent; exists while a candidate runs on shared seeds


def main(arguments: list[str]) -> None:
    """Replaces this process by the command of a revision."""
    revision, seed, output_folder = arguments
    revisions_folder = _revisions_folder()
    text = (Path(revision) / "revision.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    tree = Path(output_folder).parent / "tree"
    shutil.copytree(revisions_folder / "trees" / manifest["tree"], tree, symlinks=True)
    folder = tree / manifest["folder"]
    if manifest["links"]:
        targets = json.loads((revisions_folder / LINKS).read_text(encoding="utf-8"))
        for name in manifest["links"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(targets[name])
    values = {"seed": seed, "out": output_folder}
    command_line = [
        *_supervisor_prefix(revisions_folder, text, values),
        *command_words(shlex.split(manifest["command"]), values),
    ]
    os.environ.update(manifest["environment"], PWD=str(folder))
    imports = (
        json.loads((revisions_folder / IMPORTS).read_text(encoding="utf-8"))
        if (revisions_folder / IMPORTS).is_file()
        else []
    )
    if import_paths := [str(tree / name) for name in imports if (tree / name).is_dir()]:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*import_paths, os.environ.get("PYTHONPATH"))))
    os.chdir(folder)
    try:
        os.execvp(command_line[0], command_line)
    except OSError as error:
        sys.exit(f"cannot run {command_line[0]}: {error.strerror}")


def _revisions_folder() -> Path:
    """Returns the folder `STORE/keep`."""
    if Path("..", "trees").is_dir():
        return Path("..")
    revisions_folder = Path(Path(REVISIONS_FOLDER_FILE).read_text(encoding="utf-8").rstrip("\n"))
    if not revisions_folder.is_dir():
        sys.exit(
            f"{revisions_folder.parent} is not on this node: `lobench keep` needs a --store that all nodes can read"
        )
    return revisions_folder


def _supervisor_prefix(revisions_folder: Path, candidate: str, values: dict[str, str]) -> list[str]:
    """Returns the command prefix that stops a candidate which is behind the incumbent's pace; [] without a pace."""
    path = (revisions_folder / PACE).absolute()
    if not path.is_file():
        return []
    pace = json.loads(path.read_text(encoding="utf-8"))
    if pace["candidate"] != candidate:
        return []
    program = [sys.executable, "-P", "-m", "lobench.experiments.supervised_command"]
    return [
        *program,
        str(path),
        fill_placeholders(pace["curves"], {name: glob.escape(value) for name, value in values.items()}),
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
