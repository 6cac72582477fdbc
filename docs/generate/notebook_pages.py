"""Executed notebooks as pages: what their cells showed is shown, and nothing runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["notebook_files"]

_FOLDER = Path(__file__).parents[1] / "notebooks"


def notebook_files() -> dict[str, str | bytes]:
    """Returns pages and their pictures by their places in the site."""
    made: dict[str, str | bytes] = {}
    for path in sorted(_FOLDER.glob("*.ipynb")):
        parts = []
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(source)
                continue
            parts.append(f"```python\n{source}\n```")
            for place, output in enumerate(cell.get("outputs", ())):
                picture = f"{path.stem}-{number}-{place}.png"
                for text, content in _shown(output, picture):
                    parts.append(text)
                    if content:
                        made[f"notebooks/{picture}"] = content
        parts.append(f"[The notebook itself]({path.name}).")
        made[f"notebooks/{path.stem}.md"] = "\n\n".join(parts) + "\n"
    return made


def _shown(output: Mapping[str, Any], picture: str) -> Iterator[tuple[str, bytes]]:
    """Yields an output as markdown, with the content of its picture where it is one."""
    if output["output_type"] == "error":
        raise ValueError(f"a cell of a notebook ended with {output['ename']}: {output['evalue']}")
    if output["output_type"] == "stream":
        yield f"```text\n{''.join(output['text']).rstrip()}\n```", b""
        return
    data = output["data"]
    if "image/png" in data:
        yield f"![What the cell drew]({picture})", base64.b64decode("".join(data["image/png"]))
    elif "text/html" in data:
        # One block of HTML: an empty line would end it.
        lines = "".join(data["text/html"]).splitlines()
        yield '<div class="cell-output">\n' + "\n".join(line for line in lines if line.strip()) + "\n</div>", b""
    elif "text/plain" in data:
        yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```", b""
