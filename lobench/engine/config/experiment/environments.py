"""Python environments of methods: the version of an installed library, without importing it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lobench.core.errors import ConfigError

__all__ = ["library_at", "portable_python", "python_at"]

# Files count as well as the version, because an editable install keeps its version when it is edited.
_SCRIPT = """
import hashlib, importlib.metadata, importlib.util, pathlib, sys
sys.path[:] = [folder for folder in sys.path if folder]
name = sys.argv[1]
spec = importlib.util.find_spec(name)
if spec is None:
    sys.exit("there is no package " + repr(name))
homes = [pathlib.Path(home) for home in spec.submodule_search_locations or ()]
files = [(str(file.relative_to(home)), file) for home in homes for file in home.rglob("*.py")]
files = files or [(name, pathlib.Path(spec.origin))]
digest = hashlib.sha256()
for path, file in sorted(files):
    digest.update(path.encode() + bytes(1) + hashlib.sha256(file.read_bytes()).digest())
owners = importlib.metadata.packages_distributions().get(name, [])
found = {owner: importlib.metadata.version(owner) for owner in sorted(owners)}
try:
    found["torch"] = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    pass
print(", ".join([*(" ".join(each) for each in found.items()), "sha256 " + digest.hexdigest()[:12]]))
"""
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


def python_at(path: str, folder: Path, where: str) -> str:
    """Returns the path of another environment's Python. Links are not followed, since they identify the environment.

    Args:
      path: Path relative to `folder`.
      folder: Folder of the experiment's file.
      where: Place in error messages.
    Raises:
      ConfigError: The program does not exist.
    """
    program = os.path.normpath(folder / Path(path).expanduser())
    if not os.access(program, os.X_OK) or os.path.isdir(program):
        raise ConfigError("no Python", where=where, got=program, expected="a path such as envs/old/bin/python")
    return program


def portable_python(path: str, folder: Path) -> tuple[str, str]:
    """Splits a Python's path into the part that belongs to identities and the folder that the part is relative to.

    Only the last three parts are kept (`main/bin/python`), so that an experiment has the same results on another
    machine, wherever its environments are.

    Args:
      path: Path in the experiment's file.
      folder: Folder of the experiment's file.
    """
    program = Path(os.path.normpath(folder / Path(path).expanduser()))
    portable_path = "/".join(path_part for path_part in program.parts[-3:] if path_part != program.anchor)
    return portable_path, str(program).removesuffix(portable_path)


def library_at(python: str, package: str, where: str) -> str:
    """Returns versions and hash of a package in an environment: "muons 1.2.0, torch 2.13.0, sha256 0a1b2c3d4e5f".

    Raises:
      ConfigError: The environment does not have the package.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _PYTHON_VARIABLES}
    try:
        process = subprocess.run(
            [python, "-c", _SCRIPT, package], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        failure = process.stderr.strip().rpartition("\n")[2] if process.returncode else ""
    except OSError as error:
        failure = error.strerror or str(error)
    if failure:
        raise ConfigError(
            f"{package} is not in that environment",
            where=where,
            got=f"{failure} ({python})",
            expected="Python 3.10 or later, with the optimizer's package and torch",
        )
    return process.stdout.strip()
