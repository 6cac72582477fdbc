"""The follower of pages refuses what it cannot follow, and sees what is not as a page says."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest
from pages import Story, follow
from shown import texts_of

SHOWN = texts_of("lobench")


def page(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str, story: Story | None = None) -> str:
    path = folder / "page.md"
    path.write_text(text)
    monkeypatch.setattr(pages, "path_of", lambda name: path)
    return follow("page.md", folder, story)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Say\n\n    lobench list tasks\n", SHOWN["block-is-indented-fence-it"]),
        ("```\nx\n```\n", SHOWN["what-to-do-with-a"]),
        ("```gin\nCase.num_seeds = 2\n```\n", SHOWN["what-to-do-with-a-block"]),
        ("```rust\nfn\n```\n", SHOWN["what-to-do-with-a-block-of"]),
        ("```bash {1}\nls\n```\n", SHOWN["block-is-not-fenced"]),
        ("```bash\nlobench list nothing\n```\n", SHOWN["page-md-lobench-list-nothing"]),
        ("```bash\nfalse | true\n```\n", SHOWN["page-md-false-true"]),
        ("```bash\necho 3 seeds\n```\n\n```text\n4 cases\n```\n", SHOWN["shows-n-cases-it-said"]),
        ('```gin title="x.gin"\nCase.num_seeds = 2\n```\n', SHOWN["x-gin-holds-no-case"]),
        ("```bash\npip install -e plugins/lobench-none\n```\n", SHOWN["plugins-lobench-none-is-not"]),
        ("```bash\npython benchmarks/none.py\n```\n", SHOWN["names-benchmarks-none-py-which"]),
    ],
)
def test_what_is_wrong_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: str) -> None:
    story = Story(left_out={"python benchmarks/none.py": "it is not there"} if "none.py" in text else {})
    with pytest.raises(AssertionError) as error:
        page(monkeypatch, tmp_path, text, story)
    assert expected in str(error.value)


def test_a_reason_without_a_block_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=SHOWN["nothing-that-begins-with-lobench"]):
        page(monkeypatch, tmp_path, "```bash\ntrue\n```\n", Story(left_out={"lobench gone": "it takes an hour"}))


def test_commands_and_programs_run_in_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (
        '```python title="a.py"\nprint(1)\n```\n\n```python title="a.py"\nprint(2)\n```\n\n'
        "```bash\npython a.py\nfor i in 7 \\\n    8; do\n  echo $i items\ndone\n```\n\n"
        "```text\n1\n...\n9 items\n```\n\n"
        '```python\nfrom pathlib import Path\n```\n\n```python\nprint(Path("a.py").read_text())\n```\n'
    )
    output = page(monkeypatch, tmp_path, text, Story())
    assert "1\n2\n7 items\n8 items\n" in output and "print(1)\n\nprint(2)" in output


def test_a_comparison_that_ends_otherwise_the_second_time_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The stand-in for `lobench` passes at the second call, which has its own candidate as the reference."""
    program = tmp_path / "lobench"
    program.write_text(
        '#!/bin/bash\n[ -e "$0.called" ] && echo PASS && exit 0\ntouch "$0.called"; echo REGRESSED; exit 1\n'
    )
    program.chmod(0o755)
    story = Story(exits={"PATH": 1})
    with pytest.raises(AssertionError, match=SHOWN["page-md-again-path"]):
        page(monkeypatch, tmp_path, f"```bash\nPATH={tmp_path}:$PATH lobench compare a b\n```\n", story)
