"""Parcel: suites, gin files and pytest's configuration in a zip archive, identified by its content.

All files keep their relative positions, so that imports, includes and the identities of cases (which depend on paths
relative to the suite's parent) are the same on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.engine.config.import_path import INI_FILES
from lobench.engine.config.origin import ORIGIN_FILE, git_state
from lobench.engine.config.run_configs import config_chain
from lobench.engine.config.suite_files import files_above_suite, files_of_suite, included_files

__all__ = ["Parcel"]

_MAX_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """Zip archive of suites, with the folder that its names are relative to.

    Attributes:
      base: Folder on this machine that the names in the archive are relative to.
      sha256: Hash (hex) of names and contents.
      data: The archive.

    >>> parcel = Parcel.pack(["quadratic.gin"], [])
    >>> len(parcel.sha256)
    64
    """

    base: Path
    sha256: str
    data: bytes

    def inside(self, path: str | Path) -> str:
        """Returns the name in the archive of a file or folder on this machine."""
        return Path(os.path.abspath(path)).relative_to(self.base).as_posix()

    @classmethod
    def pack(
        cls,
        suites: Sequence[str],
        gin_files: Sequence[str],
        trainer_config: str | None = None,
        import_folders: Sequence[str] = (),
    ) -> Parcel:
        """Packs suites and the gin files bound around them.

        Args:
          suites: Folders or gin files.
          gin_files: Further gin files, packed with the files that they include.
          trainer_config: Path of the `config.gin` next to the checkpoints. Those of the folders around it are packed,
            too; files that one includes are only packed if they are below its folder.
          import_folders: Folders from which modules are packed, but not packages.
        Raises:
          LobenchError: The files exceed 256 MiB, or a file's name is not UTF-8.
        """
        files: dict[Path, None] = {}
        roots: list[Path] = []
        for suite in map(Path, map(os.path.abspath, suites)):
            folder = suite if suite.is_dir() else suite.parent
            roots.append(folder.parent)
            files.update(dict.fromkeys(files_of_suite(suite, follow_links=True)))
            files.update(dict.fromkeys(files_above_suite(folder)))
        for file in map(Path, map(os.path.abspath, gin_files)):
            files.update(dict.fromkeys(included_files(file, set())))
        if trainer_config:
            for file in config_chain(Path(os.path.abspath(trainer_config))):
                files.update(dict.fromkeys(included_files(file, set(), top_folder=file.resolve().parent)))
        for folder in map(Path, map(os.path.abspath, import_folders)):
            roots.append(folder)
            files.update(dict.fromkeys(sorted(folder.glob("*.py"))))
        _check_size(files, suites)
        base = Path(os.path.commonpath([*roots, *(file.parent for file in files)]))
        _check_names(file.relative_to(base) for file in files)
        contents = {file.relative_to(base).as_posix(): file.read_bytes() for file in files}
        if not any(file.name in INI_FILES for file in files):
            # Keeps pytest from searching for a configuration above the folder to which this is unpacked.
            contents["pytest.ini"] = b"[pytest]\n"
        revision, dirty = git_state(str(roots[0]))
        contents[ORIGIN_FILE] = json.dumps({"git_revision": revision, "git_dirty": dirty}).encode()
        return cls(base=base, sha256=_digest(contents), data=_zip(contents))

    @staticmethod
    def unpack(data: bytes, folder: Path) -> None:
        """Unpacks an archive to a folder atomically. Several processes may unpack to the same folder."""
        temporary_folder = folder.with_name(f"tmp-{uuid.uuid4().hex}")
        temporary_folder.mkdir(parents=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(temporary_folder)
        try:
            temporary_folder.rename(folder)
        except OSError:  # another process on this node was first
            shutil.rmtree(temporary_folder, ignore_errors=True)
            if not folder.is_dir():
                raise


def _check_size(files: Iterable[Path], suites: Sequence[str]) -> None:
    """Raises LobenchError if the files are too large.

    Called before they are read, because they may not fit into memory.
    """
    sizes = {file: file.stat().st_size for file in files}
    if (total_bytes := sum(sizes.values())) > _MAX_BYTES:
        largest_file = max(sizes, key=sizes.__getitem__)
        raise LobenchError(
            "the suites' folders are too large to be sent to other machines",
            where=", ".join(suites),
            got=f"{total_bytes / 2**20:.0f} MiB, of which {largest_file} {sizes[largest_file] / 2**20:.0f}",
            expected=f"{_MAX_BYTES // 2**20} MiB at most",
            next_step="keep data where every machine finds it, and load it by an absolute path",
        )


def _check_names(names: Iterable[Path]) -> None:
    """Raises LobenchError if a name is not UTF-8, since archives and messages cannot contain it."""
    for name in names:
        try:
            str(name).encode()
        except UnicodeEncodeError as error:
            raise LobenchError(
                "a file's name is not UTF-8, and cannot be sent to other machines",
                where=ascii(str(name)),
                next_step="rename it, or keep it outside the suite's folder",
            ) from error


def _digest(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _zip(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
