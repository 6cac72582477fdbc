"""Revisions: the files, command and environment that a decision compares, kept below the store by their content.

`STORE/keep/trees/HASH/` has the files of a revision, and `STORE/keep/revisions/HASH/revision.json` names the tree, the
command and the environment. This file has no machine-specific paths, so its content identifies the revision, and a
store can evaluate it like a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lobench.core.errors import UsageError
from lobench.core.wording import cause, shortened_list
from lobench.engine.config.origin import git_environment
from lobench.engine.whole_file import write_whole

__all__ = [
    "GIT_PREFIX",
    "MANIFEST",
    "KeptRevision",
    "RevisionFiles",
    "find_folder",
    "ignored_note",
    "import_folders",
    "refuse_original_files",
]

GIT_PREFIX = "git:"
MANIFEST = "revision.json"
_IGNORED_NAMES = (".git", "__pycache__")  # folders that are neither copied nor reported as ignored
_SUBMODULE = b"160000"
_MOST_NAMED = 3
_LINK_TEXT = "a path that git ignores as a whole, such as data/raw for a folder data with tracked files"
# Prints the folders from which a Python imports, including the folders of editable installs that setuptools finds
# through its own import hooks.
_IMPORT_FOLDERS_CODE = """
import json, os, sys
found = [os.path.abspath(path) for path in sys.path if path]
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [os.path.dirname(path) for path in getattr(module, "MAPPING", {}).values()]
print(json.dumps(found))
"""
_DIGITS_TO_LETTERS = str.maketrans("0123456789", "ghijklmnop")  # a number in a name would be read as an outer step


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRevision:
    """Files, command and environment of one side of a decision.

    Attributes:
      name: Hash of the manifest, 16 letters; the name of its folder.
      label: Name shown to people, such as `git:main (3f2a9c1)`.
      path: Folder of the manifest.
      ignored: Folders that git ignores, so that they are missing in the copies for runs.
    """

    name: str
    label: str
    path: Path
    ignored: tuple[str, ...] = ()


def find_folder(version: str, *, base_folder: Path) -> tuple[Path, Path | None]:
    """Returns the folder of a version, and the root of its git repository, or None if it is not in a repository.

    Args:
      version: `git:REV`, or a folder.
      base_folder: Folder in the repository of `git:REV`.
    Raises:
      UsageError: There is no such folder, repository or revision.
    """
    is_of_git = version.startswith(GIT_PREFIX)
    folder = (base_folder if is_of_git else Path(version)).resolve()
    if not folder.is_dir():
        raise UsageError("no such folder", where=version, next_step="a folder, or git:REV for a revision")
    root = _repository_root(folder)
    if is_of_git and root is None:
        raise UsageError("not in a git repository", where=str(folder), got=version)
    if is_of_git and root is not None:
        _resolve_commit(root, version.removeprefix(GIT_PREFIX))
    return folder, root


def refuse_original_files(command: str, version: str, *, base_folder: Path) -> None:
    """Raises UsageError if a command contains the absolute path of a file or folder of the revision.

    Both versions would then run the present file and not their own copy.
    """
    folder, root = find_folder(version, base_folder=base_folder)
    root = root or folder
    working_folder = base_folder if version.startswith(GIT_PREFIX) else Path(version)
    root_spellings = {
        str(root),
        os.path.normpath(Path(os.path.abspath(working_folder)) / os.path.relpath(root, folder)),
    }
    paths = [
        (path + suffix, PurePosixPath(suffix.strip("/")))
        for path in root_spellings
        for suffix in re.findall(rf"(?<![\w/.-]){re.escape(path)}((?:/[^\s'\":;,]*)?)(?![\w.-])", command)
    ]
    if not paths:
        return
    names = _listed_files(root) if (root / ".git").exists() else _files_below(root)
    listed_paths = {
        listed_path for name in names for listed_path in (PurePosixPath(name), *PurePosixPath(name).parents)
    }
    for path, name in paths:
        if name in listed_paths:
            raise UsageError(
                "the command names a path of the present files, so both versions would run these",
                got=path,
                expected="a path relative to the folder in which the command runs",
            )


def import_folders(command: Sequence[str], versions: Iterable[str], *, base_folder: Path) -> list[str]:
    """Returns the folders of a repository from which the Python of a command imports, relative to the root.

    An editable install, or an absolute path in PYTHONPATH, names folders of the present files. Runs import from the
    same folders of their copies instead. The folders may be in any work tree of the repository.
    """
    roots = set[Path]()
    for version in versions:
        folder, root = find_folder(version, base_folder=base_folder)
        roots.add(root or folder)
        if root is not None:
            lines = os.fsdecode(_run_git(root, "worktree", "list", "--porcelain").stdout).splitlines()
            roots |= {Path(line.removeprefix("worktree ")).resolve() for line in lines if line.startswith("worktree ")}
    process = subprocess.run(
        [_find_python(command, base_folder), "-c", _IMPORT_FOLDERS_CODE], cwd="/", capture_output=True, check=False
    )
    if process.returncode or not process.stdout:
        return []
    folders = dict[str, None]()
    for path in map(Path, json.loads(process.stdout.splitlines()[-1])):
        for root in sorted(roots, reverse=True):  # a work tree may lie in another one
            if path.resolve().is_relative_to(root):
                folders[path.resolve().relative_to(root).as_posix()] = None
                break
    return [*folders]


def _find_python(command: Sequence[str], folder: Path) -> str:
    """Returns the Python that a command runs, or else the Python in the folder of its program."""
    program = command[0]
    if program == "python":
        return sys.executable  # `command_words` replaces the word `python` likewise
    path = shutil.which(folder / program if "/" in program else program)
    if path is not None and Path(path).name.startswith("python"):
        return path
    sibling_python = Path(path).parent / "python" if path is not None else None
    if sibling_python is not None and sibling_python.is_file():
        return str(sibling_python)
    return shutil.which("python") or sys.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionFiles:
    """Keeper of revisions below a store.

    Attributes:
      home: Folder `STORE/keep`.
      links: Paths relative to the folder of the command. In the copies they are links to the present files.
    """

    home: Path
    links: tuple[str, ...] = ()

    def remove_partial(self) -> None:
        """Removes partly copied trees of killed calls. Only the process that holds the store's lock may call it."""
        for tree in (self.home / "trees").glob(".tmp-*"):
            shutil.rmtree(tree, ignore_errors=True)

    def keep(self, version: str, *, base_folder: Path, command: str, environment: Mapping[str, str]) -> KeptRevision:
        """Copies the files of a revision, unless they are kept already, and returns it.

        Args:
          version: `git:REV`, or a folder. Of a folder in a git repository, all files of the repository are copied that
            git does not ignore. Of another folder, all files are copied.
          base_folder: Folder in the repository of `git:REV`. The command runs in the same folder of the copy.
          command: Command with placeholders.
          environment: Variables and their values.
        Raises:
          UsageError: There is no such folder, revision, submodule or link.
        """
        is_of_git = version.startswith(GIT_PREFIX)
        folder, root = find_folder(version, base_folder=base_folder)
        self._check_links(folder)
        trees = self.home / "trees"
        trees.mkdir(parents=True, exist_ok=True)
        temporary_folder = Path(tempfile.mkdtemp(prefix=".tmp-", dir=trees))
        try:
            label = version
            ignored_folders = tuple[str, ...]()
            if is_of_git and root is not None:
                commit = _resolve_commit(root, version.removeprefix(GIT_PREFIX))
                label = f"{version} ({commit[:7]})"
                _check_out(root, commit, temporary_folder)
                self._remove_store(root, temporary_folder)
            else:
                names = _listed_files(root) if root is not None else _files_below(folder)
                self._copy_files(root or folder, names, temporary_folder)
                ignored_folders = self._ignored_folders(root) if root is not None else ()
            tree_hash = _tree_hash(temporary_folder)
            _move_tree(temporary_folder, trees / tree_hash)
        finally:
            shutil.rmtree(temporary_folder, ignore_errors=True)
        subfolder = folder.relative_to(root).as_posix() if root is not None else "."
        if not (trees / tree_hash / subfolder).is_dir():
            raise UsageError("the revision has no such folder", where=label, got=subfolder)
        for link in self.links:
            if os.path.lexists(trees / tree_hash / subfolder / link):
                raise UsageError("--link: the revision has files there", where=label, got=link, expected=_LINK_TEXT)
        manifest = {
            "command": command,
            "environment": dict(sorted(environment.items())),
            "folder": subfolder,
            "links": sorted(self.links),
            "tree": tree_hash,
        }
        manifest_text = json.dumps(manifest, indent=1) + "\n"
        name = hashlib.sha256(manifest_text.encode()).hexdigest()[:16].translate(_DIGITS_TO_LETTERS)
        path = self.home / "revisions" / name
        write_whole(path / MANIFEST, manifest_text)
        return KeptRevision(
            name=name,
            label=label,
            path=path,
            ignored=tuple(ignored_path for ignored_path in ignored_folders if ignored_path not in self.links),
        )

    def _check_links(self, folder: Path) -> None:
        for name in self.links:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise UsageError("--link", got=name, expected="a path below the folder of the command")
            if not (folder / name).exists():
                raise UsageError("--link: no such file or folder", where=str(folder), got=name)

    def _copy_files(self, root: Path, names: Iterable[str], target: Path) -> None:
        store = self.home.parent.resolve()
        for name in names:
            source, copy = root / name, target / name
            if source.parent.resolve().joinpath(source.name).is_relative_to(store):
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            try:
                if source.is_symlink():
                    copy.symlink_to(os.readlink(source))
                elif source.is_file():
                    shutil.copy2(source, copy)
            except FileNotFoundError:
                continue  # deleted, and git still lists it
            except OSError as error:
                raise UsageError("a file cannot be copied", where=str(source), got=cause(error)) from error

    def _ignored_folders(self, root: Path) -> tuple[str, ...]:
        """Returns the folders that git ignores, except for the store's and Python's."""
        process = _run_git(root, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        names = [
            os.fsdecode(listed_path).rstrip("/")
            for listed_path in process.stdout.split(b"\0")
            if listed_path.endswith(b"/")
        ]
        store = self.home.parent.resolve()
        store_folders = {store, *store.parents}
        return tuple(
            name
            for name in names
            if PurePosixPath(name).name not in _IGNORED_NAMES
            and ".lobench" not in PurePosixPath(name).parts
            and root / name not in store_folders
            and not (root / name).is_relative_to(store)
        )

    def _remove_store(self, root: Path, target: Path) -> None:
        """Removes the store from the copy of a revision in which it was committed."""
        store = self.home.parent.resolve()
        if store.is_relative_to(root) and store != root:
            shutil.rmtree(target / store.relative_to(root), ignore_errors=True)


def _run_git(folder: Path, *git_arguments: str, index: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {**git_environment(), "GIT_OPTIONAL_LOCKS": "0"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *git_arguments], capture_output=True, check=False, env=environment
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed", next_step="compare two folders instead") from error


def _repository_root(folder: Path) -> Path | None:
    """Returns the repository around a folder; None if there is none."""
    if not any((ancestor / ".git").exists() for ancestor in (folder, *folder.parents)):
        return None
    process = _run_git(folder, "rev-parse", "--show-toplevel")
    if process.returncode:
        raise UsageError("git cannot read this repository", where=str(folder), got=_git_message(process))
    return Path(os.fsdecode(process.stdout.rstrip(b"\n"))).resolve()


def _git_message(process: subprocess.CompletedProcess[bytes]) -> str:
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"


def _resolve_commit(root: Path, revision: str) -> str:
    process = _run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if process.returncode or not revision:
        expected = "a branch, tag or commit; `git log --oneline` lists commits"
        raise UsageError("no such revision", where=str(root), got=f"{GIT_PREFIX}{revision}", expected=expected)
    return process.stdout.decode().strip()


def _check_out(root: Path, commit: str, target: Path) -> None:
    """Writes the files of a commit and of its submodules."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lobench-index-") as folder:
        index = Path(folder) / "index"
        for git_arguments in (("read-tree", commit), ("checkout-index", "--all", "--force", f"--prefix={target}/")):
            process = _run_git(root, *git_arguments, index=index)
            if process.returncode:
                raise UsageError("git cannot check the revision out", where=str(root), got=_git_message(process))
    for entry in _run_git(root, "ls-tree", "-r", "-z", commit).stdout.split(b"\0"):
        entry_header, _, name = entry.partition(b"\t")
        if not entry_header.startswith(_SUBMODULE):
            continue
        path = os.fsdecode(name)
        submodule_commit = entry_header.split()[2].decode()
        if not (root / path / ".git").exists() or _run_git(root / path, "cat-file", "-e", submodule_commit).returncode:
            raise UsageError(
                "a submodule's commit is not here",
                where=path,
                got=submodule_commit[:7],
                next_step="git submodule update --init --recursive",
            )
        _check_out(root / path, submodule_commit, target / path)


def _listed_files(root: Path, prefix: str = "") -> Iterator[str]:
    """Yields the files of a working tree and its submodules that git tracks or does not ignore."""
    process = _run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if process.returncode:
        raise UsageError("git cannot list the files", where=str(root), got=_git_message(process))
    for name in sorted(
        {os.fsdecode(listed_path).rstrip("/") for listed_path in process.stdout.split(b"\0") if listed_path}
    ):
        path = root / name
        if path.is_dir() and not path.is_symlink():
            if (path / ".git").exists():
                yield from _listed_files(path, f"{prefix}{name}/")
        else:
            yield prefix + name


def _files_below(folder: Path) -> Iterator[str]:
    for walked_folder, folders, files in os.walk(folder):
        relative_folder = os.path.relpath(walked_folder, folder)
        folders[:] = sorted(name for name in folders if name not in _IGNORED_NAMES)
        links = [name for name in folders if os.path.islink(os.path.join(walked_folder, name))]
        for name in sorted([*files, *links]):
            yield os.path.normpath(os.path.join(relative_folder, name))


def _tree_hash(tree: Path) -> str:
    """Returns the hash of the files below a folder: their paths, contents and executable bits. 16 hex digits."""
    digest = hashlib.sha256()
    for name in sorted(_files_below(tree)):
        path = tree / name
        if path.is_symlink():
            kind = "link"
            content = os.fsencode(os.readlink(path))
        else:
            kind = "program" if path.stat().st_mode & 0o100 else "file"
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        digest.update(repr((name, kind, content)).encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _move_tree(temporary: Path, target: Path) -> None:
    if target.is_dir():
        return
    temporary.chmod(0o755)
    try:
        temporary.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def ignored_note(names: Sequence[str]) -> str:
    """Returns advice on folders that git ignores, for a run that failed; "" without such folders."""
    if not names:
        return ""
    return (
        f"runs do not see what git ignores, such as {shortened_list(names, _MOST_NAMED)}; --link PATH shows it to them"
    )
