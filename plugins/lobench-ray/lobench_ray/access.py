"""Access control of Ray clusters: a cluster that other machines can reach must require a token.

Our environment's authentication settings need not be those of the cluster. Therefore the cluster itself is asked,
without a token. Source of the rules: docs.ray.io, "Ray token authentication".
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator

from lobench import LobenchError
from lobench.extend import environment_with

__all__ = ["check_access", "check_token", "has_token_mode", "is_reachable_from_outside", "requires_token"]

_AUTH_MODE = "RAY_AUTH_MODE"
_ANSWER_SECONDS = 10


def check_access(address: str, *, is_protected: bool | None) -> None:
    """Raises an error for a cluster that other machines can reach and that requires no token.

    Args:
      address: HOST:PORT of the cluster's head.
      is_protected: Whether the cluster requires a token; None if that is unknown.
    Raises:
      LobenchError: The cluster is open, or may be. The message has the next step.
    """
    if is_protected or not is_reachable_from_outside(address):
        return
    raise LobenchError(
        "this Ray cluster accepts every connection, and a connection can run any code on it",
        where=address,
        got=f"{'no clear answer' if is_protected is None else 'an answer'} to a request without a token",
        expected="token authentication",
        next_step="start every node with RAY_AUTH_MODE=token and the token of `ray get-auth-token --generate`, or give "
        "--insecure where the network keeps strangers out",
    )


def has_token_mode() -> bool:
    """Returns whether our environment switches token authentication on, also for a cluster that we start."""
    return os.environ.get(_AUTH_MODE, "").lower() == "token"


def requires_token(address: str) -> bool | None:
    """Returns whether a cluster refuses a request without a token; None if it gives no clear answer.

    Call it before `ray.init`, because Ray has no token in this process during the call. A separate process would have
    to import Ray again, which takes half a second.

    Args:
      address: HOST:PORT of the cluster's head.
    """
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    print(f"asking {address} without a token, which it should refuse", file=sys.stderr)
    try:
        with _without_token():
            GcsClient(address=address).check_alive([], timeout=_ANSWER_SECONDS)
    except AuthenticationError:
        return True
    except Exception as error:  # noqa: BLE001  (Ray's boundary: no clear answer)
        print(f"{address} does not answer: {error}", file=sys.stderr)
        return None
    return False


@contextlib.contextmanager
def _without_token() -> Iterator[None]:
    from ray._raylet import Config  # type: ignore[attr-defined]  # compiled

    try:
        with environment_with({_AUTH_MODE: "disabled"}):
            Config.initialize("")  # reads the environment again
            yield
    finally:
        Config.initialize("")


def check_token(address: str) -> None:
    """Checks that a cluster accepts our token. If the cluster does not answer, Ray's own connection reports it.

    Ray would retry for a long time and give the reason in its log only.

    Args:
      address: HOST:PORT of the cluster's head.
    Raises:
      LobenchError: The token is missing or wrong.
    """
    from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    try:
        ensure_token_if_auth_enabled(create_token_if_missing=False)  # Ray's client ends the process that has none
    except AuthenticationError:
        raise _token_error(address, "RAY_AUTH_MODE=token and no token") from None
    try:
        GcsClient(address=address).check_alive([], timeout=_ANSWER_SECONDS)
    except AuthenticationError:
        token_text = (
            "a token that is not this cluster's" if has_token_mode() else "none: RAY_AUTH_MODE is not 'token' here"
        )
        raise _token_error(address, token_text) from None
    except Exception as error:  # noqa: BLE001  (Ray's boundary: joining the cluster reports it)
        print(f"{address} does not answer: {error}", file=sys.stderr)


def _token_error(address: str, got: str) -> LobenchError:
    return LobenchError(
        "this Ray cluster wants its token",
        where=address,
        got=got,
        next_step="give the command RAY_AUTH_MODE=token, and the token that the cluster was started with in "
        "RAY_AUTH_TOKEN or ~/.ray/auth_token",
    )


def is_reachable_from_outside(address: str) -> bool:
    """Returns whether HOST:PORT can be reached from other machines, not only through the loopback interface."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not _is_loopback(host):
        return True
    return any(_accepts_connection(own_address, int(port)) for own_address in _own_addresses())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_addresses() -> set[str]:
    """Returns this machine's addresses other than loopback, as found from its name and its routes."""
    addresses: set[str] = set()
    with contextlib.suppress(OSError):
        addresses.update(str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None))
    for family, outside_address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((outside_address, 9))  # nothing is sent: the system picks the address it would send from
                addresses.add(probe.getsockname()[0])
        except OSError:
            continue
    return {address for address in addresses if not _is_loopback(address.split("%")[0])}


def _accepts_connection(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False
