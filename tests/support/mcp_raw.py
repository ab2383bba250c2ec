"""``harness mcp`` over standard input and output, and a client that sends plain lines: whatever it likes."""

from __future__ import annotations

import json
import os
import select
import subprocess
from typing import Any

from tests.support.mcp_program import HARNESS, Home

__all__ = ["GREETED", "HELLO", "Raw", "call", "hello"]

LIMIT = 60


def hello(revision: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    """The first message of a client that can do so much."""
    params = {
        "protocolVersion": revision,
        "capabilities": capabilities,
        "clientInfo": {"name": "raw", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


HELLO = hello()
GREETED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number: int, command: str) -> dict[str, Any]:
    params = {"name": "run_shell", "arguments": {"command": command}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


class Raw:
    """The program and plain lines; ``capabilities`` are those of the client."""

    def __init__(self, home: Home, *arguments: str, revision: str = "2025-11-25", **capabilities: Any) -> None:
        self._hello = hello(revision, **capabilities)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*HARNESS, "mcp", *arguments], env=home.environment, cwd=home.path, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self.heard = b""

    def __enter__(self) -> Raw:
        self.say(self._hello)
        assert self.hear()["id"] == 0
        self.say(GREETED)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def say(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        while b"\n" not in self.heard:
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT)
            assert ready, "nothing came"
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            assert chunk, "the server has ended"
            self.heard += chunk
        line, _, self.heard = self.heard.partition(b"\n")
        return json.loads(line)

    def end(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err
