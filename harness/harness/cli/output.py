"""What is printed: results on stdout, everything else on stderr, also where streams are closed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from typing import Any, Final, TextIO

import click

from ..errors import HarnessError
from ..results import ShellResult

__all__ = [
    "UNWRITABLE",
    "abandon_stdout",
    "as_json",
    "error_json",
    "finish_stderr",
    "note",
    "prepare_streams",
    "print_json",
    "read_stdin",
    "readable",
    "report",
    "result_json",
    "table",
    "warn",
    "with_base64",
]


# -- Our standard streams, also where the caller closed some of them, or the locale cannot write what we print.


UNWRITABLE: Final = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""What a write to our output fails with."""


def prepare_streams() -> None:
    """Take the places of streams that are closed, before another file does: output would be written into that.

    What is written to a closed standard output is an error, as with any program; a closed standard error swallows it.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdout = _usable(sys.stdout, 1)
    sys.stderr = _usable(sys.stderr, 2)


def _usable(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:
        return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # for good
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def abandon_stdout() -> None:
    """What is still to be written can go nowhere; the interpreter would complain of that as it exits."""
    _abandon(1)


def finish_stderr() -> None:
    """Write what is left for standard error, or give it up: the interpreter would exit with 120 instead of our code."""
    try:
        sys.stderr.flush()
    except OSError:
        _abandon(2)


def _abandon(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


# -- What is printed: results on stdout, everything else on stderr.


def note(*lines: str) -> None:
    """A line, or a few, on stderr."""
    for line in lines:
        click.echo(f"harness: {readable(line)}", err=True)


def read_stdin(most: int = -1) -> bytes:
    """All of our standard input, or its first ``most`` bytes: of one that never ends, no more is kept in memory.

    Raises:
        HarnessError: it is closed, which must not pass for empty.
    """
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file, a pipe or /dev/null")
    return sys.stdin.buffer.read(most)


def readable(text: str) -> str:
    """One printable line: line breaks become spaces, and control characters are shown, not obeyed."""
    line = " ".join(text.splitlines())
    safe = (char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line)
    return "".join(safe).encode("utf-8", "backslashreplace").decode()


def print_json(value: object) -> None:
    """One JSON document on stdout, in UTF-8 whatever the locale is."""
    click.echo(as_json(value).encode())


def as_json(value: object) -> str:
    """JSON text that every parser takes: bytes that are not UTF-8 became U+FFFD."""
    import json  # slow to load, as start-up goes, and seldom needed

    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value


def with_base64(name: str, data: bytes) -> dict[str, str]:
    """``{name: text}``, and ``name_base64`` with the exact bytes when they are not UTF-8."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {name: data.decode("utf-8", "replace"), f"{name}_base64": base64.b64encode(data).decode()}


def result_json(result: ShellResult) -> dict[str, object]:
    """A :class:`ShellResult` as a JSON object."""
    return {
        "command": result.command,
        "status": result.status.value,
        "exit_code": result.exit_code,
        "ok": result.ok,
        **with_base64("stdout", result.stdout_bytes),
        **with_base64("stderr", result.stderr_bytes),
        "truncated": result.truncated,
        "duration": round(result.duration, 6),
        "cwd": result.cwd,
        "job_id": result.job_id,
        "pane": result.pane,
        "notices": result.notices,
    }


def error_json(kind: str, message: str, target: str = "", hint: str = "") -> dict[str, object]:
    """An error as a JSON object."""
    return {"error": {"type": kind, "message": message, "target": target, "hint": hint}}


def warn(text: str, *, as_json_document: bool) -> None:
    """Print a warning on stderr: one line, or one JSON document."""
    click.echo(as_json({"warning": {"message": text}}).encode(), err=True) if as_json_document else note(text)


def report(error: HarnessError, *, as_json_document: bool) -> None:
    """Print an error on stderr, a line or a JSON document; when that cannot be written, the exit code says it alone."""
    with suppress(OSError):
        if as_json_document:
            document = error_json(type(error).__name__, error.message, error.target, error.hint)
            click.echo(as_json(document).encode(), err=True)
        else:
            note(str(error).replace("local::", "local:", 1))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows in aligned columns on stdout; with rich and a terminal, in its style."""
    if not rows:
        return
    shown = [[readable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and click.get_current_context().color is not False and _rich_table(headers, shown):
        return
    lines = [list(headers), *shown]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    drawn = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)
    return True
