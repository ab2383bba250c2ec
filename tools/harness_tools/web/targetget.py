"""Requests by the target, with what it has: curl, or one of the programs that are called wget."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from harness.context import ExecutionContext
from harness.results import ShellResult, Status
from harness.toolkit import Subject

from .getter import Getter
from .headers import Sent
from .pages import Answer, Inflater, WebFailure
from .urls import WebUrl

__all__ = ["TargetGetter", "command_for", "read_answer", "request_subjects"]

CURL_BLOCK = re.compile(rb"HTTP/[0-9.]{1,4} ([0-9]{3})[^\r\n]*\r?\n((?:[^\r\n]+\r?\n)*)\r?\n")
WGET_STATUS = re.compile(r"^\s{0,8}HTTP/[0-9.]{1,4} ([0-9]{3})", re.MULTILINE)
SKIPPED = re.compile(rb"HTTP/[0-9.]{1,4} (?:1[0-9]{2}|200 [Cc]onnection established)")
ROOM = 64 << 10
"""Bytes of headers."""
INTERIM = 10
"""Answers that may come before the one that counts."""
PATIENCE = 5.0
"""Seconds that the shell and the link may take beside the request."""
SECONDS = 30
"""Seconds of one request; they are in the command, which has to be known before it is judged."""
MARK = "harness:"
PARTIAL = frozenset({18, 28, 92})
"""curl's exit codes for a body that came in part."""
CODES = {
    5: "the proxy's name is not known",
    6: "the name is not known",
    7: "nobody answers there",
    28: "it took too long",
}


def command_for(url: WebUrl, sent: Sent, most: int) -> str:
    """The command that makes one request and follows nothing. Pure.

    The URL and the headers are quoted words, and none of them can be an option: the URL stands after ``--``, and each
    header is the value of one. Files of settings are not read. busybox's wget follows redirects by itself.
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


def request_subjects(url: WebUrl, sent: Sent, most: int) -> tuple[Subject, ...]:
    """What one request of the target touches: the URL, and the command. Pure."""
    return (Subject("url", str(url)), Subject("command", command_for(url, sent, most)))


class TargetGetter(Getter):
    """Requests by the target's own program, through its own network."""

    def __init__(self, execution: ExecutionContext) -> None:
        self._execution = execution

    def subjects(self, url: WebUrl, sent: Sent, most: int) -> tuple[Subject, ...]:
        """See :class:`Getter`."""
        return request_subjects(url, sent, most)

    async def get(self, url: WebUrl, sent: Sent, most: int, timeout: float) -> Answer:
        """See :class:`Getter`."""
        patience = min(timeout, SECONDS) + PATIENCE
        done = await self._execution.run_beside(
            command_for(url, sent, most), timeout=patience, max_output=most + 2 * ROOM
        )
        if done.status is Status.TIMED_OUT:
            raise WebFailure("timeout", f"{url.authority} did not answer the target within {timeout:.0f} s")
        return read_answer(done, url, most)


@dataclass(frozen=True, slots=True)
class _Report:
    """What the command said of itself: the program, its exit code (None: its output was cut), and its messages."""

    program: str
    code: int | None
    messages: str


def read_answer(done: ShellResult, url: WebUrl, most: int) -> Answer:
    """The response in what the command wrote. Pure.

    Raises:
        WebFailure: there is none.
    """
    report = _report(done.stderr)
    if report.program == "none":
        raise WebFailure("no_program", "the target has neither curl nor wget")
    output = done.stdout_bytes
    full = len(output) >= most + ROOM
    answer = _of_curl(output) if report.program == "curl" else _of_wget(output, report.messages)
    if answer is None:
        raise WebFailure("unreachable", f"{url.authority} could not be fetched from by the target: {_why(report)}")
    cut = full or report.code is None or report.code in PARTIAL
    body = Inflater(answer.headers.get("content-encoding", "")).feed(answer.body, most + 1)
    return Answer(answer.status, answer.headers, body[:most], cut or len(body) > most)


def _report(stderr: str) -> _Report:
    lines = stderr.splitlines()
    program = lines[0].removeprefix(MARK).strip() if lines and lines[0].startswith(MARK) else ""
    last = lines[-1].removeprefix(MARK).strip() if len(lines) > 1 and lines[-1].startswith(MARK) else ""
    return _Report(program, int(last) if last.isdecimal() else None, "\n".join(lines[1:]))


def _why(report: _Report) -> str:
    lines = [line for line in report.messages.splitlines() if line.strip() and not line.startswith(MARK)]
    return (lines[-1].strip()[:300] if lines else "") or CODES.get(report.code or 0, f"exit code {report.code}")


def _of_curl(output: bytes) -> Answer | None:
    """Of the blocks of headers the last, after those of a proxy and of interim answers."""
    block = CURL_BLOCK.match(output, 0, ROOM)
    for _ in range(INTERIM):
        if block is None or not SKIPPED.match(block[0]) or not output.startswith(b"HTTP/", block.end()):
            break
        block = CURL_BLOCK.match(output, block.end(), ROOM)
    if block is None or block[1] < b"200":
        return None
    return Answer(int(block[1]), _headers(block[2].decode("latin-1")), output[block.end() :])


def _of_wget(output: bytes, messages: str) -> Answer | None:
    """Its headers are among the messages, each with spaces before it."""
    starts = list(WGET_STATUS.finditer(messages))
    if starts:
        return Answer(int(starts[-1][1]), _headers(messages[starts[-1].end() :]), output)
    return Answer(200, {}, output) if output else None


def _headers(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines()[:200])
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon and " " not in name.strip()}
