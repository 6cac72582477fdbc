"""Access control of Ray clusters: a cluster that other machines can reach must require a token.

Our environment's authentication settings need not be those of the cluster. Therefore a process without a token asks the
cluster itself. Source of the rules: docs.ray.io, "Ray token authentication".
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import subprocess
import sys

from lobench import LobenchError

__all__ = ["check_access", "check_token", "is_reachable_from_outside"]

_NEEDS_A_TOKEN = 10
_PROBE_SECONDS = 60
_ANSWER_SECONDS = 10


def check_access(address: str, *, insecure: bool) -> None:
    """Raises an error for a cluster that other machines can reach and that requires no token.

    Args:
      address: HOST:PORT of the cluster's head.
      insecure: Whether the user accepts such a cluster.
    Raises:
      LobenchError: The cluster is open, or does not answer. The message has the next step.
    """
    if insecure or not is_reachable_from_outside(address):
        return
    problem = _without_a_token(address)
    if problem == _NEEDS_A_TOKEN:
        return
    answer_text = (
        "an answer to a request without a token" if problem == 0 else "no clear answer to a request without a token"
    )
    raise LobenchError(
        "this Ray cluster accepts every connection, and a connection can run any code on it",
        where=address,
        got=answer_text,
        expected="token authentication",
        next_step="start every node with RAY_AUTH_MODE=token and the token of `ray get-auth-token --generate`, or give "
        "--insecure where the network keeps strangers out",
    )


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

    is_on = os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    try:
        ensure_token_if_auth_enabled(create_token_if_missing=False)  # Ray's client ends the process that has none
    except AuthenticationError:
        raise _needs_a_token(address, "RAY_AUTH_MODE=token and no token") from None
    try:
        GcsClient(address=address).check_alive([], timeout=_ANSWER_SECONDS)
    except AuthenticationError:
        token_text = "a token that is not this cluster's" if is_on else "none: RAY_AUTH_MODE is not 'token' here"
        raise _needs_a_token(address, token_text) from None
    except Exception as error:  # noqa: BLE001  (Ray's boundary: joining the cluster reports it)
        print(f"{address} does not answer: {error}", file=sys.stderr)


def _needs_a_token(address: str, got: str) -> LobenchError:
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
    return any(_accepts(own_address, int(port)) for own_address in _own_addresses())


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
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))  # nothing is sent: the system picks the address it would send from
                addresses.add(probe.getsockname()[0])
        except OSError:
            continue
    return {address for address in addresses if not _is_loopback(address.split("%")[0])}


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def _without_a_token(address: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    environment["RAY_AUTH_MODE"] = "disabled"
    command = [sys.executable, "-P", "-m", "lobench_ray.access", address]
    try:
        process = subprocess.run(command, env=environment, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return -1
    return process.returncode


def _probe(address: str) -> int:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address).check_alive([], timeout=_ANSWER_SECONDS)
    except AuthenticationError:
        return _NEEDS_A_TOKEN
    return 0


if __name__ == "__main__":
    sys.exit(_probe(sys.argv[1]))
