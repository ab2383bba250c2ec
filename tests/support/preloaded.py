"""Starts of the ``harness`` program that fork a Python which has imported it already.

``PreloadedPopen`` is ``subprocess.Popen`` for the test: the program is its child, with its own process id, exit status,
streams and name in ``/proc``. ``can_preload`` says for which starts the result is the same as that of ``exec``.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["PreloadedPopen", "can_preload"]

SERVER = Path(__file__).with_name("preloaded_server.py")
READ_BEFORE_IMPORTS = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GLIBC_", "GCONV_", "LOCPATH", "OPENSSL_")
"""Beginnings of the variables that the interpreter and its libraries read while they start."""
PASSED_ON = frozenset({"stdin", "stdout", "stderr", "cwd", "env", "start_new_session", "process_group"})
"""What a start may ask for."""


class Preloaded:
    """The preloaded Python of this process; ``start`` forks it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        self._environ = dict(os.environ)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        with self._control.makefile("rb") as answers:
            line = answers.readline()
        assert line, "the preloaded Python has ended; its error is above"
        self._read: list[str] | None = json.loads(line)
        atexit.register(self.close)

    def close(self) -> None:
        """End it; what it has started keeps running."""
        self._control.close()
        self._process.wait()

    def fits(self, environ: Mapping[str, str]) -> bool:
        """Whether a start with these variables would have imported the same, and the kernel allows it."""
        if self._read is None:
            return False
        names = {name for name in {*environ, *self._environ} if name.startswith(READ_BEFORE_IMPORTS)}
        return all(environ.get(name) == self._environ.get(name) for name in names.union(self._read))

    def start(self, request: Mapping[str, Any], streams: list[int]) -> int:
        """Fork, and return the id of the process once it is set up."""
        mine, theirs = socket.socketpair()
        text = json.dumps(request).encode()
        with mine:
            with theirs, self._lock:
                socket.send_fds(self._control, [len(text).to_bytes(8, "big")], [*streams, theirs.fileno()])
                self._control.sendall(text)
                pid = int.from_bytes(self._control.recv(4, socket.MSG_WAITALL), "big")
            assert pid, "the preloaded Python has ended"
            answer = mine.recv(4096)
        if answer != b"\0":
            os.waitpid(pid, 0)
            number, _, message = answer.decode().partition(" ")
            raise OSError(int(number or 0), message or "the preloaded program has ended before its start")
        return pid


@cache
def preloaded() -> Preloaded:
    """The one of this process."""
    return Preloaded()


def can_preload(options: Mapping[str, Any]) -> bool:
    """Whether a start is the same without ``exec``: not at a terminal, with nothing set that imports read."""
    if sys.platform != "linux" or not set(options) <= PASSED_ON or "HARNESS_TEST_REAL_STARTS" in os.environ:
        return False
    if any(_is_terminal(options.get(name), number) for number, name in enumerate(("stdin", "stdout", "stderr"))):
        return False
    return preloaded().fits(options.get("env") or os.environ)


def _is_terminal(stream: Any, number: int) -> bool:
    if isinstance(stream, int) and stream < 0:
        return False
    return os.isatty(number if stream is None else stream if isinstance(stream, int) else stream.fileno())


def _umask() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))


class PreloadedPopen(subprocess.Popen[bytes]):
    """``subprocess.Popen`` of a Python program whose modules the preloaded Python has imported."""

    def _execute_child(self, *values: Any) -> None:
        given = inspect.signature(subprocess.Popen._execute_child).bind(self, *values).arguments  # type: ignore[attr-defined]  # what Popen replaces for other systems too
        argv, environ = list(given["args"]), given["env"] if given["env"] is not None else dict(os.environ)
        sys.audit("subprocess.Popen", argv[0], argv, given["cwd"], given["env"])
        request = {
            "argv": [os.fspath(word) for word in argv],
            "environ": dict(environ),
            "cwd": os.fspath(given["cwd"] or os.getcwd()),
            "session": bool(given["start_new_session"]),
            "group": given["process_group"],
            "umask": _umask(),
        }
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid = preloaded().start(request, [number if end == -1 else end for number, end in enumerate(ends)])
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]  # as in Popen
