"""Starts that fork a preloaded Python do what ``exec`` of the program does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.preloaded import PreloadedPopen, can_preload
from tests.support.program import Program

from harness.cli.main import Program as CommandGroup

REPORT = r"""
import gc, json, locale, os, random, signal, sys, tempfile, threading, time

def file(name):
    return open(f"/proc/self/{name}", encoding="utf-8", errors="surrogateescape").read()

def stream(one):
    return [one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.fileno(), one.buffer.raw.name]

status = dict(line.split(":\t", 1) for line in file("status").splitlines())
names = "Name Umask State Threads SigBlk SigIgn SigCgt ShdPnd NoNewPrivs PPid Uid Gid".split()
descriptors = [f"/proc/self/fd/{number}" for number in range(1024)]
print(json.dumps({
    "argv": [sys.argv, sys.orig_argv, file("cmdline")],
    "environ": [dict(os.environ), file("environ").split("\0")],
    "names": {name: status[name] for name in names},
    "where": [os.getcwd(), os.readlink("/proc/self/exe"), sys.path, sys.executable, sys.prefix],
    "group": [os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), os.getppid()],
    "descriptors": [(name, os.readlink(name).split(":")[0]) for name in descriptors if os.path.lexists(name)],
    "streams": [stream(one) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "main": [__name__, __file__, threading.current_thread() is threading.main_thread(), threading.active_count()],
    "flags": [list(sys.flags), sys.warnoptions, locale.setlocale(locale.LC_ALL), time.tzname, tempfile.gettempdir()],
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)],
    "native": threading.get_native_id() == os.getpid(),
    "stdin": sys.stdin.read(),
}))
print(random.random(), file=sys.stderr)
"""
STREAMS: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def script(path: Path, text: str) -> str:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("more", [{}, {"start_new_session": True}, {"process_group": 0}])
def test_a_forked_start_looks_like_exec(program: Program, tmp_path: Path, more: dict[str, Any]) -> None:
    environ = program.environ | {
        "TZ": "Asia/Tokyo",
        "TMPDIR": str(tmp_path),
        "A": "x=\udcff\n",
        "HARNESS_SHELL": "/bin/sh",
    }
    options = {"cwd": program.home, "env": environ, **STREAMS, **more}
    assert can_preload(options)
    path = script(tmp_path / "a_long_name_of_a_program", REPORT)
    seen = []
    for kind in (subprocess.Popen, PreloadedPopen, PreloadedPopen):
        with kind([path, "", "two words", "\udcfe"], **options) as process:
            stdout, stderr = process.communicate(b"given", timeout=60)
        assert process.returncode == 0, stderr
        seen.append((json.loads(stdout), stderr))
    assert seen[0][0] == seen[1][0] == seen[2][0]
    assert len({stderr for _, stderr in seen}) == 3  # each draws its own random numbers


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(7)",
        "sys.exit('text')",
        "raise KeyError('x')",
        "raise KeyboardInterrupt",
        "os._exit(9)",
        "os.abort()",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)",
        "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
        "atexit.register(print, 'at exit')",
        "sys.stdout.write('unflushed'); os.close(1)",
    ],
)
def test_a_forked_start_ends_like_exec(program: Program, tmp_path: Path, end: str) -> None:
    path = script(tmp_path / "ending", f"import atexit, os, signal, sys, threading, time\nprint('out')\n{end}\n")
    options = {"cwd": program.home, "env": program.environ, **STREAMS}
    seen = []
    for kind in (subprocess.Popen, PreloadedPopen):
        with kind([path], **options) as process:
            seen.append((*process.communicate(timeout=60), process.wait()))
    frame = b'  File "%b", line 4, in <module>\n' % os.fsencode(path)
    (out, error, code), (forked_out, forked_error, forked_code) = seen
    assert (out, code) == (forked_out, forked_code)
    if frame in error:  # the frames of the fork are above it
        assert forked_error.endswith(error[error.index(frame) :])
    else:
        assert forked_error == error


def test_a_forked_start_is_a_child_that_can_be_signalled(program: Program) -> None:
    path = script(program.home / "waiting", "import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with PreloadedPopen([path], cwd=program.home, env=program.environ, **STREAMS) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == -number
            assert not Path(f"/proc/{process.pid}").exists()


def test_a_directory_that_is_missing_fails_the_start(program: Program) -> None:
    for kind in (subprocess.Popen, PreloadedPopen):
        with pytest.raises(FileNotFoundError):
            kind([program.path], cwd=program.home / "nowhere", env=program.environ, **STREAMS)


@pytest.mark.parametrize("variable", ["PYTHONPATH", "LC_ALL", "LANG", "LD_PRELOAD"])
def test_what_is_read_before_the_fork_needs_exec(program: Program, variable: str) -> None:
    assert can_preload({"env": program.environ})
    assert not can_preload({"env": program.environ | {variable: "other"}})


def test_a_terminal_and_other_options_need_exec(program: Program) -> None:
    ours, theirs = os.openpty()
    try:
        assert not can_preload({"env": program.environ, "stdin": theirs})
        assert not can_preload({"env": program.environ, "pass_fds": [ours]})
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("part", range(4))
def test_each_command_prints_the_same_help(program: Program, part: int) -> None:
    """This starts each command of the installed program at least once."""
    for name in sorted(CommandGroup.table)[part::4]:
        program.real = False
        forked = program.run(name, "--help")
        program.real = True
        assert program.run(name, "--help").stdout == forked.stdout != b""
        assert forked.returncode == 0, forked.stderr
