"""A Python that has imported the ``harness`` program and forks for each start of it; ``preloaded.py`` is its client.

It reads requests from the socket whose descriptor is its first argument. A forked child becomes what ``exec`` of the
program would have made: a child of this process's parent, with its own arguments, environment, directory, streams,
session and names in ``/proc``. It then runs the program as ``__main__``, and the interpreter ends as usual.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import os
import socket
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping
from typing import Any

COMMANDS = (
    *("run", "terminal", "jobs", "files", "copying.copy", "fleet.run", "fleet.calls", "fleet.kept_runs"),
    *("forwards.command", "servers", "audit", "tools", "permissions", "doctor"),
)
BACKENDS = (
    *("composition", "local", "tmux", "ssh.openssh", "ssh.login", "ssh.asyncssh_engine", "ssh.asyncssh_login"),
    *(
        "posix.persistent_shell",
        "posix.output_noise",
        "posix.files.files",
        "posix.files.content",
        "posix.files.copying",
    ),
    *(f"posix.jobs.{name}" for name in ("shell_jobs", "termination", "command_keys", "follow", "output_reader")),
)
TOOLS = ("core", "dev", "search", "web", "agents", "interaction", "background")
PRELOADED = (
    *("anyio._backends._asyncio", "harness.cli.main"),
    *(f"harness.cli.commands.{name}" for name in COMMANDS),
    *(f"harness_backends.{name}" for name in BACKENDS),
    *(f"harness_tools.{name}" for name in TOOLS),
)
"""What most commands import; nothing that takes long and few of them need."""
READS_WITHOUT_EFFECT = ("zoneinfo", "asyncssh")
"""These are imported before reads of the environment are noted.

zoneinfo notes the directory of the user's packages, which a virtual environment does not use; asyncssh looks for a
library by running gcc and ldconfig, which get all variables, in a temporary directory.
"""
CLONE_PARENT, CLONE_CHILD_SETTID, SYS_CLONE3 = 0x8000, 0x1000000, 435
SYS_BRK = {"x86_64": 12, "aarch64": 214}
PR_SET_NAME, PR_SET_MM, PR_SET_MM_MAP = 15, 35, 14
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))

LIBC = ctypes.PyDLL(None, use_errno=True)  # PyDLL: the interpreter stays locked while it forks
LIBC.syscall.restype = ctypes.c_long
LIBC.pthread_self.restype = ctypes.c_void_p
shown_in_proc: list[Any] = []  # the memory that /proc shows, which must not be freed


class CloneArguments(ctypes.Structure):
    """``struct clone_args`` of clone3(2)."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    ]


class MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map`` of prctl(2)."""

    WORDS = (
        *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
        *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
    )
    _fields_ = [
        *((name, ctypes.c_uint64) for name in WORDS),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def check(result: int, what: str) -> int:
    """Return the result of a system call, or raise its error."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


# -- what modules read of the environment while they are imported


class EnvironmentReads:
    """Context that notes which variables are read. ``*`` is all of them."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __enter__(self) -> EnvironmentReads:
        kind: Any = type(os.environ)
        self._kept = kind.__getitem__, kind.__iter__
        get, iterate = self._kept

        def noting_get(environ: Any, name: str) -> str:
            self.names.add(os.fsdecode(name))
            return str(get(environ, name))

        def noting_iterate(environ: Any) -> Any:
            self.names.add("*")
            return iterate(environ)

        kind.__getitem__, kind.__iter__ = noting_get, noting_iterate
        return self

    def __exit__(self, *error: object) -> None:
        kind: Any = type(os.environ)
        kind.__getitem__, kind.__iter__ = self._kept


# -- forking


def thread_id_address() -> int:
    """Return where the C library keeps this thread's id, which a fork has to change."""
    start: int = LIBC.pthread_self()
    words = (ctypes.c_int * 512).from_address(start)
    found = [start + 4 * index for index, word in enumerate(words) if word == threading.get_native_id()]
    if len(found) != 1:
        raise OSError(f"the C library keeps the id of this thread at {len(found)} addresses")
    return found[0]


def fork_sibling(thread_id: int) -> int:
    """Fork a child of this process's parent; returns 0 in the child."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError("a preloaded module has started a thread")
    arguments = CloneArguments(flags=CLONE_PARENT | CLONE_CHILD_SETTID, child_tid=thread_id)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = LIBC.syscall(SYS_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return check(pid, "clone3")


def show_in_proc(argv: list[bytes], environ: Mapping[bytes, bytes]) -> None:
    """Make ``/proc/PID`` show these arguments and variables."""
    with open("/proc/self/stat") as file:
        fields = dict(enumerate(file.read().rpartition(")")[2].split(), 3))
    lines = [argv, [name + b"=" + value for name, value in environ.items()]]
    texts = [ctypes.create_string_buffer(b"".join(line + b"\0" for line in part) or b"\0") for part in lines]
    bounds = [(ctypes.addressof(text), ctypes.addressof(text) + len(text) - 1) for text in texts]
    memory = MemoryMap(
        *(int(fields[number]) for number in (26, 27, 45, 46, 47)),
        check(LIBC.syscall(SYS_BRK[os.uname().machine], ctypes.c_void_p(0)), "brk"),
        int(fields[28]),
        *bounds[0],
        *bounds[1],
        exe_fd=0xFFFFFFFF,
    )
    set_process(PR_SET_MM, PR_SET_MM_MAP, ctypes.addressof(memory), ctypes.sizeof(memory))
    shown_in_proc[:] = texts


def set_process(option: int, *values: int) -> None:
    """Call prctl(2)."""
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    check(LIBC.prctl(ctypes.c_int(option), *words), "prctl")


# -- the child


def open_standard_stream(descriptor: int, name: str, mode: str) -> None:
    """Open a standard stream as the interpreter does when it starts."""
    before = getattr(sys, f"__{name}__")
    binary: Any = open(descriptor, mode + "b", closefd=False)  # noqa: SIM115  # open until the process ends
    binary.raw.name = f"<{name}>"
    lines = descriptor == 2 or os.isatty(descriptor)
    text: Any = io.TextIOWrapper(binary, before.encoding, before.errors, newline="\n", line_buffering=lines)
    text.mode = mode
    setattr(sys, name, text)
    setattr(sys, f"__{name}__", text)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Take on what ``exec`` would have given to the program."""
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    for descriptor, source in enumerate(streams):
        os.dup2(source, descriptor)
    os.environb.clear()
    os.environb.update({os.fsencode(name): os.fsencode(value) for name, value in request["environ"].items()})
    time.tzset()
    sys.argv = request["argv"]
    sys.orig_argv = [sys.executable, *sys.argv]
    sys.path[0] = os.path.dirname(sys.argv[0])
    show_in_proc([os.fsencode(word) for word in sys.orig_argv], os.environb)
    name = ctypes.create_string_buffer(os.fsencode(os.path.basename(sys.argv[0]))[:15])
    set_process(PR_SET_NAME, ctypes.addressof(name))
    for descriptor, (stream, mode) in enumerate(STREAMS):
        open_standard_stream(descriptor, stream, mode)


def receive(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a request and its descriptors: the three streams, and where to report."""
    head, descriptors, _, _ = socket.recv_fds(control, 8, 4)
    if not head:
        return None
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += control.recv(size - len(text))
    return json.loads(text), list(descriptors)


def serve(control: socket.socket) -> str | None:
    """Fork for each request; returns in the children, with the path of their program, and at the end."""
    thread_id = thread_id_address()
    while received := receive(control):
        request, descriptors = received
        *streams, report = descriptors
        pid = fork_sibling(thread_id)
        if pid == 0:
            answer = b"\0"
            try:
                become(request, streams)
            except OSError as error:
                answer = f"{error.errno or 0} {error}".encode()
            os.write(report, answer)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            if answer != b"\0":
                os._exit(127)
            return str(sys.argv[0])
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(pid.to_bytes(4, "big"))
    return None


def main() -> str | None:
    """Import, say what was read of the environment, and serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        show_in_proc([b"probe"], os.environb)
    except OSError:  # a kernel that lets no process do this
        control.sendall(b"null\n")
        return None
    for name in READS_WITHOUT_EFFECT:
        importlib.import_module(name)
    tempfile.tempdir = None  # it was chosen by TMPDIR
    with EnvironmentReads() as reads:
        for name in PRELOADED:
            importlib.import_module(name)
    control.sendall(json.dumps(sorted(reads.names)).encode() + b"\n")
    return serve(control)


if program := main():
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=program, __builtins__=__builtins__)
    with open(program) as script:
        code = compile(script.read(), program, "exec")
    sys.modules["preloaded_server"] = sys.modules["__main__"]  # else its globals would be freed
    sys.modules["__main__"] = module
    exec(code, module.__dict__)
