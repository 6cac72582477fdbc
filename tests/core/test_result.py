"""Numbers drawn from curves, whatever is in them; and curves as bytes."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import replace

import pytest
from shown import texts_of

from lobench.core.metric import Direction
from lobench.core.result import Curves, Provenance, mean_of, read_header

SHOWN = texts_of("core")

INF, NAN = math.inf, math.nan


def _curves(values: list[float]) -> Curves:
    rows = memoryview(array("f", values)).cast("B").cast("f", (1, len(values)))
    return Curves(seeds=(0,), metrics={"train/loss": rows}, eval_steps=(0, 1), diverged_at=(-1,))


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, 2.0], 1.5), ([INF, 1.0], INF), ([-INF, 1.0], -INF), ([INF, -INF], NAN), ([NAN, INF], NAN)],
)
def test_a_mean_is_that_of_ieee_754_also_where_infinities_of_both_signs_meet(values: list[float], mean: float) -> None:
    assert mean_of(values) == pytest.approx(mean, nan_ok=True)
    curves = _curves(values)
    assert curves.mean("train/loss") == pytest.approx([mean], nan_ok=True)


def test_what_was_read_is_written_as_it_came_and_what_was_changed_is_not() -> None:
    payload = _curves([1.0, 0.5]).to_payload()
    read = Curves.from_payload(payload)
    assert read.to_payload() is payload
    changed = replace(read, wall_seconds=7.0)
    assert Curves.from_payload(changed.to_payload()).wall_seconds == 7.0


def test_metrics_of_read_curves_cannot_be_replaced() -> None:
    curves = Curves.from_payload(_curves([1.0, 0.5]).to_payload())
    with pytest.raises(TypeError):
        curves.metrics["train/loss"] = curves.metrics["train/loss"]  # type: ignore[index]


def test_a_payload_says_only_what_there_is_to_say_and_reads_as_one_that_says_all() -> None:
    rows = memoryview(array("f", [2.0, 1.0])).cast("B").cast("f", (1, 2))
    bare = Curves(seeds=(3,), metrics={"train/loss": rows}, eval_steps=(0, 1), diverged_at=(-1,), wall_seconds=2.5)
    origin = Provenance(together="2 of 4", optimizer="lobench's", imported={"run": "r"}, git_dirty=True)
    full = replace(
        bare,
        cpu_seconds=1.5,
        ahead_seconds=0.5,
        resumed_at=7,
        problems=("p",),
        directions={"train/loss": Direction.MIN},
        provenance=origin,
        added=None,
    )
    for curves in (bare, full):
        assert Curves.from_payload(curves.to_payload()) == curves
    header, start = read_header(bare.to_payload())
    assert len(read_header(full.to_payload())[0]) == len(header) + 5
    origin_in_full = {name: getattr(bare.provenance, name) for name in Provenance.__dataclass_fields__}
    output = {"cpu_seconds": 0.0, "ahead_seconds": 0.0, "resumed_at": 0, "problems": [], "directions": {}}
    text = json.dumps({**header, **output, "provenance": origin_in_full}).encode()  # as it was written before
    assert Curves.from_payload(b"LOB1" + len(text).to_bytes(4, "little") + text + bare.to_payload()[start:]) == bare


def test_evaluations_with_equal_bindings_share_their_text() -> None:
    origin = Provenance(bindings='a = "]},\\"seeds\\":[7],\\"provenance\\":{"', imported={"run": '},"seeds":['})
    one = replace(_curves([1.0, 0.5]), provenance=origin)
    other = replace(one, wall_seconds=7.0, resumed_at=1, problems=('"eval_steps":[9]',))
    read, also = (Curves.from_payload(curves.to_payload()) for curves in (one, other))
    assert (read, also) == (one, other)
    assert read.provenance.bindings is also.provenance.bindings


@pytest.mark.parametrize("found", ['"eval_steps":[0,', '"host":', '"provenance":{', '},"seeds":['])
def test_what_evaluations_share_is_damaged_as_the_rest_of_a_header_is(found: str) -> None:
    payload = _curves([1.0, 0.5]).to_payload()
    with pytest.raises(ValueError, match=SHOWN["damaged-payload"]):
        Curves.from_payload(payload.replace(found.encode(), b"?" * len(found), 1))
