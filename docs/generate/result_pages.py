"""Pages of the bundles in docs/results/, as `lobench site` makes them, and its tables on docs/shipped-checkpoints.md.

python docs/generate/result_pages.py    # writes the tables between their marks
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from lobench.tools.site.site import SiteRecord, make_site, site_markdown

__all__ = ["result_files", "with_tables"]

_DOCS = Path(__file__).parents[1]
_PAGE = _DOCS / "shipped-checkpoints.md"
_TABLE = re.compile(r"(<!-- table (\w+), by lobench site -->\n).*?(<!-- end -->)", re.DOTALL)


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
    with tempfile.TemporaryDirectory() as name:
        record = _make(Path(name))
    tables = {board["suite"]: site_markdown({**record, "boards": [board]}) for board in record["boards"]}
    return _TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n{found[3]}", page)


def _make(folder: Path) -> SiteRecord:
    return make_site(sorted((_DOCS / "results").glob("*.lobench")), folder, title="Results of the documentation")


if __name__ == "__main__":
    _PAGE.write_text(with_tables(_PAGE.read_text()))
