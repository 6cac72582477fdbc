"""Two users of one machine: commands under another account, with a umask. Becoming another user needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

USERS = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare"),
    reason="becoming another user needs root, setpriv and unshare",
)
IN_PROCESS = pytest.mark.skipif(
    any(not folder.stat().st_mode & 0o001 for folder in Path(__file__).parents),
    reason="this process can only become a user who may enter the folders of this repository",
)
ALICE, BOB, GROUP = 12_001, 12_002, 12_000

# Python or this repository may lie in a folder that is closed to others, as below /root or in a folder of mkdtemp. In
# the namespace of the command such a folder has only these, at their paths. Arguments: the number of paths, the paths,
# the command.
_OPENED = r"""
set -e
closed() { # prints the first folder above a path that the user may not enter
    above=""
    for name in $(dirname "$1" | tr / ' '); do
        above="$above/$name"
        setpriv --reuid 12001 --clear-groups test -x "$above" || { echo "$above"; return; }
    done
}
count=$1
shift
kept=""
for _ in $(seq "$count"); do
    folder=$(closed "$1")
    if [ -n "$folder" ]; then
        shown=$(mktemp -d)
        mount --rbind "$1" "$shown"
        kept="$kept $folder:$1:$shown"
    fi
    shift
done
for one in $kept; do
    folder=${one%%:*}
    mountpoint -q "$folder" || mount -t tmpfs -o mode=755 tmpfs "$folder"
done
for one in $kept; do
    path=${one#*:}
    mkdir -p "${path%%:*}"
    mount --rbind "${path#*:}" "${path%%:*}"
done
exec "$@"
"""
_NEEDED = sorted({sys.base_prefix, sys.prefix, str(Path(__file__).parents[1])})


def start_as(
    user: int, *arguments: str | Path, umask: int = 0o022, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Starts lobench as a user of the group, whose home is a folder below `cwd`'s parent that this makes."""
    home = cwd.parent / f"home-{user}"
    if not home.exists():
        home.mkdir()
        os.chown(home, user, GROUP)
    python = [sys.executable, "-m", "lobench.cli", *map(str, arguments)]
    account = ["setpriv", "--reuid", str(user), "--regid", str(GROUP), "--clear-groups", "env", f"HOME={home}"]
    account += ["sh", "-c", f'umask {umask:o}; exec "$@"', "sh"]
    command = ["unshare", "-m", "sh", "-c", _OPENED, "sh", str(len(_NEEDED)), *_NEEDED, *account, *python]
    settings = {**os.environ, **(environment or {})}
    for name in ("XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR", "TMPDIR"):
        settings.pop(name, None)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, umask=0o022, env=settings
    )


def run_as(
    user: int, *arguments: str | Path, umask: int = 0o022, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs lobench as a user of the group to its end."""
    with start_as(user, *arguments, umask=umask, cwd=cwd, environment=environment) as process:
        try:
            out, err = process.communicate(timeout=600)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
