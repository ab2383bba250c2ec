"""ttyd, a terminal in a browser: its pinned release, and a server of one tmux session."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["TTYD", "prepare_ttyd", "serve_ttyd"]

VERSION = "1.7.7"
TTYD = f"ttyd {VERSION}"
SHA256 = {
    "x86_64": "8a217c968aba172e0dbf3f34447218dc015bc4d5e59bf51db2f2cd12b7be4f55",
    "aarch64": "b38acadd89d1d396a0f5649aa52c539edbad07f4bc7348b27b4f4b7219dd4165",
}
URL = "https://github.com/tsl0922/ttyd/releases/download/{version}/ttyd.{machine}"
TIMEOUT = 60
OPTIONS = ("-W", "-i", "127.0.0.1", "-p", "0", "-t", "rendererType=dom", "-t", "disableLeaveAlert=true")
"""Writable, on a free port, drawn as elements of the page like the panes of harness."""


def prepare_ttyd(home: Path) -> Path:
    """Return the program: one of PATH that has the pinned version, or the release, which is downloaded once.

    Raises:
        OSError: It cannot be downloaded.
        LookupError: There is none for this machine, or the download is not the pinned one.
    """
    if (found := shutil.which("ttyd")) is not None and _has_pinned_version(found):
        return Path(found)
    machine = platform.machine()
    if machine not in SHA256:
        raise LookupError(f"no release for {machine}")
    path = home / f"ttyd-{VERSION}"
    if not path.exists():
        with urllib.request.urlopen(URL.format(version=VERSION, machine=machine), timeout=TIMEOUT) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != SHA256[machine]:
            raise LookupError("the download is not the pinned release")
        home.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(data)
        path.with_suffix(".new").chmod(0o755)
        path.with_suffix(".new").replace(path)
    return path


def _has_pinned_version(program: str) -> bool:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=TIMEOUT).stdout
    return re.search(rf"\bversion {re.escape(VERSION)}\b", shown) is not None


@contextmanager
def serve_ttyd(program: Path, argv: Sequence[str], variables: dict[str, str]) -> Iterator[str]:
    """Serve a program, which is started for each page; yields the URL."""
    words = [str(program), *OPTIONS, *argv]
    environment = {**os.environ, **variables}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(rb"Listening on port: (\d+)", line):
                    yield f"http://127.0.0.1:{int(found[1])}/"
                    return
            raise RuntimeError(f"ttyd ended with {process.wait(10)}")
        finally:
            process.terminate()
