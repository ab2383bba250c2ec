"""A real HTTP server that speaks as the providers of models do, and answers as a test says.

Use::

    with model_server([Answer((Text("Looking."), Call("run_shell", {"command": "df"}))), say("Full.")]) as server:
        # base URLs: server.openai_url (chat and responses), server.anthropic_url, server.google_url,
        # server.openrouter_url, server.ollama_url, server.bedrock_url; any key will do unless key="..." is given.
        ...
        assert server.asked[0].body["messages"][-1]["content"] == "What fills the disk?"

Replies, one for each request, in order:

* ``say("text")``, ``call("tool", {"argument": 1})``: the two most usual ones.
* ``Answer((Reasoning("hm"), Text("a"), Call("tool", {...}), Call("tool", "{broken json")))``: pieces in order; several
  calls are parallel ones; ``Answer()`` is an empty answer; ``finish="length"`` ends it early;
  ``usage=ReportedUsage(...)``
* ``Gate()`` between pieces: ``await gate.reached()``, then ``gate.open()``. No sleeps. A client that goes meanwhile is
  seen: ``server.asked[0].abandoned`` is an Event that is then set.
* ``Cut()``: the connection ends there, in mid-answer; with ``Stop()`` only the answer does.
* ``Raw(b"data: {nonsense\\n\\n")``: such bytes in the stream.
* ``Failure("rate_limit", headers={"Retry-After": "1"})``: an HTTP error in the provider's form; the kinds are auth,
  quota, rate_limit, overloaded, context_length, bad_request, server, missing; ``status=`` is another code than usual;
  ``body=`` is another body. As a piece of an Answer the error comes within the stream.
* ``When("some text", reply)``: for the first request whose JSON holds the text, whatever its turn (for sub-agents).
* a function of the :class:`Asked`, which returns an Answer or a Failure. Instead of a list it serves every request.

The history of each request is checked as the provider does it (each call answered once and in its place, nothing
empty, roles that alternate). What it refuses is answered with 400 in its form and noted in ``server.refused``, and
takes no reply of the script; so does a request after the script's end. Tests end with ``assert not server.refused``.

As a program, for prompts that are driven in a terminal::

    python -m tests.support.model_server SCRIPT.json

prints ``{"url": ..., "openai": ..., "anthropic": ...}`` and serves until it is ended. The script is a list of
replies: ``{"text": ..., "reasoning": ..., "calls": [{"name": ..., "arguments": {...}}]}``, or
``{"pieces": [{"text": ...}, {"gate": "NAME"}, {"call": {...}}, {"cut": true}, {"failure": {...}}]}``, or
``{"failure": {"kind": "rate_limit", "headers": {...}}}``; each may have ``"when"``, ``"finish"`` and ``"usage"``.
``POST /_open/NAME`` opens a gate, ``GET /_reached/NAME`` waits for one, ``GET /_asked`` is what was asked so far.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.model_wire.anthropic import AnthropicDialect
from tests.support.model_wire.bedrock import BedrockDialect
from tests.support.model_wire.chat import ChatDialect
from tests.support.model_wire.dialect import Dialect, Sent, Setting
from tests.support.model_wire.gemini import GeminiDialect
from tests.support.model_wire.responses import ResponsesDialect
from tests.support.model_wire.values import (
    Answer,
    Call,
    Cut,
    Failure,
    Gate,
    Piece,
    Raw,
    Reasoning,
    ReportedUsage,
    Stop,
    Text,
    When,
)

__all__ = [
    "Answer",
    "Asked",
    "Call",
    "Cut",
    "Failure",
    "Gate",
    "ModelServer",
    "Raw",
    "Reasoning",
    "Reply",
    "ReportedUsage",
    "Script",
    "Stop",
    "Text",
    "When",
    "call",
    "model_server",
    "say",
]

GOOGLE_VERBS = (":generateContent", ":streamGenerateContent")


@dataclass(frozen=True)
class Asked:
    """One request to a model. The names of its headers are in lower case; keys are not in its ``repr``."""

    path: str
    dialect: str
    model: str
    streamed: bool
    body: Mapping[str, Any] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    abandoned: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the client went before it had the whole answer."""

    @property
    def text(self) -> str:
        """All of the JSON, not escaped: to look for what was sent."""
        return json.dumps(self.body, ensure_ascii=False)

    @property
    def key(self) -> str:
        """The key that came with it."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("x-api-key", "") or self.headers.get("x-goog-api-key", "")


Said = Answer | Failure
Reply = Said | When | Callable[[Asked], Said]
Script = Sequence[Reply] | Callable[[Asked], Said]


def say(text: str, *, usage: ReportedUsage | None = None) -> Answer:
    """An answer of text alone, in small pieces, but at most a hundred: each costs milliseconds."""
    return Answer((Text(text, size=max(Text.size, len(text) // 100)),), usage=usage)


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str = "") -> Answer:
    """An answer that is one call."""
    return Answer((Call(name, arguments if arguments is not None else {}, id),))


@dataclass
class ModelServer:
    """A server that runs. ``asked`` are the valid requests, ``refused`` what was wrong with the others."""

    port: int
    asked: list[Asked]
    refused: list[str]
    scheme: str
    _more: threading.Condition = field(repr=False)

    @property
    def url(self) -> str:
        """Its root."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def openai_url(self) -> str:
        """The base URL for OpenAI's two APIs, and what is compatible with them."""
        return f"{self.url}/v1"

    ollama_url = openai_url

    @property
    def openrouter_url(self) -> str:
        """The base URL for OpenRouter."""
        return f"{self.url}/api/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for Anthropic."""
        return self.url

    google_url = bedrock_url = anthropic_url

    def wait_for_requests(self, count: int, timeout: float = 60) -> None:
        """Return when that many requests have come; blocks the thread.

        Raises:
            TimeoutError: they have not.
        """
        with self._more:
            if not self._more.wait_for(lambda: len(self.asked) >= count, timeout):
                raise TimeoutError(f"{len(self.asked)} requests came instead of {count}")


@contextmanager
def model_server(
    script: Script, *, key: str = "", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[ModelServer]:
    """A server on the loopback. With ``key`` it answers 401 to every other key; ``tls`` makes it speak TLS."""
    server = _Server(script, key, port)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="model server")
    thread.start()
    try:
        scheme = "http" if tls is None else "https"
        yield ModelServer(server.server_address[1], server.asked, server.refused, scheme, server.more)
    finally:
        server.end()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, script: Script, key: str, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.every = script if callable(script) else None
        self.replies = [] if callable(script) else list(script)
        self.gates = {gate.name: gate for gate in _gates(self.replies)}
        self.key = key
        self.asked: list[Asked] = []
        self.refused: list[str] = []
        self.more = threading.Condition()
        self.ended = threading.Event()
        self.open: set[socket.socket] = set()

    def next(self, asked: Asked) -> tuple[int, Said | None]:
        """The number of the request, and the reply; None when the script is at its end."""
        with self.more:
            self.asked.append(asked)
            number = len(self.asked)
            self.more.notify_all()
            reply = self._reply(asked)
        return number, reply(asked) if callable(reply) else reply

    def _reply(self, asked: Asked) -> Said | Callable[[Asked], Said] | None:
        if self.every is not None:
            return self.every
        for place, reply in enumerate(self.replies):
            if isinstance(reply, When) and reply.text in asked.text:
                del self.replies[place]
                return reply.reply
        plain = next((place for place, reply in enumerate(self.replies) if not isinstance(reply, When)), None)
        if plain is None:
            return None
        reply = self.replies.pop(plain)
        assert not isinstance(reply, When)
        return reply

    def end(self) -> None:
        """Let nothing wait any more."""
        self.ended.set()
        self.shutdown()
        for connection in tuple(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes is no failure of the server."""


def _gates(replies: Sequence[Reply]) -> Iterator[Gate]:
    for reply in replies:
        answer = reply.reply if isinstance(reply, When) else reply
        if isinstance(answer, Answer):
            yield from (piece for piece in answer.pieces if isinstance(piece, Gate))


class _Gone(Exception):
    """The client went, or the server ends."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Tests say what they see."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/_asked":
            self._send(200, {"asked": [one.body for one in self.server.asked], "refused": self.server.refused})
        elif path.startswith("/_reached/"):
            found = self.server.gates[path.removeprefix("/_reached/")].was_reached.wait(60)
            self._send(200 if found else 504, {"reached": found})
        elif path.endswith("/models"):
            self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "test"}]})
        else:
            self._send(404, {"error": {"message": f"no such page: {path}", "type": "not_found", "code": None}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path.startswith("/_open/"):
            self.server.gates[path.removeprefix("/_open/")].open()
            self._send(200, {"open": True})
            return
        dialect = _dialect(path)
        if dialect is None:
            self._send(404, {"error": {"message": f"no such API: {path}", "type": "not_found", "code": None}})
            return
        asked = self._asked(dialect, path, raw)
        with suppress(_Gone, OSError):
            self._answer(dialect, asked, len(raw))
            return
        asked.abandoned.set()
        self.close_connection = True

    def _asked(self, dialect: Dialect, path: str, raw: bytes) -> Asked:
        body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        if isinstance(dialect, BedrockDialect):
            model, verb = unquote(path).removeprefix("/model/").rsplit("/", 1)
            return Asked(self.path, dialect.name, model, verb.endswith("stream"), body, headers)
        if isinstance(dialect, GeminiDialect):
            model, _, verb = path.rpartition("/")[2].partition(":")
            return Asked(self.path, dialect.name, model, verb.startswith("stream"), body, headers)
        return Asked(self.path, dialect.name, str(body.get("model")), bool(body.get("stream")), body, headers)

    def _answer(self, dialect: Dialect, asked: Asked, size: int) -> None:
        if self.server.key and asked.key != self.server.key:
            self._fail(dialect, Failure("auth"))
            return
        if problem := _problem(dialect, asked.body):
            self._refuse(dialect, problem)
            return
        number, reply = self.server.next(asked)
        if reply is None:
            self._refuse(dialect, "the script of this server is at its end")
        elif isinstance(reply, Failure):
            self._fail(dialect, reply)
        else:
            setting = Setting(asked.model, number, size)
            self._play(dialect, reply.numbered(number), setting, streamed=asked.streamed)

    def _refuse(self, dialect: Dialect, problem: str) -> None:
        self.server.refused.append(f"{dialect.name}: {problem}")
        self._fail(dialect, Failure("bad_request", problem))

    def _fail(self, dialect: Dialect, failure: Failure) -> None:
        status = failure.code
        document = dialect.error(failure)
        if isinstance(dialect, GeminiDialect):
            status = document["error"]["code"]
        elif isinstance(dialect, BedrockDialect):
            status = dialect.status(failure)
        body = json.dumps(document) if failure.body is None else failure.body
        self._send_bytes(status, body.encode(), failure.headers)

    def _play(self, dialect: Dialect, answer: Answer, setting: Setting, *, streamed: bool) -> None:
        if not streamed:
            for piece in answer.pieces:
                if isinstance(piece, Gate | Cut):
                    self._hold(piece)
            self._send(200, dialect.whole(answer, setting))
            return
        self.send_response(200)
        self.send_header("Content-Type", getattr(dialect, "content_type", "text/event-stream"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for sent in dialect.stream(answer, setting):
            self._stream(sent)
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self, sent: Sent) -> None:
        if isinstance(sent, bytes):
            self.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
        else:
            self._hold(sent)

    def _hold(self, piece: Gate | Cut) -> None:
        if isinstance(piece, Cut):
            raise _Gone
        piece.was_reached.set()
        while not piece.is_open.wait(0.02):
            if self.server.ended.is_set() or self._client_has_gone():
                raise _Gone

    def _client_has_gone(self) -> bool:
        if isinstance(self.connection, ssl.SSLSocket):
            return False  # it cannot be looked at without reading
        ready, _, _ = select.select([self.connection], [], [], 0)
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def _send(self, status: int, document: Mapping[str, Any]) -> None:
        self._send_bytes(status, json.dumps(document).encode(), {})

    def _send_bytes(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": "application/json", "Date": self.date_time_string(), **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _problem(dialect: Dialect, body: Mapping[str, Any]) -> str:
    try:
        return dialect.problem(body)
    except (AttributeError, KeyError, TypeError) as error:
        return f"a request that no provider understands: {error!r}"


def _dialect(path: str) -> Dialect | None:
    if path.endswith("/chat/completions"):
        return ChatDialect("Somebody" if path.startswith("/api/") else "")
    if path.endswith("/responses"):
        return ResponsesDialect()
    if path.endswith("/messages"):
        return AnthropicDialect()
    if path.endswith(("/converse", "/converse-stream")):
        return BedrockDialect()
    return GeminiDialect() if path.endswith(GOOGLE_VERBS) else None


# -- the program


def _reply_of(document: Mapping[str, Any]) -> Reply:
    said = _said_of(document)
    return When(document["when"], said) if "when" in document else said


def _said_of(document: Mapping[str, Any]) -> Said:
    if "failure" in document:
        return Failure(**document["failure"])
    usage = ReportedUsage(**document["usage"]) if "usage" in document else None
    pieces = [_piece_of(piece) for piece in document.get("pieces", ())]
    pieces += [_piece_of({key: document[key]}) for key in ("reasoning", "text") if key in document]
    pieces += [Call(**one) for one in document.get("calls", ())]
    return Answer(tuple(pieces), document.get("finish", ""), usage)


def _piece_of(document: Mapping[str, Any]) -> Piece:
    ((kind, value),) = document.items()
    makers: Mapping[str, Callable[[Any], Piece]] = {
        "text": Text,
        "reasoning": Reasoning,
        "call": lambda value: Call(**value),
        "gate": Gate,
        "cut": lambda _: Cut(),
        "stop": lambda _: Stop(),
        "raw": lambda value: Raw(value.encode()),
        "failure": lambda value: Failure(**value),
    }
    return makers[kind](value)


def main(arguments: Sequence[str]) -> None:
    """Serve the script of a file until ended."""
    replies = [_reply_of(document) for document in json.loads(Path(arguments[0]).read_text())]
    with model_server(replies) as server:
        urls = {"url": server.url, "openai": server.openai_url, "anthropic": server.anthropic_url}
        sys.stdout.write(json.dumps({**urls, "google": server.google_url}) + "\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
