"""What mkdocs does with docs/ besides rendering it: pages that the code itself says, and links that lead out of docs/.

mkdocs calls the functions named `on_*`; their names and arguments are its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click_pages import commands_page, pytest_page
from gin_pages import gin_pages
from hook_pages import hooks_page
from map_pages import map_page
from mkdocs.structure.files import File, Files
from name_pages import extend_page, lobench_page, testing_page
from notebook_pages import notebook_files
from result_pages import result_files

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "benchmarks/RESULTS.md": "reference/measured.md",
    "CHANGELOG.md": "reference/changes.md",
}  # pages of the site

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")  # its text may be on two lines
_SHOWN = re.compile(r"^<!-- shows (images/\S+\.txt) -->$", re.MULTILINE)
_FENCED = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
_PAGES: Mapping[str, Callable[[], str]] = {
    "commands": commands_page,
    "pytest": pytest_page,
    "hooks": hooks_page,
    "lobench": lobench_page,
    "extend": extend_page,
    "testing": testing_page,
}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that nobody writes."""
    made: dict[str, str | bytes] = {f"reference/{name}.md": page() for name, page in _PAGES.items()}
    made |= notebook_files()
    made |= result_files()
    made |= {f"reference/{name}.md": text for name, text in gin_pages().items()}
    made |= {page: (ROOT / file).read_text() for file, page in OUTSIDE.items()}
    made["decisions/index.md"] = decisions_page()
    made["map.md"] = map_page()
    for uri, content in made.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Puts in what terminals showed; turns links out of docs/ into links to pages, or into names that are no links."""
    markdown = _SHOWN.sub(lambda found: f"```text\n{(ROOT / 'docs' / found[1]).read_text()}```", markdown)
    of_page = {uri: file for file, uri in OUTSIDE.items()}
    here = of_page.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def target(found: re.Match[str]) -> str:
        text, link = found[1], found[2]
        path, _, anchor = link.partition("#")
        if not path or ":" in path:
            return found[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        if not (ROOT / place).exists() and place.startswith("docs/"):
            return found[0]  # a page that is made, or a broken link, which mkdocs names
        uri = OUTSIDE.get(place, place.removeprefix("docs/") if place.startswith("docs/") else "")
        if not uri:
            return text if text.startswith("`") else f"`{place}`"
        if (ROOT / place).is_dir():
            uri += "/index.md"
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return f"[{text}]({relative}{'#' + anchor if anchor else ''})"

    return "".join(part if part.startswith("```") else _LINK.sub(target, part) for part in _FENCED.split(markdown))


def decisions_page() -> str:
    """Returns the list of decisions; each is a page of its own."""
    rows = []
    for file in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = file.read_text().splitlines()[0].lstrip("# ")
        rows.append(f"- [{title}]({file.name})")
    intro = "Choices that a reader of the code may question, and the reasons for them, on one page per topic."
    return f"# Decisions\n\n{intro}\n\n" + "\n".join(rows) + "\n"
