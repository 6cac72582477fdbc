"""Publication of a store: its ledger, suites, thetas and card in one bundle."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from lobench.analysis.store.snapshot import read_store
from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.errors import LobenchError, StoreError, UsageError
from lobench.core.settings_field import check_keywords, settings_from
from lobench.core.subject import Subject
from lobench.core.wording import counted, headline, shortened_list
from lobench.engine.checkpoints.kept import readable_location
from lobench.engine.checkpoints.readers import load_readers, reader_name_for
from lobench.engine.checkpoints.spool import Spool, load_theta
from lobench.engine.store.about import ledger_about, ledger_gaps, short_location
from lobench.engine.store.bundle import MAX_FILE_BYTES, ResultBundle, write_bundle
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.signature import sign
from lobench.engine.whole_file import require_writable
from lobench.plugins import load_plugins
from lobench.report.bundle_card import card_of, folders_with_baselines, patch_files_of
from lobench.tools.publish.croissant import require_free_folder, write_croissant
from lobench.tools.publish.publish_settings import PublishKeywords, PublishSettings
from lobench.tools.publish.suites import BundledSuites, bundle_suites, copy_suites

__all__ = ["PublishRecord", "publish", "published_text"]


_MAX_LISTED_FILES = 8  # most files of a suite that are listed
_MAX_LISTED_HOSTS = 5  # hosts


class PublishRecord(TypedDict):
    """`lobench publish`: contents of a bundle, and parts left out."""

    output: str
    root: str
    is_signed: bool
    num_bytes: int
    num_evaluations: int
    thetas: dict[str, str]
    suites: dict[str, str]
    left_out: list[str]
    patch_files: list[str]
    croissant: str


def publish(
    store: Path,
    output: Path,
    *,
    log: Callable[[str], None] = lambda line: None,
    **options: Unpack[PublishKeywords],
) -> PublishRecord:
    """Writes the bundle of a store.

    Example:
        record = publish(Path(".lobench/experiment"), Path("results.lobench"))
        record["root"]

    Args:
      store: Folder of the store; or a bundle, whose files are copied unchanged.
      output: Path of the bundle, with a suffix.
      log: Receives lines on private content and on results of other code, before anything is written.
      options: Fields of `PublishSettings`, such as `suites` and `no_thetas`.
    Raises:
      StoreError: The folder is not a store, or the store has no evaluations.
      UsageError: A file cannot be written or signed.
    """
    check_keywords("publish", options, PublishKeywords)
    settings = settings_from(PublishSettings, options)
    croissant = settings.croissant
    has_patches = not settings.without_patch
    snapshot = read_store(store)
    if not snapshot.rows:
        raise StoreError("the store holds no evaluation yet", where=str(store))
    if not output.suffix:
        raise UsageError("--output", got=str(output), expected="a file such as results.lobench")
    require_writable(output)
    if croissant is not None:
        require_free_folder(croissant)
    elif settings.license:
        raise UsageError("--license is of the data set that --croissant writes", got=settings.license)
    with Ledger.open(store, read_only=True) as ledger:
        rows = list(ledger.evaluations())
        subjects = list(ledger.sightings().values())
        description = ledger_about(ledger, rows)
        gaps = ledger_gaps(ledger, rows)
        patch_files = patch_files_of(ledger)
    if croissant is not None and all(row.payload is None for row in rows):
        raise UsageError("the store has no curves", where=str(store), expected="evaluations that ended with curves")
    bundle = ResultBundle(store) if store.is_file() else None
    bundled_suites = (
        bundle_suites(store, rows, settings.suites) if bundle is None or settings.suites else copy_suites(bundle)
    )
    thetas: Mapping[str, bytes] = {}
    if settings.no_thetas:
        unavailable_lines = _left_out_theta_lines(subjects)
    elif bundle is None:
        opaque_hashes = {row.key.checkpoint_sha256 for row in rows if row.case.evaluator}
        thetas, unavailable_lines = _collect_thetas(store, subjects, opaque_hashes)
    else:
        thetas = {Path(name).stem: bundle.read(name) for name in bundle.members_in("theta")}
        unavailable_lines = []
    patch_lines = [] if has_patches else _left_out_patch_lines(patch_files)
    earlier_left_out = [] if bundle is None else json.loads(bundle.read("about.json"))["left_out"]
    left_out_lines = list(
        dict.fromkeys([*gaps, *earlier_left_out, *unavailable_lines, *bundled_suites.left_out, *patch_lines])
    )
    private_lines = _private_content_lines(patch_files if has_patches else [], subjects, rows)
    code_lines = filter(None, [snapshot.edited_code_line()])
    for line in (*private_lines, *_suite_lines(bundled_suites), *code_lines):
        log(line)
    description |= {
        "left_out": left_out_lines,
        "suites": bundled_suites.bundle_folders,
        "files_not_included": bundled_suites.large_file_digests,
    }
    members = {
        "about.json": _json_bytes(description),
        **bundled_suites.members,
        **{f"theta/{sha256}.npz": content for sha256, content in thetas.items()},
    }
    members["card.md"] = card_of(
        store, folders_with_baselines(bundled_suites.local_folders), left_out_lines, patch_files if has_patches else []
    ).encode()
    with Ledger.open(store, read_only=True) as ledger:
        make_signature = None if settings.key is None else functools.partial(sign, key=settings.key)
        root = write_bundle(ledger.connection, output, members, has_patches=has_patches, sign=make_signature)
    if croissant is not None:
        write_croissant(store, croissant, name=output.stem, license=settings.license)
    return PublishRecord(
        output=str(output),
        root=root,
        is_signed=settings.key is not None,
        num_bytes=output.stat().st_size,
        num_evaluations=len(rows),
        thetas={
            subject.sha256: "included" if subject.sha256 in thetas else subject.uri
            for subject in subjects
            if subject.has_theta
        },
        suites=bundled_suites.bundle_folders,
        left_out=left_out_lines,
        patch_files=patch_files if has_patches else [],
        croissant="" if croissant is None else str(croissant),
    )


def published_text(record: PublishRecord) -> str:
    """Returns the lines of the text output."""
    lines = [
        f"{record['output']}: {counted(record['num_evaluations'], 'evaluation')}, {record['num_bytes'] / 1000:,.0f} kB",
        f"root {record['root']}" + (", signed" if record["is_signed"] else ""),
        *([f"{record['croissant']}: the curves as a Croissant data set"] if record["croissant"] else []),
        *(f"left out: {line}" for line in record["left_out"]),
        "publish the root, a hash of the whole file, before anybody audits it: this shows that you did not choose the "
        "evaluations that an audit repeats (the text behind --beacon draws them)",
    ]
    return "\n".join(lines)


def _left_out_patch_lines(files: Sequence[str]) -> list[str]:
    return [f"the patch of uncommitted changes, by choice: {', '.join(files)}"] if files else []


def _private_content_lines(
    patch_files: Sequence[str], subjects: Sequence[Subject], rows: Sequence[EvaluationRow]
) -> Iterator[str]:
    """Yields a line for each kind of content that its author may not want to publish."""
    if patch_files:
        patch_line = f"the patch of uncommitted changes goes into it, with {counted(len(patch_files), 'file')}"
        yield f"{patch_line}: {', '.join(patch_files)}; --without-patch leaves it out"
    folders = {os.path.dirname(subject.uri) for subject in subjects if os.path.isabs(subject.uri)}
    if folders:
        yield f"will be readable in the file: the paths of the checkpoints, below {os.path.commonpath(folders)}"
    hosts = sorted({curves.provenance.host for row in rows if (curves := row.curves) and curves.provenance.host})
    if hosts:
        yield f"will be readable in the file: {counted(len(hosts), 'host')}: {shortened_list(hosts, _MAX_LISTED_HOSTS)}"


def _suite_lines(suites: BundledSuites) -> Iterator[str]:
    """Yields a line for each suite, with its files in the bundle."""
    for name, suite_path in sorted(suites.bundle_folders.items()):
        suite_folder = suite_path.rpartition("/")[0]
        files = sorted(
            member.removeprefix(f"{suite_folder}/")
            for member in suites.members
            if member.startswith(f"{suite_folder}/")
        )
        names_text = shortened_list(files, _MAX_LISTED_FILES)
        yield f"{counted(len(files), 'file')} of suite {name} go into it: {names_text}"


def _json_bytes(value: Any) -> bytes:
    return f"{json.dumps(value, indent=1, sort_keys=True)}\n".encode()


def _left_out_theta_lines(subjects: Sequence[Subject]) -> list[str]:
    count = len({subject.sha256 for subject in subjects if subject.has_theta})
    return [f"{counted(count, 'theta')}, by choice: hashes alone"] if count else []


def _collect_thetas(
    store: Path, subjects: Sequence[Subject], opaque_hashes: Collection[str]
) -> tuple[Mapping[str, bytes], list[str]]:
    """Returns thetas by hash, as .npz files, and a line for each that is no longer available.

    Args:
      store: Folder of the store.
      subjects: Subjects of the store.
      opaque_hashes: sha256 of checkpoints that commands or ordinary tests evaluated. They may have any format.
    """
    contents: dict[str, bytes] = {}
    problems: dict[str, str] = {}
    readers = load_readers(load_plugins(), allow_pickle=False)
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        spool = Spool(Path(folder))
        for checkpoint in sorted(
            (subject for subject in subjects if subject.has_theta), key=lambda subject: (subject.sha256, subject.uri)
        ):
            if checkpoint.sha256 in contents:
                continue
            spooled_path = store / "spool" / f"{checkpoint.sha256}.npz"
            with contextlib.suppress(LobenchError):
                if spooled_path.is_file():
                    load_theta(spooled_path)  # raises if the hash differs
                    contents[checkpoint.sha256] = spooled_path.read_bytes()
                    continue
            try:
                location = readable_location(store, checkpoint.uri, checkpoint.sha256) or checkpoint.uri
                reader_name = reader_name_for(_epath(location), readers)
                if reader_name is None and checkpoint.sha256 in opaque_hashes:
                    checkpoint_text = f"checkpoint {checkpoint.sha256[:12]} of {short_location(checkpoint.uri)}"
                    problems[checkpoint.sha256] = (
                        f"{checkpoint_text}: in a format of its own, which commands and tests read"
                    )
                    continue
                if reader_name is None:
                    raise LobenchError("it is not there any more, or no reader knows it")
                seen_checkpoint = SeenCheckpoint(uri=location, reader=reader_name)
                taken_checkpoint = spool.add(
                    seen_checkpoint, readers[reader_name], is_known=functools.partial(operator.eq, checkpoint.sha256)
                )
                if taken_checkpoint.sha256 != checkpoint.sha256:
                    raise LobenchError("another theta lies there now")
                contents[checkpoint.sha256] = spool.copy_path(checkpoint.sha256).read_bytes()
            except LobenchError as error:
                why = headline(error).replace(checkpoint.uri, short_location(checkpoint.uri))
                problems[checkpoint.sha256] = (
                    f"theta {checkpoint.sha256[:12]} of {short_location(checkpoint.uri)}: {why}"
                )
    large_hashes = {sha256 for sha256, content in contents.items() if len(content) > MAX_FILE_BYTES}
    problems |= {sha256: f"theta {sha256[:12]}: larger than {MAX_FILE_BYTES / 1e6:g} MB" for sha256 in large_hashes}
    return (
        {sha256: content for sha256, content in contents.items() if sha256 not in large_hashes},
        [problems[sha256] for sha256 in sorted(problems) if sha256 not in contents or sha256 in large_hashes],
    )


def _epath(uri: str) -> Any:
    from etils import epath

    return epath.Path(uri)
