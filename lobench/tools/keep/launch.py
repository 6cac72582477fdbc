"""Program that runs the command of a revision for one seed: `python -m lobench.tools.keep.launch REVISION SEED OUT`.

It runs in `STORE/keep/suite`. Each run gets a copy of the revision's files of its own, beside its folder for output, so
that it sees nothing that another run has written.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from lobench.engine.workers.command import command_words

__all__ = ["LINKS", "main"]

_HOME = Path("..")
LINKS = "links.json"  # absolute paths, by the name that runs see


def main(arguments: list[str]) -> None:
    """Replaces this process by the command of a revision."""
    revision, seed, out = arguments
    manifest = json.loads((Path(revision) / "revision.json").read_text(encoding="utf-8"))
    tree = Path(out).parent / "tree"
    shutil.copytree(_HOME / "trees" / manifest["tree"], tree, symlinks=True)
    folder = tree / manifest["folder"]
    if manifest["links"]:
        targets = json.loads((_HOME / LINKS).read_text(encoding="utf-8"))
        for name in manifest["links"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(targets[name])
    words = command_words(shlex.split(manifest["command"]), {"seed": seed, "out": out})
    os.environ.update(manifest["environment"], PWD=str(folder))
    os.chdir(folder)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"cannot run {words[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
