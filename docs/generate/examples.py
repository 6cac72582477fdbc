"""Examples in docstrings become blocks of code on the site: Markdown alone takes `>>>` for a quotation.

An extension of griffe, which reads the code for mkdocstrings.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)  # up to the next blank line


class Examples(griffe.Extension):
    """Puts fences around the examples of each docstring."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
