"""What a server over stdio imports before it answers: nothing of ours that only other servers and agents use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_types.version import LATEST_HANDSHAKE_VERSION

SERVER = """
import atexit, json, sys

def report():
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)

atexit.register(report)
import harness.cli.main
harness.cli.main.main(["mcp"])
"""
UNUSED = {
    *("pydantic_ai", "tree_sitter", "asyncssh", "docker", "rich", "textual", "prompt_toolkit", "acp"),
    *("harness.agent.agent", "harness_backends.ssh", "harness_backends.tmux", "harness.mcp.client.sources"),
    *("harness.mcp.server.http", "harness.system.http_server"),
    *("harness.live.sessions.job_output", "harness.live.sessions.pane_streams", "harness.toolkit.hosts.pipeline"),
}


@pytest.mark.usefixtures("needs_process")
def test_a_stdio_server_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    about = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment,
        cwd=tmp_path,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        replies = []
        for number, (method, params) in enumerate((("initialize", about), ("tools/list", {}))):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(request), file=server.stdin, flush=True)
            replies.append(json.loads(server.stdout.readline())["result"])
        _, errors = server.communicate(timeout=20)
    assert server.returncode == 0
    assert replies[0]["protocolVersion"] == LATEST_HANDSHAKE_VERSION
    assert "glob" in {tool["name"] for tool in replies[1]["tools"]}
    loaded = json.loads(errors.splitlines()[-1])
    assert "harness.mcp.server.stdio" in loaded
    assert UNUSED.intersection(loaded) == set()
