"""Make ``docs/media`` and the README's transcript by running the README's commands for real.

The host ``web1`` is an embedded SSH server on this machine; the program, ssh, tmux and the shell are the real ones. The
picture is the screen of a terminal that an outer tmux plays, in which ``harness attach`` runs.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from rich.console import Console
from rich.text import Text

from harness.testing.ssh_server import EmbeddedSshServer, embedded_ssh_server

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TRANSCRIPT = ROOT / "docs" / "media" / "transcript.txt"
PICTURE = ROOT / "docs" / "media" / "attached.svg"

BEGIN, END = "<!-- transcript: made by scripts/readme-media -->", "<!-- end of transcript -->"
HOST = "deploy@web1"
COMMANDS = (
    f"harness --ssh {HOST} --tmux run -- 'cd /var/log && du -sh . | tail -1'",
    f"harness --ssh {HOST} --tmux run -- pwd",
)
ATTACH = f"harness --ssh {HOST} attach"
LAST = f"harness --ssh {HOST} --tmux run -- 'uptime -p; test -e /run/reboot-required'"
WIDTH, HEIGHT = 92, 12
TIMEOUT = 60.0
PICTURE_FORMAT = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {terminal_height}">
<style>{styles}
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
</style>
<rect width="100%" height="100%" rx="8" fill="#101418"/>
<g class="{unique_id}-matrix" transform="translate(12, 12)">{backgrounds}{matrix}</g>
</svg>
"""


@dataclass(frozen=True)
class Media:
    """What is made: the lines of a terminal, and a picture."""

    transcript: str
    picture: str


async def make() -> Media:
    """Run the commands of the README and look at the session that they ran in."""
    with TemporaryDirectory(prefix="hm-", dir="/tmp") as folder:
        async with _web1(Path(folder)) as environment:
            lines: list[str] = []
            async with _outer_terminal(environment) as outer:
                for command in COMMANDS:
                    lines += [f"$ {command}", *(await _run(command, environment)).splitlines()]
                await _tmux(outer, environment, "send-keys", ATTACH, "Enter")
                await _screen_with(outer, environment, "pwd")
                await _run(LAST, environment)
                screen = await _screen_with(outer, environment, ": 1]")
            return Media("\n".join([*lines, f"$ {ATTACH}"]) + "\n", _picture(screen))


@asynccontextmanager
async def _web1(home: Path) -> AsyncIterator[dict[str, str]]:
    """A host named web1 that only the yielded environment knows."""
    (home / ".profile").write_text("PS1='\\[\\e[32m\\]deploy@web1\\[\\e[0m\\]:\\w\\$ '\n")
    session = {"TMUX_TMPDIR": str(home), "LANG": "C.UTF-8"}
    async with embedded_ssh_server(home=home, env=session, shell="/bin/bash") as server:
        (home / "ssh_config").write_text(_ssh_config(server))
        environment = _environment(home)
        try:
            yield environment
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.run_process(["tmux", "-L", "harness", "kill-server"], env=environment, check=False)
                await _run(f"harness --ssh {HOST} disconnect", environment)


def _ssh_config(server: EmbeddedSshServer) -> str:
    return f"""Host web1
    HostName 127.0.0.1
    Port {server.port}
    IdentityFile {server.identity}
    IdentityAgent none
    UserKnownHostsFile {server.directory / "known_hosts"}
"""


def _environment(home: Path) -> dict[str, str]:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "HOME": str(home),
        "HARNESS_SSH_CONFIG": str(home / "ssh_config"),
        "LANG": "C.UTF-8",
        "PATH": programs,
        "TERM": "xterm-256color",
        "TMUX_TMPDIR": str(home),
        "XDG_RUNTIME_DIR": str(home),
    }


async def _run(command: str, environment: Mapping[str, str]) -> str:
    with anyio.fail_after(TIMEOUT):
        done = await anyio.run_process(shlex.split(command), env=environment, stderr=subprocess.PIPE, check=False)
    if done.stderr:
        raise SystemExit(f"{command}: {done.stderr.decode()}")
    return done.stdout.decode()


@asynccontextmanager
async def _outer_terminal(
    environment: Mapping[str, str], width: int = WIDTH, height: int = HEIGHT
) -> AsyncIterator[str]:
    socket = f"outer-{os.getpid()}"
    size = ("-x", str(width), "-y", str(height))
    await _tmux(socket, environment, "-f", "/dev/null", "new-session", "-d", *size, "sh")
    await _tmux(socket, environment, "set", "-g", "status", "off")
    try:
        yield socket
    finally:
        with anyio.CancelScope(shield=True):
            await _tmux(socket, environment, "kill-server")


async def _tmux(socket: str, environment: Mapping[str, str], *arguments: str) -> str:
    done = await anyio.run_process(["tmux", "-L", socket, *arguments], env=environment)
    return done.stdout.decode()


async def _screen_with(socket: str, environment: Mapping[str, str], text: str) -> str:
    """The screen, with its colours, once it shows a text."""
    with anyio.fail_after(TIMEOUT):
        while True:
            screen = await _tmux(socket, environment, "capture-pane", "-e", "-p")
            if text in screen:
                return screen
            await anyio.sleep(0.05)  # another program's screen gives no signal
    raise TimeoutError(f"{text!r} never came on the screen")


def _picture(screen: str, width: int = WIDTH) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(screen), no_wrap=True)
    picture = console.export_svg(code_format=PICTURE_FORMAT, unique_id="screen")
    return re.sub(r' clip-path="[^"]*"|<text[^>]*>\n</text>', "", picture)


def shape(text: str) -> str:
    """A transcript without what differs from run to run: numbers and sizes."""
    return re.sub(r"[\d.]+[KMGT]?\b", "N", text)


def _into_readme(transcript: str) -> None:
    block = (
        f"<!-- transcript: made by scripts/readme-media -->\n```console\n{transcript}```\n<!-- end of transcript -->"
    )
    text = README.read_text()
    README.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: block, text, flags=re.DOTALL))


def main() -> None:
    """Make the media, or with ``--check`` fail when the committed ones have another shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    media = anyio.run(make)
    if check:
        if shape(media.transcript) != shape(TRANSCRIPT.read_text()):
            raise SystemExit(f"the transcript is now:\n{media.transcript}")
        return
    TRANSCRIPT.write_text(media.transcript)
    PICTURE.write_text(media.picture)
    _into_readme(media.transcript)
    print(media.transcript)


if __name__ == "__main__":
    main()
