"""The start of a job in a pane: its files, and the keys to type. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.command import Command
from harness.errors import TerminalError, UnsupportedOperation

from ...posix.jobs.launch import MISSING, NOT_A_DIRECTORY, NOT_ENTERED, account_text
from ...posix.state_directory import JobRecord, JobStore
from ..naming import command_text, record_text
from ..pane.keyboard import Dispatch, SavedFile
from ..pane.nested_shells import command_lines
from ..pane.pane_state import Pane
from ..pane.respawn_check import is_ours, known_program
from ..setup import Setup, fish_quote
from .pane_job import PaneJob

if TYPE_CHECKING:
    from ...posix.sudo.user_change import UserChange

__all__ = [
    "WrappedCommand",
    "command_files",
    "plan",
    "slot_text",
    "wrap_command",
]


# -- The wrapper of a command with options of its own (``cwd``, ``env``, ``stdin``, ``user``, ``tty``). Pure.


_USER = re.compile(r"[A-Za-z_0-9][A-Za-z0-9_.@+-]*")
MAX_INLINE_BYTES = 100_000
"""Maximum bytes of a command for another user: it is one argument, which Linux limits to 128 KiB."""


BUILTIN = {"bash": "\\builtin ", "zsh": "\\builtin "}
"""The prefix for a builtin in shells where functions can override builtins."""
COMMAND = "\\command "


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    """The files of a wrapped command: ``run`` is the wrapper (None: the command's own file); ``stdin`` is uploaded."""

    run: str | None = None
    stdin: bytes | Path | None = None


def wrap_command(
    command: Command,
    job_id: str,
    store: JobStore,
    kind: str,
    target: object,
    hooks: str = "",
    change: UserChange | None = None,
) -> WrappedCommand:
    """Return the files that a command needs in addition to its own.

    Args:
        hooks: the directory of the hook files, where the pane's shell runs.
        change: how it runs as another user if that requires a password.

    Raises:
        UnsupportedOperation: the command is too long to run as another user, or the user name is invalid.
    """
    wrapped = command.cwd or command.env or command.stdin is not None or command.user or command.tty is False
    if not wrapped:
        return WrappedCommand()
    quote = fish_quote if kind == "fish" else shlex.quote
    source = _source(kind, whole="\n" not in command.command, path=quote(store.path(job_id, "sh")))
    inner = _as_user(command, quote, target, change) if command.user else source
    if command.tty is False:
        inner = _apart(store.path(job_id, "cmd"), hooks, inner if command.user else "", kind, quote)
    redirect = _redirections(command, job_id, store, quote)
    text = _fish(command, inner, redirect) if kind == "fish" else _posix(command, inner, redirect, kind)
    return WrappedCommand(text, command.stdin or None)


def _source(kind: str, *, whole: bool, path: str) -> str:
    """Return shell text that marks the start of the output and reads the command's own file.

    ``hxF`` names that file (in bash ``hxei`` reads it), or, with tracing, the one with its record, which contains the
    marker itself. The command sees the exit status of the previous one.
    """
    if kind == "fish":
        return f"hxc\nbuiltin source {path}"
    status = "{ hxg && :; } 2>/dev/null\n"
    if kind == "bash":
        return f'{status}\\builtin eval "$hxei"'
    if kind != "zsh":
        return f'{status}\\. "$hxF"'
    by_name = "hxev='\\builtin . \"$hxF\"'"
    if whole:  # as hxone does
        by_name = f'if {{ [[ -o xtrace ]]; }} 2>/dev/null; then {by_name}; else hxev=$(<"$hxF"); fi'
    return f'{by_name}\n{status}\\builtin eval "$hxev"'


def _redirections(command: Command, job_id: str, store: JobStore, quote: Callable[[str], str]) -> str:
    if command.stdin is None:
        return ""
    return f" <{quote(store.path(job_id, 'in')) if command.stdin else '/dev/null'}"


def _apart(record: str, hooks: str, program: str, kind: str, quote: Callable[[str], str]) -> str:
    """Return text that runs the command in a new ``sh`` with separate streams, unaffected by aliases and functions."""
    run = "command sh" if kind == "fish" else "\\command sh"
    return f"{run} {quote(f'{hooks}/separate_streams.sh')} {quote(record.removesuffix('.cmd'))} {program}".rstrip()


def _posix(command: Command, inner: str, redirect: str, kind: str) -> str:
    start = "hxc\n" if command.user or command.tty is False else ""
    if not command.cwd and not command.env:
        return f"{start}{{ {inner}\n}}{redirect}\n"
    export = f"{BUILTIN.get(kind, chr(92))}export"
    exports = "".join(f"{export} {name}={shlex.quote(value)}\n" for name, value in command.env)
    return f"{start}(\n{_enter(command.cwd, kind)}{exports}{inner}\n){redirect}\n"


def _directory(cwd: str, quote: Callable[[str], str]) -> str:
    if cwd == "~" or cwd.startswith("~/"):
        return f'"$HOME"{quote(cwd[1:]) if cwd[1:] else ""}'
    return quote(cwd if cwd.startswith("/") else f"./{cwd}")  # keeps shells from using CDPATH or reading "-"


def _enter(cwd: str | None, kind: str) -> str:
    """Return text that enters the directory and reports the result in a marker and, for fallback mode, in a file.

    The resulting directory is checked, as ``cd`` may be redefined.
    """
    if not cwd:
        return ""
    place, look = _directory(cwd, shlex.quote), "[[ {} ]]" if kind in BUILTIN else "[ {} ]"
    meant = place if place.startswith(("/", '"', "'/")) else f'"$hxo"/{place}'
    there, is_directory, exists = (look.format(test) for test in (f"{meant} -ef .", f"-d {place}", f"-e {place}"))
    return (
        f"{{ hxo=$PWD; {BUILTIN.get(kind, COMMAND)}cd -- {place}; }} >/dev/null 2>&1\n"
        f'if {there}; then {{ hxm "W;$hxn;in=0"; }} 2>/dev/null\n'
        f"else hxz={NOT_ENTERED}; {is_directory} || hxz={NOT_A_DIRECTORY}; {exists} || hxz={MISSING}\n"
        f'hxwrite "in=$hxz;$hxS" "$hxdir/$hxi.why"; hxm "W;$hxn;in=$hxz;$hxS"; {BUILTIN.get(kind, chr(92))}exit 1; fi\n'
    )


def _fish(command: Command, inner: str, redirect: str) -> str:
    start = "hxc\n" if command.user or command.tty is False else ""
    exports = "".join(f"set -lx {name} {fish_quote(value)}\n" for name, value in command.env)
    if not command.cwd:
        return f"{start}begin\n{exports}{inner}\nend{redirect}\n"
    place = _directory(command.cwd, fish_quote)
    enter = (
        f'if builtin cd -- {place}\nhxm "W;$hxn;in=0"\n{inner}\n'
        f"else\nset -g hxz {NOT_ENTERED}\ntest -d {place}; or set -g hxz {NOT_A_DIRECTORY}\n"
        f"test -e {place}; or set -g hxz {MISSING}\n"
        'builtin echo "in=$hxz;$hxS" >$hxdir/$hxi.why\nhxm "W;$hxn;in=$hxz;$hxS"\nhxst 1\nend\n'
    )
    return (
        f"{start}set -g hxpwd $PWD\nbegin\n{exports}{enter}set -g hxz $status\nend{redirect}\n"
        "builtin cd -- $hxpwd\nhxst $hxz\n"
    )


def _as_user(command: Command, quote: Callable[[str], str], target: object, change: UserChange | None) -> str:
    """Return text that runs a command as another user; ``su -c`` is tried last, as it detaches the terminal."""
    user = command.user or ""
    script = account_text(user) + command.command
    if not _USER.fullmatch(user):
        raise UnsupportedOperation(f"{user!r} is not a valid user name", target=target, hint="use a login name")
    if len(script.encode("utf-8", "surrogateescape")) > MAX_INLINE_BYTES:
        raise UnsupportedOperation(
            f"a command of more than {MAX_INLINE_BYTES} bytes cannot run as another user",
            target=target,
            hint="write it to a file on the target and run the file",
        )
    keep = f" --preserve-env={','.join(name for name, _ in command.env)}" if command.env else ""
    sudo = f"exec sudo -n{keep} -u {user} --"
    if change is not None and change.askpass:
        *words, end = map(shlex.quote, change.argv)
        sudo = f"SUDO_ASKPASS={shlex.quote(change.askpass)}; export SUDO_ASKPASS; exec {' '.join(words)}{keep} {end}"
    text = (
        "\\unset -f command id runuser su sudo 2>/dev/null\n"
        f'if [ "$(id -un)" = {user} ]; then exec sh -c "$1"\n'
        f'elif [ "$(id -u)" != 0 ]; then {sudo} sh -c "$1"\n'
        f'elif command -v runuser >/dev/null; then exec runuser -u {user} -- sh -c "$1"\n'
        f'else exec su -s /bin/sh -c "$1" -- {user}; fi'
    )
    return f"sh -c {quote(text)} sh {quote(script)}"


# -- The files and the typed input of a command. Pure.


def plan(
    setup: Setup, store: JobStore, owner: str, pane: Pane, job: PaneJob, body: WrappedCommand, target: object
) -> tuple[Dispatch, list[SavedFile]]:
    """Return the keys to type, and the files that must exist first.

    Raises:
        TerminalError: the command's options need files that the pane's innermost shell cannot read.
    """
    record, slot = _record(setup, owner, pane, job), f"{setup.pane_dir(pane.uid)}/next"
    fill = f"mv -f {shlex.quote(f'{slot}.{job.job_id}')} {shlex.quote(slot)}"
    action = Dispatch(
        version=setup.version,
        pane=pane.pane_id,
        place=pane.place,
        job_id=job.job_id,
        kind=pane.shell.kind,
        slot=SavedFile(slot, slot_text(job, body)),
        lock=setup.config.keyboard_lock,
        script="" if setup.control else fill,
        known=known_program(pane, here=setup.here),
        ours=is_ours(pane.uid),
    )
    if pane.shell.files:
        return action, command_files(store, record, pane.shell.kind, body)
    _check_plain(body, target)
    lines = tuple(command_lines(pane.shell.kind, job.job_id, job.command.command))
    return replace(action, lines=lines), [SavedFile(store.path(job.job_id, "cmd"), record_text(record))]


def _record(setup: Setup, owner: str, pane: Pane, job: PaneJob) -> JobRecord:
    return JobRecord(
        job_id=job.job_id,
        command=job.command.command,
        kind="pane",
        owner=owner,
        pane=pane.pane_id,
        cwd=pane.cwd,
        log=job.log,
        host=setup.host,
        offset=job.offset,
        nonce=job.nonce,
        proof=job.proof,
        key=job.command.key or "",
        user=job.command.user or "",
    )


def command_files(store: JobStore, record: JobRecord, kind: str, body: WrappedCommand) -> list[SavedFile]:
    """Return a command's record, its text, and its wrapper if it has one."""
    text = command_text(record.command, kind)
    files = [
        SavedFile(store.path(record.job_id, "sh"), text),
        SavedFile(store.path(record.job_id, "cmd"), record_text(record, kind)),
    ]
    return files if body.run is None else [*files, SavedFile(store.path(record.job_id, "run"), body.run)]


def slot_text(job: PaneJob, body: WrappedCommand) -> str:
    """Return the content of a pane's slot: which of the job's files the shell reads next, and its secret."""
    return f"{job.job_id} {'sh' if body.run is None else 'run'} {job.secret}\n"


def _check_plain(body: WrappedCommand, target: object) -> None:
    if body.run is not None:
        raise TerminalError(
            "cwd, env, stdin, user and tty=False are not supported in a nested shell",
            target=target,
            hint="put them into the command, or exit the nested shell first",
        )
