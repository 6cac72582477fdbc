"""gRPC server of the controller. It listens on loopback by default; other addresses require a token or TLS."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from lobench import ConfigError, LobenchError, StoreError
from lobench.extend import StoreBusy, StoreLock, cause, counted, write_whole
from lobench_pbt.codec import artifact_from_message, trial_to_message
from lobench_pbt.connection import STATUS_BY_REFUSAL, Address, Connection, read_token
from lobench_pbt.proto import pbt_pb2
from lobench_pbt.rpc import servicer_handler
from lobench_pbt.service import Service
from lobench_pbt.study import Study, study_from_json
from lobench_pbt.study_database import StudyRow
from lobench_pbt.transitions import Completion, Score
from lobench_pbt.trial import Refused, State

__all__ = ["Security", "security_from", "serve", "start_server", "stop"]

_NUM_THREADS = 16
_PAGE_SIZE = 500
_PAGE_BYTES = 2 << 20  # clients accept messages of 4 MiB, and a trial with many cases has many metrics
_TICK_SECONDS = 1.0
_GRACE_SECONDS = 5.0  # time for requests in progress when the controller ends
_THREAD_END_SECONDS = 2.0  # time for threads to end
_THREAD_NAMES = "lobench-pbt-request"
_MAX_LINE_LENGTH = 800  # characters, which are encoded with up to nine bytes each


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Access control of a server: a shared token, TLS, both or neither."""

    token: str = ""
    tls_cert: bytes = b""
    tls_key: bytes = b""

    def check(self, listen: str) -> None:
        """Checks that an address is loopback, or that there is a token or TLS.

        Raises:
          ConfigError: The address is refused or invalid.
        """
        host, _, port = listen.rpartition(":")
        is_bare = ":" in host and not (host.startswith("[") and host.endswith("]"))  # gRPC would find no port
        # gRPC would take larger ports modulo 1 << 16.
        if not host or is_bare or not port.isdecimal() or int(port) >= 1 << 16:
            raise ConfigError("--listen", got=repr(listen), expected="HOST:PORT, such as 127.0.0.1:6006 or [::1]:6006")
        if not (_is_loopback(host.strip("[]")) or self.token or self.tls_cert):
            raise ConfigError(
                "an address beyond loopback needs a token or TLS",
                where=f"--listen {listen}",
                next_step="give --token-file, or --tls-cert and --tls-key",
            )


def security_from(token_file: Path | None, tls_cert: Path | None, tls_key: Path | None) -> Security:
    """Reads the token, certificate and key from the files that the command-line options name.

    Raises:
      ConfigError: The token or the certificate is invalid, or its key is missing.
    """
    token = read_token(token_file, ConfigError) if token_file else ""
    if tls_cert is None and tls_key is None:
        return Security(token=token)
    if tls_cert is None or tls_key is None:
        raise ConfigError("--tls-cert and --tls-key go together")
    try:
        # For an invalid certificate gRPC would only report that it cannot listen.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls_cert, tls_key, password="")
        return Security(token=token, tls_cert=tls_cert.read_bytes(), tls_key=tls_key.read_bytes())
    except OSError as error:  # includes ssl's errors
        expected = "a certificate chain and its key without a password, both PEM"
        raise ConfigError(
            "--tls-cert, --tls-key", where=f"{tls_cert}, {tls_key}", got=cause(error), expected=expected
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _TokenCheck(grpc.ServerInterceptor):
    """Rejects requests without the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        token = dict(details.invocation_metadata).get("authorization", "")
        if hmac.compare_digest(token.encode() if isinstance(token, str) else token, self._expected):
            return continuation(details)
        return grpc.unary_unary_rpc_method_handler(_refuse_caller)


def _refuse_caller(request: Any, context: grpc.ServicerContext) -> Any:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong; give --token-file")


@contextmanager
def _report_refusals(context: grpc.ServicerContext) -> Iterator[None]:
    """Converts refusals of the service into a gRPC status with one line."""
    try:
        yield
    except Refused as error:
        context.abort(STATUS_BY_REFUSAL[error.refusal], _short_line(error))
    except ConfigError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, _short_line(error))
    except RecursionError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is nested too deeply")
    except StoreError as error:
        # A full disk may be freed. Nothing was changed, and clients retry as long as their patience lasts.
        context.abort(grpc.StatusCode.UNAVAILABLE, _short_line(error))
    except LobenchError as error:
        context.abort(grpc.StatusCode.INTERNAL, _short_line(error))


def _short_line(error: LobenchError) -> str:
    """Returns the line of an error, shortened in the middle if it is long: gRPC drops the status code above 8 KiB."""
    line = str(error)
    return (
        line
        if len(line) <= _MAX_LINE_LENGTH
        else f"{line[: _MAX_LINE_LENGTH // 2]} ... {line[-_MAX_LINE_LENGTH // 2 + 5 :]}"
    )


class _Servicer:
    """gRPC servicer: converts messages to calls of the service and back."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def CreateStudy(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            return self._study(self._service.create_study(study_from_json(request.config)))

    def GetStudy(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            return self._study(self._service.get_study(request.study)[0])

    def StopStudy(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            return self._study(self._service.stop_study(request.study))

    def ListTrials(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            name = self._service.get_study(request.study)[0].name
            limit = min(request.limit or _PAGE_SIZE, _PAGE_SIZE)
            trials = self._service.list_trials(name, after=request.after_id, limit=limit)
            messages: list[pbt_pb2.Trial] = []
            size = 0
            for trial in trials:
                message = trial_to_message(trial, study=name)
                size += message.ByteSize()
                if messages and size > _PAGE_BYTES:
                    break
                messages.append(message)
            is_truncated = len(messages) < len(trials)
            return pbt_pb2.ListTrialsReply(trials=messages, more=is_truncated or len(messages) == limit)

    def Suggest(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            suggestion = self._service.suggest(
                request.study, request.worker, process=request.process, gone=request.gone
            )
            row, lease_seconds = suggestion.trial, suggestion.lease_seconds
            trial = trial_to_message(row, study=request.study, lease_seconds=lease_seconds) if row is not None else None
            return pbt_pb2.SuggestReply(answer=suggestion.answer.name, trial=trial, holder=suggestion.holder)

    def Heartbeat(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            stop = self._service.heartbeat(request.study, request.trial, request.attempt, process=request.process)
            return pbt_pb2.HeartbeatReply(stop=stop)

    def AddMeasurement(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            stop = self._service.add_measurement(
                request.study,
                request.trial,
                request.attempt,
                step=request.step,
                seconds=request.seconds,
                metrics=dict(request.metrics),
                process=request.process,
            )
            return pbt_pb2.AddMeasurementReply(stop=stop)

    def Complete(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            completion = Completion(
                attempt=request.attempt,
                checkpoint=artifact_from_message(request.checkpoint),
                train_state=artifact_from_message(request.train_state),
                metrics=dict(request.metrics),
                n_steps=request.n_steps,
                reason=request.infeasible_reason,
            )
            ended_trial = self._service.complete(request.study, request.trial, completion, process=request.process)
            return trial_to_message(ended_trial, study=request.study)

    def ReportFitness(self, request: Any, context: Any) -> Any:
        with _report_refusals(context):
            missing_reason = request.missing_reason
            metrics = None if missing_reason else dict(request.metrics)
            score = Score(metrics=metrics, reason=missing_reason)
            verdict = self._service.report_fitness(
                request.study, request.trial, generation=request.generation, sha256=request.sha256, score=score
            )
            return pbt_pb2.ReportFitnessReply(verdict=verdict.name)

    def _study(self, row: StudyRow) -> pbt_pb2.Study:
        counts = self._service.get_study(row.name)[1]
        return pbt_pb2.Study(name=row.name, config=row.config, stopped=row.stopped, num_trials=counts)


def start_server(
    service: Service, listen: str, security: Security, threads: futures.ThreadPoolExecutor | None = None
) -> tuple[grpc.Server, str]:
    """Starts serving. Returns the server and its address with the actual port.

    Args:
      threads: Threads for requests. None: a new pool.
    Raises:
      ConfigError: The address is not loopback, and there is neither a token nor TLS.
      StoreError: The address is in use.
    """
    security.check(listen)
    interceptors: list[grpc.ServerInterceptor] = [_TokenCheck(security.token)] if security.token else []
    # Without SO_REUSEPORT, so that a second controller on the port is an error.
    server = grpc.server(
        threads or _request_threads(),
        interceptors=interceptors,
        options=[("grpc.so_reuseport", 0)],
    )
    server.add_generic_rpc_handlers((servicer_handler(_Servicer(service)),))
    try:
        if security.tls_cert:
            credentials = grpc.ssl_server_credentials([(security.tls_key, security.tls_cert)])
            port = server.add_secure_port(listen, credentials)
        else:
            port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise StoreError("cannot listen here", where=listen, got=cause(error)) from error
    server.start()
    return server, f"{listen.rpartition(':')[0]}:{port}"


def _request_threads() -> futures.ThreadPoolExecutor:
    return futures.ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix=_THREAD_NAMES)


def serve(study: Study, store: Path, *, listen: str, security: Security, log: Callable[[str], None]) -> bool:
    """Serves a study until SIGINT or SIGTERM. Creates the study if it is new.

    Returns:
      Whether a request still hangs on a file system. Python's own exit would wait for its thread.
    Raises:
      ConfigError, Refused: The study is invalid, or a different study has the same name.
      StoreError: The store is busy.
    """
    security.check(listen)
    lock = _acquire_lock(store)
    end_requested = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end_requested.set())
    service = Service(store)
    try:
        service.create_study(study)
        service.resume()
        threads = _request_threads()
        server, address = start_server(service, _listen_address(store, listen), security, threads)
        write_whole(store / "address", address)
        log(f"study {study.name!r} is served at {address}; store: {store}")
        problem = ""
        while not end_requested.wait(_TICK_SECONDS):
            try:
                service.expire()  # deadlines also pass without requests
                problem = ""
            except StoreError as error:
                if str(error) != problem:
                    log(f"{error}; clients wait")
                problem = str(error)
        server_stopped = server.stop(grace=_GRACE_SECONDS)
        server_stopped.wait(_GRACE_SECONDS)
    finally:
        service.close()
        lock.release()
    server_stopped.wait(_THREAD_END_SECONDS)
    threads.shutdown(wait=False)  # grpc leaves idle threads waiting for requests
    return _is_request_left(log)


def _is_request_left(log: Callable[[str], None]) -> bool:
    """Returns whether a request hangs on a file system, after waiting for it."""
    deadline = time.monotonic() + _THREAD_END_SECONDS
    request_threads = [thread for thread in threading.enumerate() if thread.name.startswith(_THREAD_NAMES)]
    for thread in request_threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    is_hanging = any(thread.is_alive() for thread in request_threads)
    if is_hanging:
        log("a request was still waiting for its files; it is given up, and nothing of it was taken")
    return is_hanging


def stop(store: Path, name: str, *, options: str, log: Callable[[str], None]) -> None:
    """Stops a study through the controller that serves it, or in the store if it is not served.

    Args:
      store: Folder of the store.
      name: Name of the study.
      options: Credentials in the form of an address: `,token_file=F,ca=F`.
      log: Receives lines of progress.
    Raises:
      Refused: The study does not exist.
      LobenchError: The controller does not answer, or denies access.
    """
    if not (store / "pbt.sqlite").is_file():
        raise StoreError("no study found", where=str(store), next_step="is --store right?")
    try:
        lock = _acquire_lock(store)
    except StoreBusy:
        connection = Connection(Address.parse((store / "address").read_text().strip() + options), patience=10.0)
        with contextlib.closing(connection):
            study = connection.call(connection.stub.StopStudy, pbt_pb2.StopStudyRequest(study=name))
        name, counts_by_state = study.name, study.num_trials
    else:
        service = Service(store)
        try:
            service.resume()  # so that no lease expires because no controller was listening
            name = service.stop_study(name).name
            counts_by_state = service.get_study(name)[1]
        finally:
            service.close()
            lock.release()
    num_unfinished = sum(counts_by_state.get(state, 0) for state in (State.STOPPING, State.AWAITING_FITNESS))
    log(
        f"study {name!r} is stopped: no trial begins any more; "
        f"those in progress may still end: {counted(num_unfinished, 'trial')}"
    )


def _listen_address(store: Path, listen: str) -> str:
    """Returns the address to listen on.

    If the requested port is 0, it is the store's previous address if that is free, because clients already know it.
    """
    host, _, port = listen.rpartition(":")
    with contextlib.suppress(OSError):
        earlier_address = (store / "address").read_text().strip()
        if port == "0" and earlier_address.rpartition(":")[0] == host:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host.strip("[]"), int(earlier_address.rpartition(":")[2])))
            return earlier_address
    return listen


def _acquire_lock(store: Path) -> StoreLock:
    return StoreLock(store, file="pbt.lock", busy_message="another controller serves this store")
