"""The files that workers elsewhere need, as one zip known by its content: suites, gin files, pytest's configuration.

Everything keeps its place relative to everything else, so that imports, includes and the identities of cases (which
hang on paths relative to the suite's parent) are the same on every machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.core.errors import LobenchError
from lobench.engine.store.provenance import ORIGIN, git_state

__all__ = ["Parcel", "files_of_suite"]

_MAX_BYTES = 256 * 2**20
_INI_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_MARKS_OF_FOREIGN_FOLDERS = ("pyvenv.cfg", "ledger.sqlite")
_INCLUDE = re.compile(r"^\s*include\s+['\"](.+?)['\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A zip and where things are in it.

    Attributes:
      base: Folder of this machine that the zip's names are relative to.
      sha256: Of names and contents (hex).
      data: The zip.
    """

    base: Path
    sha256: str
    data: bytes

    def inside(self, path: str | Path) -> str:
        """Returns the name in the zip of a file or folder of this machine."""
        return Path(os.path.abspath(path)).relative_to(self.base).as_posix()

    @classmethod
    def pack(cls, suites: Sequence[str], gin_files: Sequence[str], trainer_config: str | None = None) -> Parcel:
        """Packs suites (folders, or single gin files) and gin files bound around them.

        Args:
          trainer_config: `config.gin` beside the checkpoints: what it includes from elsewhere is not sent.

        Raises:
          LobenchError: more than 256 MiB; a file whose name is no text.
        """
        files: dict[Path, None] = {}
        roots: list[Path] = []
        for suite in map(Path, map(os.path.abspath, suites)):
            folder = suite if suite.is_dir() else suite.parent
            roots.append(folder.parent)
            files.update(dict.fromkeys(files_of_suite(suite, follow_links=True)))
            files.update(dict.fromkeys(_above(folder)))
        for file in map(Path, map(os.path.abspath, gin_files)):
            files.update(dict.fromkeys(_included(file, set())))
        if trainer_config:
            file = Path(os.path.abspath(trainer_config))
            files.update(dict.fromkeys(_included(file, set(), below=file.resolve().parent)))
        _check_size(files, suites)
        base = Path(os.path.commonpath([*roots, *(file.parent for file in files)]))
        _check_names(file.relative_to(base) for file in files)
        contents = {file.relative_to(base).as_posix(): file.read_bytes() for file in files}
        if not any(file.name in _INI_FILES for file in files):
            # pytest must not look for one above the folder that this is unpacked to.
            contents["pytest.ini"] = b"[pytest]\n"
        revision, dirty = git_state(str(roots[0]))
        contents[ORIGIN] = json.dumps({"git_revision": revision, "git_dirty": dirty}).encode()
        return cls(base=base, sha256=_digest(contents), data=_zip(contents))

    @staticmethod
    def unpack(data: bytes, folder: Path) -> None:
        """Unpacks a zip to a folder, which is there completely or not at all, whoever else does the same."""
        temporary = folder.with_name(f"tmp-{uuid.uuid4().hex}")
        temporary.mkdir(parents=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(temporary)
        try:
            temporary.rename(folder)
        except OSError:  # another slot of this node was first
            shutil.rmtree(temporary, ignore_errors=True)
            if not folder.is_dir():
                raise


def _check_size(files: Iterable[Path], suites: Sequence[str]) -> None:
    """Before any is read: they may be more than this machine's memory holds."""
    sizes = {file: file.stat().st_size for file in files}
    if (total := sum(sizes.values())) > _MAX_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        raise LobenchError(
            "the suites' folders are too large to be sent to other machines",
            where=", ".join(suites),
            got=f"{total / 2**20:.0f} MiB, of which {largest} {sizes[largest] / 2**20:.0f}",
            expected=f"{_MAX_BYTES // 2**20} MiB at most",
            next_step="keep data where every machine finds it, and load it by an absolute path",
        )


def _check_names(names: Iterable[Path]) -> None:
    """A zip holds names that are text, and so does the plan that is sent with it."""
    for name in names:
        try:
            str(name).encode()
        except UnicodeEncodeError as error:
            raise LobenchError(
                "a file's name is not UTF-8, and cannot be sent to other machines",
                where=ascii(str(name)),
                next_step="rename it, or keep it outside the suite's folder",
            ) from error


def _below(folder: Path, *, follow_links: bool) -> Iterator[Path]:
    """Yields a suite's files, without what is hidden, cached, a virtual environment or a store."""
    for root, folders, names in os.walk(folder, followlinks=follow_links):
        here = Path(root)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name != "__pycache__"
            and not any((here / name / mark).exists() for mark in _MARKS_OF_FOREIGN_FOLDERS)
            and not (follow_links and _is_circle(here / name))
        ]
        yield from (here / name for name in sorted(names) if (here / name).is_file() and not name.endswith(".pyc"))


def _is_circle(folder: Path) -> bool:
    """Says whether a folder is a link to one that it was come through."""
    return folder.is_symlink() and folder.resolve() in (above.resolve() for above in folder.parents)


def files_of_suite(suite: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yields the files of a suite's folder, or a bare gin file and what it can import; and what gin files include.

    Args:
      follow_links: Whether links to folders are gone into.
    """
    seen: set[Path] = set()
    for file in _below(suite, follow_links=follow_links) if suite.is_dir() else _beside(suite):
        yield file
        if file.suffix == ".gin":
            yield from _included(file, seen)


def _beside(gin_file: Path) -> Iterator[Path]:
    """Yields a bare gin file and what it can import or include: the Python and gin files of its folder."""
    for file in sorted(gin_file.parent.iterdir()):
        if file == gin_file or (file.suffix in (".py", ".gin") and file.is_file()):
            yield file


def _above(folder: Path) -> Iterator[Path]:
    """Yields conftest files, modules and pytest's configuration from the suite's parent up to pytest's root."""
    for above in folder.parents:
        if above == Path(above.anchor):
            return
        if above == folder.parent:  # importable from gin: modules and packages
            yield from sorted(file for file in above.glob("*.py") if file.is_file())
            for package in sorted(above.glob("*/__init__.py")):
                yield from _below(package.parent, follow_links=True)
        elif (above / "conftest.py").is_file():
            yield above / "conftest.py"
        found = [above / name for name in _INI_FILES if (above / name).is_file()]
        yield from found
        if found:
            return


def _included(file: Path, seen: set[Path], below: Path | None = None) -> Iterator[Path]:
    """Yields a gin file and what it includes, below a folder alone; what is not there is the worker's to report."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    yield file
    for name in _INCLUDE.findall(file.read_text(encoding="utf-8", errors="replace")):
        found = Path(os.path.normpath(file.parent / name))
        if below is None or found.resolve().is_relative_to(below):
            yield from _included(found, seen, below)


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
