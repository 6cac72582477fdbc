"""Installs packages into the environment of this Python with uv, which takes a quarter of pip's time.

Usage: python ci/install.py ARGUMENTS...   (as `pip install` and `uv pip install` both take them)

uv does not read pip's settings, so they are passed on. Where uv cannot be had or fails, pip installs the packages.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# By name in pip's settings: the variable that uv reads, and what separates its values.
_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "constraint": ("UV_CONSTRAINT", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def main(arguments: list[str]) -> int:
    quiet_pip = [*_PIP, "install", "--quiet"]
    install_uv = [*quiet_pip, "--constraint", "ci/constraints.txt", "uv"]
    if subprocess.run(install_uv, capture_output=True, check=False).returncode == 0:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable, *arguments]
        listed_settings = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
        done = subprocess.run(command, env={**uv_settings(listed_settings), **os.environ}, check=False)
        if done.returncode == 0:
            return 0
        print("uv could not install the packages; pip tries it", file=sys.stderr)
    return subprocess.run([*quiet_pip, "--no-compile", *arguments], check=False).returncode


def uv_settings(listed_settings: str) -> dict[str, str]:
    """Returns the environment with which uv finds the packages that pip would install.

    Args:
      listed_settings: Output of `pip config list`: lines such as `global.find-links='/opt/wheels'`.
    """
    # As pip does: the highest version of all indexes.
    settings = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in listed_settings.splitlines():
        name, _, value = line.partition("=")
        variable, separator = _VARIABLES.get(name.rpartition(".")[2], ("", ""))
        if variable:
            settings[variable] = separator.join(ast.literal_eval(value).split())
    return settings


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
