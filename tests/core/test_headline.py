"""An exception in one line."""

from __future__ import annotations

import errno
import os

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.wording import cause, counted, headline

SHOWN = texts_of("core")

_ANNOUNCED = "the branches must have equal types, but they differ:\n\n  float32 and int32\nand much more"

_OF_A_CALLBACK = """INTERNAL: error calling callback: Traceback (most recent call last):
  File "clay.py", line 3, in boom
    raise ValueError("the pot broke")
ValueError: the pot broke

At:
  clay.py(3): boom
"""


@pytest.mark.parametrize(
    ("error", "output", "why"),
    [
        (
            RuntimeError(_OF_A_CALLBACK),
            "RuntimeError: INTERNAL: error calling callback: ValueError: the pot broke",
            "INTERNAL: error calling callback: ValueError: the pot broke",
        ),
        (KeyError("relu"), SHOWN["keyerror-relu"], "'relu'"),
        (ValueError("first\nsecond"), "ValueError: first", "first"),
        (ValueError("\n  \n"), "ValueError:", "ValueError"),
        (MemoryError(), "MemoryError:", "MemoryError"),
        (
            TypeError(_ANNOUNCED),
            SHOWN["typeerror-the-branches-must-have"],
            SHOWN["branches-must-have-equal-types"],
        ),
        (ConfigError("no such task", where="a.gin"), SHOWN["gin-no-such-task"], SHOWN["gin-no-such-task"]),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/store"),
            SHOWN["oserror-errno-28-no-space"],
            SHOWN["no-space-left-on-device"],
        ),
    ],
)
def test_one_line(error: Exception, output: str, why: str) -> None:
    assert (headline(error), cause(error)) == (output, why)
    assert "\n" not in headline(error) + cause(error)


def test_one_is_no_plural() -> None:
    assert [counted(count, "case") for count in (0, 1, 2, 2000)] == ["0 cases", "1 case", "2 cases", "2,000 cases"]
