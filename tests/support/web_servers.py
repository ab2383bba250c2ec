"""Real web servers on the loopback, which answer as a test says, and remember what they were asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

__all__ = ["Asked", "Reply", "WebServer", "redirect", "web_server"]


@dataclass(frozen=True)
class Asked:
    """One request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str = ""

    @property
    def query(self) -> dict[str, str]:
        """What stands behind the question mark."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}


@dataclass(frozen=True)
class Reply:
    """One answer. ``endless`` is sent again and again, until the client goes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain; charset=utf-8"})
    endless: bytes = b""
    stays_silent: bool = False


Answer = Reply | Callable[[Asked], Reply]


def redirect(location: str, status: int = 302) -> Reply:
    """A reply that leads elsewhere."""
    return Reply(b"elsewhere", status, {"Location": location})


@dataclass
class WebServer:
    """A server that runs."""

    port: int
    scheme: str
    asked: list[Asked]

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """The URL of one of its pages."""
        return f"{self.scheme}://{host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        """What it was asked for, in order."""
        return [one.path for one in self.asked]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, pages: Mapping[str, Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages = pages
        self.asked: list[Asked] = []
        self.ended = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes, or does not believe the certificate, is no failure of the server."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Asked(self.command, self.path, headers, self.rfile.read(length).decode())
        self.server.asked.append(request)
        page = self.server.pages.get(urlsplit(self.path).path, Reply(b"no such page", 404))
        reply = page(request) if callable(page) else page
        if reply.stays_silent:
            self.server.ended.wait()
            return
        try:
            self._answer(reply)
        except OSError:
            self.close_connection = True  # the client has gone, as it may

    do_POST = do_GET

    def _answer(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if not reply.endless:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        while reply.endless and not self.server.ended.is_set():
            self.wfile.write(reply.endless)

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what they see."""


@contextmanager
def web_server(pages: Mapping[str, Answer], *, context: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    """A server with these pages by their paths without the query; ``context`` makes it speak TLS."""
    server = _Server(pages)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield WebServer(server.server_address[1], "http" if context is None else "https", server.asked)
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
