#!/usr/bin/env python3
"""Compares the archives of a release with the sources that they were built from: names, files, metadata.

Usage: ci/check_archives.py SOURCE ARCHIVES
SOURCE is an export of the repository (`git archive`), ARCHIVES holds sdists and wheels and nothing else.
Exits with 1 where something is missing, changed or too much; each problem is a line.
"""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

FIELDS = (
    "Summary",
    "License-Expression",
    "License-File",
    "Author",
    "Keywords",
    "Classifier",
    "Requires-Python",
    "Requires-Dist",
)


def files_below(folder: Path, *names: str) -> dict[str, bytes]:
    """Returns the files of these subfolders by their path from the folder."""
    found = (path for name in names for path in sorted((folder / name).rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def differences(archive: str, got: dict[str, bytes], expected: dict[str, bytes]) -> Iterator[str]:
    """Yields a line for each file that is not in the archive as it is in the sources."""
    yield from (f"{archive}: {name} is missing" for name in expected if name not in got)
    yield from (f"{archive}: {name} is in no folder of the sources" for name in got if name not in expected)
    yield from (
        f"{archive}: {name} is not the file of the sources"
        for name in got
        if got[name] != expected.get(name, got[name])
    )


def metadata_problems(archive: str, metadata: Message, version: str) -> Iterator[str]:
    """Yields a line for each of `FIELDS` that is empty, and for another version. An address is none of them."""
    yield from (f"{archive}: its metadata have no {field}" for field in FIELDS if not metadata[field])
    if metadata["Version"] != version:
        yield f"{archive}: version {metadata['Version']}; expected {version}, as in pyproject.toml of lobench"
    if not metadata.get_payload():
        yield f"{archive}: no description; `readme` of pyproject.toml names it"


def problems(source: Path, archives: Path) -> Iterator[str]:
    """Yields what is wrong with the archives of lobench and of each plugin.

    Args:
      source: An export of the repository, without anything that git does not track.
      archives: The folder with one sdist and one wheel a package, and with no other.
    """
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    names = set()
    for home in (source, *sorted(source.glob("plugins/*"))):
        stem = f"{tomllib.loads((home / 'pyproject.toml').read_text())['project']['name'].replace('-', '_')}-{version}"
        sdist, wheel = archives / f"{stem}.tar.gz", archives / f"{stem}-py3-none-any.whl"
        names |= {sdist.name, wheel.name}
        if missing := [path.name for path in (sdist, wheel) if not path.is_file()]:
            yield from (f"{name} is missing" for name in missing)
            continue
        package = files_below(home, stem.partition("-")[0])
        if home == source:
            tracked = {**package, **files_below(source, "suites")}
            package |= {f"lobench/{name}": content for name, content in files_below(source, "suites").items()}
            tracked |= {name: (source / name).read_bytes() for name in ("CHANGELOG.md", "CITATION.cff")}
        else:
            tracked = files_below(home, ".")
        tracked |= {name: (home / name).read_bytes() for name in ("pyproject.toml", "README.md", "LICENSE")}
        tracked[".gitignore"] = (
            source / ".gitignore"
        ).read_bytes()  # by which a wheel out of the sdist leaves out the same
        with zipfile.ZipFile(wheel) as opened:
            got = {name: opened.read(name) for name in opened.namelist()}
        about = {name.partition("/")[2]: got.pop(name) for name in [*got] if name.startswith(f"{stem}.dist-info/")}
        yield from differences(wheel.name, got, package)
        yield from metadata_problems(wheel.name, BytesParser().parsebytes(about["METADATA"]), version)
        if about.get("licenses/LICENSE") != (source / "LICENSE").read_bytes():
            yield f"{wheel.name}: licenses/LICENSE is not the license of the repository"
        if f"[{'console_scripts' if home == source else 'lobench'}]" not in about.get("entry_points.txt", b"").decode():
            yield f"{wheel.name}: it has no entry point, so that nothing finds it"
        with tarfile.open(sdist) as unpacked:
            members = {each.name.partition("/")[2]: unpacked.extractfile(each) for each in unpacked if each.isfile()}
            got = {name: member.read() for name, member in members.items() if member is not None}
        if got.pop("PKG-INFO", None) != about["METADATA"]:
            yield f"{sdist.name}: its metadata are not those of the wheel"
        yield from differences(sdist.name, got, tracked)
    yield from (f"{path.name} belongs to no package" for path in archives.iterdir() if path.name not in names)


def main() -> None:
    source, archives = map(Path, sys.argv[1:])
    found = list(problems(source, archives))
    print(
        f"{len(list(archives.iterdir()))} archives have the files of the sources and complete metadata"
        if not found
        else "\n".join(found)
    )
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
