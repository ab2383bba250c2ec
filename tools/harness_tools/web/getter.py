"""Following a URL to its page, one request at a time: headers, redirects, and requests by the target."""

from __future__ import annotations

import ipaddress
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import anyio

from harness.context import ExecutionContext
from harness.results import ShellResult, Status
from harness.toolkit import Subject
from harness.toolkit.web_settings import AllowedHost

from .pages import HttpResponse, Inflater, Page, WebFailure
from .urls import WebUrl

__all__ = [
    "HttpClient",
    "RequestHeaders",
    "TargetHttpClient",
    "check_headers",
    "command_for",
    "follow",
    "headers_for",
    "read_answer",
    "request_subjects",
]


# -- Which headers of a model are sent, and where to. Pure.


MAX_HEADERS = 32
LONGEST = 4_096
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
CREDENTIALS = frozenset({"authorization", "cookie"})
OURS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "keep-alive"),
        *("expect", "accept-encoding", "range", "proxy-authorization", "proxy-connection", "x-harness-token"),
    }
)
"""Headers that the HTTP client controls, and the proxy's and harness's own credentials."""
ANYWHERE = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that are also sent to another server after a redirect."""
DEFAULTS = {"accept": "text/html,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5", "user-agent": "harness"}


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names.

    Raises:
        ValueError: A header is invalid, or there are too many.
    """
    found = {name.lower(): value.strip(" \t") for name, value in headers.items()}
    if len(headers) > MAX_HEADERS or len(found) < len(headers):
        raise ValueError(f"{MAX_HEADERS} headers are allowed, each once")
    for name, value in found.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:64]!r} is not a valid header name")
        if len(value) > LONGEST or not _VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} is too long, or contains invalid characters")
    return found


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The headers of one request, and the names of headers that are not sent."""

    headers: Mapping[str, str]
    origin: tuple[str, str, int]
    kept_back: tuple[str, ...] = ()

    def toward(self, url: WebUrl) -> RequestHeaders:
        """Return the headers for the next request; another server gets only harmless ones."""
        if url.origin == self.origin:
            return self
        kept = {name: value for name, value in self.headers.items() if name in ANYWHERE}
        return replace(self, headers=kept)


def headers_for(url: WebUrl, given: Mapping[str, str], trusted: Iterable[AllowedHost]) -> RequestHeaders:
    """Return the headers for the first server; credentials go only to hosts that the operator named."""
    unwanted = OURS if any(_names(place, url) for place in trusted) else OURS | CREDENTIALS
    sent = {name: value for name, value in given.items() if name not in unwanted}
    return RequestHeaders(DEFAULTS | sent, url.origin, tuple(sorted(set(given) & unwanted)))


def _names(place: AllowedHost, url: WebUrl) -> bool:
    if place.port not in (None, url.port):
        return False
    if place.network is None:
        return place.name == url.host
    try:
        address = ipaddress.ip_address(url.host)
    except ValueError:
        return False
    return address.version == place.network.version and address in place.network


# -- Following a URL to its page, one request at a time.


REDIRECTS = 10
"""Maximum number of redirects."""
MOVED = frozenset({301, 302, 303, 307, 308})

Allow = Callable[[tuple[Subject, ...]], Awaitable[None]]
"""Asks whether these may be accessed; raises :class:`WebFailure` if not."""


class HttpClient(ABC):
    """Interface for making requests, from one machine or another."""

    def subjects(self, url: WebUrl, sent: RequestHeaders, most: int) -> tuple[Subject, ...]:
        """Return what one request accesses, for the policy."""
        return (Subject("url", str(url)),)

    @abstractmethod
    async def get(self, url: WebUrl, sent: RequestHeaders, most: int, timeout: float) -> HttpResponse:
        """Make one GET request without following redirects.

        Args:
            most: Maximum bytes of the decompressed body.
            timeout: Seconds for the whole request; an incomplete body is returned as far as it was received.

        Raises:
            WebFailure: No response arrives.
        """


@dataclass(slots=True)
class _NetworkDeadline:
    """Remaining seconds for network operations; the time of approvals is not counted."""

    left: float

    async def spend(self, work: Callable[[float], Awaitable[HttpResponse]]) -> HttpResponse:
        started = anyio.current_time()
        try:
            return await work(max(self.left, 0.1))
        finally:
            self.left -= anyio.current_time() - started


async def follow(
    url: WebUrl, sent: RequestHeaders, getter: HttpClient, allow: Allow, *, most: int, timeout: float
) -> Page:
    """Return the page that a URL leads to; each URL but the first, which is already allowed, is checked.

    Raises:
        WebFailure: No response arrives, a URL is denied, or there are too many redirects.
    """
    hops: list[WebUrl] = []
    time = _NetworkDeadline(timeout)
    while True:
        at, headers = url, sent
        answer = await time.spend(lambda left: getter.get(at, headers, most, left))  # noqa: B023  # awaited at once
        location = answer.headers.get("location", "")
        if answer.status not in MOVED or not location:
            return Page(url, answer, tuple(hops))
        if len(hops) == REDIRECTS:
            raise WebFailure("too_many_redirects", f"{hops[0]} redirects more than {REDIRECTS} times, now to {url}")
        following = _next(url, location)
        hops.append(url)
        url, sent = following, sent.toward(following)
        await allow(getter.subjects(url, sent, most))


def _next(url: WebUrl, location: str) -> WebUrl:
    """Return the target of a redirect. Pure."""
    try:
        following = url.join(location)
    except ValueError as error:
        raise WebFailure("bad_redirect", f"{url} redirects to an unsupported URL: {error}") from None
    if url.scheme == "https" and following.scheme == "http":
        text = f"{url} redirects to {following}, which is not encrypted; fetch that URL if you want"
        raise WebFailure("downgrade", text)
    return following


# -- Requests by the target, with curl or one of the programs called wget.


CURL_BLOCK = re.compile(rb"HTTP/[0-9.]{1,4} ([0-9]{3})[^\r\n]*\r?\n((?:[^\r\n]+\r?\n)*)\r?\n")
WGET_STATUS = re.compile(r"^\s{0,8}HTTP/[0-9.]{1,4} ([0-9]{3})", re.MULTILINE)
SKIPPED = re.compile(rb"HTTP/[0-9.]{1,4} (?:1[0-9]{2}|200 [Cc]onnection established)")
ROOM = 64 << 10
"""Maximum bytes of headers."""
INTERIM = 10
"""Maximum number of interim responses."""
PATIENCE = 5.0
"""Seconds allowed for the shell and the connection in addition to the request."""
SECONDS = 30
"""Timeout of one request in seconds; fixed, because the policy must see the command before it runs."""
MARK = "harness:"
PARTIAL = frozenset({18, 28, 92})
"""curl's exit codes for a partial body."""
CODES = {
    5: "unknown proxy host",
    6: "unknown host",
    7: "the server did not respond",
    28: "timed out",
}


def command_for(url: WebUrl, sent: RequestHeaders, most: int) -> str:
    """Return the command that makes one request without following redirects. Pure.

    The URL and the headers are quoted words, and none of them can be an option: the URL is after ``--``, and each
    header is the value of an option. Configuration files are not read. The wget of busybox always follows redirects.
    """
    address = shlex.quote(str(url))
    given = [shlex.quote(f"{name}: {value}") for name, value in sorted(sent.headers.items()) if value]
    curl = " ".join(
        [
            f"curl -q -g -sS -i --proto =http,https --connect-timeout {SECONDS} --max-time {SECONDS}",
            *(f"-H {header}" for header in given),
            f"-- {address}",
        ]
    )
    long = " ".join(f"--header={header}" for header in given)
    wget = f"wget --no-config -q -S -O - --content-on-error --max-redirect=0 -t 1 -T {SECONDS} {long} -- {address}"
    small = f"wget -q -S -O - {long} -- {address}"  # some builds of busybox crash at -T; the shell has a limit
    return (
        f"{{ if command -v curl >/dev/null 2>&1; then echo {MARK} curl >&2; {curl}; "
        f"elif wget --version 2>/dev/null | grep -q GNU; then echo {MARK} wget >&2; {wget}; "
        f"elif command -v wget >/dev/null 2>&1; then echo {MARK} small >&2; {small}; "
        f"else echo {MARK} none >&2; fi; code=$?; echo >&2; echo {MARK} $code >&2; }} | head -c {most + ROOM}"
    )


def request_subjects(url: WebUrl, sent: RequestHeaders, most: int) -> tuple[Subject, ...]:
    """Return what one request of the target accesses: the URL, and the command. Pure."""
    return (Subject("url", str(url)), Subject("command", command_for(url, sent, most)))


class TargetHttpClient(HttpClient):
    """HTTP client that uses the target's own program and network."""

    def __init__(self, execution: ExecutionContext) -> None:
        self._execution = execution

    def subjects(self, url: WebUrl, sent: RequestHeaders, most: int) -> tuple[Subject, ...]:
        """See :class:`HttpClient`."""
        return request_subjects(url, sent, most)

    async def get(self, url: WebUrl, sent: RequestHeaders, most: int, timeout: float) -> HttpResponse:
        """See :class:`HttpClient`."""
        patience = min(timeout, SECONDS) + PATIENCE
        done = await self._execution.run_helper(
            command_for(url, sent, most), timeout=patience, max_output=most + 2 * ROOM
        )
        if done.status is Status.TIMED_OUT:
            raise WebFailure("timeout", f"{url.authority} did not respond to the target within {timeout:.0f} s")
        return read_answer(done, url, most)


@dataclass(frozen=True, slots=True)
class _Report:
    """What the command reported: the program, its exit code (None: truncated output), and its messages."""

    program: str
    code: int | None
    messages: str


def read_answer(done: ShellResult, url: WebUrl, most: int) -> HttpResponse:
    """Parse the response in the command's output. Pure.

    Raises:
        WebFailure: No response arrives.
    """
    report = _report(done.stderr)
    if report.program == "none":
        raise WebFailure("no_program", "the target has neither curl nor wget")
    output = done.stdout_bytes
    full = len(output) >= most + ROOM
    answer = _of_curl(output) if report.program == "curl" else _of_wget(output, report.messages)
    if answer is None:
        raise WebFailure("unreachable", f"the target could not fetch from {url.authority}: {_why(report)}")
    cut = full or report.code is None or report.code in PARTIAL
    body = Inflater(answer.headers.get("content-encoding", "")).feed(answer.body, most + 1)
    return HttpResponse(answer.status, answer.headers, body[:most], cut or len(body) > most)


def _report(stderr: str) -> _Report:
    lines = stderr.splitlines()
    program = lines[0].removeprefix(MARK).strip() if lines and lines[0].startswith(MARK) else ""
    last = lines[-1].removeprefix(MARK).strip() if len(lines) > 1 and lines[-1].startswith(MARK) else ""
    return _Report(program, int(last) if last.isdecimal() else None, "\n".join(lines[1:]))


def _why(report: _Report) -> str:
    lines = [line for line in report.messages.splitlines() if line.strip() and not line.startswith(MARK)]
    return (lines[-1].strip()[:300] if lines else "") or CODES.get(report.code or 0, f"exit code {report.code}")


def _of_curl(output: bytes) -> HttpResponse | None:
    """Parse the last block of headers, after those of a proxy and of interim responses."""
    block = CURL_BLOCK.match(output, 0, ROOM)
    for _ in range(INTERIM):
        if block is None or not SKIPPED.match(block[0]) or not output.startswith(b"HTTP/", block.end()):
            break
        block = CURL_BLOCK.match(output, block.end(), ROOM)
    if block is None or block[1] < b"200":
        return None
    return HttpResponse(int(block[1]), _headers(block[2].decode("latin-1")), output[block.end() :])


def _of_wget(output: bytes, messages: str) -> HttpResponse | None:
    """Parse the headers among the messages, each indented."""
    starts = list(WGET_STATUS.finditer(messages))
    if starts:
        return HttpResponse(int(starts[-1][1]), _headers(messages[starts[-1].end() :]), output)
    return HttpResponse(200, {}, output) if output else None


def _headers(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines()[:200])
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon and " " not in name.strip()}
