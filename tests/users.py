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
ALICE, BOB, GROUP = 12_001, 12_002, 12_000

# Python may lie in a folder that is closed to others, as below /root: there it is shown at the same path, alone.
_OPENED = r"""
set -e
top="/$(echo "$1" | cut -d/ -f2)"
if ! setpriv --reuid 12001 --clear-groups test -x "$top"; then
    shown=$(mktemp -d)
    mount --bind "$1" "$shown"
    mount -t tmpfs -o mode=755 tmpfs "$top"
    mkdir -p "$1"
    mount --bind "$shown" "$1"
fi
shift
exec "$@"
"""


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
    command = ["unshare", "-m", "sh", "-c", _OPENED, "sh", sys.base_prefix, *account, *python]
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
