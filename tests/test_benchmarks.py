"""The table of the benchmarks says what was run."""

from __future__ import annotations

import sys

from reference import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import Benchmark, Measurement, Rounds, interleaved, table


def test_a_rows_text_size_and_cores_are_those_of_its_run() -> None:
    def measure(quick: bool) -> Rounds:
        count = 2_000 if quick else 10_000
        return Rounds(what=f"{count:,} evaluations", ratios=[2.0, 4.0, 3.0], cores=(1.9, 1.0))

    benchmark = Benchmark(name="rate", target=">= 3", measure=measure)
    rows = table([Measurement.of(benchmark, benchmark.measure(quick), quick=quick) for quick in (True, False)])
    assert rows.splitlines()[2:] == [
        "| rate | 3.00 | 2.00 - 4.00 of 3 | >= 3: reached | --quick | 1.9 against 1.0 | 2,000 evaluations |",
        "| rate | 3.00 | 2.00 - 4.00 of 3 | >= 3: reached | full | 1.9 against 1.0 | 10,000 evaluations |",
    ]


def test_sides_are_timed_in_turns_and_their_processor_time_is_known() -> None:
    calls: list[str] = []
    found = interleaved("a over b", lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert calls == ["a", "b"] * 4 and len(found.ratios) == 3 and found.cores is not None
