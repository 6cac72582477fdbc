"""What an experiment shows while it runs, from events as a chief tells them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from shown import texts_of
from stores import case_info, curves

from lobench.analysis.comparisons.event_numbers import evaluation_row_of
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.methods import snapshot_of_members
from lobench.analysis.store.snapshot import Snapshot
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.planner import EvaluationId
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.engine.store.experiments import Membership
from lobench.engine.store.ledger import EvaluationRow
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.methods import MethodCounts, PlainMethods, make_method_progress
from lobench.report.tables.verdict import score_text

SHOWN = texts_of("report")

ADAM, SGD = Subject.of_optimizer("adam()"), Subject.of_optimizer("sgd()")
NAMES = {ADAM.key: ["adam", "[b]tuned"], SGD.key: ["sgd"]}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def methods_of(subject: Subject) -> list[str]:
    return NAMES.get(subject.key, [])


def snapshot_of(rows: Sequence[EvaluationRow], named: Callable[[Subject], list[str]] = methods_of) -> Snapshot:
    members = [
        Membership(
            method=name,
            trial=0,
            session=seed,
            evaluation=EvaluationId(row.key.checkpoint_sha256, row.case.key, row.key.seed_block),
            program=row.key.program_version,
        )
        for row in rows
        for who in row.sightings
        for name in named(who)
        for seed in row.key.seed_block.seeds
    ]
    return snapshot_of_members(Snapshot.of(Path(), rows), "", members)


def event(subject: Subject, name: str, value: float | None, start: int = 0) -> EvaluationFinished:
    return EvaluationFinished(
        subject=subject,
        case=case_info(name, 2),
        seed_block=SeedBlock(start=start, size=2),
        outcome=Outcome.ERROR if value is None else Outcome.PASSED,
        curves=None if value is None else curves({"train/loss": [value, value * 1.1]}, start=start),
        message="it broke" if value is None else "",
    )


def run(progress: PlainMethods, clock: Clock, events: list[EvaluationFinished]) -> None:
    for lease, one in enumerate(events):
        progress.evaluation_leased(lease, one.subject, one.case)
        clock.now += 4.0
        progress.evaluation_finished(one, lease)


def test_the_score_of_a_method_that_is_through_is_that_of_the_table(tmp_path: Path) -> None:
    """It is over the cases that all who are through have; one that is under way takes none from them."""
    events = [event(ADAM, "a", 0.5), event(SGD, "a", 0.7), event(ADAM, "b", 0.5), event(SGD, "b", None)]
    clock, file = Clock(), io.StringIO()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    methods.plan({"adam": 2, "[b]tuned": 2, "sgd": 2})
    run(PlainMethods(file, methods, clock=clock), clock, events[:3])
    assert "over" not in next(one for one in methods.states(refresh_scores=True) if one.name == "adam").score
    run(PlainMethods(file, methods, clock=clock), clock, events[3:])
    summary = Summary(
        snapshot := snapshot_of([evaluation_row_of(one, 0.0) for one in events]), Scales.of(snapshot.subjects, None)
    )
    expected = {one: score_text(summary.mean_score(place, "primary")) for place, one in enumerate(snapshot.labels)}
    states = {one.name: one.score for one in methods.states(refresh_scores=True)}
    assert states == {name: expected[name] for name in states} and "over 1 of 2 cases" in states["adam"]


def test_lines_say_how_far_each_method_is_and_end_with_its_score() -> None:
    clock, file = Clock(), io.StringIO()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    earlier = evaluation_row_of(event(SGD, "a", 1.0), 0.0)
    methods.plan({"adam": 2, "[b]tuned": 2, "sgd": 2}, [earlier])
    run(PlainMethods(file, methods, clock=clock), clock, [event(ADAM, "a", 0.5), event(ADAM, "b", 0.5)])
    first, second, *through, last = file.getvalue().splitlines()
    assert first.startswith(SHOWN["adam-1-of-2-evaluations"]) and second.startswith("[b]tuned: 1 of 2 evaluations")
    assert first.endswith(" left") and re.search(r"score 1\.\d+ \[|score 0\.\d+ \[", first)
    assert through[0].startswith("adam: 2 of 2 evaluations") and last.startswith("[b]tuned: 2 of 2")
    run(PlainMethods(file, methods, clock=clock), clock, [event(SGD, "b", None)])
    assert "it broke" in file.getvalue(), "what went wrong has its own line"
    assert [(one.name, one.count_text) for one in methods.states()] == [
        ("adam", "2 of 2"),
        ("[b]tuned", "2 of 2"),
        ("sgd", "2 of 2"),
    ]
    assert methods.remaining_time_text() == ""


def test_the_same_evaluation_counts_once_and_other_subjects_do_not() -> None:
    clock = Clock()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    methods.plan({"sgd": 4})
    other = Subject.of_checkpoint(Checkpoint(uri="theta.npz", sha256="0" * 64, outer_step=1))
    run(PlainMethods(io.StringIO(), methods, clock=clock), clock, [event(SGD, "a", 1.0)] * 2 + [event(other, "a", 1.0)])
    (state,) = methods.states()
    assert (state.count_text, state.num_running) == ("1 of 4", 0)


def test_news_of_a_method_wait_ten_seconds() -> None:
    clock, file = Clock(), io.StringIO()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    methods.plan({"sgd": 9})
    run(PlainMethods(file, methods, clock=clock), clock, [event(SGD, name, 1.0) for name in "abcdef"])
    assert [line.split()[1] for line in file.getvalue().splitlines()] == ["1", "4"]  # after 4 s and 16 s


def test_a_terminal_has_a_table() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    file, clock = Terminal(), Clock()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    methods.plan({"adam": 2, "[b]tuned": 2, "sgd": 2})
    with make_method_progress(file, methods) as progress:
        one = event(ADAM, "a", 0.5)
        progress.evaluation_leased(0, one.subject, one.case)
        clock.now += 4.0
        progress.evaluation_finished(one, 0)
        progress.evaluation_leased(1, SGD, one.case)
    shown = file.getvalue()
    assert (
        "evaluations" in shown
        and "1 of 2" in shown
        and "0 of 2" in shown
        and SHOWN["about-16-s-left"] in shown
        and "[b]tuned" in shown
    )


def test_an_evaluation_whose_worker_died_runs_once() -> None:
    methods = MethodCounts(methods_of, snapshot_of, clock=Clock())
    methods.plan({"adam": 2})
    progress = PlainMethods(io.StringIO(), methods, clock=Clock())
    one = event(ADAM, "a", 0.5)
    for lease in range(3):
        progress.evaluation_leased(lease, one.subject, one.case)
        assert [state.num_running for state in methods.states() if state.name == "adam"] == [1]
        progress.given_up(lease)
    assert not any(state.num_running for state in methods.states()) and not progress._running.progress_rows()


def test_a_method_is_compared_with_what_those_before_it_score_on_todays_scale() -> None:
    clock, file = Clock(), io.StringIO()
    named = lambda subject: ["adam"] if subject == ADAM else ["sgd"]  # noqa: E731
    methods = MethodCounts(named, lambda rows: snapshot_of(rows, named), clock=clock)
    methods.plan({"adam": 1, "sgd": 1})
    progress = PlainMethods(file, methods, clock=clock)
    run(progress, clock, [event(ADAM, "a", 0.5), event(SGD, "a", 0.001)])
    adam, sgd = file.getvalue().splitlines()
    assert "score 1.0" in adam or "score 0.99" in adam, "alone it is the best mean that is known, 1 on the scale"
    now = {state.name: float(state.score.split()[0]) for state in methods.states()}
    assert now["adam"] < 0.9
    output = re.search(r", ([0-9.]+) above the best so far \(adam\)", sgd)
    assert output is not None and abs(float(output[1]) - (now["sgd"] - now["adam"])) < 0.002


def test_one_evaluation_of_nobody_knows_how_many_is_one_evaluation() -> None:
    clock, file = Clock(), io.StringIO()
    methods = MethodCounts(methods_of, snapshot_of, clock=clock)
    methods.plan({"sgd": 0})  # of a command whose checkpoints are all evaluated
    run(PlainMethods(file, methods, clock=clock), clock, [event(SGD, "a", 1.0)])
    assert file.getvalue().startswith(SHOWN["sgd-1-evaluation-score"])
    progress = PlainMethods(file, methods, clock=clock)
    run(progress, clock, [event(SGD, "b", 1.0)])
    progress.closed()
    assert re.match(SHOWN["sgd-2-evaluations-score-1"], file.getvalue().splitlines()[-1])  # said at its end
