"""Connection to the controller that survives its restarts."""

from __future__ import annotations

import logging
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from lobench import LobenchError, UsageError
from lobench.extend import cause
from lobench_pbt.rpc import PbtStub
from lobench_pbt.trial import Refusal, Refused

__all__ = ["STATUS_BY_REFUSAL", "Address", "Connection", "ControllerAway", "read_token"]

_LOG = logging.getLogger(__name__)
STATUS_BY_REFUSAL = {  # gRPC codes of refusals
    Refusal.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Refusal.STALE: grpc.StatusCode.FAILED_PRECONDITION,
    Refusal.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Refusal.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
}
_REFUSALS_BY_CODE = {code: refusal for refusal, code in STATUS_BY_REFUSAL.items()}
# Codes of calls that a killed controller breaks. All requests may be repeated.
_RETRIED_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_CALL_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 2.0
_LOG_AFTER_SECONDS = 3.0  # wait before waiting is logged; a restarting controller is back sooner


def read_token(path: Path, error_class: type[LobenchError]) -> str:
    """Reads the shared token from a file. Warns if all users of this machine may read it.

    Raises:
      `error_class`: The file cannot be read, is empty, or has characters that a request cannot contain.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
        is_world_readable = path.stat().st_mode & stat.S_IROTH
    except OSError as error:
        raise error_class("cannot read the token", where=str(path), got=cause(error)) from error
    except UnicodeDecodeError:
        token, is_world_readable = "\0", 0
    if not token:
        raise error_class("the token is empty", where=str(path))
    if not token.isprintable():
        raise error_class("not a token", where=str(path), expected="one line of ASCII")
    if is_world_readable:
        _LOG.warning("%s: everybody on this machine may read the token; `chmod o-r` it", path)
    return token


class ControllerAway(LobenchError):
    """The controller does not answer, possibly only for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of a controller with its credentials: `HOST:PORT[,study=S][,token_file=F][,ca=F]`."""

    target: str
    study: str = ""
    token: str = ""
    ca: bytes = b""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address.

        Raises:
          UsageError: The text is malformed, or names a file that cannot be read.
        """
        target, *options = text.split(",")
        values = dict(option.partition("=")[::2] for option in options)
        unknown_options = set(values) - {"study", "token_file", "ca"}
        if ":" not in target or unknown_options:
            expected = "HOST:PORT[,study=NAME][,token_file=FILE][,ca=FILE]"
            raise UsageError("the address of a controller", got=repr(text), expected=expected)
        try:
            token = read_token(Path(values["token_file"]), UsageError) if "token_file" in values else ""
            ca = Path(values["ca"]).read_bytes() if "ca" in values else b""
        except OSError as error:
            raise UsageError("cannot read it", where=str(error.filename), got=error.strerror or "") from error
        return cls(target=target, study=values.get("study", ""), token=token, ca=ca)


class Connection:
    """Calls that wait up to `patience` seconds each while the controller is away."""

    def __init__(self, address: Address, *, patience: float) -> None:
        self.address, self._patience = address, patience
        # Reconnect soon, because a restarting controller is back within seconds.
        options = [("grpc.max_reconnect_backoff_ms", 2000), ("grpc.initial_reconnect_backoff_ms", 100)]
        if address.ca:
            credentials = grpc.ssl_channel_credentials(root_certificates=address.ca)
            self._channel = grpc.secure_channel(address.target, credentials, options=options)
        else:
            self._channel = grpc.insecure_channel(address.target, options=options)
        self.stub = PbtStub(self._channel)
        self.metadata = [("authorization", f"Bearer {address.token}")] if address.token else []

    def call(self, method: Callable[..., Any], request: Any) -> Any:
        """Calls the controller until it answers. Reports once, after a few seconds, that it is waiting.

        Raises:
          Refused: The controller refused the request.
          LobenchError: The controller did not answer in time, or denied access.
        """
        started_at = time.monotonic()
        pause_seconds = 0.05
        is_logged = False
        while True:
            try:
                return self.call_once(method, request)
            except ControllerAway as error:
                waited_seconds = time.monotonic() - started_at
                if waited_seconds > self._patience:
                    raise
                if waited_seconds > _LOG_AFTER_SECONDS and not is_logged:
                    is_logged = True
                    _LOG.warning("%s; waiting for it, %.0f s at most", error, self._patience - waited_seconds)
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    def call_once(self, method: Callable[..., Any], request: Any) -> Any:
        """Calls the controller without retries.

        Raises:
          ControllerAway: The controller did not answer.
          Refused: The controller refused the request.
          LobenchError: The controller denied access.
        """
        try:
            return method(request, timeout=_CALL_SECONDS, metadata=self.metadata)
        except grpc.RpcError as error:
            code = error.code()
            details = error.details() or ""
            if code in _REFUSALS_BY_CODE:
                raise Refused(_REFUSALS_BY_CODE[code], details) from error
            error_class = ControllerAway if code in _RETRIED_CODES else LobenchError
            raise error_class(f"the controller: {code.name.lower()}", where=self.address.target, got=details) from error

    def close(self) -> None:
        self._channel.close()
