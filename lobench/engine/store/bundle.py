"""Bundle: a read-only store in one file, with the suites and thetas behind its results, and its Merkle root.

A zip archive: `bundle.json` (version, root), `ledger/TABLE.jsonl` (columns, then rows in order of their ids),
`ledger/payloads` (the curves, one after another), and the further members of its maker (`theta/`, `suites/`,
`card.md`). Equal content gives equal bytes. Commands that open a store also open a bundle. Its ledger is then built
from the rows, in a temporary folder of this process; a database file of another person is never opened.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import json
import re
import shlex
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lobench.core.errors import StoreError, UsageError
from lobench.core.suite_place import BASELINES
from lobench.core.wording import cause, shortened_list
from lobench.engine.paths import path_exists, similar_path_advice
from lobench.engine.store.database import database_errors, open_to_read, open_to_write, transaction
from lobench.engine.store.ledger_tables import SCHEMA_VERSION, make_tables
from lobench.engine.whole_file import write_whole

__all__ = [
    "MAX_FILE_BYTES",
    "SIGNATURE_NAME",
    "ResultBundle",
    "has_ledger",
    "ledger_database",
    "make_ledger",
    "merkle_root",
    "no_store_error",
    "split_store_and_name",
    "write_bundle",
]

MAX_FILE_BYTES = 100_000_000  # bytes of a file of a suite, or of a theta; of larger ones, a bundle has only the hash
SIGNATURE_NAME = "signature"  # signs the root, so it is not part of it

_MAX_NAMED_STORES = 3  # stores below a folder in an error
_VERSION = 1
_MANIFEST = "bundle.json"
_ROWS = "ledger/evaluations.jsonl"
_PAYLOADS = "ledger/payloads"
# Tables with results. The other tables hold the progress of a chief and its sinks on one machine.
_TABLES = (
    *("programs", "expectations", "subjects", "evaluations", "completions", "deliveries"),
    *("experiments", "trials", "memberships", "incidents", "events"),
)
_NAME = re.compile(r"[^/\\\0]+(/[^/\\\0]+)*")
_COMPRESSION_LEVEL = 6
_DEPTH_OF_BASELINES = 5  # suites/0/quick/baselines/adam-velo.json
_CHECKPOINTS = (".npz", ".pt", ".pth", ".ckpt")  # suffixes of files of numpy and torch that are zip archives, too
_MAX_RATIO = 1100  # limit of zlib's format; a member that claims a larger ratio is forged


def has_ledger(store: str | Path) -> bool:
    """Returns whether a path is a store or a bundle."""
    path = Path(store)
    return path_exists(path / "ledger.sqlite", kind="file") or _is_bundle(path)


def no_store_error(folder: str | Path) -> StoreError:
    """Returns the error for a folder without a ledger. It names the stores of a run's folder, such as `runs/today`."""
    globs = Path(folder).glob("*/ledger.sqlite"), Path(folder).glob("lobench_results/*/ledger.sqlite")
    try:
        stores = sorted(str(ledger.parent) for ledgers in globs for ledger in ledgers)
    except OSError:  # a part of the folder cannot be read
        stores = []
    expected = f"a store, such as {shortened_list(stores, _MAX_NAMED_STORES)}" if stores else ""
    return StoreError(
        "no result store found",
        where=str(folder),
        expected=expected,
        next_step="" if stores else _advice_without_store(Path(folder)),
    )


def _advice_without_store(path: Path) -> str:
    """Returns the next step for a path that is neither a store nor a folder with stores."""
    store, _, name = str(path).rpartition("@")
    if store and has_ledger(store):
        return f"give the store without the name {name!r}: {store}"
    if path_exists(path, kind="file"):
        if path.suffix == ".html":
            return "this is a finished page: open it in a browser"
        if path.suffix in (".csv", ".parquet", ".jsonl"):
            return f"this is a table: `lobench import {shlex.quote(str(path))} --store STORE` makes a store of it"
        return "this is a file, and a store is a folder with ledger.sqlite"
    if path_exists(path):
        return "the folder has no ledger.sqlite: is the path right?"
    if path.parent.name == "lobench_results":
        run = shlex.quote(str(path.parent.parent))
        return f"no checkpoint of this run is evaluated yet: `lobench watch {run} --suite SUITE --once` does it"
    return f"the folder does not exist: {similar_path_advice(path) or 'is the path right?'}"


def split_store_and_name(text: str) -> tuple[str, str]:
    """Splits `STORE@NAME`. The name is "" in a text without @.

    Both parts may contain an "@". The store is the longest beginning that is a store, else the longest that is a
    folder, else the text up to the first "@".
    """
    at_indices = [len(text), *(index for index in reversed(range(len(text))) if text[index] == "@")]
    prefixes = [text[:end] for end in at_indices if end]
    store = next((prefix for prefix in prefixes if has_ledger(prefix)), None)
    if store is None:
        store = next((prefix for prefix in prefixes if path_exists(prefix, kind="folder")), text.partition("@")[0])
    return store, text[len(store) + 1 :]


def ledger_database(store: Path) -> Path:
    """Returns the database of a store. For a bundle, it is the temporary one that this process has built.

    Raises:
      StoreError: The bundle is damaged.
    """
    if not _is_bundle(store):
        return store / "ledger.sqlite"
    status = store.stat()
    return _unpacked_ledger(str(store.resolve()), status.st_size, status.st_mtime_ns)


def _is_bundle(path: Path) -> bool:
    if path.suffix in _CHECKPOINTS:
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\3\4"
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvaluation:
    """A row of the table of evaluations in a bundle: its line of JSON, and the payload of its curves."""

    line: str
    payload: bytes | None


class ResultBundle:
    """Reader of a bundle. It checks the format of the archive, and `problems` checks its contents.

    Raises:
      StoreError: The file is not a bundle, is damaged, or was written by a newer lobench.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._read_errors():
            self._archive = zipfile.ZipFile(path)
            members = self._archive.infolist()
            self.member_names = tuple(member.filename for member in members)
            _check_members(members)
            manifest = json.loads(self.read(_MANIFEST))
            self.root, version = str(manifest["root"]), int(manifest["version"])
        if version > _VERSION:
            raise StoreError("a newer lobench wrote the bundle", where=str(path), next_step="upgrade lobench")

    def read(self, name: str) -> bytes:
        """Returns a member's content."""
        with self._read_errors():
            return self._archive.read(name)

    def members_in(self, folder: str) -> tuple[str, ...]:
        """Returns the names of the members in a folder."""
        return tuple(name for name in self.member_names if name.startswith(f"{folder}/"))

    def read_table(self, name: str) -> tuple[list[str], list[list[Any]]]:
        """Returns a table's columns and rows."""
        with self._read_errors():
            columns, *rows = map(json.loads, self.read(f"ledger/{name}.jsonl").decode().splitlines())
        return columns, rows

    def evaluations(self) -> Iterator[StoredEvaluation]:
        """Yields the rows of evaluations, with their curves."""
        with self._read_errors():
            yield from _evaluations(self.read(_ROWS), self.read(_PAYLOADS))

    def computed_root(self) -> str:
        """Returns the root computed from the content, whatever root the bundle states."""
        other_members = {
            name: self.read(name)
            for name in self.member_names
            if name not in (_MANIFEST, SIGNATURE_NAME, _ROWS, _PAYLOADS)
        }
        return _root_of_rows(self.read(_ROWS).decode().partition("\n")[0], self.evaluations(), other_members)

    @contextlib.contextmanager
    def _read_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise self._damage_error(error) from error
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
            raise self._damage_error(error) from error

    def _damage_error(self, error: Exception) -> StoreError:
        return StoreError(
            "not a bundle, or a damaged one", where=str(self.path), got=cause(error), next_step="copy it again"
        )


def _check_members(members: Sequence[zipfile.ZipInfo]) -> None:
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("two members have one name")
    for member in members:
        path_parts = member.filename.split("/")
        if not _NAME.fullmatch(member.filename) or ".." in path_parts or "." in path_parts or ":" in path_parts[0]:
            raise ValueError(f"a member is called {member.filename!r}")
        if member.file_size > _MAX_RATIO * member.compress_size + 1000:
            raise ValueError(f"{member.filename} claims {member.file_size:,} bytes, too many for its compressed size")
        if path_parts[0] in ("suites", "theta") and member.file_size > MAX_FILE_BYTES:
            raise ValueError(
                f"{member.filename} has {member.file_size:,} bytes; lobench writes no files above {MAX_FILE_BYTES:,}"
            )


def write_bundle(
    db: sqlite3.Connection,
    output: Path,
    members: Mapping[str, bytes],
    *,
    has_patches: bool = True,
    sign: Callable[[str], bytes] | None = None,
) -> str:
    """Writes a bundle from a store's ledger and further members, and returns its root.

    Args:
      db: Connection to the ledger.
      output: File to write.
      members: Contents of further members, by name.
      has_patches: Whether patches of uncommitted changes are included. Their hashes always are.
      sign: Function that returns the signature of a root. None: the bundle is not signed.
    Raises:
      StoreError: The ledger cannot be read.
      UsageError: The file cannot be written.
    """
    tables = dict(_tables_of(db, has_patches=has_patches))
    payloads = tables.pop("payloads")
    content = {f"ledger/{name}.jsonl": text for name, text in tables.items()} | dict(members)
    content[_PAYLOADS] = payloads
    root = _root_of_content(content)
    content[_MANIFEST] = f"{json.dumps({'version': _VERSION, 'schema': SCHEMA_VERSION, 'root': root})}\n".encode()
    if sign is not None:
        content[SIGNATURE_NAME] = sign(root)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(content, key=lambda name: (name != _MANIFEST, name)):
            member = zipfile.ZipInfo(name)  # dated 1980, so that equal content gives equal bytes
            member.create_system, member.external_attr = 3, 0o644 << 16
            archive.writestr(member, content[name], zipfile.ZIP_DEFLATED, _COMPRESSION_LEVEL)
    try:
        write_whole(output, buffer.getvalue(), durable=True)
    except OSError as error:
        raise UsageError("cannot write the bundle", where=str(output), got=cause(error)) from error
    return root


def _root_of_content(content: Mapping[str, bytes]) -> str:
    columns = content[_ROWS].decode().partition("\n")[0]
    other_members = {name: data for name, data in content.items() if name not in (_ROWS, _PAYLOADS)}
    return _root_of_rows(columns, _evaluations(content[_ROWS], content[_PAYLOADS]), other_members)


def _evaluations(rows: bytes, payloads: bytes) -> Iterator[StoredEvaluation]:
    """Yields the rows of evaluations with their curves. `payloads` has the curves one after another.

    Raises:
      ValueError: There are fewer or more bytes of curves than the rows account for.
    """
    columns, *lines = rows.decode().splitlines()
    payload_index = json.loads(columns).index("payload")
    offset = 0
    view = memoryview(payloads)
    for line in lines:
        size = json.loads(line)[payload_index]
        payload = None if size is None else bytes(view[offset : offset + size])
        if payload is not None and len(payload) != size:
            raise ValueError("curves are missing")
        offset += size or 0
        yield StoredEvaluation(line=line, payload=payload)
    if offset != len(payloads):
        raise ValueError("curves that no evaluation has")


def _root_of_rows(columns: str, rows: Iterable[StoredEvaluation], other_members: Mapping[str, bytes]) -> str:
    """Returns the root over the rows, and then over the other members in order of their names."""
    leaves = [b"evaluations\0" + columns.encode()]
    leaves += [b"evaluation\0" + row.line.encode() + b"\0" + (row.payload or b"") for row in rows]
    leaves += [name.encode() + b"\0" + other_members[name] for name in sorted(other_members)]
    return merkle_root(leaves)


def merkle_root(leaves: Sequence[bytes]) -> str:
    """Returns the root (hex) of a Merkle tree over leaves, by SHA-256.

    Source: RFC 6962, section 2.1.
    """
    level = [hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves]
    if not level:
        return hashlib.sha256().hexdigest()
    while len(level) > 1:
        pairs = [hashlib.sha256(b"\1" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0].hex()


def _tables_of(db: sqlite3.Connection, *, has_patches: bool = True) -> Iterator[tuple[str, bytes]]:
    """Yields the tables as lines of JSON, and the curves under "payloads"."""
    with database_errors("the ledger", "the result store"):
        db.execute("BEGIN")  # one consistent state of a store that is in use
        payloads: list[bytes] = []
        for table in _TABLES:
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {_order_columns(db, table)}")
            columns = [column[0] for column in cursor.description]
            lines = [json.dumps(columns)]
            for row in cursor:
                if table == "experiments" and not has_patches:
                    row = _without_patch(dict(zip(columns, row, strict=True)))
                if table == "evaluations":
                    payloads += [value for value in row if isinstance(value, bytes)]
                    row = [len(value) if isinstance(value, bytes) else value for value in row]
                lines.append(json.dumps([_as_json(value) for value in row], separators=(",", ":")))
            yield table, "".join(f"{line}\n" for line in lines).encode()
        db.execute("COMMIT")
        yield "payloads", b"".join(payloads)


def _without_patch(row: dict[str, Any]) -> list[Any]:
    """Returns a row of an experiment without its patch. A note in the row states the patch's size."""
    if row["patch"] is not None:
        notice = f"the patch is left out (--without-patch): {len(row['patch']):,} bytes"
        row |= {"patch": None, "patch_note": "; ".join(filter(None, (notice, row["patch_note"])))}
    return list(row.values())


def _order_columns(db: sqlite3.Connection, table: str) -> str:
    if table == "evaluations":  # a view, in a ledger of schema 2
        return "id"
    keys = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]]
    return ", ".join(keys) or "rowid"


def _as_json(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _from_json(value: Any) -> Any:
    return base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else value


_temporary_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when this process ends


@functools.lru_cache(maxsize=256)
def _unpacked_ledger(path: str, size: int, mtime_ns: int) -> Path:
    """Builds the ledger of a bundle, once per content, and returns its database."""
    bundle = ResultBundle(Path(path))
    if bundle.computed_root() != bundle.root:
        raise StoreError(
            "the bundle was changed after it was written",
            where=path,
            got="content with another root hash than the recorded one",
            next_step="`lobench audit` shows where",
        )
    folder = tempfile.TemporaryDirectory(prefix="lobench-bundle-")
    _temporary_folders.append(folder)
    database = make_ledger(bundle, Path(folder.name))
    _write_baselines(bundle, Path(folder.name), database)
    return database


def _write_baselines(bundle: ResultBundle, folder: Path, database: Path) -> None:
    """Writes the baseline files of a bundle next to its ledger, and records them as baselines of its suites."""
    suites: dict[Path, dict[str, str]] = {}
    for name in bundle.members_in("suites"):
        path = PurePosixPath(name)
        if path.suffix == ".json" and path.parent.name == BASELINES and len(path.parts) == _DEPTH_OF_BASELINES:
            content = bundle.read(name)
            file = folder.joinpath(*path.parts)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            suites.setdefault(file.parents[1], {})[file.name] = hashlib.sha256(content).hexdigest()
    with contextlib.closing(open_to_write(database)) as db, transaction(db):
        for suite, digests in suites.items():
            values = (suite.name, str(suite), json.dumps(list(digests.items())))
            db.execute("INSERT OR REPLACE INTO suites (suite, path, baselines) VALUES (?, ?, ?)", values)


def make_ledger(bundle: ResultBundle, folder: Path) -> Path:
    """Builds a store from a bundle's rows in an empty folder, without checking the root, and returns its database.

    Raises:
      StoreError: The bundle is damaged.
    """
    database = folder / "ledger.sqlite"
    try:
        with contextlib.closing(open_to_write(database)) as db, bundle._read_errors():
            make_tables(db)
            db.execute("BEGIN")
            for table in _TABLES:
                _insert_rows(db, table, *_rows_of(bundle, table))
            # A bundle has no count of changes. Another bundle that replaces it must have another value.
            db.execute("UPDATE meta SET value = ? WHERE key = 'num_changes'", (bundle.root,))
            db.execute("COMMIT")
        open_to_read(database).close()
    except sqlite3.Error as error:
        raise bundle._damage_error(error) from error
    return database


def _rows_of(bundle: ResultBundle, table: str) -> tuple[list[str], Iterable[list[Any]]]:
    if table != "evaluations":
        return bundle.read_table(table)
    columns = json.loads(bundle.read(_ROWS).decode().partition("\n")[0])
    payload_index = columns.index("payload")

    def decoded_rows() -> Iterator[list[Any]]:
        for evaluation in bundle.evaluations():
            row = json.loads(evaluation.line)
            row[payload_index] = evaluation.payload
            yield row

    return columns, decoded_rows()


def _insert_rows(db: sqlite3.Connection, table: str, columns: list[str], rows: Iterable[list[Any]]) -> None:
    known_columns = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    if unknown_columns := set(columns) - known_columns:
        raise ValueError(f"{table} has a column {sorted(map(str, unknown_columns))[0]!r}")
    placeholders = ", ".join("?" * len(columns))
    # Payloads are bytes already. Other binary values were written as objects.
    values = ([_from_json(value) for value in row] for row in rows)
    db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders})", values)
