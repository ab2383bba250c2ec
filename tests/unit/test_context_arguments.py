"""Arguments of a wrong type are refused by name, before anything reaches a target."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import ExecutionContext
from harness.config import Config
from harness.testing.memory import MemoryBackend

Call = Callable[[Any], Any]

WRONG: dict[str, tuple[Call, str]] = {
    "command": (lambda ctx: ctx.run_shell(["ls", "-l"]), r"command must be str, not list: .*shlex\.join"),
    "command beside": (lambda ctx: ctx.run_helper(b"ls"), "command must be str, not bytes"),
    "cwd": (lambda ctx: ctx.run_shell("ls", cwd=Path("/tmp")), "cwd must be str, not PosixPath"),
    "env": (lambda ctx: ctx.run_shell("ls", env=["A=1"]), "env must be Mapping or None, not list"),
    "value": (lambda ctx: ctx.run_shell("ls", env={"X": 1}), r"env\['X'\] must be str, not int"),
    "variable": (lambda ctx: ctx.run_shell("ls", env={1: "x"}), "each name in env must be str, not int"),
    "stdin": (lambda ctx: ctx.run_shell("cat", stdin=3), "stdin must be bytes or str or Path or None, not int"),
    "user": (lambda ctx: ctx.run_shell("id", user=1000), "user must be str, not int"),
    "pane": (lambda ctx: ctx.run_shell("ls", pane=1), "pane must be str, not int"),
    "keys": (lambda ctx: ctx.send_keys([3]), "each of keys must be str, not int"),
    "text": (lambda ctx: ctx.send_keys(literal_text=3), "literal_text must be str or bytes or None, not int"),
    "read": (lambda ctx: ctx.read_file(Path("/etc/hosts")), "path must be str, not PosixPath"),
    "write": (lambda ctx: ctx.write_file(b"/x", "y"), "path must be str, not bytes"),
    "content": (lambda ctx: ctx.write_file("/x", ["y"]), "content must be str or bytes, not list"),
    "stat": (lambda ctx: ctx.stat(None), "path must be str, not None"),
    "remove": (lambda ctx: ctx.remove(7), "path must be str, not int"),
}


@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG.keys())
async def test_an_argument_of_a_wrong_type_is_named(call: Call, message: str) -> None:
    backend = MemoryBackend()
    with pytest.raises(TypeError, match=message):
        await call(ExecutionContext(backend, None, Config()))
