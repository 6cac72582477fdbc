"""Server of `lobench view`, which keeps the page of a store up to date."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from lobench.core.errors import LobenchError, UsageError
from lobench.core.wording import cause
from lobench.tools.viewer.page_cache import PageCache

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["ServedPage", "view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPage:
    """Viewer page that is being served.

    Attributes:
      address: Address to open. It contains the token, if one is needed.
      token: Token that visitors need. "": none.
    """

    address: str
    token: str


def view(
    store: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 6007,
    token: str = "",
    baselines: Sequence[str | Path] = (),
    experiment: str = "",
    every: bool = False,
    on_ready: Callable[[ServedPage], None] = lambda served: None,
) -> None:
    """Serves the page of a store until Ctrl-C. The store may be in use, and may still be empty.

    Example:
        view("runs/today/lobench_results/quick", port=0, on_ready=lambda served: print(served.address))

    Args:
      store: Folder of the store.
      host: Address of this machine. Addresses beyond loopback need a token.
      port: Port. 0: a free one.
      token: Token that visitors need. "": a random one if the host needs one, otherwise none.
      baselines: Suites or files of baselines. (): those of the store's suites.
      experiment: Experiment whose methods are shown. "": the last one that ran.
      every: Whether to show everything in the store, instead of an experiment's methods.
      on_ready: Called with the address as soon as the page can be opened.
    Raises:
      UsageError: The folder is not a store, the port is in use, or the host is not an address of this machine.
      LobenchError: A required package is not installed.
    """
    try:
        import uvicorn

        from lobench.tools.viewer.app import make_app
        from lobench.tools.viewer.protocol import HeaderTimeout
    except ImportError as error:
        missing = "the viewer needs starlette and uvicorn"
        raise LobenchError(missing, got=str(error), next_step="pip install 'lobench[view]'") from error
    page_cache = PageCache(Path(store), tuple(map(Path, baselines)), experiment=experiment, include_all=every)
    with _listening_socket(host, port) as listener:
        bound_port = listener.getsockname()[1]
        is_loopback = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
        required_token = token or ("" if is_loopback else secrets.token_urlsafe(24))
        page_cache.start()
        app: ASGIApp = make_app(
            page_cache,
            hosts=_host_names(host, is_loopback=is_loopback),
            token=required_token,
            cookie=f"lobench_view_{bound_port}",
            is_ending=lambda: server.should_exit,
        )
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=HeaderTimeout,
                log_level="error",
                access_log=False,  # addresses contain the token, which must not be logged
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=3,
            )
        )
        on_ready(ServedPage(address=_address(host, bound_port, required_token), token=required_token))
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn raises it again after closing all connections
            return


def _listening_socket(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Raises:
      UsageError: The port is in use, or the host is not an address of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} is in use",
                where=f"--port {port}",
                next_step="end what uses it, give another one, or --port 0 for a free one",
            ) from error
        problem = "this address cannot be served" if port >= 1024 or port == 0 else f"port {port} cannot be served"
        raise UsageError(
            problem, where=f"--host {host}", got=cause(error), expected="an address of this machine"
        ) from error


def _host_names(host: str, *, is_loopback: bool) -> frozenset[str]:
    """Returns the host names under which this machine may be requested. IP addresses are always accepted.

    Other names that resolve to this machine are rejected.
    """
    machine_names = () if is_loopback else (socket.gethostname(), socket.getfqdn())
    return frozenset(name.lower() for name in (host, "localhost", *machine_names))


def _address(host: str, port: int, token: str) -> str:
    try:
        ip_address = ipaddress.ip_address(host)
    except ValueError:
        name = host
    else:
        is_everywhere = ip_address.is_unspecified
        name = socket.gethostname() if is_everywhere else f"[{host}]" if ip_address.version == 6 else host
    return f"http://{name}:{port}/" + (f"?token={quote(token)}" if token else "")
