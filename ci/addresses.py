#!/usr/bin/env python3
"""Puts the addresses of the repository and the site into an export of the sources, before a release is built from it.

Usage: ci/addresses.py SOURCE REPOSITORY SITE VERSION
SOURCE is an export of the repository (`git archive`), and is changed. REPOSITORY and SITE are addresses, such as
https://github.com/OWNER/lobench. In every pyproject.toml they replace the placeholders. The links and pictures of each
README.md, which are relative in the repository, become absolute, since a package index shows this page alone.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

PLACEHOLDERS = ("https://repository.invalid/lobench", "https://site.invalid/lobench")
LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?P<target>(?![a-z]+:|#)[^)\s]+)\)")


def absolute_links(text: str, folder: str, repository: str, version: str) -> str:
    """Returns Markdown with absolute links.

    Args:
      text: Markdown.
      folder: Folder of the file in the repository, to which its links are relative.
      repository: Address of the repository.
      version: Version to whose tag the links lead.

    >>> absolute_links("![x](docs/x.png) [y](../y.md)", "a", "https://h/o/r", "1.0")
    '![x](https://h/o/r/raw/v1.0/a/docs/x.png) [y](https://h/o/r/blob/v1.0/y.md)'
    """

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        target = os.path.normpath(os.path.join(folder, link["target"]))
        return f"{link['picture']}{link['text']}({repository}/{kind}/v{version}/{target})"

    return LINK.sub(absolute, text)


def main(source: Path, repository: str, site: str, version: str) -> None:
    for project in (source, *sorted(source.glob("plugins/*"))):
        settings, readme = project / "pyproject.toml", project / "README.md"
        text = settings.read_text(encoding="utf-8")
        for placeholder, address in zip(PLACEHOLDERS, (repository, site), strict=True):
            text = text.replace(placeholder, address)
        settings.write_text(text, encoding="utf-8")
        folder = project.relative_to(source).as_posix()
        links = absolute_links(readme.read_text(encoding="utf-8"), folder, repository, version)
        readme.write_text(links, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 5 or not all(one.startswith("https://") for one in sys.argv[2:4]):
        sys.exit("usage: ci/addresses.py SOURCE https://REPOSITORY https://SITE VERSION")
    main(Path(sys.argv[1]), sys.argv[2].rstrip("/"), sys.argv[3].rstrip("/"), sys.argv[4])
