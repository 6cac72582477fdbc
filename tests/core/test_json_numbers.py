"""Records made of the attributes of values."""

from __future__ import annotations

from typing import TypedDict

import pytest
from shown import texts_of

from lobench.core.json_numbers import record_from

SHOWN = texts_of("core")


class _Span(TypedDict):
    text: str
    start: int


def test_record_from_attributes_keeps_the_order_of_the_record() -> None:
    record = record_from(_Span, slice(1, 4), text="1 to 4")
    assert record == {"start": 1, "text": "1 to 4"}
    assert [*record] == ["text", "start"]


def test_record_from_with_a_field_missing_or_unknown_is_refused() -> None:
    with pytest.raises(AttributeError, match="text"):
        record_from(_Span, slice(1, 4))
    with pytest.raises(TypeError, match=SHOWN["span-has-no-field-stop"]):
        record_from(_Span, slice(1, 4), text="", stop=4)
