"""`lobench view` as a server: what it answers, to whom, and what a store may do meanwhile."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from commands import lobench
from programs import document
from report_store import NASTY, make_baseline, make_store
from served import get, serve, until
from shown import texts_of
from starlette.responses import Response
from stores import add
from tiny import PATIENCE

from lobench.core.errors import StoreError
from lobench.engine.store.ledger import Ledger
from lobench.tools.viewer import app, page_cache, protocol
from lobench.tools.viewer.app import _unless_gone
from lobench.tools.viewer.server import ServedPage

SHOWN = texts_of("view")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedPage:
    folder = tmp_path_factory.mktemp("served")
    return serve(make_store(folder), baselines=[make_baseline(folder)])


def test_the_page_its_parts_and_its_data(served: ServedPage) -> None:
    assert served.token == "" and served.address.startswith("http://127.0.0.1:")
    page = get(served.address)
    assert page.status == 200 and b"Score on train/loss" in page.body
    assert b"<script>alert" not in page.body, "names are escaped"
    found = get(served.address, "data.json").record
    assert found["problem"] == "" and f'data-version="{found["version"]}"'.encode() in page.body
    explorer = found["explorer"]
    assert [case["name"] for case in explorer["cases"]] == [f"digits/{NASTY}", "digits/case0", "digits/case1"]
    curves = get(served.address, f"curves.json?version={found['version']}&keys=3,2,0;0,2,0").record
    assert curves["grids"] == [[0, 25, 50, 75, 100]] and sorted(curves["of"]) == ["0,2,0", "3,2,0"]
    pair = get(served.address, f"pair.json?version={found['version']}&places=3,0").record
    assert pair["cards"][0]["value"] == "better" and len(pair["cases"]) == 3
    evaluation = get(served.address, f"evaluation.json?version={found['version']}&places=3,1").record
    assert evaluation["diverged"] == {"3": 42} and evaluation["seeds"] == [0, 1, 2, 3]
    assert [len(rows) for rows in evaluation["curves"]] == [4, 4] and ["host", "here"] in evaluation["facts"]
    for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript"), ("live.js", "text/javascript")):
        assert get(served.address, name).headers["content-type"].startswith(kind)


def test_every_answer_has_a_strict_policy_and_says_nothing_to_other_pages(served: ServedPage) -> None:
    for path in ("", "data.json", "page.js", "nothing", "curves.json?version=old"):
        headers = get(served.address, path).headers
        policy = headers["content-security-policy"]
        assert SHOWN["default-src-none"] in policy and SHOWN["script-src-self"] in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert get(served.address, "nothing").status == 404
    assert get(served.address, method="POST").status == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example:6007", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("localhost", 200),
        ("LOCALHOST.:6007", 200),
        ("127.0.0.1:6007", 200),
        ("[::1]:6007", 200),
    ],
)
def test_who_asks_for_another_name_is_refused(served: ServedPage, host: str, status: int) -> None:
    for path in ("", "data.json", "page.js"):
        assert get(served.address, path, Host=host).status == status


@pytest.mark.parametrize("keys", ["0,0,99", "0,0", "x,0,0", "-1,0,0", "99,0,0", "0,99,0"])
def test_curves_of_what_is_not_there_are_refused(served: ServedPage, keys: str) -> None:
    version = get(served.address, "data.json").record["version"]
    assert get(served.address, f"curves.json?version={version}&keys={keys}").status == 400
    if keys.count(",") == 1 or not keys.startswith("0"):
        places = keys.rpartition(",")[0] if keys.count(",") == 2 else "0"
        for name in ("pair.json", "evaluation.json"):
            assert get(served.address, f"{name}?version={version}&places={places}").status == 400
            assert get(served.address, f"{name}?version=old&places=0,0").status == 409


def test_what_a_visitor_has_is_not_sent_again_and_what_is_new_arrives(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    address = serve(store).address
    first = get(address, "data.json")
    assert get(address, "data.json", If_None_Match=first.headers["etag"]).status == 304
    add(store, 9, {"later": {"train/loss": [1.0, 0.5]}})
    later = until(address, lambda answer: answer.status != 304, If_None_Match=first.headers["etag"])
    assert "s/later" in [case["name"] for case in later.record["explorer"]["cases"]]
    assert b"s/later" in get(address).body
    stale = get(address, f"curves.json?version={first.record['version']}&keys=0,0,0")
    assert stale.status == 409 and b"fetch data.json" in stale.body


def test_request_that_waits_is_answered_when_an_evaluation_arrives(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    address = serve(store).address
    tag = get(address, "data.json").headers["etag"]

    def next_cases(tag: str) -> tuple[list[str], str]:
        answer = get(address, "data.json?wait", If_None_Match=tag)
        assert answer.status == 200
        return [case["name"] for case in answer.record["explorer"]["cases"]], answer.headers["etag"]

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next_cases, tag)
        add(store, 9, {"later": {"train/loss": [1.0, 0.5]}})
        cases, tag = waiting.result()
    if "s/later" not in cases:  # the store is written in several transactions
        cases, _ = next_cases(tag)
    assert "s/later" in cases


def test_requests_wait_shorter_if_several_wait(served: ServedPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser has six connections to a server, and the next page gets one when a request ends."""
    assert app._max_wait(1) == app._LONGEST_WAIT and app._max_wait(6) < 5
    monkeypatch.setattr(app, "_max_wait", lambda num_waiting: PATIENCE if num_waiting < 3 else 0.0)
    tag = get(served.address, "data.json").headers["etag"]
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(get, served.address, "data.json?wait", If_None_Match=tag) for _ in range(3)]
        done, _ = concurrent.futures.wait(waiting, return_when="FIRST_COMPLETED")
        assert done.pop().result().status == 304
        monkeypatch.setattr(app, "_max_wait", lambda num_waiting: 0.0)


def test_request_that_waits_in_vain_ends_with_304(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_LONGEST_WAIT", 0.1)
    address = serve(make_store(tmp_path, num_checkpoints=1, num_cases=2)).address
    tag = get(address, "data.json").headers["etag"]
    assert get(address, "data.json?wait", If_None_Match=tag).status == 304


def test_first_request_after_a_pause_has_the_evaluations_of_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 600.0)
    monkeypatch.setattr(page_cache, "_PAUSE", 0.0)  # as if the page had been made long ago
    monkeypatch.setattr(page_cache, "_SLOW", 600.0)
    store = make_store(tmp_path)
    address = serve(store).address
    assert b"s/later" not in get(address).body
    add(store, 9, {"later": {"train/loss": [1.0, 0.5]}})
    assert b"s/later" in get(address).body


def test_a_token_is_asked_for_once_and_is_a_cookie_from_then_on(tmp_path: Path) -> None:
    served = serve(make_store(tmp_path), token="open sesame")
    address = served.address
    assert "token=open%20sesame" in address
    for path in ("", "data.json", "page.js", "?token=open", "?token=", "?token=%C3%A4"):
        assert get(address, path).status == 401
    answer = get(address, "?token=open%20sesame")
    cookie = answer.headers["set-cookie"]
    assert answer.status == 303 and answer.headers["location"] == "./", "the token leaves the address"
    assert "HttpOnly" in cookie and "samesite" in cookie.lower()
    for path in ("", "data.json", "page.js"):
        assert get(address, path, Cookie=cookie.partition(";")[0]).status == 200
    assert get(address, "data.json", Authorization="Bearer open sesame").status == 200
    assert get(address, "data.json", Cookie=cookie.partition("=")[0] + "=open").status == 401
    assert get(address, "?token=open%20sesame", Host="evil.example").status == 421


def test_who_says_nothing_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_HEADER_SECONDS", 0.2)
    served = serve(make_store(tmp_path, num_checkpoints=1, num_cases=2), token="open sesame")
    port = urlsplit(served.address).port
    output = [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "]
    with contextlib.ExitStack() as opened:
        visitors = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(160)]
        for place, visitor in enumerate(visitors):
            visitor.settimeout(PATIENCE)
            with contextlib.suppress(ConnectionError):
                visitor.sendall(output[place % 3])
        assert get(served.address, "data.json", Authorization="Bearer open sesame").status == 200
        for visitor in visitors:
            with contextlib.suppress(ConnectionError):
                assert visitor.recv(1) == b"", "each is closed"


def test_beyond_loopback_there_is_a_token_of_its_own(tmp_path: Path) -> None:
    served = serve(make_store(tmp_path), host="0.0.0.0")
    assert len(served.token) >= 32 and served.address.endswith(f"/?token={served.token}")
    assert "0.0.0.0" not in served.address, "nobody can open that"
    assert get(served.address, "data.json").status == 401
    assert get(served.address, "data.json", Authorization=f"Bearer {served.token}").status == 200


def test_a_store_that_is_empty_at_first_and_gone_at_last(tmp_path: Path) -> None:
    store = tmp_path / "store"
    Ledger.open(store).close()
    address = serve(store).address
    first = get(address, "data.json").record
    assert first == {"version": "", "problem": "", "note": "", "subtitle": "", "explorer": None}
    assert b"No result yet" in get(address).body
    add(store, 1, {"a": {"train/loss": [1.0, 0.5]}})
    found = until(address, lambda answer: answer.record["version"]).record
    while store.exists():  # who reads it at this moment puts a file beside it
        shutil.rmtree(store, ignore_errors=True)
    gone = until(address, lambda answer: answer.record["problem"]).record
    assert str(store) in gone["problem"] and gone["version"] == found["version"]
    assert get(address).status == 200 and b"s/a" in get(address).body


def test_a_damaged_store_is_a_problem_in_words(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    address = serve(store).address
    (store / "ledger.sqlite").write_bytes(b"no database" * 1000)
    found = until(address, lambda answer: answer.record["problem"]).record
    assert "Traceback" not in found["problem"] and str(store) in found["problem"]
    assert get(address).status == 200


def test_usage_errors_are_one_line(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=1, num_cases=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = lobench("view", store, "--port", str(port))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (SHOWN["lobench-port-port-is-in"].format(port=port))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "ledger.sqlite").write_bytes(b"no database" * 1000)
    done = lobench("view", damaged, "--port", "0")
    assert done.returncode == 2 and str(damaged) in done.stderr and done.stderr.count("\n") == 1
    done = lobench("view", tmp_path / "none")
    assert done.returncode == 2 and SHOWN["no-result-store-found"] in done.stderr and done.stderr.count("\n") == 1
    done = lobench("view", store, "--host", "192.0.2.1", "--port", "0")
    assert done.returncode == 2 and SHOWN["expected-an-address-of-this"] in done.stderr
    done = lobench("view", store, "--port", "0", "--experiment", "other")
    assert done.returncode == 2 and SHOWN["no-experiment-other"] in done.stderr


def test_without_its_extra_it_says_what_to_install(tmp_path: Path) -> None:
    store = make_store(tmp_path, num_checkpoints=1, num_cases=2)
    code = "import sys; sys.modules['uvicorn'] = None; from lobench.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "view", store], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert SHOWN["pip-install-lobench-view"] in done.stderr


@pytest.mark.parametrize("kind", ["text", "json"])
def test_view_prints_its_address_alone_and_ends_with_ctrl_c_in_good_order(tmp_path: Path, kind: str) -> None:
    store = make_store(tmp_path, num_checkpoints=1, num_cases=2)
    command = [sys.executable, "-m", "lobench.cli", "view", str(store), "--port", "0", "--format", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if kind == "text":
            address = process.stdout.readline().split()[1]
        else:
            found = document("".join(iter(process.stdout.readline, "}\n")) + "}")
            assert found["store"] == str(store)
            address = found["address"]
        assert get(address).status == 200
        tag = get(address, "data.json").headers["etag"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(get, address, "data.json?wait", If_None_Match=tag)
            process.send_signal(signal.SIGINT)
            out, error = process.communicate()
            with contextlib.suppress(ConnectionError):  # the signal may come first
                assert waiting.result().status == 304
    assert (process.returncode, out) == (0, "") and (error == "" or kind == "json")


def test_curves_that_are_no_longer_in_the_store_are_refused_in_one_line() -> None:
    def answer() -> Response:
        raise StoreError("an evaluation was replaced while the store was read", next_step="run the command again")

    found = _unless_gone(answer)
    assert found.status_code == 503 and bytes(found.body).decode().startswith(SHOWN["an-evaluation-was-replaced"])
    assert b"\n" not in bytes(found.body)
