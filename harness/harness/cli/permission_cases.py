"""The commands that ``harness permissions test -`` reads from standard input, one JSON value a line."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import anyio

from ..errors import HarnessError

__all__ = ["PermissionCase", "read_cases"]

MAX_LINE_BYTES = 1 << 20
_HALF_CHARACTER = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""A surrogate that does not stand for a byte, as those of ``surrogateescape`` do."""
DECISIONS = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class PermissionCase:
    """One command, and the decision that is expected of it; empty is any."""

    command: str
    expected: str = ""


async def read_cases() -> AsyncIterator[PermissionCase]:
    """Read cases until the end of standard input, each as soon as its line is there.

    Raises:
        HarnessError: standard input is closed, or a line is not a case.
    """
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file or a pipe")
    number = 0
    async for line in _lines(sys.stdin.fileno()):
        number += 1
        if line.strip():
            yield _case(line, number)


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    held = b""
    while data := await _read(descriptor):
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            yield line
        if len(held) > MAX_LINE_BYTES:
            raise HarnessError(f"a line of standard input is longer than {MAX_LINE_BYTES} bytes")
    if held:
        yield held


async def _read(descriptor: int) -> bytes:
    with suppress(PermissionError):  # files cannot be waited for, and are always ready
        await anyio.wait_readable(descriptor)
    return os.read(descriptor, 1 << 16)


def _case(line: bytes, number: int) -> PermissionCase:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _not_a_case(number, "is not JSON") from None
    command = value.get("command") if isinstance(value, dict) else value
    if isinstance(command, str) and _HALF_CHARACTER.search(command):
        raise _not_a_case(number, "holds half of a character, which no command can have")
    if isinstance(value, str):
        return PermissionCase(value)
    if not isinstance(value, dict) or not isinstance(command, str):
        raise _not_a_case(number, "is neither a JSON string nor an object with a 'command'")
    expected = value.get("decision", "")
    if expected and expected not in DECISIONS:
        raise _not_a_case(number, f"expects a decision that is none of {', '.join(DECISIONS)}")
    return PermissionCase(command, expected)


def _not_a_case(number: int, problem: str) -> HarnessError:
    return HarnessError(f"line {number} of standard input {problem}", hint='one JSON string a line: "df -h"')
