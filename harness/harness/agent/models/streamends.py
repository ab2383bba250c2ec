"""Noticing that a stream of chat completions was cut off, where the server need not say why an answer ends.

OpenAI's own API always gives a ``finish_reason``; some servers that are compatible with it never do, and most of these
end with ``[DONE]``. What has neither, over a connection whose close is the only end that HTTP knows of, may be half.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

__all__ = ["StreamEnd", "may_be_cut", "watch_ends"]

TOLD = re.compile(rb'"finish_reason"\s*:\s*"|[\r\n]data:\s*\[DONE\]')
"""What says that an answer has come to its end; in the text of an answer the quotes would be escaped."""
OVERLAP = 64
"""Bytes that are looked at again with the next ones: more than what is looked for."""
LIBRARIES = ("httpx2", "httpx")
"""What OpenAI's library may be built on."""
CUT = "the stream ended before the answer did"


def may_be_cut(status: int, version: str, headers: Mapping[str, str]) -> bool:
    """Whether a body is a stream of events that ends when the connection does, however that came about. Pure.

    Args:
        headers: with names in lower case. What is compressed is not looked at.
    """
    streamed = headers.get("content-type", "").lower().startswith("text/event-stream")
    framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
    plain = headers.get("content-encoding", "identity").lower() == "identity"
    return status == 200 and streamed and plain and not framed and version.startswith("HTTP/1")


class StreamEnd:
    """Looks for the end of an answer in the bytes of a stream, which come in pieces of any size."""

    def __init__(self) -> None:
        self.told = False
        self._last = b"\n"

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""
        if not self.told:
            seen = self._last + data
            self.told = TOLD.search(seen) is not None
            self._last = seen[-OVERLAP:]


@cache
def _watched_by(library: ModuleType) -> Callable[[Any], Any]:
    """Makes of a body one that fails at its end when that is not the answer's."""

    base: Any = library.AsyncByteStream

    class Watched(base):  # type: ignore[misc]  # of whichever library is there
        def __init__(self, stream: Any) -> None:
            self._stream = stream
            self._end = StreamEnd()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._stream:
                self._end.feed(data)
                yield data
            if not self._end.told:
                raise library.RemoteProtocolError(CUT)

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Watched


def watch_ends(client: Any) -> None:
    """Let streams of a client of OpenAI's library fail where they were cut off; another client is left alone."""
    http = getattr(client, "_client", None)
    loaded = (sys.modules[name] for name in LIBRARIES if name in sys.modules)
    library = next((one for one in loaded if isinstance(http, one.AsyncClient)), None)
    if http is None or library is None:
        return

    async def look_at(response: Any) -> None:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if may_be_cut(response.status_code, response.http_version, headers):
            response.stream = _watched_by(library)(response.stream)

    hooks = http.event_hooks
    http.event_hooks = {**hooks, "response": [*hooks.get("response", ()), look_at]}
