#!/usr/bin/env python3
"""Builds the Containerfile without a container engine: its steps run in a clean Debian root, made by debootstrap.

Usage, as root: ci/clean_root.py [FOLDER]; the folder is the new root, and must not be there (default: a temporary one).
The environment is emptied but for what pip and apt need to reach packages from here (resolv.conf, certificates).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# What pip needs to reach the packages from this machine; nothing of it is lobench's.
PIP = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT", "PIP_PROXY")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
OWN_CERTIFICATES = Path("etc/ssl/clean_root.crt")  # Debian's own are written anew by a step
CHECK = "/opt/lobench/source/ci/container.sh check"


@dataclass(kw_only=True)
class Root:
    """A root as the steps so far left it."""

    folder: Path
    user: str = "root"
    workdir: str = "/"
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    def run(self, command: str) -> None:
        """Runs a shell's line in the root, as the user, in a process tree and with mounts of its own."""
        told = {name: os.environ[name] for name in PIP if name in os.environ}
        if (self.folder / OWN_CERTIFICATES).exists():
            told["PIP_CERT"] = f"/{OWN_CERTIFICATES}"
        words = [f"{name}={value}" for name, value in {**told, **self.environment}.items()]
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        inside = ["chroot", f"--userspec={self.user}", str(self.folder), "env", "-i", f"HOME={home}", *words]
        inside += ["sh", "-c", f"cd {shlex.quote(self.workdir)} && {command}"]
        proc, dev = self.folder / "proc", self.folder / "dev"
        mounts = f"mount -t proc proc {shlex.quote(str(proc))} && mount --rbind /dev {shlex.quote(str(dev))}"
        outside = f"{mounts} && exec {shlex.join(inside)}"
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", outside]
        subprocess.run(unshare, check=True)

    def copy(self, target: str) -> None:
        """Copies what git tracks, and what is new and not ignored."""
        listed = ["git", "-C", str(HERE), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, capture_output=True, check=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            if (HERE / name).is_file():
                place = self.folder / target.lstrip("/") / name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(HERE / name, place)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yields the instructions of a Containerfile; each is a line here.

    Raises:
      ValueError: one that this script does not know.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            if name not in ("FROM", "ARG", "COPY", "RUN", "ENV", "WORKDIR", "USER", "ENTRYPOINT"):
                raise ValueError(f"Containerfile, line {number}: {name} is unknown here")
            yield name, rest.strip()


def build(folder: Path) -> Root:
    """Makes the root and runs every instruction in it."""
    root, given = Root(folder=folder), dict[str, str]()
    for name, rest in instructions((HERE / "Containerfile").read_text()):
        print(f"== {name} {rest}", flush=True)
        if name == "FROM":
            release = re.fullmatch(r"debian:(\w+)-slim", rest)[1]  # type: ignore[index]
            subprocess.run(
                ["debootstrap", "--variant=minbase", release, str(folder)], check=True, stdout=subprocess.DEVNULL
            )
            shutil.copy("/etc/resolv.conf", folder / "etc")
            if CERTIFICATES.is_file():
                (folder / OWN_CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(CERTIFICATES, folder / OWN_CERTIFICATES)
        elif name == "ARG":
            argument, _, value = rest.partition("=")
            given[argument] = value
        elif name == "COPY":
            root.copy(rest.split()[1])
        elif name == "RUN":
            root.run(re.sub(r"\$(\w+)", lambda found: given[found[1]], rest))
        elif name == "ENV":
            variable, _, value = rest.partition("=")
            root.environment[variable] = value
        elif name == "WORKDIR":
            root.workdir = rest
        elif name == "USER":
            root.user = rest
    return root


def main() -> None:
    for tool in ("debootstrap", "unshare", "chroot"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not installed: apt-get install debootstrap util-linux coreutils")
    if os.geteuid() != 0:
        sys.exit("a root is made by root: run this with sudo")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="lobench-root-")) / "root"
    if folder.exists():
        sys.exit(f"{folder} is there already")
    root = build(folder.absolute())
    root.run("lobench --version")
    root.run(CHECK)
    print(f"== built and checked in {folder}; remove it when you have looked")


if __name__ == "__main__":
    main()
