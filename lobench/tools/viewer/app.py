"""Routes of `lobench view`: the page, its parts and its data, with access control."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lobench.analysis.comparisons.viewer_index import CurveKey, ViewerIndex
from lobench.core.errors import StoreError
from lobench.core.wording import headline
from lobench.report.page.evaluations import evaluation_record
from lobench.report.page.explorer import explorer_curves
from lobench.report.page.pairs import pair_record
from lobench.report.page.templates import page_part
from lobench.tools.viewer.page_cache import PageCache

__all__ = ["make_app"]

_MOST_KEYS = 1000  # curves in one answer
_MOST_POINTS = 500  # points of a seed's curve
_LONGEST_WAIT = 20.0  # seconds for which a request waits for news; proxies end connections that are silent for longer
_SHORTEST_WAIT = 3.0
_POLL_SECONDS = 0.025  # seconds between two looks at the store
_STALE_TEXT = "there are newer results: fetch data.json"
_PARTS = {"page.css": "text/css", "page.js": "text/javascript", "live.js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache, private",
}


def make_app(
    page_cache: PageCache,
    *,
    hosts: frozenset[str],
    token: str,
    cookie: str,
    is_ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Returns the ASGI application of the page.

    Args:
      page_cache: The page.
      hosts: Names of this machine. Requests for other names are rejected; IP addresses are accepted.
      token: Token that visitors need. "": none.
      cookie: Name of the cookie that holds the token.
      is_ending: Function that returns whether the server ends, so that requests must not wait any longer.
    """

    async def data(request: Request) -> Response:
        return await _respond_with_data(page_cache, request, is_ending)

    routes = [
        Route("/", lambda request: _respond_with_page(page_cache, request)),
        Route("/data.json", data),
        Route("/curves.json", lambda request: _unless_gone(lambda: _respond_with_curves(page_cache, request))),
        Route(
            "/evaluation.json",
            lambda request: _unless_gone(lambda: _respond_with_value(page_cache, request, _evaluation_value)),
        ),
        Route(
            "/pair.json", lambda request: _unless_gone(lambda: _respond_with_value(page_cache, request, _pair_value))
        ),
        *(Route(f"/{name}", _part_route(name, kind)) for name, kind in _PARTS.items()),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(GZipMiddleware, minimum_size=2000, compresslevel=1)])
    app.state.num_waiting = 0  # requests that wait for news
    return _Guard(app, hosts=hosts, token=token, cookie=cookie)


def _respond_with_page(page_cache: PageCache, request: Request) -> Response:
    page, _ = page_cache.current_page(waits=True)  # the cached page may be old
    return _respond_with_tag(request, page.html, lambda: page.html, "text/html")


async def _respond_with_data(page_cache: PageCache, request: Request, is_ending: Callable[[], bool]) -> Response:
    """Returns the data of the page, or status 304.

    With the parameter `wait`, the answer comes as soon as the data differ from those that the visitor has, or with
    status 304 after a time.
    """
    started_at = time.monotonic()
    is_waiting = "wait" in request.query_params
    state = request.app.state
    state.num_waiting += is_waiting
    try:
        while True:
            answer = await run_in_threadpool(_respond_with_current_data, page_cache, request)
            max_seconds = _max_wait(state.num_waiting) if is_waiting else 0.0
            if answer.status_code != HTTPStatus.NOT_MODIFIED or time.monotonic() - started_at >= max_seconds:
                return answer
            if is_ending() or await request.is_disconnected():
                return answer
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        state.num_waiting -= is_waiting


def _max_wait(num_waiting: int) -> float:
    """Returns for how many seconds each of some requests waits.

    A browser has six connections to a server. With six pages all of them wait, and another page comes once one ends.
    """
    return max(_LONGEST_WAIT / num_waiting, _SHORTEST_WAIT)


def _respond_with_current_data(page_cache: PageCache, request: Request) -> Response:
    page, problem = page_cache.current_page(waits=True)
    status_json = json.dumps(
        {"version": page.version, "problem": problem, "note": page.note, "subtitle": page.subtitle}
    )
    # The version is a hash of the data.
    return _respond_with_tag(
        request,
        status_json.encode(),
        lambda: f'{status_json[:-1]}, "explorer": {page.data}}}'.encode(),
        "application/json",
    )


def _unless_gone(respond: Callable[[], Response]) -> Response:
    """Calls a function that reads curves from the store. Returns status 503 if the curves no longer exist."""
    try:
        return respond()
    except StoreError as error:
        return PlainTextResponse(headline(error), HTTPStatus.SERVICE_UNAVAILABLE)


_ValueOfPair: TypeAlias = Callable[[ViewerIndex, int, int], object]


def _respond_with_value(page_cache: PageCache, request: Request, make_value: _ValueOfPair) -> Response:
    """Answers a request for two indices, in the version of the data that the visitor has."""
    page, _ = page_cache.current_page()
    if page.viewer_index is None or request.query_params.get("version") != page.version:
        return PlainTextResponse(_STALE_TEXT, HTTPStatus.CONFLICT)
    try:
        first_index, second_index = map(int, request.query_params.get("places", "").split(","))
        if min(first_index, second_index) < 0:
            raise IndexError(first_index, second_index)
        body = json.dumps(
            make_value(page.viewer_index, first_index, second_index), allow_nan=False, separators=(",", ":")
        )
    except (ValueError, IndexError):
        return PlainTextResponse("places: two places of what data.json lists, as in 3,0", HTTPStatus.BAD_REQUEST)
    return Response(body, media_type="application/json")


def _evaluation_value(viewer_index: ViewerIndex, subject: int, case: int) -> object:
    return evaluation_record(viewer_index, subject, case, _MOST_POINTS)


def _pair_value(viewer_index: ViewerIndex, first_index: int, second_index: int) -> object:
    return pair_record(viewer_index.summary, first_index, second_index)


def _respond_with_curves(page_cache: PageCache, request: Request) -> Response:
    page, _ = page_cache.current_page()
    if page.viewer_index is None or request.query_params.get("version") != page.version:
        return PlainTextResponse(_STALE_TEXT, HTTPStatus.CONFLICT)
    try:
        keys = [_parse_key(text, page.viewer_index) for text in request.query_params.get("keys", "").split(";") if text]
    except (ValueError, IndexError):
        return PlainTextResponse("keys: SUBJECT,CASE,METRIC;..., by their places", HTTPStatus.BAD_REQUEST)
    body = json.dumps(explorer_curves(page.viewer_index, keys[:_MOST_KEYS]), allow_nan=False, separators=(",", ":"))
    return Response(body, media_type="application/json")


def _parse_key(text: str, viewer_index: ViewerIndex) -> CurveKey:
    """Parses a key such as `3,0,1`.

    Raises:
      ValueError: The text is not a key.
      IndexError: The key's subject, case or metric does not exist.
    """
    subject_index, case_index, metric_index = map(int, text.split(","))
    if min(subject_index, case_index, metric_index) < 0:
        raise IndexError(text)
    snapshot = viewer_index.snapshot
    if subject_index >= len(snapshot.subjects) or case_index >= len(snapshot.cases):
        raise IndexError(text)
    return subject_index, case_index, viewer_index.metrics[metric_index]


def _part_route(name: str, media_type: str) -> Callable[[Request], Response]:
    body = page_part(name).encode()
    return lambda request: _respond_with_tag(request, body, lambda: body, media_type)


def _respond_with_tag(request: Request, identity: bytes, body: Callable[[], bytes], media_type: str) -> Response:
    """Returns the body, or status 304 if the visitor's tag matches.

    Args:
      request: Request, with the tag of the visitor's body.
      identity: Bytes that differ if bodies differ.
      body: Function that returns the body.
      media_type: Media type.
    """
    tag = f'"{hashlib.sha256(identity).hexdigest()[:32]}"'
    known_tags = request.headers.get("if-none-match", "").replace("W/", "")
    headers = {"ETag": tag}
    if tag in known_tags:
        return Response(status_code=304, headers=headers)
    return Response(body(), media_type=media_type, headers=headers)


class _Guard:
    """Accepts requests for a name of this machine with the token, and adds headers to all responses.

    The name is checked because of DNS rebinding: another site may map its own name to this machine, and the browser
    would let it read the responses. The token is sent once in the address, and is a cookie afterwards.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str, cookie: str) -> None:
        self._app = app
        self._hosts = hosts
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        responder = self._answer(Request(scope)) or self._app
        await responder(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Returns the response that replaces the requested page; None if the request is accepted."""
        if not self._accepts_host(request.headers.get("host", "")):
            text = "this page is not served under that name: open the address that lobench view printed"
            return PlainTextResponse(text, HTTPStatus.MISDIRECTED_REQUEST)
        if not self._token:
            return None
        if self._is_token(request.query_params.get("token", "")):
            redirect = RedirectResponse("./", HTTPStatus.SEE_OTHER)
            redirect.set_cookie(self._cookie, self._token, httponly=True, samesite="lax", path="/")
            return redirect
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(request.cookies.get(self._cookie, "")) or self._is_token(bearer):
            return None
        text = "this page needs its token: open the address that lobench view printed"
        return PlainTextResponse(text, HTTPStatus.UNAUTHORIZED)

    def _accepts_host(self, host: str) -> bool:
        name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower().rstrip(".") in self._hosts
        return True  # IP addresses cannot be rebound

    def _is_token(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(errors="replace"), self._token.encode())
