"""Data files of suites: files in the suites' folders, and files that code or bindings of suites name.

If a data file changes, the store's results are kept, and a notice reports the change.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from lobench.core.suite_place import BASELINES
from lobench.core.wording import counted, shortened_list
from lobench.engine.config.suite_files import data_files_of_suite
from lobench.engine.retries import retried_briefly
from lobench.engine.store.ledger import Ledger

__all__ = ["changed_data", "changed_data_of_command", "record_named_data"]

_NO_NAMED_DATA = (".py", ".gin")  # suffixes of files that do not count as data even if code names them
_MAX_WHOLE_BYTES = 1 << 26  # bytes up to which a file is hashed whole; of larger ones, both ends are hashed
_END_BYTES = 1 << 20
_MAX_NAMED_FILES = 4  # most files named in one notice
_KEPT_NOTE = "the results are kept"


def changed_data(
    ledger: Ledger, suites: Iterable[str], run: str = "", about_results: str = _KEPT_NOTE, *, is_recorded: bool = True
) -> str:
    """Records the data files of suites. Returns a notice if some changed after the store's last run, else "".

    Files to which this process writes its output are ignored.

    Args:
      ledger: Ledger of the store.
      suites: Folders or gin files of the suites.
      run: Path of the watched run, or of a file that this process writes. It and all files below it are ignored.
      about_results: Clause of the notice that tells what happens to stored results.
      is_recorded: Whether the files are recorded. If not, the next call gives the same notice.
    """
    run_folder = Path(os.path.abspath(run)) if run and "://" not in run else None
    output_inodes = _output_inodes()

    def is_excluded(file: Path) -> bool:
        return (run_folder is not None and file.is_relative_to(run_folder)) or (
            bool(output_inodes) and _inode(file) in output_inodes
        )

    digests: dict[str, str] = {}
    folders: dict[str, Path] = {}
    digest_of = cache(_digest)  # several gin files of one folder have the same data files
    for suite in suites:
        path = Path(os.path.abspath(suite))
        folder = _folder_of(path)
        folders[folder.name] = folder
        for file in data_files_of_suite(path):
            if not is_excluded(file):
                digests[file.relative_to(folder.parent).as_posix()] = digest_of(file)
    for name in ledger.data_names():
        if name not in digests and (suite_folder := folders.get(name.partition("/")[0])) is not None:
            # The name was made by `relpath`, in which `..` does not follow links.
            file = Path(os.path.normpath(suite_folder.parent / name))
            if not is_excluded(file):
                digests[name] = _digest(file)
    names = ledger.record_data(digests, folders) if is_recorded else ledger.changed_data(digests, folders)
    paths = {name: Path(os.path.normpath(folders[name.partition("/")[0]].parent / name)) for name in names}
    changed_names = [os.path.normpath(name) for name, data_path in paths.items() if not is_excluded(data_path)]
    return _notice(
        changed_names, about_results, "a binding of the task that names a version of the data makes another case"
    )


def changed_data_of_command(
    ledger: Ledger, command: str, files: Iterable[str], setting: str, *, is_recorded: bool = True
) -> str:
    """Records the data files that the code of a command names. Returns a notice if some changed since, else "".

    Args:
      ledger: Ledger of the store.
      command: Name of the command.
      files: Absolute paths of the files.
      setting: Setting in which a file counts as code, such as `Method.files`.
      is_recorded: As in `changed_data`.
    """
    data_files = [Path(file) for file in sorted(files) if _is_named_data(Path(file), ledger)]
    name_prefix = f"command {command}"
    paths = {f"{name_prefix}/{Path(os.path.relpath(file, ledger.store)).as_posix()}": file for file in data_files}
    missing_names = [name for name in ledger.data_names() if name.startswith(f"{name_prefix}/") and name not in paths]
    digests = {name: _digest(file) for name, file in paths.items()} | dict.fromkeys(missing_names, "")
    names = ledger.record_data(digests, [name_prefix]) if is_recorded else ledger.changed_data(digests, [name_prefix])
    changed_names = [os.path.basename(name) for name in names if name in paths]
    return _notice(changed_names, _KEPT_NOTE, f"a file in {setting} counts as code")


def _notice(changed_names: Sequence[str], about_results: str, advice: str) -> str:
    if not changed_names:
        return ""
    count = counted(len(changed_names), "data file")
    names = shortened_list(changed_names, _MAX_NAMED_FILES)
    return f"{count} changed after the store's results were computed ({names}): {about_results}; {advice}"


def record_named_data(ledger: Ledger, suites: Iterable[str], files: Iterable[Path]) -> None:
    """Records data files that the code or the bindings of suites name, unless they are recorded already.

    Args:
      ledger: Ledger of the store.
      suites: Folders or gin files of the suites.
      files: Absolute paths of the files.
    """
    paths = [Path(os.path.abspath(suite)) for suite in suites]
    folders = [_folder_of(path) for path in paths]
    digests: dict[str, str] = {}
    recorded_names = set(ledger.data_names())
    for file in files if folders else ():
        if not _is_named_data(file, ledger):
            continue
        folder = next((folder for folder in folders if file.is_relative_to(folder)), folders[0])
        name = f"{folder.name}/{Path(os.path.relpath(file, folder)).as_posix()}"
        if name not in recorded_names:
            digests[name] = _digest(file)
    ledger.add_data(digests)


def _is_named_data(file: Path, ledger: Ledger) -> bool:
    """Returns whether a file named by code is data, and not a gin file, a baseline or part of the store."""
    is_of_store = file.is_relative_to(os.path.realpath(ledger.store))
    return file.suffix not in _NO_NAMED_DATA and file.parent.name != BASELINES and not is_of_store


def _output_inodes() -> set[tuple[int, int]]:
    """Returns the inodes of the files that receive this process's standard output and error, directly or by `tee`."""
    output_inodes = set[tuple[int, int]]()
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                output_inodes.add((status.st_dev, status.st_ino))
            elif stat.S_ISFIFO(status.st_mode):
                output_inodes |= _inodes_written_by_readers((status.st_dev, status.st_ino))
    return output_inodes


def _inodes_written_by_readers(pipe_inode: tuple[int, int]) -> set[tuple[int, int]]:
    """Finds the processes that read a pipe as standard input, and returns the inodes of files that they write.

    Empty on systems without /proc.
    """
    output_inodes = set[tuple[int, int]]()
    for process in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if _inode(process / "0") == pipe_inode:
                for descriptor_link in process.iterdir():
                    # The mode of the link is that of the descriptor. Files that the process only reads are not output.
                    is_writable = os.lstat(descriptor_link).st_mode & stat.S_IWUSR
                    status = os.stat(descriptor_link)
                    if is_writable and stat.S_ISREG(status.st_mode):
                        output_inodes.add((status.st_dev, status.st_ino))
    return output_inodes


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _folder_of(suite: Path) -> Path:
    return suite if retried_briefly(suite.is_dir) else suite.parent


def _digest(file: Path) -> str:
    """Returns a hash of a file's content; for a large file, of its size and both ends. "" if it cannot be read."""
    try:
        return retried_briefly(partial(_sha256, file))
    except OSError:
        return ""


def _sha256(file: Path) -> str:
    with file.open("rb") as data_file:
        size = os.fstat(data_file.fileno()).st_size
        content = data_file.read(size if size <= _MAX_WHOLE_BYTES else _END_BYTES)
        if size > _MAX_WHOLE_BYTES:
            data_file.seek(-_END_BYTES, os.SEEK_END)
            content += str(size).encode() + data_file.read(_END_BYTES)
    return hashlib.sha256(content).hexdigest()
