"""The reference data are in every checkout, and each file's source and licence is known."""

from __future__ import annotations

import re

from reference import reference_data


def test_the_notice_names_every_file_and_nothing_else() -> None:
    folder = reference_data()
    notice = (folder / "NOTICE.md").read_text()
    rows = [line.split("|")[1] for line in notice.splitlines() if line.startswith("| ")][1:]
    named = [name.strip() for row in rows for name in row.split(",") if name.strip("- ")]
    files = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    data = [file for file in files if not file.startswith(("NOTICE", "LICENSE"))]
    assert [file for file in data if not file.startswith(tuple(named))] == []
    assert [name for name in named if not (folder / name).exists()] == []
    assert sorted(set(re.findall(r"LICENSE[\w.-]+txt", notice))) == [
        file for file in files if file.startswith("LICENSE")
    ]
