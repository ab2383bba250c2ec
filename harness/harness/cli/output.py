"""The program's output: results on stdout, everything else on stderr, even if streams are closed."""

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
from ..results import FileContent, ShellResult
from ..wording import escape_invisible
from .named_commands import complete_commands

__all__ = [
    "UNWRITABLE",
    "abandon_stdout",
    "as_json",
    "content_json",
    "error_json",
    "escape_line",
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


# -- The standard streams, which the caller may have closed, and whose encoding may lack characters.


UNWRITABLE: Final = frozenset({errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})
"""Errors of a failed write to the output."""


def prepare_streams() -> None:
    """Open the null device in place of closed standard streams, as another file would get their output.

    Writing to a closed standard output is an error, as in any program; a closed standard error discards output.
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
        return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # never closed
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def abandon_stdout() -> None:
    """Discard buffered output, so that the interpreter does not report an error on exit."""
    _abandon(1)


def finish_stderr() -> None:
    """Flush standard error or discard its buffer, as the interpreter would exit with 120 on an error."""
    try:
        sys.stderr.flush()
    except OSError:
        _abandon(2)


def _abandon(number: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


# -- Results on stdout, everything else on stderr.


def note(*lines: str) -> None:
    """Print lines on stderr; ignore it if stderr cannot be written, as the result does not depend on it."""
    with suppress(OSError):
        for line in lines:
            click.echo(f"harness: {readable(complete_commands(line))}", err=True)


def read_stdin(most: int = -1) -> bytes:
    """Read standard input to its end, or its first ``most`` bytes, to bound the memory for endless input.

    Raises:
        HarnessError: Standard input is closed, which is not the same as empty.
    """
    if sys.stdin is None:
        raise HarnessError("standard input is closed", hint="give it a file, a pipe or /dev/null")
    return sys.stdin.buffer.read(most)


def readable(text: str) -> str:
    """Return one printable line: line breaks become spaces, and control characters are escaped."""
    return _escape(" ".join(text.splitlines()))


def escape_line(line: bytes) -> bytes:
    """Return one line of a program's output with control characters and invalid bytes escaped, for a terminal."""
    return _escape(line.removesuffix(b"\r").decode("utf-8", "backslashreplace")).encode()


def _escape(line: str) -> str:
    return escape_invisible(line, keep="\t").encode("utf-8", "backslashreplace").decode()


def print_json(value: object) -> None:
    """Print a JSON document on stdout, in UTF-8 in every locale."""
    click.echo(as_json(value).encode())


def as_json(value: object) -> str:
    """Return JSON text for any parser: bytes that are not UTF-8 become U+FFFD."""
    import json  # slow to import, and seldom needed

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
    """Return ``{name: text}``, and ``name_base64`` with the exact bytes if they are not UTF-8."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        import base64

        return {name: data.decode("utf-8", "replace"), f"{name}_base64": base64.b64encode(data).decode()}


def result_json(result: ShellResult) -> dict[str, object]:
    """Return a :class:`ShellResult` as a JSON object."""
    return {
        "command": result.command,
        "status": result.status.value,
        "exit_code": result.exit_code,
        "ok": result.ok,
        **with_base64("stdout", result.stdout_bytes),
        **with_base64("stderr", result.stderr_bytes),
        "truncated": result.truncated,
        "stdout_gap": result.stdout_gap,
        "stderr_gap": result.stderr_gap,
        "duration": round(result.duration, 6),
        "cwd": result.cwd,
        "job_id": result.job_id,
        "pane": result.pane,
        "notices": result.notices,
    }


def content_json(content: FileContent) -> dict[str, object]:
    """Return a :class:`FileContent` as a JSON object."""
    facts = {"path": content.path, "size": content.size, "mode": f"{content.mode:04o}"}
    return {**facts, "version": content.version, **with_base64("text", content.data)}


def error_json(kind: str, message: str, target: str = "", hint: str = "") -> dict[str, object]:
    """Return an error as a JSON object."""
    return {"error": {"type": kind, "message": message, "target": target, "hint": hint}}


def warn(text: str, *, as_json_document: bool) -> None:
    """Print a warning on stderr, as a line or a JSON document; ignore it if stderr cannot be written."""
    with suppress(OSError):
        document = {"warning": {"message": complete_commands(text)}}
        click.echo(as_json(document).encode(), err=True) if as_json_document else note(text)


def report(error: HarnessError, *, as_json_document: bool) -> None:
    """Print an error on stderr, as a line or a JSON document; ignore it if stderr cannot be written."""
    with suppress(OSError):
        if as_json_document:
            message, hint = complete_commands(error.message), complete_commands(error.hint)
            document = error_json(type(error).__name__, message, error.target, hint)
            click.echo(as_json(document).encode(), err=True)
        else:
            note(str(error).replace("local::", "local:", 1))


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns on stdout, with rich if it is installed and stdout is a terminal."""
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
