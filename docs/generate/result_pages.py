"""Pages of the bundles in docs/results/, as `lobench site` makes them, and its tables on pages of docs/.

python docs/generate/result_pages.py    # writes the tables between their marks
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from lobench.tools.site.site import SiteRecord, make_site, site_markdown

__all__ = ["PAGES", "result_files", "with_tables"]

_DOCS = Path(__file__).parents[1]
PAGES = (_DOCS / "shipped-checkpoints.md", _DOCS / "suites.md")
_TABLE = re.compile(r"(<!-- table (\w+) of (\w+), by lobench site -->\n).*?(<!-- end -->)", re.DOTALL)


def result_files() -> dict[str, str | bytes]:
    """Returns the pages by their places in the site."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make(folder)
        return {
            f"results/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }


def with_tables(page: str) -> str:
    """Returns a page with the tables of today's bundles between its marks."""
    tables: dict[tuple[str, str], str] = {}
    for name in {found[3] for found in _TABLE.finditer(page)}:
        with tempfile.TemporaryDirectory() as folder:
            record = _make(Path(folder), name)
        for board in record["boards"]:
            tables[board["suite"], name] = site_markdown({**record, "boards": [board]})
    return _TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2], found[3]]}\n{found[4]}", page)


def _make(folder: Path, name: str = "") -> SiteRecord:
    """Writes the pages of the bundles whose names begin so."""
    bundles = sorted((_DOCS / "results").glob(f"{name}*.lobench"))
    return make_site(bundles, folder, title="Results of the documentation")


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text()))
