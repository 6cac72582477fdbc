"""The page that a watch keeps current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from report_store import make_baseline, make_store
from shown import texts_of
from tiny import make_run, make_suite, watch

from lobench.core.errors import LobenchError
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import SinkContext
from lobench.report.page.builtin_report import PAGE, ReportSink

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
    with pytest.raises(LobenchError, match=SHOWN["no-result-store-found"]):
        ReportSink(SinkContext(store=tmp_path))._update_page()


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
