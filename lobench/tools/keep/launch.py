"""Program that runs the command of a revision for one seed: `python -m lobench.tools.keep.launch REVISION SEED OUT`.

It runs in `STORE/keep/suite`. Each run gets a copy of the revision's files of its own, beside its folder for output, so
that it sees nothing that another run has written. If the incumbent's pace is known, a run that falls far behind it is
stopped.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from lobench.engine.workers.command import command_words, filled

__all__ = ["LINKS", "PACE", "main"]

_HOME = Path("..")
LINKS = "links.json"  # absolute paths, by the name that runs see
PACE = "pace.json"  # of the incumbent, as long as a candidate runs on shared seeds


def main(arguments: list[str]) -> None:
    """Replaces this process by the command of a revision."""
    revision, seed, out = arguments
    text = (Path(revision) / "revision.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    tree = Path(out).parent / "tree"
    shutil.copytree(_HOME / "trees" / manifest["tree"], tree, symlinks=True)
    folder = tree / manifest["folder"]
    if manifest["links"]:
        targets = json.loads((_HOME / LINKS).read_text(encoding="utf-8"))
        for name in manifest["links"]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(targets[name])
    values = {"seed": seed, "out": out}
    words = [*_supervised(text, values), *command_words(shlex.split(manifest["command"]), values)]
    os.environ.update(manifest["environment"], PWD=str(folder))
    os.chdir(folder)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.exit(f"cannot run {words[0]}: {error.strerror}")


def _supervised(candidate: str, values: dict[str, str]) -> list[str]:
    """Returns the words before a candidate's command that hold it to the incumbent's pace; none without a pace."""
    path = (_HOME / PACE).absolute()
    if not path.is_file():
        return []
    pace = json.loads(path.read_text(encoding="utf-8"))
    if pace["candidate"] != candidate:
        return []
    program = [sys.executable, "-P", "-m", "lobench.experiments.supervised_command"]
    return [*program, str(path), filled(pace["curves"], {name: glob.escape(value) for name, value in values.items()})]


if __name__ == "__main__":
    main(sys.argv[1:])
