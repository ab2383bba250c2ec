"""The MCP Inspector's command line: a client that is written in another language, on another SDK."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.mcp_program import HARNESS, Home, HttpProgram

__all__ = ["Inspector", "find_inspector"]

ROOT = Path(__file__).parents[2]
PINNED = ROOT / "tests" / "inspector"
LIMIT = 120
CLI = "node_modules/@modelcontextprotocol/inspector-cli/build/index.js"


def find_inspector(folder: Path) -> Path:
    """The program: as scripts/test installed it, else installed into ``folder`` now, from the same pinned list."""
    kept = Path(os.environ.get("HARNESS_VENVS", ROOT / ".venv")) / "inspector"
    if (kept / CLI).exists() and (kept / "package-lock.json").read_bytes() == (
        PINNED / "package-lock.json"
    ).read_bytes():
        return kept / CLI
    for name in ("package.json", "package-lock.json"):
        shutil.copy(PINNED / name, folder)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
    done = subprocess.run(["npm", "ci", *options], cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    return folder / CLI


@dataclass(frozen=True)
class Inspector:
    """Asks one thing of a server and prints the answer."""

    cli: Path
    home: Home

    def over_stdio(self, *words: str) -> Any:
        """Ask ``harness mcp``."""
        script = self.home.path / "server"  # one word, or the inspector would take its options for its own
        script.write_text(f"#!/bin/sh\nexec {shlex.join([*HARNESS, 'mcp'])}\n")
        script.chmod(0o755)
        return self._run(str(script), *words)

    def over_http(self, server: HttpProgram, *words: str) -> Any:
        """Ask a server that listens."""
        return self._run(server.url, *words, "--transport", "http", "--header", f"Authorization: Bearer {server.token}")

    def _run(self, *words: str) -> Any:
        command = ["node", str(self.cli), *words]
        done = subprocess.run(
            command, env=self.home.environment, cwd=self.home.path, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)
