"""The page that a watch keeps current."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import lobench_here
from report_store import case_info as report_case
from report_store import make_baseline, make_store
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, watch, watch_here

from lobench.core.errors import LobenchError
from lobench.engine.config.origin import Revision
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.plans import suite_plan
from lobench.hookspecs import SinkContext
from lobench.report.page.builtin_report import _ADDED_LINES, PAGE, ReportSink

SHOWN = texts_of("report")

REFRESH = '<meta http-equiv="refresh" content="10">\n'


def test_a_finished_checkpoint_makes_a_page_and_twice_is_once(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path, num_checkpoints=2), make_baseline(tmp_path)
    ledger = Ledger.open(store, read_only=True)
    deliveries = ledger.deliveries_after(0)
    ledger.close()
    sink = ReportSink(SinkContext(store=store, suites=(str(suite),)))
    sink.deliver(deliveries)
    first = (store / PAGE).read_text()
    assert SHOWN["tuned-adam"] in first
    assert REFRESH in first, "a browser that shows it takes the next one by itself"
    maker = sink._page_process
    sink.deliver(deliveries)
    assert (store / PAGE).read_text() == first
    assert sink._page_process is maker, "one process makes all pages, and reads what is new"
    sink.close()
    assert (store / PAGE).read_text() == first.replace(REFRESH, ""), "and stays at the last one"


def test_the_page_is_there_from_the_start_and_an_earlier_one_stays(tmp_path: Path) -> None:
    sink = ReportSink(SinkContext(store=tmp_path))
    assert SHOWN["no-result-yet"] in (tmp_path / PAGE).read_text()
    assert REFRESH in (tmp_path / PAGE).read_text()
    sink.close()
    assert REFRESH not in (tmp_path / PAGE).read_text()
    (tmp_path / PAGE).write_text("<title>of an earlier watch</title>")
    ReportSink(SinkContext(store=tmp_path)).close()
    assert (tmp_path / PAGE).read_text() == "<title>of an earlier watch</title>"


def test_close_makes_the_page_that_was_put_off(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=1)
    ledger = Ledger.open(store, read_only=True)
    evaluation = ledger.deliveries_after(0)[:1]
    ledger.close()
    sink = ReportSink(SinkContext(store=store))
    sink.deliver(evaluation)
    (store / PAGE).unlink()
    sink.deliver(evaluation)
    assert not (store / PAGE).exists(), "a page for every evaluation keeps a core busy"
    sink.close()
    assert (store / PAGE).exists()


def test_a_page_that_cannot_be_made_is_an_error_of_the_sink(tmp_path: Path) -> None:
    broken = tmp_path / "adam.json"
    broken.write_text("{")
    with pytest.raises(LobenchError, match=r"adam\.json"):
        ReportSink(SinkContext(store=make_store(tmp_path, num_checkpoints=1), suites=(str(broken),))).deliver([])


def record_plan(ledger: Ledger) -> None:
    subject, case = next(iter(ledger.sightings().values())), report_case("case0")
    ledger.record_plan(subject, suite_plan([case], {}))


def restart(ledger: Ledger) -> None:
    """Records that the trainer has begun again with a first theta of which there are results."""
    sighting = {"uri": "theta_0.npz", "sha256": "0" * 64, "generation": 0, "outer_step": 0, "variant": ""}
    ledger.record_event("restarted", **sighting)


CHANGES: dict[str, Callable[[Ledger, Path], object]] = {
    "plan": lambda ledger, suite: record_plan(ledger),
    "restart": lambda ledger, suite: restart(ledger),
    "moved run": lambda ledger, suite: ledger.connection.execute("UPDATE subjects SET uri = '/moved' || uri"),
    "edited code": lambda ledger, suite: (suite / "peat.py").write_text("rate = 2"),
    "removed code": lambda ledger, suite: (suite / "peat.py").unlink(),
    "removed baseline": lambda ledger, suite: (suite / "baselines" / "adam-velo.json").unlink(),
    "further baseline": lambda ledger, suite: (suite / "baselines" / "sgd.json").write_text("{}"),
    "imported curves": lambda ledger, suite: ledger.record_event("imported", count=1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_page_is_made_again_if_what_it_shows_has_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    made: list[Path] = []

    def make(sink: ReportSink) -> str:
        made.append(sink._page)
        sink._page.write_text(f"<title>page {len(made)}</title>")
        return ""

    monkeypatch.setattr(ReportSink, "_request_page", make)
    store, suite = make_store(tmp_path, num_checkpoints=1), make_baseline(tmp_path)
    (suite / "peat.py").write_text("rate = 1")
    with Ledger.open(store) as ledger:
        ledger.record_suites({("digits", str(suite)): {}})
        ledger.record_code({"0123456789abcdef": {"peat.py": "a" * 64, "numpy": "2.0"}})

    def watch_page() -> int:
        """Starts and ends a watch that evaluates nothing."""
        sink = ReportSink(SinkContext(store=store))
        sink.deliver([])
        sink.deliver([])
        sink.close()
        return len(made)

    assert [watch_page(), watch_page()] == [1, 1]
    with Ledger.open(store) as ledger:
        ledger.advance_cursor("report", 1)
        assert watch_page() == 1, "its own cursor is not shown"
        CHANGES[change](ledger, suite)
        assert [watch_page(), watch_page()] == [2, 2]
    assert (store / PAGE).read_text().endswith("<title>page 2</title>")


def test_page_of_a_begun_experiment_without_results_is_that_of_before(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=1)
    with Ledger.open(store) as ledger:
        ledger.record_experiment("new", "Experiment.name = 'new'", revision=Revision(), versions={})
    sink = ReportSink(SinkContext(store=store))
    sink.deliver([])
    sink.close()
    assert SHOWN["no-result-yet"] in (store / PAGE).read_text()


def test_answer_of_the_process_is_found_behind_other_output(tmp_path: Path) -> None:
    sink = ReportSink(SinkContext(store=tmp_path))
    for answer, problem in (("made", ""), ("failed: no disk", "no disk")):
        text = f"import sys\nfor _ in sys.stdin: print('a warning', end=''); print('lobench: {answer}', flush=True)"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        sink._page_process = subprocess.Popen([sys.executable, "-c", text], **pipes)  # type: ignore[call-overload]
        assert sink._request_page().endswith(problem) and bool(sink._request_page()) == bool(problem)
        sink._end_page_process()


def test_page_after_its_process_was_killed_is_made_by_another(tmp_path: Path) -> None:
    sink = ReportSink(SinkContext(store=make_store(tmp_path, num_checkpoints=1)))
    sink._update_page()
    assert sink._page_process is not None
    sink._page_process.kill()
    sink._page_process.wait()
    (sink._page).unlink()
    sink._update_page()
    sink.close()
    assert sink._page.exists() and sink._page_process is None


def test_watch_report_on_a_network_store_leaves_a_page_of_all_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink reads what the watch has recorded, of which the store's own file gets a copy every 15 s."""
    monkeypatch.setenv("LOBENCH_NETWORK_STORE", "1")
    monkeypatch.setenv("LOBENCH_LOCAL_DIR", str(tmp_path / "local"))
    suite, run = make_suite(tmp_path), make_run(tmp_path, -3.0, -2.0)
    options = ("--once", "--report", "--checkpoints", "all", "--workers", "1", "--store", str(tmp_path / "store"))
    done = watch(run, suite, *options)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "sink" not in output.replace(str(tmp_path), ""), output
    assert f"{tmp_path / 'store' / PAGE}" in done.stdout
    assert "2 checkpoints, 2 cases, 4 evaluations" in (tmp_path / "store" / PAGE).read_text()


def test_watch_report_after_bindings_came_back_has_their_numbers(tmp_path: Path) -> None:
    """Nothing is evaluated, but the plan is another one."""
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0)
    store, first = tmp_path / "store", (run / "config.gin").read_text()
    for text in (first, f"{first}LearnableSGD.initial_lr = 0.5\n", first):
        (run / "config.gin").write_text(text)
        done = watch_here(run, suite, "--once", "--report", "--store", str(store))
        assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing new" in done.stdout
    page = lobench_here("report", "--store", store, "--output", "full.html", cwd=tmp_path)
    assert page.returncode == 0, page.stderr
    assert _ADDED_LINES.sub("", (store / PAGE).read_text()) == (tmp_path / "full.html").read_text()
