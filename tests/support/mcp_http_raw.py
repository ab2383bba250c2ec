"""A session with ``harness mcp --http`` whose requests are open connections: to be read, left alone, or hung up."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.support.mcp_program import HttpProgram
from tests.support.mcp_raw import GREETED, hello

__all__ = ["Asked", "RawHttp"]

LIMIT = 60


class Asked:
    """One request and its connection."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.answer = connection.getresponse()

    @property
    def status(self) -> int:
        """What came at once."""
        return self.answer.status

    def hear(self) -> Any:
        """The next message; None when the connection has ended without one."""
        while line := self.answer.readline():
            if line.startswith(b"data:"):
                return json.loads(line[5:])
        return None

    def hang_up(self) -> None:
        """End the connection from here."""
        self.answer.close()
        self._connection.close()


class RawHttp:
    """One session; ``capabilities`` are those of the client. All its connections are hung up when it is left."""

    def __init__(self, server: HttpProgram, **capabilities: Any) -> None:
        self._server = server
        self._session: dict[str, str] = {}
        self._asked: list[Asked] = []
        greeting = self.ask(hello(**capabilities))
        assert greeting.hear()["id"] == 0
        self._session = {"Mcp-Session-Id": greeting.answer.headers["mcp-session-id"]}
        self.say(GREETED)

    def __enter__(self) -> RawHttp:
        return self

    def __exit__(self, *_: object) -> None:
        for asked in self._asked:
            asked.hang_up()

    def ask(self, message: dict[str, Any]) -> Asked:
        """Send a message over a connection of its own, which stays open."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=LIMIT)
        headers = {
            "Authorization": f"Bearer {self._server.token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **self._session,
        }
        connection.request("POST", "/mcp", json.dumps(message), headers)
        self._asked.append(Asked(connection))
        return self._asked[-1]

    def say(self, message: dict[str, Any]) -> int:
        """Send what has no answer; the status."""
        asked = self.ask(message)
        asked.hang_up()
        return asked.status

    def cancel(self, number: int) -> int:
        """Cancel a request."""
        return self.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
