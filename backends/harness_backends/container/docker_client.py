"""The ``docker`` package for one engine: blocking calls in worker threads, over connections that can be aborted.

The package's own contexts are not used: :mod:`.endpoints` chooses the address, and this module opens the connections,
because the package has no way to end a request that waits for an unresponsive engine.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import requests
from docker import APIClient
from docker.auth import AuthConfig
from docker.errors import APIError, DockerException
from docker.transport import UnixHTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError
from urllib3.util.ssltransport import SSLTransport

from harness.errors import ConnectError, ConnectionLost
from harness.target import Target

from .endpoints import Endpoint, Tls
from .engine import EngineError
from .exec_stream import ExecSocket, TlsSocket

__all__ = ["DockerClient", "DockerRequest"]

REQUEST_TIMEOUT = 20.0
MAX_THREADS = 16
"""Threads for one engine; the other requests wait, so that an unresponsive engine does not occupy all threads."""

MAX_MESSAGE_CHARS = 500

T = TypeVar("T")


# -- Connections, opened by the thread of a request


_REQUEST: ContextVar[DockerRequest] = ContextVar("_REQUEST")
"""The request that the current thread performs."""


def _open_socket(endpoint: Endpoint, timeout: float) -> socket.socket | SSLTransport:
    """Connect to an engine; the socket belongs to the current request."""
    if endpoint.scheme == "unix":
        return _connect_unix(endpoint.address, timeout)
    place = urlsplit(f"//{endpoint.address}")
    host, secure = place.hostname or "", endpoint.tls is not None or endpoint.scheme == "https"
    context = _tls_context(endpoint.tls or Tls()) if secure else None
    sock = _connect_tcp(host, place.port or (2376 if secure else 2375), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else SSLTransport(sock, context, host)


def _connect_unix(path: str, timeout: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    _REQUEST.get().add(sock)
    # A non-blocking attempt fails at once while the listener's queue is full; a blocking one waits, for this time.
    seconds, fraction = divmod(timeout, 1)
    limit = struct.pack("@ll", int(seconds), int(fraction * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    try:
        sock.connect(path)
    except BlockingIOError:
        raise TimeoutError("the engine does not accept connections") from None
    return sock


def _connect_tcp(host: str, port: int, timeout: float) -> socket.socket:
    """Connect to the first address of a host that answers; unlike ``create_connection``, this can be aborted."""
    fault = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        _REQUEST.get().add(sock)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
        except OSError as error:
            sock.close()
            fault = error
        else:
            return sock
    raise fault


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key or None)
    return context


# -- The package's client, with these sockets


class _Connection(HTTPConnection):
    """A connection of a request."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        super().__init__("localhost")
        self._endpoint = endpoint
        self._seconds = timeout

    def connect(self) -> None:
        self.sock = _open_socket(self._endpoint, self._seconds)
        self.sock.settimeout(None)  # the event loop bounds each request


class _Pool(HTTPConnectionPool):
    """The connections to an engine, none of which is kept."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        super().__init__("localhost")
        self._open = partial(_Connection, endpoint, timeout)

    def _new_conn(self) -> _Connection:
        return self._open()

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.close()


class _Adapter(UnixHTTPAdapter):
    """The package's adapter for addresses without a host, with connections of :class:`_Pool`."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        super().__init__(endpoint.url)
        self._pool = _Pool(endpoint, timeout)

    def get_connection(self, url: str, proxies: object = None) -> _Pool:
        return self._pool


class _Client(APIClient):
    """The package's client with one connection for each request, no proxies, and complete exec streams."""

    def __init__(self, endpoint: Endpoint, version: str, timeout: float) -> None:
        super().__init__("unix:///engine", version=version, timeout=None)  # the adapter has the real address
        self.trust_env = False  # no proxies, and no passwords of ~/.netrc
        self.headers["Connection"] = "close"
        # No logins of registries, whose programs may ask the operator; an empty set would be read again for each pull.
        self._auth_configs = AuthConfig({"auths": {"": {}}})
        self._custom_adapter = _Adapter(endpoint, timeout)
        self.mount("http+docker://", self._custom_adapter)

    def _get_raw_response_socket(self, response: requests.Response) -> Any:
        """Return the connection of an exec; the package's method loses output that arrives with the response's head."""
        if "Upgrade" not in response.request.headers:
            return super()._get_raw_response_socket(response)
        self._raise_for_status(response)
        received = response.raw._fp.fp  # the reader of http.client, which may have buffered output
        sock = received.raw._sock
        sock.settimeout(0)
        early = received.peek()
        if isinstance(sock, SSLTransport):
            return TlsSocket(sock, early, response.close)
        return ExecSocket(sock, early, response.close)


# -- Requests in worker threads


class DockerRequest:
    """One request, in worker threads; its sockets are closed when the context exits, unless a stream took them over."""

    def __init__(self, client: DockerClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._running = self._aborted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._abort()

    async def run(self, work: Callable[[APIClient], T], timeout: float = REQUEST_TIMEOUT) -> T:
        """Call ``work`` in a thread.

        Raises:
            EngineError: the engine refused.
            ConnectError, ConnectionLost: the engine cannot be reached.
        """
        call = partial(self._call, work)
        with self._client.translated(), anyio.fail_after(timeout):
            try:
                return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._client.threads)
            except BaseException:
                self._abort()  # ends the thread, if it still runs
                raise

    def _call(self, work: Callable[[APIClient], T]) -> T:
        _REQUEST.set(self)
        with self._lock:
            if self._aborted:  # before this thread ran: the sockets are closed
                raise ConnectionAbortedError("the request was cancelled")
            self._running = True
        try:
            return work(self._client.package)
        finally:
            with self._lock:
                self._running = False
                if self._aborted:
                    self._close()

    def add(self, sock: socket.socket) -> None:
        """Own a socket.

        Raises:
            ConnectionAbortedError: the request was aborted.
        """
        with self._lock:
            self._sockets.append(sock)
            if self._aborted:
                raise ConnectionAbortedError("the request was cancelled")

    def release(self) -> None:
        """Leave the sockets to the stream that uses them."""
        self._sockets = []

    def _abort(self) -> None:
        """End the thread's blocking calls; the sockets are closed when it has left them."""
        with self._lock:
            self._aborted = True
            for sock in self._sockets:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            if not self._running:
                self._close()

    def _close(self) -> None:
        for sock in self._sockets:
            number = sock.detach()  # close() would wait for readers that the package has forgotten
            if number >= 0:
                socket.close(number)


class DockerClient:
    """Access to one engine through the ``docker`` package.

    Args:
        endpoint: its address; never of scheme ``ssh`` or ``program``.
        version: the API version.
        target: the target for errors.
        timeout: seconds that connecting may take.

    Raises:
        ConnectError: the package does not support the API version, or cannot read Docker's configuration.
    """

    def __init__(self, endpoint: Endpoint, version: str, target: Target, timeout: float) -> None:
        self.endpoint = endpoint
        self.threads = anyio.CapacityLimiter(MAX_THREADS)
        self._target = target
        try:
            self.package = _Client(endpoint, version, timeout)
        except (DockerException, ValueError) as error:
            text = f"the docker package cannot be used: {error}"
            raise ConnectError(text, target=target, hint="check the logins (auths) in Docker's config.json") from error

    async def ask(self, work: Callable[[APIClient], T], timeout: float = REQUEST_TIMEOUT) -> T:
        """Perform one request, as :meth:`DockerRequest.run`."""
        with DockerRequest(self) as request:
            return await request.run(work, timeout)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate errors of the package and the system to harness's."""
        try:
            yield
        except APIError as error:
            raise EngineError(error.status_code or 0, _message(error)) from error
        except (requests.RequestException, DockerException, HTTPError, OSError) as error:
            raise self._fault(error) from error
        except (LookupError, TypeError, ValueError) as error:
            raise EngineError(0, "the engine's answer is not valid") from error

    def _fault(self, error: BaseException) -> Exception:
        cause = next(filter(_is_cause, _chain(error)), None)
        if isinstance(cause, OSError) and not isinstance(cause, ConnectionResetError | BrokenPipeError):
            return self._unreachable(cause)
        if isinstance(cause, http.client.BadStatusLine | http.client.LineTooLong) and not isinstance(cause, OSError):
            return EngineError(0, "the endpoint did not return a valid HTTP response")
        if cause is None and isinstance(error, DockerException | ValueError):  # the latter: invalid JSON
            return EngineError(0, str(error))
        return ConnectionLost("the engine closed the connection", target=self._target)

    def _unreachable(self, cause: OSError) -> Exception:
        match cause:
            case ssl.SSLError():
                text = f"the TLS connection to the engine failed: {cause.reason}"
                return ConnectError(text, target=self._target, hint=str(self.endpoint))
            case PermissionError():
                text = f"permission denied for the engine's socket {self.endpoint.address}"
                return ConnectError(text, target=self._target, hint=_PERMISSION_HINT)
            case TimeoutError():
                return ConnectionLost("the engine does not answer", target=self._target, hint=self.hint)
            case _:
                text = f"no engine answers: {(cause.strerror or str(cause)).lower()}"
                return ConnectError(text, target=self._target, hint=self.hint)

    @property
    def hint(self) -> str:
        """The advice for an engine that does not answer."""
        return f"check that it is running and healthy: {self.endpoint}"


_PERMISSION_HINT = (
    "join the group that owns it, or use a rootless engine; access to it gives root access to the machine"
)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_cause(error: BaseException) -> bool:
    """Return True for an error of the system or of ``http.client``, behind those of the packages."""
    packages = requests.RequestException | HTTPError | DockerException
    return isinstance(error, OSError | http.client.HTTPException) and not isinstance(error, packages)


def _message(error: APIError) -> str:
    said = " ".join(str(error.explanation or "").split())
    return said[:MAX_MESSAGE_CHARS] or f"HTTP status {error.status_code}"
