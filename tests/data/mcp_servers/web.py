"""A server over streamable HTTP, made with the official library, behind a token; it does to requests what it is told.

``web.py PORT-FILE [--cert FILE --key FILE] [--json]``. Every request must carry ``Authorization: Bearer T0KEN``. The
file STATE beside the port file, when it is there, holds a status that each request gets instead of an answer, or
``redirect URL``.
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

TOKEN = "Bearer T0KEN"  # of this test alone

server = MCPServer("web")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Count, and say so."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"at {step + 1}")
    return "counted"


@server.tool()
async def wait() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""


@server.tool()
async def die() -> str:
    """End the server during the call."""
    os._exit(9)


@server.tool()
async def huge(size: int) -> str:
    """Say a lot."""
    return "x" * size


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer another tool from now on."""

    @server.tool()
    async def brand_new() -> str:
        """A new one."""
        return "new"

    await ctx.session.send_tool_list_changed()
    return "grown"


def guarded(app: Any, state: Path) -> Any:
    """The application behind the token, and whatever the state says."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        with state.with_name("requests").open("a") as file:
            file.write(f"{scope['method']}\n")
        headers = dict(scope["headers"])
        said = state.read_text().split() if state.exists() else []
        if said[:1] == ["redirect"]:
            await answer(send, 307, [(b"location", said[1].encode())])
        elif said:
            await answer(send, int(said[0]), [])
        elif headers.get(b"authorization", b"").decode() != TOKEN:
            await answer(send, 401, [(b"www-authenticate", b"Bearer")])
        else:
            await app(scope, receive, send)

    return serve


async def answer(send: Any, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    app = guarded(server.streamable_http_app(json_response=options.json), options.file.with_name("STATE"))
    listener = socket.create_server(("127.0.0.1", options.port))
    config = uvicorn.Config(app, log_level="warning", ssl_certfile=options.cert, ssl_keyfile=options.key)
    options.file.with_suffix(".new").write_text(str(listener.getsockname()[1]))
    options.file.with_suffix(".new").rename(options.file)
    anyio.run(uvicorn.Server(config).serve, [listener])


if __name__ == "__main__":
    main()
